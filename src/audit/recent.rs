//! The last checks in memory: answers for `Explain` without touching the disk, and the triples of the seconds before a
//! veto. Both are bounded in number and in bytes, whatever comes in.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::record::{CheckId, Decided, Received, Stamp};

/// One answered check.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// When it was answered.
    pub at: Stamp,
    /// How it came in.
    pub received: Received,
    /// How it was answered.
    pub decided: Decided,
}

/// The last answers, found by check id.
#[derive(Debug)]
pub struct Recent {
    answers_max: usize,
    order: VecDeque<CheckId>,
    answers: HashMap<CheckId, Arc<Answered>>,
}

impl Recent {
    /// Keeps at most this many answers.
    #[must_use]
    pub fn new(answers_max: usize) -> Self {
        Self { answers_max, order: VecDeque::new(), answers: HashMap::new() }
    }

    /// Remembers an answer, and forgets the oldest where there is no room.
    pub fn remember(&mut self, answered: Answered) {
        let id = answered.decided.check_id;
        if self.answers.insert(id, Arc::new(answered)).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > self.answers_max {
            if let Some(oldest) = self.order.pop_front() {
                self.answers.remove(&oldest);
            }
        }
    }

    /// The answer to this check, if it is among the last. Look into the log for older ones: [`super::read::show`].
    #[must_use]
    pub fn find(&self, id: CheckId) -> Option<Arc<Answered>> {
        self.answers.get(&id).cloned()
    }

    /// The answers kept, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<Answered>> {
        self.order.iter().rev().filter_map(|id| self.answers.get(id))
    }
}

/// A triple as it was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glimpse {
    /// The check it was judged in.
    pub check_id: CheckId,
    /// When it came in.
    pub at: Stamp,
    /// What the robot was told.
    pub instruction: String,
    /// What the robot saw, encoded; shared with whoever judged it.
    pub image: Arc<[u8]>,
    /// What the planner answered.
    pub plan: String,
}

impl Glimpse {
    /// What it takes of memory, itself included: a camera's thumbnails weigh less than what is noted about them.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.at.boot_id.len() + self.instruction.len() + self.image.len() + self.plan.len()
    }
}

/// The triples of the last seconds, for the evidence kept with a veto.
#[derive(Debug)]
pub struct Glimpses {
    bytes_max: usize,
    keep_ns: u64,
    bytes: usize,
    ring: VecDeque<Arc<Glimpse>>,
}

impl Glimpses {
    /// Keeps at most this many bytes, and nothing for longer than this.
    #[must_use]
    pub const fn new(bytes_max: usize, keep_ns: u64) -> Self {
        Self { bytes_max, keep_ns, bytes: 0, ring: VecDeque::new() }
    }

    /// Remembers a triple, and forgets the oldest until it fits, and what nobody will ask for any more. One larger than
    /// the whole ring is not kept.
    pub fn remember(&mut self, glimpse: Glimpse) {
        let bytes = glimpse.bytes();
        if bytes > self.bytes_max {
            return;
        }
        let earliest = glimpse.at.boot_ns.saturating_sub(self.keep_ns);
        let full = |held: usize| held + bytes > self.bytes_max;
        while self.ring.front().is_some_and(|oldest| full(self.bytes) || oldest.at.boot_ns < earliest) {
            let Some(oldest) = self.ring.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
        self.bytes += bytes;
        self.ring.push_back(Arc::new(glimpse));
    }

    /// The triples that came in within this time before (and at) a moment of the same boot, oldest first.
    #[must_use]
    pub fn before(&self, moment: &Stamp, within_ns: u64) -> Vec<Arc<Glimpse>> {
        let earliest = moment.boot_ns.saturating_sub(within_ns);
        let wanted = |glimpse: &&Arc<Glimpse>| {
            glimpse.at.boot_id == moment.boot_id && (earliest..=moment.boot_ns).contains(&glimpse.at.boot_ns)
        };
        self.ring.iter().filter(wanted).cloned().collect()
    }

    /// Bytes kept at present.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{received, stamp, veto};
    use super::super::record::{Event, Record};
    use super::*;
    use crate::decision::Reason;

    fn answered(id: u8) -> Answered {
        let (Event::Received(received), Record { at, event: Event::Decided(decided), .. }) =
            (received(id).event, veto(id, Reason::Rule, "too heavy"))
        else {
            panic!("a received and a decided record");
        };
        Answered { at, received: *received, decided: *decided }
    }

    #[test]
    fn the_last_answers_are_found_and_older_ones_forgotten() {
        let mut recent = Recent::new(3);
        (1..=5).for_each(|id| recent.remember(answered(id)));
        recent.remember(answered(5));
        let known = |id| recent.find(CheckId::from_bytes([id; 16])).is_some();
        assert_eq!([1, 2, 3, 4, 5].map(known), [false, false, true, true, true]);
        let newest: Vec<u8> = recent.newest_first().map(|a| a.decided.check_id.as_bytes()[0]).collect();
        assert_eq!(newest, [5, 4, 3]);
        assert_eq!((recent.order.len(), recent.answers.len()), (3, 3));
    }

    fn glimpse(id: u8, boot_ns: u64, bytes: usize) -> Glimpse {
        Glimpse {
            check_id: CheckId::from_bytes([id; 16]),
            at: Stamp { boot_ns, ..stamp(1) },
            instruction: String::new(),
            image: vec![id; bytes].into(),
            plan: String::new(),
        }
    }

    #[test]
    fn glimpses_never_exceed_their_bytes() {
        // As many empty ones would fit as they weigh themselves, and no more.
        let own = glimpse(0, 0, 0).bytes();
        let most = 100 + 2 * own;
        let mut glimpses = Glimpses::new(most, u64::MAX);
        for (id, bytes) in [(1, 40), (2, 40), (3, 40), (4, 101 + own), (5, 100 + own)] {
            glimpses.remember(glimpse(id, u64::from(id), bytes));
            assert!(glimpses.bytes() <= most);
            assert_eq!(glimpses.bytes(), glimpses.ring.iter().map(|glimpse| glimpse.bytes()).sum::<usize>());
        }
        assert_eq!(glimpses.ring.len(), 1);
    }

    #[test]
    fn glimpses_are_forgotten_once_nobody_will_ask_for_them() {
        // By bytes alone a hundred thousand small pictures stayed in memory.
        let mut glimpses = Glimpses::new(usize::MAX, 10);
        (1..=100).for_each(|id| glimpses.remember(glimpse(id, u64::from(id), 1)));
        assert_eq!(glimpses.ring.len(), 11, "the newest and those of the ten nanoseconds before it");
        assert_eq!(glimpses.bytes(), glimpses.ring.iter().map(|glimpse| glimpse.bytes()).sum::<usize>());
    }

    #[test]
    fn only_the_seconds_before_of_this_boot_are_given() {
        let mut glimpses = Glimpses::new(usize::MAX, u64::MAX);
        (1..=5).for_each(|id| glimpses.remember(glimpse(id, u64::from(id) * 10, 1)));
        let moment = Stamp { boot_ns: 40, ..stamp(1) };
        let ids: Vec<u8> = glimpses.before(&moment, 20).iter().map(|glimpse| glimpse.check_id.as_bytes()[0]).collect();
        assert_eq!(ids, [2, 3, 4]);
        let other_boot = Stamp { boot_id: "other".to_owned(), ..moment };
        assert!(glimpses.before(&other_boot, 20).is_empty());
    }
}
