//! The whole policy on one screen: readings and limits in; permit, veto or refusal out.
//!
//! [`decide`] is the only function that makes a [`Leave`], [`release`] the only one that makes a [`Release`], and
//! nothing else can be signed into a permit.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::calibration::Limits;
use crate::constitution::BrokenLimit;
use crate::margin::Margin;
use crate::plan::Stance;
use crate::proxy::Fault;
use crate::scene::decode::ImageError;
use crate::signals::trace_ambiguity::Lexicon;
use crate::signals::{Feature, Features};
use crate::triple::{Digests, TripleError};

/// Why the answer is no. The codes are stable: they are in records, on the bus and in integrators' code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The proxy, calibrated, finds that the plan breaks the constitution.
    Constitution,
    /// The verdict would not hold: it bends with noise in the image.
    Malleable,
    /// The same task was refused before, and the scene has changed only by everyday objects since.
    FlippedRefusal,
    /// A rule with a machine-checkable limit is broken.
    Rule,
    /// The plan neither complies nor refuses, so there is nothing that could be permitted.
    InconclusivePlan,
    /// The image is missing, broken, or of a kind that is not accepted.
    ImageInvalid,
    /// The image is too old, or its stamp lies in the future.
    ImageStale,
    /// An input is larger than its limit, empty, or not text.
    InputLimit,
    /// The answer was not ready in time.
    Deadline,
    /// Too many checks are waiting.
    Overload,
    /// The proxy failed or answered with something that is not a margin.
    ProxyFault,
    /// The record cannot be written, so the answer must not leave.
    AuditUnavailable,
    /// The guard is starting or stopping.
    NotReady,
    /// A fault of the guard itself.
    Internal,
}

impl Reason {
    /// Every reason, in the order of the reference documentation.
    pub const ALL: [Self; 14] = [
        Self::Constitution,
        Self::Malleable,
        Self::FlippedRefusal,
        Self::Rule,
        Self::InconclusivePlan,
        Self::ImageInvalid,
        Self::ImageStale,
        Self::InputLimit,
        Self::Deadline,
        Self::Overload,
        Self::ProxyFault,
        Self::AuditUnavailable,
        Self::NotReady,
        Self::Internal,
    ];

    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Constitution => "constitution",
            Self::Malleable => "malleable",
            Self::FlippedRefusal => "flipped-refusal",
            Self::Rule => "rule",
            Self::InconclusivePlan => "inconclusive-plan",
            Self::ImageInvalid => "image-invalid",
            Self::ImageStale => "image-stale",
            Self::InputLimit => "input-limit",
            Self::Deadline => "deadline",
            Self::Overload => "overload",
            Self::ProxyFault => "proxy-fault",
            Self::AuditUnavailable => "audit-unavailable",
            Self::NotReady => "not-ready",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// What kept a triple from being judged at all.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// A part of the triple breaks a limit.
    #[error(transparent)]
    Triple(#[from] TripleError),
    /// An input cannot be taken in: not UTF-8, an unsealed file, an unknown option's value.
    #[error("{0}")]
    Input(String),
    /// The image is not one we accept.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image's stamp is older than the limit.
    #[error("the image is {age_ms} ms old; at most {age_ms_max} ms are accepted")]
    Stale {
        /// Age of the image when the check was admitted, in milliseconds.
        age_ms: u64,
        /// The limit it broke, in milliseconds.
        age_ms_max: u64,
    },
    /// The image's stamp lies in the future, or is zero where one is required.
    #[error("the image's stamp is not a time in the past")]
    Stamp,
    /// The deadline passed.
    #[error("the answer was not ready within {deadline_ms} ms")]
    Deadline {
        /// The time allowed, in milliseconds.
        deadline_ms: u64,
    },
    /// The queue is full, or this client has too many checks waiting.
    #[error("{waiting} checks are waiting, which is the limit")]
    Overload {
        /// Checks waiting.
        waiting: usize,
    },
    /// This client asks faster than it may.
    #[error("more than {checks_per_second_max} checks a second were asked for")]
    Pace {
        /// The pace a client may keep, in checks per second.
        checks_per_second_max: u32,
    },
    /// The proxy failed.
    #[error(transparent)]
    Proxy(#[from] Fault),
    /// The calibration's composite needs a reading that the check fell short of.
    #[error("the composite needs {feature}, which the tier {} reads: {}", fallback.asked, fallback.why)]
    ShortOfTier {
        /// The reading.
        feature: Feature,
        /// Which tier was not reached, and why.
        fallback: Fallback,
    },
    /// The record could not be stored.
    #[error("the audit log cannot be written: {0}")]
    Audit(String),
    /// The guard is starting or stopping.
    #[error("the guard is not ready")]
    NotReady,
    /// A fault of the guard itself.
    #[error("internal fault: {0}")]
    Internal(String),
}

impl Failure {
    /// The one exhaustive map from everything that can go wrong to a veto reason.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Triple(_) | Self::Input(_) => Reason::InputLimit,
            Self::Image(_) => Reason::ImageInvalid,
            Self::Stale { .. } | Self::Stamp => Reason::ImageStale,
            Self::Deadline { .. } | Self::Proxy(Fault::DeadlinePassed) => Reason::Deadline,
            Self::Overload { .. } | Self::Pace { .. } => Reason::Overload,
            Self::Proxy(
                Fault::NonFinite(_)
                | Fault::NonFiniteTensor { .. }
                | Fault::AllZero { .. }
                | Fault::ContextExceeded { .. }
                | Fault::Unsupported(_)
                | Fault::Blind
                | Fault::Engine(_)
                | Fault::NotRecorded,
            ) => Reason::ProxyFault,
            Self::ShortOfTier { fallback: Fallback { why: Shortfall::Deadline, .. }, .. } => Reason::Deadline,
            Self::ShortOfTier {
                fallback: Fallback { why: Shortfall::EmptyTrace | Shortfall::Context, .. }, ..
            } => Reason::ProxyFault,
            Self::Audit(_) => Reason::AuditUnavailable,
            Self::NotReady => Reason::NotReady,
            Self::Internal(_) => Reason::Internal,
        }
    }
}

/// Which signals were asked of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// A2 and A3: margins alone.
    MarginOnly,
    /// And A1: one clean trace, teacher-forced over the copies.
    TraceOnce,
    /// And A4: sampled traces.
    Full,
}

impl Tier {
    /// The stable word, as it is written in files.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::MarginOnly => "margin-only",
            Self::TraceOnce => "trace-once",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Why a check did not reach the tier that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shortfall {
    /// The deadline does not hold the traces.
    Deadline,
    /// The trace has no words, so nothing can be counted in it.
    EmptyTrace,
    /// The trace is longer than the proxy's context has room for, though not longer than it may be.
    Context,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "the deadline does not hold the traces",
            Self::EmptyTrace => "the trace has no words",
            Self::Context => "the context does not hold the trace",
        })
    }
}

/// A check that did not reach the tier that was asked for; [`Readings::tier`] is the one it reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fallback {
    /// The tier asked for.
    pub asked: Tier,
    /// Why it was not reached.
    pub why: Shortfall,
}

/// What the proxy's answers amount to. A reading that was not taken is `None`; it never has a default.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Readings {
    /// Which signals were read.
    pub tier: Tier,
    /// Where more were asked for, which and why they were not read.
    pub fallback: Option<Fallback>,
    /// The clean image's margin, in nats; positive leans to comply.
    pub margin: Margin,
    /// Calibrated log-odds that the plan should be refused, in nats.
    pub refuse_log_odds: f64,
    /// A2: standard deviation of the margin over the perturbed copies, in nats.
    pub spread: Option<f64>,
    /// Perturbed copies behind the spread.
    pub copies: u32,
    /// Share of the copies whose calibrated verdict differs from the clean image's, in [0, 1].
    pub flip_share: Option<f64>,
    /// A3: margin without the constitution minus margin with it, in nats.
    pub reliance: Option<f64>,
    /// A1: marker densities per 100 words and the trace's length, in the order of the lexicon; empty without a trace.
    pub trace_ambiguity: Vec<f64>,
    /// Standard deviation over the copies of the margin after the clean image's trace, in nats.
    pub forced_spread: Option<f64>,
    /// The same where each copy has a trace of its own, in nats.
    pub traced_spread: Option<f64>,
    /// A4: standard deviation of the margin over sampled traces, in nats.
    pub decoding_instability: Option<f64>,
    /// A5, or its reduced form: probability in [0, 1].
    pub malleability: Option<f64>,
}

impl Readings {
    /// The readings that only traces give, by name; empty where the tier read none.
    #[must_use]
    pub fn traced(&self) -> Features {
        let ambiguity = Lexicon::ORDER.into_iter().zip(self.trace_ambiguity.iter().copied());
        let others = [
            (Feature::ForcedSpread, self.forced_spread),
            (Feature::TracedSpread, self.traced_spread),
            (Feature::DecodingInstability, self.decoding_instability),
        ];
        ambiguity.chain(others.into_iter().filter_map(|(feature, reading)| Some((feature, reading?)))).collect()
    }
}

/// Everything a decision rests on.
#[derive(Debug, Clone)]
pub struct Case {
    /// The triple judged.
    pub digests: Digests,
    /// What the plan is.
    pub stance: Stance,
    /// Rules with a machine-checkable limit that the plan breaks.
    pub broken_limits: Vec<BrokenLimit>,
    /// What the proxy's answers amount to.
    pub readings: Readings,
    /// Whether the ledger knows a refusal of this task in a scene that differs only by everyday objects.
    pub refused_before: bool,
}

/// The answer.
#[derive(Debug)]
#[must_use = "an answer that nobody delivers leaves the robot waiting"]
pub enum Decision {
    /// This plan may run.
    Permit(Leave),
    /// This plan must not run.
    Veto(Veto),
    /// The planner refused: nothing to run.
    Refusal(Refusal),
}

/// Leave to run exactly one plan. Made by [`decide`] alone; cannot be copied, defaulted or read back from anywhere.
#[derive(Debug, Serialize)]
#[must_use = "a leave that is not signed permits nothing"]
pub struct Leave {
    digests: Digests,
    readings: Readings,
}

impl Leave {
    /// The triple that may run.
    #[must_use]
    pub const fn digests(&self) -> &Digests {
        &self.digests
    }

    /// What the leave rests on.
    #[must_use]
    pub const fn readings(&self) -> &Readings {
        &self.readings
    }
}

/// Largest name of a person who releases a plan, in bytes of UTF-8.
pub const RELEASE_WHO_BYTES_MAX: usize = 128;
/// Largest note a release carries, in bytes of UTF-8.
pub const RELEASE_NOTE_BYTES_MAX: usize = 512;

/// A person's leave to run one plan that was vetoed. Made by [`release`] alone; cannot be copied or read back.
#[derive(Debug, Serialize)]
#[must_use = "a release that is not signed permits nothing"]
pub struct Release {
    digests: Digests,
    vetoed: Reason,
    who: String,
    note: String,
}

impl Release {
    /// The triple that may run.
    #[must_use]
    pub const fn digests(&self) -> &Digests {
        &self.digests
    }

    /// Why it had been vetoed.
    #[must_use]
    pub const fn vetoed(&self) -> Reason {
        self.vetoed
    }

    /// Who releases it.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }

    /// Why that person releases it.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }
}

/// Why a vetoed plan cannot be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The veto came from a fault, so nobody judged the plan: it has to be checked again instead.
    #[error("a veto for {0} is a fault, not a judgement; check the plan again")]
    NotJudged(Reason),
    /// Who or why is empty, too long, or holds a control character.
    #[error("{field} must have 1 to {bytes_max} bytes and no control characters")]
    Text {
        /// `who` or `note`.
        field: &'static str,
        /// The limit, in bytes.
        bytes_max: usize,
    },
}

/// Makes the leave by which a person, named, overrules one veto, for a reason, given. Vetoes that are faults cannot be
/// overruled: no error leads to a permit.
///
/// # Errors
/// When the veto was a fault, or who or why is missing, too long or not plain text.
pub fn release(digests: Digests, vetoed: Reason, who: String, note: String) -> Result<Release, ReleaseError> {
    match vetoed {
        Reason::Constitution | Reason::Malleable | Reason::FlippedRefusal | Reason::Rule | Reason::InconclusivePlan => {
        }
        Reason::ImageInvalid
        | Reason::ImageStale
        | Reason::InputLimit
        | Reason::Deadline
        | Reason::Overload
        | Reason::ProxyFault
        | Reason::AuditUnavailable
        | Reason::NotReady
        | Reason::Internal => return Err(ReleaseError::NotJudged(vetoed)),
    }
    for (field, text, bytes_max) in [("who", &who, RELEASE_WHO_BYTES_MAX), ("note", &note, RELEASE_NOTE_BYTES_MAX)] {
        if text.trim().is_empty() || text.len() > bytes_max || text.chars().any(char::is_control) {
            return Err(ReleaseError::Text { field, bytes_max });
        }
    }
    Ok(Release { digests, vetoed, who, note })
}

/// A no, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Veto {
    /// The stable code.
    pub reason: Reason,
    /// One sentence for a person.
    pub detail: String,
    /// What was read before the no, where anything was.
    pub readings: Option<Readings>,
}

impl Veto {
    /// The veto that a failure is.
    #[must_use]
    pub fn from_failure(failure: &Failure) -> Self {
        Self { reason: failure.reason(), detail: failure.to_string(), readings: None }
    }
}

/// The veto of a plan that neither complies nor refuses; it needs no readings.
#[must_use]
pub fn veto_inconclusive() -> Veto {
    let detail = "the plan neither complies nor refuses".to_owned();
    Veto { reason: Reason::InconclusivePlan, detail, readings: None }
}

/// The planner refused; the readings say how firmly that would hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refusal {
    /// What was read.
    pub readings: Readings,
}

/// The policy.
pub fn decide(case: Case, limits: &Limits) -> Decision {
    let Case { digests, stance, broken_limits, readings, refused_before } = case;
    let veto = |reason, detail: String, readings| Decision::Veto(Veto { reason, detail, readings: Some(readings) });

    let (flip_share, malleability) = match complete(&readings) {
        Ok(required) => required,
        Err(missing) => return veto(Reason::ProxyFault, missing, readings),
    };
    match stance {
        Stance::Refused => return Decision::Refusal(Refusal { readings }),
        Stance::Inconclusive => return Decision::Veto(Veto { readings: Some(readings), ..veto_inconclusive() }),
        Stance::Complied => {}
    }
    if let Some(broken) = broken_limits.first() {
        return veto(Reason::Rule, broken.to_string(), readings);
    }
    let (refuse_max, malleability_max, flip_max) =
        (limits.refuse_log_odds_max.get(), limits.malleability_max.get(), limits.flip_share_max.get());
    if readings.refuse_log_odds > refuse_max {
        let detail = format!("log-odds of refuse {:.2} over the limit {refuse_max:.2}", readings.refuse_log_odds);
        return veto(Reason::Constitution, detail, readings);
    }
    if malleability > malleability_max {
        let detail = format!("malleability {malleability:.2} over the limit {malleability_max:.2}");
        return veto(Reason::Malleable, detail, readings);
    }
    if flip_share > flip_max {
        let detail = format!("flip share {flip_share:.2} over the limit {flip_max:.2}");
        return veto(Reason::Malleable, detail, readings);
    }
    if refused_before {
        let detail = "this task was refused before and the scene has changed only by everyday objects".to_owned();
        return veto(Reason::FlippedRefusal, detail, readings);
    }
    Decision::Permit(Leave { digests, readings })
}

/// Checks that every reading the tier promises is there and finite; gives back the two the limits are compared with.
///
/// Comparisons with NaN are false, so a NaN that reached [`decide`]'s limits would read as "not over": this check
/// comes first.
fn complete(readings: &Readings) -> Result<(f64, f64), String> {
    let required = |name: &str, value: Option<f64>| match value {
        Some(value) if value.is_finite() => Ok(value),
        Some(value) => Err(format!("the reading {name} is {value}")),
        None => Err(format!("the reading {name} is missing")),
    };
    required("refuse_log_odds", Some(readings.refuse_log_odds))?;
    required("spread", readings.spread)?;
    required("reliance", readings.reliance)?;
    for &density in &readings.trace_ambiguity {
        required("trace_ambiguity", Some(density))?;
    }
    match readings.tier {
        Tier::MarginOnly => {}
        Tier::TraceOnce | Tier::Full if readings.trace_ambiguity.is_empty() => {
            return Err("the reading trace_ambiguity is missing".to_owned());
        }
        Tier::TraceOnce => {
            required("forced_spread", readings.forced_spread)?;
        }
        Tier::Full => {
            required("forced_spread", readings.forced_spread)?;
            required("traced_spread", readings.traced_spread)?;
            required("decoding_instability", readings.decoding_instability)?;
        }
    }
    Ok((required("flip_share", readings.flip_share)?, required("malleability", readings.malleability)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statistics::{Finite, Share};

    fn limits() -> Limits {
        let share = |value| Share::new(value).expect("a share");
        Limits {
            refuse_log_odds_max: Finite::new(-0.5).expect("finite"),
            malleability_max: share(0.6),
            flip_share_max: share(0.3),
        }
    }

    fn sound() -> Readings {
        Readings {
            tier: Tier::MarginOnly,
            fallback: None,
            margin: Margin::new(2.0).expect("finite"),
            refuse_log_odds: -2.0,
            spread: Some(0.1),
            copies: 20,
            flip_share: Some(0.0),
            reliance: Some(0.2),
            trace_ambiguity: vec![],
            forced_spread: None,
            traced_spread: None,
            decoding_instability: None,
            malleability: Some(0.1),
        }
    }

    fn case(readings: Readings) -> Case {
        Case {
            digests: Digests::of(b"i", b"p", b"q"),
            stance: Stance::Complied,
            broken_limits: vec![],
            readings,
            refused_before: false,
        }
    }

    fn reason(decision: Decision) -> Option<Reason> {
        match decision {
            Decision::Veto(veto) => Some(veto.reason),
            Decision::Permit(_) | Decision::Refusal(_) => None,
        }
    }

    #[test]
    fn a_sound_case_is_permitted_for_exactly_its_triple() {
        let case = case(sound());
        let digests = case.digests;
        match decide(case, &limits()) {
            Decision::Permit(leave) => assert_eq!(*leave.digests(), digests),
            other @ (Decision::Veto(_) | Decision::Refusal(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_limit_permits_at_its_edge_and_vetoes_past_it() {
        type Row = (fn(&mut Readings, f64), f64, Reason);
        let rows: [Row; 3] = [
            (|r, v| r.refuse_log_odds = v, limits().refuse_log_odds_max.get(), Reason::Constitution),
            (|r, v| r.malleability = Some(v), limits().malleability_max.get(), Reason::Malleable),
            (|r, v| r.flip_share = Some(v), limits().flip_share_max.get(), Reason::Malleable),
        ];
        for (set, limit, expected) in rows {
            let mut readings = sound();
            set(&mut readings, limit);
            assert!(matches!(decide(case(readings.clone()), &limits()), Decision::Permit(_)));
            set(&mut readings, limit.next_up());
            assert_eq!(reason(decide(case(readings), &limits())), Some(expected));
        }
    }

    #[test]
    fn stance_and_ledger_come_before_a_permit() {
        let refused = Case { stance: Stance::Refused, ..case(sound()) };
        assert!(matches!(decide(refused, &limits()), Decision::Refusal(_)));
        let inconclusive = Case { stance: Stance::Inconclusive, ..case(sound()) };
        assert_eq!(reason(decide(inconclusive, &limits())), Some(Reason::InconclusivePlan));
        let remembered = Case { refused_before: true, ..case(sound()) };
        assert_eq!(reason(decide(remembered, &limits())), Some(Reason::FlippedRefusal));
    }

    proptest! {
        #[test]
        fn no_missing_or_non_finite_reading_ever_permits(
            which in 0_usize..8,
            bad in prop::sample::select(vec![None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)]),
            tier in prop::sample::select(vec![Tier::MarginOnly, Tier::TraceOnce, Tier::Full]),
            stance in prop::sample::select(vec![Stance::Complied, Stance::Refused, Stance::Inconclusive]),
        ) {
            let mut readings = Readings { tier, ..sound() };
            if tier != Tier::MarginOnly {
                readings.trace_ambiguity = vec![1.0; 6];
                readings.decoding_instability = Some(0.1);
                readings.forced_spread = Some(0.1);
                readings.traced_spread = Some(0.1);
            }
            match which {
                0 => readings.spread = bad,
                1 => readings.reliance = bad,
                2 => readings.flip_share = bad,
                3 => readings.malleability = bad,
                4 => readings.refuse_log_odds = bad.unwrap_or(f64::NAN),
                5 => {
                    readings.tier = Tier::TraceOnce;
                    readings.forced_spread = bad;
                }
                6 => {
                    readings.tier = Tier::Full;
                    readings.traced_spread = bad;
                }
                _ => {
                    readings.tier = Tier::Full;
                    readings.decoding_instability = bad;
                }
            }
            let decision = decide(Case { stance, ..case(readings) }, &limits());
            prop_assert_eq!(reason(decision), Some(Reason::ProxyFault));
        }
    }

    /// Any reading at all: absent, no number, or a number near a limit or far from it.
    fn reading() -> impl Strategy<Value = Option<f64>> {
        let odd = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, -0.0, 0.0, -0.5, 0.3, 0.6];
        prop_oneof![Just(None), prop::sample::select(odd).prop_map(Some), (-2.0..2.0_f64).prop_map(Some)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        #[test]
        fn a_permit_has_every_reading_finite_and_within_its_limit(
            values in prop::array::uniform6(reading()),
            traces in prop::collection::vec(reading(), 0..3),
            tier in prop::sample::select(vec![Tier::MarginOnly, Tier::TraceOnce, Tier::Full]),
            stance in prop::sample::select(vec![Stance::Complied, Stance::Refused, Stance::Inconclusive]),
            refused_before in any::<bool>(),
        ) {
            let [log_odds, spread, flip_share, reliance, decoding_instability, malleability] = values;
            let trace_ambiguity = traces.iter().map(|density| density.unwrap_or(f64::NAN)).collect();
            let readings = Readings {
                tier, spread, flip_share, reliance, decoding_instability, malleability, trace_ambiguity,
                refuse_log_odds: log_odds.unwrap_or(f64::NAN),
                ..sound()
            };
            let case = Case { stance, refused_before, ..case(readings) };
            if let Decision::Permit(leave) = decide(case, &limits()) {
                let within = |value: Option<f64>, limit: f64| value.is_some_and(|value| value.is_finite() && value <= limit);
                prop_assert!(stance == Stance::Complied && !refused_before);
                prop_assert!(within(log_odds, limits().refuse_log_odds_max.get()));
                prop_assert!(within(flip_share, limits().flip_share_max.get()));
                prop_assert!(within(malleability, limits().malleability_max.get()));
                prop_assert!(within(spread, f64::MAX) && within(reliance, f64::MAX));
                prop_assert!(traces.iter().all(|density| within(*density, f64::MAX)));
                prop_assert!(tier == Tier::MarginOnly || !traces.is_empty());
                prop_assert!(tier != Tier::Full || within(decoding_instability, f64::MAX));
                prop_assert_eq!(leave.readings().tier, tier);
            }
        }
    }

    #[test]
    fn a_person_may_overrule_a_judgement_but_not_a_fault() {
        let digests = Digests::of(b"i", b"p", b"q");
        let judged =
            [Reason::Constitution, Reason::Malleable, Reason::FlippedRefusal, Reason::Rule, Reason::InconclusivePlan];
        for reason in Reason::ALL {
            let released = release(digests, reason, "uid 1000".to_owned(), "seen on site".to_owned());
            assert_eq!(released.is_ok(), judged.contains(&reason), "{reason}");
        }
        let text = |who: &str, note: &str| release(digests, Reason::Rule, who.to_owned(), note.to_owned()).is_ok();
        assert!(text(&"w".repeat(RELEASE_WHO_BYTES_MAX), &"n".repeat(RELEASE_NOTE_BYTES_MAX)));
        assert!(
            !text(&"w".repeat(RELEASE_WHO_BYTES_MAX + 1), "n") && !text("w", &"n".repeat(RELEASE_NOTE_BYTES_MAX + 1))
        );
        assert!(!text(" ", "n") && !text("w", "") && !text("w", "a\nb"));
    }

    #[test]
    fn codes_are_stable_and_distinct() {
        let codes: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_string(&reason).expect("json"), format!("\"{}\"", reason.code()));
        }
    }
}
