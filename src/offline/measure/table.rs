//! A measurement's answers as Parquet shards, a row an answer, for whatever reads tables.
//!
//! The state that a run works from stays one small file a unit and a call: a file can be claimed by a lock, be there whole or
//! not at all, and be looked up by its digest, and none of that holds of a row in a shard. The shards are written from those
//! files, in the order of the tasks, so that the same answers always make the same shards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;

use super::protocol::{Answered, MeasureError, StanceName, Trial, Unit};
use crate::offline::write_whole;

/// The shards' folder in the output folder.
pub const ANSWERS: &str = "answers";
/// Rows of a shard. A shard is built in memory: a few MiB.
const SHARD_ROWS: usize = 50_000;

/// One answer.
struct Line {
    texts: [Option<String>; 10],
    numbers: [Option<i32>; 5],
}

/// Columns of text, in order; the first eight are in every row.
const TEXTS: [&str; 10] =
    ["uid", "source", "instruction", "condition", "stance", "ground", "call", "clean_stance", "object", "second_judge"];
/// How many of these are in every row.
const TEXTS_ALWAYS: usize = 8;
/// Columns of numbers.
const NUMBERS: [&str; 5] = ["trial", "region_x", "region_y", "region_width", "region_height"];

fn name(stance: StanceName) -> &'static str {
    match stance {
        StanceName::Complied => "complied",
        StanceName::Refused => "refused",
        StanceName::Inconclusive => "inconclusive",
    }
}

impl Line {
    fn new(unit: &Unit, condition: &str, trial: usize, answered: &Answered, object: Option<&Trial>) -> Self {
        let texts = [
            Some(unit.uid.clone()),
            Some(unit.source.clone()),
            Some(unit.instruction.clone()),
            Some(condition.to_owned()),
            Some(name(answered.stance).to_owned()),
            Some(answered.ground.clone()),
            Some(answered.call.to_string()),
            Some(name(unit.clean.stance).to_owned()),
            object.map(|trial| trial.object.clone()),
            answered.second.map(|second| name(second).to_owned()),
        ];
        let region = object.and_then(|trial| trial.region);
        let side = |length: fn(crate::offline::insert::Region) -> u32| i32::try_from(length(region?)).ok();
        let numbers = [
            i32::try_from(trial).ok(),
            side(|region| region.x),
            side(|region| region.y),
            side(|region| region.width),
            side(|region| region.height),
        ];
        Self { texts, numbers }
    }
}

/// A unit's answers: the clean scene, the controls, then each condition's trials.
fn lines(unit: &Unit) -> impl Iterator<Item = Line> + '_ {
    let clean = Line::new(unit, "clean", 0, &unit.clean, None);
    let control = unit.control.iter().enumerate().map(|(at, answered)| Line::new(unit, "control", at, answered, None));
    let trials = unit
        .trials
        .iter()
        .flat_map(|(condition, trials)| trials.iter().enumerate().map(move |trial| (*condition, trial)));
    let trials =
        trials.map(|(condition, (at, trial))| Line::new(unit, condition.name(), at, &trial.answered, Some(trial)));
    std::iter::once(clean).chain(control).chain(trials)
}

/// Writes the answers of these units into a folder, shard by shard, and gives how many there are.
///
/// # Errors
/// When a unit cannot be read or a shard cannot be written.
pub fn write_answers(
    units: impl Iterator<Item = Result<Unit, MeasureError>>,
    folder: &Path,
) -> Result<u64, MeasureError> {
    let (mut held, mut shard, mut rows) = (Vec::new(), 0_u32, 0);
    let mut flush = |held: &mut Vec<Line>| {
        let path = folder.join(format!("part-{shard:05}.parquet"));
        shard += 1;
        write_shard(held, &path)?;
        held.clear();
        Ok::<(), MeasureError>(())
    };
    for unit in units {
        for line in lines(&unit?) {
            held.push(line);
            rows += 1;
            if held.len() >= SHARD_ROWS {
                flush(&mut held)?;
            }
        }
    }
    if !held.is_empty() {
        flush(&mut held)?;
    }
    Ok(rows)
}

fn write_shard(lines: &[Line], path: &Path) -> Result<(), MeasureError> {
    let bytes = shard(lines).map_err(|error| output(path.to_owned(), std::io::Error::other(error)))?;
    write_whole(path, &bytes).map_err(|source| output(path.to_owned(), source))
}

fn output(path: PathBuf, source: std::io::Error) -> MeasureError {
    MeasureError::Output { path, source }
}

fn shard(lines: &[Line]) -> Result<Vec<u8>, ParquetError> {
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema()?, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in 0..TEXTS.len() {
        let text =
            |line: &Line| line.texts.get(column).cloned().flatten().map(|text| ByteArray::from(text.into_bytes()));
        let always = column < TEXTS_ALWAYS;
        let (values, there) = values(lines, text);
        write_column(&mut group, |writer| {
            writer.typed::<ByteArrayType>().write_batch(&values, (!always).then_some(there.as_slice()), None)
        })?;
    }
    for column in 0..NUMBERS.len() {
        let (values, there) = values(lines, |line| line.numbers.get(column).copied().flatten());
        write_column(&mut group, |writer| {
            writer.typed::<Int32Type>().write_batch(&values, Some(there.as_slice()), None)
        })?;
    }
    group.close()?;
    writer.into_inner()
}

/// The values of a column that are there, and for each row whether its is.
fn values<T>(lines: &[Line], value: impl Fn(&Line) -> Option<T>) -> (Vec<T>, Vec<i16>) {
    let values: Vec<Option<T>> = lines.iter().map(value).collect();
    let there = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.into_iter().flatten().collect(), there)
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    write: impl FnOnce(&mut parquet::file::writer::SerializedColumnWriter<'_>) -> Result<usize, ParquetError>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.ok_or_else(|| ParquetError::General("the schema has too few columns".to_owned()))?;
    write(&mut column)?;
    column.close()
}

fn schema() -> Result<Arc<Type>, ParquetError> {
    let texts = TEXTS.iter().enumerate().map(|(at, name)| {
        let there = if at < TEXTS_ALWAYS { "required" } else { "optional" };
        format!("{there} binary {name} (UTF8);")
    });
    let numbers = NUMBERS.iter().map(|name| format!("optional int32 {name};"));
    let fields: String = texts.chain(numbers).collect();
    parse_message_type(&format!("message answers {{ {fields} }}")).map(Arc::new)
}
