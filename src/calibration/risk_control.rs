//! Limits with a guarantee: the most permissive ones whose miss rate on plans that should not run stays at or under α.
//!
//! Two guarantees, both free of assumptions about the margins' distribution and both resting on one: that the plans the
//! guard will see are exchangeable with the unsafe rows it was calibrated on.
//!
//! * *In expectation*: conformal risk control (Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal Risk Control",
//!   2022). With n unsafe rows and a loss of at most 1, the limit keeps `(misses + 1) / (n + 1) ≤ α`; then the chance
//!   that a new unsafe plan is missed is at most α, averaged over calibration sets.
//! * *With high probability*: Learn then Test (Angelopoulos, Bates, Candès, Jordan and Lei, 2021). Limits are tested
//!   from the strictest on, by the exact binomial p-value `P(Bin(n, α) ≤ misses)`, until one is not rejected at δ; then
//!   the miss rate exceeds α for at most a share δ of calibration sets. For a loss of 0 or 1 this is the classical
//!   distribution-free tolerance limit.
//!
//! The two side limits (flip share and malleability) are taken from the *safe* rows alone. Given them, the unsafe rows
//! are as exchangeable as before, so the guarantee of the main limit holds for the three together: an unsafe row that a
//! side limit vetoes counts as never missed. Where safe and unsafe rows come in pairs, or many rows from one scene, the
//! rows are not wholly exchangeable; then calibrate on one pair per scene.

use super::{Limits, Rate, SourceRates};
use crate::statistics::distribution::beta_quantile;
use crate::statistics::{Finite, Label, Share, Undefined, clopper_pearson, count};

/// One judged row.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// What the plan is.
    pub label: Label,
    /// Where the row comes from.
    pub source: String,
    /// Calibrated log-odds of *refuse*.
    pub refuse_log_odds: Finite,
    /// Share of the perturbed copies whose verdict differs; `None` in every row where it is not measured.
    pub flip_share: Option<Share>,
    /// Score of the composite; `None` in every row where it is not measured.
    pub malleability: Option<Share>,
}

/// Which of the two guarantees is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Guarantee {
    /// The miss rate is at most α in expectation.
    Expectation,
    /// The miss rate exceeds α with at most this probability.
    HighProbability {
        /// δ, between 0 and 1.
        delta: Share,
    },
}

/// What the deployer asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// α: the miss rate accepted on plans that should not run.
    pub miss_rate_max: Share,
    /// How α is to be held.
    pub guarantee: Guarantee,
    /// The false-veto rate wished for on plans that should run.
    pub false_veto_rate_asked: Share,
    /// The share of that rate each side limit may spend, 0 to 0.5. At 0 a side limit vetoes only what exceeds every
    /// safe row.
    pub side_share: Share,
}

/// The limits chosen and what they do on the rows they were chosen on.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The limits.
    pub limits: Limits,
    /// Plans that should not run and would have.
    pub miss: Rate,
    /// Plans that should run and would not have.
    pub false_veto: Rate,
    /// The same two per source, in the order of the names.
    pub sources: Vec<SourceRates>,
    /// The smallest α at which the false-veto rate asked for would have been met with these side limits; `None` where
    /// the side limits alone exceed it, or no α below 1 would do. At or under the α asked for, the wish is granted.
    pub miss_rate_for_asked: Option<f64>,
}

/// Why there are no limits.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// Too few unsafe rows for so small a miss rate, even at the strictest limit.
    #[error(
        "{unsafe_rows} unsafe rows cannot show a miss rate of {asked}; the smallest they can show is {smallest:.4}"
    )]
    NotAchievable {
        /// α as asked.
        asked: f64,
        /// The smallest α these rows can hold.
        smallest: f64,
        /// Rows there are.
        unsafe_rows: usize,
    },
    /// A reading is there in some rows and absent in others.
    #[error("row {row} lacks the {reading} that other rows have")]
    Incomplete {
        /// The row, from 0.
        row: usize,
        /// Which reading.
        reading: &'static str,
    },
    /// One class has no rows, or an argument is out of range.
    #[error(transparent)]
    Undefined(#[from] Undefined),
}

/// Chooses the most permissive limits that hold the guarantee.
///
/// # Errors
/// When one class has no rows, a reading is there in some rows only, or there are too few unsafe rows for α.
pub fn choose_limits(rows: &[Judged], request: Request) -> Result<Choice, ChoiceError> {
    complete(rows)?;
    if request.side_share.get() > 0.5 {
        return Err(Undefined::OutOfRange("the share spent by a side limit").into());
    }
    let safe: Vec<&Judged> = rows.iter().filter(|row| row.label == Label::Safe).collect();
    let unsafe_rows = rows.iter().filter(|row| row.label == Label::Unsafe);
    let side = side_limits(&safe, request.false_veto_rate_asked.get() * request.side_share.get());
    // What a side limit vetoes cannot be missed, whatever the main limit.
    let mut log_odds: Vec<f64> =
        unsafe_rows.map(|row| if side.veto(row) { f64::INFINITY } else { row.refuse_log_odds.get() }).collect();
    if log_odds.is_empty() || safe.is_empty() {
        return Err(Undefined::OneClass.into());
    }
    log_odds.sort_by(f64::total_cmp);
    let allowed = misses_allowed(log_odds.len(), request)?;
    let limits = Limits {
        refuse_log_odds_max: main_limit(log_odds.get(allowed).copied(), &safe)?,
        malleability_max: side.malleability_max,
        flip_share_max: side.flip_share_max,
    };
    let (miss, false_veto) = rates(rows, &limits)?;
    let (Some(miss), Some(false_veto)) = (miss, false_veto) else {
        return Err(Undefined::OneClass.into());
    };
    let miss_rate_for_asked = alpha_for_asked(&safe, &log_odds, side, request)?;
    Ok(Choice { limits, miss, false_veto, sources: per_source(rows, &limits)?, miss_rate_for_asked })
}

/// Whether these limits veto a row. A reading that was not measured vetoes nothing here; on the robot it is a veto.
#[must_use]
pub fn vetoes(limits: &Limits, row: &Judged) -> bool {
    let side = SideLimits { flip_share_max: limits.flip_share_max, malleability_max: limits.malleability_max };
    row.refuse_log_odds > limits.refuse_log_odds_max || side.veto(row)
}

/// The miss rate on the unsafe rows and the false-veto rate on the safe ones, each with Clopper and Pearson's 95 %
/// interval; `None` for a class without rows.
///
/// # Errors
/// When a count exceeds what an interval can be computed for.
pub fn rates(rows: &[Judged], limits: &Limits) -> Result<(Option<Rate>, Option<Rate>), Undefined> {
    let rate_of = |label: Label, vetoed: bool| {
        let of = rows.iter().filter(|row| row.label == label);
        let events = of.clone().filter(|row| vetoes(limits, row) == vetoed).count();
        rate(events, of.count())
    };
    Ok((rate_of(Label::Unsafe, false)?, rate_of(Label::Safe, true)?))
}

fn rate(events: usize, of: usize) -> Result<Option<Rate>, Undefined> {
    let small = |n: usize| u32::try_from(n).map_err(|_| Undefined::OutOfRange("the number of rows"));
    let (events, of) = (small(events)?, small(of)?);
    if of == 0 {
        return Ok(None);
    }
    let confidence = Share::new(0.95).map_err(|_| Undefined::OutOfRange("the confidence"))?;
    let interval = clopper_pearson(events, of, confidence)?;
    let end = |value| Share::new(value).map_err(|_| Undefined::Overflow);
    Ok(Rate::new(events, of, end(interval.low)?, end(interval.high)?))
}

fn per_source(rows: &[Judged], limits: &Limits) -> Result<Vec<SourceRates>, Undefined> {
    let mut by_source = std::collections::BTreeMap::<&str, Vec<Judged>>::new();
    for row in rows {
        by_source.entry(&row.source).or_default().push(row.clone());
    }
    let rates = by_source.into_iter().map(|(source, rows)| {
        let (miss, false_veto) = rates(&rows, limits)?;
        Ok(SourceRates { source: source.to_owned(), miss, false_veto })
    });
    rates.collect()
}

/// The most misses among n unsafe rows at which α still holds.
///
/// # Errors
/// When even no miss at all would not show α, or δ is out of range.
pub fn misses_allowed(n: usize, request: Request) -> Result<usize, ChoiceError> {
    let asked = request.miss_rate_max.get();
    // A part in a million million lets the smallest α pass as it was printed.
    let holds = |misses| Ok::<_, ChoiceError>(smallest_alpha(misses, n, request.guarantee)? <= asked * (1.0 + 1e-12));
    if !holds(0)? {
        let smallest = smallest_alpha(0, n, request.guarantee)?;
        return Err(ChoiceError::NotAchievable { asked, smallest, unsafe_rows: n });
    }
    // The smallest α rises with the misses, so the last that holds can be bisected for.
    let (mut good, mut bad) = (0, n + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

/// The main limit: one step below the log-odds of the first unsafe row that must not be missed, so that row is still
/// vetoed; but never above the highest safe row, where a looser limit would let no further safe plan run.
fn main_limit(must_veto: Option<f64>, safe: &[&Judged]) -> Result<Finite, Undefined> {
    let highest_safe = safe.iter().map(|row| row.refuse_log_odds.get()).fold(f64::NEG_INFINITY, f64::max);
    let limit = must_veto.map_or(highest_safe, |log_odds| log_odds.next_down().min(highest_safe));
    Finite::new(limit).map_err(|_| Undefined::Overflow)
}

/// The side limits that the safe ones among these rows give, as `(flip share, malleability)`; 1, which vetoes nothing,
/// where a reading was not measured.
#[must_use]
pub fn side_limits_of(rows: &[Judged], request: Request) -> (Share, Share) {
    let safe: Vec<&Judged> = rows.iter().filter(|row| row.label == Label::Safe).collect();
    let side = side_limits(&safe, request.false_veto_rate_asked.get() * request.side_share.get());
    (side.flip_share_max, side.malleability_max)
}

#[derive(Debug, Clone, Copy)]
struct SideLimits {
    flip_share_max: Share,
    malleability_max: Share,
}

impl SideLimits {
    fn veto(self, row: &Judged) -> bool {
        row.flip_share.is_some_and(|share| share > self.flip_share_max)
            || row.malleability.is_some_and(|score| score > self.malleability_max)
    }
}

/// For each side reading, the smallest limit that vetoes no larger share of the safe rows than this.
fn side_limits(safe: &[&Judged], share_each: f64) -> SideLimits {
    let limit = |reading: fn(&Judged) -> Option<Share>| {
        let mut values: Vec<Share> = safe.iter().filter_map(|row| reading(row)).collect();
        values.sort_by(|a, b| b.get().total_cmp(&a.get()));
        let n = count(values.len());
        let spare = (1..=values.len()).take_while(|&vetoed| count(vetoed) <= share_each * n).count();
        values.get(spare).copied()
    };
    let never = Share::ONE;
    SideLimits {
        flip_share_max: limit(|row| row.flip_share).unwrap_or(never),
        malleability_max: limit(|row| row.malleability).unwrap_or(never),
    }
}

/// The smallest α whose limit meets the false-veto rate asked for.
fn alpha_for_asked(
    safe: &[&Judged],
    unsafe_log_odds: &[f64],
    side: SideLimits,
    request: Request,
) -> Result<Option<f64>, ChoiceError> {
    let n = count(safe.len());
    let mut passing: Vec<f64> =
        safe.iter().filter(|row| !side.veto(row)).map(|row| row.refuse_log_odds.get()).collect();
    passing.sort_by(f64::total_cmp);
    // The fewest safe rows that must pass, and so the lowest limit that lets them.
    let Some(needed) = (0..=passing.len()).find(|&passed| n - count(passed) <= request.false_veto_rate_asked.get() * n)
    else {
        return Ok(None);
    };
    let limit = needed.checked_sub(1).and_then(|last| passing.get(last)).copied().unwrap_or(f64::NEG_INFINITY);
    let misses = unsafe_log_odds.iter().filter(|&&log_odds| log_odds <= limit).count();
    let alpha = smallest_alpha(misses, unsafe_log_odds.len(), request.guarantee)?;
    Ok((alpha < 1.0).then_some(alpha))
}

/// The smallest α at which this many misses among n unsafe rows are allowed.
fn smallest_alpha(misses: usize, n: usize, guarantee: Guarantee) -> Result<f64, ChoiceError> {
    let (k, of) = (count(misses), count(n));
    match guarantee {
        Guarantee::Expectation => Ok((k + 1.0) / (of + 1.0)),
        Guarantee::HighProbability { delta } if delta <= Share::ZERO || delta >= Share::ONE => {
            Err(Undefined::OutOfRange("δ").into())
        }
        Guarantee::HighProbability { .. } if misses >= n => Ok(1.0),
        // Where P(Bin(n, α) ≤ k) = δ, which is Clopper and Pearson's one-sided upper bound.
        Guarantee::HighProbability { delta } => Ok(beta_quantile(1.0 - delta.get(), k + 1.0, of - k)?),
    }
}

fn complete(rows: &[Judged]) -> Result<(), ChoiceError> {
    in_all_or_none(rows, "flip share", |row| row.flip_share.is_some())?;
    in_all_or_none(rows, "malleability", |row| row.malleability.is_some())
}

fn in_all_or_none(rows: &[Judged], reading: &'static str, there: fn(&Judged) -> bool) -> Result<(), ChoiceError> {
    match rows.iter().position(|row| !there(row)) {
        Some(row) if rows.iter().any(there) => Err(ChoiceError::Incomplete { row, reading }),
        _ => Ok(()),
    }
}
