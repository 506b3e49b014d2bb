//! The executor's half: may I run this plan, on the strength of this token?
//!
//! [`Verifier::accept`] answers once per permit. It believes nothing before the signature fits, recomputes every
//! digest from the bytes that are about to be executed, allows no leeway on a clock it shares with the guard, and
//! writes the nonce down before it says yes. [`Verifier::examine`] does everything but spend the nonce, for logs and
//! for the command line.

use super::claims::{self, Claims, Malformed};
use super::keys::{KeyId, PublicKeys};
use super::nonces::{NonceStore, SpendError};
use super::{LIFETIME_MAX, Moment};
use crate::triple::{Digest, Digests};

/// Most seconds two machines' wall clocks may be let differ.
pub const LEEWAY_S_MAX: u64 = 5;

/// The bytes that are about to be executed.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// What the robot was told.
    pub instruction: &'a [u8],
    /// What the planner saw, encoded as it was sent to the guard.
    pub image: &'a [u8],
    /// The plan that would run.
    pub plan: &'a [u8],
}

/// By which clock a permit is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The verifier runs on the guard's machine: wall clock, boot id and boot clock all count, without leeway.
    SameMachine(Moment),
    /// It runs elsewhere and has only a wall clock in common with the guard.
    Elsewhere {
        /// Unix time in seconds.
        unix_s: u64,
        /// How far the clocks may differ, in seconds; 0 unless there is a reason, at most [`LEEWAY_S_MAX`].
        leeway_s: u64,
    },
}

/// What an executor asks of a permit.
#[derive(Debug, Clone)]
pub struct Expectation<'a> {
    /// The guard that must have signed.
    pub issuer: &'a str,
    /// This executor's own name.
    pub audience: &'a str,
    /// The clock to judge by.
    pub clock: Clock,
    /// Whether a person's release counts as well as the guard's own answer.
    pub releases: bool,
    /// The constitution it must have been judged against; `None` takes any.
    pub constitution: Option<Digest>,
    /// The proxy that must have judged; `None` takes any.
    pub proxy: Option<Digest>,
    /// The calibration that must have set the limits; `None` takes any.
    pub calibration: Option<Digest>,
}

impl<'a> Expectation<'a> {
    /// The usual case: any constitution of this guard, releases count.
    #[must_use]
    pub const fn new(issuer: &'a str, audience: &'a str, clock: Clock) -> Self {
        Self { issuer, audience, clock, releases: true, constitution: None, proxy: None, calibration: None }
    }
}

/// What a digest in a permit stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The instruction.
    Instruction,
    /// The image.
    Image,
    /// The plan.
    Plan,
    /// All three together.
    Triple,
    /// The constitution.
    Constitution,
    /// The proxy.
    Proxy,
    /// The calibration.
    Calibration,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Instruction => "instruction",
            Self::Image => "image",
            Self::Plan => "plan",
            Self::Triple => "triple",
            Self::Constitution => "constitution",
            Self::Proxy => "proxy",
            Self::Calibration => "calibration",
        })
    }
}

/// Why a token is no leave to run this plan, here and now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The bytes are not a permit.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// Signed with a key that is not trusted here.
    #[error("key {0} is not known")]
    UnknownKey(KeyId),
    /// The signature does not fit the bytes.
    #[error("the signature does not fit")]
    Signature,
    /// Signed with a key after that key was retired.
    #[error("key {0} was retired before this was signed")]
    RetiredKey(KeyId),
    /// Signed with a retired key whose overlap has ended.
    #[error("key {key} was retired and its overlap ended {ago_s} s ago")]
    OverlapEnded {
        /// Which key.
        key: KeyId,
        /// Since when, in seconds.
        ago_s: u64,
    },
    /// Another guard's.
    #[error("issued by {0:?}")]
    Issuer(String),
    /// Meant for another executor.
    #[error("meant for {0:?}")]
    Audience(String),
    /// The wall clock has reached its end.
    #[error("expired {ago_s} s ago")]
    Expired {
        /// Since when, in seconds.
        ago_s: u64,
    },
    /// Signed at a time that is yet to come.
    #[error("issued {ahead_s} s in the future")]
    IssuedAhead {
        /// How far ahead, in seconds.
        ahead_s: u64,
    },
    /// It would live longer than any permit may.
    #[error("lives longer than a permit may")]
    Lifetime,
    /// Signed in another boot.
    #[error("signed in another boot")]
    Boot,
    /// The boot clock has reached its deadline.
    #[error("its deadline on the boot clock passed {ago_ns} ns ago")]
    DeadlinePassed {
        /// Since when, in nanoseconds.
        ago_ns: u64,
    },
    /// Made out for something else than what is here.
    #[error("made out for another {0}")]
    Mismatch(Bound),
    /// A person's release, where only the guard's own answer counts.
    #[error("a person's release, which does not count here")]
    Release,
    /// Used before, or its nonce could not be written down.
    #[error(transparent)]
    Nonce(#[from] SpendError),
}

/// Checks permits against the keys it trusts.
#[derive(Debug, Clone)]
pub struct Verifier {
    keys: PublicKeys,
}

/// One plan may run, now, once. Made by [`Verifier::accept`] alone.
#[derive(Debug)]
#[must_use = "the permit is spent: run the plan or report why not"]
pub struct Accepted {
    claims: Claims,
}

impl Accepted {
    /// What the permit says. The plan must start before [`Claims::deadline_boottime_ns`].
    #[must_use]
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }
}

impl Verifier {
    /// A verifier that trusts these keys.
    #[must_use]
    pub const fn new(keys: PublicKeys) -> Self {
        Self { keys }
    }

    /// Whether the plan may run, spending the permit: a second call with the same token is refused, also after a
    /// restart, as far as the store remembers.
    ///
    /// # Errors
    /// The first thing found wrong. The plan must not run.
    pub fn accept(
        &self,
        token: &[u8],
        parts: Parts<'_>,
        expectation: &Expectation<'_>,
        nonces: &impl NonceStore,
    ) -> Result<Accepted, Rejection> {
        let claims = self.examine(token, parts, expectation)?;
        let (now_unix_s, _) = wall(expectation.clock);
        nonces.spend(claims.nonce, claims.expires_unix_s, now_unix_s)?;
        Ok(Accepted { claims })
    }

    /// What the token says, if it is good for these parts here and now. Spends nothing, so it permits nothing.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn examine(&self, token: &[u8], parts: Parts<'_>, expectation: &Expectation<'_>) -> Result<Claims, Rejection> {
        let claims = self.authentic(token, expectation.clock)?;
        if claims.issuer != expectation.issuer {
            return Err(Rejection::Issuer(claims.issuer));
        }
        if claims.audience != expectation.audience {
            return Err(Rejection::Audience(claims.audience));
        }
        alive(&claims, expectation.clock)?;
        fits(&claims, &Digests::of(parts.instruction, parts.image, parts.plan), expectation)?;
        if claims.released.is_some() && !expectation.releases {
            return Err(Rejection::Release);
        }
        Ok(claims)
    }

    /// What a trusted key signed while it was to be trusted, whatever it is good for.
    fn authentic(&self, token: &[u8], clock: Clock) -> Result<Claims, Rejection> {
        let envelope = claims::open(token)?;
        let key = self.keys.find(envelope.key_id).ok_or(Rejection::UnknownKey(envelope.key_id))?;
        key.verify(&envelope.signed, &envelope.signature).map_err(|_| Rejection::Signature)?;
        let claims = claims::decode(&envelope.payload)?;
        let Some(retirement) = key.retirement() else { return Ok(claims) };
        if claims.issued_unix_s > retirement.retired_unix_s {
            return Err(Rejection::RetiredKey(key.id()));
        }
        let (unix_s, leeway_s) = wall(clock);
        let until_unix_s = retirement.permits_until_unix_s;
        if unix_s > until_unix_s.saturating_add(leeway_s) {
            return Err(Rejection::OverlapEnded { key: key.id(), ago_s: unix_s.saturating_sub(until_unix_s) });
        }
        Ok(claims)
    }
}

/// The wall clock of whoever verifies, and how far it may be off, in seconds.
fn wall(clock: Clock) -> (u64, u64) {
    match clock {
        Clock::SameMachine(moment) => (moment.unix_s, 0),
        Clock::Elsewhere { unix_s, leeway_s } => (unix_s, leeway_s.min(LEEWAY_S_MAX)),
    }
}

fn alive(claims: &Claims, clock: Clock) -> Result<(), Rejection> {
    let (unix_s, leeway_s) = wall(clock);
    let (issued, expires) = (claims.issued_unix_s, claims.expires_unix_s);
    if expires.checked_sub(issued).is_none_or(|lifetime_s| lifetime_s > LIFETIME_MAX.as_secs()) {
        return Err(Rejection::Lifetime);
    }
    if unix_s.saturating_add(leeway_s) < issued {
        return Err(Rejection::IssuedAhead { ahead_s: issued.saturating_sub(unix_s) });
    }
    if unix_s >= expires.saturating_add(leeway_s) {
        return Err(Rejection::Expired { ago_s: unix_s.saturating_sub(expires) });
    }
    let Clock::SameMachine(moment) = clock else { return Ok(()) };
    if claims.boot_id != moment.boot_id {
        return Err(Rejection::Boot);
    }
    match claims.deadline_boottime_ns.checked_sub(moment.boottime_ns) {
        None | Some(0) => {
            let ago_ns = moment.boottime_ns.saturating_sub(claims.deadline_boottime_ns);
            Err(Rejection::DeadlinePassed { ago_ns })
        }
        Some(left_ns) if u128::from(left_ns) > LIFETIME_MAX.as_nanos() => Err(Rejection::Lifetime),
        Some(_) => Ok(()),
    }
}

/// Compares every digest, the parts before the whole so that the answer names what differs.
fn fits(claims: &Claims, here: &Digests, expectation: &Expectation<'_>) -> Result<(), Rejection> {
    let Digests { instruction, image, plan, triple } = &claims.digests;
    for (bound, claimed, found) in [
        (Bound::Instruction, instruction, Some(&here.instruction)),
        (Bound::Image, image, Some(&here.image)),
        (Bound::Plan, plan, Some(&here.plan)),
        (Bound::Triple, triple, Some(&here.triple)),
        (Bound::Constitution, &claims.constitution, expectation.constitution.as_ref()),
        (Bound::Proxy, &claims.proxy, expectation.proxy.as_ref()),
        (Bound::Calibration, &claims.calibration, expectation.calibration.as_ref()),
    ] {
        if found.is_some_and(|found| found != claimed) {
            return Err(Rejection::Mismatch(bound));
        }
    }
    Ok(())
}
