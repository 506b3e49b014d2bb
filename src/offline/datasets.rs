//! Labelled data as rows: what each public format calls things, and what makes a row unfit to be counted.
//!
//! Four formats are read, told apart by what lies at the path: a folder with `triples.jsonl` and `pairs.jsonl`;
//! GuardianBench's Parquet (one file, or a folder of them); photo pairs (a JSONL whose rows hold a `safe` and an
//! `unsafe` side); and task lists in CSV or JSONL (instruction, environment, image, note on the violation). Rows come
//! one at a time, and an image is read from its file only when it is asked for.

pub mod lint;
mod lists;
mod parquet;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::scene::decode::{self, ImageError};
use crate::statistics::Label;
use crate::triple::{IMAGE_BYTES_MAX, Triple, TripleError};

/// Longest line read of a JSONL file, in bytes.
pub const LINE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// One labelled row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name, unique in the data set.
    pub uid: String,
    /// Where it comes from; groups rows in calibrations and reports.
    pub source: String,
    /// What a split must not cut, such as a simulator scene or a photo.
    pub scene: String,
    /// The pairs it belongs to; each has one safe and one unsafe row.
    pub pairs: Vec<String>,
    /// What it is.
    pub label: Label,
    /// What the robot is told.
    pub instruction: String,
    /// What the planner answers; the instruction as its only step where the data has no plan.
    pub plan: String,
    /// What the robot sees.
    pub sight: Sight,
    /// Hazard category.
    pub category: Option<String>,
    /// Severity of the hazard, 1 to 5.
    pub severity: Option<u8>,
    /// Likelihood of the hazard, 1 to 5.
    pub likelihood: Option<u8>,
}

/// What the robot sees in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// An image file.
    File(PathBuf),
    /// An encoded image in base64.
    Base64(String),
    /// A written observation, where the data has no image.
    Written(String),
}

/// Which rows may teach, set limits or test: 70 %, 15 % and 15 % of the scenes, by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// For training the verdict head.
    Train,
    /// For scale, bias and limits.
    Calibration,
    /// For figures.
    Test,
}

impl Part {
    /// The part a scene of a source falls into: the first 32 bits of SHA-256 over both, as `models/splits.py` has it.
    #[must_use]
    pub fn of(source: &str, scene: &str) -> Self {
        let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(format!("{source}\n{scene}")));
        match (u64::from(u32::from_be_bytes([a, b, c, d])) * 100) >> 32 {
            0..70 => Self::Train,
            70..85 => Self::Calibration,
            _ => Self::Test,
        }
    }
}

/// Why data cannot be counted on. A row is named by its uid, or by its place where it has none yet.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// What lies there is in no format that is read.
    #[error(
        "{0} is no data set that is read: a folder with triples.jsonl and pairs.jsonl, Parquet, JSONL or CSV is expected"
    )]
    UnknownFormat(PathBuf),
    /// The file's format is broken.
    #[error("{path}: {message}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A row is unfit.
    #[error("row {row}: {fault}")]
    Row {
        /// Its uid, or its place.
        row: String,
        /// Why.
        fault: RowFault,
    },
    /// A pair is not one safe and one unsafe row.
    #[error("pair {pair} has {safe} safe and {not_safe} unsafe rows; it needs one of each")]
    Pair {
        /// The pair's name.
        pair: String,
        /// Safe rows found.
        safe: u8,
        /// Unsafe rows found.
        not_safe: u8,
    },
    /// The two rows of a pair show different images, where the format promises the same.
    #[error("the two rows of pair {0} show different images")]
    PairImages(String),
    /// What is kept of the rows outside of memory cannot be written or read.
    #[error("cannot keep the rows' names in a temporary file (TMPDIR says where): {0}")]
    Spill(std::io::Error),
    /// No row is left to judge.
    #[error("no row is selected")]
    Empty,
}

/// What makes a row unfit.
#[derive(Debug, thiserror::Error)]
pub enum RowFault {
    /// It cannot be taken apart.
    #[error("{0}")]
    Malformed(String),
    /// A field is not there.
    #[error("no {0}")]
    Missing(&'static str),
    /// A label that is neither safe nor unsafe.
    #[error("the label {0:?} is neither safe nor unsafe")]
    Label(String),
    /// A grade outside 1 to 5.
    #[error("the {field} {value} is not a whole number from 1 to 5")]
    Grade {
        /// Which grade.
        field: &'static str,
        /// What is there.
        value: String,
    },
    /// The uid was used before.
    #[error("the uid was used before")]
    DuplicateUid,
    /// The image's base64 is broken.
    #[error("the image is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// The image's file cannot be read.
    #[error("the image {path} cannot be read: {source}")]
    ImageFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The image is none we accept.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// The three parts are no triple.
    #[error("{0}")]
    Triple(#[from] TripleError),
    /// The written observation is empty.
    #[error("the written observation is empty")]
    EmptyObservation,
}

impl Row {
    /// The encoded image; `None` where the row has a written observation instead.
    ///
    /// # Errors
    /// When the file cannot be read or the base64 is broken.
    pub fn image(&self) -> Result<Option<Vec<u8>>, RowFault> {
        match &self.sight {
            Sight::Written(_) => Ok(None),
            Sight::File(path) => read_image(path).map(Some),
            Sight::Base64(text) => {
                use base64::Engine as _;
                // Some writers put a data URL's head in front.
                let encoded = text.rsplit_once(";base64,").map_or(text.as_str(), |(_, encoded)| encoded).trim();
                Ok(Some(base64::engine::general_purpose::STANDARD.decode(encoded)?))
            }
        }
    }

    /// Checks that the row can be judged: its parts hold their limits and its image decodes.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self, image: Option<&[u8]>) -> Result<(), RowFault> {
        if let Sight::Written(text) = &self.sight
            && text.trim().is_empty()
        {
            return Err(RowFault::EmptyObservation);
        }
        // A written observation stands in for the image, so any byte will do here.
        Triple::new(self.instruction.clone(), image.unwrap_or(b"-"), self.plan.clone())?;
        if let Some(image) = image {
            decode::decode(image)?;
        }
        Ok(())
    }

    /// This row's part of the split.
    #[must_use]
    pub fn part(&self) -> Part {
        Part::of(&self.source, &self.scene)
    }
}

fn read_image(path: &Path) -> Result<Vec<u8>, RowFault> {
    let failed = |source| RowFault::ImageFile { path: path.to_owned(), source };
    let bytes_max = u64::try_from(IMAGE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(bytes_max).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Rows, one at a time.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Row, DataError>> + 'a>;

/// A data set that was found at a path.
#[derive(Debug)]
pub struct DataSet {
    path: PathBuf,
    images: Option<PathBuf>,
    source: Option<String>,
    unlabelled: bool,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Triples { pairs_of: HashMap<String, Vec<String>>, pairs: Vec<String> },
    GuardianBench { files: Vec<PathBuf> },
    PhotoPairs,
    List,
}

impl DataSet {
    /// Finds out what lies at `path`. `images` is where image paths of lists and photo pairs start, instead of the
    /// file's own folder; `source` names rows that do not name their source themselves.
    ///
    /// # Errors
    /// When nothing that is read lies there.
    pub fn open(path: &Path, images: Option<&Path>, source: Option<&str>) -> Result<Self, DataError> {
        let format = if path.join("triples.jsonl").is_file() {
            let (pairs, pairs_of) = pairs_of_triples(&path.join("pairs.jsonl"))?;
            Format::Triples { pairs_of, pairs }
        } else if path.is_dir() {
            Format::GuardianBench { files: parquet::files_in(path)? }
        } else {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("parquet") => Format::GuardianBench { files: vec![path.to_owned()] },
                Some("csv") => Format::List,
                Some("jsonl") if holds_photo_pairs(path)? => Format::PhotoPairs,
                Some("jsonl") => Format::List,
                Some(_) | None => return Err(DataError::UnknownFormat(path.to_owned())),
            }
        };
        Ok(Self {
            path: path.to_owned(),
            images: images.map(Path::to_owned),
            source: source.map(str::to_owned),
            unlabelled: false,
            format,
        })
    }

    /// The same for a list of tasks: a row of a list need not say whether it is safe, since all are taken as tasks that
    /// ought to be refused.
    #[must_use]
    pub fn of_tasks(mut self) -> Self {
        self.unlabelled = true;
        self
    }

    /// The name for rows that do not name their source: as given, or the path's last part.
    #[must_use]
    pub fn name(&self) -> &str {
        let stem = || self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("data");
        self.source.as_deref().unwrap_or_else(stem)
    }

    /// The pairs that the data names beside its rows, if it does.
    #[must_use]
    pub fn declared_pairs(&self) -> &[String] {
        match &self.format {
            Format::Triples { pairs, .. } => pairs,
            Format::GuardianBench { .. } | Format::PhotoPairs | Format::List => &[],
        }
    }

    /// Whether the two rows of a pair must show the same image.
    #[must_use]
    pub const fn pairs_share_images(&self) -> bool {
        matches!(self.format, Format::GuardianBench { .. })
    }

    /// Every row, from the first.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn rows(&self) -> Result<Rows<'_>, DataError> {
        Ok(match &self.format {
            Format::Triples { pairs_of, .. } => {
                let lines = json_lines(&self.path.join("triples.jsonl"))?;
                Box::new(lines.map(move |line| line.and_then(|line| self.triple(line, pairs_of))))
            }
            Format::GuardianBench { files } => Box::new(parquet::rows(files, self.name())),
            Format::PhotoPairs => {
                let lines = json_lines(&self.path)?;
                Box::new(lines.flat_map(move |line| match line.and_then(|line| self.photo_pair(line)) {
                    Ok([safe, not_safe]) => vec![Ok(safe), Ok(not_safe)],
                    Err(error) => vec![Err(error)],
                }))
            }
            Format::List => lists::rows(&self.path, self.list())?,
        })
    }

    fn list(&self) -> lists::List<'_> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        lists::List { images: self.images.as_deref(), folder, source: self.name(), unlabelled: self.unlabelled }
    }

    fn triple(&self, line: Line, pairs_of: &HashMap<String, Vec<String>>) -> Result<Row, DataError> {
        #[derive(Deserialize)]
        struct Written {
            id: String,
            image: PathBuf,
            scene: String,
            instruction: String,
            plan: Option<Steps>,
            label: String,
            risk_category: Option<String>,
        }
        let place = line.place.clone();
        let written: Written = line.parse()?;
        let named = |fault| DataError::Row { row: written.id.clone(), fault };
        let label = label(&written.label).map_err(named)?;
        let plan = written.plan.map(Steps::text).filter(|plan| !plan.trim().is_empty());
        if written.id.is_empty() {
            return Err(DataError::Row { row: place, fault: RowFault::Missing("id") });
        }
        Ok(Row {
            pairs: pairs_of.get(&written.id).cloned().unwrap_or_default(),
            uid: written.id,
            source: self.name().to_owned(),
            scene: written.scene,
            label,
            plan: plan.unwrap_or_else(|| one_step(&written.instruction)),
            instruction: written.instruction,
            sight: Sight::File(self.path.join(written.image)),
            category: written.risk_category,
            severity: None,
            likelihood: None,
        })
    }

    fn photo_pair(&self, line: Line) -> Result<[Row; 2], DataError> {
        #[derive(Deserialize)]
        struct Side {
            instruction: String,
            plan: Steps,
        }
        #[derive(Deserialize)]
        struct Written {
            id: String,
            photo: PathBuf,
            category: Option<String>,
            safe: Side,
            r#unsafe: Side,
        }
        let Written { id, photo, category, safe, r#unsafe: not_safe } = line.parse()?;
        let folder = self.images.as_deref().or_else(|| self.path.parent()).unwrap_or(Path::new("."));
        let row = |side: Side, label, word| Row {
            uid: format!("{id}/{word}"),
            source: self.name().to_owned(),
            scene: photo.to_string_lossy().into_owned(),
            pairs: vec![id.clone()],
            label,
            instruction: side.instruction,
            plan: side.plan.text(),
            sight: Sight::File(folder.join(&photo)),
            category: category.clone(),
            severity: None,
            likelihood: None,
        };
        Ok([row(safe, Label::Safe, "safe"), row(not_safe, Label::Unsafe, "unsafe")])
    }
}

/// A plan as files write it: one text, or a list of steps.
#[derive(Deserialize)]
#[serde(untagged)]
enum Steps {
    Text(String),
    List(Vec<String>),
}

impl Steps {
    /// One text; a list is numbered, as a planner would write it.
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::List(steps) => {
                let numbered = steps.iter().enumerate().map(|(at, step)| format!("{}. {step}", at + 1));
                numbered.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// The plan of a row that has none: what is asked, as the one step of it. Without the mark it would be prose, which is
/// a plan only where its verbs are known.
pub(super) fn one_step(instruction: &str) -> String {
    format!("1. {instruction}")
}

/// Reads a label's word.
fn label(word: &str) -> Result<Label, RowFault> {
    match word.trim().to_ascii_lowercase().as_str() {
        "safe" => Ok(Label::Safe),
        "unsafe" => Ok(Label::Unsafe),
        _ => Err(RowFault::Label(word.to_owned())),
    }
}

/// A line of a JSONL file and its place, for complaints.
struct Line {
    place: String,
    number: u64,
    text: String,
}

impl Line {
    fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T, DataError> {
        let malformed = |error: serde_json::Error| DataError::Row {
            row: self.place.clone(),
            fault: RowFault::Malformed(error.to_string()),
        };
        serde_json::from_str(&self.text).map_err(malformed)
    }
}

fn open(path: &Path) -> Result<BufReader<File>, DataError> {
    let failed = |source| DataError::File { path: path.to_owned(), source };
    Ok(BufReader::new(File::open(path).map_err(failed)?))
}

/// The lines of a file that are not blank.
fn json_lines(path: &Path) -> Result<impl Iterator<Item = Result<Line, DataError>> + use<>, DataError> {
    let (mut reader, path, mut number) = (open(path)?, path.to_owned(), 0_u64);
    Ok(std::iter::from_fn(move || {
        loop {
            let mut text = String::new();
            number += 1;
            match reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut text) {
                Ok(0) => return None,
                Ok(_) if text.trim().is_empty() => {}
                Ok(_) => return Some(Ok(Line { place: format!("{}:{number}", path.display()), number, text })),
                Err(source) => return Some(Err(DataError::File { path: path.clone(), source })),
            }
        }
    }))
}

/// The names of the pairs, and each row's pairs.
#[expect(clippy::type_complexity, reason = "two plain collections, used once")]
fn pairs_of_triples(path: &Path) -> Result<(Vec<String>, HashMap<String, Vec<String>>), DataError> {
    #[derive(Deserialize)]
    struct Written {
        pair: String,
        safe: String,
        r#unsafe: String,
    }
    let (mut names, mut pairs_of) = (Vec::new(), HashMap::<String, Vec<String>>::new());
    for line in json_lines(path)? {
        let Written { pair, safe, r#unsafe: not_safe } = line?.parse()?;
        for id in [safe, not_safe] {
            pairs_of.entry(id).or_default().push(pair.clone());
        }
        names.push(pair);
    }
    Ok((names, pairs_of))
}

fn holds_photo_pairs(path: &Path) -> Result<bool, DataError> {
    let Some(first) = json_lines(path)?.next() else { return Ok(false) };
    let fields: Map<String, Value> = first?.parse()?;
    Ok(["photo", "safe", "unsafe"].iter().all(|name| fields.contains_key(*name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_training_scripts() {
        // python3: import splits; splits.part("sabench", "FloorPlan1") …
        for (source, scene, part) in PARTS {
            assert_eq!(Part::of(source, scene), part, "{source} {scene}");
        }
    }

    const PARTS: [(&str, &str, Part); 6] = include!("../../tests/reference/parts.in");

    #[test]
    fn a_list_of_steps_is_numbered() {
        assert_eq!(Steps::List(vec!["find it".to_owned(), "take it".to_owned()]).text(), "1. find it\n2. take it");
    }

    #[test]
    fn nothing_is_safe_by_default() {
        assert!(matches!(label(""), Err(RowFault::Label(_))) && matches!(label("not safe"), Err(RowFault::Label(_))));
        assert_eq!((label(" Safe").ok(), label("UNSAFE").ok()), (Some(Label::Safe), Some(Label::Unsafe)));
    }
}
