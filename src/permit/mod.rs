//! Signed leave to run one plan: who may run which plan, until when, once.
//!
//! [`sign`] turns a [`Leave`] or a [`Release`], which only [`crate::decision`] makes, into a permit: a CWT in a
//! `COSE_Sign1`, laid out in [`claims`]. [`verify`] is the executor's half and needs nothing of the rest of the guard
//! but the digests; [`nonces`] remembers what was used; [`keys`] makes, keeps and rotates the keys.

pub mod claims;
pub mod keys;
pub mod nonces;
pub mod verify;

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

pub use self::claims::{BootId, Claims, Malformed, Nonce, PERMIT_BYTES_MAX, Released};
use self::keys::{KeyError, SigningKey, system_random};
use crate::decision::{Leave, Release};
use crate::triple::Digest;

/// Shortest lifetime a permit may have. The expiry counts whole seconds of the wall clock and rounds down, so a
/// verifier that has only that clock may see up to one second less.
pub const LIFETIME_MIN: Duration = Duration::from_secs(2);
/// Lifetime where nothing else is configured.
pub const LIFETIME_DEFAULT: Duration = Duration::from_secs(30);
/// Longest lifetime a permit may have; verifiers refuse longer ones, which is what bounds their nonce stores.
pub const LIFETIME_MAX: Duration = Duration::from_secs(600);

/// What a permit is made from. Nothing but [`crate::decision`] makes either.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// The guard's own answer.
    Leave(&'a Leave),
    /// A person's, overruling a veto.
    Release(&'a Release),
}

impl<'a> From<&'a Leave> for Subject<'a> {
    fn from(leave: &'a Leave) -> Self {
        Self::Leave(leave)
    }
}

impl<'a> From<&'a Release> for Subject<'a> {
    fn from(release: &'a Release) -> Self {
        Self::Release(release)
    }
}

/// One reading of the clocks a permit lives by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Unix time in whole seconds, rounded down.
    pub unix_s: u64,
    /// Which boot the next field counts in.
    pub boot_id: BootId,
    /// `CLOCK_BOOTTIME` in nanoseconds: never steps, counts through suspend.
    pub boottime_ns: u64,
}

impl Moment {
    /// Reads the system's clocks and boot id.
    ///
    /// # Errors
    /// When the boot id cannot be read, or a clock shows a time before its own beginning.
    pub fn now() -> io::Result<Self> {
        let before_zero = |_| io::Error::from(io::ErrorKind::InvalidData);
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut bytes = [0; 16];
        hex::decode_to_slice(boot_id.trim().replace('-', ""), &mut bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let boot = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(boot.tv_sec).map_err(before_zero)?;
        let nanoseconds = u64::try_from(boot.tv_nsec).map_err(before_zero)?;
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the clocks a permit lives by")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self {
            unix_s: wall.as_secs(),
            boot_id: BootId(bytes),
            boottime_ns: seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds),
        })
    }
}

impl Nonce {
    /// A fresh nonce.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn random() -> Result<Self, KeyError> {
        system_random().map(|bytes| Self(*bytes))
    }
}

/// Everything a permit says besides what was decided.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Which guard signs.
    pub issuer: String,
    /// Which executor may run the plan.
    pub audience: String,
    /// The check that led here, as in the audit log.
    pub check_id: String,
    /// Digest of the constitution judged against.
    pub constitution: Digest,
    /// Digest of the proxy that judged.
    pub proxy: Digest,
    /// Digest of the calibration that set the limits.
    pub calibration: Digest,
    /// When the permit is signed.
    pub now: Moment,
    /// How long it is good for: [`LIFETIME_MIN`] to [`LIFETIME_MAX`].
    pub lifetime: Duration,
    /// Fresh for every permit: [`Nonce::random`].
    pub nonce: Nonce,
}

/// Why no permit can be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The lifetime is out of range.
    #[error("a permit lives {LIFETIME_MIN:?} to {LIFETIME_MAX:?}, not {0:?}")]
    Lifetime(Duration),
    /// A clock is so far on that the expiry cannot be written.
    #[error("the clock is out of range")]
    Clock,
    /// A name or the check id is empty, too long or not plain text.
    #[error(transparent)]
    Claims(#[from] Malformed),
}

/// Signs leave to run one plan.
///
/// # Errors
/// When the grant breaks a limit; nothing is signed then.
pub fn sign<'a>(subject: impl Into<Subject<'a>>, grant: &Grant, key: &SigningKey) -> Result<Vec<u8>, GrantError> {
    let lifetime = grant.lifetime;
    if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&lifetime) {
        return Err(GrantError::Lifetime(lifetime));
    }
    let (digests, released) = match subject.into() {
        Subject::Leave(leave) => (*leave.digests(), None),
        Subject::Release(release) => (
            *release.digests(),
            Some(Released { vetoed: release.vetoed(), who: release.who().to_owned(), note: release.note().to_owned() }),
        ),
    };
    let lifetime_ns = u64::try_from(lifetime.as_nanos()).map_err(|_| GrantError::Clock)?;
    let claims = Claims {
        issuer: grant.issuer.clone(),
        audience: grant.audience.clone(),
        expires_unix_s: grant.now.unix_s.checked_add(lifetime.as_secs()).ok_or(GrantError::Clock)?,
        issued_unix_s: grant.now.unix_s,
        nonce: grant.nonce,
        digests,
        constitution: grant.constitution,
        proxy: grant.proxy,
        calibration: grant.calibration,
        boot_id: grant.now.boot_id,
        deadline_boottime_ns: grant.now.boottime_ns.checked_add(lifetime_ns).ok_or(GrantError::Clock)?,
        check_id: grant.check_id.clone(),
        released,
    };
    Ok(claims::seal(&claims, key.id(), |bytes| key.sign(bytes))?)
}
