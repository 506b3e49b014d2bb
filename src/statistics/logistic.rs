//! Logistic regression, weighted and with soft targets, by Newton's method.

use super::{Undefined, all_finite};

const NEWTON_STEPS_MAX: u32 = 100;
const CONJUGATE_STEPS_MAX: u32 = 200;
const HALVINGS_MAX: u32 = 50;
/// Largest gradient component, per unit of row weight, that counts as a minimum.
const GRADIENT_MAX: f64 = 1e-10;

/// The rows a regression is fitted on.
#[derive(Debug, Clone, Copy)]
pub struct Regression<'a> {
    /// One row of predictors per observation, all equally long.
    pub rows: &'a [Vec<f64>],
    /// The probability of the positive class each row should have: 0, 1, or between.
    pub targets: &'a [f64],
    /// How much each row counts.
    pub row_weights: &'a [f64],
    /// λ of the penalty ½ λ ‖w‖². The bias is never penalised. scikit-learn's C is 1 / λ.
    pub penalty: f64,
}

/// A fitted regression: the log-odds of a row x are `bias + weights · x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// One weight per predictor.
    pub weights: Vec<f64>,
    /// The log-odds at zero.
    pub bias: f64,
}

/// `1 / (1 + e^−x)`, without overflow on either side.
#[must_use]
pub fn logistic(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// Minimises `Σ row_weight · log-loss + ½ λ ‖w‖²`.
///
/// # Errors
/// When there are no rows, columns differ in length, a value is not finite, a target is no probability, or the minimum
/// is not reached (without a penalty a separable set has none).
pub fn logistic_regression(regression: Regression<'_>) -> Result<Line, Undefined> {
    check(&regression)?;
    let width = regression.rows.first().map_or(0, Vec::len);
    let enough = GRADIENT_MAX * regression.row_weights.iter().sum::<f64>().max(1.0);
    // The bias travels as the last coordinate.
    let mut at = vec![0.0; width + 1];
    for _ in 0..NEWTON_STEPS_MAX {
        let gradient = gradient(&regression, &at);
        if gradient.iter().all(|part| part.abs() <= enough) {
            let bias = at.pop().unwrap_or_default();
            return Ok(Line { weights: at, bias });
        }
        let step = newton_step(&regression, &at, &gradient);
        at = descend(&regression, &at, &step, dot(&gradient, &step))?;
    }
    Err(Undefined::NoMinimum)
}

fn check(regression: &Regression<'_>) -> Result<(), Undefined> {
    let Regression { rows, targets, row_weights, penalty } = *regression;
    let Some(first) = rows.first() else {
        return Err(Undefined::TooFew { needed: 1, got: 0 });
    };
    for (left, right) in [(rows.len(), targets.len()), (rows.len(), row_weights.len())]
        .into_iter()
        .chain(rows.iter().map(|row| (first.len(), row.len())))
    {
        if left != right {
            return Err(Undefined::LengthMismatch { left, right });
        }
    }
    rows.iter().try_for_each(|row| all_finite(row))?;
    all_finite(row_weights)?;
    let in_range = penalty.is_finite()
        && penalty >= 0.0
        && targets.iter().all(|target| (0.0..=1.0).contains(target))
        && row_weights.iter().all(|weight| *weight >= 0.0);
    if in_range { Ok(()) } else { Err(Undefined::OutOfRange("a target, row weight or penalty")) }
}

/// The log-odds of one row; the bias is the last coordinate.
fn log_odds(row: &[f64], at: &[f64]) -> f64 {
    dot(row, at) + at.last().copied().unwrap_or_default()
}

fn loss(regression: &Regression<'_>, at: &[f64]) -> f64 {
    let Regression { rows, targets, row_weights, penalty } = *regression;
    let fit: f64 = rows
        .iter()
        .zip(targets)
        .zip(row_weights)
        .map(|((row, target), weight)| {
            let z = log_odds(row, at);
            weight * (z.max(0.0) + (-z.abs()).exp().ln_1p() - target * z)
        })
        .sum();
    fit + 0.5 * penalty * penalised(at).map(|w| w * w).sum::<f64>()
}

fn penalised(at: &[f64]) -> impl Iterator<Item = f64> + '_ {
    at.iter().take(at.len().saturating_sub(1)).copied()
}

/// `Σ factor(row) · (row, 1) + λ (w, 0)`: the form that both the gradient and a Hessian product have.
fn gather(regression: &Regression<'_>, along: &[f64], factor: impl Fn(&[f64], f64, f64) -> f64) -> Vec<f64> {
    let Regression { rows, targets, row_weights, penalty } = *regression;
    let mut sum: Vec<f64> = penalised(along).map(|w| penalty * w).chain([0.0]).collect();
    for ((row, target), weight) in rows.iter().zip(targets).zip(row_weights) {
        let factor = factor(row, *target, *weight);
        for (sum, x) in sum.iter_mut().zip(row.iter().chain(&[1.0])) {
            *sum += factor * x;
        }
    }
    sum
}

fn gradient(regression: &Regression<'_>, at: &[f64]) -> Vec<f64> {
    gather(regression, at, |row, target, weight| weight * (logistic(log_odds(row, at)) - target))
}

/// Solves `Hessian · step = −gradient` by conjugate gradients: with as many coordinates as a composite has features,
/// a handful of products, and no matrix to keep.
fn newton_step(regression: &Regression<'_>, at: &[f64], gradient: &[f64]) -> Vec<f64> {
    let hessian = |along: &[f64]| {
        gather(regression, along, |row, _, weight| {
            let p = logistic(log_odds(row, at));
            weight * p * (1.0 - p) * log_odds(row, along)
        })
    };
    let mut step = vec![0.0; at.len()];
    let mut rest: Vec<f64> = gradient.iter().map(|part| -part).collect();
    let mut along = rest.clone();
    let mut size = dot(&rest, &rest);
    let enough = 1e-28 * size;
    for _ in 0..CONJUGATE_STEPS_MAX {
        let turned = hessian(&along);
        let bend = dot(&along, &turned);
        if size <= enough || bend <= 0.0 {
            break;
        }
        let length = size / bend;
        add(&mut step, length, &along);
        add(&mut rest, -length, &turned);
        let next = dot(&rest, &rest);
        along = rest.iter().zip(&along).map(|(rest, along)| rest + next / size * along).collect();
        size = next;
    }
    step
}

/// Goes along the step, halved until the loss falls enough. Close to the minimum the loss no longer resolves a fall
/// that the gradient still shows, hence the allowance for rounding.
fn descend(regression: &Regression<'_>, at: &[f64], step: &[f64], slope: f64) -> Result<Vec<f64>, Undefined> {
    let start = loss(regression, at);
    let allowance = 1e-13 * start.abs().max(1.0);
    let mut length = 1.0;
    for _ in 0..HALVINGS_MAX {
        let mut next = at.to_vec();
        add(&mut next, length, step);
        if loss(regression, &next) <= start + 1e-4 * length * slope + allowance {
            return Ok(next);
        }
        length *= 0.5;
    }
    Err(Undefined::NoMinimum)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], times: f64, what: &[f64]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += times * what;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_fitted_is_an_error() {
        let rows = vec![vec![1.0], vec![-1.0]];
        let fit = |targets: &[f64], row_weights: &[f64], penalty| {
            logistic_regression(Regression { rows: &rows, targets, row_weights, penalty })
        };
        assert!(fit(&[1.0, 0.0], &[1.0, 1.0], 1.0).is_ok());
        // Separable and unpenalised: the best weight is infinite. Newton stops where the gradient vanishes to rounding.
        assert!(fit(&[1.0, 0.0], &[1.0, 1.0], 0.0).is_ok_and(|line| line.weights[0].is_finite()));
        assert!(fit(&[1.0, 2.0], &[1.0, 1.0], 1.0).is_err());
        assert!(fit(&[1.0, f64::NAN], &[1.0, 1.0], 1.0).is_err());
        assert!(fit(&[1.0, 0.0], &[1.0, -1.0], 1.0).is_err());
        assert!(fit(&[1.0], &[1.0, 1.0], 1.0).is_err());
        assert!(fit(&[1.0, 0.0], &[1.0, 1.0], -1.0).is_err());
        let none = Regression { rows: &[], targets: &[], row_weights: &[], penalty: 1.0 };
        assert_eq!(logistic_regression(none), Err(Undefined::TooFew { needed: 1, got: 0 }));
    }
}
