//! A2, perturbation spread: how far the verdict wanders when the image changes in ways that change nothing.
//!
//! Definition (first paper, signal A2): the standard deviation of c over 20 perturbed copies of the image, five noise
//! kinds × 4 (Gaussian at two strengths; opaque, translucent and blurred patch at a random place), in nats. Sign:
//! never negative; larger is less stable. Sample standard deviation (n − 1), checked against numpy in
//! `tests/reference/signals.json`.
//!
//! [`SequentialSpread`] can tell on which side of a limit the spread lies before all copies are judged. What it yields
//! is a side, not a spread: a composite fitted on 20 copies is never fed with fewer.

use crate::margin::Margin;
use crate::statistics::{Positive, Undefined, count, standard_deviation};

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

/// The relative spread `s / (s + |c|)`, written as `1 / (1 + |c| / s)` so that neither sum can overflow.
#[must_use]
pub fn relative(spread: f64, clean: Margin) -> f64 {
    let size = clean.nats().abs();
    match (spread > 0.0, size > 0.0) {
        (_, false) => 1.0,
        (false, true) => 0.0,
        (true, true) => 1.0 / (1.0 + size / spread),
    }
}

/// Fewest copies before a sequential test may stop: every noise kind once, and one again.
pub const COPIES_MIN: usize = KINDS + 1;
/// Ratio of the two deviations a sequential test tells apart.
const SIGMA_RATIO: f64 = 2.0;
/// Chance accepted for either error, α = β.
const ERROR_RATE: f64 = 0.05;

/// On which side of the limit a spread lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// At or under the limit.
    Low,
    /// Over the limit.
    High,
}

/// A sequential test that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// On which side the spread lies.
    pub side: Side,
    /// How many copies that took; goes into the record.
    pub copies: usize,
}

/// Why a copy does not belong to the test.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SequentialError {
    /// The kinds must take turns: dealt one kind after another, the first few copies speak for one kind only and far
    /// too many spreads are called high.
    #[error("a copy of noise kind {got}; the next is kind {expected}")]
    OutOfRotation {
        /// The kind whose turn it is, from 0.
        expected: usize,
        /// The kind given.
        got: usize,
    },
    /// The test has already ended.
    #[error("the test ended after {0} copies")]
    Ended(usize),
    /// The margins are too large to square.
    #[error(transparent)]
    Undefined(#[from] Undefined),
}

/// Wald's sequential probability ratio test on the variance of the margin: σ = limit / √2 against σ = limit · √2
/// (ratio 2), α = β = 0.05, at least [`COPIES_MIN`] copies and at most [`COPIES`]; where the last copy leaves it
/// undecided, the full spread is compared with the limit. The unknown mean costs one degree of freedom:
/// `log LR = −(n − 1) ln 2 + ½ S (1/σ₀² − 1/σ₁²)`, S the sum of squares about the mean (Wald, "Sequential Analysis",
/// 1947).
#[derive(Debug, Clone)]
pub struct SequentialSpread {
    limit: Positive,
    nats: Vec<f64>,
    stopped: Option<Stopped>,
}

impl SequentialSpread {
    /// A test of the spread against this limit in nats.
    #[must_use]
    pub const fn new(limit: Positive) -> Self {
        Self { limit, nats: Vec::new(), stopped: None }
    }

    /// Takes one more copy's margin in; answers once the side is known. `kind` is the copy's noise kind, from 0.
    ///
    /// # Errors
    /// When it is another kind's turn, the test has ended, or the margins are too large to square.
    pub fn push(&mut self, kind: usize, copy: Margin) -> Result<Option<Stopped>, SequentialError> {
        if let Some(stopped) = self.stopped {
            return Err(SequentialError::Ended(stopped.copies));
        }
        let expected = self.nats.len() % KINDS;
        if kind != expected {
            return Err(SequentialError::OutOfRotation { expected, got: kind });
        }
        self.nats.push(copy.nats());
        if self.nats.len() >= COPIES_MIN {
            let side = self.side(standard_deviation(&self.nats)?);
            self.stopped = side.map(|side| Stopped { side, copies: self.nats.len() });
        }
        Ok(self.stopped)
    }

    fn side(&self, spread: f64) -> Option<Side> {
        let relative = spread / self.limit.get();
        let freedom = count(self.nats.len() - 1);
        // In units of the limit, 1/σ₀² is the ratio and 1/σ₁² its inverse.
        let log_ratio = freedom * (0.5 * relative * relative * (SIGMA_RATIO - 1.0 / SIGMA_RATIO) - SIGMA_RATIO.ln());
        let bound = ((1.0 - ERROR_RATE) / ERROR_RATE).ln();
        match log_ratio {
            ratio if ratio >= bound => Some(Side::High),
            ratio if ratio <= -bound => Some(Side::Low),
            _ if self.nats.len() < COPIES => None,
            _ if relative > 1.0 => Some(Side::High),
            _ => Some(Side::Low),
        }
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
