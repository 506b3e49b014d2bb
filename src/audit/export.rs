//! Handing a log on to other tools, as JSON Lines.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::read::{self, Content, Entry, ReadError};
use super::record::Record;
use crate::triple::Digest;

/// One line of an export: a record, and its place in the chain.
#[derive(Debug, Serialize)]
struct Line<'a> {
    sequence: u64,
    hash: Digest,
    segment: u64,
    #[serde(flatten)]
    content: Body<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Body<'a> {
    Record(&'a Record),
    /// Retention has taken the payload out.
    Pruned(bool),
    /// The record cannot be understood by this build; why, and its bytes in hexadecimal.
    Unreadable {
        error: String,
        hex: String,
    },
}

/// Why an export stopped.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log's directory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output cannot be written.
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
}

/// What an export wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Records written.
    pub records: u64,
    /// Places where a segment ended in damage; each is a line too.
    pub damaged: u64,
}

/// Writes every record that `takes` wants as one line of JSON, oldest first. Damage becomes a line of its own rather
/// than a silent gap.
///
/// # Errors
/// When the log's directory cannot be read or the output cannot be written.
pub fn json_lines(dir: &Path, takes: impl Fn(&Entry) -> bool, out: &mut impl Write) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    for entry in read::entries(dir)? {
        match entry {
            Ok(entry) if takes(&entry) => {
                line(out, &entry)?;
                exported.records += 1;
            }
            Ok(_) => {}
            Err(error) => {
                let damage = serde_json::json!({ "damage": error.to_string() });
                writeln!(out, "{damage}")?;
                exported.damaged += 1;
            }
        }
    }
    out.flush()?;
    Ok(exported)
}

fn line(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let content = match &entry.content {
        Content::Record(record) => Body::Record(record),
        Content::Pruned => Body::Pruned(true),
        Content::Unreadable(bytes, error) => Body::Unreadable { error: error.to_string(), hex: hex::encode(bytes) },
    };
    let line = Line { sequence: entry.sequence, hash: entry.hash, segment: entry.segment, content };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}
