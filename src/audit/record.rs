//! What is written down: one record per event, self-describing JSON, with types of its own.
//!
//! A record is what an investigator reads after a veto, so it explains itself and outlives the build that wrote it.
//! Nothing here can be turned back into a permit: a recorded permit is a description, not a leave. Numbers are finite
//! or absent; one that was neither is left out *and named* in [`RecordedReadings::non_finite`], because JSON has no
//! NaN and a writer that turns it into `null` has lost the very fault that mattered.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decision::{Decision, Fallback, Readings, Reason, Tier};
use crate::triple::{Digest, Digests, INSTRUCTION_BYTES_MAX, PLAN_BYTES_MAX};

/// Version of this schema, in every record. A reader refuses a newer one by number rather than guess.
pub const SCHEMA: u32 = 1;
/// Largest encoded record, in bytes: the longest texts with every character escaped, and room for the rest.
pub const RECORD_BYTES_MAX: usize = 1024 * 1024;
/// Longest sentence kept of a detail, a scene or a note, in bytes of UTF-8.
pub const SENTENCE_BYTES_MAX: usize = 8 * 1024;
/// Most check ids named in one [`Event::CrashFound`] or [`Event::SegmentOpened`]; the rest are counted.
pub const CHECK_IDS_MAX: usize = 1024;

/// Why a record cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The record is larger than [`RECORD_BYTES_MAX`].
    #[error("the record has {bytes} bytes; at most {bytes_max} are stored")]
    TooLarge {
        /// Size of the encoded record, in bytes.
        bytes: usize,
        /// The limit it broke, in bytes.
        bytes_max: usize,
    },
    /// The record does not serialise.
    #[error("the record does not serialise: {0}")]
    Json(String),
}

/// Why bytes are not a record of this schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The record was written by a newer build.
    #[error("the record has schema {schema}; this build reads up to {SCHEMA}")]
    Newer {
        /// Its schema version.
        schema: u32,
    },
    /// The bytes are not a record.
    #[error("not a record: {0}")]
    Json(String),
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] of the build that wrote it.
    pub schema: u32,
    /// When.
    pub at: Stamp,
    /// What.
    pub event: Event,
}

impl Record {
    /// A record of this build's schema.
    #[must_use]
    pub const fn new(at: Stamp, event: Event) -> Self {
        Self { schema: SCHEMA, at, event }
    }

    /// The bytes that are stored.
    ///
    /// # Errors
    /// When the record is larger than [`RECORD_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let bytes = serde_json::to_vec(self).map_err(|error| EncodeError::Json(error.to_string()))?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(EncodeError::TooLarge { bytes: bytes.len(), bytes_max: RECORD_BYTES_MAX });
        }
        Ok(bytes)
    }

    /// Reads back what [`Record::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes are no record, or one of a newer schema.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let json = |error: serde_json::Error| DecodeError::Json(error.to_string());
        let Version { schema } = serde_json::from_slice(bytes).map_err(json)?;
        if schema > SCHEMA {
            return Err(DecodeError::Newer { schema });
        }
        serde_json::from_slice(bytes).map_err(json)
    }

    /// The check this record belongs to, if it belongs to one.
    #[must_use]
    pub fn check_id(&self) -> Option<CheckId> {
        match &self.event {
            Event::Received(received) => Some(received.check_id),
            Event::Decided(decided) => Some(decided.check_id),
            Event::Released(released) => Some(released.check_id),
            Event::Started(_)
            | Event::Stopped { .. }
            | Event::CrashFound { .. }
            | Event::Reloaded(_)
            | Event::ReloadRefused { .. }
            | Event::ModeSet { .. }
            | Event::Forgotten { .. }
            | Event::KeyRotated { .. }
            | Event::SegmentOpened(_)
            | Event::Retired { .. }
            | Event::TailDropped { .. }
            | Event::WritesFailed { .. }
            | Event::Checkpoint(_) => None,
        }
    }

    /// Takes out what was said and seen: texts, the scene sentence, and details that may quote them. Digests, sizes,
    /// readings and reasons stay.
    pub fn redact(&mut self) {
        match &mut self.event {
            Event::Received(received) => received.redact(),
            Event::Decided(decided) => decided.redact(),
            Event::Started(_)
            | Event::Stopped { .. }
            | Event::CrashFound { .. }
            | Event::Reloaded(_)
            | Event::ReloadRefused { .. }
            | Event::ModeSet { .. }
            | Event::Released(_)
            | Event::Forgotten { .. }
            | Event::KeyRotated { .. }
            | Event::SegmentOpened(_)
            | Event::Retired { .. }
            | Event::TailDropped { .. }
            | Event::WritesFailed { .. }
            | Event::Checkpoint(_) => {}
        }
    }
}

impl Received {
    /// As [`Record::redact`].
    pub fn redact(&mut self) {
        self.texts = None;
        self.redacted = true;
    }
}

impl Decided {
    /// As [`Record::redact`].
    pub fn redact(&mut self) {
        self.scene = None;
        if self.reason.is_some_and(may_quote_the_input) {
            self.detail = "redacted".to_owned();
        }
        self.redacted = true;
    }
}

/// Whether the detail of a veto with this reason may carry words of the instruction or the plan.
const fn may_quote_the_input(reason: Reason) -> bool {
    match reason {
        Reason::Rule | Reason::InputLimit | Reason::InconclusivePlan | Reason::ProxyFault | Reason::Internal => true,
        Reason::Constitution
        | Reason::Malleable
        | Reason::FlippedRefusal
        | Reason::ImageInvalid
        | Reason::ImageStale
        | Reason::Deadline
        | Reason::Overload
        | Reason::AuditUnavailable
        | Reason::NotReady => false,
    }
}

/// When something happened, on both clocks: the wall clock jumps, and the boot clock means nothing without its boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Nanoseconds since 1970-01-01 UTC by the wall clock.
    pub wall_ns: u64,
    /// Nanoseconds since boot, suspend included (`CLOCK_BOOTTIME`).
    pub boot_ns: u64,
    /// The kernel's random id of this boot.
    pub boot_id: String,
}

/// Names one check: 16 random bytes, drawn by the caller, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckId([u8; 16]);

/// Why a text is not a check id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a check id is 32 hexadecimal digits")]
pub struct CheckIdParseError;

impl CheckId {
    /// The id with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads what [`fmt::Display`] writes.
    ///
    /// # Errors
    /// When the text is anything but 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, CheckIdParseError> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| CheckIdParseError)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for CheckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for CheckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckId({self})")
    }
}

impl Serialize for CheckId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CheckId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A number that is a number. The only kind of float a record holds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Finite(f64);

impl Finite {
    /// The number, or `None` where it is NaN or infinite.
    #[must_use]
    pub const fn new(value: f64) -> Option<Self> {
        if value.is_finite() { Some(Self(value)) } else { None }
    }

    /// Its value.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Finite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Self::new(value).ok_or_else(|| serde::de::Error::custom("a reading is not finite"))
    }
}

/// Reads a reading that is there. A missing key means absent; `null` is an error, because nothing here writes it.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Finite>, D::Error> {
    Finite::deserialize(deserializer).map(Some)
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// A check came in; written before any work on it.
    Received(Box<Received>),
    /// A check was answered; written before the answer leaves.
    Decided(Box<Decided>),
    /// The guard started.
    Started(Started),
    /// The guard stopped in good order.
    Stopped {
        /// Why, in one sentence.
        why: String,
    },
    /// The previous run ended with checks it had received and not decided.
    CrashFound {
        /// Those checks, at most [`CHECK_IDS_MAX`] of them.
        check_ids: Vec<CheckId>,
        /// How many more there were.
        more: u64,
    },
    /// A new constitution, calibration or proxy took effect.
    Reloaded(GuardIdentity),
    /// A reload was refused; what was in effect stays.
    ReloadRefused {
        /// Why, in one sentence.
        detail: String,
    },
    /// The mode was set.
    ModeSet {
        /// The mode from now on.
        mode: Mode,
        /// Who set it.
        by: Client,
    },
    /// A person released a vetoed plan.
    Released(Released),
    /// A person removed a task from the ledger.
    Forgotten {
        /// The task.
        task: Digest,
        /// Who removed it.
        by: Client,
    },
    /// A new key was taken into use. No checkpoint behind this record is signed with the old one.
    KeyRotated {
        /// Public key that signed until then, in hexadecimal.
        retired: String,
        /// Public key that signs from then on, in hexadecimal.
        key: String,
        /// Who had it rotated.
        by: Client,
    },
    /// First record of a segment.
    SegmentOpened(Box<SegmentOpened>),
    /// Retention took something out of the log. Written and synced before it goes.
    Retired {
        /// Which bound it went for, in one sentence.
        why: String,
        /// Everything that retention has taken out up to now, this included.
        retired: Retired,
    },
    /// An unfinished tail was dropped at the start.
    TailDropped {
        /// The segment that had it.
        segment: u64,
        /// How many bytes.
        bytes: u64,
        /// What was wrong with it.
        why: String,
    },
    /// Writing failed for a while and works again. Whatever was asked meanwhile was answered with an error.
    WritesFailed {
        /// The first error.
        error: String,
        /// Records turned away with an error.
        refused: u64,
        /// Records that had been acknowledged as written, not as stored, and are lost (`buffered` only).
        lost: u64,
    },
    /// The head of the chain, signed.
    Checkpoint(Checkpoint),
}

/// A check as it came in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Names the check from here on.
    pub check_id: CheckId,
    /// Who asked.
    pub client: Client,
    /// Digests of the parts and the whole; absent where a part could not be read at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests: Option<Digests>,
    /// Sizes as received.
    pub sizes: Sizes,
    /// Instruction and plan; absent when redacted or unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Texts>,
    /// Whether texts were taken out.
    #[serde(default)]
    pub redacted: bool,
    /// Who wrote the plan, as the client says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner: Option<String>,
    /// The plan's name at the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// Whom a permit would be for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// When the image was taken, in nanoseconds since 1970-01-01 UTC, as the client says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_stamp_ns: Option<u64>,
    /// The time the client allows, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Further options as given, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// Sizes of a triple's parts as received, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The instruction's UTF-8.
    pub instruction: u64,
    /// The encoded image; absent where its size could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<u64>,
    /// The plan's UTF-8.
    pub plan: u64,
}

/// Instruction and plan. Texts over the triple's limits are kept up to them, and `cut` says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texts {
    /// What the robot was told.
    pub instruction: String,
    /// What the planner answered.
    pub plan: String,
    /// Whether either text was longer than what is kept.
    #[serde(default)]
    pub cut: bool,
}

impl Texts {
    /// Keeps both texts, each up to its limit in [`crate::triple`].
    #[must_use]
    pub fn keep(instruction: &str, plan: &str) -> Self {
        Self {
            instruction: keep_start(instruction, INSTRUCTION_BYTES_MAX),
            plan: keep_start(plan, PLAN_BYTES_MAX),
            cut: instruction.len() > INSTRUCTION_BYTES_MAX || plan.len() > PLAN_BYTES_MAX,
        }
    }
}

/// The start of a text: at most `bytes_max` bytes, ending at a character's border.
#[must_use]
pub fn keep_start(text: &str, bytes_max: usize) -> String {
    let end = text.floor_char_boundary(bytes_max);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Who asked, as the bus says (not as the client says).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Unique bus name, or how else the caller is known (`command line`).
    pub name: String,
    /// User id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Process id when it asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What the guard answered. Not a leave: nothing can be run on the strength of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The plan was permitted.
    Permit,
    /// The plan was vetoed.
    Veto,
    /// The planner itself had refused.
    Refusal,
}

impl Verdict {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Veto => "veto",
            Self::Refusal => "refusal",
        }
    }

    /// The verdict with this code.
    #[must_use]
    pub fn parse(code: &str) -> Option<Self> {
        [Self::Permit, Self::Veto, Self::Refusal].into_iter().find(|verdict| verdict.code() == code)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Whether the answer counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Answers count.
    Enforce,
    /// Answers are computed and written down, and must not be acted on.
    Shadow,
}

impl Mode {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// What judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardIdentity {
    /// Digest of the proxy's models.
    pub proxy: Digest,
    /// Digest of the constitution.
    pub constitution: Digest,
    /// Digest of the calibration.
    pub calibration: Digest,
    /// The execution provider that runs, not the one that was asked for.
    pub execution_provider: String,
}

/// An answer, and everything it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// The check answered.
    pub check_id: CheckId,
    /// Digest of the triple; absent where a part could not be read at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triple: Option<Digest>,
    /// The answer.
    pub verdict: Verdict,
    /// Whether it counted.
    pub mode: Mode,
    /// Why it is no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// One sentence for a person; empty for a permit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// What was read, where anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings: Option<RecordedReadings>,
    /// Numbers, from 1, of the steps without which the plan was judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps_left_out: Vec<u32>,
    /// The rules that lie nearest, nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest_rules: Vec<NearestRule>,
    /// What the proxy's eyes said is there; absent when redacted or not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene: Option<String>,
    /// Whether scene and detail were taken out.
    #[serde(default)]
    pub redacted: bool,
    /// What judged.
    pub guard: GuardIdentity,
    /// Time spent, in milliseconds, by stage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timings_ms: BTreeMap<String, Finite>,
    /// The permit that was signed, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitNote>,
}

/// What an answer was given under; [`Decided::of`] adds the answer itself.
#[derive(Debug, Clone)]
pub struct Circumstances {
    /// The check answered.
    pub check_id: CheckId,
    /// Digest of the triple, where there was one.
    pub triple: Option<Digest>,
    /// Whether the answer counts.
    pub mode: Mode,
    /// What judged.
    pub guard: GuardIdentity,
    /// Numbers, from 1, of the steps without which the plan was judged.
    pub steps_left_out: Vec<u32>,
    /// The rules that lie nearest.
    pub nearest_rules: Vec<NearestRule>,
    /// What the proxy's eyes said.
    pub scene: Option<String>,
    /// Time spent, in milliseconds, by stage. A time that is not finite is left out.
    pub timings_ms: Vec<(String, f64)>,
}

impl Decided {
    /// Describes a decision. `permit` is what was signed on its strength, if anything was.
    #[must_use]
    pub fn of(decision: &Decision, circumstances: Circumstances, permit: Option<PermitNote>) -> Self {
        let (verdict, reason, detail, readings) = match decision {
            Decision::Permit(leave) => (Verdict::Permit, None, "", Some(leave.readings())),
            Decision::Veto(veto) => (Verdict::Veto, Some(veto.reason), veto.detail.as_str(), veto.readings.as_ref()),
            Decision::Refusal(refusal) => {
                (Verdict::Refusal, None, "the planner refused the task", Some(&refusal.readings))
            }
        };
        let Circumstances { check_id, triple, mode, guard, steps_left_out, nearest_rules, scene, timings_ms } =
            circumstances;
        let timings_ms = timings_ms.into_iter().filter_map(|(stage, ms)| Some((stage, Finite::new(ms)?))).collect();
        Self {
            check_id,
            triple,
            verdict,
            mode,
            reason,
            detail: keep_start(detail, SENTENCE_BYTES_MAX),
            readings: readings.map(RecordedReadings::from),
            steps_left_out,
            nearest_rules,
            scene: scene.map(|scene| keep_start(&scene, SENTENCE_BYTES_MAX)),
            redacted: false,
            guard,
            timings_ms,
            permit,
        }
    }
}

/// Readings as recorded. Units, ranges and signs are those of [`Readings`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedReadings {
    /// Which signals were read.
    pub tier: Tier,
    /// Where more were asked for, which and why they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
    /// The clean image's margin, in nats; positive leans to comply.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub margin: Option<Finite>,
    /// Calibrated log-odds that the plan should be refused, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub refuse_log_odds: Option<Finite>,
    /// A2: standard deviation of the margin over the perturbed copies, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub spread: Option<Finite>,
    /// Perturbed copies behind the spread.
    pub copies: u32,
    /// Share of the copies whose calibrated verdict differs from the clean image's, in [0, 1].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub flip_share: Option<Finite>,
    /// A3: margin without the constitution minus margin with it, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub reliance: Option<Finite>,
    /// A1: marker densities per 100 words and the trace's length; empty without a trace or where one is not finite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace_ambiguity: Vec<Finite>,
    /// Standard deviation over the copies of the margin after the clean image's trace, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub forced_spread: Option<Finite>,
    /// The same where each copy has a trace of its own, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub traced_spread: Option<Finite>,
    /// A4: standard deviation of the margin over sampled traces, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub decoding_instability: Option<Finite>,
    /// A5, or its reduced form: probability in [0, 1].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub malleability: Option<Finite>,
    /// Readings that were taken and were not numbers: name and what they were (`NaN`, `inf`, `-inf`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub non_finite: BTreeMap<String, String>,
}

impl From<&Readings> for RecordedReadings {
    fn from(readings: &Readings) -> Self {
        let mut non_finite = BTreeMap::new();
        let mut note = |name: &str, value: Option<f64>| {
            let value = value?;
            let finite = Finite::new(value);
            if finite.is_none() {
                non_finite.insert(name.to_owned(), value.to_string());
            }
            finite
        };
        let trace: Vec<Option<Finite>> =
            readings.trace_ambiguity.iter().map(|&density| note("trace_ambiguity", Some(density))).collect();
        Self {
            tier: readings.tier,
            fallback: readings.fallback,
            margin: note("margin", Some(readings.margin.nats())),
            refuse_log_odds: note("refuse_log_odds", Some(readings.refuse_log_odds)),
            spread: note("spread", readings.spread),
            copies: readings.copies,
            flip_share: note("flip_share", readings.flip_share),
            reliance: note("reliance", readings.reliance),
            trace_ambiguity: trace.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default(),
            forced_spread: note("forced_spread", readings.forced_spread),
            traced_spread: note("traced_spread", readings.traced_spread),
            decoding_instability: note("decoding_instability", readings.decoding_instability),
            malleability: note("malleability", readings.malleability),
            non_finite,
        }
    }
}

/// A rule of the constitution that lies near the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NearestRule {
    /// Its number.
    pub number: u32,
    /// Its sentence.
    pub text: String,
    /// How near it lies, on the constitution's own scale; larger is nearer.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub proximity: Option<Finite>,
}

/// A signed permit, as far as a record may know it: enough to find it again, not enough to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitNote {
    /// The permit's nonce, in hexadecimal.
    pub nonce: String,
    /// When it expires, in nanoseconds since boot (`CLOCK_BOOTTIME`).
    pub expires_boot_ns: u64,
    /// When it expires by the wall clock, in nanoseconds since 1970-01-01 UTC.
    pub expires_wall_ns: u64,
}

/// The guard as it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Version of the program.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Mode at the start.
    pub mode: Mode,
    /// What will judge.
    pub guard: GuardIdentity,
}

/// A person released a vetoed plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The vetoed check.
    pub check_id: CheckId,
    /// Who.
    pub who: Client,
    /// Why, in their words.
    pub note: String,
    /// The permit that was signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitNote>,
}

/// First record of a segment: where the chain stands, so that a start needs to read one segment only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentOpened {
    /// This segment's number, counting from 1.
    pub segment: u64,
    /// The segment before it, finished; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Sealed>,
    /// Checks received and not yet decided when it was opened, at most [`CHECK_IDS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<CheckId>,
    /// Everything that retention has taken out up to now.
    #[serde(default)]
    pub retired: Retired,
}

/// What retention has taken out of a log. Restated in full each time, so that the newest statement always suffices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Runs of segments removed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// Segments that lost the payloads of everything but vetoes; their hashes stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pruned: Vec<PrunedSegment>,
}

/// A segment that lost payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunedSegment {
    /// Its number.
    pub segment: u64,
    /// How many records have lost their payload.
    pub records: u64,
}

/// What a finished segment holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Its number.
    pub segment: u64,
    /// Hash of the record before its first.
    pub before: Digest,
    /// Hash of its last record.
    pub last: Digest,
    /// Sequence number of its first record.
    pub first_sequence: u64,
    /// Sequence number of its last record.
    pub last_sequence: u64,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Vetoes in it.
    pub vetoes: u64,
    /// Permits and refusals in it.
    pub others: u64,
    /// Wall clock of its last record, in nanoseconds since 1970-01-01 UTC.
    pub last_wall_ns: u64,
}

/// A run of segments that retention removed, and the hashes that close the chain over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// First segment removed.
    pub first_segment: u64,
    /// Last segment removed.
    pub last_segment: u64,
    /// Hash of the record before the gap.
    pub before: Digest,
    /// Hash of the last record in the gap.
    pub last: Digest,
    /// Sequence number of the first record removed.
    pub first_sequence: u64,
    /// Sequence number of the last record removed.
    pub last_sequence: u64,
    /// Vetoes removed.
    pub vetoes: u64,
    /// Permits and refusals removed.
    pub others: u64,
}

/// The head of the chain under a signature. What stands before it cannot be changed without the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Sequence number of the record signed: the one before this.
    pub sequence: u64,
    /// Hash of that record.
    pub head: Digest,
    /// Ed25519 public key, in hexadecimal.
    pub key: String,
    /// Ed25519 signature over [`checkpoint_message`], in hexadecimal.
    pub signature: String,
}

/// The bytes a checkpoint signs: a name, the sequence number (little-endian) and the head's hash.
#[must_use]
pub fn checkpoint_message(sequence: u64, head: &Digest) -> Vec<u8> {
    let mut message = b"steadfast/audit/checkpoint/1\0".to_vec();
    message.extend_from_slice(&sequence.to_le_bytes());
    message.extend_from_slice(head.as_bytes());
    message
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decision::Veto;
    use crate::margin::Margin;

    pub(crate) fn stamp(wall_ns: u64) -> Stamp {
        Stamp { wall_ns, boot_ns: wall_ns / 2, boot_id: "0f".repeat(16) }
    }

    pub(crate) fn guard() -> GuardIdentity {
        GuardIdentity {
            proxy: Digest::of(b"proxy"),
            constitution: Digest::of(b"constitution"),
            calibration: Digest::of(b"calibration"),
            execution_provider: "CPUExecutionProvider".to_owned(),
        }
    }

    pub(crate) fn circumstances(id: u8) -> Circumstances {
        Circumstances {
            check_id: CheckId::from_bytes([id; 16]),
            triple: Some(Digest::of(&[id])),
            mode: Mode::Enforce,
            guard: guard(),
            steps_left_out: vec![],
            nearest_rules: vec![],
            scene: Some("clearly a cup on the left".to_owned()),
            timings_ms: vec![("decode".to_owned(), 12.5), ("lost".to_owned(), f64::NAN)],
        }
    }

    pub(crate) fn veto(id: u8, reason: Reason, detail: &str) -> Record {
        let decision = Decision::Veto(Veto { reason, detail: detail.to_owned(), readings: None });
        Record::new(stamp(9), Event::Decided(Box::new(Decided::of(&decision, circumstances(id), None))))
    }

    pub(crate) fn received(id: u8) -> Record {
        let received = Received {
            check_id: CheckId::from_bytes([id; 16]),
            client: Client { name: ":1.7".to_owned(), uid: Some(1000), pid: Some(42) },
            digests: Some(Digests::of(b"pour the coffee", b"image", b"1. pour")),
            sizes: Sizes { instruction: 15, image: Some(5), plan: 7 },
            texts: Some(Texts::keep("pour the coffee", "1. pour")),
            redacted: false,
            planner: Some("planner".to_owned()),
            plan_id: None,
            audience: Some("arm".to_owned()),
            image_stamp_ns: Some(7),
            deadline_ms: Some(1500),
            options: BTreeMap::new(),
        };
        Record::new(stamp(8), Event::Received(Box::new(received)))
    }

    fn readings(values: [f64; 7]) -> Readings {
        let [refuse_log_odds, spread, flip_share, reliance, density, decoding_instability, malleability] = values;
        Readings {
            tier: Tier::Full,
            fallback: None,
            margin: Margin::new(1.5).expect("finite"),
            refuse_log_odds,
            spread: Some(spread),
            copies: 20,
            flip_share: Some(flip_share),
            reliance: Some(reliance),
            trace_ambiguity: vec![density, 2.0],
            forced_spread: Some(0.5),
            traced_spread: Some(0.5),
            decoding_instability: Some(decoding_instability),
            malleability: Some(malleability),
        }
    }

    #[test]
    fn records_read_back_as_written() {
        let mut judged_without = veto(1, Reason::Constitution, "");
        if let Event::Decided(decided) = &mut judged_without.event {
            decided.steps_left_out = (1..=256).collect();
        }
        for record in [received(1), veto(1, Reason::Rule, "too heavy"), judged_without] {
            let bytes = record.encode().expect("encodes");
            assert_eq!(Record::decode(&bytes).expect("decodes"), record);
        }
    }

    #[test]
    fn a_newer_schema_is_refused_by_number() {
        let newer = br#"{"schema":2,"event":{"kind":"of-tomorrow"}}"#;
        assert_eq!(Record::decode(newer), Err(DecodeError::Newer { schema: 2 }));
    }

    #[test]
    fn a_null_reading_is_not_taken_for_an_absent_one() {
        let json = r#"{"tier":"margin-only","copies":20,"spread":null}"#;
        assert!(serde_json::from_str::<RecordedReadings>(json).is_err());
        let json = r#"{"tier":"margin-only","copies":20}"#;
        assert_eq!(serde_json::from_str::<RecordedReadings>(json).expect("absent").spread, None);
    }

    #[test]
    fn a_record_over_its_limit_is_refused() {
        let mut record = veto(1, Reason::Rule, "");
        if let Event::Decided(decided) = &mut record.event {
            decided.detail = "x".repeat(RECORD_BYTES_MAX);
        }
        assert!(matches!(record.encode(), Err(EncodeError::TooLarge { .. })));
    }

    #[test]
    fn the_longest_texts_fully_escaped_still_fit() {
        let mut record = received(1);
        if let Event::Received(received) = &mut record.event {
            received.texts = Some(Texts::keep(&"\u{1}".repeat(1 << 20), &"\u{1}".repeat(1 << 20)));
            assert!(received.texts.as_ref().expect("kept").cut);
        }
        record.encode().expect("fits");
    }

    #[test]
    fn redaction_leaves_no_word_of_the_input() {
        let mut records = [received(1), veto(1, Reason::Rule, "the plan lifts the coffee")];
        for record in &mut records {
            record.redact();
            let text = String::from_utf8(record.encode().expect("encodes")).expect("text");
            for word in ["coffee", "pour", "cup"] {
                assert!(!text.contains(word), "{word} in {text}");
            }
            assert!(text.contains("\"redacted\":true"));
        }
        let Event::Received(received) = &records[0].event else { panic!("received") };
        assert!(received.digests.is_some(), "digests stay");
    }

    proptest! {
        #[test]
        fn every_reading_is_finite_or_absent_and_named(values in prop::array::uniform7(prop_oneof![
            -1e9..1e9_f64, Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY),
        ])) {
            let recorded = RecordedReadings::from(&readings(values));
            let json = serde_json::to_string(&recorded).expect("encodes");
            prop_assert!(!json.contains("null"), "{}", json);
            let broken = values.iter().filter(|value| !value.is_finite()).count();
            prop_assert_eq!(recorded.non_finite.len(), broken);
            let back: RecordedReadings = serde_json::from_str(&json).expect("decodes");
            prop_assert_eq!(back.non_finite, recorded.non_finite);
        }
    }
}
