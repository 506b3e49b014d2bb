//! What answers behind the bus: records a check, has it judged, signs what is permitted, records the answer, and only
//! then lets it leave.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde_json::json;
use tokio::sync::{oneshot, watch};

use crate::answer::{self, Details};
use crate::audit::chain::{AuditError, AuditLog};
use crate::audit::clock::wall_clock;
use crate::audit::journal::{Journal, VetoNote};
use crate::audit::read;
use crate::audit::recent::{Answered, Glimpse, Recent};
use crate::audit::record::{
    self, CheckId, Circumstances, Decided, Event, Finite, GuardIdentity, NearestRule, PermitNote, Received, Record,
    Sizes, Texts,
};
use crate::config::settings::Settings;
use crate::constitution::nearest::NearRule;
use crate::decision::{Decision, Failure, Veto, release};
use crate::intake::{Answer, Call, Client, Denied, Face, Guard, Mode, Request, State, Verdict, boot_clock};
use crate::ledger::Ledger;
use crate::permit::keys::{Keys, Rotation, system_random};
use crate::permit::{self, Grant, Moment, Nonce, Subject};
use crate::triple::{Digest, Triple};

use super::exhibits::Exhibits;
use super::worker::{Job, Judged, Queue, Swap};
use crate::load::Loaded;

/// Answers kept in memory for `Explain`; older ones are looked up in the log.
const RECENT_ANSWERS_MAX: usize = 1024;

/// The guard.
pub(super) struct Watchman {
    pub(super) settings: Settings,
    pub(super) face: Face,
    pub(super) queue: Arc<Queue>,
    pub(super) log: AuditLog,
    pub(super) journal: Mutex<Journal>,
    pub(super) keys: Arc<Keys>,
    pub(super) identity: RwLock<GuardIdentity>,
    /// Refusals remembered; the inference thread reads and writes it, an administrator may have it forget.
    pub(super) ledger: Arc<Ledger>,
    /// `None` where no evidence is kept.
    pub(super) exhibits: Option<Exhibits>,
    recent: Mutex<Recent>,
    cut_off: watch::Sender<bool>,
}

/// What the guard writes to.
pub(super) struct Stores {
    pub(super) log: AuditLog,
    pub(super) journal: Journal,
    pub(super) keys: Arc<Keys>,
    pub(super) ledger: Ledger,
    /// `None` where no evidence is kept.
    pub(super) exhibits: Option<Exhibits>,
}

/// A check on its way, as far as its records need it.
struct Open {
    check_id: CheckId,
    mode: Mode,
    received: Received,
    /// The triple itself, where evidence is kept.
    glimpse: Option<Glimpse>,
}

impl Watchman {
    pub(super) fn new(settings: Settings, face: Face, queue: Arc<Queue>, stores: Stores) -> Self {
        let Stores { log, journal, keys, ledger, exhibits } = stores;
        let nobody = Digest::from_bytes([0; 32]);
        let identity = GuardIdentity {
            proxy: nobody,
            constitution: nobody,
            calibration: nobody,
            execution_provider: "none: still loading".to_owned(),
        };
        let recent = Mutex::new(Recent::new(RECENT_ANSWERS_MAX));
        let journal = Mutex::new(journal);
        Self {
            settings,
            face,
            queue,
            log,
            journal,
            keys,
            identity: RwLock::new(identity),
            ledger: Arc::new(ledger),
            exhibits,
            recent,
            cut_off: watch::Sender::new(false),
        }
    }

    /// Has every check that is still being judged answered now, with a veto: the guard is going away.
    pub(super) fn cut_off(&self) {
        self.cut_off.send_replace(true);
    }

    fn identity(&self) -> GuardIdentity {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a record and waits until it is stored, without blocking the thread. While records cannot be stored the
    /// state shows it.
    async fn store(&self, event: Event) -> Result<(), AuditError> {
        let (tell, stored) = oneshot::channel();
        let record = Record::new(self.log.now(), event);
        let handed_over = self.log.append_then(&record, Box::new(move |outcome| drop(tell.send(outcome))));
        let outcome = match handed_over {
            Ok(()) => stored.await.unwrap_or(Err(AuditError::Closed)).map(|_| ()),
            Err(error) => Err(error),
        };
        let failing = outcome.is_err();
        self.face.change(|shown| match shown.state {
            State::Ready if failing => shown.state = State::Degraded,
            State::Degraded if !failing => shown.state = State::Ready,
            State::Starting | State::Ready | State::Degraded | State::Stopping => {}
        });
        outcome
    }

    /// Has the triple judged, by the deadline.
    async fn judge(&self, client: &Client, request: Request, triple: Triple) -> Result<Judged, Failure> {
        let allowed = request.options.deadline;
        let late = || Failure::Deadline { deadline_ms: u64::try_from(allowed.as_millis()).unwrap_or(u64::MAX) };
        let (reply, judged) = oneshot::channel();
        let job = Job { triple, deadline: request.deadline, reply };
        self.queue.push(client.uid, job).map_err(|waiting| Failure::Overload { waiting })?;
        let left = request.deadline.saturating_sub(boot_clock());
        let mut cut_off = self.cut_off.subscribe();
        let judged = tokio::select! {
            judged = tokio::time::timeout(left, judged) => judged,
            _ = cut_off.wait_for(|cut_off| *cut_off) => return Err(Failure::NotReady),
        };
        let judged =
            judged.map_err(|_| late())?.map_err(|_| Failure::Internal("the inference thread ended".to_owned()))?;
        // The timer does not count while the machine sleeps; the boot clock does.
        if boot_clock() >= request.deadline { Err(late()) } else { Ok(judged) }
    }

    /// The triple as evidence, remembered for the vetoes to come; `None` where no evidence is kept.
    fn glimpse(&self, check_id: CheckId, triple: &Triple) -> Option<Glimpse> {
        let exhibits = self.exhibits.as_ref()?;
        let glimpse = Glimpse {
            check_id,
            at: self.log.now(),
            instruction: triple.instruction().to_owned(),
            image: Arc::clone(triple.image()),
            plan: triple.plan().to_owned(),
        };
        exhibits.saw(glimpse.clone());
        Some(glimpse)
    }

    /// Signs a leave or a release.
    fn sign(&self, subject: Subject<'_>, open: &Open, guard: &GuardIdentity) -> Result<(Vec<u8>, PermitNote), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Internal(format!("no permit can be signed: {error}"));
        // Read before the key is taken: what the old key signs during a rotation is then dated before its retirement.
        let now = Moment::now().map_err(|error| failed(&error))?;
        let nonce = Nonce::random().map_err(|error| failed(&error))?;
        let lifetime = self.settings.permit_lifetime;
        let grant = Grant {
            issuer: self.settings.issuer.clone(),
            // A client that names nobody gets a permit for itself, by its unique name on the bus.
            audience: open.received.audience.clone().unwrap_or_else(|| open.received.client.name.clone()),
            check_id: open.check_id.to_string(),
            constitution: guard.constitution,
            proxy: guard.proxy,
            calibration: guard.calibration,
            now,
            lifetime,
            nonce,
        };
        let token = permit::sign(subject, &grant, &self.keys.signing()).map_err(|error| failed(&error))?;
        let lifetime_ns = u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX);
        let note = PermitNote {
            nonce: hex::encode(nonce.0),
            expires_boot_ns: now.boottime_ns.saturating_add(lifetime_ns),
            expires_wall_ns: (now.unix_s + lifetime.as_secs()).saturating_mul(1_000_000_000),
        };
        Ok((token, note))
    }

    /// Stores the answer, tells the journal, and gives what leaves. Where the answer cannot be stored, what leaves is
    /// a veto that says so.
    async fn answer(
        &self,
        open: Open,
        decision: Decision,
        mut details: Details,
        circumstances: Circumstances,
    ) -> Answer {
        let mut decision = decision;
        let mut permit = None;
        if let (Decision::Permit(leave), Mode::Enforce) = (&decision, open.mode) {
            match self.sign(leave.into(), &open, &circumstances.guard) {
                Ok(signed) => permit = Some(signed),
                Err(failure) => decision = Decision::Veto(Veto::from_failure(&failure)),
            }
        }
        let note = permit.as_ref().map(|(_, note)| note.clone());
        let mut decided = Decided::of(&decision, circumstances, note);
        if self.settings.audit_redact {
            // The journal and `Explain` keep no more than the log.
            decided.redact();
        }
        if let Err(error) = self.store(Event::Decided(Box::new(decided.clone()))).await {
            let failure = Failure::Audit(error.to_string());
            return unrecorded(&open, &failure);
        }
        let (_, _, detail) = answer::verdict(&decision);
        if let (Some(exhibits), Some(glimpse), Decision::Veto(_)) = (&self.exhibits, open.glimpse, &decision) {
            exhibits.keep(glimpse);
        }
        if let Some(note) = VetoNote::of(&decided) {
            // A note that the ring has no place for is counted there; the record itself is stored.
            let _told: bool = self.journal().tell(note);
        }
        details.extend(detail.map(|detail| ("detail".to_owned(), json!(detail))));
        let malleability = decided.readings.as_ref().and_then(|readings| readings.malleability).map(Finite::get);
        let verdict = match (decision, permit) {
            (Decision::Veto(veto), _) => Verdict::Veto(veto.reason),
            (Decision::Refusal(_), _) => Verdict::Refusal,
            (Decision::Permit(_), permit) => Verdict::Permit(permit.map(|(token, _)| token).unwrap_or_default()),
        };
        let answer = Answer { check_id: open.check_id.to_string(), mode: open.mode, verdict, malleability, details };
        let answered = Answered { at: self.log.now(), received: open.received, decided };
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).remember(answered);
        answer
    }

    /// The check with this name, from memory or from the log.
    async fn find(&self, check_id: &str) -> Result<Arc<Answered>, Denied> {
        let unknown = || Denied::Unknown(check_id.to_owned());
        let id = CheckId::parse(check_id).map_err(|_| unknown())?;
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner).find(id);
        if let Some(answered) = recent {
            return Ok(answered);
        }
        let impossible = |error: &dyn std::fmt::Display| Denied::NotPossible(error.to_string());
        // A log may be a gigabyte; reading it must not hold up the answers.
        let folder = self.settings.audit_folder.clone();
        let found = tokio::task::spawn_blocking(move || read::show(&folder, &id.to_string())).await;
        found
            .map_err(|error| impossible(&error))?
            .map_err(|error| impossible(&error))?
            .into_iter()
            .find_map(|(_, check)| {
                let ((entry, received), (_, decided)) = (check.received?, check.decided?);
                Some(Arc::new(Answered { at: entry.record()?.at.clone(), received, decided }))
            })
            .ok_or_else(unknown)
    }
}

/// The answer where nothing can be written down: a veto, whatever it would have been.
fn unrecorded(open: &Open, failure: &Failure) -> Answer {
    tracing::error!(check_id = %open.check_id, %failure, "an answer could not be recorded and leaves as a veto");
    let details = Details::from_iter([("detail".to_owned(), json!(failure.to_string()))]);
    let verdict = Verdict::Veto(failure.reason());
    Answer { check_id: open.check_id.to_string(), mode: open.mode, verdict, malleability: None, details }
}

impl Guard for Watchman {
    async fn check(&self, call: Call) -> Answer {
        let Call { client, asked, .. } = call;
        let mode = self.face.mode();
        let id = system_random::<16>().map(|bytes| *bytes);
        let check_id = CheckId::from_bytes(id.as_ref().copied().unwrap_or_default());
        let mut received = describe(check_id, &client, asked.as_ref().ok());
        if self.settings.audit_redact {
            received.redact();
        }
        let open = Open { check_id, mode, received, glimpse: None };
        if let Err(error) = id {
            return unrecorded(&open, &Failure::Internal(format!("no name for the check: {error}")));
        }
        let (asked, open) = match asked {
            Ok(request) => {
                let parts = (request.instruction.clone(), Arc::clone(&request.image), request.plan.clone());
                let triple = Triple::new(parts.0, parts.1, parts.2).map_err(Failure::from);
                let digests = triple.as_ref().ok().map(|triple| *triple.digests());
                let received = Received { digests, ..open.received };
                let glimpse = triple.as_ref().ok().and_then(|triple| self.glimpse(check_id, triple));
                (triple.map(|triple| (request, triple)), Open { received, glimpse, ..open })
            }
            Err(failure) => (Err(failure), open),
        };
        if let Err(error) = self.store(Event::Received(Box::new(open.received.clone()))).await {
            return unrecorded(&open, &Failure::Audit(error.to_string()));
        }
        let judged = match asked {
            Ok((request, triple)) => self.judge(&client, request, triple).await,
            Err(failure) => Err(failure),
        };
        let triple = open.received.digests.map(|digests| digests.triple);
        let circumstances = |guard| Circumstances {
            check_id: open.check_id,
            triple,
            mode: record_mode(open.mode),
            guard,
            steps_left_out: Vec::new(),
            nearest_rules: Vec::new(),
            scene: None,
            timings_ms: Vec::new(),
        };
        match judged {
            Ok(Judged { assessment, details, identity }) => {
                let evidence = assessment.evidence;
                let circumstances = Circumstances {
                    steps_left_out: evidence.steps_left_out,
                    nearest_rules: evidence.nearest_rules.iter().map(nearest).collect(),
                    scene: evidence.scene,
                    timings_ms: evidence.timings.stages_ms().map(|(stage, ms)| (stage.to_owned(), ms)).into(),
                    ..circumstances(identity)
                };
                self.answer(open, assessment.decision, details, circumstances).await
            }
            Err(failure) => {
                let circumstances = circumstances(self.identity());
                self.answer(open, Decision::Veto(Veto::from_failure(&failure)), Details::new(), circumstances).await
            }
        }
    }

    async fn explain(&self, check_id: &str) -> Result<Details, Denied> {
        let answered = self.find(check_id).await?;
        let failed = |error: serde_json::Error| Denied::NotPossible(error.to_string());
        let mut details = Details::new();
        for (name, part) in [
            ("at", serde_json::to_value(&answered.at).map_err(failed)?),
            ("received", serde_json::to_value(&answered.received).map_err(failed)?),
            ("decided", serde_json::to_value(&answered.decided).map_err(failed)?),
        ] {
            details.insert(name.to_owned(), part);
        }
        Ok(details)
    }

    async fn status(&self) -> Details {
        let identity = self.identity();
        Details::from_iter([
            ("version".to_owned(), json!(env!("CARGO_PKG_VERSION"))),
            ("tier".to_owned(), json!(self.settings.tier)),
            ("checks_queued".to_owned(), json!(self.queue.waiting())),
            ("execution_provider_running".to_owned(), json!(identity.execution_provider)),
            ("audit_folder".to_owned(), json!(self.settings.audit_folder)),
            ("audit_failing".to_owned(), json!(self.log.failing().map(|error| error.to_string()))),
            ("journal_lines_dropped".to_owned(), json!(self.journal().dropped())),
            ("refusals_remembered".to_owned(), json!(self.ledger.len())),
            ("evidence_lost".to_owned(), json!(self.exhibits.as_ref().map(Exhibits::lost))),
            ("public_keys".to_owned(), json!(self.keys.public().to_jwk_set().ok())),
            ("keys_archived".to_owned(), json!(self.keys.archive().iter().count())),
        ])
    }

    async fn reload(&self, client: &Client) -> Result<(), Denied> {
        tracing::info!(by = client.bus_name, "reload");
        let swapped = self.swap_in().await;
        let event = match &swapped {
            Ok(identity) => Event::Reloaded(identity.clone()),
            Err(detail) => Event::ReloadRefused { detail: detail.clone() },
        };
        let recorded = self.store(event).await;
        let identity = swapped.map_err(Denied::NotPossible)?;
        self.face.change(|shown| {
            (shown.constitution, shown.calibration) = (Some(identity.constitution), Some(identity.calibration));
        });
        *self.identity.write().unwrap_or_else(PoisonError::into_inner) = identity;
        // What is in force is shown as in force, whether or not it could be written down.
        recorded.map_err(|error| Denied::NotPossible(format!("reloaded, but that could not be recorded: {error}")))
    }

    async fn set_mode(&self, mode: Mode, client: &Client) -> Result<(), Denied> {
        let event = Event::ModeSet { mode: record_mode(mode), by: record_client(client) };
        self.store(event).await.map_err(|error| Denied::NotPossible(error.to_string()))?;
        self.face.change(|shown| shown.mode = mode);
        Ok(())
    }

    async fn release(&self, check_id: &str, note: &str, client: &Client) -> Result<Vec<u8>, Denied> {
        let refused = |error: &dyn std::fmt::Display| Denied::NotPossible(error.to_string());
        let mode = self.face.mode();
        let answered = self.find(check_id).await?;
        if (mode, answered.decided.mode) != (Mode::Enforce, record::Mode::Enforce) {
            return Err(refused(&"nothing is signed in mode shadow, nor for what it vetoed"));
        }
        let digests = answered.received.digests.ok_or_else(|| refused(&"that check had no whole triple"))?;
        let reason = answered.decided.reason.ok_or_else(|| refused(&"that check was not vetoed"))?;
        let who = match client.uid {
            Some(uid) => format!("uid {uid}"),
            None => return Err(refused(&"the bus does not say who you are")),
        };
        let released = release(digests, reason, who, note.to_owned()).map_err(|error| refused(&error))?;
        let open =
            Open { check_id: answered.received.check_id, mode, received: answered.received.clone(), glimpse: None };
        let (token, permit) =
            self.sign((&released).into(), &open, &answered.decided.guard).map_err(|failure| refused(&failure))?;
        let event = Event::Released(record::Released {
            check_id: open.check_id,
            who: record_client(client),
            note: note.to_owned(),
            permit: Some(permit),
        });
        self.store(event).await.map_err(|error| refused(&error))?;
        Ok(token)
    }

    async fn rotate_key(&self, client: &Client) -> Result<String, Denied> {
        let refused = |error: &dyn std::fmt::Display| Denied::NotPossible(error.to_string());
        let keys = Arc::clone(&self.keys);
        let rotated = tokio::task::spawn_blocking(move || keys.rotate(|| wall_clock().as_secs(), system_random)).await;
        let Rotation { retired, key, undated } =
            rotated.map_err(|error| refused(&error))?.map_err(|error| refused(&error))?;
        tracing::info!(by = client.bus_name, retired = %retired.id(), key = %key.id(), "key rotated");
        withdraw_when_due(Arc::clone(&self.keys));
        // Behind the rotation: no checkpoint that follows this record may be the old key's.
        let event = Event::KeyRotated {
            retired: hex::encode(retired.as_bytes()),
            key: hex::encode(key.as_bytes()),
            by: record_client(client),
        };
        let done = |what: &str, error: &dyn std::fmt::Display| {
            Denied::NotPossible(format!("key {} is in use now, but {what}: {error}", key.id()))
        };
        self.store(event).await.map_err(|error| done("that could not be recorded", &error))?;
        match undated {
            Some(error) => Err(done("the old one could not be marked as retired", &error)),
            None => Ok(key.id().to_string()),
        }
    }

    async fn forget(&self, task: Digest, client: &Client) -> Result<(), Denied> {
        let refused = |error: &dyn std::fmt::Display| Denied::NotPossible(error.to_string());
        if !self.ledger.knows(task) {
            return Err(Denied::Unknown(task.to_string()));
        }
        // Written down first: a refusal that is gone without a record would be an answer changed in secret.
        let event = Event::Forgotten { task, by: record_client(client) };
        self.store(event).await.map_err(|error| refused(&error))?;
        let ledger = Arc::clone(&self.ledger);
        let forgotten = tokio::task::spawn_blocking(move || ledger.forget(task)).await;
        forgotten.map_err(|error| refused(&error))?.map(|_| ()).map_err(|error| refused(&error))
    }
}

impl Watchman {
    /// Reads constitution and calibration again and has the worker swap them in.
    async fn swap_in(&self) -> Result<GuardIdentity, String> {
        // A disk that hangs must hold up the reload alone.
        let settings = self.settings.clone();
        let loaded = tokio::task::spawn_blocking(move || crate::load::rules(&settings)).await;
        let Loaded { constitution, calibration, calibration_digest } =
            loaded.map_err(|error| error.to_string())?.map_err(|error| format!("{error:#}"))?;
        let (reply, swapped) = oneshot::channel();
        let swap = Swap { constitution, calibration, calibration_digest, reply };
        self.queue.swap(swap).ok_or("a reload is under way")?;
        // No timeout: a swap that was given up on could still happen, and nobody would know what is in force.
        let mut cut_off = self.cut_off.subscribe();
        let swapped = tokio::select! {
            swapped = swapped => swapped,
            _ = cut_off.wait_for(|cut_off| *cut_off) => return Err("the guard is going away".to_owned()),
        };
        swapped.map_err(|_| "the inference thread ended".to_owned())?.map_err(|error| error.to_string())
    }
}

/// Takes each retired key off the published list once its overlap has ended, for verifiers that read no dates.
pub(super) fn withdraw_when_due(keys: Arc<Keys>) {
    tokio::spawn(async move {
        loop {
            let own = Arc::clone(&keys);
            let withdrawn = tokio::task::spawn_blocking(move || own.withdraw(wall_clock().as_secs())).await;
            let ends_unix_s = match withdrawn {
                Ok(Ok(Some(ends_unix_s))) => ends_unix_s,
                Ok(Ok(None)) | Err(_) => return,
                Ok(Err(error)) => return tracing::warn!(%error, "a retired key stays on the published list"),
            };
            let left_s = ends_unix_s.saturating_sub(wall_clock().as_secs());
            tokio::time::sleep(Duration::from_secs(left_s.saturating_add(1))).await;
        }
    });
}

/// The first half of a check's record.
fn describe(check_id: CheckId, client: &Client, request: Option<&Request>) -> Received {
    let size = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let options = request.map(|request| &request.options);
    Received {
        check_id,
        client: record_client(client),
        digests: None,
        sizes: Sizes {
            instruction: request.map_or(0, |request| size(request.instruction.len())),
            image: request.map(|request| size(request.image.len())),
            plan: request.map_or(0, |request| size(request.plan.len())),
        },
        texts: request.map(|request| Texts::keep(&request.instruction, &request.plan)),
        redacted: false,
        planner: options.and_then(|options| options.planner.clone()),
        plan_id: options.and_then(|options| options.plan_id.clone()),
        audience: options.and_then(|options| options.audience.clone()),
        image_stamp_ns: options
            .and_then(|options| options.image_stamp)
            .map(|stamp| u64::try_from(stamp.as_nanos()).unwrap_or(u64::MAX)),
        deadline_ms: options.map(|options| u64::try_from(options.deadline.as_millis()).unwrap_or(u64::MAX)),
        options: std::collections::BTreeMap::new(),
    }
}

fn nearest(rule: &NearRule) -> NearestRule {
    let (number, text) = (rule.number.into(), rule.text.clone());
    NearestRule { number, text, proximity: Finite::new(rule.similarity) }
}

fn record_client(client: &Client) -> record::Client {
    record::Client { name: client.bus_name.clone(), uid: client.uid, pid: client.pid }
}

pub(super) const fn record_mode(mode: Mode) -> record::Mode {
    match mode {
        Mode::Enforce => record::Mode::Enforce,
        Mode::Shadow => record::Mode::Shadow,
    }
}
