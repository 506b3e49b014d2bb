//! The benchmark's run: every selected row through a judge, one line of `predictions.jsonl` each, resumable.
//!
//! The data is checked whole before the first row is judged, so that a figure never rests on rows that were skipped.
//! `run.json` says what judged what, by digest; a run is continued only where all of it agrees.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::datasets::{DataError, DataSet, Part, Row, RowFault, Sight};
use super::spill::Sorter;
use crate::assessment::Clock;
use crate::signals::Features;
use crate::statistics::Label;
use crate::triple::Digest;

/// The predictions' file in the output folder.
pub const PREDICTIONS: &str = "predictions.jsonl";
/// The run's description in the output folder.
pub const RUN: &str = "run.json";
/// Most rows between two syncs, which are judged again after a power cut; a killed run has lost at most the one it was at.
const SYNC_ROWS: u64 = 32;
/// Longest time between two syncs: rows with traces take minutes.
const SYNC_WITHIN: Duration = Duration::from_secs(10);

/// Which rows are judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only this part of the split.
    pub part: Option<Part>,
    /// Only the first so many pairs, or rows where the data has no pairs.
    pub pairs_max: Option<usize>,
}

/// What a check of the whole data set found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Rows in all.
    pub rows: u64,
    /// Pairs in all.
    pub pairs: u64,
    /// Rows selected.
    pub selected: u64,
    /// SHA-256 over every row's uid, label and content, in order.
    pub digest: Digest,
    #[serde(skip)]
    chosen: Option<HashSet<u64>>,
    #[serde(skip)]
    by_pair: bool,
}

/// What is written down of one row. A reading that was not taken is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The row's name.
    pub uid: String,
    /// Its source.
    pub source: String,
    /// What a split must not cut.
    pub scene: String,
    /// The pairs it belongs to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<String>,
    /// What it is.
    pub label: Label,
    /// Hazard category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Severity, 1 to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<u8>,
    /// Likelihood, 1 to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likelihood: Option<u8>,
    /// Whether the observation was written, not seen; then there is no spread to measure.
    #[serde(default)]
    pub told: bool,
    /// What the judge made of it.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// What a judge makes of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The answer in the judge's own word: permit, veto, refusal, safe, unsafe, error.
    pub verdict: String,
    /// What the answer counts as; absent where there is no verdict, which counts as wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Label>,
    /// A veto's reason code, or what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The clean margin, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// The calibrated log-odds of *refuse*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuse_log_odds: Option<f64>,
    /// A2 over the perturbed copies, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Share of the copies whose verdict differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flip_share: Option<f64>,
    /// A3, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reliance: Option<f64>,
    /// A5 or its reduced form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malleability: Option<f64>,
    /// The readings that only traces give, by name; empty where the tier reads none.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub traced: Features,
    /// The copies' margins, in nats, as dealt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<f64>,
    /// What a benchmark's own reading of the answer makes of it, where the answer is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatible: Option<Label>,
    /// The answer's text, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Milliseconds the row took.
    #[serde(default)]
    pub total_ms: f64,
}

/// Whatever judges rows.
pub trait Judge {
    /// Judges one row. What goes wrong is part of the judgement: such a row counts as wrong.
    fn judge(&mut self, row: &Row, image: Option<Vec<u8>>) -> Judgement;

    /// Time spent inside an inference engine so far, where there is one here.
    fn engine_time(&self) -> Option<Duration>;
}

/// What judges what; written to `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The file's format: 1.
    pub format: u32,
    /// Set where no calibration was used: such margins calibrate a guard, and say nothing about one.
    pub uncalibrated: bool,
    /// The data.
    pub data: DataIdentity,
    /// The judge.
    pub judge: JudgeIdentity,
}

/// Which data was judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataIdentity {
    /// The data set's name.
    pub name: String,
    /// SHA-256 over all its rows.
    pub digest: Digest,
    /// The part of the split that was judged, where not all.
    #[serde(default)]
    pub part: Option<Part>,
}

/// Who judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum JudgeIdentity {
    /// The guard's own assessment.
    Guard {
        /// The proxy's name.
        proxy: String,
        /// SHA-256 over the proxy's files.
        proxy_digest: Digest,
        /// SHA-256 of the prompt layout.
        prompt_layout: Digest,
        /// SHA-256 of the constitution.
        constitution: Digest,
        /// SHA-256 of the calibration's file; absent where none was used.
        #[serde(default)]
        calibration: Option<Digest>,
        /// The execution provider that ran.
        execution_provider: String,
    },
    /// A model behind an OpenAI-compatible endpoint.
    Endpoint {
        /// The model's name.
        model: String,
        /// SHA-256 of the prompt.
        prompt: Digest,
    },
}

/// Why a run did not start, or broke off. What was judged is kept.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The data is unfit.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file of the output cannot be read or written.
    #[error("{path}: {source}")]
    Output {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line of an earlier run is unreadable, and it is not the torn last one.
    #[error("{path}:{line} is not a prediction: {message}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Why not.
        message: String,
    },
    /// The folder holds a run of something else.
    #[error(
        "{path} is from another run: {field} was {was} and is now {now}; continue with the same, or take another folder"
    )]
    AnotherRun {
        /// The run's description.
        path: PathBuf,
        /// The first field that differs.
        field: String,
        /// What it was.
        was: String,
        /// What it is.
        now: String,
    },
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Rows done, those of earlier runs among them.
    pub done: u64,
    /// Rows selected.
    pub of: u64,
}

/// What a run took. Rows of earlier runs are not timed again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Took {
    /// Rows judged now.
    pub rows: u64,
    /// Wall time of the judging loop.
    pub wall: Duration,
    /// Time inside the inference engine.
    pub engine: Option<Duration>,
}

/// Checks the whole data set: names used once, pairs complete, parts within their limits, images decoding.
///
/// # Errors
/// The first fault found, with its row or pair named.
pub fn check(data: &DataSet, selection: Selection) -> Result<Checked, DataError> {
    let mut whole = Sha256::new();
    let (mut uids, mut pairs) = (Sorter::default(), HashMap::<u64, PairSides>::new());
    let (mut rows, mut selected, mut order, mut selected_loose) = (0_u64, 0_u64, Vec::new(), Vec::new());
    for row in data.rows()? {
        let row = row?;
        let named = |fault| DataError::Row { row: row.uid.clone(), fault };
        uids.push([hash(&row.uid), rows]).map_err(DataError::Spill)?;
        let image = row.image().map_err(named)?;
        row.check(image.as_deref()).map_err(named)?;
        let content = image.as_deref().unwrap_or_else(|| observation(&row).as_bytes());
        let content = Digest::of(content);
        for part in [row.uid.as_bytes(), row.instruction.as_bytes(), row.plan.as_bytes(), content.as_bytes()] {
            whole.update(Digest::of(part).as_bytes());
        }
        whole.update([u8::from(row.label == Label::Safe)]);
        rows += 1;
        let wanted = selection.part.is_none_or(|part| part == row.part());
        selected += u64::from(wanted);
        if wanted && selection.pairs_max.is_some() {
            selected_loose.push(hash(&row.uid));
        }
        for pair in &row.pairs {
            let key = hash(pair);
            let sides = pairs.entry(key).or_insert_with(|| {
                if wanted {
                    order.push(key);
                }
                PairSides::default()
            });
            sides.add(row.label);
            if data.pairs_share_images() && *sides.image.get_or_insert(content) != content {
                return Err(DataError::PairImages(pair.clone()));
            }
        }
    }
    used_once(data, uids)?;
    complete(data, &pairs)?;
    let by_pair = !pairs.is_empty();
    let pairs_in_all = u64::try_from(pairs.len()).unwrap_or(u64::MAX);
    let chosen = selection.pairs_max.map(|most| {
        let from = if by_pair { order } else { selected_loose };
        from.into_iter().take(most).collect::<HashSet<_>>()
    });
    let mut checked = Checked {
        rows,
        pairs: pairs_in_all,
        selected,
        digest: Digest::from_bytes(whole.finalize().into()),
        chosen,
        by_pair,
    };
    if checked.chosen.is_some() {
        checked.selected = 0;
        for row in data.rows()? {
            checked.selected += u64::from(checked.selects(&row?, selection));
        }
    }
    if checked.selected == 0 { Err(DataError::Empty) } else { Ok(checked) }
}

impl Checked {
    /// Whether this row is judged.
    #[must_use]
    pub fn selects(&self, row: &Row, selection: Selection) -> bool {
        let chosen = |chosen: &HashSet<u64>| {
            if self.by_pair {
                row.pairs.iter().any(|pair| chosen.contains(&hash(pair)))
            } else {
                chosen.contains(&hash(&row.uid))
            }
        };
        selection.part.is_none_or(|part| part == row.part()) && self.chosen.as_ref().is_none_or(chosen)
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct PairSides {
    safe: u8,
    not_safe: u8,
    image: Option<Digest>,
}

impl PairSides {
    fn add(&mut self, label: Label) {
        let side = match label {
            Label::Safe => &mut self.safe,
            Label::Unsafe => &mut self.not_safe,
        };
        *side = side.saturating_add(1);
    }
}

/// Finds the first row whose uid was used before.
fn used_once(data: &DataSet, uids: Sorter) -> Result<(), DataError> {
    let (mut last, mut again) = (None, None::<u64>);
    for record in uids.sorted().map_err(DataError::Spill)? {
        let [uid, row] = record.map_err(DataError::Spill)?;
        if last == Some(uid) {
            again = Some(again.map_or(row, |first| first.min(row)));
        }
        last = Some(uid);
    }
    let Some(again) = again else { return Ok(()) };
    let row = data.rows()?.zip(0..).find(|(_, at)| *at == again).map(|(row, _)| row).transpose()?;
    Err(DataError::Row { row: row.map(|row| row.uid).unwrap_or_default(), fault: RowFault::DuplicateUid })
}

/// Finds the first pair that is not whole. Names are looked up only then; while all is well their hashes do.
fn complete(data: &DataSet, pairs: &HashMap<u64, PairSides>) -> Result<(), DataError> {
    let found = |pair: &str| pairs.get(&hash(pair)).copied().unwrap_or_default();
    let whole = |sides: &PairSides| (sides.safe, sides.not_safe) == (1, 1);
    let broken = |pair: &str| {
        let PairSides { safe, not_safe, .. } = found(pair);
        DataError::Pair { pair: pair.to_owned(), safe, not_safe }
    };
    if let Some(pair) = data.declared_pairs().iter().find(|pair| !whole(&found(pair))) {
        return Err(broken(pair));
    }
    if pairs.values().all(whole) {
        return Ok(());
    }
    for row in data.rows()? {
        if let Some(pair) = row?.pairs.iter().find(|pair| !whole(&found(pair))) {
            return Err(broken(pair));
        }
    }
    Ok(())
}

fn observation(row: &Row) -> &str {
    match &row.sight {
        Sight::Written(text) => text,
        Sight::File(_) | Sight::Base64(_) => "",
    }
}

/// 64 bits of SHA-256: two of a million names meet with a chance of 3 in 100 million.
pub(crate) fn hash(name: &str) -> u64 {
    Digest::of(name.as_bytes()).seed()
}

/// A benchmark run: its data, its selection and its folder.
#[derive(Debug)]
pub struct Bench<'a> {
    data: &'a DataSet,
    selection: Selection,
    checked: &'a Checked,
    out: &'a Path,
}

impl<'a> Bench<'a> {
    /// A run over checked data into a folder.
    #[must_use]
    pub const fn new(data: &'a DataSet, selection: Selection, checked: &'a Checked, out: &'a Path) -> Self {
        Self { data, selection, checked, out }
    }

    /// What identifies the data.
    #[must_use]
    pub fn data_identity(&self) -> DataIdentity {
        let name = self.data.name().to_owned();
        DataIdentity { name, digest: self.checked.digest, part: self.selection.part }
    }

    /// Judges every selected row that an earlier run of the same has not judged, in the data's order.
    ///
    /// # Errors
    /// When the folder holds another run, a file cannot be written, or the data has changed underneath.
    pub fn run(
        &self,
        run: &Run,
        judge: &mut dyn Judge,
        clock: &dyn Clock,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Took, BenchError> {
        let done = self.resume(run)?;
        let path = self.out.join(PREDICTIONS);
        let failed = |source| BenchError::Output { path: path.clone(), source };
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        let mut out = BufWriter::new(file);
        let (start, engine_before) = (clock.now(), judge.engine_time());
        let mut synced = start;
        let mut now = Progress { done: 0, of: self.checked.selected };
        let mut took = Took::default();
        for (row, at) in self.data.rows()?.zip(0..) {
            let row = row?;
            if !self.checked.selects(&row, self.selection) {
                continue;
            }
            now.done += 1;
            if done.holds(at) {
                continue;
            }
            let image = row.image().map_err(|fault| DataError::Row { row: row.uid.clone(), fault })?;
            let judgement = judge.judge(&row, image);
            let prediction = Prediction::of(row, judgement);
            serde_json::to_writer(&mut out, &prediction).map_err(|error| failed(error.into()))?;
            out.write_all(b"\n").map_err(failed)?;
            out.flush().map_err(failed)?;
            took.rows += 1;
            if took.rows.is_multiple_of(SYNC_ROWS) || clock.now().saturating_sub(synced) >= SYNC_WITHIN {
                out.get_ref().sync_data().map_err(failed)?;
                synced = clock.now();
            }
            progress(now);
        }
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
        took.wall = clock.now().saturating_sub(start);
        took.engine = judge.engine_time().zip(engine_before).map(|(after, before)| after.saturating_sub(before));
        Ok(took)
    }

    /// Holds an earlier run in the folder to this one, drops its torn last line, and gives the rows it has done.
    fn resume(&self, run: &Run) -> Result<Done, BenchError> {
        continue_run(&self.out.join(RUN), run)?;
        let path = self.out.join(PREDICTIONS);
        let failed = |source| BenchError::Output { path: path.clone(), source };
        drop_torn_line(&path).map_err(failed)?;
        let mut judged = Sorter::default();
        for prediction in predictions(&path)? {
            judged.push([hash(&prediction?.uid), 0]).map_err(failed)?;
        }
        let mut done = Done::default();
        if judged.len() == 0 {
            return Ok(done);
        }
        let mut rows = Sorter::default();
        for (row, at) in self.data.rows()?.zip(0..) {
            rows.push([hash(&row?.uid), at]).map_err(failed)?;
        }
        // Both by uid, so that one walk along the two finds every row that was judged.
        let mut judged = judged.sorted().map_err(failed)?;
        let mut next = judged.next().transpose().map_err(failed)?;
        for row in rows.sorted().map_err(failed)? {
            let [uid, at] = row.map_err(failed)?;
            while next.is_some_and(|[judged, _]| judged < uid) {
                next = judged.next().transpose().map_err(failed)?;
            }
            if next.is_some_and(|[judged, _]| judged == uid) {
                done.add(at);
            }
        }
        Ok(done)
    }
}

/// Rows that were judged before, a bit each.
#[derive(Debug, Default)]
struct Done {
    bits: Vec<u64>,
}

impl Done {
    fn add(&mut self, row: u64) {
        let word = usize::try_from(row / 64).unwrap_or(usize::MAX);
        if word >= self.bits.len() {
            self.bits.resize(word.saturating_add(1), 0);
        }
        if let Some(bits) = self.bits.get_mut(word) {
            *bits |= 1 << (row % 64);
        }
    }

    fn holds(&self, row: u64) -> bool {
        let word = usize::try_from(row / 64).ok().and_then(|word| self.bits.get(word));
        word.is_some_and(|bits| bits >> (row % 64) & 1 == 1)
    }
}

impl Prediction {
    fn of(row: Row, judgement: Judgement) -> Self {
        let told = matches!(row.sight, Sight::Written(_));
        let Row { uid, source, scene, pairs, label, category, severity, likelihood, .. } = row;
        Self { uid, source, scene, pairs, label, category, severity, likelihood, told, judgement }
    }
}

/// Reads a run's description.
///
/// # Errors
/// When there is none, or it is of another format.
pub fn read_run(folder: &Path) -> Result<Run, BenchError> {
    let path = folder.join(RUN);
    let failed = |source| BenchError::Output { path: path.clone(), source };
    let text = std::fs::read(&path).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| failed(error.into()))
}

/// The predictions of a file, one at a time; none where there is no file.
///
/// # Errors
/// When the file cannot be opened; a line that is no prediction is an error in its place.
pub fn predictions(path: &Path) -> Result<impl Iterator<Item = Result<Prediction, BenchError>> + use<>, BenchError> {
    let reader = match File::open(path) {
        Ok(file) => Some(BufReader::new(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => return Err(BenchError::Output { path: path.to_owned(), source }),
    };
    let path = path.to_owned();
    Ok(reader.into_iter().flat_map(BufReader::lines).zip(1..).map(move |(line, number)| {
        let line = line.map_err(|source| BenchError::Output { path: path.clone(), source })?;
        serde_json::from_str(&line).map_err(|error| BenchError::Damaged {
            path: path.clone(),
            line: number,
            message: error.to_string(),
        })
    }))
}

/// Writes a run's description where there is none, and holds one that is there to this run.
///
/// # Errors
/// When the folder holds another run, or cannot be written.
pub(super) fn continue_run(path: &Path, run: &impl Serialize) -> Result<(), BenchError> {
    let failed = |source| BenchError::Output { path: path.to_owned(), source };
    match std::fs::read(path) {
        Ok(text) => same_run(path, &text, run),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = serde_json::to_vec_pretty(run).map_err(|error| failed(error.into()))?;
            // Another process may start on the same folder at the same moment.
            super::write_whole(path, &text).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Whether the run described in the folder is this one; if not, the first field that differs.
fn same_run(path: &Path, text: &[u8], run: &impl Serialize) -> Result<(), BenchError> {
    let failed = |error: serde_json::Error| BenchError::Output { path: path.to_owned(), source: error.into() };
    let was: Value = serde_json::from_slice(text).map_err(failed)?;
    let now = serde_json::to_value(run).map_err(failed)?;
    match difference("", &was, &now) {
        None => Ok(()),
        Some((field, was, now)) => Err(BenchError::AnotherRun { path: path.to_owned(), field, was, now }),
    }
}

fn difference(at: &str, was: &Value, now: &Value) -> Option<(String, String, String)> {
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    match (was, now) {
        (Value::Object(was), Value::Object(now)) => {
            let names: std::collections::BTreeSet<&String> = was.keys().chain(now.keys()).collect();
            let null = Value::Null;
            names.into_iter().find_map(|name| {
                difference(&below(name), was.get(name).unwrap_or(&null), now.get(name).unwrap_or(&null))
            })
        }
        _ if was == now => None,
        _ => Some((at.to_owned(), was.to_string(), now.to_string())),
    }
}

/// Cuts a file behind its last whole line: what a kill in the middle of a write leaves is judged again.
fn drop_torn_line(path: &Path) -> std::io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut last = [0];
    while end > 0 {
        file.seek(SeekFrom::Start(end - 1))?;
        file.read_exact(&mut last)?;
        if last == *b"\n" {
            break;
        }
        end -= 1;
    }
    file.set_len(end)?;
    file.sync_all()
}
