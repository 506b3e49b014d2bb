//! The bus face of the guard: what may be asked, how an answer leaves, and everything that is checked in between.
//!
//! The daemon implements [`Guard`]; [`bus`] reads a call, bounds it by [`limits`], takes the image out of its
//! [`memfd`], and hands the guard a [`Call`]. A call that could not be taken in reaches the guard too, so that it is
//! written down and answered like any other. [`readiness`] tells systemd how the daemon fares.

pub mod bus;
pub mod client;
mod desk;
mod details;
pub mod limits;
pub mod memfd;
mod object;
pub mod options;
pub mod readiness;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;

pub use self::options::Options;
pub use crate::config::fragment::Mode;
use crate::decision::{Failure, Reason};
use crate::triple::Digest;

/// Named values for a person or a program: `a{sv}` on the bus.
///
/// Text travels as `s`, a flag as `b`, a whole number as `t` or `x`, any other number as `d`, an object as `a{sv}`; a
/// list as `as`, `ad` or `av` by what it holds. What is null is left out: a reading that was not taken has no key.
pub type Details = Map<String, Value>;

/// Who asks, as the bus vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Client {
    /// The unique name on the bus, such as `:1.42`; never used twice while the bus lives.
    pub bus_name: String,
    /// The user, where the bus could say.
    pub uid: Option<u32>,
    /// The process, where the bus could say. It may have ended since, and its number may be taken again.
    pub pid: Option<u32>,
}

/// A triple whose parts were read within the limits, and what the client wants beside.
#[derive(Debug, Clone)]
pub struct Request {
    /// What the robot was told.
    pub instruction: String,
    /// What the planner wants to do.
    pub plan: String,
    /// What the robot sees, still encoded.
    pub image: Arc<[u8]>,
    /// What else was asked, within its bounds.
    pub options: Options,
    /// When the answer must have left, on the boot clock.
    pub deadline: Duration,
}

/// One call to `Check` or `CheckInline`.
#[derive(Debug)]
pub struct Call {
    /// Who asks.
    pub client: Client,
    /// When the call reached the daemon, on the boot clock.
    pub received: Duration,
    /// What is asked, or why it could not be taken in: a failure is written down and answered as a veto.
    pub asked: Result<Request, Failure>,
}

/// What a check comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// This plan may run. Holds the signed permit, which is never empty in mode enforce.
    Permit(Vec<u8>),
    /// This plan must not run.
    Veto(Reason),
    /// The planner refused: there is nothing to run.
    Refusal,
}

/// What leaves for the client. Its record is stored by then.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The name of this check in the records, for `Explain` and `Release`.
    pub check_id: String,
    /// The mode it was given in. In shadow the verdict leaves as `shadow-permit`, `shadow-veto` or `shadow-refusal`
    /// and without a permit, so that no client can take it for an enforced one.
    pub mode: Mode,
    /// What the check came to.
    pub verdict: Verdict,
    /// Probability in [0, 1] that the verdict bends; `None` where it was not read, which travels as −1.
    pub malleability: Option<f64>,
    /// Everything else worth knowing. `check_id` and `mode` are added on the way out.
    pub details: Details,
}

/// Why an operation beside a check is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nothing is recorded under that name.
    #[error("nothing is recorded as {0}")]
    Unknown(String),
    /// It is not possible now, or not for this check.
    #[error("{0}")]
    NotPossible(String),
}

/// What answers behind the bus. Implemented by the daemon, and by stubs in tests.
///
/// Every method may be called from several tasks at once. None may block its thread: inference has a thread of its
/// own. A check is never dropped half-way, even where its client has gone, so that its record gets its second half.
pub trait Guard: Send + Sync + 'static {
    /// Judges a call and stores its records; the answer leaves as soon as this returns.
    fn check(&self, call: Call) -> impl Future<Output = Answer> + Send;

    /// What is recorded of a check.
    ///
    /// # Errors
    /// When nothing is recorded under that name.
    fn explain(&self, check_id: &str) -> impl Future<Output = Result<Details, Denied>> + Send;

    /// How the guard fares. The properties of the bus object are added on the way out.
    fn status(&self) -> impl Future<Output = Details> + Send;

    /// Reads constitution and calibration again; keeps the old ones when the new are not valid.
    ///
    /// # Errors
    /// When the new ones are not valid, with the reason.
    fn reload(&self, client: &Client) -> impl Future<Output = Result<(), Denied>> + Send;

    /// Changes the mode.
    ///
    /// # Errors
    /// When the mode may not be changed, or the change could not be recorded.
    fn set_mode(&self, mode: Mode, client: &Client) -> impl Future<Output = Result<(), Denied>> + Send;

    /// A person's leave for one vetoed plan: the signed permit.
    ///
    /// # Errors
    /// When that check is not known, was no veto, or the release could not be recorded.
    fn release(
        &self,
        check_id: &str,
        note: &str,
        client: &Client,
    ) -> impl Future<Output = Result<Vec<u8>, Denied>> + Send;

    /// Takes a new signing key into use: its id.
    ///
    /// # Errors
    /// When the old one stays, or the new one is in use and that could not be written down whole.
    fn rotate_key(&self, client: &Client) -> impl Future<Output = Result<String, Denied>> + Send;

    /// Drops what the ledger remembers of a task.
    ///
    /// # Errors
    /// When the ledger does not know the task, or the removal could not be recorded.
    fn forget(&self, task: Digest, client: &Client) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// How far the guard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Models are loading; every check is vetoed.
    #[default]
    Starting,
    /// Checks are judged.
    Ready,
    /// Checks are judged, but something needs a person's attention.
    Degraded,
    /// The daemon is going away; every check is vetoed.
    Stopping,
}

impl State {
    /// The stable word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Stopping => "stopping",
        }
    }

    /// Whether checks are judged.
    #[must_use]
    pub const fn judges(self) -> bool {
        match self {
            Self::Ready | Self::Degraded => true,
            Self::Starting | Self::Stopping => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What the properties of the bus object show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// How far the guard is. The bus vetoes every check while this state judges none.
    pub state: State,
    /// The mode new checks are answered in.
    pub mode: Mode,
    /// The constitution in force; `None` shows as an empty text.
    pub constitution: Option<Digest>,
    /// The proxy that judges; `None` shows as an empty text.
    pub proxy: Option<Digest>,
    /// The calibration in force; `None` shows as an empty text.
    pub calibration: Option<Digest>,
    /// The execution provider that really runs.
    pub execution_provider: String,
}

impl Shown {
    /// A guard that has only just begun to load.
    #[must_use]
    pub const fn starting(mode: Mode) -> Self {
        let execution_provider = String::new();
        Self { state: State::Starting, mode, constitution: None, proxy: None, calibration: None, execution_provider }
    }
}

/// The daemon's end of [`Shown`]: what is changed here appears on the bus, with its signals. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Face(watch::Sender<Shown>);

impl Face {
    /// A face in the given condition.
    #[must_use]
    pub fn new(shown: Shown) -> Self {
        Self(watch::Sender::new(shown))
    }

    /// What is shown now.
    #[must_use]
    pub fn shown(&self) -> Shown {
        self.0.borrow().clone()
    }

    /// How far the guard is now.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.borrow().state
    }

    /// The mode now.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.borrow().mode
    }

    /// Changes what is shown; never waits. Changes in quick succession may be seen as one.
    pub fn change(&self, change: impl FnOnce(&mut Shown)) {
        self.0.send_if_modified(|shown| {
            let before = shown.clone();
            change(shown);
            *shown != before
        });
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Shown> {
        self.0.subscribe()
    }
}

/// Time since the machine started, sleep included: no clock step moves it. Deadlines, rates, image stamps and permits
/// all live on it.
#[must_use]
pub fn boot_clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_serde_writes_and_read_back() {
        for mode in [Mode::Enforce, Mode::Shadow] {
            assert_eq!(serde_json::to_string(&mode).expect("json"), format!("\"{mode}\""));
            assert_eq!(Mode::from_word(mode.word()), Some(mode));
        }
        assert_eq!(Mode::from_word("off"), None);
        for state in [State::Starting, State::Ready, State::Degraded, State::Stopping] {
            assert_eq!(serde_json::to_string(&state).expect("json"), format!("\"{state}\""));
        }
    }

    #[test]
    fn a_face_tells_of_changes_only() {
        let face = Face::new(Shown::starting(Mode::Enforce));
        let mut watch = face.watch();
        face.change(|shown| shown.state = State::Starting);
        assert!(!watch.has_changed().expect("open"));
        face.change(|shown| shown.state = State::Ready);
        assert!(watch.has_changed().expect("open"));
        assert_eq!(watch.borrow_and_update().state, State::Ready);
    }
}
