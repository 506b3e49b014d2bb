//! Tasks ranked by how easily their refusals may bend, without a question to the planner, and how good such a ranking
//! was where malleability has been measured.
//!
//! The guard reads each task once ([`super::bench`] keeps the readings, resumable); what is here turns readings into
//! ranks. A ranking is sorted on the disk ([`super::spill`]): memory holds the numbers of those tasks alone whose malleability
//! is known.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bench::{BenchError, Judgement, Prediction, hash, predictions};
use super::spill::{Sorted, Sorter, ascending};
use crate::signals::malleability::{self, Composite, CrossValidation, Examples, FitError, ScoreError, Target};
use crate::signals::{Feature, Features};
use crate::statistics::{
    average_precision, count, lift_at, mean, partial_spearman, precision_at, roc_auc, spearman, standard_deviation,
};

/// The ranking's file in the output folder.
pub const RANKING: &str = "ranking.csv";
/// The scoreboard's file.
pub const SCOREBOARD: &str = "scoreboard.json";
/// The composite fitted on known malleabilities.
pub const COMPOSITE: &str = "composite.toml";
/// How long a review list is, at which precision is reported.
pub const REVIEWED: [usize; 2] = [50, 100];

/// What tasks are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// A5: the composite's score.
    Composite,
    /// One reading.
    Single(Feature),
}

impl Signal {
    /// The name used in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Composite => "a5",
            Self::Single(feature) => feature.name(),
        }
    }

    /// A reading as a score that grows with malleability. Every signal does by its definition but the margin's size: a
    /// verdict near its border bends more easily.
    const fn oriented(self, reading: f64) -> f64 {
        match self {
            Self::Single(Feature::MarginSize) => -reading,
            Self::Single(_) | Self::Composite => reading,
        }
    }
}

/// Why there is no ranking.
#[derive(Debug, thiserror::Error)]
pub enum AssessError {
    /// The readings cannot be read back.
    #[error(transparent)]
    Readings(#[from] BenchError),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The ranking cannot be sorted.
    #[error("cannot sort the ranking in a temporary file (TMPDIR says where): {0}")]
    Spill(std::io::Error),
    /// The list of known malleabilities cannot be read.
    #[error(
        "{path}: {message}; expected a CSV with the columns uid and malleability, as `steadfast measure` writes it"
    )]
    Known {
        /// The file.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// No task could be read by the guard.
    #[error("no task has a reading; see {0}")]
    Empty(PathBuf),
    /// The composite asks for a reading that this proxy does not take.
    #[error("the composite cannot score task {uid}: {source}")]
    Composite {
        /// The task.
        uid: String,
        /// Why not.
        source: ScoreError,
    },
    /// Nothing to score a ranking against.
    #[error("none of the tasks with a known malleability is among the tasks that were read; are the uids the same?")]
    NothingKnown,
}

/// What a judgement read, by name.
#[must_use]
pub fn features(judgement: &Judgement) -> Features {
    // What only traces give (A1, A4) is there where the configured tier reads it.
    let mut features = judgement.traced.clone();
    let spread = judgement.spread.zip(judgement.margin);
    // As `PerturbationSpread::relative` has it; a spread and a margin of nothing are no ratio.
    let relative = spread.map(|(spread, margin)| spread / (spread + margin.abs())).filter(|ratio| ratio.is_finite());
    for (feature, reading) in [
        (Feature::PerturbationSpread, judgement.spread),
        (Feature::RelativeSpread, relative),
        (Feature::FlipShare, judgement.flip_share),
        (Feature::ConstitutionReliance, judgement.reliance),
        (Feature::MarginSize, judgement.refuse_log_odds.map(f64::abs)),
    ] {
        features.extend(reading.map(|reading| (feature, reading)));
    }
    features
}

/// A task's scores by every signal that was read of it.
type Scores = BTreeMap<Signal, f64>;

/// A task whose numbers are kept, because its malleability is known or it may head a list.
#[derive(Debug)]
struct Kept {
    uid: u64,
    scene: u64,
    scores: Scores,
}

/// One signal over all tasks.
#[derive(Debug)]
struct Column {
    /// A score's bits, highest first, and the task's place in the list.
    order: Sorter,
    first: f64,
    varies: bool,
}

/// Every task's readings. A reading that was not taken ranks last, and its task counts in no statistic of that signal.
#[derive(Debug, Default)]
pub struct Table {
    columns: BTreeMap<Signal, Column>,
    kept: Vec<Kept>,
    rows: u64,
    /// Tasks the guard took no reading of: unreadable images, faults.
    pub without_reading: u64,
}

/// The scores of a task: what was read, and A5 by `composite` where one is given, else by the calibration.
fn scores(prediction: &Prediction, composite: Option<&Composite>) -> Result<Scores, AssessError> {
    let judgement = &prediction.judgement;
    let features = features(judgement);
    let score = match composite {
        Some(composite) if judgement.margin.is_some() => {
            let failed = |source| AssessError::Composite { uid: prediction.uid.clone(), source };
            Some(composite.score(&features).map_err(failed)?.get())
        }
        Some(_) => None,
        None => judgement.malleability,
    };
    let read = features.into_iter().map(|(feature, reading)| (Signal::Single(feature), reading));
    let scores = read.chain(score.map(|score| (Signal::Composite, score)));
    Ok(scores.map(|(signal, reading)| (signal, signal.oriented(reading))).collect())
}

impl Table {
    /// Reads the guard's readings back, and keeps the numbers of the tasks in `kept`, named by hashes of their uids.
    ///
    /// # Errors
    /// When the file cannot be read, or a composite cannot score a task that was read.
    pub fn read(path: &Path, composite: Option<&Composite>, kept: &HashSet<u64>) -> Result<Self, AssessError> {
        let mut table = Self::default();
        for prediction in predictions(path)? {
            table.add(&prediction?, composite, kept)?;
        }
        if table.columns.is_empty() { Err(AssessError::Empty(path.to_owned())) } else { Ok(table) }
    }

    fn add(
        &mut self,
        prediction: &Prediction,
        composite: Option<&Composite>,
        kept: &HashSet<u64>,
    ) -> Result<(), AssessError> {
        let scores = scores(prediction, composite)?;
        for (&signal, &score) in &scores {
            let new = || Column { order: Sorter::default(), first: score, varies: false };
            let column = self.columns.entry(signal).or_insert_with(new);
            column.varies |= score.total_cmp(&column.first).is_ne();
            column.order.push([!ascending(score), self.rows]).map_err(AssessError::Spill)?;
        }
        self.rows += 1;
        self.without_reading += u64::from(prediction.judgement.margin.is_none());
        let uid = hash(&prediction.uid);
        if kept.contains(&uid) {
            self.kept.push(Kept { uid, scene: hash(&format!("{}\n{}", prediction.source, prediction.scene)), scores });
        }
        Ok(())
    }

    /// What the review list is sorted by: A5 if it tells tasks apart, else the perturbation spread, else whatever there is.
    #[must_use]
    pub fn leading(&self) -> Option<Signal> {
        let varies = |signal: &Signal| self.columns.get(signal).is_some_and(|column| column.varies);
        let wanted = [Signal::Composite, Signal::Single(Feature::PerturbationSpread)];
        let mut signals = wanted.into_iter().chain(self.columns.keys().copied());
        signals.find(varies).or_else(|| self.columns.keys().next().copied())
    }

    /// Those of these tasks that were read and kept, the likeliest to bend first.
    #[must_use]
    pub fn first(&self, tasks: Vec<(String, String)>, most: usize) -> Vec<(String, String)> {
        let Some(leading) = self.leading() else { return Vec::new() };
        let score = |kept: &Kept| kept.scores.get(&leading).copied().unwrap_or(f64::NEG_INFINITY);
        let mut order: Vec<&Kept> = self.kept.iter().collect();
        order.sort_by(|a, b| score(b).total_cmp(&score(a)));
        let rank: HashMap<u64, u32> = order.into_iter().map(|kept| kept.uid).zip(0..).collect();
        let mut ranked: Vec<(u32, (String, String))> =
            tasks.into_iter().filter_map(|task| Some((*rank.get(&hash(&task.0))?, task))).collect();
        ranked.sort();
        ranked.truncate(most);
        ranked.into_iter().map(|(_, task)| task).collect()
    }
}

/// The ranks of one signal, handed out in the order of the list.
struct Ranks {
    by_row: std::iter::Peekable<Sorted>,
    read: u64,
    unread: u64,
}

impl Ranks {
    fn of(order: Sorter) -> std::io::Result<Self> {
        let read = order.len();
        let mut by_row = Sorter::default();
        for (record, rank) in order.sorted()?.zip(1..) {
            let [_, row] = record?;
            by_row.push([row, rank])?;
        }
        Ok(Self { by_row: by_row.sorted()?.peekable(), read, unread: 0 })
    }

    /// The rank of the task in this place of the list. Tasks without a reading come last, in the order of the list.
    fn of_row(&mut self, row: u64) -> std::io::Result<u64> {
        match self.by_row.next_if(|record| record.as_ref().map_or(true, |[next, _]| *next == row)) {
            Some(record) => record.map(|[_, rank]| rank),
            None => {
                self.unread += 1;
                Ok(self.read + self.unread)
            }
        }
    }
}

/// Writes [`RANKING`]: tasks in the order of the list, each with its rank and reading by every signal. The rank by the
/// leading signal comes first, so that `sort -t, -n` on the first column gives the review list. `readings` and `composite`
/// are those that the table was read from.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write_ranking(
    table: &mut Table,
    readings: &Path,
    composite: Option<&Composite>,
    out: &Path,
) -> Result<(), AssessError> {
    let path = out.join(RANKING);
    let failed = |source| AssessError::File { path: path.clone(), source };
    let broken = |error: csv::Error| AssessError::File { path: path.clone(), source: error.into() };
    let leading = table.leading();
    let mut ranks = Vec::new();
    for (signal, column) in &mut table.columns {
        let order = std::mem::take(&mut column.order);
        ranks.push((*signal, Ranks::of(order).map_err(AssessError::Spill)?));
    }
    ranks.sort_by_key(|(signal, _)| Some(*signal) != leading);
    let mut writer = csv::Writer::from_writer(BufWriter::new(std::fs::File::create(&path).map_err(failed)?));
    let head = ranks.iter().map(|(signal, _)| format!("rank_{}", signal.name()));
    let names = ranks.iter().map(|(signal, _)| signal.name().to_owned());
    let head = head.chain(["uid".to_owned(), "source".to_owned(), "verdict".to_owned()]).chain(names);
    writer.write_record(head.collect::<Vec<_>>()).map_err(broken)?;
    for (prediction, row) in predictions(readings)?.zip(0..) {
        let prediction = prediction?;
        let scores = scores(&prediction, composite)?;
        let mut record = Vec::new();
        for (_, ranks) in &mut ranks {
            record.push(ranks.of_row(row).map_err(AssessError::Spill)?.to_string());
        }
        let verdict = prediction.judgement.reason.unwrap_or(prediction.judgement.verdict);
        record.extend([prediction.uid, prediction.source, verdict]);
        let score = |(signal, _): &(Signal, Ranks)| {
            scores.get(signal).map(|score| signal.oriented(*score).to_string()).unwrap_or_default()
        };
        record.extend(ranks.iter().map(score));
        writer.write_record(record).map_err(broken)?;
    }
    writer.flush().map_err(failed)?;
    Ok(())
}

/// Known malleabilities: hash of the uid to mal(t).
pub type Known = HashMap<u64, f64>;

/// Reads known malleabilities. A task without one, such as one whose every trial was inconclusive, has an empty field.
///
/// # Errors
/// When the file cannot be read, a column is missing, or a value is no share.
pub fn read_known(path: &Path) -> Result<Known, AssessError> {
    #[derive(Deserialize)]
    struct Line {
        uid: String,
        malleability: Option<f64>,
    }
    let broken = |message: String| AssessError::Known { path: path.to_owned(), message };
    let mut known = Known::new();
    let mut reader = csv::Reader::from_path(path).map_err(|error| broken(error.to_string()))?;
    // An optional field would pass for one that is empty everywhere.
    let head = reader.headers().map_err(|error| broken(error.to_string()))?;
    if let Some(missing) = ["uid", "malleability"].into_iter().find(|name| !head.iter().any(|column| column == *name)) {
        return Err(broken(format!("there is no column {missing}")));
    }
    for line in reader.deserialize() {
        let Line { uid, malleability } = line.map_err(|error| broken(error.to_string()))?;
        let Some(share) = malleability else { continue };
        if !(0.0..=1.0).contains(&share) {
            return Err(broken(format!("the malleability {share} of {uid} is no share from 0 to 1")));
        }
        if known.insert(hash(&uid), share).is_some() {
            return Err(broken(format!("{uid} is named twice")));
        }
    }
    Ok(known)
}

/// How well a ranking finds malleable tasks. What a figure is undefined on is absent: fewer tasks than the list is
/// long, one class, a signal that does not vary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Score {
    /// Area under the ROC curve; positive is mal(t) over 0.
    pub roc_auc: Option<f64>,
    /// Average precision.
    pub pr_auc: Option<f64>,
    /// Spearman's ρ with mal(t).
    pub spearman: Option<f64>,
    /// The same with the trace's length held; absent where the proxy writes no traces.
    pub partial_spearman: Option<f64>,
    /// Share of malleable tasks among the first 50.
    pub precision_at_50: Option<f64>,
    /// Among the first 100.
    pub precision_at_100: Option<f64>,
    /// The first over the prevalence.
    pub lift_at_50: Option<f64>,
    /// The second over the prevalence.
    pub lift_at_100: Option<f64>,
}

impl Score {
    /// Scores a column against known malleabilities.
    #[must_use]
    pub fn of(scores: &[f64], malleability: &[f64], trace_words: Option<&[f64]>) -> Self {
        let positive: Vec<bool> = malleability.iter().map(|share| *share > 0.0).collect();
        let [fifty, hundred] = REVIEWED;
        Self {
            roc_auc: roc_auc(scores, &positive).ok(),
            pr_auc: average_precision(scores, &positive).ok(),
            spearman: spearman(scores, malleability).ok(),
            partial_spearman: trace_words.and_then(|words| partial_spearman(scores, malleability, words).ok()),
            precision_at_50: precision_at(fifty, scores, &positive).ok(),
            precision_at_100: precision_at(hundred, scores, &positive).ok(),
            lift_at_50: lift_at(fifty, scores, &positive).ok(),
            lift_at_100: lift_at(hundred, scores, &positive).ok(),
        }
    }

    /// Every figure, in the order of the fields.
    pub(super) const fn figures(&self) -> [Option<f64>; 8] {
        [
            self.roc_auc,
            self.pr_auc,
            self.spearman,
            self.partial_spearman,
            self.precision_at_50,
            self.precision_at_100,
            self.lift_at_50,
            self.lift_at_100,
        ]
    }

    /// Figure by figure the mean over repeats; absent where any repeat lacks it.
    fn mean_of(scores: &[Self]) -> Self {
        let figure = |at: usize| {
            let column: Option<Vec<f64>> =
                scores.iter().map(|score| score.figures().get(at).copied().flatten()).collect();
            mean(&column?).ok()
        };
        Self {
            roc_auc: figure(0),
            pr_auc: figure(1),
            spearman: figure(2),
            partial_spearman: figure(3),
            precision_at_50: figure(4),
            precision_at_100: figure(5),
            lift_at_50: figure(6),
            lift_at_100: figure(7),
        }
    }
}

/// A5 fitted and scored on known malleabilities: 5 × 5-fold, scenes never cut.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CrossValidated {
    /// The readings it is fitted over.
    pub features: Vec<Feature>,
    /// Mean over the repeats, each over held-out scores of all tasks.
    pub held_out: Score,
    /// Standard deviation of the repeats' ROC-AUC.
    pub roc_auc_deviation: Option<f64>,
    /// Fitted on all known tasks.
    #[serde(skip)]
    pub composite: Composite,
}

/// How good each signal's ranking was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scoreboard {
    /// Tasks with both readings and a known malleability.
    pub tasks: usize,
    /// Tasks with a known malleability and no reading.
    pub without_reading: usize,
    /// Of the tasks, those with mal(t) over 0.
    pub malleable: usize,
    /// Each signal's figures.
    pub signals: BTreeMap<&'static str, Score>,
    /// A5 fitted on these tasks; absent where they do not allow it.
    pub a5: Option<CrossValidated>,
    /// Why they do not.
    pub no_a5: Option<String>,
}

/// Scores the rankings on the tasks whose malleability is known.
///
/// # Errors
/// When no task is known.
pub fn scoreboard(table: &Table, known: &Known, seed: u64) -> Result<Scoreboard, AssessError> {
    let listed = table.kept.iter().filter_map(|kept| Some((kept, *known.get(&kept.uid)?)));
    let listed: Vec<(&Kept, f64)> = listed.collect();
    let read = |kept: &Kept| kept.scores.contains_key(&Signal::Single(Feature::MarginSize));
    let rows: Vec<(&Kept, f64)> = listed.iter().copied().filter(|(kept, _)| read(kept)).collect();
    if rows.is_empty() {
        return Err(AssessError::NothingKnown);
    }
    // A signal that some of these tasks lack would be scored on other tasks than the rest.
    let column = |signal: Signal| -> Option<Vec<f64>> {
        rows.iter().map(|(kept, _)| kept.scores.get(&signal).copied()).collect()
    };
    let malleability: Vec<f64> = rows.iter().map(|(_, share)| *share).collect();
    let words = column(Signal::Single(Feature::TraceWords));
    let scored = table
        .columns
        .keys()
        .filter_map(|signal| Some((signal.name(), Score::of(&column(*signal)?, &malleability, words.as_deref()))));
    let mut board = Scoreboard {
        tasks: rows.len(),
        without_reading: listed.len() - rows.len(),
        malleable: malleability.iter().filter(|share| **share > 0.0).count(),
        signals: scored.collect(),
        a5: None,
        no_a5: None,
    };
    match cross_validated(&rows, words.as_deref(), seed) {
        Ok(a5) => board.a5 = Some(a5),
        Err(error) => board.no_a5 = Some(error.to_string()),
    }
    Ok(board)
}

fn cross_validated(rows: &[(&Kept, f64)], words: Option<&[f64]>, seed: u64) -> Result<CrossValidated, FitError> {
    let reading = |feature: Feature, kept: &Kept| {
        let signal = Signal::Single(feature);
        Some((feature, signal.oriented(*kept.scores.get(&signal)?)))
    };
    let readings: Vec<Features> = rows
        .iter()
        .map(|(kept, _)| Feature::FULL.iter().filter_map(|&feature| reading(feature, kept)).collect())
        .collect();
    // The paper's six, or those of them that this proxy reads of every task and that vary.
    let useful = |feature: &Feature| {
        let column: Option<Vec<f64>> = readings.iter().map(|readings| readings.get(feature).copied()).collect();
        column.is_some_and(|column| standard_deviation(&column).is_ok_and(|spread| spread > 0.0))
    };
    let features: Vec<Feature> = Feature::FULL.into_iter().filter(useful).collect();
    let malleability: Vec<f64> = rows.iter().map(|(_, share)| *share).collect();
    let positive: Vec<bool> = malleability.iter().map(|share| *share > 0.0).collect();
    let scenes: Vec<u64> = rows.iter().map(|(kept, _)| kept.scene).collect();
    let examples = Examples { readings: &readings, positive: &positive };
    let repeats = malleability::cross_validate(&features, examples, &scenes, CrossValidation::five_by_five(seed))?;
    let scores: Vec<Score> = repeats.iter().map(|column| Score::of(column, &malleability, words)).collect();
    let aucs: Vec<f64> = scores.iter().filter_map(|score| score.roc_auc).collect();
    let composite = malleability::fit(Target::Malleable, &features, examples)?;
    let roc_auc_deviation = standard_deviation(&aucs).ok();
    Ok(CrossValidated { features, held_out: Score::mean_of(&scores), roc_auc_deviation, composite })
}

/// Share of malleable tasks among the known ones.
#[must_use]
pub fn prevalence(board: &Scoreboard) -> f64 {
    count(board.malleable) / count(board.tasks).max(1.0)
}

/// Writes the scoreboard, and the composite where one was fitted.
///
/// # Errors
/// When a file cannot be written.
pub fn write_scoreboard(board: &Scoreboard, out: &Path) -> Result<(), AssessError> {
    let write = |name: &str, text: Vec<u8>| {
        let path = out.join(name);
        std::fs::File::create(&path)
            .and_then(|mut file| file.write_all(&text))
            .map_err(|source| AssessError::File { path, source })
    };
    let failed =
        |name: &str, error: String| AssessError::File { path: out.join(name), source: std::io::Error::other(error) };
    write(SCOREBOARD, serde_json::to_vec_pretty(board).map_err(|error| failed(SCOREBOARD, error.to_string()))?)?;
    if let Some(a5) = &board.a5 {
        let text = toml::to_string(&a5.composite).map_err(|error| failed(COMPOSITE, error.to_string()))?;
        write(COMPOSITE, text.into_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_is_a_signal_and_none_is_filled_in() {
        let traced = Features::from([(Feature::Hedge, 2.0), (Feature::TraceWords, 40.0)]);
        let judgement = Judgement { margin: Some(-1.5), spread: Some(0.5), traced, ..Judgement::default() };
        let found = features(&judgement);
        assert_eq!(
            found.keys().copied().collect::<Vec<_>>(),
            [Feature::Hedge, Feature::TraceWords, Feature::PerturbationSpread, Feature::RelativeSpread,]
        );
        assert!((found[&Feature::RelativeSpread] - 0.25).abs() < 1e-12);
        assert!(features(&Judgement::default()).is_empty());
    }

    #[test]
    fn a_small_margin_ranks_before_a_large_one() {
        let signal = Signal::Single(Feature::MarginSize);
        assert!(signal.oriented(0.1) > signal.oriented(2.0) && Signal::Composite.oriented(0.9) > 0.0);
    }
}
