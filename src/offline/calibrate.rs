//! From a benchmark's predictions to a calibration: scale and bias, the composite, and limits with a guarantee.
//!
//! The scenes of each source are dealt into two halves. Scale, bias and composite are learnt on the first; the limits are chosen on
//! the second, whose rows none of them has seen, so that the guarantee of [`crate::calibration::choose_limits`] holds
//! as stated. The flip share depends on the main limit it stands beside: candidates for it are walked from the
//! strictest on, each with the flip shares it implies, until the guarantee first fails (fixed-sequence testing, the
//! "Learn then Test" of Angelopoulos, Bates, Candès, Jordan and Lei, 2021).
//!
//! Rows with a written observation have no spread. They take part in the main limit, and no side limit vetoes them.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::{JudgeIdentity, Prediction, Run};
use crate::calibration::{
    Bound, Calibration, Choice, ChoiceError, Fit, Guarantee, Judged, LOG_ODDS_LIMIT_MAX, Limits, MarginScale, Request,
    ScaleError, SourceRates, choose_limits, fit_margin_scale, misses_allowed, rates, side_limits_of, vetoes,
};
use crate::decision::Reason;
use crate::margin::{Margin, NonFinite};
use crate::signals::malleability::{
    self, Composite, CompositeError, CrossValidation, Examples, FitError, ScoreError, Target, Term,
};
use crate::signals::perturbation_spread::PerturbationSpread;
use crate::signals::{Feature, Features};
use crate::statistics::{Finite, Label, NotInRange, Positive, Share, Undefined, count, roc_auc};
use crate::triple::Digest;

/// What the reduced composite reads.
const FEATURES: [Feature; 3] = [Feature::PerturbationSpread, Feature::ConstitutionReliance, Feature::MarginSize];
/// Rows with a wrong verdict, and rows with a right one, under which no composite is fitted.
const EXAMPLES_MIN: usize = 10;
/// Candidates for the main limit.
const CANDIDATES: usize = 128;
/// Random halves on which the realised miss rate is checked.
pub const SPLITS: u64 = 200;

/// What calibrating is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// α: the miss rate accepted.
    pub miss_rate_max: Share,
    /// δ, where α is to hold with high probability.
    pub delta: Option<Share>,
    /// The false-veto rate wished for.
    pub false_veto_rate_asked: Share,
    /// The share of it each side limit may spend, 0 to 0.5.
    pub side_share: Share,
    /// Seed of the deals.
    pub seed: u64,
}

/// Why there is no calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// No predictions at all.
    #[error("there are no predictions")]
    Empty,
    /// Predictions of an endpoint's model say nothing about this guard.
    #[error("{0} was judged by a model behind an endpoint, not by a guard")]
    NotAGuard(String),
    /// Two runs rest on different files.
    #[error("{first} and {second} were judged with different {part}")]
    Different {
        /// A run.
        first: String,
        /// Another.
        second: String,
        /// What differs.
        part: &'static str,
    },
    /// Rows without a margin cannot be left out silently.
    #[error("{faults} of {rows} rows have no margin, first {first}: {reason}; a fault in one of a hundred is the most")]
    Faults {
        /// Rows without a margin.
        faults: usize,
        /// Rows in all.
        rows: usize,
        /// The first one's uid.
        first: String,
        /// What happened to it.
        reason: String,
    },
    /// A margin that is not finite.
    #[error("row {uid}: {source}")]
    Margin {
        /// The row.
        uid: String,
        /// Why.
        source: NonFinite,
    },
    /// No scale fits.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// No limits hold.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// No composite fits.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// The composite scores nothing.
    #[error(transparent)]
    Score(#[from] ScoreError),
    /// A composite that does not stand.
    #[error(transparent)]
    Composite(#[from] CompositeError),
    /// A statistic without a value.
    #[error(transparent)]
    Undefined(#[from] Undefined),
    /// A number out of its range.
    #[error(transparent)]
    Number(#[from] NotInRange),
}

/// A row as calibrating needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    uid: String,
    source: String,
    scene: u64,
    label: Label,
    margin: Margin,
    reliance: Option<f64>,
    copies: Vec<Margin>,
    /// What only traces give; empty where the run read none.
    traced: Features,
}

/// Gathers rows from several runs, which must rest on the same proxy, constitution and prompt layout.
#[derive(Debug, Default)]
pub struct Gathered {
    bound: Option<(String, Bound)>,
    rows: usize,
    inconclusive: usize,
    faults: usize,
    first_fault: Option<(String, String)>,
    digests: Vec<u8>,
    examples: Vec<Example>,
    composite: Option<Composite>,
}

impl Gathered {
    /// Takes a run in, `name` naming it in complaints, and says what its rows are bound to.
    ///
    /// # Errors
    /// When it was no guard, or its digests are not those of the runs before.
    pub fn run(&mut self, name: &str, run: &Run) -> Result<(), CalibrateError> {
        let JudgeIdentity::Guard { proxy_digest, constitution, prompt_layout, .. } = &run.judge else {
            return Err(CalibrateError::NotAGuard(name.to_owned()));
        };
        let bound = Bound { proxy: *proxy_digest, constitution: *constitution, prompt_layout: *prompt_layout };
        self.digests.extend(run.data.digest.as_bytes());
        let Some((first, before)) = &self.bound else {
            self.bound = Some((name.to_owned(), bound));
            return Ok(());
        };
        let part = if before.proxy != bound.proxy {
            "proxies"
        } else if before.constitution != bound.constitution {
            "constitutions"
        } else if before.prompt_layout != bound.prompt_layout {
            "prompt layouts"
        } else {
            return Ok(());
        };
        Err(CalibrateError::Different { first: first.clone(), second: name.to_owned(), part })
    }

    /// Takes a row in.
    ///
    /// # Errors
    /// When a margin in it is not finite.
    pub fn row(&mut self, prediction: Prediction) -> Result<(), CalibrateError> {
        self.rows += 1;
        let judgement = prediction.judgement;
        let Some(nats) = judgement.margin else {
            if judgement.reason.as_deref() == Some(Reason::InconclusivePlan.code()) {
                // Vetoed whatever the limits are, so that there is nothing in it to choose them by.
                self.inconclusive += 1;
                return Ok(());
            }
            self.faults += 1;
            let reason = judgement.reason.unwrap_or(judgement.verdict);
            self.first_fault.get_or_insert((prediction.uid, reason));
            return Ok(());
        };
        let margin =
            |nats| Margin::new(nats).map_err(|source| CalibrateError::Margin { uid: prediction.uid.clone(), source });
        let scene = Digest::of(format!("{}\n{}", prediction.source, prediction.scene).as_bytes()).seed();
        let example = Example {
            label: prediction.label,
            scene,
            margin: margin(nats)?,
            copies: judgement.copies.iter().copied().map(margin).collect::<Result<_, _>>()?,
            reliance: judgement.reliance,
            traced: judgement.traced.clone(),
            uid: prediction.uid.clone(),
            source: prediction.source.clone(),
        };
        self.digests.extend(Digest::of(prediction.uid.as_bytes()).as_bytes());
        self.digests.extend(nats.to_le_bytes());
        self.examples.push(example);
        Ok(())
    }

    /// Scores malleability by this composite, as `assess --known` fitted it, instead of fitting one on wrong verdicts.
    pub fn score_by(&mut self, composite: Composite) {
        self.composite = Some(composite);
    }

    fn check(&self) -> Result<Bound, CalibrateError> {
        let Some((_, bound)) = self.bound.as_ref().filter(|_| !self.examples.is_empty()) else {
            return Err(CalibrateError::Empty);
        };
        match &self.first_fault {
            Some((first, reason)) if self.faults * 100 > self.rows => Err(CalibrateError::Faults {
                faults: self.faults,
                rows: self.rows,
                first: first.clone(),
                reason: reason.clone(),
            }),
            Some(_) | None => Ok(*bound),
        }
    }
}

/// A calibration and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    /// The calibration.
    pub calibration: Calibration,
    /// The smallest α at which the false-veto rate asked for would have been met.
    pub miss_rate_for_asked: Option<f64>,
    /// Rows the scale and the composite were learnt on, and rows the limits were chosen on.
    pub rows: (usize, usize),
    /// How well the composite finds wrong verdicts on scenes it was not fitted on; `None` where none was fitted, or one
    /// was given.
    pub composite_auc: Option<f64>,
    /// How well the relative spread alone does.
    pub spread_auc: Option<f64>,
    /// Rows left out because their plan is inconclusive, and rows left out because of a fault.
    pub left_out: (usize, usize),
}

/// How often α held on halves the limits were not chosen on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Coverage {
    /// Random splits.
    pub splits: u32,
    /// Splits on whose other half at most α of the unsafe rows were missed.
    pub held: u32,
    /// Splits where the rows did not allow limits at all.
    pub not_achievable: u32,
    /// Mean over the other halves of the share of unsafe rows missed: what α bounds where no δ was asked for.
    pub miss_rate_mean: Option<f64>,
}

/// Fits everything.
///
/// # Errors
/// When the rows do not allow it; says what is missing.
pub fn calibrate(gathered: &Gathered, wish: Wish) -> Result<Calibrated, CalibrateError> {
    let bound = gathered.check()?;
    let (learn, choose) = halves(&gathered.examples, wish.seed);
    let learnt = Learnt::of(&learn, gathered.composite.as_ref(), wish.seed)?;
    let chosen = learnt.limits(&learnt.prepared(&choose)?, wish)?;
    let fit = Fit {
        miss_rate_max: wish.miss_rate_max,
        delta: wish.delta,
        false_veto_rate_asked: wish.false_veto_rate_asked,
        data: Digest::of(&gathered.digests),
        miss: chosen.miss,
        false_veto: chosen.false_veto,
        sources: chosen.sources,
    };
    Ok(Calibrated {
        calibration: Calibration::new(bound, learnt.scale, chosen.limits, learnt.composite, fit),
        miss_rate_for_asked: chosen.miss_rate_for_asked,
        rows: (learn.len(), choose.len()),
        composite_auc: learnt.composite_auc,
        spread_auc: learnt.spread_auc,
        left_out: (gathered.inconclusive, gathered.faults),
    })
}

/// Chooses limits on one random half of the limit-choosing rows and counts misses on the other, [`SPLITS`] times.
///
/// # Errors
/// When scale and composite cannot be fitted at all.
pub fn coverage(gathered: &Gathered, wish: Wish) -> Result<Coverage, CalibrateError> {
    gathered.check()?;
    let (learn, choose) = halves(&gathered.examples, wish.seed);
    let learnt = Learnt::of(&learn, gathered.composite.as_ref(), wish.seed)?;
    let rows = learnt.prepared(&choose)?;
    let mut coverage = Coverage::default();
    let mut miss_rates = Vec::new();
    for split in 1..=SPLITS {
        let seed = wish.seed.wrapping_add(split);
        let first = first_half(rows.iter().map(|row| (row.source.as_str(), row.scene)), seed);
        let (own, other): (Vec<Prepared>, Vec<Prepared>) =
            rows.iter().cloned().partition(|row| first.contains(&row.scene));
        coverage.splits += 1;
        let Ok(chosen) = learnt.limits(&own, wish) else {
            coverage.not_achievable += 1;
            continue;
        };
        let unsafe_rows = other.iter().filter(|row| row.label == Label::Unsafe).count();
        let missed = count(misses(&other, &chosen.limits)?);
        coverage.held += u32::from(missed <= wish.miss_rate_max.get() * count(unsafe_rows));
        miss_rates.extend((unsafe_rows > 0).then(|| missed / count(unsafe_rows)));
    }
    coverage.miss_rate_mean = crate::statistics::mean(&miss_rates).ok();
    Ok(coverage)
}

/// The rows to learn from, and those to choose limits on.
fn halves(examples: &[Example], seed: u64) -> (Vec<&Example>, Vec<&Example>) {
    let first = first_half(examples.iter().map(|example| (example.source.as_str(), example.scene)), seed);
    examples.iter().partition(|example| first.contains(&example.scene))
}

/// Deals the scenes of each source into two halves of about as many rows, and gives the first: in the order of their
/// hashes, each to the half that has fewer so far. By hash alone a source of a few large scenes can fall to one side.
fn first_half<'r>(rows: impl Iterator<Item = (&'r str, u64)>, seed: u64) -> BTreeSet<u64> {
    let mut sources: BTreeMap<&str, BTreeMap<(Digest, u64), usize>> = BTreeMap::new();
    for (source, scene) in rows {
        let place = Digest::of(&[scene.to_le_bytes(), seed.to_le_bytes()].concat());
        *sources.entry(source).or_default().entry((place, scene)).or_default() += 1;
    }
    let mut first = BTreeSet::new();
    for scenes in sources.into_values() {
        let (mut here, mut there) = (0, 0);
        for ((_, scene), rows) in scenes {
            if here <= there {
                here += rows;
                first.insert(scene);
            } else {
                there += rows;
            }
        }
    }
    first
}

impl Wish {
    fn request(self) -> Request {
        let guarantee = self.delta.map_or(Guarantee::Expectation, |delta| Guarantee::HighProbability { delta });
        Request {
            miss_rate_max: self.miss_rate_max,
            guarantee,
            false_veto_rate_asked: self.false_veto_rate_asked,
            side_share: self.side_share,
        }
    }
}

struct Learnt {
    scale: MarginScale,
    composite: Composite,
    composite_auc: Option<f64>,
    spread_auc: Option<f64>,
}

impl Learnt {
    fn of(examples: &[&Example], given: Option<&Composite>, seed: u64) -> Result<Self, CalibrateError> {
        let margins = |label| -> Vec<Margin> {
            examples.iter().filter(|example| example.label == label).map(|example| example.margin).collect()
        };
        let scale = fit_margin_scale(&margins(Label::Safe), &margins(Label::Unsafe))?;
        if let Some(given) = given {
            return Ok(Self { scale, composite: given.clone(), composite_auc: None, spread_auc: None });
        }
        let seen: Vec<&&Example> = examples.iter().filter(|example| !example.copies.is_empty()).collect();
        let wrong = |example: &Example| -> Result<bool, CalibrateError> {
            let refuses = log_odds(&scale, example)?.get() > 0.0;
            Ok(refuses != (example.label == Label::Unsafe))
        };
        let positive = seen.iter().map(|example| wrong(example)).collect::<Result<Vec<bool>, _>>()?;
        let readings = seen.iter().map(|example| features(&scale, example)).collect::<Result<Vec<Features>, _>>()?;
        let wrongs = positive.iter().filter(|wrong| **wrong).count();
        if wrongs < EXAMPLES_MIN || positive.len() - wrongs < EXAMPLES_MIN {
            return Ok(Self { scale, composite: constant()?, composite_auc: None, spread_auc: None });
        }
        let examples = Examples { readings: &readings, positive: &positive };
        let over = composite_features(&readings);
        let composite = malleability::fit(Target::WrongVerdict, over, examples)?;
        let scenes: Vec<u64> = seen.iter().map(|example| example.scene).collect();
        let held_out = malleability::cross_validate(over, examples, &scenes, CrossValidation::five_by_five(seed)).ok();
        let aucs: Option<Vec<f64>> =
            held_out.map(|repeats| repeats.iter().filter_map(|scores| roc_auc(scores, &positive).ok()).collect());
        let composite_auc = aucs.and_then(|aucs| crate::statistics::mean(&aucs).ok());
        let relative: Vec<f64> =
            readings.iter().filter_map(|readings| readings.get(&Feature::RelativeSpread).copied()).collect();
        Ok(Self { scale, composite, composite_auc, spread_auc: roc_auc(&relative, &positive).ok() })
    }

    /// Limits on rows that scale and composite have not seen.
    fn limits(&self, rows: &[Prepared], wish: Wish) -> Result<Choice, CalibrateError> {
        let request = wish.request();
        let allowed = misses_allowed(rows.iter().filter(|row| row.label == Label::Unsafe).count(), request)?;
        let mut candidates: Vec<Finite> = rows.iter().map(|row| row.refuse_log_odds).collect();
        candidates.sort_by(|a, b| a.get().total_cmp(&b.get()));
        let Some(lowest) = candidates.first() else { return Err(Undefined::OneClass.into()) };
        // Below the lowest row everything is vetoed, which holds any α that can be shown at all.
        let mut best = side_by(rows, Finite::new(lowest.get().next_down())?, request)?;
        let stride = candidates.len().div_ceil(CANDIDATES).max(1);
        for &main in candidates.iter().step_by(stride) {
            let limits = side_by(rows, main, request)?;
            if misses(rows, &limits)? > allowed {
                break;
            }
            best = limits;
        }
        outcome(rows, best, request)
    }

    /// Rows as the limits see them, but for the flip shares, which the main limit decides.
    fn prepared(&self, examples: &[&Example]) -> Result<Vec<Prepared>, CalibrateError> {
        let row = |example: &&Example| {
            let log_odds = |margin: Margin| {
                let named = |source| CalibrateError::Margin { uid: example.uid.clone(), source };
                Ok::<_, CalibrateError>(Finite::new(self.scale.refuse_log_odds(margin).map_err(named)?)?)
            };
            let seen = !example.copies.is_empty();
            Ok(Prepared {
                label: example.label,
                source: example.source.clone(),
                scene: example.scene,
                refuse_log_odds: log_odds(example.margin)?,
                copies: example.copies.iter().copied().map(log_odds).collect::<Result<_, _>>()?,
                malleability: if seen { Some(self.composite.score(&features(&self.scale, example)?)?) } else { None },
            })
        };
        examples.iter().map(row).collect()
    }
}

/// A row whose readings do not depend on the limits any more.
#[derive(Debug, Clone)]
struct Prepared {
    label: Label,
    source: String,
    scene: u64,
    refuse_log_odds: Finite,
    copies: Vec<Finite>,
    malleability: Option<Share>,
}

impl Prepared {
    /// The row with the flip share that this main limit implies.
    fn judged(&self, main: Finite) -> Result<Judged, CalibrateError> {
        let refused = self.refuse_log_odds > main;
        let flips = self.copies.iter().filter(|copy| (**copy > main) != refused).count();
        let seen = !self.copies.is_empty();
        let share = if seen { Some(Share::new(count(flips) / count(self.copies.len()))?) } else { None };
        Ok(Judged {
            label: self.label,
            source: self.source.clone(),
            refuse_log_odds: self.refuse_log_odds,
            flip_share: share,
            malleability: self.malleability,
        })
    }
}

fn judged(rows: &[Prepared], main: Finite) -> Result<Vec<Judged>, CalibrateError> {
    rows.iter().map(|row| row.judged(main)).collect()
}

/// This main limit and the side limits that the safe rows give beside it.
fn side_by(rows: &[Prepared], main: Finite, request: Request) -> Result<Limits, CalibrateError> {
    let seen = rows.iter().filter(|row| !row.copies.is_empty());
    let seen = seen.map(|row| row.judged(main)).collect::<Result<Vec<_>, _>>()?;
    let (flip_share_max, malleability_max) = side_limits_of(&seen, request);
    Ok(Limits { refuse_log_odds_max: main, malleability_max, flip_share_max })
}

fn misses(rows: &[Prepared], limits: &Limits) -> Result<usize, CalibrateError> {
    let judged = judged(rows, limits.refuse_log_odds_max)?;
    Ok(judged.iter().filter(|row| row.label == Label::Unsafe && !vetoes(limits, row)).count())
}

/// What these limits come to, over all and per source.
fn outcome(rows: &[Prepared], limits: Limits, request: Request) -> Result<Choice, CalibrateError> {
    let judged = judged(rows, limits.refuse_log_odds_max)?;
    let (Some(miss), Some(false_veto)) = rates(&judged, &limits)? else {
        return Err(Undefined::OneClass.into());
    };
    // For the question what α the wish would need: side vetoes lie far over every main limit.
    let certain = Finite::new(LOG_ODDS_LIMIT_MAX)?;
    let by_main = judged.iter().map(|row| {
        let by_side = vetoes(&Limits { refuse_log_odds_max: certain, ..limits }, row);
        let refuse_log_odds = if by_side { certain } else { row.refuse_log_odds };
        Judged { refuse_log_odds, flip_share: None, malleability: None, ..row.clone() }
    });
    let miss_rate_for_asked = choose_limits(&by_main.collect::<Vec<_>>(), request)?.miss_rate_for_asked;
    let mut by_source = BTreeMap::<String, Vec<Judged>>::new();
    for row in judged {
        by_source.entry(row.source.clone()).or_default().push(row);
    }
    let sources = by_source.into_iter().map(|(source, rows)| {
        let (miss, false_veto) = rates(&rows, &limits)?;
        Ok(SourceRates { source, miss, false_veto })
    });
    let sources = sources.collect::<Result<Vec<_>, Undefined>>()?;
    Ok(Choice { limits, miss, false_veto, sources, miss_rate_for_asked })
}

fn log_odds(scale: &MarginScale, example: &Example) -> Result<Finite, CalibrateError> {
    let named = |source| CalibrateError::Margin { uid: example.uid.clone(), source };
    Ok(Finite::new(scale.refuse_log_odds(example.margin).map_err(named)?)?)
}

/// The readings of a row that was seen; none depends on the limits.
fn features(scale: &MarginScale, example: &Example) -> Result<Features, CalibrateError> {
    let spread = PerturbationSpread::measure(example.margin, &example.copies, |_| false)?;
    let mut features = Features::from([
        (Feature::PerturbationSpread, spread.nats),
        (Feature::RelativeSpread, spread.relative),
        (Feature::MarginSize, log_odds(scale, example)?.get().abs()),
    ]);
    features.extend(example.reliance.map(|reliance| (Feature::ConstitutionReliance, reliance)));
    features.extend(&example.traced);
    Ok(features)
}

/// What the composite is fitted over: A5's six where every row has them, the reduced form's otherwise.
fn composite_features(readings: &[Features]) -> &'static [Feature] {
    let whole = |row: &Features| Feature::FULL.iter().all(|feature| row.contains_key(feature));
    if readings.iter().all(whole) { &Feature::FULL } else { &FEATURES }
}

/// What stands in where too few verdicts are wrong to learn from: every row scores a half.
fn constant() -> Result<Composite, CalibrateError> {
    let zero = Finite::new(0.0)?;
    let term = Term { feature: Feature::MarginSize, mean: zero, scale: Positive::new(1.0)?, weight: zero };
    Ok(Composite::new(Target::WrongVerdict, vec![term], zero)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_is_halved_to_within_its_largest_scene() {
        // A room with twenty rows among rooms with a few: by hash alone it took its source to one side.
        let rooms = (0..12).map(|scene| ("rooms", scene, if scene == 3 { 20 } else { 3 }));
        let photos = (100..140).map(|scene| ("photos", scene, 1));
        let rows: Vec<(&str, u64)> =
            rooms.chain(photos).flat_map(|(source, scene, rows)| vec![(source, scene); rows]).collect();
        for seed in 0..50 {
            let first = first_half(rows.iter().copied(), seed);
            for (source, largest) in [("rooms", 20), ("photos", 1)] {
                let of = |side: bool| {
                    rows.iter().filter(|(name, scene)| *name == source && first.contains(scene) == side).count()
                };
                let (here, there) = (of(true), of(false));
                assert!(here.abs_diff(there) <= largest, "seed {seed}, {source}: {here} and {there}");
                assert!(here > 0 && there > 0);
            }
        }
    }
}
