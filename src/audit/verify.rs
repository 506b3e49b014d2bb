//! Whether a log is whole: every frame, every link, every gap accounted for, every checkpoint's signature.
//!
//! Reads front to back and keeps one frame in memory, whatever the log's size. Needs no lock: a log may be verified
//! while it is written, and then usually ends in an unfinished tail. What it cannot see is a log cut off cleanly
//! behind a record, or replaced as a whole by someone who also has the key: compare [`Report::head`] with one noted
//! elsewhere.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use ed25519_dalek::{Signature, VerifyingKey};

use super::frame::{Damage, GENESIS};
use super::record::{Checkpoint, Event, Gap, Record, Retired, checkpoint_message};
use super::segment::{self, Frame, Scan, Step, path_of};
use crate::triple::Digest;

/// Most faults listed in a report; further ones are counted.
pub const FAULTS_MAX: usize = 64;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Bytes that should be a record are not, or do not follow the record before.
    #[error("segment {segment}, byte {offset}: {damage}")]
    Damaged {
        /// Which segment.
        segment: u64,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// Segments are missing that retention did not remove.
    #[error("segments {first} to {last} are missing, and no record says why")]
    Missing {
        /// First one missing.
        first: u64,
        /// Last one missing.
        last: u64,
    },
    /// Payloads are missing that retention did not take out.
    #[error("segment {segment} lacks the payloads of {records} records, and no record says why")]
    Emptied {
        /// Which segment.
        segment: u64,
        /// How many more than are accounted for.
        records: u64,
    },
    /// A checkpoint names another head than the record before it.
    #[error("the checkpoint in record {sequence} is not about the record before it")]
    CheckpointElsewhere {
        /// Which record.
        sequence: u64,
    },
    /// A checkpoint's signature is wrong.
    #[error("the signature in record {sequence} is wrong")]
    Signature {
        /// Which record.
        sequence: u64,
    },
    /// A checkpoint is signed by a key that was not given.
    #[error("record {sequence} is signed by the unknown key {key}")]
    UnknownKey {
        /// Which record.
        sequence: u64,
        /// Public key, in hexadecimal.
        key: String,
    },
    /// A checkpoint is signed by a key that the log itself says was retired before.
    #[error("record {sequence} is signed by the key {key}, which was retired before")]
    RetiredKey {
        /// Which record.
        sequence: u64,
        /// Public key, in hexadecimal.
        key: String,
    },
}

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Segments read.
    pub segments: u64,
    /// Records read, those without payload included.
    pub records: u64,
    /// Records whose payload retention has taken out.
    pub pruned: u64,
    /// Records that retention has removed with their segments.
    pub dropped: u64,
    /// Checkpoints whose signature was checked and is right.
    pub checkpoints: u64,
    /// Checkpoints not checked because no key was given.
    pub checkpoints_unchecked: u64,
    /// Records behind the last right checkpoint.
    pub unsigned: u64,
    /// Hash of the last sound record: it stands for the whole log.
    pub head: Digest,
    /// Sequence number of that record.
    pub sequence: u64,
    /// Bytes behind the last sound record of the newest segment: a write in progress, or what a crash cut off.
    pub tail: Option<(u64, Damage)>,
    /// What is wrong, at most [`FAULTS_MAX`].
    pub faults: Vec<Fault>,
    /// How many faults more.
    pub faults_more: u64,
}

impl Report {
    /// Whether nothing at all is wrong and nothing unfinished.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.faults.is_empty() && self.tail.is_none()
    }

    fn fault(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        } else {
            self.faults_more += 1;
        }
    }
}

/// Verifies the log in a directory. With no keys, checkpoints are counted and not checked.
///
/// # Errors
/// When the directory or a segment cannot be read.
pub fn verify(dir: &Path, keys: &[[u8; 32]]) -> io::Result<Report> {
    let segments = segment::list(dir)?;
    let mut walk = Walk { keys, report: EMPTY, before: Some((GENESIS, 0)), next: 1, gone: BTreeSet::new() };
    let retired = newest_statement(dir, &segments)?;
    for (index, &segment) in segments.iter().enumerate() {
        // Removed on paper, removal cut off: the gap stands for it.
        if retired.gaps.iter().any(|gap| (gap.first_segment..=gap.last_segment).contains(&segment)) {
            continue;
        }
        if segment != walk.next {
            walk.cross(segment, &retired.gaps);
        }
        walk.read(dir, segment, index + 1 == segments.len(), &retired)?;
        walk.next = segment.saturating_add(1);
    }
    Ok(walk.report)
}

const EMPTY: Report = Report {
    segments: 0,
    records: 0,
    pruned: 0,
    dropped: 0,
    checkpoints: 0,
    checkpoints_unchecked: 0,
    unsigned: 0,
    head: GENESIS,
    sequence: 0,
    tail: None,
    faults: Vec::new(),
    faults_more: 0,
};

struct Walk<'a> {
    keys: &'a [[u8; 32]],
    report: Report,
    /// Hash and sequence number that the next frame must follow; unknown behind damage.
    before: Option<(Digest, u64)>,
    /// The segment that should come next.
    next: u64,
    /// Keys that the records read so far say were retired.
    gone: BTreeSet<[u8; 32]>,
}

impl Walk<'_> {
    /// Steps over missing segments, where a gap accounts for exactly them.
    fn cross(&mut self, to: u64, gaps: &[Gap]) {
        // What a log says of itself may be anything: its numbers are not added up unchecked.
        let spans = |gap: &&Gap| gap.first_segment == self.next && gap.last_segment.checked_add(1) == Some(to);
        let follows = |gap: &&Gap| {
            let after = |(hash, sequence): (Digest, u64)| {
                gap.before == hash && sequence.checked_add(1) == Some(gap.first_sequence)
            };
            self.before.is_none_or(after) && gap.first_sequence <= gap.last_sequence
        };
        if let Some(gap) = gaps.iter().find(spans).filter(follows) {
            self.before = Some((gap.last, gap.last_sequence));
            let records = (gap.last_sequence - gap.first_sequence).saturating_add(1);
            self.report.dropped = self.report.dropped.saturating_add(records);
        } else {
            self.before = None;
            self.report.fault(Fault::Missing { first: self.next, last: to.saturating_sub(1) });
        }
    }

    fn read(&mut self, dir: &Path, segment: u64, newest: bool, retired: &Retired) -> io::Result<()> {
        let path = path_of(dir, segment);
        let mut scan = Scan::open(&path, self.before)?;
        self.report.segments += 1;
        let (mut pruned, mut proved, mut first) = (0, 0, true);
        loop {
            match scan.step()? {
                Step::Frame(frame) => {
                    if std::mem::take(&mut first) && segment::opening_of(&frame, segment).is_none() {
                        self.report.fault(Fault::Damaged { segment, offset: 0, damage: Damage::Opening });
                    }
                    pruned += u64::from(frame.header.pruned);
                    proved = proved.max(frame.header.synced_before);
                    self.take(&frame);
                }
                Step::End => break,
                Step::Damage { offset, damage } => {
                    let proved = proved.max(segment::proved_behind(&path, offset)?);
                    if newest && offset >= proved && damage != Damage::Link {
                        let bytes = std::fs::metadata(&path)?.len().saturating_sub(offset);
                        self.report.tail = Some((bytes, damage));
                    } else {
                        self.report.fault(Fault::Damaged { segment, offset, damage });
                        self.before = None;
                    }
                    break;
                }
            }
        }
        let allowed = retired.pruned.iter().find(|entry| entry.segment == segment).map_or(0, |entry| entry.records);
        if pruned > allowed {
            self.report.fault(Fault::Emptied { segment, records: pruned - allowed });
        }
        self.report.pruned += pruned;
        Ok(())
    }

    fn take(&mut self, frame: &Frame<'_>) {
        let before = self.before.replace((frame.header.hash, frame.header.sequence));
        self.report.records += 1;
        self.report.unsigned += 1;
        self.report.head = frame.header.hash;
        self.report.sequence = frame.header.sequence;
        let event = Record::decode(frame.payload).map(|record| record.event);
        if let Ok(Event::KeyRotated { retired, .. }) = &event {
            self.gone.extend(self.given(retired));
        } else if let Ok(Event::Checkpoint(checkpoint)) = event {
            let about = (checkpoint.head, checkpoint.sequence);
            let follows = about == (frame.header.previous, frame.header.sequence.saturating_sub(1))
                && before.is_none_or(|before| before == about);
            self.check(&checkpoint, frame.header.sequence, follows);
        }
    }

    fn check(&mut self, checkpoint: &Checkpoint, sequence: u64, follows: bool) {
        if !follows {
            return self.report.fault(Fault::CheckpointElsewhere { sequence });
        }
        if self.keys.is_empty() {
            self.report.checkpoints_unchecked += 1;
            return;
        }
        let Some(key) = self.given(&checkpoint.key) else {
            return self.report.fault(Fault::UnknownKey { sequence, key: checkpoint.key.clone() });
        };
        if !is_signed(checkpoint, &key) {
            self.report.fault(Fault::Signature { sequence });
        } else if self.gone.contains(&key) {
            self.report.fault(Fault::RetiredKey { sequence, key: checkpoint.key.clone() });
        } else {
            self.report.checkpoints += 1;
            self.report.unsigned = 0;
        }
    }

    /// The given key with these hexadecimal digits.
    fn given(&self, digits: &str) -> Option<[u8; 32]> {
        self.keys.iter().find(|key| hex::encode(key) == digits).copied()
    }
}

fn is_signed(checkpoint: &Checkpoint, key: &[u8; 32]) -> bool {
    let mut signature = [0; 64];
    if hex::decode_to_slice(&checkpoint.signature, &mut signature).is_err() {
        return false;
    }
    let message = checkpoint_message(checkpoint.sequence, &checkpoint.head);
    VerifyingKey::from_bytes(key)
        .is_ok_and(|key| key.verify_strict(&message, &Signature::from_bytes(&signature)).is_ok())
}

/// The newest statement of what retention has taken out. Each one is complete, so the newest readable one counts.
fn newest_statement(dir: &Path, segments: &[u64]) -> io::Result<Retired> {
    for &segment in segments.iter().rev() {
        let mut statement = None;
        let mut scan = Scan::open(&path_of(dir, segment), None)?;
        while let Step::Frame(frame) = scan.step()? {
            if let Some(opened) = segment::opening_of(&frame, segment) {
                statement = Some(opened.retired);
            } else if let Ok(Record { event: Event::Retired { retired, .. }, .. }) = Record::decode(frame.payload) {
                statement = Some(retired);
            }
        }
        if let Some(statement) = statement {
            return Ok(statement);
        }
    }
    Ok(Retired::default())
}
