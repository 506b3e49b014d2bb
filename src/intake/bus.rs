//! The guard's place on the bus: taking the name, showing what changes, noticing when nobody can reach us any more.
//!
//! No handler blocks. Inference runs on a thread of the guard's own; what a handler does for itself is bounded by
//! [`IN_FLIGHT_MAX`] and [`INLINE_BYTES_MAX`]. Where no answer can be given — the client's code is wrong, the daemon is
//! flooded, the guard did not come back — the client gets a D-Bus error, and a D-Bus error means veto.

use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::watch;
use zbus::connection::Builder;
use zbus::fdo::{DBusProxy, RequestNameFlags};
use zbus::message::{self, Message};
use zbus::zvariant::Fd;
use zbus::{Connection, MessageStream};

use super::desk::{Desk, Underway};
use super::limits::Limits;
use super::object::{Checks, Operations};
use super::options::Pairs;
use super::{Face, Guard, Shown, boot_clock};

/// The well-known name.
pub const NAME: &str = "org.steadfast.Guard1";
/// The object's path.
pub const PATH: &str = "/org/steadfast/Guard1";
/// Calls that may be in the daemon at once, those turned away included; one more is a D-Bus error.
pub const IN_FLIGHT_MAX: usize = 512;
/// Bytes of inline images that may be in the daemon at once; what goes past it is a D-Bus error.
pub const INLINE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Clients whose user and process are remembered at once.
pub const CLIENTS_KNOWN_MAX: usize = 1024;
/// What travels as the malleability where none was read. No probability is negative, and unlike NaN it can be
/// compared.
pub const MALLEABILITY_UNREAD: f64 = -1.0;
/// How long past its deadline the guard is waited for, since its own answer at the deadline still has to be stored.
pub const LATE: Duration = Duration::from_secs(1);
/// How long the bus itself may take to answer us.
const BUS_REPLY: Duration = Duration::from_secs(5);

/// Why the bus cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The bus cannot be reached or spoken to.
    #[error("the bus cannot be used: {0}")]
    Unreachable(zbus::Error),
    /// Someone else owns the name: a second daemon, or an impostor.
    #[error("the name {NAME} is taken")]
    NameTaken,
}

impl From<zbus::Error> for BusError {
    fn from(error: zbus::Error) -> Self {
        if matches!(error, zbus::Error::NameTaken) { Self::NameTaken } else { Self::Unreachable(error) }
    }
}

/// What was lost, after which the daemon must end: nobody can reach it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The name is no longer ours.
    #[error("the name {NAME} was lost")]
    Name,
    /// The bus is gone.
    #[error("the bus is gone")]
    Bus,
}

/// The guard on the bus, for as long as this is kept.
#[derive(Debug)]
pub struct Bus {
    connection: Connection,
    lost: watch::Receiver<Option<Lost>>,
    underway: Underway,
}

impl Bus {
    /// Serves the guard at `address`, or on the system bus. Returns once the name is owned; calls are answered from
    /// that moment on, with vetoes until `face` shows a state that judges.
    ///
    /// # Errors
    /// When the bus cannot be reached, refuses, or the name is taken.
    pub async fn serve<G: Guard>(
        address: Option<&str>,
        guard: Arc<G>,
        face: Face,
        limits: Limits,
    ) -> Result<Self, BusError> {
        let builder = match address {
            Some(address) => Builder::address(address)?,
            None => Builder::system()?,
        };
        let underway = Underway::default();
        let desk = Arc::new(Desk::new(guard, face.clone(), limits, underway.clone()));
        // The object comes before the name: a call that starts us by activation must find it.
        let connection = builder
            .method_timeout(BUS_REPLY)
            .serve_at(PATH, Checks { desk: Arc::clone(&desk) })?
            .serve_at(PATH, Operations { desk: Arc::clone(&desk) })?
            .build()
            .await?;
        let lost = watch_for_loss(&connection).await?;
        // Neither queueing nor replaceable: there is one guard, and nobody takes its place while it lives.
        connection.request_name_with_flags(NAME, RequestNameFlags::DoNotQueue.into()).await?;
        tokio::spawn(announce::<G>(connection.clone(), face.watch()));
        tokio::spawn(record_unread(connection.clone(), desk));
        Ok(Self { connection, lost, underway })
    }

    /// Waits until the name or the bus is lost.
    pub async fn lost(&self) -> Lost {
        let mut lost = self.lost.clone();
        // The watcher ends with the connection it watches.
        lost.wait_for(Option::is_some).await.ok().and_then(|lost| *lost).unwrap_or(Lost::Bus)
    }

    /// Waits until the checks under way are answered, at most this long. Show a state that judges nothing first: new
    /// calls are then answered at once.
    pub async fn drain(&self, within: Duration) {
        let end = boot_clock() + within;
        let mut quiet = 0;
        // A reply is written a moment after its call is done with, so once quiet is not enough.
        while quiet < 3 && boot_clock() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
            quiet = if self.underway.count() == 0 { quiet + 1 } else { 0 };
        }
    }

    /// Gives the name back and leaves the bus. [`Bus::drain`] first: replies after this go nowhere.
    pub async fn leave(self) {
        let goodbye = async {
            let _ = self.connection.release_name(NAME).await;
            let _ = self.connection.close().await;
        };
        let _ = tokio::time::timeout(BUS_REPLY, goodbye).await;
    }
}

/// Watches, in a task of its own, for the loss of name or bus. The stream of signals must always be read: one that
/// nobody reads stops the whole connection.
async fn watch_for_loss(connection: &Connection) -> Result<watch::Receiver<Option<Lost>>, BusError> {
    let proxy = DBusProxy::new(connection).await?;
    let mut names = proxy.receive_name_lost_with_args(&[(0, NAME)]).await?;
    let (tell, lost) = watch::channel(None);
    let connection = connection.clone();
    tokio::spawn(async move {
        let name = async {
            match next(&mut names).await {
                Some(_) => Lost::Name,
                None => Lost::Bus,
            }
        };
        let what = tokio::select! {
            () = connection.closed() => Lost::Bus,
            what = name => what,
        };
        tell.send_replace(Some(what));
    });
    Ok(lost)
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *stream).poll_next(context)).await
}

/// Records the checks that the bus library answers with an error before any handler of ours sees them, because their
/// arguments are not what the interface says. Like every stream of a connection, this one must always be read.
async fn record_unread<G: Guard>(connection: Connection, desk: Arc<Desk<G>>) {
    let mut calls = MessageStream::from(&connection);
    while let Some(call) = next(&mut calls).await {
        let Some((call, why)) = call.ok().and_then(|call| unreadable(&call).map(|why| (call, why))) else { continue };
        let (connection, desk) = (connection.clone(), Arc::clone(&desk));
        tokio::spawn(async move { desk.turned_away(&connection, &call.header(), why).await });
    }
}

/// Why the arguments of a check cannot be read; `None` where they can, or where this is no check.
fn unreadable(call: &Message) -> Option<String> {
    let header = call.header();
    let to_us = header.message_type() == message::Type::MethodCall
        && header.path().is_some_and(|path| *path == PATH)
        && header.interface().is_none_or(|interface| *interface == NAME);
    let body = call.body();
    let read = match header.member().filter(|_| to_us)?.as_str() {
        "Check" => body.deserialize::<(Fd<'_>, &str, &str, Pairs<'_>)>().map(drop),
        "CheckInline" => body.deserialize::<(&[u8], &str, &str, Pairs<'_>)>().map(drop),
        _ => return None,
    };
    read.err().map(|error| error.to_string())
}

/// Shows on the bus what changes on the face.
async fn announce<G: Guard>(connection: Connection, mut face: watch::Receiver<Shown>) {
    let mut before = face.borrow_and_update().clone();
    loop {
        tokio::select! {
            () = connection.closed() => return,
            changed = face.changed() => if changed.is_err() { return },
        }
        let now = face.borrow_and_update().clone();
        if let Err(error) = announce_change::<G>(&connection, &before, &now).await {
            tracing::warn!(%error, "a change could not be announced on the bus");
        }
        before = now;
    }
}

async fn announce_change<G: Guard>(connection: &Connection, before: &Shown, now: &Shown) -> zbus::Result<()> {
    let interface = connection.object_server().interface::<_, Checks<G>>(PATH).await?;
    let (emitter, checks) = (interface.signal_emitter(), interface.get().await);
    if before.mode != now.mode {
        checks.mode_changed(emitter).await?;
    }
    if before.constitution != now.constitution {
        checks.constitution_digest_changed(emitter).await?;
    }
    if before.proxy != now.proxy {
        checks.proxy_digest_changed(emitter).await?;
    }
    if before.calibration != now.calibration {
        checks.calibration_digest_changed(emitter).await?;
    }
    if before.execution_provider != now.execution_provider {
        checks.execution_provider_changed(emitter).await?;
    }
    if before.state != now.state {
        checks.state_changed(emitter).await?;
        Checks::<G>::announce_state(emitter, now.state.word()).await?;
    }
    Ok(())
}
