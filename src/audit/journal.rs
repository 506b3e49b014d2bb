//! Tells journald about vetoes, and never lets journald hold an answer up.
//!
//! A journald that has stopped reading blocks whoever writes to it, for as long as it pleases; one that is gone loses
//! what it is sent without a word. So a note goes into a ring of fixed size, without waiting, and a thread of its own
//! hands it on: it looks whether the socket is there before and after each note, keeps what it could not hand on, and
//! tries again. A note that finds the ring full is counted, not waited for. The log in [`super::chain`] is the record;
//! this is the alarm.
//!
//! Fields are `STEADFAST_CHECK_ID`, `_VERDICT`, `_REASON`, `_DETAIL`, `_MODE`, `_TRIPLE`, `_MALLEABILITY`, `_PROXY`,
//! `_CONSTITUTION` and `_CALIBRATION`, with [`MESSAGE_ID`]. Values are framed by length on the way, so no text in them
//! can forge a field.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt as _;

use super::record::{Decided, Mode, Verdict, keep_start};

/// `MESSAGE_ID` of a veto: `journalctl MESSAGE_ID=…` lists them all.
pub const MESSAGE_ID: &str = "b0c961f8881029adc90b68d18205450e";
/// Most notes waiting for journald.
pub const NOTES_MAX: usize = 256;
/// Longest detail sent, in bytes of UTF-8; the log keeps the whole.
pub const DETAIL_BYTES_MAX: usize = 2048;

/// Where journald listens; the library sends there and nowhere else.
const SOCKET: &str = "/run/systemd/journal/socket";
/// How long to wait before trying again.
const RETRY: Duration = Duration::from_millis(250);

/// What journald is told of a veto.
#[derive(Debug, Clone, PartialEq)]
pub struct VetoNote {
    check_id: String,
    reason: &'static str,
    detail: String,
    mode: Mode,
    triple: String,
    /// Empty where there is none: journald has no absent value in a field that is named.
    malleability: String,
    proxy: String,
    constitution: String,
    calibration: String,
}

impl VetoNote {
    /// The note on an answer; `None` where it was no veto. Give it what was stored, so that redaction holds here too.
    #[must_use]
    pub fn of(decided: &Decided) -> Option<Self> {
        if decided.verdict != Verdict::Veto {
            return None;
        }
        let malleability = decided.readings.as_ref().and_then(|readings| readings.malleability);
        Some(Self {
            check_id: decided.check_id.to_string(),
            reason: decided.reason.map_or("", |reason| reason.code()),
            detail: keep_start(&decided.detail, DETAIL_BYTES_MAX),
            mode: decided.mode,
            triple: decided.triple.map(|triple| triple.to_string()).unwrap_or_default(),
            malleability: malleability.map(|reading| reading.get().to_string()).unwrap_or_default(),
            proxy: decided.guard.proxy.to_string(),
            constitution: decided.guard.constitution.to_string(),
            calibration: decided.guard.calibration.to_string(),
        })
    }

    fn send(&self) {
        let shadow = match self.mode {
            Mode::Enforce => "",
            Mode::Shadow => "shadow mode, not enforced: ",
        };
        tracing::warn!(
            check_id = self.check_id.as_str(),
            verdict = "veto",
            reason = self.reason,
            detail = self.detail.as_str(),
            mode = self.mode.code(),
            triple = self.triple.as_str(),
            malleability = self.malleability.as_str(),
            proxy = self.proxy.as_str(),
            constitution = self.constitution.as_str(),
            calibration = self.calibration.as_str(),
            "{shadow}veto ({}): {}",
            self.reason,
            self.detail,
        );
    }
}

#[derive(Debug, Default)]
struct Counts {
    told: AtomicU64,
    dropped: AtomicU64,
    /// No further notes will come.
    stopping: AtomicBool,
    /// What is still waiting stays behind.
    giving_up: AtomicBool,
}

/// The way to journald.
pub struct Journal {
    ring: Mutex<HeapProd<VetoNote>>,
    counts: Arc<Counts>,
    thread: Thread,
    finished: Receiver<u64>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Journal {
    /// Begins. A journald that is not there yet is no error: notes wait for it. `identifier` is the
    /// `SYSLOG_IDENTIFIER`.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(identifier: &str) -> io::Result<Self> {
        let (ring, notes) = HeapRb::new(NOTES_MAX).split();
        let counts = Arc::new(Counts::default());
        let (finish, finished) = mpsc::sync_channel(1);
        let teller = Teller { identifier: identifier.to_owned(), notes, counts: counts.clone(), dispatch: None };
        let thread = std::thread::Builder::new().name("audit-journal".to_owned()).spawn(move || {
            let left = teller.run();
            // Nobody may be waiting any more.
            let _nobody_waits = finish.try_send(left);
        })?;
        Ok(Self { ring: Mutex::new(ring), counts, thread: thread.thread().clone(), finished })
    }

    /// Leaves a note for journald, without waiting for it. False where the ring was full and the note is lost.
    pub fn tell(&self, note: VetoNote) -> bool {
        let kept = self.ring.lock().unwrap_or_else(PoisonError::into_inner).try_push(note).is_ok();
        if kept {
            self.thread.unpark();
        } else {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        kept
    }

    /// Notes handed to journald so far.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.counts.told.load(Ordering::Relaxed)
    }

    /// Notes lost so far because journald did not keep up.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Hands on what is waiting, for at most this long and a moment. Gives the number of notes left behind; `None` where journald
    /// was still holding the thread up.
    #[must_use]
    pub fn stop(self, within: Duration) -> Option<u64> {
        self.counts.stopping.store(true, Ordering::Release);
        self.thread.unpark();
        if let Ok(left) = self.finished.recv_timeout(within) {
            return Some(left);
        }
        self.counts.giving_up.store(true, Ordering::Release);
        self.thread.unpark();
        // A thread stuck in journald's socket cannot be called back; it ends with the process.
        self.finished.recv_timeout(RETRY).ok()
    }
}

/// What runs on the journal's own thread.
struct Teller {
    identifier: String,
    notes: HeapCons<VetoNote>,
    counts: Arc<Counts>,
    dispatch: Option<Dispatch>,
}

impl Teller {
    /// Hands notes on until it is told to stop; gives the number left behind.
    fn run(mut self) -> u64 {
        let mut waiting: Option<VetoNote> = None;
        loop {
            // Read before looking into the ring, so that a note told before the stop is seen.
            let stopping = self.counts.stopping.load(Ordering::Acquire);
            match waiting.take().or_else(|| self.notes.try_pop()) {
                Some(note) if self.hand_on(&note) => {
                    self.counts.told.fetch_add(1, Ordering::Relaxed);
                }
                Some(_) if self.counts.giving_up.load(Ordering::Acquire) => {
                    return 1 + u64::try_from(self.notes.pop_iter().count()).unwrap_or(u64::MAX);
                }
                Some(note) => {
                    waiting = Some(note);
                    std::thread::park_timeout(RETRY);
                }
                None if stopping => return 0,
                None => std::thread::park_timeout(RETRY),
            }
        }
    }

    /// Whether journald was there before and after: one that went in between is told again rather than never.
    fn hand_on(&mut self, note: &VetoNote) -> bool {
        if !is_there() {
            return false;
        }
        let Some(dispatch) = self.dispatch() else { return false };
        tracing::dispatcher::with_default(dispatch, || note.send());
        is_there()
    }

    fn dispatch(&mut self) -> Option<&Dispatch> {
        if self.dispatch.is_none() {
            let layer = tracing_journald::layer()
                .ok()?
                .with_field_prefix(Some("STEADFAST".to_owned()))
                .with_syslog_identifier(self.identifier.clone())
                .with_custom_fields([("MESSAGE_ID", MESSAGE_ID)]);
            self.dispatch = Some(Dispatch::new(tracing_subscriber::registry().with(layer)));
        }
        self.dispatch.as_ref()
    }
}

/// Whether somebody has journald's socket open. The library drops what it cannot send without saying so.
fn is_there() -> bool {
    UnixDatagram::unbound().is_ok_and(|socket| socket.connect(SOCKET).is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::veto;
    use super::super::record::{Event, Record};
    use super::*;
    use crate::decision::Reason;

    fn decided(detail: &str) -> Decided {
        let Record { event: Event::Decided(decided), .. } = veto(1, Reason::Rule, detail) else { panic!("decided") };
        *decided
    }

    #[test]
    fn only_vetoes_are_told_and_long_details_are_cut() {
        let mut decided = decided(&"é".repeat(4096));
        let note = VetoNote::of(&decided).expect("a veto");
        assert_eq!(note.detail.len(), DETAIL_BYTES_MAX);
        assert_eq!(note.reason, "rule");
        decided.verdict = Verdict::Permit;
        assert_eq!(VetoNote::of(&decided), None);
    }
}
