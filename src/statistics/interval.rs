//! Intervals: Wilson's and Clopper and Pearson's for a rate, the percentile bootstrap for anything else.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::distribution::{beta_quantile, normal_quantile};
use super::{Share, Undefined, all_finite, count};

/// An interval's two ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Wilson's score interval for `events` in `of` trials (Wilson 1927): near its nominal coverage on average.
///
/// # Errors
/// When there are no trials, more events than trials, or the confidence is not between 0 and 1.
pub fn wilson(events: u32, of: u32, confidence: Share) -> Result<Interval, Undefined> {
    let tail = tail(events, of, confidence)?;
    let z = normal_quantile(1.0 - tail)?;
    let (n, p) = (f64::from(of), f64::from(events) / f64::from(of));
    let centre = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    // At no events, and at nothing but events, the end is exactly 0 or 1; rounding would leave it a bit off.
    Ok(Interval {
        low: if events == 0 { 0.0 } else { (centre - half) / scale },
        high: if events == of { 1.0 } else { (centre + half) / scale },
    })
}

/// Clopper and Pearson's interval for `events` in `of` trials (1934): never below its nominal coverage.
///
/// # Errors
/// As [`wilson`].
pub fn clopper_pearson(events: u32, of: u32, confidence: Share) -> Result<Interval, Undefined> {
    let tail = tail(events, of, confidence)?;
    let (k, n) = (f64::from(events), f64::from(of));
    Ok(Interval {
        low: if events == 0 { 0.0 } else { beta_quantile(tail, k, n - k + 1.0)? },
        high: if events == of { 1.0 } else { beta_quantile(1.0 - tail, k + 1.0, n - k)? },
    })
}

fn tail(events: u32, of: u32, confidence: Share) -> Result<f64, Undefined> {
    if of == 0 {
        return Err(Undefined::TooFew { needed: 1, got: 0 });
    }
    if events > of {
        return Err(Undefined::OutOfRange("the number of events"));
    }
    let tail = (1.0 - confidence.get()) / 2.0;
    if tail > 1e-9 && tail < 0.5 { Ok(tail) } else { Err(Undefined::OutOfRange("the confidence")) }
}

/// A bootstrap interval and how many resamples it stands on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// The percentile interval.
    pub interval: Interval,
    /// Resamples on which the statistic was defined.
    pub resamples: usize,
}

/// How a bootstrap is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampling {
    /// Resamples drawn; 2,000 is usual.
    pub resamples: usize,
    /// Coverage asked for, such as 0.95.
    pub confidence: Share,
    /// Seed of the draw.
    pub seed: u64,
}

/// The percentile bootstrap by cluster: draws whole clusters with replacement, so that rows that belong together (the
/// two of a pair, all of one scene) stay together and are not counted as independent evidence. `clusters` lists each
/// cluster's rows; `statistic` is given the rows drawn.
///
/// # Errors
/// When there are fewer than two clusters, no resamples are asked for, the confidence is not between 0 and 1, or the
/// statistic is undefined on more than one resample in ten (its error is passed on).
pub fn bootstrap<R: Copy>(
    clusters: &[Vec<R>],
    resampling: Resampling,
    statistic: impl Fn(&[R]) -> Result<f64, Undefined>,
) -> Result<Bootstrap, Undefined> {
    let Resampling { resamples, confidence, seed } = resampling;
    if clusters.len() < 2 {
        return Err(Undefined::TooFew { needed: 2, got: clusters.len() });
    }
    if resamples == 0 || confidence.get() <= 0.0 || confidence.get() >= 1.0 {
        return Err(Undefined::OutOfRange("the resampling"));
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut values, mut failed, mut rows) = (Vec::with_capacity(resamples), 0, Vec::new());
    for _ in 0..resamples {
        rows.clear();
        for _ in 0..clusters.len() {
            rows.extend(clusters.get(random.random_range(0..clusters.len())).into_iter().flatten().copied());
        }
        match statistic(&rows).and_then(super::finite) {
            Ok(value) => values.push(value),
            Err(error) => {
                failed += 1;
                if failed * 10 > resamples {
                    return Err(error);
                }
            }
        }
    }
    let tail = (1.0 - confidence.get()) / 2.0;
    let interval = Interval { low: percentile(&values, tail)?, high: percentile(&values, 1.0 - tail)? };
    Ok(Bootstrap { interval, resamples: values.len() })
}

/// The value below which this share of the values lies, interpolated linearly between neighbours as numpy's default.
///
/// # Errors
/// When there is no value, one is not finite, or the share is not from 0 to 1.
pub fn percentile(values: &[f64], share: f64) -> Result<f64, Undefined> {
    all_finite(values)?;
    let share = Share::new(share).map_err(|_| Undefined::OutOfRange("the share"))?.get();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&last), false) = (sorted.last(), sorted.is_empty()) else {
        return Err(Undefined::TooFew { needed: 1, got: 0 });
    };
    let at = share * (count(sorted.len()) - 1.0);
    let steps = sorted.iter().zip(sorted.iter().skip(1)).enumerate();
    for (below, (&low, &high)) in steps {
        let over = at - count(below);
        if over <= 1.0 {
            return super::finite(low + (high - low) * over);
        }
    }
    Ok(last)
}
