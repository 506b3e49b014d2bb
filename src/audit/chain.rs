//! The append-only log: segments of chained frames, one writer, and answers that wait until their record is stored.
//!
//! Callers hand records over and hold a [`Ticket`]; a thread of its own writes them in order. Whatever has queued
//! while one sync ran goes out with the next, so concurrent answers share it. [`Policy`] says what "stored" means.
//!
//! When a write or sync fails, every record in it is answered with the error, the file is cut back to the last good
//! record, and the log turns everything away until a write succeeds again; that first record is
//! [`super::record::Event::WritesFailed`]. After a failed sync the kernel may have dropped the pages it could not
//! write and call the next sync a success: so nothing behind the last good sync is trusted or written over.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::frame::Damage;
use super::record::{CheckId, EncodeError, Event, Record, Stamp};
use super::recovery::{self, Mark, Tail};
use super::retention::Retention;
use super::segment::SEGMENT_BYTES_MAX;
use super::writer::{self, Writer};
use crate::triple::Digest;

/// Most records waiting to be written.
pub const QUEUE_RECORDS_MAX: usize = 1024;
/// Most bytes of records waiting to be written.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a stored record has survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Each record is on disk before its ticket is answered: lost by nothing short of the disk itself.
    Durable,
    /// Each record is in the kernel before its ticket is answered, and on disk within [`writer::SYNC_WITHIN`]. A
    /// killed process loses nothing; a power cut or a kernel crash loses at most that interval.
    Buffered,
}

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where. Made at the first start.
    pub dir: PathBuf,
    /// What "stored" means.
    pub policy: Policy,
    /// Size at which a segment is finished, in bytes; at most [`SEGMENT_BYTES_MAX`].
    pub segment_bytes_max: u64,
    /// What may be taken out again.
    pub retention: Retention,
    /// Records between two checkpoints, at most.
    pub checkpoint_records: u64,
    /// Time between two checkpoints, at most, where anything was written.
    pub checkpoint_within: Duration,
    /// Whether texts, scenes and quoting details are left out.
    pub redact: bool,
}

impl Settings {
    /// A durable log in this directory, with everything else as the reference documentation gives it.
    #[must_use]
    pub fn durable(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            policy: Policy::Durable,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            retention: Retention::default(),
            checkpoint_records: 256,
            checkpoint_within: Duration::from_secs(60),
            redact: false,
        }
    }
}

/// Signs a message with the Ed25519 key in use, and gives its public half with the signature: the key may be rotated
/// between two messages.
pub type Sign = Box<dyn FnMut(&[u8]) -> ([u8; 32], [u8; 64]) + Send>;

/// Signs checkpoints. The key itself stays with whoever made this.
pub struct Signer(pub Sign);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

/// Why a record is not stored, or a log does not open.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    /// The record cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Too much is waiting to be written.
    #[error("{records} records are waiting to be written, which is the limit")]
    QueueFull {
        /// Records waiting.
        records: usize,
    },
    /// The file system said no.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        error: Arc<io::Error>,
    },
    /// Stored records are damaged.
    #[error("segment {segment} is damaged at byte {offset}: {damage}")]
    Damaged {
        /// Which segment.
        segment: u64,
        /// Where the damage begins, in bytes.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// Another process has the log open.
    #[error("the log {} is already open in {holder}", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Who has it: `process N`, or `another process`.
        holder: String,
    },
    /// A setting is out of its range.
    #[error("{0}")]
    Setting(&'static str),
    /// The log was closed, or its writer is gone.
    #[error("the log is closed")]
    Closed,
    /// The record was not stored in time. It may still be.
    #[error("the record was not stored within {} ms", waited.as_millis())]
    TimedOut {
        /// How long was waited.
        waited: Duration,
    },
}

/// Where a record went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the log, counting from 1.
    pub sequence: u64,
    /// Its hash, which stands for everything up to it.
    pub hash: Digest,
}

/// What becomes of a record.
pub type Outcome = Result<Stored, AuditError>;

/// A record on its way.
#[derive(Debug)]
#[must_use = "an answer may leave only when its record is stored"]
pub struct Ticket(Receiver<Outcome>);

impl Ticket {
    /// Waits until the record is stored, or is not going to be.
    ///
    /// # Errors
    /// When it could not be stored, or not in time.
    pub fn wait_blocking(self, within: Duration) -> Outcome {
        match self.0.recv_timeout(within) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => Err(AuditError::TimedOut { waited: within }),
            Err(RecvTimeoutError::Disconnected) => Err(AuditError::Closed),
        }
    }
}

/// Called once, on the writer's thread, with what became of a record. Must be short and must not panic.
pub type Completion = Box<dyn FnOnce(Outcome) + Send>;

/// A record handed to the writer.
pub(super) struct Order {
    pub(super) payload: Vec<u8>,
    pub(super) content: Digest,
    pub(super) mark: Mark,
    pub(super) done: Completion,
}

/// What the writer and its callers share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) records: AtomicUsize,
    pub(super) bytes: AtomicUsize,
    failing: Mutex<Option<AuditError>>,
}

impl Shared {
    pub(super) fn set_failing(&self, error: Option<AuditError>) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// What the log looked like when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Sequence number of the last record found; 0 for a new log.
    pub sequence: u64,
    /// An unfinished write that was cut off. It is in the log as `tail-dropped`.
    pub tail: Option<Tail>,
    /// Checks received and never decided. They are in the log as `crash-found`.
    pub undecided: Vec<CheckId>,
    /// How many more there were.
    pub undecided_more: u64,
}

/// The log, open for writing.
#[derive(Debug)]
pub struct AuditLog {
    orders: Option<SyncSender<Order>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    clock: Clock,
    redact: bool,
    opened: Opened,
    /// Held for its lock.
    _lock: File,
}

impl AuditLog {
    /// Opens a log for writing, or begins one. What a crash left is cut off, written down and reported.
    ///
    /// # Errors
    /// When another process has it open, stored records are damaged, or the file system refuses.
    pub fn open(settings: Settings, clock: Clock, signer: Option<Signer>) -> Result<Self, AuditError> {
        Self::open_on(settings, clock, signer, Box::new(writer::on_disk))
    }

    /// [`AuditLog::open`] over files that `create` opens.
    pub(super) fn open_on(
        settings: Settings,
        clock: Clock,
        signer: Option<Signer>,
        create: writer::OpenMedium,
    ) -> Result<Self, AuditError> {
        if settings.segment_bytes_max > SEGMENT_BYTES_MAX {
            return Err(AuditError::Setting("a segment must not be larger than 16 MiB"));
        }
        if settings.checkpoint_records == 0 {
            return Err(AuditError::Setting("there must be at least one record between two checkpoints"));
        }
        make_dir(&settings.dir)?;
        let lock = lock(&settings.dir)?;
        let found = recovery::look_through(&settings.dir)?;
        let redact = settings.redact;
        let shared = Arc::new(Shared::default());
        let (writer, opened) = Writer::open(settings, clock.clone(), signer, create, shared.clone(), found)?;
        let (orders, receiver) = mpsc::sync_channel(QUEUE_RECORDS_MAX);
        let thread = std::thread::Builder::new()
            .name("audit-writer".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|error| AuditError::Io {
            action: "start a thread for",
            path: PathBuf::from("the audit log"),
            error: Arc::new(error),
        })?;
        Ok(Self { orders: Some(orders), shared, writer: Some(thread), clock, redact, opened, _lock: lock })
    }

    /// What the log looked like when it was opened.
    #[must_use]
    pub const fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The time by the log's clock, for the next record.
    #[must_use]
    pub fn now(&self) -> Stamp {
        self.clock.now()
    }

    /// Why records cannot be stored at present; `None` while they can.
    #[must_use]
    pub fn failing(&self) -> Option<AuditError> {
        self.shared.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands a record over to be stored behind all that were handed over before it.
    ///
    /// # Errors
    /// When it cannot be encoded, too much is waiting, or the log is closed.
    pub fn append(&self, record: &Record) -> Result<Ticket, AuditError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // A ticket that was thrown away is nobody's concern.
        self.append_then(record, Box::new(move |outcome| drop(sender.send(outcome))))?;
        Ok(Ticket(receiver))
    }

    /// [`AuditLog::append`] for callers that cannot block: `done` is called on the writer's thread.
    ///
    /// # Errors
    /// As [`AuditLog::append`]; `done` is then not called.
    pub fn append_then(&self, record: &Record, done: Completion) -> Result<(), AuditError> {
        let payload = if self.redact {
            let mut redacted = record.clone();
            redacted.redact();
            redacted.encode()?
        } else {
            record.encode()?
        };
        let order = Order { content: Digest::of(&payload), mark: Mark::of(record), payload, done };
        let orders = self.orders.as_ref().ok_or(AuditError::Closed)?;
        let length = order.payload.len();
        let full = || AuditError::QueueFull { records: self.shared.records.load(Ordering::Relaxed) };
        if self.shared.bytes.fetch_add(length, Ordering::Relaxed) + length > QUEUE_BYTES_MAX {
            self.shared.bytes.fetch_sub(length, Ordering::Relaxed);
            return Err(full());
        }
        self.shared.records.fetch_add(1, Ordering::Relaxed);
        let refusal = match orders.try_send(order) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(_)) => full(),
            Err(TrySendError::Disconnected(_)) => AuditError::Closed,
        };
        self.shared.bytes.fetch_sub(length, Ordering::Relaxed);
        self.shared.records.fetch_sub(1, Ordering::Relaxed);
        Err(refusal)
    }

    /// Stamps an event and appends it.
    ///
    /// # Errors
    /// As [`AuditLog::append`].
    pub fn note(&self, event: Event) -> Result<Ticket, AuditError> {
        self.append(&Record::new(self.now(), event))
    }

    /// Stores what is waiting and that the guard stops, signs the end, and closes.
    ///
    /// # Errors
    /// When the stop could not be stored within the time given. The log is closed all the same.
    pub fn close(mut self, why: &str, within: Duration) -> Result<(), AuditError> {
        let outcome = self.note(Event::Stopped { why: why.to_owned() }).and_then(|ticket| ticket.wait_blocking(within));
        match outcome {
            Ok(_) => {
                self.finish();
                Ok(())
            }
            Err(error) => {
                // The disk may be hanging: leave the thread to it rather than hang with it.
                self.orders = None;
                drop(self.writer.take());
                Err(error)
            }
        }
    }

    fn finish(&mut self) {
        self.orders = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has failed every ticket already.
            drop(writer.join());
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.finish();
    }
}

fn make_dir(dir: &Path) -> Result<(), AuditError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let io = |error| AuditError::Io { action: "make", path: dir.to_owned(), error: Arc::new(error) };
    fs::DirBuilder::new().recursive(true).mode(0o750).create(dir).map_err(io)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        super::segment::sync_dir(parent).map_err(io)?;
    }
    Ok(())
}

/// Takes the log for this process alone. The file says whose it is, for the one that comes second.
fn lock(dir: &Path) -> Result<File, AuditError> {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = dir.join("lock");
    let io = |error| AuditError::Io { action: "lock", path: path.clone(), error: Arc::new(error) };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o640);
    let mut file = options.open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {
            // A full disk must not keep the guard from starting far enough to say that it is full.
            let _best_effort = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(file)
        }
        Err(TryLockError::Error(error)) => Err(io(error)),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _best_effort = (&file).take(32).read_to_string(&mut holder);
            let holder = match holder.trim().parse::<u32>() {
                Ok(pid) => format!("process {pid}"),
                Err(_) => "another process".to_owned(),
            };
            Err(AuditError::InUse { dir: dir.to_owned(), holder })
        }
    }
}
