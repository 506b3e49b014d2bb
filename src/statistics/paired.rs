//! Paired differences: is the first column larger than the second, row by row?

use super::distribution::{student_t_critical, student_t_survival};
use super::{Undefined, count, finite, mean, standard_deviation};

/// The mean of `first − second` over paired rows, with its interval and one-sided test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedDifference {
    /// Pairs.
    pub n: usize,
    /// Mean difference.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval by Student's t.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// `mean / (s / √n)`, with n − 1 degrees of freedom.
    pub t: f64,
    /// Probability of so large a t or a larger one when the first column is not larger. Equals scipy's
    /// `ttest_rel(first, second, alternative="greater")`.
    pub p_greater: f64,
}

/// The paired difference of two columns.
///
/// # Errors
/// When the columns differ in length, there are fewer than two rows, a value is not finite, or every difference is the
/// same, which leaves t undefined.
pub fn paired_difference(first: &[f64], second: &[f64]) -> Result<PairedDifference, Undefined> {
    if first.len() != second.len() {
        return Err(Undefined::LengthMismatch { left: first.len(), right: second.len() });
    }
    super::all_finite(first)?;
    super::all_finite(second)?;
    let differences = first.iter().zip(second).map(|(a, b)| finite(a - b)).collect::<Result<Vec<_>, _>>()?;
    let n = differences.len();
    let (centre, spread) = (mean(&differences)?, standard_deviation(&differences)?);
    if spread <= 0.0 {
        return Err(Undefined::Constant);
    }
    let (df, error) = (count(n) - 1.0, spread / count(n).sqrt());
    let half = student_t_critical(0.025, df)? * error;
    let t = finite(centre / error)?;
    Ok(PairedDifference {
        n,
        mean: centre,
        low: finite(centre - half)?,
        high: finite(centre + half)?,
        t,
        p_greater: student_t_survival(t, df)?,
    })
}
