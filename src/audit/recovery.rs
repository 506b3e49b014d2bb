//! Where a log stands when it is opened: the end of its chain, what was left undecided, and what a crash cut off.
//!
//! Only the newest segment is read whole; its first record says where the chain stood before it. The rule for damage
//! is in [`super::frame`]: behind everything that is proved to have been synced it is an unfinished write, dropped and
//! reported; before that it is damage to stored records, and the log does not open. A guard that cannot trust its own
//! log should not go on as if nothing were missing; `steadfast log verify` names the place, and a person moves the
//! directory aside.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chain::AuditError;
use super::frame::{Damage, GENESIS};
use super::record::{CHECK_IDS_MAX, CheckId, Event, Record, Retired, Sealed, SegmentOpened, Verdict};
use super::segment::{self, Scan, Step};
use crate::triple::Digest;

/// What a record means for the log itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    wall_ns: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Received(CheckId),
    Decided(CheckId, Verdict),
    CrashFound,
    Other,
}

impl Mark {
    pub(super) fn of(record: &Record) -> Self {
        let kind = match &record.event {
            Event::Received(received) => Kind::Received(received.check_id),
            Event::Decided(decided) => Kind::Decided(decided.check_id, decided.verdict),
            Event::CrashFound { .. } => Kind::CrashFound,
            Event::Started(_)
            | Event::Stopped { .. }
            | Event::Reloaded(_)
            | Event::ReloadRefused { .. }
            | Event::ModeSet { .. }
            | Event::Released(_)
            | Event::Forgotten { .. }
            | Event::KeyRotated { .. }
            | Event::SegmentOpened(_)
            | Event::Retired { .. }
            | Event::TailDropped { .. }
            | Event::WritesFailed { .. }
            | Event::Checkpoint(_) => Kind::Other,
        };
        Self { wall_ns: record.at.wall_ns, kind }
    }
}

/// Checks received and not yet decided; past [`CHECK_IDS_MAX`] they are only counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Undecided {
    pub(super) ids: BTreeSet<CheckId>,
    pub(super) more: u64,
}

impl Undecided {
    fn insert(&mut self, id: CheckId) {
        if self.ids.len() < CHECK_IDS_MAX {
            self.ids.insert(id);
        } else {
            self.more += 1;
        }
    }

    fn remove(&mut self, id: CheckId) {
        if !self.ids.remove(&id) {
            self.more = self.more.saturating_sub(1);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.more == 0
    }
}

/// A place in the chain: where the next frame goes, and what the segment holds up to there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    /// Bytes of the segment.
    pub(super) offset: u64,
    /// Sequence number of the last frame; 0 before the first.
    pub(super) sequence: u64,
    /// Hash of the last frame.
    pub(super) head: Digest,
    /// Hash of the frame before the segment's first.
    pub(super) before: Digest,
    /// Sequence number of the segment's first frame.
    pub(super) first_sequence: u64,
    pub(super) vetoes: u64,
    pub(super) others: u64,
    pub(super) last_wall_ns: u64,
}

impl Position {
    /// The start of a segment that follows this frame.
    pub(super) const fn start(sequence: u64, head: Digest) -> Self {
        Self {
            offset: 0,
            sequence,
            head,
            before: head,
            first_sequence: sequence + 1,
            vetoes: 0,
            others: 0,
            last_wall_ns: 0,
        }
    }

    pub(super) fn count(&mut self, mark: Mark) {
        self.last_wall_ns = self.last_wall_ns.max(mark.wall_ns);
        match mark.kind {
            Kind::Decided(_, Verdict::Veto) => self.vetoes += 1,
            Kind::Decided(_, Verdict::Permit | Verdict::Refusal) => self.others += 1,
            Kind::Received(_) | Kind::CrashFound | Kind::Other => {}
        }
    }

    pub(super) const fn sealed(&self, segment: u64) -> Sealed {
        Sealed {
            segment,
            before: self.before,
            last: self.head,
            first_sequence: self.first_sequence,
            last_sequence: self.sequence,
            bytes: self.offset,
            vetoes: self.vetoes,
            others: self.others,
            last_wall_ns: self.last_wall_ns,
        }
    }
}

impl Undecided {
    pub(super) fn follow(&mut self, mark: Mark) {
        match mark.kind {
            Kind::Received(id) => self.insert(id),
            Kind::Decided(id, _) => self.remove(id),
            Kind::CrashFound => *self = Self::default(),
            Kind::Other => {}
        }
    }
}

/// An unfinished write that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// The segment that had it.
    pub segment: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What was wrong with it.
    pub damage: Damage,
}

/// A log as found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) segment: u64,
    pub(super) position: Position,
    pub(super) undecided: Undecided,
    /// Finished segments that are still there, oldest first.
    pub(super) sealed: Vec<Sealed>,
    pub(super) retired: Retired,
    pub(super) tail: Option<Tail>,
}

/// Looks a log through; `None` where there is none yet. Cuts off nothing itself but a newest segment whose creation
/// was never finished.
pub(super) fn look_through(dir: &Path) -> Result<Option<Found>, AuditError> {
    let io = |action, path: PathBuf| move |error| AuditError::Io { action, path, error: Arc::new(error) };
    let mut segments = segment::list(dir).map_err(io("read", dir.to_owned()))?;
    let mut tail = None;
    while let Some(segment) = segments.pop() {
        let path = segment::path_of(dir, segment);
        let read = read_newest(dir, segment).map_err(io("read", path.clone()))?;
        let bytes = fs::metadata(&path).map_err(io("read", path.clone()))?.len();
        let damaged = |offset, damage| AuditError::Damaged { segment, offset, damage };
        if let Some((offset, damage)) = read.damage {
            // A later segment exists only once this one was finished and synced.
            let proved = if tail.is_some() {
                bytes
            } else {
                segment::proved_behind(&path, offset).map_err(io("read", path.clone()))?
            };
            let link = matches!(damage, Damage::Link | Damage::Opening);
            if link || offset < proved.max(read.proved) {
                return Err(damaged(offset, damage));
            }
            tail = Some(Tail { segment, bytes: bytes - offset, damage });
        }
        let Some((position, opened)) = read.standing else {
            fs::remove_file(&path).map_err(io("remove", path.clone()))?;
            tail = tail.or(Some(Tail { segment, bytes, damage: Damage::Cut }));
            continue;
        };
        let retired = read.retired;
        let mut sealed = summaries(dir, &segments, &retired, opened.sealed)?;
        sealed.sort_by_key(|sealed| sealed.segment);
        return Ok(Some(Found { segment, position, undecided: read.undecided, sealed, retired, tail }));
    }
    Ok(None)
}

struct Newest {
    /// Position behind the last sound frame, and the opening record; `None` without a sound frame.
    standing: Option<(Position, SegmentOpened)>,
    undecided: Undecided,
    retired: Retired,
    /// Bytes proved to have been synced by the sound frames.
    proved: u64,
    damage: Option<(u64, Damage)>,
}

fn read_newest(dir: &Path, segment: u64) -> std::io::Result<Newest> {
    let mut scan = Scan::open(&segment::path_of(dir, segment), None)?;
    let mut newest = Newest {
        standing: None,
        undecided: Undecided::default(),
        retired: Retired::default(),
        proved: 0,
        damage: None,
    };
    loop {
        let frame = match scan.step()? {
            Step::Frame(frame) => frame,
            Step::End => return Ok(newest),
            Step::Damage { offset, damage } => {
                newest.damage = Some((offset, damage));
                return Ok(newest);
            }
        };
        let (position, _) = match &mut newest.standing {
            Some(standing) => standing,
            None => {
                let Some(opened) = segment::opening_of(&frame, segment) else {
                    newest.damage = Some((0, Damage::Opening));
                    return Ok(newest);
                };
                newest.undecided.ids = opened.undecided.iter().copied().collect();
                newest.retired = opened.retired.clone();
                let start = Position::start(frame.header.sequence - 1, frame.header.previous);
                newest.standing.insert((start, opened))
            }
        };
        position.offset = frame.offset + frame.header.frame_bytes();
        position.sequence = frame.header.sequence;
        position.head = frame.header.hash;
        newest.proved = newest.proved.max(frame.header.synced_before);
        // A payload of another schema still counts as a link of the chain.
        if let Ok(record) = Record::decode(frame.payload) {
            let mark = Mark::of(&record);
            position.count(mark);
            newest.undecided.follow(mark);
            if let Event::Retired { retired, .. } = record.event {
                newest.retired = retired;
            }
        }
    }
}

/// What the finished segments hold, from the record that opens each one's successor; a segment whose successor is
/// gone is read whole.
fn summaries(
    dir: &Path,
    segments: &[u64],
    retired: &Retired,
    newest: Option<Sealed>,
) -> Result<Vec<Sealed>, AuditError> {
    let mut sealed = Vec::new();
    let mut of_next = newest;
    for &segment in segments.iter().rev() {
        let path = segment::path_of(dir, segment);
        if retired.gaps.iter().any(|gap| (gap.first_segment..=gap.last_segment).contains(&segment)) {
            // Retired on paper, still there: the removal was cut off. `tend` finishes it.
            of_next = None;
            continue;
        }
        let io = |error| AuditError::Io { action: "read", path: path.clone(), error: Arc::new(error) };
        let opening = segment::opening(dir, segment).map_err(io)?;
        let Some((_, opened)) = opening else {
            return Err(AuditError::Damaged { segment, offset: 0, damage: Damage::Opening });
        };
        let mut summary = match of_next.take().filter(|next| next.segment == segment) {
            Some(summary) => summary,
            None => read_whole(dir, segment)?,
        };
        summary.bytes = fs::metadata(&path).map_err(io)?.len();
        sealed.push(summary);
        of_next = opened.sealed;
    }
    Ok(sealed)
}

fn read_whole(dir: &Path, segment: u64) -> Result<Sealed, AuditError> {
    let path = segment::path_of(dir, segment);
    let read =
        read_newest(dir, segment).map_err(|error| AuditError::Io { action: "read", path, error: Arc::new(error) })?;
    match (read.damage, read.standing) {
        (Some((offset, damage)), _) => Err(AuditError::Damaged { segment, offset, damage }),
        (None, Some((position, _))) => Ok(position.sealed(segment)),
        (None, None) => Err(AuditError::Damaged { segment, offset: 0, damage: Damage::Opening }),
    }
}

/// Where an empty log begins.
pub(super) const BEGINNING: Position = Position::start(0, GENESIS);
