//! GuardianBench's Parquet: uid, pair_key, label, instruction and images as base64; two rows a pair, the same images.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::file::reader::SerializedFileReader;
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row as Record};

use super::{DataError, Row, RowFault, Sight, label, one_step};

/// Records held at once. Their images come with them, so few.
const BATCH_RECORDS: usize = 8;

/// The Parquet files of a folder, by name.
pub(super) fn files_in(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |source| DataError::File { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() { Err(DataError::UnknownFormat(folder.to_owned())) } else { Ok(files) }
}

/// The rows of these files, one after the other.
pub(super) fn rows<'a>(files: &'a [PathBuf], source: &'a str) -> impl Iterator<Item = Result<Row, DataError>> + 'a {
    files.iter().flat_map(move |path| match records(path) {
        Ok(records) => {
            let rows = records.enumerate().map(move |(at, record)| {
                let record = record.map_err(|message| DataError::Format { path: path.clone(), message })?;
                row(&record, source).map_err(|(uid, fault)| {
                    let place = || format!("{} record {}", path.display(), at + 1);
                    DataError::Row { row: uid.unwrap_or_else(place), fault }
                })
            });
            Box::new(rows) as Box<dyn Iterator<Item = _>>
        }
        Err(error) => Box::new(std::iter::once(Err(error))),
    })
}

fn records(path: &Path) -> Result<impl Iterator<Item = Result<Record, String>> + use<>, DataError> {
    let file = File::open(path).map_err(|source| DataError::File { path: path.to_owned(), source })?;
    let reader = SerializedFileReader::new(file)
        .map_err(|error| DataError::Format { path: path.to_owned(), message: error.to_string() })?;
    let records = RowIter::from_file_into(Box::new(reader)).with_batch_size(BATCH_RECORDS);
    Ok(records.map(|record| record.map_err(|error| error.to_string())))
}

/// A record's row; a fault comes with the uid where there is one.
fn row(record: &Record, source: &str) -> Result<Row, (Option<String>, RowFault)> {
    let field = |name: &str| record.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field);
    let text = |name: &'static str| field(name).and_then(plain).ok_or(RowFault::Missing(name));
    let uid = text("uid").map_err(|fault| (None, fault))?;
    let read = || {
        let pair = text("pair_key")?;
        let instruction = text("instruction")?;
        let grade = |name: &'static str| match field(name).and_then(plain) {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(grade @ 1..=5) => Ok(Some(grade)),
                Ok(_) | Err(_) => Err(RowFault::Grade { field: name, value }),
            },
        };
        Ok(Row {
            uid: uid.clone(),
            source: source.to_owned(),
            scene: pair.clone(),
            pairs: vec![pair],
            label: label(&text("label")?)?,
            plan: one_step(&instruction),
            instruction,
            sight: Sight::Base64(field("images").and_then(first_image).ok_or(RowFault::Missing("images"))?),
            category: field("category").and_then(plain),
            severity: grade("severity")?,
            likelihood: grade("likelihood")?,
        })
    };
    read().map_err(|fault| (Some(uid.clone()), fault))
}

fn plain(field: &Field) -> Option<String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other type is no plain text")]
    match field {
        Field::Str(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Field::Byte(_) | Field::Short(_) | Field::Int(_) | Field::Long(_) | Field::UInt(_) | Field::ULong(_) => {
            Some(field.to_string())
        }
        _ => None,
    }
}

/// The first image: the benchmark's rows may hold several views, and the robot judges one.
fn first_image(field: &Field) -> Option<String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other type is no image")]
    match field {
        Field::ListInternal(list) => list.elements().first().and_then(first_image),
        other => plain(other),
    }
}
