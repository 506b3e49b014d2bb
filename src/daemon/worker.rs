//! The one thread that owns the proxy. Checks wait in a bounded queue that serves clients in turn; the thread's
//! heartbeat is what the watchdog is fed from, so that an inference that hangs stops the pings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::answer::{self, Details};
use crate::assessment::{Assessment, Assessor, Clock, Deadline, Memory, StartError};
use crate::audit::record::GuardIdentity;
use crate::calibration::Calibration;
use crate::constitution::Constitution;
use crate::intake::boot_clock;
use crate::intake::limits::FairQueue;
use crate::intake::readiness::Heartbeat;
use crate::proxy::{Budget, Proxy};
use crate::triple::{Digest, Triple};

/// How often an idle worker shows that it lives.
const IDLE_BEAT: Duration = Duration::from_millis(50);

/// The boot clock, as the assessment wants it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        boot_clock()
    }
}

/// One triple to judge.
pub(super) struct Job {
    pub(super) triple: Triple,
    pub(super) deadline: Duration,
    pub(super) reply: oneshot::Sender<Judged>,
}

/// What a job came to.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) assessment: Assessment,
    pub(super) details: Details,
    pub(super) identity: GuardIdentity,
}

/// A constitution and calibration to swap in.
pub(super) struct Swap {
    pub(super) constitution: Constitution,
    pub(super) calibration: Calibration,
    pub(super) calibration_digest: Digest,
    pub(super) reply: oneshot::Sender<Result<GuardIdentity, StartError>>,
}

struct Waiting {
    jobs: FairQueue<Option<u32>, Job>,
    swap: Option<Swap>,
    stopping: bool,
}

/// What the worker and its callers share.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    bell: Condvar,
    heart: Heartbeat,
    ended: AtomicBool,
}

impl Queue {
    pub(super) fn new(places: usize) -> Arc<Self> {
        let waiting = Waiting { jobs: FairQueue::new(places), swap: None, stopping: false };
        Arc::new(Self {
            waiting: Mutex::new(waiting),
            bell: Condvar::new(),
            heart: Heartbeat::default(),
            ended: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a job in; gives the number of those waiting where there is no place.
    pub(super) fn push(&self, client: Option<u32>, job: Job) -> Result<(), usize> {
        let mut waiting = self.lock();
        let full = waiting.jobs.len();
        if waiting.stopping || self.ended.load(Ordering::Acquire) || waiting.jobs.push(client, job).is_err() {
            return Err(full);
        }
        drop(waiting);
        self.bell.notify_one();
        Ok(())
    }

    /// Asks for a swap; `None` where one is under way already.
    pub(super) fn swap(&self, swap: Swap) -> Option<()> {
        let mut waiting = self.lock();
        if waiting.swap.is_some() || waiting.stopping {
            return None;
        }
        waiting.swap = Some(swap);
        drop(waiting);
        self.bell.notify_one();
        Some(())
    }

    /// Lets the worker end once it has answered what it is at.
    pub(super) fn stop(&self) {
        self.lock().stopping = true;
        self.bell.notify_one();
    }

    /// Jobs waiting.
    pub(super) fn waiting(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Beats while the worker lives and moves.
    pub(super) const fn heart(&self) -> &Heartbeat {
        &self.heart
    }
}

/// A deadline that also beats the heart: the proxy asks it before every chunk, token and copy.
struct Pulse<'a> {
    deadline: Deadline<'a>,
    queue: &'a Queue,
}

impl Budget for Pulse<'_> {
    fn spend(&self) -> std::ops::ControlFlow<()> {
        self.queue.heart.beat();
        self.deadline.spend()
    }

    fn keep(&self, time: Duration) -> std::ops::ControlFlow<()> {
        self.queue.heart.beat();
        self.deadline.keep(time)
    }
}

enum Next {
    Judge(Box<Job>),
    Swap(Box<Swap>),
    Idle,
    Stop,
}

/// Starts the worker. `load` runs on its thread and tells `ready` what it loaded; the thread's result says how it ended.
pub(super) fn start<P: Proxy + 'static, M: Memory + Send + 'static>(
    queue: Arc<Queue>,
    memory: M,
    load: impl FnOnce() -> anyhow::Result<(Assessor<P>, Digest)> + Send + 'static,
    ready: oneshot::Sender<anyhow::Result<GuardIdentity>>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("inference".to_owned()).spawn(move || {
        // However this thread ends, nobody may go on waiting for it.
        let _end = End(Arc::clone(&queue));
        let mut worker = match load() {
            Ok((assessor, calibration_digest)) => Worker { assessor, calibration_digest, memory },
            Err(error) => return drop(ready.send(Err(error))),
        };
        if ready.send(Ok(worker.identity())).is_ok() {
            worker.serve(&queue);
        }
    })
}

struct End(Arc<Queue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        let mut waiting = self.0.lock();
        // Dropping a job drops its reply: whoever waits for it hears that at once.
        while waiting.jobs.pop().is_some() {}
        waiting.swap = None;
    }
}

struct Worker<P: Proxy, M> {
    assessor: Assessor<P>,
    calibration_digest: Digest,
    memory: M,
}

impl<P: Proxy, M: Memory> Worker<P, M> {
    fn identity(&self) -> GuardIdentity {
        GuardIdentity {
            proxy: self.assessor.card().digest,
            constitution: self.assessor.constitution().digest(),
            calibration: self.calibration_digest,
            execution_provider: self.assessor.card().execution_provider.name().to_owned(),
        }
    }

    fn serve(&mut self, queue: &Queue) {
        loop {
            queue.heart.beat();
            match next(queue) {
                Next::Judge(job) => self.judge(*job, queue),
                Next::Swap(swap) => self.swap(*swap),
                Next::Idle => {}
                Next::Stop => return,
            }
        }
    }

    fn judge(&mut self, job: Job, queue: &Queue) {
        let Job { triple, deadline, reply } = job;
        // Whoever asked has gone: the answer would be nobody's.
        if reply.is_closed() {
            return;
        }
        let clock = BootClock;
        let pulse = Pulse { deadline: Deadline::new(&clock, deadline), queue };
        let assessment = self.assessor.assess(&triple, &mut self.memory, &clock, &pulse);
        let details = answer::details(&assessment, triple.digests(), self.assessor.card(), self.assessor.calibration());
        let identity = self.identity();
        // Whoever asked may have stopped waiting at the deadline; the record says so.
        drop(reply.send(Judged { assessment, details, identity }));
    }

    fn swap(&mut self, swap: Swap) {
        let Swap { constitution, calibration, calibration_digest, reply } = swap;
        let swapped = self.assessor.reload(constitution, calibration).map(|()| {
            self.calibration_digest = calibration_digest;
            self.identity()
        });
        drop(reply.send(swapped));
    }
}

fn next(queue: &Queue) -> Next {
    let mut waiting = queue.lock();
    if waiting.jobs.is_empty() && waiting.swap.is_none() && !waiting.stopping {
        waiting = queue.bell.wait_timeout(waiting, IDLE_BEAT).unwrap_or_else(PoisonError::into_inner).0;
    }
    if let Some(swap) = waiting.swap.take() {
        return Next::Swap(Box::new(swap));
    }
    match waiting.jobs.pop() {
        Some(job) => Next::Judge(Box::new(job)),
        None if waiting.stopping => Next::Stop,
        None => Next::Idle,
    }
}
