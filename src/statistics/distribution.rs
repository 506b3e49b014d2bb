//! The few distributions that intervals and tests need: normal, Student's t, beta and binomial.
//!
//! Written here because the whole is a page and a general crate brings a matrix library along. Each function is held to
//! scipy's value to 1e-9 by `tests/statistics.rs`.

use super::Undefined;

/// Steps of the continued fraction before it counts as not converging. It needs about the square root of its larger
/// parameter, so this covers parameters to about 10⁹.
const STEPS_MAX: u32 = 100_000;
/// Halvings of a bisection: enough to reach the last bit of any quantile above 1e-40.
const HALVINGS: u32 = 200;

/// `ln Γ(x)` for x > 0: Lanczos' approximation with g = 7 and nine terms, good to about 1e-15.
fn ln_gamma(x: f64) -> f64 {
    const SERIES: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let (sum, _) = SERIES
        .iter()
        .fold((0.999_999_999_999_809_9, x), |(sum, at), coefficient| (sum + coefficient / (at + 1.0), at + 1.0));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularised incomplete beta function `I_x(a, b)`, a and b above 0, x from 0 to 1: the beta distribution's
/// cumulative probability. Lentz's continued fraction (Numerical Recipes, §6.4).
///
/// # Errors
/// When an argument is out of range, or so large that the fraction does not converge.
pub fn beta_cumulative(x: f64, a: f64, b: f64) -> Result<f64, Undefined> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !(positive(a) && positive(b) && (0.0..=1.0).contains(&x)) {
        return Err(Undefined::OutOfRange("an argument of the beta distribution"));
    }
    if x <= 0.0 || x >= 1.0 {
        return Ok(x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    let probability = if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(x, a, b)? / a
    } else {
        1.0 - front * beta_fraction(1.0 - x, b, a)? / b
    };
    Ok(probability.clamp(0.0, 1.0))
}

fn beta_fraction(x: f64, a: f64, b: f64) -> Result<f64, Undefined> {
    let away_from_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..=STEPS_MAX {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut last = 1.0;
        for numerator in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + numerator * d);
            c = away_from_zero(1.0 + numerator / c);
            last = c * d;
            fraction *= last;
        }
        if (last - 1.0).abs() < 1e-15 {
            return Ok(fraction);
        }
    }
    Err(Undefined::OutOfRange("a parameter of the beta distribution"))
}

/// The value below which a beta-distributed number lies with this probability.
///
/// # Errors
/// As [`beta_cumulative`].
pub fn beta_quantile(probability: f64, a: f64, b: f64) -> Result<f64, Undefined> {
    bisect(0.0, 1.0, |x| Ok(beta_cumulative(x, a, b)? < probability))
}

/// The probability that a t-distributed number with `df` degrees of freedom exceeds `t`.
///
/// # Errors
/// When `t` is NaN or `df` is not above 0.
pub fn student_t_survival(t: f64, df: f64) -> Result<f64, Undefined> {
    if t.is_nan() {
        return Err(Undefined::OutOfRange("the t statistic"));
    }
    // Whichever of the two complementary arguments is small is the one that rounding leaves intact.
    let square = t * t;
    let tail = if square > df {
        0.5 * beta_cumulative(df / (df + square), 0.5 * df, 0.5)?
    } else {
        0.5 - 0.5 * beta_cumulative(square / (df + square), 0.5, 0.5 * df)?
    };
    Ok(if t >= 0.0 { tail } else { 1.0 - tail })
}

/// The `t` that a t-distributed number exceeds with this probability, for probabilities from 1e-12 to a half.
///
/// # Errors
/// When the probability is outside that range or `df` is not above 0.
pub fn student_t_critical(probability: f64, df: f64) -> Result<f64, Undefined> {
    if !(1e-12..=0.5).contains(&probability) {
        return Err(Undefined::OutOfRange("a tail probability"));
    }
    let mut high = 1.0;
    while student_t_survival(high, df)? > probability {
        high *= 2.0;
    }
    bisect(0.0, high, |t| Ok(student_t_survival(t, df)? > probability))
}

/// The probability of at most `events` in `n` trials that each succeed with probability `p`.
///
/// # Errors
/// When `p` is not from 0 to 1.
pub fn binomial_cumulative(events: u32, n: u32, p: f64) -> Result<f64, Undefined> {
    if !(0.0..=1.0).contains(&p) {
        return Err(Undefined::OutOfRange("a probability"));
    }
    if events >= n {
        return Ok(1.0);
    }
    beta_cumulative(1.0 - p, f64::from(n - events), f64::from(events) + 1.0)
}

/// The standard normal's cumulative probability, by the series of Marsaglia (2004, "Evaluating the normal
/// distribution"); absolute error below 1e-15, no relative accuracy in the far tails.
///
/// # Errors
/// When `x` is NaN.
pub fn normal_cumulative(x: f64) -> Result<f64, Undefined> {
    if x.is_nan() {
        return Err(Undefined::OutOfRange("a normal quantile"));
    }
    if x.abs() > 8.3 {
        return Ok(if x > 0.0 { 1.0 } else { 0.0 });
    }
    let (mut sum, mut term, mut divisor) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * sum.abs() {
        divisor += 2.0;
        term *= x * x / divisor;
        sum += term;
    }
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    Ok((0.5 + sum * density).clamp(0.0, 1.0))
}

/// The value below which a standard normal number lies with this probability, for probabilities from 1e-12 to
/// 1 − 1e-12.
///
/// # Errors
/// When the probability is outside that range.
pub fn normal_quantile(probability: f64) -> Result<f64, Undefined> {
    if !(1e-12..=1.0 - 1e-12).contains(&probability) {
        return Err(Undefined::OutOfRange("a probability"));
    }
    bisect(-8.3, 8.3, |x| Ok(normal_cumulative(x)? < probability))
}

/// Where `below` turns from true to false between `low` and `high`.
fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> Result<bool, Undefined>) -> Result<f64, Undefined> {
    for _ in 0..HALVINGS {
        let middle = low + 0.5 * (high - low);
        if middle <= low || middle >= high {
            break;
        }
        if below(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low + 0.5 * (high - low))
}
