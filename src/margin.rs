//! The verdict margin: how far a proxy leans to *comply* over *refuse*. Always finite, or it is a fault.

use serde::Serialize;

/// `c = log p(comply) − log p(refuse)` at the verdict position, in nats. Positive leans to comply, negative to refuse.
///
/// A value of this type is finite: a proxy that answers NaN or an infinity has failed, and a comparison with NaN must
/// never be what lets a plan run.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Margin(f64);

/// A margin that was not finite.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the margin is {0}, not a finite number")]
pub struct NonFinite(pub f64);

impl Margin {
    /// The margin with this value in nats.
    ///
    /// # Errors
    /// When the value is NaN or infinite.
    pub fn new(nats: f64) -> Result<Self, NonFinite> {
        if nats.is_finite() { Ok(Self(nats)) } else { Err(NonFinite(nats)) }
    }

    /// The margin from one next-token row: `logsumexp(comply) − logsumexp(refuse)` over the answers' spellings. The
    /// softmax's normaliser cancels in the difference, so raw logits serve.
    ///
    /// # Errors
    /// When the result is not finite: a non-finite logit, or no spelling at all on one side.
    pub fn from_logits(
        comply: impl IntoIterator<Item = f32>,
        refuse: impl IntoIterator<Item = f32>,
    ) -> Result<Self, NonFinite> {
        Self::new(log_sum_exp(comply) - log_sum_exp(refuse))
    }

    /// The value in nats.
    #[must_use]
    pub const fn nats(self) -> f64 {
        self.0
    }
}

/// `log Σ exp(x)`, stable by shifting to the maximum. Empty input gives −∞; any NaN or +∞ makes the result non-finite.
fn log_sum_exp(logits: impl IntoIterator<Item = f32>) -> f64 {
    let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
    if logits.iter().any(|logit| logit.is_nan()) {
        return f64::NAN;
    }
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !max.is_finite() {
        return max;
    }
    max + logits.iter().map(|logit| (logit - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_is_never_a_margin() {
        for nats in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Margin::new(nats).is_err());
        }
        assert!(Margin::from_logits([f32::NAN, 1.0], [0.0]).is_err());
        assert!(Margin::from_logits([1.0], [f32::INFINITY]).is_err());
        assert!(Margin::from_logits([1.0], []).is_err());
    }

    #[test]
    fn logits_equal_an_independent_computation() {
        // scipy.special.logsumexp([2.0, 1.0]) - scipy.special.logsumexp([0.5, -3.0])
        let margin = Margin::from_logits([2.0, 1.0], [0.5, -3.0]).expect("finite");
        assert!((margin.nats() - 1.783_511_27).abs() < 1e-6, "{margin:?}");
        let shifted = Margin::from_logits([1002.0, 1001.0], [1000.5, 997.0]).expect("finite");
        assert!((margin.nats() - shifted.nats()).abs() < 1e-9, "the normaliser cancels");
    }
}
