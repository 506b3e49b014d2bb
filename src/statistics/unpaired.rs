//! Differences of means between two groups of different rows.

use super::distribution::{student_t_critical, student_t_survival};
use super::{Undefined, count, finite, mean, standard_deviation};

/// The mean of the first group less the mean of the second, by Welch (1947): the groups' variances may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanDifference {
    /// Mean difference.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval by Student's t.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// The difference over its standard error.
    pub t: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub df: f64,
    /// Probability of so large a t of either sign when the means are equal. Equals scipy's
    /// `ttest_ind(first, second, equal_var=False)`.
    pub p: f64,
}

/// The difference of two groups' means.
///
/// # Errors
/// When a group has fewer than two rows, a value is not finite, or neither group varies, which leaves t undefined.
pub fn mean_difference(first: &[f64], second: &[f64]) -> Result<MeanDifference, Undefined> {
    super::all_finite(first)?;
    super::all_finite(second)?;
    // The squared standard error of a mean, and what it adds to the degrees of freedom's denominator.
    let error = |group: &[f64]| -> Result<(f64, f64), Undefined> {
        let squared = standard_deviation(group)?.powi(2) / count(group.len());
        Ok((squared, squared.powi(2) / (count(group.len()) - 1.0)))
    };
    let ((a, a_share), (b, b_share)) = (error(first)?, error(second)?);
    if a + b <= 0.0 {
        return Err(Undefined::Constant);
    }
    let difference = mean(first)? - mean(second)?;
    let (df, error) = (finite((a + b).powi(2) / (a_share + b_share))?, (a + b).sqrt());
    let half = student_t_critical(0.025, df)? * error;
    let t = finite(difference / error)?;
    Ok(MeanDifference {
        mean: difference,
        low: finite(difference - half)?,
        high: finite(difference + half)?,
        t,
        df,
        p: (2.0 * student_t_survival(t.abs(), df)?).min(1.0),
    })
}
