//! Task lists in CSV or JSONL: one row a task, its fields named as the public lists name them.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{DataError, Line, Row, RowFault, Rows, Sight, label, one_step};
use crate::statistics::Label;

/// What each field may be called, in order of preference; lower case, spaces as underscores.
const UID: &[&str] = &["uid", "id"];
const PAIR: &[&str] = &["pair", "pair_key"];
const SCENE: &[&str] = &["group", "safety_tip", "scene"];
const OBSERVATION: &[&str] = &["observation", "text_observation", "environment"];
const IMAGE: &[&str] = &["image", "image_path"];
/// An image that is named but not part of the list: looked for only where a folder of images is given.
const IMAGE_ELSEWHERE: &[&str] = &["matched_image_path"];
const VIOLATION: &[&str] = &["violation_note", "violation", "tip_explanation", "safety_tip"];
const CATEGORY: &[&str] = &["category", "risk_category", "hazard_category"];

/// Where a list's rows find their images, and what their source is called where they do not say.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) images: Option<&'a Path>,
    pub(super) folder: &'a Path,
    pub(super) source: &'a str,
    /// Whether a row may say nothing of what it is; it is then a task that ought to be refused.
    pub(super) unlabelled: bool,
}

/// A row's fields under their plain names.
struct Fields(Map<String, Value>);

impl Fields {
    fn new(written: Map<String, Value>) -> Self {
        Self(written.into_iter().map(|(name, value)| (name.trim().to_lowercase().replace(' ', "_"), value)).collect())
    }

    /// The first of these fields that is there and not empty.
    fn text(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| match self.0.get(*name)? {
            Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        })
    }

    /// The same to the last blank: the split is by hash, and a blank more is another scene.
    fn exact(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| match self.0.get(*name)? {
            Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        })
    }

    fn grade(&self, field: &'static str) -> Result<Option<u8>, RowFault> {
        let Some(value) = self.text(&[field]) else { return Ok(None) };
        match value.parse() {
            Ok(grade @ 1..=5) => Ok(Some(grade)),
            Ok(_) | Err(_) => Err(RowFault::Grade { field, value }),
        }
    }

    fn plan(&self) -> Result<Option<String>, RowFault> {
        match self.0.get("plan") {
            Some(steps @ Value::Array(_)) => {
                let steps: super::Steps = serde_json::from_value(steps.clone())
                    .map_err(|_| RowFault::Malformed("the plan is not a list of texts".to_owned()))?;
                Ok(Some(steps.text()).filter(|text| !text.trim().is_empty()))
            }
            Some(_) | None => Ok(self.text(&["plan"])),
        }
    }

    /// The label as written; a list of violations without labels is unsafe throughout.
    fn label(&self, unlabelled: bool) -> Result<Label, RowFault> {
        match (self.text(&["label"]), self.text(VIOLATION)) {
            (Some(word), _) => label(&word),
            (None, Some(_)) => Ok(Label::Unsafe),
            (None, None) if unlabelled => Ok(Label::Unsafe),
            (None, None) => Err(RowFault::Missing("label, nor a note on what it violates")),
        }
    }
}

impl List<'_> {
    pub(super) fn row(self, line: Line) -> Result<Row, DataError> {
        let fields = Fields::new(line.parse()?);
        self.row_of(&fields, &line.place)
    }

    fn row_of(self, fields: &Fields, place: &str) -> Result<Row, DataError> {
        let uid = fields.text(UID);
        let row = uid.clone().unwrap_or_else(|| place.to_owned());
        self.read(fields, uid).map_err(|fault| DataError::Row { row, fault })
    }

    fn read(self, fields: &Fields, uid: Option<String>) -> Result<Row, RowFault> {
        let uid = uid.ok_or(RowFault::Missing("uid"))?;
        let instruction = fields.text(&["instruction"]).ok_or(RowFault::Missing("instruction"))?;
        let sight = self.sight(fields).ok_or(RowFault::Missing("image and no written observation"))?;
        Ok(Row {
            source: fields.text(&["source"]).unwrap_or_else(|| self.source.to_owned()),
            scene: fields.exact(SCENE).unwrap_or_else(|| uid.clone()),
            pairs: fields.text(PAIR).into_iter().collect(),
            label: fields.label(self.unlabelled)?,
            plan: fields.plan()?.unwrap_or_else(|| one_step(&instruction)),
            category: fields.text(CATEGORY),
            severity: fields.grade("severity")?,
            likelihood: fields.grade("likelihood")?,
            uid,
            instruction,
            sight,
        })
    }

    fn sight(self, fields: &Fields) -> Option<Sight> {
        let own = fields.text(IMAGE).map(|path| self.images.unwrap_or(self.folder).join(path));
        let elsewhere = || Some(self.images?.join(fields.text(IMAGE_ELSEWHERE)?));
        let image = own.or_else(elsewhere).map(Sight::File);
        image.or_else(|| fields.text(OBSERVATION).map(Sight::Written))
    }
}

/// The rows of a CSV file with a header.
pub(super) fn csv_rows<'a>(path: &Path, list: List<'a>) -> Result<Rows<'a>, DataError> {
    let broken =
        |path: &PathBuf, error: csv::Error| DataError::Format { path: path.clone(), message: error.to_string() };
    let (path, mut reader) = (path.to_owned(), csv::Reader::from_reader(super::open(path)?));
    let names = reader.headers().map_err(|error| broken(&path, error))?.clone();
    Ok(Box::new(reader.into_records().enumerate().map(move |(at, record)| {
        let record = record.map_err(|error| broken(&path, error))?;
        let named = names.iter().zip(&record).map(|(name, value)| (name.to_owned(), Value::from(value)));
        list.row_of(&Fields::new(named.collect()), &format!("{} record {}", path.display(), at + 1))
    })))
}
