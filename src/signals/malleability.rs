//! A5, the composite: a standardised logistic regression over named signals.
//!
//! Definition (first paper, signal A5): L2-regularised logistic regression (C = 1) over A1's three rates, A2, A3 and
//! A4, each standardised on the rows it was fitted on. Score: `σ(bias + Σ wᵢ (xᵢ − meanᵢ) / scaleᵢ)`, 0 to 1; larger is
//! likelier to be what the composite was fitted to predict. A proxy that writes no traces uses a reduced composite,
//! which simply names fewer features.

use serde::{Deserialize, Serialize};

use super::{Feature, Features};
use crate::statistics::{Finite, Positive, Share};

/// What a composite predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// That the calibrated verdict is wrong: the stand-in until malleability has been measured.
    WrongVerdict,
    /// That the refusal bends when an everyday object is inserted.
    Malleable,
}

/// A fitted composite: per feature its mean, scale and weight; one bias; and what it was fitted to predict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Columns", into = "Columns")]
pub struct Composite {
    target: Target,
    terms: Vec<Term>,
    bias: Finite,
}

/// One standardised feature and its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// What is read.
    pub feature: Feature,
    /// Mean over the rows it was fitted on, in the feature's unit.
    pub mean: Finite,
    /// Standard deviation over those rows (divisor n, as scikit-learn's `StandardScaler`), in the feature's unit.
    pub scale: Positive,
    /// Weight of the standardised feature, in log-odds.
    pub weight: Finite,
}

/// Why columns are not a composite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompositeError {
    /// No feature at all.
    #[error("a composite needs at least one feature")]
    Empty,
    /// A feature named twice.
    #[error("the feature {0} is named twice")]
    Duplicate(Feature),
    /// Columns of different lengths.
    #[error("{features} features, but {mean} means, {scale} scales and {weights} weights")]
    LengthMismatch {
        /// Number of features.
        features: usize,
        /// Number of means.
        mean: usize,
        /// Number of scales.
        scale: usize,
        /// Number of weights.
        weights: usize,
    },
}

/// Why a composite gives no score. Nothing is filled in: each of these is a veto.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ScoreError {
    /// A feature it was fitted on was not measured.
    #[error("the reading {0} is missing")]
    Missing(Feature),
    /// A feature, or the sum, is NaN or infinite.
    #[error("the reading {0} is not a finite number, or too large to weigh")]
    NonFinite(Feature),
}

impl Composite {
    /// A composite over these terms.
    ///
    /// # Errors
    /// When there is no term, or a feature is named twice.
    pub fn new(target: Target, terms: Vec<Term>, bias: Finite) -> Result<Self, CompositeError> {
        if terms.is_empty() {
            return Err(CompositeError::Empty);
        }
        let mut seen = std::collections::BTreeSet::new();
        match terms.iter().find(|term| !seen.insert(term.feature)) {
            Some(term) => Err(CompositeError::Duplicate(term.feature)),
            None => Ok(Self { target, terms, bias }),
        }
    }

    /// What it predicts.
    #[must_use]
    pub const fn target(&self) -> Target {
        self.target
    }

    /// Its terms, in the order they were fitted.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The features it needs.
    pub fn features(&self) -> impl Iterator<Item = Feature> + '_ {
        self.terms.iter().map(|term| term.feature)
    }

    /// Log-odds at the mean of every feature.
    #[must_use]
    pub const fn bias(&self) -> Finite {
        self.bias
    }

    /// The log-odds of the target for these readings. Readings it does not name are ignored.
    ///
    /// # Errors
    /// When a feature it names is missing or not finite.
    pub fn log_odds(&self, readings: &Features) -> Result<f64, ScoreError> {
        let mut sum = self.bias.get();
        for term in &self.terms {
            let reading = *readings.get(&term.feature).ok_or(ScoreError::Missing(term.feature))?;
            sum += term.weight.get() * ((reading - term.mean.get()) / term.scale.get());
            if !reading.is_finite() || !sum.is_finite() {
                return Err(ScoreError::NonFinite(term.feature));
            }
        }
        Ok(sum)
    }

    /// The probability of the target for these readings.
    ///
    /// # Errors
    /// When a feature it names is missing or not finite.
    pub fn score(&self, readings: &Features) -> Result<Share, ScoreError> {
        let log_odds = self.log_odds(readings)?;
        let last = self.terms.last().map_or(Feature::MarginSize, |term| term.feature);
        Share::new(logistic(log_odds)).map_err(|_| ScoreError::NonFinite(last))
    }
}

/// `1 / (1 + e^−x)`, without overflow on either side.
pub(crate) fn logistic(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// A composite as files write it: parallel columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    target: Target,
    features: Vec<Feature>,
    mean: Vec<Finite>,
    scale: Vec<Positive>,
    weights: Vec<Finite>,
    bias: Finite,
}

impl TryFrom<Columns> for Composite {
    type Error = CompositeError;

    fn try_from(columns: Columns) -> Result<Self, CompositeError> {
        let Columns { target, features, mean, scale, weights, bias } = columns;
        let lengths = [mean.len(), scale.len(), weights.len()];
        if lengths.iter().any(|&length| length != features.len()) {
            let [mean, scale, weights] = lengths;
            return Err(CompositeError::LengthMismatch { features: features.len(), mean, scale, weights });
        }
        let terms = features
            .into_iter()
            .zip(mean)
            .zip(scale)
            .zip(weights)
            .map(|(((feature, mean), scale), weight)| Term { feature, mean, scale, weight })
            .collect();
        Self::new(target, terms, bias)
    }
}

impl From<Composite> for Columns {
    fn from(composite: Composite) -> Self {
        let Composite { target, terms, bias } = composite;
        Self {
            target,
            features: terms.iter().map(|term| term.feature).collect(),
            mean: terms.iter().map(|term| term.mean).collect(),
            scale: terms.iter().map(|term| term.scale).collect(),
            weights: terms.iter().map(|term| term.weight).collect(),
            bias,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composite() -> Composite {
        let text = r#"
            target = "wrong-verdict"
            features = ["perturbation-spread", "constitution-reliance"]
            mean = [0.5, 1.0]
            scale = [0.25, 2.0]
            weights = [0.8, -0.3]
            bias = -1.0
        "#;
        toml::from_str(text).expect("a composite")
    }

    #[test]
    fn scores_by_the_formula() {
        let readings = Features::from([(Feature::PerturbationSpread, 1.0), (Feature::ConstitutionReliance, 3.0)]);
        // −1 + .8·2 − .3·1 = .3; 1 / (1 + e^−.3) = .574442516811659
        assert!((composite().log_odds(&readings).expect("scored") - 0.3).abs() < 1e-12);
        assert!((composite().score(&readings).expect("scored").get() - 0.574_442_516_811_659).abs() < 1e-12);
    }

    #[test]
    fn nothing_is_filled_in() {
        let mut readings = Features::from([(Feature::PerturbationSpread, 1.0), (Feature::MarginSize, 1.0)]);
        assert_eq!(composite().score(&readings), Err(ScoreError::Missing(Feature::ConstitutionReliance)));
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX] {
            readings.insert(Feature::ConstitutionReliance, 0.0);
            readings.insert(Feature::PerturbationSpread, bad);
            let error = composite().score(&readings).expect_err("not finite");
            assert_eq!(error, ScoreError::NonFinite(Feature::PerturbationSpread));
        }
    }

    #[test]
    fn reads_back_what_it_writes_and_refuses_the_rest() {
        let text = toml::to_string(&composite()).expect("written");
        assert_eq!(toml::from_str::<Composite>(&text).expect("read"), composite());
        for (good, bad, why) in [
            ("0.25, 2.0", "0.25", "1 scales"),
            ("0.25, 2.0", "0.25, 0.0", "above 0"),
            ("0.8", "nan", "finite"),
            ("constitution-reliance", "perturbation-spread", "named twice"),
            ("constitution-reliance", "constitution_reliance", "unknown variant"),
            ("bias", "offset", "unknown field"),
        ] {
            let error = toml::from_str::<Composite>(&text.replace(good, bad)).expect_err(bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
