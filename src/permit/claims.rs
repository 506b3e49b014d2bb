//! What a permit says and the one way it is written: a CWT (RFC 8392) in a tagged `COSE_Sign1` (RFC 9052), EdDSA.
//!
//! | label | claim | CBOR |
//! |---|---|---|
//! | 1 | issuer | text |
//! | 3 | audience | text |
//! | 4 | expiry, Unix time in seconds | unsigned |
//! | 6 | issued at, Unix time in seconds | unsigned |
//! | 7 | nonce | 16 bytes |
//! | −70000 | layout version, 1 | unsigned |
//! | −70001 | SHA-256 of the plan | 32 bytes |
//! | −70002 | SHA-256 of the instruction | 32 bytes |
//! | −70003 | SHA-256 of the image | 32 bytes |
//! | −70004 | the triple's digest ([`crate::triple::Digests::triple`]) | 32 bytes |
//! | −70005 | digest of the constitution | 32 bytes |
//! | −70006 | digest of the proxy | 32 bytes |
//! | −70007 | digest of the calibration | 32 bytes |
//! | −70008 | boot id | 16 bytes |
//! | −70009 | deadline on `CLOCK_BOOTTIME`, in nanoseconds | unsigned |
//! | −70010 | check id | text |
//! | −70011 | release only: the reason that was overruled | text |
//! | −70012 | release only: who released | text |
//! | −70013 | release only: why | text |
//!
//! The protected header holds the algorithm (EdDSA, −8) and the key id; the unprotected header is empty; the external
//! data are empty. Integers are shortest-form, lengths definite, keys in the order above (RFC 8949, 4.2.1). A permit
//! has exactly one encoding: whatever does not encode back to the same bytes is refused.

use std::collections::BTreeMap;

use coset::cbor::value::Value;
use coset::cwt::{ClaimName, ClaimsSet, ClaimsSetBuilder, Timestamp};
use coset::{CborSerializable as _, CoseSign1, CoseSign1Builder, HeaderBuilder, TaggedCborSerializable as _, iana};
use serde::{Serialize, Serializer};

use super::keys::{KeyId, SIGNATURE_BYTES};
use crate::decision::{RELEASE_NOTE_BYTES_MAX, RELEASE_WHO_BYTES_MAX, Reason};
use crate::triple::{Digest, Digests};

/// Largest permit, in bytes: what every text at its limit amounts to, rounded up.
pub const PERMIT_BYTES_MAX: usize = 1536;
/// Largest issuer or audience, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 128;
/// Largest check id, in bytes of UTF-8.
pub const CHECK_ID_BYTES_MAX: usize = 64;

/// The layout's version.
const VERSION: u64 = 1;

/// Labels of the private claims; see the table above.
mod label {
    pub const VERSION: i64 = -70_000;
    pub const PLAN: i64 = -70_001;
    pub const INSTRUCTION: i64 = -70_002;
    pub const IMAGE: i64 = -70_003;
    pub const TRIPLE: i64 = -70_004;
    pub const CONSTITUTION: i64 = -70_005;
    pub const PROXY: i64 = -70_006;
    pub const CALIBRATION: i64 = -70_007;
    pub const BOOT_ID: i64 = -70_008;
    pub const DEADLINE: i64 = -70_009;
    pub const CHECK_ID: i64 = -70_010;
    pub const RELEASE_VETOED: i64 = -70_011;
    pub const RELEASE_WHO: i64 = -70_012;
    pub const RELEASE_NOTE: i64 = -70_013;
}

/// A number used once: what makes a permit good for one run only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Nonce(pub [u8; 16]);

/// The kernel's id of one boot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BootId(pub [u8; 16]);

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl Serialize for BootId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

/// Everything a permit says. Reading one back gives evidence to compare, never leave to run: that takes a
/// [`Verifier`](super::verify::Verifier).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claims {
    /// Which guard signed.
    pub issuer: String,
    /// Which executor may run the plan.
    pub audience: String,
    /// From this Unix time on the permit is void, in seconds.
    pub expires_unix_s: u64,
    /// When it was signed, Unix time in seconds.
    pub issued_unix_s: u64,
    /// What makes it usable once.
    pub nonce: Nonce,
    /// The triple that may run.
    pub digests: Digests,
    /// The constitution it was judged against.
    pub constitution: Digest,
    /// The proxy that judged it.
    pub proxy: Digest,
    /// The calibration that set the limits.
    pub calibration: Digest,
    /// The boot in which it was signed.
    pub boot_id: BootId,
    /// From this point of that boot's `CLOCK_BOOTTIME` on the permit is void, in nanoseconds.
    pub deadline_boottime_ns: u64,
    /// The check that led to it, as in the audit log.
    pub check_id: String,
    /// Present when a person overruled a veto.
    pub released: Option<Released>,
}

/// Who overruled which veto, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Released {
    /// The veto's reason.
    pub vetoed: Reason,
    /// Who released.
    pub who: String,
    /// Why.
    pub note: String,
}

/// Why bytes are not a permit in its one encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// More bytes than any permit has.
    #[error("{bytes} bytes; a permit has at most {PERMIT_BYTES_MAX}")]
    TooLarge {
        /// How many came.
        bytes: usize,
    },
    /// Not a tagged `COSE_Sign1`.
    #[error("not a COSE_Sign1: {0}")]
    NotSign1(String),
    /// Another algorithm than EdDSA, or none.
    #[error("the algorithm is not EdDSA")]
    Algorithm,
    /// A header that must be understood, and is not.
    #[error("the header lists critical parameters; a permit has none")]
    CriticalHeader,
    /// The key id is not eight bytes in the protected header.
    #[error("the key id is not {} bytes in the protected header", KeyId::BYTES)]
    KeyId,
    /// The claims are detached.
    #[error("the claims are not inside")]
    NoPayload,
    /// The signature has another length.
    #[error("the signature is not {SIGNATURE_BYTES} bytes")]
    SignatureLength,
    /// The payload is not a claims set.
    #[error("not a claims set: {0}")]
    NotClaims(String),
    /// A claim that every permit has is missing.
    #[error("claim {0} is missing")]
    Missing(i64),
    /// A claim has the wrong type, length or range.
    #[error("claim {0} has the wrong type, length or range")]
    Claim(i64),
    /// A claim that no permit has.
    #[error("claim {0} is not one of a permit's")]
    UnknownClaim(String),
    /// A layout this code does not know.
    #[error("layout version {0} is not known")]
    Version(u64),
    /// The same content, written another way: trailing bytes, another order, a longer integer, an extra header.
    #[error("not in the one encoding a permit has")]
    NotCanonical,
}

/// A token taken apart; nothing in it has been believed yet.
#[derive(Debug)]
pub(super) struct Envelope {
    pub key_id: KeyId,
    pub payload: Vec<u8>,
    pub signed: Vec<u8>,
    pub signature: [u8; SIGNATURE_BYTES],
}

/// Writes and signs. The only way in is [`super::sign`].
pub(super) fn seal(
    claims: &Claims,
    key_id: KeyId,
    sign: impl FnOnce(&[u8]) -> [u8; SIGNATURE_BYTES],
) -> Result<Vec<u8>, Malformed> {
    let unsigned = envelope(key_id, encode(claims)?, vec![]);
    let signature = sign(&unsigned.tbs_data(&[])).to_vec();
    let token = write(CoseSign1 { signature, ..unsigned })?;
    admit_size(&token)?;
    Ok(token)
}

/// Takes a token apart, refusing everything that is not the one encoding of its envelope.
pub(super) fn open(token: &[u8]) -> Result<Envelope, Malformed> {
    admit_size(token)?;
    let message = CoseSign1::from_tagged_slice(token).map_err(|error| Malformed::NotSign1(error.to_string()))?;
    let header = &message.protected.header;
    if header.alg != Some(coset::Algorithm::Assigned(iana::Algorithm::EdDSA)) {
        return Err(Malformed::Algorithm);
    }
    if !header.crit.is_empty() || !message.unprotected.crit.is_empty() {
        return Err(Malformed::CriticalHeader);
    }
    let key_id = KeyId::from_slice(&header.key_id).ok_or(Malformed::KeyId)?;
    let payload = message.payload.clone().ok_or(Malformed::NoPayload)?;
    let signature = message.signature.as_slice().try_into().map_err(|_| Malformed::SignatureLength)?;
    let signed = message.tbs_data(&[]);
    if write(envelope(key_id, payload.clone(), message.signature))? != token {
        return Err(Malformed::NotCanonical);
    }
    Ok(Envelope { key_id, payload, signed, signature })
}

/// Reads the claims, refusing everything that is not their one encoding.
pub(super) fn decode(payload: &[u8]) -> Result<Claims, Malformed> {
    let set = ClaimsSet::from_slice(payload).map_err(|error| Malformed::NotClaims(error.to_string()))?;
    if set.subject.is_some() {
        return Err(Malformed::UnknownClaim("2".to_owned()));
    }
    if set.not_before.is_some() {
        return Err(Malformed::UnknownClaim("5".to_owned()));
    }
    let mut private = Private::of(set.rest)?;
    let version = private.unsigned(label::VERSION)?;
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    let claims = Claims {
        issuer: name(1, set.issuer)?,
        audience: name(3, set.audience)?,
        expires_unix_s: seconds(4, set.expiration_time)?,
        issued_unix_s: seconds(6, set.issued_at)?,
        nonce: Nonce(exactly(7, &set.cwt_id.ok_or(Malformed::Missing(7))?)?),
        digests: Digests {
            plan: private.digest(label::PLAN)?,
            instruction: private.digest(label::INSTRUCTION)?,
            image: private.digest(label::IMAGE)?,
            triple: private.digest(label::TRIPLE)?,
        },
        constitution: private.digest(label::CONSTITUTION)?,
        proxy: private.digest(label::PROXY)?,
        calibration: private.digest(label::CALIBRATION)?,
        boot_id: BootId(private.bytes(label::BOOT_ID)?),
        deadline_boottime_ns: private.unsigned(label::DEADLINE)?,
        check_id: private.text(label::CHECK_ID, CHECK_ID_BYTES_MAX)?,
        released: private.released()?,
    };
    private.end()?;
    if encode(&claims)? != payload {
        return Err(Malformed::NotCanonical);
    }
    Ok(claims)
}

fn admit_size(token: &[u8]) -> Result<(), Malformed> {
    if token.len() > PERMIT_BYTES_MAX {
        return Err(Malformed::TooLarge { bytes: token.len() });
    }
    Ok(())
}

fn envelope(key_id: KeyId, payload: Vec<u8>, signature: Vec<u8>) -> CoseSign1 {
    let protected = HeaderBuilder::new().algorithm(iana::Algorithm::EdDSA).key_id(key_id.as_bytes().to_vec()).build();
    CoseSign1Builder::new().protected(protected).payload(payload).signature(signature).build()
}

fn write(message: CoseSign1) -> Result<Vec<u8>, Malformed> {
    message.to_tagged_vec().map_err(|error| Malformed::NotSign1(error.to_string()))
}

fn encode(claims: &Claims) -> Result<Vec<u8>, Malformed> {
    for (label, text, bytes_max) in [
        (1, &claims.issuer, NAME_BYTES_MAX),
        (3, &claims.audience, NAME_BYTES_MAX),
        (label::CHECK_ID, &claims.check_id, CHECK_ID_BYTES_MAX),
    ] {
        plain(label, text, bytes_max)?;
    }
    let time =
        |label, unix_s: u64| i64::try_from(unix_s).map(Timestamp::WholeSeconds).map_err(|_| Malformed::Claim(label));
    let digest = |digest: &Digest| Value::Bytes(digest.as_bytes().to_vec());
    let mut set = ClaimsSetBuilder::new()
        .issuer(claims.issuer.clone())
        .audience(claims.audience.clone())
        .expiration_time(time(4, claims.expires_unix_s)?)
        .issued_at(time(6, claims.issued_unix_s)?)
        .cwt_id(claims.nonce.0.to_vec())
        .private_claim(label::VERSION, VERSION.into())
        .private_claim(label::PLAN, digest(&claims.digests.plan))
        .private_claim(label::INSTRUCTION, digest(&claims.digests.instruction))
        .private_claim(label::IMAGE, digest(&claims.digests.image))
        .private_claim(label::TRIPLE, digest(&claims.digests.triple))
        .private_claim(label::CONSTITUTION, digest(&claims.constitution))
        .private_claim(label::PROXY, digest(&claims.proxy))
        .private_claim(label::CALIBRATION, digest(&claims.calibration))
        .private_claim(label::BOOT_ID, Value::Bytes(claims.boot_id.0.to_vec()))
        .private_claim(label::DEADLINE, claims.deadline_boottime_ns.into())
        .private_claim(label::CHECK_ID, claims.check_id.clone().into());
    if let Some(released) = &claims.released {
        plain(label::RELEASE_WHO, &released.who, RELEASE_WHO_BYTES_MAX)?;
        plain(label::RELEASE_NOTE, &released.note, RELEASE_NOTE_BYTES_MAX)?;
        set = set
            .private_claim(label::RELEASE_VETOED, released.vetoed.code().into())
            .private_claim(label::RELEASE_WHO, released.who.clone().into())
            .private_claim(label::RELEASE_NOTE, released.note.clone().into());
    }
    set.build().to_vec().map_err(|error| Malformed::NotClaims(error.to_string()))
}

/// Control characters are refused so that no name can forge a line in a log or on a terminal.
fn plain(label: i64, text: &str, bytes_max: usize) -> Result<(), Malformed> {
    if text.is_empty() || text.len() > bytes_max || text.chars().any(char::is_control) {
        return Err(Malformed::Claim(label));
    }
    Ok(())
}

fn name(label: i64, text: Option<String>) -> Result<String, Malformed> {
    text.ok_or(Malformed::Missing(label))
}

fn seconds(label: i64, time: Option<Timestamp>) -> Result<u64, Malformed> {
    match time.ok_or(Malformed::Missing(label))? {
        Timestamp::WholeSeconds(unix_s) => u64::try_from(unix_s).map_err(|_| Malformed::Claim(label)),
        Timestamp::FractionalSeconds(_) => Err(Malformed::Claim(label)),
    }
}

fn exactly<const N: usize>(label: i64, bytes: &[u8]) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed::Claim(label))
}

/// The private claims not yet read.
struct Private(BTreeMap<i64, Value>);

impl Private {
    fn of(claims: Vec<(ClaimName, Value)>) -> Result<Self, Malformed> {
        let labelled = claims.into_iter().map(|(name, value)| match name {
            ClaimName::PrivateUse(label) => Ok((label, value)),
            ClaimName::Text(text) => Err(Malformed::UnknownClaim(text)),
            ClaimName::Assigned(assigned) => Err(Malformed::UnknownClaim(format!("{assigned:?}"))),
        });
        Ok(Self(labelled.collect::<Result<_, _>>()?))
    }

    fn take(&mut self, label: i64) -> Result<Value, Malformed> {
        self.0.remove(&label).ok_or(Malformed::Missing(label))
    }

    fn unsigned(&mut self, label: i64) -> Result<u64, Malformed> {
        let integer = self.take(label)?.into_integer().map_err(|_| Malformed::Claim(label))?;
        integer.try_into().map_err(|_| Malformed::Claim(label))
    }

    fn bytes<const N: usize>(&mut self, label: i64) -> Result<[u8; N], Malformed> {
        exactly(label, &self.take(label)?.into_bytes().map_err(|_| Malformed::Claim(label))?)
    }

    fn digest(&mut self, label: i64) -> Result<Digest, Malformed> {
        self.bytes(label).map(Digest::from_bytes)
    }

    fn text(&mut self, label: i64, bytes_max: usize) -> Result<String, Malformed> {
        let text = self.take(label)?.into_text().map_err(|_| Malformed::Claim(label))?;
        plain(label, &text, bytes_max)?;
        Ok(text)
    }

    /// All three claims of a release, or none of them.
    fn released(&mut self) -> Result<Option<Released>, Malformed> {
        let labels = [label::RELEASE_VETOED, label::RELEASE_WHO, label::RELEASE_NOTE];
        if !labels.iter().any(|label| self.0.contains_key(label)) {
            return Ok(None);
        }
        let code = self.text(label::RELEASE_VETOED, CHECK_ID_BYTES_MAX)?;
        let vetoed = Reason::ALL.into_iter().find(|reason| reason.code() == code);
        Ok(Some(Released {
            vetoed: vetoed.ok_or(Malformed::Claim(label::RELEASE_VETOED))?,
            who: self.text(label::RELEASE_WHO, RELEASE_WHO_BYTES_MAX)?,
            note: self.text(label::RELEASE_NOTE, RELEASE_NOTE_BYTES_MAX)?,
        }))
    }

    fn end(self) -> Result<(), Malformed> {
        match self.0.into_keys().next() {
            Some(label) => Err(Malformed::UnknownClaim(label.to_string())),
            None => Ok(()),
        }
    }
}
