//! From a call on the bus to its reply: every bound a check passes on its way to the guard.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, oneshot};
use zbus::Connection;
use zbus::fdo::{self, DBusProxy};
use zbus::message::Header;
use zbus::names::UniqueName;
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{Fd, Value};

use super::bus::{CLIENTS_KNOWN_MAX, IN_FLIGHT_MAX, INLINE_BYTES_MAX, LATE, MALLEABILITY_UNREAD};
use super::details::dictionary;
use super::limits::{Admission, Limits};
use super::object::Checks;
use super::options::{OptionsError, Pairs};
use super::{Answer, Call, Client, Face, Guard, Mode, Request, Verdict, boot_clock, memfd};
use crate::decision::{Failure, Reason};

/// What both interfaces share.
#[derive(Debug)]
pub(super) struct Desk<G> {
    pub(super) guard: Arc<G>,
    pub(super) face: Face,
    limits: Limits,
    admission: Mutex<Admission<Option<u32>>>,
    clients: Mutex<HashMap<String, Arc<OnceCell<Client>>>>,
    in_flight: Mutex<InFlight>,
    underway: Underway,
    pub(super) counts: Counts,
}

/// Calls being answered and checks being recorded, those among them whose client has gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Underway(Arc<AtomicUsize>);

impl Underway {
    fn one_more(&self) -> Errand {
        self.0.fetch_add(1, Ordering::AcqRel);
        Errand(self.clone())
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// One of those; ends with this value.
#[derive(Debug)]
struct Errand(Underway);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
struct InFlight {
    calls: usize,
    inline_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) checks: AtomicU64,
    pub(super) permits: AtomicU64,
    pub(super) vetoes: AtomicU64,
}

/// The image as it lies in the message.
pub(super) enum Image<'a> {
    Memfd(Fd<'a>),
    Inline(&'a [u8]),
}

/// The parts of a check as they lie in the message.
pub(super) struct Parts<'a> {
    pub(super) image: Image<'a>,
    pub(super) instruction: &'a str,
    pub(super) plan: &'a str,
    pub(super) options: Pairs<'a>,
}

/// `(verdict, reason, malleability, permit, details)`, as it travels.
pub(super) type Reply = (String, String, f64, Vec<u8>, HashMap<String, Value<'static>>);

impl<G: Guard> Desk<G> {
    pub(super) fn new(guard: Arc<G>, face: Face, limits: Limits, underway: Underway) -> Self {
        Self {
            guard,
            face,
            admission: Mutex::new(Admission::new(limits.clone())),
            limits,
            clients: Mutex::default(),
            in_flight: Mutex::default(),
            underway,
            counts: Counts::default(),
        }
    }

    /// One check, from its call to its reply.
    pub(super) async fn check(
        self: &Arc<Self>,
        connection: &Connection,
        header: &Header<'_>,
        emitter: &SignalEmitter<'_>,
        parts: Parts<'_>,
    ) -> fdo::Result<Reply> {
        let received = boot_clock();
        let _in_flight = self.enter(&parts.image)?;
        let _errand = self.underway.one_more();
        let client = self.client(connection, header).await;
        let (asked, place, misuse) = match self.take_in(&client, received, parts) {
            Ok((request, place)) => (Ok(request), Some(place), None),
            Err(OptionsError::Failure(failure)) => (Err(failure), None, None),
            Err(OptionsError::Misuse(misuse)) => (Err(Failure::Input(misuse.to_string())), None, Some(misuse)),
        };
        let deadline = asked.as_ref().map_or(received + self.limits.deadline_default, |request| request.deadline);
        let answer = self.ask(Call { client, received, asked }, place, deadline).await?;
        self.count(&answer.verdict);
        if let Some(misuse) = misuse {
            return Err(fdo::Error::InvalidArgs(format!("{misuse} (recorded as check {})", answer.check_id)));
        }
        if let (Mode::Enforce, Verdict::Veto(reason)) = (answer.mode, &answer.verdict) {
            let malleability = travelling(answer.malleability);
            // A signal nobody could be sent is no reason to hold the veto itself back.
            if let Err(error) = Checks::<G>::vetoed(emitter, &answer.check_id, reason.code(), malleability).await {
                tracing::warn!(%error, check_id = answer.check_id, "a veto could not be announced on the bus");
            }
        }
        reply(answer)
    }

    /// Records a check whose arguments cannot be read. Its client has its error from the bus library already.
    pub(super) async fn turned_away(self: &Arc<Self>, connection: &Connection, header: &Header<'_>, why: String) {
        let received = boot_clock();
        let Ok(_in_flight) = self.enter(&Image::Inline(&[])) else {
            tracing::warn!(why, "a check with wrong arguments came while too many calls were in, and is not recorded");
            return;
        };
        let client = self.client(connection, header).await;
        let asked = Err(Failure::Input(format!("the arguments are not what the interface says: {why}")));
        match self.ask(Call { client, received, asked }, None, received + self.limits.deadline_default).await {
            Ok(answer) => self.count(&answer.verdict),
            Err(error) => tracing::warn!(%error, why, "a check with wrong arguments could not be recorded"),
        }
    }

    /// Reads the parts within their bounds. The cheap refusals come first; the image is touched last.
    fn take_in(
        self: &Arc<Self>,
        client: &Client,
        received: Duration,
        parts: Parts<'_>,
    ) -> Result<(Request, Place<G>), OptionsError> {
        let failed = OptionsError::Failure;
        if !self.face.state().judges() {
            return Err(failed(Failure::NotReady));
        }
        let options = parts.options.read(&self.limits)?;
        let place = self.place(client.uid, received).map_err(failed)?;
        self.limits.texts(parts.instruction, parts.plan).map_err(|error| failed(error.into()))?;
        self.limits.freshness(options.image_stamp, received).map_err(failed)?;
        let image = match parts.image {
            Image::Memfd(memfd) => {
                memfd::read(memfd.as_fd(), self.limits.image_bytes_max).map_err(|error| failed(error.into()))?
            }
            Image::Inline(bytes) => {
                self.limits.image(bytes.len()).map_err(|error| failed(error.into()))?;
                Arc::from(bytes)
            }
        };
        let request = Request {
            instruction: parts.instruction.to_owned(),
            plan: parts.plan.to_owned(),
            image,
            deadline: received + options.deadline,
            options,
        };
        Ok((request, place))
    }

    /// Asks the guard, in a task of its own: a check that is begun is finished and recorded, even where its client
    /// has given up. The place in the queue is held until then.
    async fn ask(self: &Arc<Self>, call: Call, place: Option<Place<G>>, deadline: Duration) -> fdo::Result<Answer> {
        let guard = Arc::clone(&self.guard);
        let (send, answer) = oneshot::channel();
        let errand = self.underway.one_more();
        tokio::spawn(async move {
            let answer = guard.check(call).await;
            drop((place, errand));
            let _ = send.send(answer);
        });
        let left = (deadline + LATE).saturating_sub(boot_clock());
        match tokio::time::timeout(left, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(fdo::Error::Failed("the check ended without an answer: this is a veto".to_owned())),
            Err(_) => Err(fdo::Error::TimedOut("no answer by the deadline: this is a veto".to_owned())),
        }
    }

    fn count(&self, verdict: &Verdict) {
        let kind = match verdict {
            Verdict::Permit(_) => Some(&self.counts.permits),
            Verdict::Veto(_) => Some(&self.counts.vetoes),
            Verdict::Refusal => None,
        };
        self.counts.checks.fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = kind {
            kind.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Who calls. The bus is asked once per connection, since it never uses a unique name twice.
    pub(super) async fn client(&self, connection: &Connection, header: &Header<'_>) -> Client {
        let Some(sender) = header.sender() else {
            return Client { bus_name: String::new(), uid: None, pid: None };
        };
        let known = {
            let mut clients = locked(&self.clients);
            if clients.len() >= CLIENTS_KNOWN_MAX && !clients.contains_key(sender.as_str()) {
                clients.clear();
            }
            Arc::clone(clients.entry(sender.as_str().to_owned()).or_default())
        };
        known.get_or_init(|| ask_bus_who(connection, sender)).await.clone()
    }

    /// Checks that wait or run.
    pub(super) fn waiting(&self) -> usize {
        locked(&self.admission).waiting()
    }

    /// Lets a call in, if there is room for it at all.
    fn enter(self: &Arc<Self>, image: &Image<'_>) -> fdo::Result<Presence<G>> {
        let inline_bytes = match image {
            Image::Memfd(_) => 0,
            Image::Inline(bytes) => bytes.len(),
        };
        let mut in_flight = locked(&self.in_flight);
        if in_flight.calls >= IN_FLIGHT_MAX || in_flight.inline_bytes + inline_bytes > INLINE_BYTES_MAX {
            return Err(fdo::Error::LimitsExceeded("too many calls at once: this is a veto".to_owned()));
        }
        in_flight.calls += 1;
        in_flight.inline_bytes += inline_bytes;
        Ok(Presence { desk: Arc::clone(self), inline_bytes })
    }

    /// A place among the checks that wait or run.
    fn place(self: &Arc<Self>, uid: Option<u32>, now: Duration) -> Result<Place<G>, Failure> {
        locked(&self.admission).admit(&uid, now)?;
        Ok(Place { desk: Arc::clone(self), uid })
    }
}

/// Nothing behind these locks is ever left half-changed, so a panic elsewhere does not spoil them.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn ask_bus_who(connection: &Connection, sender: &UniqueName<'_>) -> Client {
    let credentials = async {
        let bus = DBusProxy::new(connection).await?;
        bus.get_connection_credentials(sender.clone().into()).await
    };
    let (uid, pid) = match credentials.await {
        Ok(credentials) => (credentials.unix_user_id(), credentials.process_id()),
        Err(error) => {
            tracing::debug!(%error, client = sender.as_str(), "the bus does not say who this client is");
            (None, None)
        }
    };
    Client { bus_name: sender.as_str().to_owned(), uid, pid }
}

/// A call being in the daemon.
struct Presence<G: Guard> {
    desk: Arc<Desk<G>>,
    inline_bytes: usize,
}

impl<G: Guard> Drop for Presence<G> {
    fn drop(&mut self) {
        let mut in_flight = locked(&self.desk.in_flight);
        in_flight.calls -= 1;
        in_flight.inline_bytes -= self.inline_bytes;
    }
}

/// A check's place among those that wait or run.
struct Place<G: Guard> {
    desk: Arc<Desk<G>>,
    uid: Option<u32>,
}

impl<G: Guard> Drop for Place<G> {
    fn drop(&mut self) {
        locked(&self.desk.admission).finish(&self.uid);
    }
}

/// The answer as it travels. One that could be misread does not leave.
fn reply(answer: Answer) -> fdo::Result<Reply> {
    let Answer { check_id, mode, verdict, malleability, mut details } = answer;
    let (word, reason, permit) = match verdict {
        Verdict::Permit(permit) => ("permit", None, permit),
        Verdict::Veto(reason) => ("veto", Some(reason), Vec::new()),
        Verdict::Refusal => ("refusal", None, Vec::new()),
    };
    let (word, permit) = match mode {
        Mode::Enforce if word == "permit" && permit.is_empty() => {
            return Err(fdo::Error::Failed(format!("check {check_id} ended without a permit: this is a veto")));
        }
        Mode::Enforce => (word.to_owned(), permit),
        Mode::Shadow => (format!("shadow-{word}"), Vec::new()),
    };
    details.insert("check_id".to_owned(), check_id.into());
    details.insert("mode".to_owned(), mode.word().into());
    let reason = reason.map_or("", Reason::code).to_owned();
    Ok((word, reason, travelling(malleability), permit, dictionary(&details)))
}

fn travelling(malleability: Option<f64>) -> f64 {
    malleability.filter(|value| value.is_finite()).unwrap_or(MALLEABILITY_UNREAD)
}
