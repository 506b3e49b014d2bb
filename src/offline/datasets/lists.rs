//! Task lists in CSV or JSONL: one row a task, its fields named as the public lists name them.

use std::path::Path;

use serde_json::{Map, Value};

use super::{DataError, Row, RowFault, Rows, Sight, json_lines, label, one_step};
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
const RULE: &[&str] = &["rule", "rules", "rule_number"];
const PLACE: &[&str] = &["environment_label", "room", "place"];
const LICENCE: &[&str] = &["licence", "license", "image_licence", "image_license"];

/// Places of a list, one at a time.
pub(super) type Entries = Box<dyn Iterator<Item = Result<Entry, DataError>>>;

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
pub(super) struct Fields(Map<String, Value>);

/// What stands in one place of a list.
pub(super) struct Entry {
    /// The line it begins on, from 1.
    pub(super) line: u64,
    /// Its fields, or why it has none.
    pub(super) fields: Result<Fields, RowFault>,
}

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

    pub(super) fn uid(&self) -> Option<String> {
        self.text(UID)
    }

    /// The rules that the row says are broken, as written.
    pub(super) fn rules(&self) -> Vec<String> {
        let listed = RULE.iter().find_map(|name| self.0.get(*name)?.as_array());
        let written = match listed {
            Some(rules) => {
                rules.iter().map(|rule| rule.as_str().map_or_else(|| rule.to_string(), str::to_owned)).collect()
            }
            None => self.text(RULE).into_iter().collect::<Vec<_>>(),
        };
        let single = written.iter().flat_map(|text| text.split([',', ';', ' ']));
        single.filter(|rule| !rule.is_empty()).map(str::to_owned).collect()
    }

    /// What kind of place the scene is. `environment` names it only where something else shows or tells the scene.
    pub(super) fn place(&self) -> Option<String> {
        let (observation, environment) = OBSERVATION.split_at(OBSERVATION.len() - 1);
        let told = self.text(IMAGE).or_else(|| self.text(observation)).is_some();
        self.text(PLACE).or_else(|| self.text(environment).filter(|_| told))
    }

    /// Under which terms its picture may be used.
    pub(super) fn licence(&self) -> Option<String> {
        self.text(LICENCE)
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
    fn row(self, entry: Entry, path: &Path) -> Result<Row, DataError> {
        let place = format!("{}:{}", path.display(), entry.line);
        let fields = entry.fields.map_err(|fault| DataError::Row { row: place.clone(), fault })?;
        let row = fields.uid().unwrap_or(place);
        self.read(&fields).map_err(|fault| DataError::Row { row, fault })
    }

    /// The row that these fields say.
    pub(super) fn read(self, fields: &Fields) -> Result<Row, RowFault> {
        let uid = fields.uid().ok_or(RowFault::Missing("uid"))?;
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

/// The rows of a list.
pub(super) fn rows<'a>(path: &'a Path, list: List<'a>) -> Result<Rows<'a>, DataError> {
    Ok(Box::new(entries(path)?.map(move |entry| entry.and_then(|entry| list.row(entry, path)))))
}

/// What stands in a list, place by place: a CSV file with a header, or JSON lines.
pub(super) fn entries(path: &Path) -> Result<Entries, DataError> {
    if path.extension().is_none_or(|extension| extension != "csv") {
        return Ok(Box::new(json_lines(path)?.map(|line| -> Result<Entry, DataError> {
            let line = line?;
            let fields = serde_json::from_str(&line.text).map(Fields::new);
            Ok(Entry { line: line.number, fields: fields.map_err(|error| RowFault::Malformed(error.to_string())) })
        })));
    }
    let mut reader = csv::Reader::from_reader(super::open(path)?);
    let broken = |error: csv::Error| DataError::Format { path: path.to_owned(), message: error.to_string() };
    let names = reader.headers().map_err(broken)?.clone();
    let path = path.to_owned();
    Ok(Box::new(reader.into_records().map(move |record| {
        let record = match record {
            Ok(record) => record,
            // A record of the wrong length is that record's fault; what cannot be read at all is the file's.
            Err(error) => match error.position() {
                Some(position) => {
                    let (line, fault) = (position.line(), RowFault::Malformed(error.to_string()));
                    return Ok(Entry { line, fields: Err(fault) });
                }
                None => return Err(DataError::Format { path: path.clone(), message: error.to_string() }),
            },
        };
        let line = record.position().map(csv::Position::line).unwrap_or_default();
        let named = names.iter().zip(&record).map(|(name, value)| (name.to_owned(), Value::from(value)));
        Ok(Entry { line, fields: Ok(Fields::new(named.collect())) })
    })))
}
