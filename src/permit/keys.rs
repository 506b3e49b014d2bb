//! The guard's signing key and the public keys its permits are checked with: made at first start, kept private by
//! mode and owner, rotated with an overlap.
//!
//! A key directory (mode 0700) holds `signing.key` (32 bytes, 0600) and two JWK sets (RFC 7517, RFC 8037). `public.json`
//! is what permits are verified with: the key in use and those retired so recently that their overlap has not ended.
//! `archive.json` is what the audit log is verified with: every key that ever signed here, with the date it was retired.
//! They are apart so that a verifier that knows nothing of dates never takes a permit from a key long gone. Every write
//! goes to a second file that is synced and renamed, so a power cut leaves the old or the new, never half of one.

use std::cmp::Reverse;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, VerifyingKey};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::LIFETIME_MAX;

/// Bytes of an Ed25519 signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Most public keys that permits are verified with: the one in use and the retired ones within their overlap.
pub const KEYS_MAX: usize = 8;
/// Largest `public.json` read, in bytes.
pub const PUBLIC_FILE_BYTES_MAX: usize = 16 * 1024;
/// Most keys in the archive: one a day for eleven years. None is ever dropped from it; a rotation past it is refused.
pub const ARCHIVE_KEYS_MAX: usize = 4096;
/// Largest `archive.json` read, in bytes.
pub const ARCHIVE_FILE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long a retired key counts for what it signed before, where nothing else is configured.
pub const OVERLAP_DEFAULT: Duration = LIFETIME_MAX;
/// Name of the file of public keys that permits are verified with.
pub const PUBLIC_FILE: &str = "public.json";
/// Name of the file of public keys that the log is verified with.
pub const ARCHIVE_FILE: &str = "archive.json";

const SEED_BYTES: usize = 32;
const SIGNING_FILE: &str = "signing.key";

/// Names a public key: the first eight bytes of its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; Self::BYTES]);

impl KeyId {
    /// Bytes of a key id.
    pub const BYTES: usize = 8;

    /// The id of this public key.
    #[must_use]
    pub fn of(public_key: &[u8; 32]) -> Self {
        let digest: [u8; 32] = Sha256::digest(public_key).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        Self([a, b, c, d, e, f, g, h])
    }

    /// Reads an id back; `None` when it has another length.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The eight bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl Serialize for KeyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refused an operation on a file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others may read or write it, or it is not a plain file or directory.
    #[error("{}: mode {mode:o} is looser than {mode_max:o}, or it is not what it should be", path.display())]
    Loose {
        /// Which file or directory.
        path: PathBuf,
        /// Its type and mode.
        mode: u32,
        /// The loosest mode accepted.
        mode_max: u32,
    },
    /// It belongs to someone else.
    #[error("{} belongs to user {uid}", path.display())]
    ForeignOwner {
        /// Which file or directory.
        path: PathBuf,
        /// The owner's user id.
        uid: u32,
    },
    /// The signing key does not have 32 bytes.
    #[error("{} is not a signing key", .0.display())]
    NotASigningKey(PathBuf),
    /// There are public keys but no signing key: not a first start but a loss.
    #[error("{} is missing although there are public keys beside it", .0.display())]
    SigningKeyMissing(PathBuf),
    /// The text is not a set of public keys.
    #[error("not a set of Ed25519 public keys: {0}")]
    NotPublicKeys(String),
    /// Rotated so often that keys within their overlap, or keys of the archive, would have to go.
    #[error("{keys_max} keys are kept and none of them can be dropped yet")]
    TooManyKeys {
        /// The limit.
        keys_max: usize,
    },
    /// The system has no randomness to give.
    #[error("no randomness: {0}")]
    Randomness(io::Error),
}

/// A signature that does not belong to these bytes and this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature does not fit")]
pub struct BadSignature;

/// Random bytes from the system, wiped when dropped.
///
/// # Errors
/// When the system has none to give.
pub fn system_random<const N: usize>() -> Result<Zeroizing<[u8; N]>, KeyError> {
    let mut bytes = Zeroizing::new([0; N]);
    let filled = getrandom(&mut bytes[..], GetRandomFlags::empty()).map_err(|e| KeyError::Randomness(e.into()))?;
    if filled != N {
        return Err(KeyError::Randomness(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(bytes)
}

/// The private key permits are signed with. Wiped when dropped; its `Debug` shows the id only.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    id: KeyId,
}

impl SigningKey {
    /// The key that this seed makes.
    #[must_use]
    pub fn from_seed(seed: &[u8; SEED_BYTES]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        Self { id: KeyId::of(key.verifying_key().as_bytes()), key }
    }

    /// Names the public half.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey { key: self.key.verifying_key(), id: self.id, retirement: None }
    }

    /// Signs something that is not a permit, such as a checkpoint of the log. The context keeps the two apart: a
    /// permit's signed bytes begin with 0x84, a statement's with letters.
    #[must_use]
    pub fn sign_statement(&self, context: &str, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.sign(&statement(context, message))
    }

    /// Signs a checkpoint of the audit log as it stands, for verifiers that know nothing of permits.
    /// [`crate::audit::record::checkpoint_message`] begins with letters, so it can never be taken for a permit.
    #[must_use]
    pub fn sign_checkpoint(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.sign(message)
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(bytes).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn statement(context: &str, message: &[u8]) -> Vec<u8> {
    [b"steadfast/statement/", context.as_bytes(), b"\0", message].concat()
}

/// When a key stopped signing, and until when its permits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retirement {
    /// Unix time in seconds from which it signed nothing any more.
    pub retired_unix_s: u64,
    /// The last second, Unix time, at which what it signed before is good as a permit.
    pub permits_until_unix_s: u64,
}

impl Retirement {
    fn at(retired_unix_s: u64, overlap: Duration) -> Self {
        Self { retired_unix_s, permits_until_unix_s: retired_unix_s.saturating_add(overlap.as_secs()) }
    }
}

/// A public key, and since when it no longer signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    id: KeyId,
    retirement: Option<Retirement>,
}

impl PublicKey {
    /// The key with these 32 bytes.
    ///
    /// # Errors
    /// When they are not a point of the curve, or one of the few that fit any signature.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|error| KeyError::NotPublicKeys(error.to_string()))?;
        if key.is_weak() {
            return Err(KeyError::NotPublicKeys("a key of small order".to_owned()));
        }
        Ok(Self { key, id: KeyId::of(bytes), retirement: None })
    }

    /// Names it.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// When it stopped signing; `None` while it is in use.
    #[must_use]
    pub const fn retirement(&self) -> Option<Retirement> {
        self.retirement
    }

    /// Checks what [`SigningKey::sign_statement`] signed.
    ///
    /// # Errors
    /// When the signature does not fit.
    pub fn verify_statement(&self, context: &str, message: &[u8], signature: &[u8; 64]) -> Result<(), BadSignature> {
        self.verify(&statement(context, message), signature)
    }

    /// Strict: one signature has one encoding, and no key of small order counts (RFC 8032, 8.4).
    pub(super) fn verify(&self, bytes: &[u8], signature: &[u8; 64]) -> Result<(), BadSignature> {
        self.key.verify_strict(bytes, &Signature::from_bytes(signature)).map_err(|_| BadSignature)
    }
}

/// The keys a verifier trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKeys(Vec<PublicKey>);

/// What a file of public keys may hold.
#[derive(Clone, Copy)]
struct Bounds {
    keys_max: usize,
    bytes_max: usize,
}

impl Bounds {
    const PUBLIC: Self = Self { keys_max: KEYS_MAX, bytes_max: PUBLIC_FILE_BYTES_MAX };
    const ARCHIVE: Self = Self { keys_max: ARCHIVE_KEYS_MAX, bytes_max: ARCHIVE_FILE_BYTES_MAX };
}

/// A JWK set; the two dates are ours, everything else is RFC 7517 and RFC 8037.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JwkSet {
    keys: Vec<Jwk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Jwk {
    kty: String,
    crv: String,
    alg: String,
    #[serde(rename = "use")]
    purpose: String,
    kid: String,
    x: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retired_unix_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permits_until_unix_s: Option<u64>,
}

impl PublicKeys {
    /// A set of keys that permits are verified with.
    ///
    /// # Errors
    /// When there is none, more than [`KEYS_MAX`], or one twice.
    pub fn new(keys: Vec<PublicKey>) -> Result<Self, KeyError> {
        Self::at_most(KEYS_MAX, keys)
    }

    fn at_most(keys_max: usize, keys: Vec<PublicKey>) -> Result<Self, KeyError> {
        let mut ids: Vec<_> = keys.iter().map(PublicKey::id).collect();
        ids.sort_unstable();
        ids.dedup();
        if keys.is_empty() || keys.len() > keys_max || ids.len() != keys.len() {
            return Err(KeyError::NotPublicKeys(format!("1 to {keys_max} different keys are needed")));
        }
        Ok(Self(keys))
    }

    /// Reads the text of `public.json`.
    ///
    /// # Errors
    /// When it is not a JWK set of Ed25519 keys whose ids are their own.
    pub fn from_jwk_set(text: &str) -> Result<Self, KeyError> {
        Self::parse(text, Bounds::PUBLIC)
    }

    fn parse(text: &str, bounds: Bounds) -> Result<Self, KeyError> {
        if text.len() > bounds.bytes_max {
            return Err(KeyError::NotPublicKeys(format!("more than {} bytes", bounds.bytes_max)));
        }
        let set: JwkSet = serde_json::from_str(text).map_err(|error| KeyError::NotPublicKeys(error.to_string()))?;
        Self::at_most(bounds.keys_max, set.keys.into_iter().map(Jwk::read).collect::<Result<_, _>>()?)
    }

    /// Reads `public.json` itself.
    ///
    /// # Errors
    /// When it cannot be read or is not a set of public keys.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        Self::read_bounded(path, Bounds::PUBLIC)
    }

    /// Reads `archive.json`, or a `public.json`: for verifying the log, not permits.
    ///
    /// # Errors
    /// When it cannot be read or is not a set of public keys.
    pub fn read_archive(path: &Path) -> Result<Self, KeyError> {
        Self::read_bounded(path, Bounds::ARCHIVE)
    }

    fn read_bounded(path: &Path, bounds: Bounds) -> Result<Self, KeyError> {
        let file = File::open(path).map_err(|source| KeyError::File { path: path.to_owned(), source })?;
        Self::parse(&read_text(path, file, bounds)?, bounds)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// Never in practice: only if serialising fails.
    pub fn to_jwk_set(&self) -> Result<String, KeyError> {
        let keys = self.0.iter().map(Jwk::of).collect();
        serde_json::to_string_pretty(&JwkSet { keys }).map_err(|error| KeyError::NotPublicKeys(error.to_string()))
    }

    /// The key with this id.
    #[must_use]
    pub fn find(&self, id: KeyId) -> Option<&PublicKey> {
        self.0.iter().find(|key| key.id == id)
    }

    /// Every key.
    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.0.iter()
    }
}

impl Jwk {
    fn of(key: &PublicKey) -> Self {
        Self {
            kty: "OKP".to_owned(),
            crv: "Ed25519".to_owned(),
            alg: "EdDSA".to_owned(),
            purpose: "sig".to_owned(),
            kid: key.id.to_string(),
            x: URL_SAFE_NO_PAD.encode(key.as_bytes()),
            retired_unix_s: key.retirement.map(|retirement| retirement.retired_unix_s),
            permits_until_unix_s: key.retirement.map(|retirement| retirement.permits_until_unix_s),
        }
    }

    fn read(self) -> Result<PublicKey, KeyError> {
        let wrong = |what: &str| KeyError::NotPublicKeys(format!("key {}: {what}", self.kid));
        if (self.kty.as_str(), self.crv.as_str(), self.alg.as_str(), self.purpose.as_str())
            != ("OKP", "Ed25519", "EdDSA", "sig")
        {
            return Err(wrong("not an Ed25519 key for signatures"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(&self.x).map_err(|_| wrong("x is not base64url"))?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| wrong("x is not 32 bytes"))?;
        let key = PublicKey::from_bytes(&bytes)?;
        if key.id.to_string() != self.kid {
            return Err(wrong("the id is not this key's"));
        }
        let retirement = match (self.retired_unix_s, self.permits_until_unix_s) {
            (None, None) => None,
            (Some(retired_unix_s), Some(permits_until_unix_s)) if permits_until_unix_s >= retired_unix_s => {
                Some(Retirement { retired_unix_s, permits_until_unix_s })
            }
            (Some(retired_unix_s), None) => Some(Retirement::at(retired_unix_s, OVERLAP_DEFAULT)),
            (None | Some(_), Some(_)) => return Err(wrong("its dates are not those of a retired key")),
        };
        Ok(PublicKey { retirement, ..key })
    }
}

/// The key directory of a guard.
#[derive(Debug)]
pub struct Keys {
    directory: PathBuf,
    overlap: Duration,
    held: RwLock<Held>,
}

/// What is in force.
#[derive(Debug, Clone)]
struct Held {
    signing: Arc<SigningKey>,
    public: Arc<PublicKeys>,
    archive: Arc<PublicKeys>,
}

/// What a rotation came to: the new key signs from now on.
#[derive(Debug)]
pub struct Rotation {
    /// The key that signed until now.
    pub retired: PublicKey,
    /// The key that signs from now on.
    pub key: PublicKey,
    /// Why the old key's dates could not be written down. Verifiers then take it for one still in use, until
    /// [`Keys::open_or_create`] or [`Keys::withdraw`] writes them.
    pub undated: Option<KeyError>,
}

impl Keys {
    /// Opens the directory, or makes it with a first key from `seed`, which is [`system_random`] outside tests. A key
    /// that is retired counts for so much longer as `overlap` says.
    ///
    /// # Errors
    /// When a mode is too loose, an owner is not this process's user, a file is not what it should be, or the disk or
    /// the system's randomness fails.
    pub fn open_or_create(
        directory: &Path,
        overlap: Duration,
        now_unix_s: u64,
        seed: impl FnOnce() -> Result<Zeroizing<[u8; SEED_BYTES]>, KeyError>,
    ) -> Result<Self, KeyError> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(KeyError::File { path: directory.to_owned(), source });
            }
            Ok(()) | Err(_) => {}
        }
        let _lock = lock(directory)?;
        let signing_path = directory.join(SIGNING_FILE);
        let known = |name, bounds| -> Result<Option<PublicKeys>, KeyError> {
            let path = directory.join(name);
            let Some(file) = open_own(&path, 0o644)? else { return Ok(None) };
            PublicKeys::parse(&read_text(&path, file, bounds)?, bounds).map(Some)
        };
        let public = known(PUBLIC_FILE, Bounds::PUBLIC)?;
        let archive = known(ARCHIVE_FILE, Bounds::ARCHIVE)?;
        let signing = match read_signing_key(&signing_path)? {
            Some(signing) => signing,
            None if public.is_some() || archive.is_some() => return Err(KeyError::SigningKeyMissing(signing_path)),
            None => {
                let seed = seed()?;
                replace(directory, SIGNING_FILE, &seed[..], 0o600)?;
                SigningKey::from_seed(&seed)
            }
        };
        let retirement = Retirement::at(now_unix_s, overlap);
        let signs = [signing.public()];
        let all: Vec<PublicKey> = archive.iter().chain(&public).flat_map(PublicKeys::iter).cloned().collect();
        let written = (archive, public);
        let archive = archived(&signs, &all, retirement)?;
        let public = published(&archive, now_unix_s)?;
        if written.0.as_ref() != Some(&archive) {
            replace_set(directory, ARCHIVE_FILE, &archive)?;
        }
        if written.1.as_ref() != Some(&public) {
            replace_set(directory, PUBLIC_FILE, &public)?;
        }
        let held = Held { signing: Arc::new(signing), public: Arc::new(public), archive: Arc::new(archive) };
        Ok(Self { directory: directory.to_owned(), overlap, held: RwLock::new(held) })
    }

    /// The key to sign with.
    #[must_use]
    pub fn signing(&self) -> Arc<SigningKey> {
        self.held().signing
    }

    /// The keys that permits are verified with.
    #[must_use]
    pub fn public(&self) -> Arc<PublicKeys> {
        self.held().public
    }

    /// Every key that ever signed here: the keys that the log is verified with.
    #[must_use]
    pub fn archive(&self) -> Arc<PublicKeys> {
        self.held().archive
    }

    fn held(&self) -> Held {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold(&self, held: Held) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
    }

    /// Takes a new key into use; blocks on the disk, and holds up nobody who signs meanwhile. The old one's public half
    /// counts for its permits until the overlap has ended, and for the log for ever.
    ///
    /// The new public key is written to archive and published before it signs, and the old one is dated after the last
    /// time it signed. A power cut before `signing.key` is replaced leaves the old key in use, and the next start
    /// retires the new one unused; a power cut after it leaves the new one, and the next start dates the old one.
    ///
    /// # Errors
    /// When too many keys are still within their overlap, or the disk or the system's randomness fails. The key in use
    /// is then still the old one.
    pub fn rotate(
        &self,
        now_unix_s: impl Fn() -> u64,
        seed: impl FnOnce() -> Result<Zeroizing<[u8; SEED_BYTES]>, KeyError>,
    ) -> Result<Rotation, KeyError> {
        let _lock = lock(&self.directory)?;
        let old = self.held();
        let seed = seed()?;
        let signing = Arc::new(SigningKey::from_seed(&seed));
        let (retired, key) = (old.signing.public(), signing.public());
        let before_unix_s = now_unix_s();
        let both = [key.clone(), retired.clone()];
        if overlapping(&old.archive, before_unix_s) + both.len() > KEYS_MAX {
            return Err(KeyError::TooManyKeys { keys_max: KEYS_MAX });
        }
        let archive = archived(&both, &old.archive.0, Retirement::at(before_unix_s, self.overlap))?;
        let public = published(&archive, before_unix_s)?;
        replace_set(&self.directory, ARCHIVE_FILE, &archive)?;
        replace_set(&self.directory, PUBLIC_FILE, &public)?;
        replace(&self.directory, SIGNING_FILE, &seed[..], 0o600)?;
        self.hold(Held { signing, public: Arc::new(public), archive: Arc::new(archive) });
        let undated = self.date(now_unix_s()).err();
        Ok(Rotation { retired, key, undated })
    }

    /// Takes retired keys whose overlap has ended off the published list, and gives when the next one's will have.
    ///
    /// # Errors
    /// When the disk fails; the list is then as it was.
    pub fn withdraw(&self, now_unix_s: u64) -> Result<Option<u64>, KeyError> {
        let _lock = lock(&self.directory)?;
        self.date(now_unix_s)?;
        let retirements = self.public();
        Ok(retirements.iter().filter_map(PublicKey::retirement).map(|ended| ended.permits_until_unix_s).min())
    }

    /// Retires at this time whatever is not in use and has no date, and brings both files up to date.
    fn date(&self, now_unix_s: u64) -> Result<(), KeyError> {
        let held = self.held();
        let retirement = Retirement::at(now_unix_s, self.overlap);
        let archive = archived(&[held.signing.public()], &held.archive.0, retirement)?;
        let public = published(&archive, now_unix_s)?;
        if archive != *held.archive {
            replace_set(&self.directory, ARCHIVE_FILE, &archive)?;
        }
        if public != *held.public {
            replace_set(&self.directory, PUBLIC_FILE, &public)?;
        }
        self.hold(Held { archive: Arc::new(archive), public: Arc::new(public), ..held });
        Ok(())
    }
}

/// The keys in use first and without a date, then every other one, dated.
fn archived(in_use: &[PublicKey], known: &[PublicKey], retirement: Retirement) -> Result<PublicKeys, KeyError> {
    let mut keys = in_use.to_vec();
    for key in known {
        if keys.iter().all(|kept| kept.id != key.id) {
            keys.push(PublicKey { retirement: key.retirement.or(Some(retirement)), ..key.clone() });
        }
    }
    if keys.len() > ARCHIVE_KEYS_MAX {
        return Err(KeyError::TooManyKeys { keys_max: ARCHIVE_KEYS_MAX });
    }
    PublicKeys::at_most(ARCHIVE_KEYS_MAX, keys)
}

/// Those of the archive that a permit may still be good by. After a wall clock was set back these can be more than
/// there is room for; then those retired last are taken, because a guard that does not start helps nobody.
fn published(archive: &PublicKeys, now_unix_s: u64) -> Result<PublicKeys, KeyError> {
    let counts = |key: &&PublicKey| key.retirement.is_none_or(|ended| now_unix_s <= ended.permits_until_unix_s);
    let mut keys: Vec<PublicKey> = archive.iter().filter(counts).cloned().collect();
    keys.sort_by_key(|key| Reverse(key.retirement.map_or(u64::MAX, |ended| ended.retired_unix_s)));
    keys.truncate(KEYS_MAX);
    PublicKeys::new(keys)
}

/// How many of the archive are retired and within their overlap.
fn overlapping(archive: &PublicKeys, now_unix_s: u64) -> usize {
    let within = |ended: &Retirement| (ended.retired_unix_s..=ended.permits_until_unix_s).contains(&now_unix_s);
    archive.iter().filter(|key| key.retirement.as_ref().is_some_and(within)).count()
}

/// Opens the directory, checks it, and keeps others of our kind out while the handle lives.
fn lock(directory: &Path) -> Result<File, KeyError> {
    let failed = |source| KeyError::File { path: directory.to_owned(), source };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let handle = OpenOptions::new().read(true).custom_flags(flag_bits(flags)).open(directory).map_err(failed)?;
    admit(directory, &handle, 0o700)?;
    flock(&handle, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    Ok(handle)
}

/// Opens a file of ours; `None` when there is none.
fn open_own(path: &Path, mode_max: u32) -> Result<Option<File>, KeyError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match OpenOptions::new().read(true).custom_flags(flag_bits(flags)).open(path) {
        Ok(file) => {
            admit(path, &file, mode_max)?;
            Ok(Some(file))
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeyError::File { path: path.to_owned(), source }),
    }
}

fn flag_bits(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Refuses what others own, may read or may write, and what is neither file nor directory.
fn admit(path: &Path, handle: &File, mode_max: u32) -> Result<(), KeyError> {
    let metadata = handle.metadata().map_err(|source| KeyError::File { path: path.to_owned(), source })?;
    let uid = metadata.uid();
    if uid != rustix::process::geteuid().as_raw() {
        return Err(KeyError::ForeignOwner { path: path.to_owned(), uid });
    }
    let mode = metadata.mode();
    if mode & 0o777 & !mode_max != 0 || !(metadata.is_file() || metadata.is_dir()) {
        return Err(KeyError::Loose { path: path.to_owned(), mode, mode_max });
    }
    Ok(())
}

fn read_signing_key(path: &Path) -> Result<Option<SigningKey>, KeyError> {
    let Some(file) = open_own(path, 0o600)? else { return Ok(None) };
    let mut seed = Zeroizing::new([0; SEED_BYTES]);
    let mut rest = [0; 1];
    let mut file = file;
    let whole = file.read_exact(&mut seed[..]).is_ok() && matches!(file.read(&mut rest), Ok(0));
    if !whole {
        return Err(KeyError::NotASigningKey(path.to_owned()));
    }
    Ok(Some(SigningKey::from_seed(&seed)))
}

fn read_text(path: &Path, file: File, bounds: Bounds) -> Result<String, KeyError> {
    let mut text = String::new();
    let limit = u64::try_from(bounds.bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_string(&mut text).map_err(|source| KeyError::File { path: path.to_owned(), source })?;
    Ok(text)
}

fn replace_set(directory: &Path, name: &str, keys: &PublicKeys) -> Result<(), KeyError> {
    replace(directory, name, keys.to_jwk_set()?.as_bytes(), 0o644)
}

/// Writes a second file, syncs it, renames it over the first, and syncs the directory.
fn replace(directory: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<(), KeyError> {
    let path = directory.join(name);
    let second = directory.join(format!(".{name}.new"));
    let write = || -> io::Result<()> {
        match std::fs::remove_file(&second) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&second)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&second, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|source| KeyError::File { path: path.clone(), source })
}
