//! What may be taken out of a log again, in what order, and doing it.
//!
//! By size: first whole segments without a veto, oldest first; then, in segments with vetoes, the payloads of
//! everything else; only when nothing but vetoes is left, the oldest of those. So no veto goes while any older answer
//! of another kind is kept. By age likewise, with an age of its own for vetoes. The newest segment is never touched.
//!
//! Each step is written down and synced before it is done (`retired`), with the hashes that close the chain over what
//! is missing; a step that was cut off is finished at the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use super::frame::Header;
use super::record::{Event, Gap, PrunedSegment, Record, Retired, Sealed, Verdict};
use super::segment::{self, Scan, Step, path_of};

/// Most finished segments kept, whatever their size: what retention has taken out is restated in each new segment, and
/// that statement must stay small.
pub const SEALED_MAX: usize = 1024;

/// Bounds of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Most bytes the log may have, in at most [`SEALED_MAX`] finished segments. One segment more may be on disk while
    /// a step is being carried out.
    pub bytes_max: u64,
    /// Age past which answers other than vetoes go, by the wall clock; `None` keeps them until room is needed.
    pub age_max: Option<Duration>,
    /// Age past which vetoes go; `None` keeps them until room is needed. Never less than `age_max`.
    pub veto_age_max: Option<Duration>,
}

impl Default for Retention {
    /// One gibibyte, no limit of age: a robot whose clock jumps ahead must not lose its log over it.
    fn default() -> Self {
        Self { bytes_max: 1024 * 1024 * 1024, age_max: None, veto_age_max: None }
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Takes the payloads of everything but vetoes out of this segment.
    Prune(u64),
    /// Removes this segment.
    Drop(u64),
}

/// A step and its reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Retirement {
    pub(super) act: Act,
    pub(super) why: String,
}

/// The next step that the bounds ask for, if any.
pub(super) fn next(
    bounds: &Retention,
    sealed: &[Sealed],
    retired: &Retired,
    newest_bytes: u64,
    now_wall_ns: u64,
) -> Option<Retirement> {
    let prunable = |segment: &&Sealed| {
        segment.others > 0 && !retired.pruned.iter().any(|pruned| pruned.segment == segment.segment)
    };
    let older = |segment: &Sealed, age_max: Option<Duration>| {
        age_max.is_some_and(|age_max| u128::from(now_wall_ns.saturating_sub(segment.last_wall_ns)) > age_max.as_nanos())
    };
    let aged: Vec<&Sealed> = sealed.iter().filter(|segment| older(segment, bounds.age_max)).collect();
    let veto_age_max = bounds.veto_age_max.map(|age| age.max(bounds.age_max.unwrap_or_default()));
    let by_age = first_of(&aged, prunable)
        .or_else(|| {
            sealed
                .iter()
                .find(|segment| segment.vetoes > 0 && older(segment, veto_age_max))
                .map(|s| Act::Drop(s.segment))
        })
        .map(|act| Retirement { act, why: "older than the log's limit of age".to_owned() });
    by_age.or_else(|| {
        let bytes = sealed.iter().map(|segment| segment.bytes).sum::<u64>() + newest_bytes;
        if bytes <= bounds.bytes_max && sealed.len() <= SEALED_MAX {
            return None;
        }
        let all: Vec<&Sealed> = sealed.iter().collect();
        let act = first_of(&all, prunable).or_else(|| sealed.first().map(|oldest| Act::Drop(oldest.segment)))?;
        Some(Retirement {
            act,
            why: format!(
                "the log has {bytes} bytes in {} finished segments; at most {} in {SEALED_MAX} are kept",
                sealed.len(),
                bounds.bytes_max
            ),
        })
    })
}

/// The first step among these segments that costs no veto.
fn first_of(segments: &[&Sealed], prunable: impl Fn(&&Sealed) -> bool) -> Option<Act> {
    let drop = segments.iter().find(|segment| segment.vetoes == 0).map(|segment| Act::Drop(segment.segment));
    drop.or_else(|| segments.iter().find(|segment| prunable(segment)).map(|segment| Act::Prune(segment.segment)))
}

/// What will have been taken out after this step; `None` where the segment is not there.
pub(super) fn after(retired: &Retired, sealed: &[Sealed], act: Act, records: u64) -> Option<Retired> {
    let mut retired = retired.clone();
    match act {
        Act::Prune(segment) => retired.pruned.push(PrunedSegment { segment, records }),
        Act::Drop(segment) => {
            let gone = sealed.iter().find(|sealed| sealed.segment == segment)?;
            retired.pruned.retain(|pruned| pruned.segment != segment);
            retired.gaps.push(Gap {
                first_segment: segment,
                last_segment: segment,
                before: gone.before,
                last: gone.last,
                first_sequence: gone.first_sequence,
                last_sequence: gone.last_sequence,
                vetoes: gone.vetoes,
                others: gone.others,
            });
            retired.gaps.sort_by_key(|gap| gap.first_segment);
            retired.gaps = join(retired.gaps);
        }
    }
    Some(retired)
}

/// Joins gaps that touch.
fn join(gaps: Vec<Gap>) -> Vec<Gap> {
    let mut joined: Vec<Gap> = Vec::new();
    for gap in gaps {
        match joined.last_mut().filter(|last| last.last_segment.checked_add(1) == Some(gap.first_segment)) {
            Some(last) => {
                last.last_segment = gap.last_segment;
                last.last = gap.last;
                last.last_sequence = gap.last_sequence;
                last.vetoes += gap.vetoes;
                last.others += gap.others;
            }
            None => joined.push(gap),
        }
    }
    joined
}

/// Does what was written down. `going` are the records that [`prunable`] gave.
pub(super) fn carry_out(dir: &Path, sealed: &mut Vec<Sealed>, act: Act, going: &BTreeSet<u64>) -> io::Result<()> {
    match act {
        Act::Drop(segment) => {
            sealed.retain(|sealed| sealed.segment != segment);
            fs::remove_file(path_of(dir, segment))?;
        }
        Act::Prune(segment) => {
            let bytes = prune(dir, segment, going)?;
            if let Some(sealed) = sealed.iter_mut().find(|sealed| sealed.segment == segment) {
                sealed.bytes = bytes;
            }
        }
    }
    segment::sync_dir(dir)
}

/// Finishes what was written down and then cut off. What fails is tried again next time.
pub(super) fn finish(dir: &Path, retired: &Retired) {
    let Ok(present) = segment::list(dir) else { return };
    let dropped =
        |segment: &&u64| retired.gaps.iter().any(|gap| (gap.first_segment..=gap.last_segment).contains(*segment));
    for &segment in present.iter().filter(dropped) {
        let _next_time = fs::remove_file(path_of(dir, segment));
    }
    for pruned in retired.pruned.iter().filter(|pruned| pruned.records > 0 && present.contains(&pruned.segment)) {
        // The new file replaces the old one whole, so one payload gone means that all are.
        if has_gone(dir, pruned.segment).is_ok_and(|gone| !gone)
            && let Ok(going) = prunable(dir, pruned.segment)
        {
            let _next_time = prune(dir, pruned.segment, &going);
        }
    }
}

fn has_gone(dir: &Path, segment: u64) -> io::Result<bool> {
    let mut scan = Scan::open(&path_of(dir, segment), None)?;
    while let Step::Frame(frame) = scan.step()? {
        if frame.header.pruned {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sequence numbers of the records of a segment that would lose their payload: answers other than vetoes, and how
/// those checks came in.
pub(super) fn prunable(dir: &Path, segment: u64) -> io::Result<BTreeSet<u64>> {
    let (mut going, mut received) = (BTreeSet::new(), BTreeMap::new());
    each_frame(dir, segment, |header, payload| {
        match Record::decode(payload).map(|record| record.event) {
            Ok(Event::Received(check)) => {
                received.insert(check.check_id, header.sequence);
            }
            Ok(Event::Decided(decided)) if decided.verdict != Verdict::Veto => {
                going.insert(header.sequence);
                going.extend(received.remove(&decided.check_id));
            }
            Ok(_) | Err(_) => {}
        }
        Ok(())
    })?;
    Ok(going)
}

/// Rewrites a segment without those payloads, beside the old one and then over it.
fn prune(dir: &Path, segment: u64, going: &BTreeSet<u64>) -> io::Result<u64> {
    let (path, beside) = (path_of(dir, segment), path_of(dir, segment).with_extension("pruning"));
    let file = File::options().write(true).create(true).truncate(true).mode(0o640).open(&beside)?;
    let mut out = BufWriter::new(file);
    let written = each_frame(dir, segment, |header, payload| {
        if going.contains(&header.sequence) {
            return out.write_all(&Header { pruned: true, ..*header }.to_bytes());
        }
        out.write_all(&header.to_bytes())?;
        out.write_all(payload)
    })
    .and_then(|()| out.into_inner().map_err(io::IntoInnerError::into_error))
    .and_then(|file| file.sync_data().and_then(|()| file.metadata()))
    .and_then(|metadata| fs::rename(&beside, &path).map(|()| metadata.len()));
    if written.is_err() {
        let _leftover = fs::remove_file(&beside);
    }
    written
}

/// Calls `each` with every frame of a sound segment.
fn each_frame(dir: &Path, segment: u64, mut each: impl FnMut(&Header, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut scan = Scan::open(&path_of(dir, segment), None)?;
    loop {
        match scan.step()? {
            Step::Frame(frame) => each(&frame.header, frame.payload)?,
            Step::End => return Ok(()),
            Step::Damage { damage, .. } => return Err(io::Error::other(damage)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triple::Digest;

    /// A segment of 100 bytes with so many vetoes and other answers.
    fn sealed(segment: u64, vetoes: u64, others: u64) -> Sealed {
        Sealed {
            segment,
            before: Digest::of(&(segment - 1).to_le_bytes()),
            last: Digest::of(&segment.to_le_bytes()),
            first_sequence: segment * 10,
            last_sequence: segment * 10 + 9,
            bytes: 100,
            vetoes,
            others,
            last_wall_ns: segment * 1_000_000_000,
        }
    }

    /// Every step until the bounds are met, pretending that pruning halves a segment.
    fn steps(bounds: &Retention, mut log: Vec<Sealed>, now_s: u64) -> (Vec<Act>, Retired) {
        let (mut acts, mut retired) = (Vec::new(), Retired::default());
        while let Some(step) = next(bounds, &log, &retired, 0, now_s * 1_000_000_000) {
            retired = after(&retired, &log, step.act, 5).expect("there");
            match step.act {
                Act::Drop(segment) => log.retain(|sealed| sealed.segment != segment),
                Act::Prune(segment) => {
                    log.iter_mut().filter(|sealed| sealed.segment == segment).for_each(|sealed| sealed.bytes /= 2);
                }
            }
            acts.push(step.act);
            assert!(acts.len() < 100, "never ends");
        }
        (acts, retired)
    }

    #[test]
    fn segments_without_vetoes_go_first_then_payloads_then_the_oldest_vetoes() {
        let log = vec![sealed(1, 1, 1), sealed(2, 0, 9), sealed(3, 5, 0), sealed(4, 0, 9), sealed(5, 1, 1)];
        let bounds = |bytes_max| Retention { bytes_max, age_max: None, veto_age_max: None };
        assert!(steps(&bounds(500), log.clone(), 0).0.is_empty());
        let (acts, retired) = steps(&bounds(0), log, 0);
        let order =
            [Act::Drop(2), Act::Drop(4), Act::Prune(1), Act::Prune(5), Act::Drop(1), Act::Drop(3), Act::Drop(5)];
        assert_eq!(acts, order);
        let [gap] = retired.gaps.as_slice() else { panic!("one gap: {retired:?}") };
        assert_eq!((gap.first_segment, gap.last_segment, gap.first_sequence, gap.last_sequence), (1, 5, 10, 59));
        assert_eq!((gap.before, gap.last), (sealed(1, 0, 0).before, sealed(5, 0, 0).last));
        assert_eq!((gap.vetoes, gap.others), (7, 20));
        assert!(retired.pruned.is_empty(), "what is gone is no longer pruned");
    }

    #[test]
    fn age_takes_vetoes_later_than_everything_else() {
        let log = vec![sealed(1, 1, 1), sealed(2, 0, 9), sealed(60, 0, 1)];
        let age = |seconds| Some(Duration::from_secs(seconds));
        let bounds = |veto_age_max| Retention { bytes_max: u64::MAX, age_max: age(30), veto_age_max };
        assert_eq!(steps(&bounds(None), log.clone(), 61).0, [Act::Drop(2), Act::Prune(1)]);
        assert_eq!(steps(&bounds(age(50)), log.clone(), 61).0, [Act::Drop(2), Act::Prune(1), Act::Drop(1)]);
        // An age for vetoes below the general one counts as the general one.
        assert!(steps(&bounds(age(1)), log, 20).0.is_empty());
    }

    #[test]
    fn the_number_of_segments_is_bounded_too() {
        let log: Vec<_> = (1..=1030).map(|segment| sealed(segment, 0, 1)).collect();
        let bounds = Retention { bytes_max: u64::MAX, age_max: None, veto_age_max: None };
        assert_eq!(steps(&bounds, log, 0).0.len(), 6);
    }

    #[test]
    fn the_longest_statement_fits_into_a_record() {
        let gaps = (0..=1024).map(|n| after(&Retired::default(), &[sealed(3 * n + 1, 9, 9)], Act::Drop(3 * n + 1), 0));
        let gaps = gaps.flat_map(|retired| retired.expect("there").gaps).collect();
        let pruned = (0..1024).map(|segment| PrunedSegment { segment, records: u64::MAX }).collect();
        let bytes = serde_json::to_vec(&Retired { gaps, pruned }).expect("encodes").len();
        assert!(bytes < super::super::record::RECORD_BYTES_MAX / 2, "{bytes} bytes");
    }
}
