//! Mean and standard deviation.

use super::{Undefined, all_finite, count, finite};

/// The arithmetic mean.
///
/// # Errors
/// When there is no value, one is not finite, or the sum overflows.
pub fn mean(values: &[f64]) -> Result<f64, Undefined> {
    all_finite(values)?;
    if values.is_empty() {
        return Err(Undefined::TooFew { needed: 1, got: 0 });
    }
    finite(values.iter().sum::<f64>() / count(values.len()))
}

/// The sample standard deviation: `√(Σ(x − x̄)² / (n − 1))`.
///
/// The divisor is n − 1 everywhere in this crate: the copies and traces behind a spread are a sample of the noise, not
/// all of it. At n = 20 the two conventions differ by 2.6 %, so numpy's default (`ddof=0`) is not interchangeable.
///
/// # Errors
/// When there are fewer than two values, one is not finite, or a square overflows.
pub fn standard_deviation(values: &[f64]) -> Result<f64, Undefined> {
    let centre = mean(values)?;
    if values.len() < 2 {
        return Err(Undefined::TooFew { needed: 2, got: values.len() });
    }
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    finite((squares / count(values.len() - 1)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_numpy() {
        // numpy.std([1.5, -2.25, 0.0, 7.125], ddof=1), numpy.mean(...)
        let values = [1.5, -2.25, 0.0, 7.125];
        assert!((standard_deviation(&values).expect("defined") - 3.996_580_569_687_042).abs() < 1e-12);
        assert!((mean(&values).expect("defined") - 1.59375).abs() < 1e-15);
    }

    #[test]
    fn what_has_no_value_is_named() {
        assert_eq!(mean(&[]), Err(Undefined::TooFew { needed: 1, got: 0 }));
        assert_eq!(standard_deviation(&[1.0]), Err(Undefined::TooFew { needed: 2, got: 1 }));
        assert!(matches!(mean(&[0.0, f64::NAN]), Err(Undefined::NonFinite { index: 1, .. })));
        assert_eq!(mean(&[f64::MAX, f64::MAX]), Err(Undefined::Overflow));
        assert_eq!(standard_deviation(&[f64::MAX, -f64::MAX]), Err(Undefined::Overflow));
    }
}
