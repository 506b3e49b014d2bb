//! Keeps what a vetoed robot saw, on a thread of its own: evidence that is late or lost never holds an answer up.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::audit::evidence::Evidence;
use crate::audit::recent::{Glimpse, Glimpses};

/// Most bytes of triples remembered for the vetoes to come.
const GLIMPSES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long before a veto a triple belongs to its evidence.
const BEFORE: Duration = Duration::from_secs(5);
/// Vetoes whose evidence may wait to be written. They share the images with the glimpses.
const WAITING_MAX: usize = 16;

/// A veto whose evidence is to be kept.
struct Order {
    vetoed: Glimpse,
    before: Vec<Arc<Glimpse>>,
}

/// The seconds before, and the thread that writes.
pub(super) struct Exhibits {
    glimpses: Mutex<Glimpses>,
    orders: SyncSender<Order>,
    ended: Mutex<Receiver<()>>,
    lost: Arc<AtomicU64>,
}

impl Exhibits {
    /// Opens the evidence in this folder and starts its thread. A veto asks for its seconds before at latest this long
    /// after it came in.
    ///
    /// # Errors
    /// When the folder cannot be made or read, or no thread can be started.
    pub(super) fn open(folder: &Path, bytes_max: u64, answered_within: Duration) -> io::Result<Self> {
        let mut evidence = Evidence::open(folder, bytes_max)?;
        let (orders, waiting) = mpsc::sync_channel::<Order>(WAITING_MAX);
        let (end, ended) = mpsc::sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let losses = Arc::clone(&lost);
        std::thread::Builder::new().name("evidence".to_owned()).spawn(move || {
            for Order { vetoed, before } in waiting {
                match evidence.keep(&vetoed, &before) {
                    Ok(Some(_)) => {}
                    Ok(None) => drop(losses.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => {
                        losses.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(check_id = %vetoed.check_id, %error, "the evidence of a veto could not be kept");
                    }
                }
            }
            drop(end);
        })?;
        let keep_ns = u64::try_from((BEFORE + answered_within).as_nanos()).unwrap_or(u64::MAX);
        let glimpses = Mutex::new(Glimpses::new(GLIMPSES_BYTES_MAX, keep_ns));
        Ok(Self { glimpses, orders, ended: Mutex::new(ended), lost })
    }

    /// Remembers a triple for the vetoes to come.
    pub(super) fn saw(&self, glimpse: Glimpse) {
        self.glimpses.lock().unwrap_or_else(PoisonError::into_inner).remember(glimpse);
    }

    /// Has a veto's triple and those before it written; never waits.
    pub(super) fn keep(&self, vetoed: Glimpse) {
        let within = u64::try_from(BEFORE.as_nanos()).unwrap_or(u64::MAX);
        let before = self.glimpses.lock().unwrap_or_else(PoisonError::into_inner).before(&vetoed.at, within);
        if self.orders.try_send(Order { vetoed, before }).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Vetoes whose evidence was not kept: too large, too fast, or the disk refused.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until what is waiting is written, but no longer than this: the disk may be hanging.
    pub(super) fn close(self, within: Duration) -> bool {
        drop(self.orders);
        // Nothing is ever sent: the thread's end closes the channel.
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        matches!(ended.recv_timeout(within), Err(mpsc::RecvTimeoutError::Disconnected))
    }
}
