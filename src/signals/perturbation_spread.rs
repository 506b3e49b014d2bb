//! A2, perturbation spread: how far the verdict wanders when the image changes in ways that change nothing.
//!
//! Definition (first paper, signal A2): the standard deviation of c over 20 perturbed copies of the image, five noise
//! kinds × 4 (Gaussian at two strengths; opaque, translucent and blurred patch at a random place), in nats. Sign:
//! never negative; larger is less stable. Sample standard deviation (n − 1), checked against numpy in
//! `tests/reference/signals.json`.

use crate::margin::Margin;
use crate::statistics::{Undefined, count, standard_deviation};

/// Noise kinds, dealt in rotation.
pub const KINDS: usize = 5;
/// Perturbed copies per image.
pub const COPIES: usize = 4 * KINDS;

/// A2 and what is read off the same copies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerturbationSpread {
    /// A2: standard deviation of the margin over the copies, in nats.
    pub nats: f64,
    /// Spread against the size of the clean margin: `s / (s + |c|)`, 0 to 1. Orders triples exactly as `s / |c|` does
    /// but stays finite at a margin of zero, where it is 1.
    pub relative: f64,
    /// Share of the copies whose calibrated verdict differs from the clean image's, 0 to 1.
    pub flip_share: f64,
    /// Whether all margins, the clean one among them, have the same bits. Twenty different images never do that to a
    /// proxy that looks: take it for a fault, not for a firm verdict.
    pub all_identical: bool,
}

impl PerturbationSpread {
    /// Reads the spread off the clean margin and its [`COPIES`] perturbed ones. `refuses` is the calibrated verdict:
    /// whether a margin lies on the refusing side of the limit.
    ///
    /// # Errors
    /// When the number of copies is not [`COPIES`] (a spread that was stopped early must not feed a composite fitted
    /// on 20), or the deviation overflows.
    pub fn measure(clean: Margin, copies: &[Margin], refuses: impl Fn(Margin) -> bool) -> Result<Self, Undefined> {
        match copies.len() {
            COPIES => {}
            got if got < COPIES => return Err(Undefined::TooFew { needed: COPIES, got }),
            _ => return Err(Undefined::OutOfRange("the number of copies")),
        }
        let nats = standard_deviation(&copies.iter().map(|copy| copy.nats()).collect::<Vec<_>>())?;
        let verdict = refuses(clean);
        let flips = copies.iter().filter(|&&copy| refuses(copy) != verdict).count();
        let bits = clean.nats().to_bits();
        Ok(Self {
            nats,
            relative: relative(nats, clean),
            flip_share: count(flips) / count(copies.len()),
            all_identical: copies.iter().all(|copy| copy.nats().to_bits() == bits),
        })
    }
}

/// `s / (s + |c|)`, written as `1 / (1 + |c| / s)` so that neither sum can overflow.
fn relative(spread: f64, clean: Margin) -> f64 {
    let size = clean.nats().abs();
    match (spread > 0.0, size > 0.0) {
        (_, false) => 1.0,
        (false, true) => 0.0,
        (true, true) => 1.0 / (1.0 + size / spread),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn margins(nats: &[f64]) -> Vec<Margin> {
        nats.iter().map(|&nats| Margin::new(nats).expect("finite")).collect()
    }

    fn measure(clean: f64, copies: &[f64]) -> Result<PerturbationSpread, Undefined> {
        PerturbationSpread::measure(Margin::new(clean).expect("finite"), &margins(copies), |c| c.nats() < 0.0)
    }

    #[test]
    fn flips_are_counted_against_the_clean_verdict() {
        let mut copies = [1.0; COPIES];
        copies[..5].fill(-1.0);
        assert!((measure(0.5, &copies).expect("defined").flip_share - 0.25).abs() < 1e-12);
        assert!((measure(-0.5, &copies).expect("defined").flip_share - 0.75).abs() < 1e-12);
    }

    #[test]
    fn identical_bits_are_told_from_a_small_spread() {
        assert!(measure(0.5, &[0.5; COPIES]).expect("defined").all_identical);
        let mut copies = [0.5; COPIES];
        copies[7] = 0.5 + f64::EPSILON;
        assert!(!measure(0.5, &copies).expect("defined").all_identical);
        assert!(!measure(0.25, &[0.5; COPIES]).expect("defined").all_identical, "the clean image counts too");
    }

    #[test]
    fn only_twenty_copies_make_a_spread() {
        assert_eq!(measure(0.0, &[0.0; COPIES - 1]), Err(Undefined::TooFew { needed: COPIES, got: COPIES - 1 }));
        assert!(measure(0.0, &[0.0; COPIES + 1]).is_err());
    }

    #[test]
    fn relative_spread_is_finite_everywhere() {
        let mut copies = [0.0; COPIES];
        copies[0] = 2.0;
        let spread = measure(0.0, &copies).expect("defined");
        assert!((spread.relative - 1.0).abs() < f64::EPSILON, "a margin of zero decides nothing");
        let spread = measure(spread.nats, &copies).expect("defined");
        assert!((spread.relative - 0.5).abs() < 1e-12);
        assert!(measure(f64::MAX, &copies).expect("defined").relative >= 0.0);
    }
}
