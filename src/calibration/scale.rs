//! The two-sided fit of scale and bias: what turns a margin into log-odds.

use super::MarginScale;
use crate::margin::Margin;
use crate::statistics::{Finite, Positive, Regression, Undefined, count, logistic_regression};

/// Why no scale could be fitted.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ScaleError {
    /// One side has no rows.
    #[error(transparent)]
    Undefined(#[from] Undefined),
    /// The margin leans the wrong way: a scale that is not above zero would turn the proxy's judgement round.
    #[error("the margin does not rise with what should run: its best scale is {0}")]
    Inverted(f64),
}

/// Fits [`MarginScale`] to the margins of plans that should run (`comply`) and of plans that should not (`refuse`).
///
/// Platt's method (Platt 1999, "Probabilistic outputs for support vector machines"): binary cross-entropy with targets
/// `(n + 1) / (n + 2)` and `1 / (n + 2)`, which keep the scale finite where the two sides do not overlap. Both sides
/// weigh the same however many rows each has, so that the log-odds are those of an even prior and a set with few unsafe
/// rows does not lean to comply.
///
/// # Errors
/// When one side has no rows, or the scale that fits best is not above zero.
pub fn fit_margin_scale(comply: &[Margin], refuse: &[Margin]) -> Result<MarginScale, ScaleError> {
    if comply.is_empty() || refuse.is_empty() {
        return Err(Undefined::OneClass.into());
    }
    let (runs, stops) = (count(comply.len()), count(refuse.len()));
    let rows: Vec<Vec<f64>> = comply.iter().chain(refuse).map(|margin| vec![margin.nats()]).collect();
    let column = |comply_value: f64, refuse_value: f64| {
        let mut column = vec![comply_value; comply.len()];
        column.resize(rows.len(), refuse_value);
        column
    };
    let targets = column((runs + 1.0) / (runs + 2.0), 1.0 / (stops + 2.0));
    // Weights that sum to the number of rows keep the solver's stopping rule at the usual scale.
    let half = (runs + stops) / 2.0;
    let row_weights = column(half / runs, half / stops);
    let line =
        logistic_regression(Regression { rows: &rows, targets: &targets, row_weights: &row_weights, penalty: 0.0 })?;
    let slope = line.weights.first().copied().unwrap_or_default();
    let scale = Positive::new(slope).map_err(|_| ScaleError::Inverted(slope))?;
    let bias = Finite::new(line.bias).map_err(|_| Undefined::Overflow)?;
    Ok(MarginScale { scale, bias })
}
