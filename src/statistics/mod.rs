//! The statistics that signals, calibration and reports share. A statistic that has no value is a named error: no
//! function here returns NaN or an infinity, and none takes one in.

pub mod distribution;
mod interval;
mod logistic;
mod moments;
mod number;
mod paired;
mod ranking;
mod reliability;
mod strata;
mod unpaired;
mod verdicts;

pub use interval::{Bootstrap, Interval, Resampling, bootstrap, clopper_pearson, percentile, wilson};
pub use logistic::{Line, Regression, logistic, logistic_regression};
pub use moments::{mean, standard_deviation};
pub use number::{Finite, NotInRange, Positive, Share};
pub use paired::{PairedDifference, paired_difference};
pub use ranking::{average_precision, lift_at, partial_spearman, precision_at, roc_auc, spearman};
pub use reliability::{Bin, calibration_error, reliability_curve};
pub use strata::{Stratum, stratified_draw, stratified_folds};
pub use unpaired::{MeanDifference, mean_difference};
pub use verdicts::{Label, PairTally, RowTally};

/// Why a statistic has no value.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Undefined {
    /// Fewer observations than the statistic needs.
    #[error("{got} observations; at least {needed} are needed")]
    TooFew {
        /// Observations needed.
        needed: usize,
        /// Observations given.
        got: usize,
    },
    /// An observation was NaN or infinite.
    #[error("observation {index} is {value}, not a finite number")]
    NonFinite {
        /// Its place in the input, from 0.
        index: usize,
        /// What it was.
        value: f64,
    },
    /// Two columns that should run in parallel do not.
    #[error("columns of {left} and {right} rows were given as one table")]
    LengthMismatch {
        /// Rows of the first.
        left: usize,
        /// Rows of the second.
        right: usize,
    },
    /// Both classes are needed and one has no rows.
    #[error("every row has the same label")]
    OneClass,
    /// A column without variation where the statistic divides by it.
    #[error("a column does not vary")]
    Constant,
    /// An argument outside its range.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
    /// A fit that reached no minimum.
    #[error("the fit reached no minimum")]
    NoMinimum,
    /// The result is too large for a double.
    #[error("the result exceeds the range of a double")]
    Overflow,
}

/// A count as a double. Exact for every count this crate meets; saturates at `u32::MAX`.
pub(crate) fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Refuses the first value that is not finite.
pub(crate) fn all_finite(values: &[f64]) -> Result<(), Undefined> {
    match values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((index, &value)) => Err(Undefined::NonFinite { index, value }),
        None => Ok(()),
    }
}

/// Passes a result on only if it is finite.
pub(crate) fn finite(value: f64) -> Result<f64, Undefined> {
    if value.is_finite() { Ok(value) } else { Err(Undefined::Overflow) }
}
