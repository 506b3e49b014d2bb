//! The daemon: wiring only. Reads the configuration, opens what is written to, takes the name on the bus, has the
//! worker load and warm up, and says READY only after a first inference has gone through.

mod exhibits;
mod guard;
mod memory;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::audit::chain::{AuditLog, Signer};
use crate::audit::clock::Clock;
use crate::audit::journal::Journal;
use crate::audit::record::{Event, GuardIdentity, Started};
use crate::config::fragment::ProxyKind;
use crate::config::settings::Settings;
use crate::intake::bus::Bus;
use crate::intake::limits::Limits;
use crate::intake::readiness::Readiness;
use crate::intake::{Face, Guard as _, Shown, State, boot_clock};
use crate::ledger::{Bounds, Ledger};
use crate::load::{self, Loaded};
use crate::permit::Moment;
use crate::permit::keys::{Keys, system_random};

use exhibits::Exhibits;
use guard::{Stores, Watchman};
use memory::LedgerMemory;
use worker::Queue;

/// Exit code of a configuration that does not stand; the unit does not restart on it.
const EXIT_CONFIGURATION: i32 = 78;
/// Exit code of any other fault.
const EXIT_FAULT: i32 = 1;
/// How long answers under way are waited for at the end.
const DRAIN_WITHIN: Duration = Duration::from_secs(3);
/// How long each thing that is closed at the end is waited for. All of it stays under the unit's `TimeoutStopSec`.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// How long the record of a start may take.
const STARTED_WITHIN: Duration = Duration::from_secs(5);

/// Why the daemon ends other than by being told to.
#[derive(Debug, thiserror::Error)]
enum Ending {
    /// The configuration does not stand: restarting would not help.
    #[error("configuration: {0:#}")]
    Configuration(anyhow::Error),
    /// Anything else: restarting may help.
    #[error("{0:#}")]
    Fault(anyhow::Error),
}

/// The guard daemon. Its exit codes: 0 when told to stop, 78 on a configuration that does not stand, 1 on any other end.
#[derive(Debug, clap::Parser)]
#[command(name = "steadfastd", version)]
struct Arguments {
    /// The configuration; drop-ins are read from FILE.d/*.toml.
    #[arg(long, value_name = "FILE", default_value = "/etc/steadfast/steadfast.toml")]
    config: PathBuf,
}

/// Reads the command line, runs the daemon and ends the process.
pub fn main() -> ! {
    let code = run(&<Arguments as clap::Parser>::parse().config);
    // Without the exit handlers of shared libraries: the inference thread may still be loading or hang in an inference,
    // and ONNX Runtime's handlers pull its state from under it (a SIGTERM while the models loaded ended in signal 11).
    // Everything written to has been closed by now.
    signal_hook::low_level::exit(code)
}

/// Runs the daemon until it is told to stop, and gives its exit code.
fn run(config: &Path) -> i32 {
    trace_to_stderr();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return EXIT_FAULT;
        }
    };
    let served = runtime.block_on(serve(config));
    // An inference that hangs must not keep a daemon that is done from ending.
    runtime.shutdown_background();
    match served {
        Ok(()) => 0,
        Err(ending) => {
            tracing::error!(error = %ending, "steadfastd ends");
            match ending {
                Ending::Configuration(_) => EXIT_CONFIGURATION,
                Ending::Fault(_) => EXIT_FAULT,
            }
        }
    }
}

/// What the daemon is told by signal. Listened for from the first moment: one that comes while the models load must
/// not end the process as it would by default.
struct Told {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Told {
    fn listen() -> std::io::Result<Self> {
        let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { term, int, hup: signal(SignalKind::hangup())? })
    }
}

/// Waits until the daemon is told to stop.
async fn until_stop(term: &mut Signal, int: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

async fn serve(config: &Path) -> Result<(), Ending> {
    let mut told = Told::listen().map_err(|error| Ending::Fault(error.into()))?;
    let settings = Settings::read(config).map_err(|error| Ending::Configuration(error.into()))?;
    let rules = load::rules(&settings).map_err(Ending::Configuration)?;
    let face = Face::new(Shown::starting(settings.mode));
    let queue = Queue::new(settings.queue_checks_max);
    let watchman = Arc::new(open(&settings, &face, &queue).map_err(Ending::Fault)?);
    let bus = Bus::serve(settings.bus_address.as_deref(), Arc::clone(&watchman), face.clone(), admission(&settings))
        .await
        .map_err(|error| Ending::Fault(error.into()))?;

    let (ready, loaded) = oneshot::channel();
    let worker = start_worker(&settings, rules, LedgerMemory::new(Arc::clone(&watchman.ledger)), &queue, ready)
        .map_err(Ending::Fault)?;
    let readiness = Readiness::from_environment();
    let started = tokio::select! {
        loaded = loaded => Some(loaded.context("the inference thread ended")),
        () = until_stop(&mut told.term, &mut told.int) => None,
    };
    let ending = match started {
        Some(Ok(Ok(identity))) => judge(identity, &watchman, &bus, worker, &readiness, &mut told).await,
        Some(Ok(Err(error))) => Err(Ending::Configuration(error)),
        Some(Err(error)) => Err(Ending::Fault(error)),
        None => Ok(()),
    };
    if let Err(error) = readiness.stopping() {
        tracing::warn!(%error, "systemd cannot be told of the stop");
    }
    face.change(|shown| shown.state = State::Stopping);
    bus.drain(DRAIN_WITHIN).await;
    // What is still being judged then is answered with a veto, so that its record has its second half.
    watchman.cut_off();
    bus.drain(CLOSE_WITHIN).await;
    queue.stop();
    bus.leave().await;
    let why = ending.as_ref().err().map_or_else(|| "asked to stop".to_owned(), ToString::to_string);
    close(watchman, &why).await;
    ending
}

/// Closes the log once nobody else holds the guard; the bus lets go of it a moment after it was left.
async fn close(watchman: Arc<Watchman>, why: &str) {
    let mut shared = watchman;
    let end = boot_clock() + CLOSE_WITHIN;
    loop {
        shared = match Arc::try_unwrap(shared) {
            Ok(watchman) => return watchman.close(why),
            Err(shared) if boot_clock() < end => shared,
            Err(_) => return tracing::error!("checks are still under way, so the log's end is not written"),
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Judges until there is a reason to end; reloads on SIGHUP meanwhile.
async fn judge(
    identity: GuardIdentity,
    watchman: &Watchman,
    bus: &Bus,
    worker: tokio::task::JoinHandle<()>,
    readiness: &Readiness,
    told: &mut Told,
) -> Result<(), Ending> {
    watchman.started(identity).map_err(Ending::Fault)?;
    guard::withdraw_when_due(Arc::clone(&watchman.keys));
    let mode = watchman.settings.mode;
    readiness.ready(&format!("judging in mode {mode}")).context("systemd cannot be told").map_err(Ending::Fault)?;
    tracing::info!(%mode, "ready");
    let mut worker = worker;
    // A task of its own: a reload that takes long must not stop the pings of a worker that is well.
    let (line, heart) = (readiness.clone(), watchman.queue.heart().clone());
    let _pings = tokio::spawn(async move { line.keep_alive(heart).await });
    loop {
        tokio::select! {
            _ = told.term.recv() => return Ok(()),
            _ = told.int.recv() => return Ok(()),
            _ = told.hup.recv() => tokio::select! {
                reloaded = reload(watchman, readiness) => reloaded?,
                // A reload waits for the check under way, and a stop must not wait for that.
                () = until_stop(&mut told.term, &mut told.int) => return Ok(()),
            },
            lost = bus.lost() => return Err(Ending::Fault(lost.into())),
            _ = &mut worker => return Err(Ending::Fault(anyhow::anyhow!("the inference thread ended"))),
        }
    }
}

/// Reloads for SIGHUP, telling systemd before and after.
async fn reload(watchman: &Watchman, readiness: &Readiness) -> Result<(), Ending> {
    let told = |told: std::io::Result<()>| told.context("systemd cannot be told").map_err(Ending::Fault);
    told(readiness.reloading())?;
    let by = crate::intake::Client { bus_name: "SIGHUP".to_owned(), uid: None, pid: None };
    let status = match watchman.reload(&by).await {
        Ok(()) => "judging with the constitution and calibration as reloaded".to_owned(),
        Err(error) => {
            tracing::warn!(%error, "the old constitution and calibration stay");
            format!("reload refused, the old constitution and calibration stay: {error}")
        }
    };
    told(readiness.ready(&status))
}

/// Opens everything that is written to.
fn open(settings: &Settings, face: &Face, queue: &Arc<Queue>) -> anyhow::Result<Watchman> {
    let now = Moment::now().context("the clocks cannot be read")?;
    let keys = Arc::new(Keys::open_or_create(&settings.keys, settings.key_overlap, now.unix_s, system_random)?);
    let signs = Arc::clone(&keys);
    let signer = Signer(Box::new(move |message| {
        let key = signs.signing();
        (*key.public().as_bytes(), key.sign_checkpoint(message))
    }));
    let log = AuditLog::open(chain_settings(settings), Clock::system()?, Some(signer))?;
    let opened = log.opened();
    if !opened.undecided.is_empty() {
        let checks = opened.undecided.len();
        tracing::warn!(checks, "the last run ended with checks it had received and not decided");
    }
    let journal = Journal::start("steadfastd")?;
    let exhibits = (settings.evidence_bytes_max > 0)
        .then(|| {
            Exhibits::open(&settings.audit_folder.join("evidence"), settings.evidence_bytes_max, settings.deadline_max)
        })
        .transpose()
        .context("the evidence cannot be opened")?;
    let bounds = Bounds { entries_max: settings.ledger_entries_max, ttl_s: settings.ledger_keep_max.as_secs() };
    let ledger = Ledger::open(&settings.ledger_folder, bounds).context("the refusal ledger cannot be opened")?;
    let stores = Stores { log, journal, keys, ledger, exhibits };
    Ok(Watchman::new(settings.clone(), face.clone(), Arc::clone(queue), stores))
}

fn admission(settings: &Settings) -> Limits {
    Limits {
        checks_max: settings.queue_checks_max,
        checks_reserved: settings.queue_checks_max / 4,
        checks_per_client_max: settings.client_checks_max,
        deadline_default: settings.deadline_default,
        deadline_max: settings.deadline_max,
        checks_per_second_max: settings.client_checks_per_second_max,
        checks_burst_max: settings.client_checks_burst_max,
        image_age_max: settings.image_age_max,
        image_stamp_required: settings.image_stamp_required,
        ..Limits::default()
    }
}

fn chain_settings(settings: &Settings) -> crate::audit::chain::Settings {
    let mut chain = crate::audit::chain::Settings::durable(&settings.audit_folder);
    chain.policy = settings.audit_policy;
    chain.redact = settings.audit_redact;
    chain.retention.bytes_max = settings.audit_keep_bytes_max;
    // Vetoes stay until their room is needed: a clock that jumps ahead must not take them.
    chain.retention.age_max = Some(settings.audit_keep_max);
    chain
}

/// What the daemon has to say beside its records goes to standard error, which systemd hands to the journal. Coloured
/// on a terminal alone; ONNX Runtime's notes on its memory only where RUST_LOG asks for them.
fn trace_to_stderr() {
    use std::io::IsTerminal as _;
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,ort=warn"));
    let colour = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
}

/// Starts the worker with the proxy that is configured.
fn start_worker(
    settings: &Settings,
    rules: Loaded,
    memory: LedgerMemory,
    queue: &Arc<Queue>,
    ready: oneshot::Sender<anyhow::Result<GuardIdentity>>,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let (queue, own) = (Arc::clone(queue), settings.clone());
    let thread = match settings.proxy {
        ProxyKind::Compact => {
            worker::start(queue, memory, move || load::assessor(load::compact(&own)?, rules, &own), ready)
        }
        ProxyKind::Vlm => {
            let load = move || {
                let (mut assessor, calibration) = load::assessor(load::vlm(&own)?, rules, &own)?;
                // Its cost is whatever model lies in the folder: a deadline that never holds would only veto.
                load::rehearse(&mut assessor, &worker::BootClock, &own)?;
                Ok((assessor, calibration))
            };
            worker::start(queue, memory, load, ready)
        }
        #[cfg(feature = "__replay")]
        ProxyKind::Recorded => worker::start(
            queue,
            memory,
            move || load::assessor(crate::proxy::recorded::Recorded::load(load::models(&own)?)?, rules, &own),
            ready,
        ),
    }?;
    Ok(tokio::task::spawn_blocking(move || {
        // A panic has been told by the panic hook; that the thread ended is all that matters here.
        drop(thread.join());
    }))
}

impl Watchman {
    /// Stores and signs the end of the log, and hands the journal what it still holds.
    fn close(self, why: &str) {
        if let Err(error) = self.log.close(why, CLOSE_WITHIN) {
            tracing::error!(%error, "the log's end could not be stored");
        }
        let journal = self.journal.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let left = journal.stop(CLOSE_WITHIN);
        if left != Some(0) {
            tracing::warn!(?left, "journald did not take every note");
        }
        if self.exhibits.is_some_and(|exhibits| !exhibits.close(CLOSE_WITHIN)) {
            tracing::warn!("the last evidence was not written in time");
        }
    }

    /// Writes down that the guard judges from now on, and shows it.
    fn started(&self, identity: GuardIdentity) -> anyhow::Result<()> {
        let mode = guard::record_mode(self.settings.mode);
        let event = Event::Started(Started {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            mode,
            guard: identity.clone(),
        });
        self.log.note(event)?.wait_blocking(STARTED_WITHIN)?;
        *self.identity.write().unwrap_or_else(std::sync::PoisonError::into_inner) = identity.clone();
        self.face.change(|shown| {
            shown.state = State::Ready;
            (shown.proxy, shown.constitution) = (Some(identity.proxy), Some(identity.constitution));
            shown.calibration = Some(identity.calibration);
            shown.execution_provider = identity.execution_provider;
        });
        Ok(())
    }
}
