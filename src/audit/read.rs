//! Finding records again: all of them in order, those that match, and one check by the beginning of its id.
//!
//! Reading needs no lock and does not verify links beyond each frame's own hash; [`super::verify`] does.

use std::io;
use std::path::{Path, PathBuf};

use super::frame::Damage;
use super::record::{CheckId, Decided, DecodeError, Event, Received, Record, Verdict};
use super::segment::{self, Scan, Step, path_of};
use crate::decision::Reason;
use crate::triple::Digest;

/// Most checks that [`show`] gives for an id's beginning that fits several.
pub const CHECKS_MAX: usize = 16;

/// A record and its place.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its place in the log, counting from 1.
    pub sequence: u64,
    /// Its hash.
    pub hash: Digest,
    /// The segment it lies in.
    pub segment: u64,
    /// What it says.
    pub content: Content,
}

/// What can be said about a record.
#[derive(Debug, Clone)]
pub enum Content {
    /// It is of a schema that this build reads.
    Record(Box<Record>),
    /// Retention has taken its payload out.
    Pruned,
    /// It is sound and cannot be understood: here are its bytes.
    Unreadable(Vec<u8>, DecodeError),
}

impl Entry {
    /// The record, where it can be read.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match &self.content {
            Content::Record(record) => Some(record),
            Content::Pruned | Content::Unreadable(..) => None,
        }
    }
}

/// Why reading stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system said no.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// A segment holds no further records that can be read. The next call goes on with the next segment.
    #[error("segment {segment}, byte {offset}: {damage}")]
    Damaged {
        /// Which segment.
        segment: u64,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
}

/// Records in order. An item is an error where a segment ends in damage or cannot be read; the next segment follows.
#[derive(Debug)]
pub struct Entries {
    dir: PathBuf,
    segments: std::vec::IntoIter<u64>,
    scan: Option<(u64, Scan)>,
    /// Only payloads that hold these bytes are decoded; the others are passed over.
    holding: Option<String>,
}

/// Every record of the log in a directory, oldest first.
///
/// # Errors
/// When the directory cannot be read.
pub fn entries(dir: &Path) -> Result<Entries, ReadError> {
    let segments = segment::list(dir).map_err(|error| ReadError::Io { path: dir.to_owned(), error })?;
    Ok(Entries { dir: dir.to_owned(), segments: segments.into_iter(), scan: None, holding: None })
}

impl Iterator for Entries {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (segment, mut scan) = match self.scan.take() {
                Some(scan) => scan,
                None => {
                    let segment = self.segments.next()?;
                    let path = path_of(&self.dir, segment);
                    match Scan::open(&path, None) {
                        Ok(scan) => (segment, scan),
                        Err(error) => return Some(Err(ReadError::Io { path, error })),
                    }
                }
            };
            match next_entry(&mut scan, segment, self.holding.as_deref()) {
                Some(Ok(entry)) => {
                    self.scan = Some((segment, scan));
                    return Some(Ok(entry));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {}
            }
        }
    }
}

fn next_entry(scan: &mut Scan, segment: u64, holding: Option<&str>) -> Option<Result<Entry, ReadError>> {
    loop {
        let frame = match scan.step() {
            Ok(Step::Frame(frame)) => frame,
            Ok(Step::End) => return None,
            Ok(Step::Damage { offset, damage }) => return Some(Err(ReadError::Damaged { segment, offset, damage })),
            Err(error) => return Some(Err(ReadError::Io { path: path_of(Path::new(""), segment), error })),
        };
        if let Some(holding) = holding {
            let holds = std::str::from_utf8(frame.payload).is_ok_and(|text| text.contains(holding));
            if !holds {
                continue;
            }
        }
        let content = if frame.header.pruned {
            Content::Pruned
        } else {
            match Record::decode(frame.payload) {
                Ok(record) => Content::Record(Box::new(record)),
                Err(error) => Content::Unreadable(frame.payload.to_vec(), error),
            }
        };
        return Some(Ok(Entry { sequence: frame.header.sequence, hash: frame.header.hash, segment, content }));
    }
}

/// Which answers [`list`] gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this verdict.
    pub verdict: Option<Verdict>,
    /// Only vetoes for this reason.
    pub reason: Option<Reason>,
    /// Only answers at or after this wall-clock time, in nanoseconds since 1970-01-01 UTC.
    pub since_wall_ns: Option<u64>,
}

impl Filter {
    /// Whether a record is an answer that is asked for.
    #[must_use]
    pub fn takes(&self, record: &Record) -> bool {
        let Event::Decided(decided) = &record.event else { return false };
        self.verdict.is_none_or(|verdict| decided.verdict == verdict)
            && self.reason.is_none_or(|reason| decided.reason == Some(reason))
            && self.since_wall_ns.is_none_or(|since| record.at.wall_ns >= since)
    }
}

/// The answers that a filter takes, oldest first, and every error met on the way.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(dir: &Path, filter: Filter) -> Result<impl Iterator<Item = Result<Entry, ReadError>>, ReadError> {
    let wanted = move |entry: &Result<Entry, ReadError>| match entry {
        Ok(entry) => entry.record().is_some_and(|record| filter.takes(record)),
        Err(_) => true,
    };
    Ok(entries(dir)?.filter(wanted))
}

/// All that is written about one check.
#[derive(Debug, Clone, Default)]
pub struct Check {
    /// How it came in.
    pub received: Option<(Entry, Received)>,
    /// How it was answered.
    pub decided: Option<(Entry, Decided)>,
    /// What followed, such as a release.
    pub later: Vec<Entry>,
}

/// The checks whose id begins with these hexadecimal digits, newest first, at most [`CHECKS_MAX`]. Damaged segments
/// are read as far as they go.
///
/// # Errors
/// When the directory cannot be read.
pub fn show(dir: &Path, prefix: &str) -> Result<Vec<(CheckId, Check)>, ReadError> {
    let io = |error| ReadError::Io { path: dir.to_owned(), error };
    let prefix = prefix.to_ascii_lowercase();
    let mut found: Vec<(CheckId, Check)> = Vec::new();
    for segment in segment::list(dir).map_err(io)?.into_iter().rev() {
        let entries = Entries {
            dir: dir.to_owned(),
            segments: vec![segment].into_iter(),
            scan: None,
            holding: Some(format!("\"check_id\":\"{prefix}")),
        };
        let mut here: Vec<Entry> = entries.filter_map(Result::ok).collect();
        here.reverse();
        for entry in here {
            let Some(id) = entry.record().and_then(Record::check_id) else { continue };
            if found.len() < CHECKS_MAX && !found.iter().any(|(known, _)| *known == id) {
                found.push((id, Check::default()));
            }
            if let Some((_, check)) = found.iter_mut().find(|(known, _)| *known == id) {
                check.add(entry);
            }
        }
        let whole = |(_, check): &(CheckId, Check)| check.received.is_some() && check.decided.is_some();
        // A whole id names one check; a beginning may fit others further back.
        if prefix.len() == 32 && found.iter().all(whole) && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

impl Check {
    fn add(&mut self, entry: Entry) {
        match entry.record().map(|record| record.event.clone()) {
            Some(Event::Received(received)) => self.received = Some((entry, *received)),
            Some(Event::Decided(decided)) => self.decided = Some((entry, *decided)),
            Some(_) | None => self.later.push(entry),
        }
    }
}
