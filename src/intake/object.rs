//! The two interfaces of the bus object. What they answer is decided behind them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{Fd, Value};
use zbus::{Connection, fdo, interface};

use super::desk::{Desk, Image, Parts};
use super::details::dictionary;
use super::options::Pairs;
use super::{Denied, Details, Guard, Mode};
use crate::decision::RELEASE_NOTE_BYTES_MAX;
use crate::permit::claims::CHECK_ID_BYTES_MAX;
use crate::triple::Digest;

impl From<Denied> for fdo::Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown(_) => Self::InvalidArgs(denied.to_string()),
            Denied::NotPossible(_) => Self::Failed(denied.to_string()),
        }
    }
}

/// Refuses a text argument that is larger than anything we could have handed out.
fn bounded<'a>(name: &str, text: &'a str, bytes_max: usize) -> fdo::Result<&'a str> {
    if text.is_empty() || text.len() > bytes_max {
        return Err(fdo::Error::InvalidArgs(format!("{name} must have 1 to {bytes_max} bytes")));
    }
    Ok(text)
}

fn shown_digest(digest: Option<Digest>) -> String {
    digest.map_or_else(String::new, |digest| digest.to_string())
}

/// `org.steadfast.Guard1`: what planners call. The replies are spelt out, because `out_args` names the parts of a
/// tuple only where the macro sees one.
#[derive(Debug)]
pub struct Checks<G> {
    pub(super) desk: Arc<Desk<G>>,
}

#[interface(name = "org.steadfast.Guard1")]
impl<G: Guard> Checks<G> {
    /// May this plan run? The image comes as a sealed memfd.
    #[zbus(out_args("verdict", "reason", "malleability", "permit", "details"))]
    #[expect(clippy::too_many_arguments, reason = "four of them are the interface, the others zbus passes in")]
    async fn check(
        &self,
        image: Fd<'_>,
        instruction: &str,
        plan: &str,
        options: Pairs<'_>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<(String, String, f64, Vec<u8>, HashMap<String, Value<'static>>)> {
        let parts = Parts { image: Image::Memfd(image), instruction, plan, options };
        self.desk.check(connection, &header, &emitter, parts).await
    }

    /// May this plan run? For clients that cannot pass file descriptors; about ten times slower.
    #[zbus(out_args("verdict", "reason", "malleability", "permit", "details"))]
    #[expect(clippy::too_many_arguments, reason = "four of them are the interface, the others zbus passes in")]
    async fn check_inline(
        &self,
        image: &[u8],
        instruction: &str,
        plan: &str,
        options: Pairs<'_>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<(String, String, f64, Vec<u8>, HashMap<String, Value<'static>>)> {
        let parts = Parts { image: Image::Inline(image), instruction, plan, options };
        self.desk.check(connection, &header, &emitter, parts).await
    }

    /// What is recorded of a check.
    #[zbus(out_args("record"))]
    async fn explain(&self, check_id: &str) -> fdo::Result<HashMap<String, Value<'static>>> {
        let check_id = bounded("check_id", check_id, CHECK_ID_BYTES_MAX)?;
        Ok(dictionary(&self.desk.guard.explain(check_id).await?))
    }

    /// How the guard fares.
    #[zbus(out_args("status"))]
    async fn status(&self) -> HashMap<String, Value<'static>> {
        let mut details = self.desk.guard.status().await;
        details.extend(self.shown());
        dictionary(&details)
    }

    /// `starting`, `ready`, `degraded` or `stopping`.
    #[zbus(property)]
    fn state(&self) -> String {
        self.desk.face.state().word().to_owned()
    }

    /// `enforce` or `shadow`.
    #[zbus(property)]
    fn mode(&self) -> String {
        self.desk.face.mode().word().to_owned()
    }

    /// SHA-256 of the constitution in force, in hexadecimal; empty until one is loaded.
    #[zbus(property)]
    fn constitution_digest(&self) -> String {
        shown_digest(self.desk.face.shown().constitution)
    }

    /// SHA-256 over the proxy's files, in hexadecimal; empty until it is loaded.
    #[zbus(property)]
    fn proxy_digest(&self) -> String {
        shown_digest(self.desk.face.shown().proxy)
    }

    /// SHA-256 of the calibration in force, in hexadecimal; empty until one is loaded.
    #[zbus(property)]
    fn calibration_digest(&self) -> String {
        shown_digest(self.desk.face.shown().calibration)
    }

    /// The execution provider that really runs.
    #[zbus(property)]
    fn execution_provider(&self) -> String {
        self.desk.face.shown().execution_provider
    }

    /// Checks answered since the daemon started, those that could not be taken in included.
    #[zbus(property(emits_changed_signal = "false"))]
    fn checks(&self) -> u64 {
        self.desk.counts.checks.load(Ordering::Relaxed)
    }

    /// Checks that ended as permits.
    #[zbus(property(emits_changed_signal = "false"))]
    fn permits(&self) -> u64 {
        self.desk.counts.permits.load(Ordering::Relaxed)
    }

    /// Checks that ended as vetoes.
    #[zbus(property(emits_changed_signal = "false"))]
    fn vetoes(&self) -> u64 {
        self.desk.counts.vetoes.load(Ordering::Relaxed)
    }

    /// A check ended as a veto, in mode enforce.
    #[zbus(signal)]
    pub(super) async fn vetoed(
        emitter: &SignalEmitter<'_>,
        check_id: &str,
        reason: &str,
        malleability: f64,
    ) -> zbus::Result<()>;

    /// The state changed.
    #[zbus(signal, name = "StateChanged")]
    pub(super) async fn announce_state(emitter: &SignalEmitter<'_>, state: &str) -> zbus::Result<()>;
}

impl<G: Guard> Checks<G> {
    fn shown(&self) -> Details {
        let shown = self.desk.face.shown();
        let counts = &self.desk.counts;
        let mut details = Details::new();
        details.insert("state".to_owned(), shown.state.word().into());
        details.insert("mode".to_owned(), shown.mode.word().into());
        details.insert("constitution_digest".to_owned(), shown_digest(shown.constitution).into());
        details.insert("proxy_digest".to_owned(), shown_digest(shown.proxy).into());
        details.insert("calibration_digest".to_owned(), shown_digest(shown.calibration).into());
        details.insert("execution_provider".to_owned(), shown.execution_provider.into());
        details.insert("checks".to_owned(), counts.checks.load(Ordering::Relaxed).into());
        details.insert("permits".to_owned(), counts.permits.load(Ordering::Relaxed).into());
        details.insert("vetoes".to_owned(), counts.vetoes.load(Ordering::Relaxed).into());
        details.insert("checks_waiting".to_owned(), self.desk.waiting().into());
        details
    }
}

/// `org.steadfast.Guard1.Admin`: what a person with authority calls. The bus policy keeps everyone else out.
#[derive(Debug)]
pub struct Operations<G> {
    pub(super) desk: Arc<Desk<G>>,
}

#[interface(name = "org.steadfast.Guard1.Admin")]
impl<G: Guard> Operations<G> {
    /// Reads constitution and calibration again, or keeps the old ones and says why.
    async fn reload(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let client = self.desk.client(connection, &header).await;
        Ok(self.desk.guard.reload(&client).await?)
    }

    /// Changes the mode to `enforce` or `shadow`.
    async fn set_mode(
        &self,
        mode: &str,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let mode = Mode::from_word(mode)
            .ok_or_else(|| fdo::Error::InvalidArgs("mode must be enforce or shadow".to_owned()))?;
        let client = self.desk.client(connection, &header).await;
        Ok(self.desk.guard.set_mode(mode, &client).await?)
    }

    /// A person's leave for one vetoed plan; recorded with who and why.
    #[zbus(out_args("permit"))]
    async fn release(
        &self,
        check_id: &str,
        note: &str,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<Vec<u8>> {
        let check_id = bounded("check_id", check_id, CHECK_ID_BYTES_MAX)?;
        let note = bounded("note", note.trim(), RELEASE_NOTE_BYTES_MAX)?;
        let client = self.desk.client(connection, &header).await;
        Ok(self.desk.guard.release(check_id, note, &client).await?)
    }

    /// Takes a new signing key into use; the old one's public half stays good for the permits it signed, for as long
    /// as the overlap is configured. Gives the new key's id.
    #[zbus(out_args("key_id"))]
    async fn rotate_key(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<String> {
        let client = self.desk.client(connection, &header).await;
        Ok(self.desk.guard.rotate_key(&client).await?)
    }

    /// Drops what the ledger remembers of a task.
    async fn forget(
        &self,
        task_digest: &str,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        let task = Digest::parse(task_digest).map_err(|error| fdo::Error::InvalidArgs(error.to_string()))?;
        let client = self.desk.client(connection, &header).await;
        Ok(self.desk.guard.forget(task, &client).await?)
    }
}
