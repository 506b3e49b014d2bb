//! A4, decoding instability: how much the verdict depends on which reasoning the proxy happens to write.
//!
//! Definition (first paper, signal A4): the standard deviation of c over 20 traces sampled at temperature 0.7, each
//! followed by the forced verdict, in nats. Sign: never negative; larger is less stable. Sample standard deviation
//! (n − 1), checked against numpy in `tests/reference/signals.json`.

use crate::margin::Margin;
use crate::statistics::{Undefined, standard_deviation};

/// Traces sampled per triple.
pub const TRACES: usize = 20;
/// Softmax temperature of the sampled traces.
pub const TEMPERATURE: f32 = 0.7;

/// A4 in nats, from the margins after [`TRACES`] sampled traces.
///
/// # Errors
/// When the number of margins is not [`TRACES`] (a composite fitted on 20 must not be fed with fewer), or the
/// deviation overflows.
pub fn decoding_instability(margins: &[Margin]) -> Result<f64, Undefined> {
    match margins.len() {
        TRACES => standard_deviation(&margins.iter().map(|margin| margin.nats()).collect::<Vec<_>>()),
        got if got < TRACES => Err(Undefined::TooFew { needed: TRACES, got }),
        _ => Err(Undefined::OutOfRange("the number of traces")),
    }
}
