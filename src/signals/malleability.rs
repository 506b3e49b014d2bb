//! A5, the composite: a standardised logistic regression over named signals.
//!
//! Definition (first paper, signal A5): L2-regularised logistic regression (C = 1) over A1's three rates, A2, A3 and
//! A4, each standardised on the rows it was fitted on. Score: `σ(bias + Σ wᵢ (xᵢ − meanᵢ) / scaleᵢ)`, 0 to 1; larger is
//! likelier to be what the composite was fitted to predict. A proxy that writes no traces uses a reduced composite,
//! which simply names fewer features. Fitted composites are checked against scikit-learn's `StandardScaler` and
//! `LogisticRegression(C=1)` in `tests/reference/malleability.json`.

use serde::{Deserialize, Serialize};

use super::perturbation_spread::relative;
use super::{Feature, Features};
use crate::margin::Margin;
use crate::statistics::{
    Finite, Positive, Regression, Share, Undefined, count, logistic, logistic_regression, mean, stratified_folds,
};

/// Largest spread that is looked at for where a composite vetoes, in nats: beyond any proxy's.
const SPREAD_MAX: f64 = 1e4;

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

/// Why no composite could be fitted.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum FitError {
    /// A row lacks a feature. Rows are left out by who brings them, knowingly, or not at all.
    #[error("row {row} lacks the reading {feature}")]
    Missing {
        /// The row, from 0.
        row: usize,
        /// What it lacks.
        feature: Feature,
    },
    /// A reading was NaN or infinite.
    #[error("row {row} has a reading {feature} that is not a finite number")]
    NonFinite {
        /// The row, from 0.
        row: usize,
        /// Which reading.
        feature: Feature,
    },
    /// A feature is the same in every row: there is nothing to standardise by.
    #[error("the reading {0} is the same in every row")]
    Constant(Feature),
    /// No terms, or a feature named twice.
    #[error(transparent)]
    Composite(#[from] CompositeError),
    /// The rows do not define a fit.
    #[error(transparent)]
    Undefined(#[from] Undefined),
}

/// The rows a composite is fitted on, in parallel.
#[derive(Debug, Clone, Copy)]
pub struct Examples<'a> {
    /// The readings of each row.
    pub readings: &'a [Features],
    /// Whether the target was the case.
    pub positive: &'a [bool],
}

/// Repeated cross-validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossValidation {
    /// Folds per repeat.
    pub folds: usize,
    /// Repeats, each with its own deal.
    pub repeats: u64,
    /// Seed of the first deal; each repeat adds one.
    pub seed: u64,
}

impl CrossValidation {
    /// Five folds, five times, as the first paper has it.
    #[must_use]
    pub const fn five_by_five(seed: u64) -> Self {
        Self { folds: 5, repeats: 5, seed }
    }
}

/// Fits a composite over these features: standardise, then minimise `Σ log-loss + ½ ‖w‖²` (L2, C = 1, bias free).
///
/// # Errors
/// When a reading is missing or not finite, a feature does not vary, or only one class is there.
pub fn fit(target: Target, features: &[Feature], examples: Examples<'_>) -> Result<Composite, FitError> {
    let Examples { readings, positive } = examples;
    if positive.iter().all(|label| *label) || !positive.contains(&true) {
        return Err(Undefined::OneClass.into());
    }
    let mut rows = vec![Vec::with_capacity(features.len()); readings.len()];
    let mut standards = Vec::with_capacity(features.len());
    for &feature in features {
        let column = column(feature, readings)?;
        let (centre, scale) = standard(feature, &column)?;
        for (row, reading) in rows.iter_mut().zip(&column) {
            row.push((reading - centre.get()) / scale.get());
        }
        standards.push((feature, centre, scale));
    }
    let targets: Vec<f64> = positive.iter().map(|label| if *label { 1.0 } else { 0.0 }).collect();
    let regression =
        Regression { rows: &rows, targets: &targets, row_weights: &vec![1.0; positive.len()], penalty: 1.0 };
    let line = logistic_regression(regression)?;
    let finite = |value| Finite::new(value).map_err(|_| FitError::Undefined(Undefined::Overflow));
    let terms = standards
        .into_iter()
        .zip(&line.weights)
        .map(|((feature, mean, scale), &weight)| Ok(Term { feature, mean, scale, weight: finite(weight)? }))
        .collect::<Result<Vec<_>, FitError>>()?;
    Ok(Composite::new(target, terms, finite(line.bias)?)?)
}

/// Scores every row by composites fitted on the other folds: one column of scores per repeat, in the order of the rows.
/// Rows of one group never stand on both sides. A feature that does not vary over the other folds has no weight there, as
/// where scikit-learn's `StandardScaler` leaves it at zero.
///
/// # Errors
/// As [`fit`] and [`stratified_folds`].
pub fn cross_validate<G: Ord + Copy>(
    features: &[Feature],
    examples: Examples<'_>,
    groups: &[G],
    validation: CrossValidation,
) -> Result<Vec<Vec<f64>>, FitError> {
    let repeat = |repeat: u64| {
        let seed = validation.seed.wrapping_add(repeat);
        let folds = stratified_folds(examples.positive, groups, validation.folds, seed)?;
        let composites = (0..validation.folds)
            .map(|fold| {
                let kept = || folds.iter().map(|&of| of != fold);
                let readings: Vec<_> = keep(examples.readings, kept());
                let positive: Vec<_> = keep(examples.positive, kept());
                let varying: Vec<Feature> = features.iter().copied().filter(|of| varies(*of, &readings)).collect();
                let features = if varying.is_empty() { features } else { &varying };
                // What is predicted makes no difference to a score.
                fit(Target::WrongVerdict, features, Examples { readings: &readings, positive: &positive })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let scores = examples.readings.iter().zip(&folds).enumerate().map(|(row, (readings, &fold))| {
            let composite = composites.get(fold).ok_or(Undefined::OutOfRange("a fold"))?;
            composite.score(readings).map(Share::get).map_err(|error| FitError::from_score(row, error))
        });
        scores.collect()
    };
    (0..validation.repeats).map(repeat).collect()
}

impl FitError {
    const fn from_score(row: usize, error: ScoreError) -> Self {
        match error {
            ScoreError::Missing(feature) => Self::Missing { row, feature },
            ScoreError::NonFinite(feature) => Self::NonFinite { row, feature },
        }
    }
}

fn keep<T: Clone>(rows: &[T], kept: impl Iterator<Item = bool>) -> Vec<T> {
    rows.iter().zip(kept).filter(|(_, kept)| *kept).map(|(row, _)| row.clone()).collect()
}

/// Whether a feature tells rows apart. One that a row lacks is not said to be the same: [`fit`] names that row.
fn varies(feature: Feature, readings: &[Features]) -> bool {
    let first = readings.first().and_then(|readings| readings.get(&feature));
    first.is_none() || readings.iter().any(|readings| readings.get(&feature) != first)
}

fn column(feature: Feature, readings: &[Features]) -> Result<Vec<f64>, FitError> {
    let read = |(row, readings): (usize, &Features)| match readings.get(&feature) {
        None => Err(FitError::Missing { row, feature }),
        Some(reading) if !reading.is_finite() => Err(FitError::NonFinite { row, feature }),
        Some(reading) => Ok(*reading),
    };
    readings.iter().enumerate().map(read).collect()
}

/// Mean and population standard deviation (divisor n), as scikit-learn's `StandardScaler`.
fn standard(feature: Feature, column: &[f64]) -> Result<(Finite, Positive), FitError> {
    if column.iter().all(|reading| column.first() == Some(reading)) {
        return Err(FitError::Constant(feature));
    }
    let centre = mean(column)?;
    let squares: f64 = column.iter().map(|reading| (reading - centre).powi(2)).sum();
    let centre = Finite::new(centre).map_err(|_| Undefined::Overflow)?;
    let scale = Positive::new((squares / count(column.len())).sqrt()).map_err(|_| FitError::Constant(feature))?;
    Ok((centre, scale))
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

    /// The spread of the copies, in nats, from which on the score lies over `limit` whatever the flip share comes to: 0
    /// where it does at any spread. `None` where no spread suffices, a weight would let a larger spread lower the score,
    /// or a feature it names is neither `known` nor read off the copies.
    #[must_use]
    pub fn spread_limit(&self, known: &Features, clean: Margin, limit: Share) -> Option<f64> {
        let falls = |term: &Term| {
            matches!(term.feature, Feature::PerturbationSpread | Feature::RelativeSpread) && term.weight.get() < 0.0
        };
        if self.terms.iter().any(falls) || limit.get() >= 1.0 {
            return None;
        }
        let log_odds_max = (limit.get() / (1.0 - limit.get())).ln();
        let over = |spread: f64| {
            let spreads = [
                (Feature::PerturbationSpread, spread),
                (Feature::RelativeSpread, relative(spread, clean)),
                (Feature::FlipShare, 0.0),
            ];
            let mut readings = known.clone();
            readings.extend(spreads);
            let without_flips = self.log_odds(&readings).ok()?;
            readings.insert(Feature::FlipShare, 1.0);
            Some(without_flips.min(self.log_odds(&readings).ok()?) > log_odds_max)
        };
        if over(0.0)? {
            return Some(0.0);
        }
        let (mut low, mut high) = (0.0, SPREAD_MAX);
        if !over(high)? {
            return None;
        }
        // Sixty halvings leave less than any rounding.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if over(middle)? { high = middle } else { low = middle }
        }
        Some(high)
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
