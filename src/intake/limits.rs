//! Admission: how many checks may wait, how fast one client may ask, how old an image and how far a deadline may be.
//!
//! Pure state machines. Time is passed in as the time since the machine started, so a clock step changes nothing and
//! every edge can be tested.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use crate::decision::Failure;
use crate::triple::{IMAGE_BYTES_MAX, INSTRUCTION_BYTES_MAX, PLAN_BYTES_MAX, Part, TripleError};

/// Clients whose pace is remembered at once; clients are told apart by user, so a robot has a handful.
pub const CLIENTS_MAX: usize = 256;

/// The bounds a daemon admits checks by. The configuration has checked those that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Checks that may wait or run at once, all clients together.
    pub checks_max: usize,
    /// How many of them are kept for clients that have none waiting.
    pub checks_reserved: usize,
    /// Checks of one client that may wait or run at once.
    pub checks_per_client_max: usize,
    /// Checks one client may ask for per second in the long run; 0 counts as 1.
    pub checks_per_second_max: u32,
    /// Checks one client may ask for at once after a pause.
    pub checks_burst_max: u32,
    /// Shortest deadline accepted.
    pub deadline_min: Duration,
    /// Deadline where the client gives none.
    pub deadline_default: Duration,
    /// Longest deadline accepted.
    pub deadline_max: Duration,
    /// Oldest image accepted, from its stamp to the call.
    pub image_age_max: Duration,
    /// Whether a check without an image stamp is vetoed.
    pub image_stamp_required: bool,
    /// Largest encoded image accepted, in bytes.
    pub image_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            checks_max: 16,
            checks_reserved: 4,
            checks_per_client_max: 4,
            checks_per_second_max: 50,
            checks_burst_max: 25,
            deadline_min: Duration::from_millis(50),
            deadline_default: Duration::from_secs(5),
            deadline_max: Duration::from_secs(30),
            image_age_max: Duration::from_secs(2),
            image_stamp_required: false,
            image_bytes_max: IMAGE_BYTES_MAX,
        }
    }
}

impl Limits {
    /// The time an answer may take: what the client asks for, within its bounds, or the default.
    ///
    /// # Errors
    /// When the client asks for less or more than is accepted. It is not clamped: a client that believes in another
    /// deadline than the guard keeps would act on it.
    pub fn deadline(&self, asked_ms: Option<u32>) -> Result<Duration, Failure> {
        let asked = asked_ms.map_or(self.deadline_default, |ms| Duration::from_millis(ms.into()));
        if asked < self.deadline_min || asked > self.deadline_max {
            let (least, most) = (self.deadline_min.as_millis(), self.deadline_max.as_millis());
            let detail = format!("deadline_ms = {} is not between {least} and {most}", asked.as_millis());
            return Err(Failure::Input(detail));
        }
        Ok(asked)
    }

    /// Whether an image is fresh enough, by its stamp on the boot clock.
    ///
    /// # Errors
    /// When the stamp is zero, lies in the future, is older than the limit, or is missing where it is required.
    pub fn freshness(&self, stamp: Option<Duration>, now: Duration) -> Result<(), Failure> {
        let stamp = match stamp {
            Some(stamp) => stamp,
            None if self.image_stamp_required => return Err(Failure::Stamp),
            None => return Ok(()),
        };
        let age = match now.checked_sub(stamp) {
            Some(age) if !stamp.is_zero() => age,
            Some(_) | None => return Err(Failure::Stamp),
        };
        // Compared in nanoseconds: an image half a millisecond past the limit is past the limit.
        if age > self.image_age_max {
            return Err(Failure::Stale { age_ms: whole_ms(age), age_ms_max: whole_ms(self.image_age_max) });
        }
        Ok(())
    }

    /// Whether instruction and plan may be copied out of a message.
    ///
    /// # Errors
    /// When one of them is larger than its limit. What else makes a text unfit, the triple says.
    pub fn texts(&self, instruction: &str, plan: &str) -> Result<(), TripleError> {
        size(Part::Instruction, instruction.len(), INSTRUCTION_BYTES_MAX)?;
        size(Part::Plan, plan.len(), PLAN_BYTES_MAX)
    }

    /// Whether an encoded image may be copied out of a message.
    ///
    /// # Errors
    /// When it is empty or larger than its limit.
    pub fn image(&self, bytes: usize) -> Result<(), TripleError> {
        match bytes {
            0 => Err(TripleError::Empty(Part::Image)),
            bytes => size(Part::Image, bytes, self.image_bytes_max),
        }
    }
}

fn size(part: Part, bytes: usize, bytes_max: usize) -> Result<(), TripleError> {
    if bytes > bytes_max {
        return Err(TripleError::TooLarge { part, bytes, bytes_max });
    }
    Ok(())
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Why a check is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowded {
    /// As many checks as may wait are waiting.
    Full {
        /// Checks waiting or running.
        waiting: usize,
    },
    /// As many checks of this client as may wait are waiting.
    Client {
        /// Its checks waiting or running.
        waiting: usize,
    },
    /// This client asks faster than it may.
    Pace {
        /// The pace it may keep.
        checks_per_second_max: u32,
    },
}

impl From<Crowded> for Failure {
    fn from(crowded: Crowded) -> Self {
        match crowded {
            Crowded::Full { waiting } | Crowded::Client { waiting } => Self::Overload { waiting },
            Crowded::Pace { checks_per_second_max } => Self::Pace { checks_per_second_max },
        }
    }
}

/// Who waits, and how fast each client asks. `K` tells clients apart.
#[derive(Debug)]
pub struct Admission<K> {
    limits: Limits,
    waiting: usize,
    clients: HashMap<K, Presence>,
}

/// One client's part of the crowd.
#[derive(Debug, Clone, Copy, Default)]
struct Presence {
    waiting: usize,
    /// The token bucket as one number: when it will be full again. Each check moves that one interval on; a bucket
    /// that needs more than a burst's worth of intervals is empty.
    full_at: Duration,
}

impl<K: Eq + Hash + Clone> Admission<K> {
    /// Nobody waits yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, waiting: 0, clients: HashMap::new() }
    }

    /// Checks waiting or running.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Lets one check of this client in; [`Admission::finish`] gives its place back.
    ///
    /// # Errors
    /// When there is no place, or the client asks too fast. A check that is turned away costs no place and no token.
    pub fn admit(&mut self, client: &K, now: Duration) -> Result<(), Crowded> {
        let mut presence = self.clients.get(client).copied().unwrap_or_default();
        let for_anyone = self.limits.checks_max.saturating_sub(self.limits.checks_reserved);
        let places = if presence.waiting == 0 { self.limits.checks_max } else { for_anyone };
        if self.waiting >= places {
            return Err(Crowded::Full { waiting: self.waiting });
        }
        if presence.waiting >= self.limits.checks_per_client_max {
            return Err(Crowded::Client { waiting: presence.waiting });
        }
        presence.full_at = self.paced(presence.full_at, now)?;
        if !self.clients.contains_key(client) {
            self.make_room(now)?;
        }
        presence.waiting += 1;
        self.waiting += 1;
        self.clients.insert(client.clone(), presence);
        Ok(())
    }

    /// One check of this client is answered.
    pub fn finish(&mut self, client: &K) {
        if let Some(presence) = self.clients.get_mut(client).filter(|presence| presence.waiting > 0) {
            presence.waiting -= 1;
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    /// When the bucket will be full again after one more check.
    fn paced(&self, full_at: Duration, now: Duration) -> Result<Duration, Crowded> {
        let checks_per_second_max = self.limits.checks_per_second_max.max(1);
        let interval = Duration::from_secs(1) / checks_per_second_max;
        let full_at = full_at.max(now) + interval;
        if full_at.saturating_sub(now) > interval * self.limits.checks_burst_max {
            return Err(Crowded::Pace { checks_per_second_max });
        }
        Ok(full_at)
    }

    /// Forgets clients that owe nothing, so that the table stays bounded whoever comes and goes.
    fn make_room(&mut self, now: Duration) -> Result<(), Crowded> {
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.retain(|_, presence| presence.waiting > 0 || presence.full_at > now);
        }
        if self.clients.len() >= CLIENTS_MAX {
            return Err(Crowded::Full { waiting: self.waiting });
        }
        Ok(())
    }
}

/// A bounded queue that serves clients in turn, so that a client with many checks waiting delays another's by one
/// check at most. Within a client, first come is first served.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    places: usize,
    waiting: usize,
    turns: VecDeque<(K, VecDeque<T>)>,
}

impl<K: Eq, T> FairQueue<K, T> {
    /// An empty queue of at most this many items.
    #[must_use]
    pub const fn new(places: usize) -> Self {
        Self { places, waiting: 0, turns: VecDeque::new() }
    }

    /// Items waiting.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Puts an item behind the others of its client.
    ///
    /// # Errors
    /// Gives the item back when the queue is full.
    pub fn push(&mut self, client: K, item: T) -> Result<(), T> {
        if self.waiting >= self.places {
            return Err(item);
        }
        self.waiting += 1;
        match self.turns.iter_mut().find(|(waiting, _)| *waiting == client) {
            Some((_, items)) => items.push_back(item),
            None => self.turns.push_back((client, VecDeque::from([item]))),
        }
        Ok(())
    }

    /// The next item, of the client whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let (client, mut items) = self.turns.pop_front()?;
        let item = items.pop_front();
        if !items.is_empty() {
            self.turns.push_back((client, items));
        }
        self.waiting = self.waiting.saturating_sub(1);
        item
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Duration = Duration::from_secs(1_000);

    /// Limits in which pace never decides.
    fn crowd() -> Limits {
        Limits { checks_per_second_max: 10_000, checks_burst_max: 10_000, ..Limits::default() }
    }

    #[test]
    fn deadlines_hold_at_their_edges_and_one_past_them() {
        let limits = Limits::default();
        assert_eq!(limits.deadline(None), Ok(limits.deadline_default));
        for (ms, accepted) in [(0, false), (49, false), (50, true), (30_000, true), (30_001, false), (u32::MAX, false)]
        {
            assert_eq!(limits.deadline(Some(ms)).is_ok(), accepted, "{ms} ms");
        }
    }

    #[test]
    fn an_image_is_fresh_at_its_edge_and_stale_a_nanosecond_past_it() {
        let limits = Limits::default();
        let nanosecond = Duration::from_nanos(1);
        let edge = START - limits.image_age_max;
        assert_eq!(limits.freshness(Some(edge), START), Ok(()));
        let stale = Failure::Stale { age_ms: 2_000, age_ms_max: 2_000 };
        assert_eq!(limits.freshness(Some(edge - nanosecond), START), Err(stale));
        assert_eq!(limits.freshness(Some(START), START), Ok(()), "taken this instant");
        assert_eq!(limits.freshness(Some(START + nanosecond), START), Err(Failure::Stamp), "in the future");
    }

    #[test]
    fn a_zero_stamp_is_none_at_all_and_a_missing_one_only_where_it_is_not_required() {
        let limits = Limits::default();
        // Just after the start of the machine a zero stamp would look fresh.
        assert_eq!(limits.freshness(Some(Duration::ZERO), Duration::from_millis(5)), Err(Failure::Stamp));
        assert_eq!(limits.freshness(None, START), Ok(()));
        let strict = Limits { image_stamp_required: true, ..limits };
        assert_eq!(strict.freshness(None, START), Err(Failure::Stamp));
        // A stamp on the wall clock is decades ahead of the boot clock.
        assert_eq!(strict.freshness(Some(Duration::from_secs(1_700_000_000)), START), Err(Failure::Stamp));
    }

    #[test]
    fn texts_and_images_hold_at_their_edges_and_one_past_them() {
        let limits = Limits { image_bytes_max: 10, ..Limits::default() };
        assert!(limits.texts(&"i".repeat(INSTRUCTION_BYTES_MAX), &"p".repeat(PLAN_BYTES_MAX)).is_ok());
        assert!(limits.texts(&"i".repeat(INSTRUCTION_BYTES_MAX + 1), "p").is_err());
        assert!(limits.texts("i", &"p".repeat(PLAN_BYTES_MAX + 1)).is_err());
        assert!(limits.image(10).is_ok());
        assert!(limits.image(11).is_err());
        assert!(limits.image(0).is_err());
    }

    #[test]
    fn one_client_fills_its_own_places_only() {
        let mut admission = Admission::new(crowd());
        for _ in 0..4 {
            assert_eq!(admission.admit(&"greedy", START), Ok(()));
        }
        assert_eq!(admission.admit(&"greedy", START), Err(Crowded::Client { waiting: 4 }));
        assert_eq!(admission.admit(&"modest", START), Ok(()));
        admission.finish(&"greedy");
        assert_eq!(admission.admit(&"greedy", START), Ok(()));
    }

    #[test]
    fn the_last_places_are_for_clients_with_none_waiting() {
        let mut admission = Admission::new(crowd());
        for place in 0..12 {
            assert_eq!(admission.admit(&["a", "b", "c", "d"][place % 4], START), Ok(()));
        }
        assert_eq!(admission.admit(&"a", START), Err(Crowded::Full { waiting: 12 }));
        for newcomer in ["e", "f", "g", "h"] {
            assert_eq!(admission.admit(&newcomer, START), Ok(()));
            assert!(admission.admit(&newcomer, START).is_err(), "one place each");
        }
        assert_eq!(admission.admit(&"k", START), Err(Crowded::Full { waiting: 16 }));
    }

    #[test]
    fn pace_is_kept_at_its_edge_and_one_past_it() {
        let limits = Limits { checks_per_second_max: 10, checks_burst_max: 3, ..Limits::default() };
        let mut admission = Admission::new(limits);
        let mut ask = |now| {
            let asked = admission.admit(&"c", now);
            if asked.is_ok() {
                admission.finish(&"c");
            }
            asked
        };
        let too_fast = Err(Crowded::Pace { checks_per_second_max: 10 });
        for _ in 0..3 {
            assert_eq!(ask(START), Ok(()));
        }
        assert_eq!(ask(START), too_fast);
        let next = START + Duration::from_millis(100);
        assert_eq!(ask(next - Duration::from_nanos(1)), too_fast);
        assert_eq!(ask(next), Ok(()), "being turned away cost nothing");
        assert_eq!(ask(next), too_fast);
        let rested = next + Duration::from_secs(60);
        for _ in 0..3 {
            assert_eq!(ask(rested), Ok(()), "a pause fills the bucket to the burst");
        }
        assert_eq!(ask(rested), too_fast, "and no further");
    }

    #[test]
    fn a_crowd_of_passers_by_stays_bounded() {
        let mut admission = Admission::new(crowd());
        for client in 0..CLIENTS_MAX * 4 {
            let now = START + Duration::from_secs(u64::try_from(client).expect("small"));
            assert_eq!(admission.admit(&client, now), Ok(()));
            admission.finish(&client);
            assert!(admission.clients.len() <= CLIENTS_MAX);
        }
        assert_eq!(admission.waiting(), 0);
    }

    #[test]
    fn nothing_is_given_back_twice() {
        let mut admission = Admission::new(crowd());
        admission.finish(&"nobody");
        assert_eq!(admission.admit(&"c", START), Ok(()));
        admission.finish(&"c");
        admission.finish(&"c");
        assert_eq!(admission.waiting(), 0);
    }

    #[test]
    fn turns_go_round() {
        let mut queue = FairQueue::new(6);
        for (client, item) in [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 5), ("c", 6)] {
            assert_eq!(queue.push(client, item), Ok(()));
        }
        assert_eq!(queue.push("d", 7), Err(7), "full");
        let served: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(served, [1, 5, 6, 2, 3, 4]);
        assert!(queue.is_empty());
    }

    proptest! {
        #[test]
        fn however_they_come_and_go_no_bound_is_passed(
            steps in prop::collection::vec((0_u8..6, any::<bool>(), 0_u64..40), 1..400),
        ) {
            let limits = Limits { checks_max: 6, checks_reserved: 2, checks_per_client_max: 3, ..Limits::default() };
            let mut admission = Admission::new(limits.clone());
            let mut inside: HashMap<u8, usize> = HashMap::new();
            let mut now = START;
            for (client, comes, ms) in steps {
                now += Duration::from_millis(ms);
                let mine = inside.entry(client).or_default();
                if comes {
                    if admission.admit(&client, now).is_ok() {
                        *mine += 1;
                    }
                } else if *mine > 0 {
                    *mine -= 1;
                    admission.finish(&client);
                }
                prop_assert!(inside.values().all(|waiting| *waiting <= limits.checks_per_client_max));
                let total: usize = inside.values().sum();
                prop_assert!(total <= limits.checks_max);
                prop_assert_eq!(total, admission.waiting());
            }
        }
    }
}
