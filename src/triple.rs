//! The triple a guard judges: instruction, image bytes and plan text, their limits, and the one digest over all three.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Largest instruction accepted, in bytes of UTF-8.
pub const INSTRUCTION_BYTES_MAX: usize = 4 * 1024;
/// Largest plan accepted, in bytes of UTF-8.
pub const PLAN_BYTES_MAX: usize = 64 * 1024;
/// Largest encoded image accepted, in bytes.
pub const IMAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A SHA-256 digest. SHA-256 because every verifier's platform has it, in C++ and in Python alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Why a text is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits")]
pub struct DigestParseError;

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of everything a reader gives.
    ///
    /// # Errors
    /// When reading fails.
    pub fn of_reader(mut reader: impl std::io::BufRead) -> std::io::Result<Self> {
        let mut hasher = Sha256::new();
        loop {
            let chunk = reader.fill_buf()?;
            let bytes = chunk.len();
            if bytes == 0 {
                return Ok(Self(hasher.finalize().into()));
            }
            hasher.update(chunk);
            reader.consume(bytes);
        }
    }

    /// A digest read back from its 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A seed for everything random about judging this triple: the first eight bytes, little-endian.
    #[must_use]
    pub fn seed(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Reads the 64 hexadecimal digits that [`fmt::Display`] writes.
    ///
    /// # Errors
    /// When the text is anything but 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, DigestParseError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| DigestParseError)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A part of a triple, named in refusals and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What the robot was told.
    Instruction,
    /// What the robot sees, encoded.
    Image,
    /// What the planner answered.
    Plan,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instruction => "instruction",
            Self::Image => "image",
            Self::Plan => "plan",
        })
    }
}

/// Why three parts are not a triple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TripleError {
    /// The part has nothing in it.
    #[error("the {0} is empty")]
    Empty(Part),
    /// The part is larger than its limit.
    #[error("the {part} has {bytes} bytes; at most {bytes_max} are accepted")]
    TooLarge {
        /// Which part.
        part: Part,
        /// How large it is, in bytes.
        bytes: usize,
        /// The limit it broke, in bytes.
        bytes_max: usize,
    },
    /// The text holds a NUL, which some consumers would take as its end.
    #[error("the {0} holds a NUL character")]
    Nul(Part),
}

/// Instruction, image and plan within their limits, and the digests that name them.
#[derive(Debug, Clone)]
pub struct Triple {
    instruction: String,
    image: Arc<[u8]>,
    plan: String,
    digests: Digests,
}

/// The digests of a triple's parts and of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    /// SHA-256 of the instruction's UTF-8.
    pub instruction: Digest,
    /// SHA-256 of the image's bytes as received.
    pub image: Digest,
    /// SHA-256 of the plan's UTF-8.
    pub plan: Digest,
    /// SHA-256 of `steadfast/triple/1`, a NUL, and the three digests above in that order. Hashing digests of fixed
    /// length, not the parts themselves, is what keeps a byte from moving across a border unnoticed.
    pub triple: Digest,
}

impl Digests {
    /// The digests of three parts.
    #[must_use]
    pub fn of(instruction: &[u8], image: &[u8], plan: &[u8]) -> Self {
        let (instruction, image, plan) = (Digest::of(instruction), Digest::of(image), Digest::of(plan));
        let mut whole = Sha256::new();
        whole.update(b"steadfast/triple/1\0");
        for part in [&instruction, &image, &plan] {
            whole.update(part.as_bytes());
        }
        Self { instruction, image, plan, triple: Digest(whole.finalize().into()) }
    }
}

impl Triple {
    /// Takes the three parts in, or says which limit is broken. Whitespace alone counts as empty.
    ///
    /// # Errors
    /// When a part is empty or larger than its limit, or a text holds a NUL.
    pub fn new(instruction: String, image: impl Into<Arc<[u8]>>, plan: String) -> Result<Self, TripleError> {
        let image = image.into();
        admit_text(Part::Instruction, &instruction, INSTRUCTION_BYTES_MAX)?;
        admit_size(Part::Image, image.len(), IMAGE_BYTES_MAX)?;
        admit_text(Part::Plan, &plan, PLAN_BYTES_MAX)?;
        let digests = Digests::of(instruction.as_bytes(), &image, plan.as_bytes());
        Ok(Self { instruction, image, plan, digests })
    }

    /// What the robot was told.
    #[must_use]
    pub fn instruction(&self) -> &str {
        &self.instruction
    }

    /// The image's bytes as received, still encoded.
    #[must_use]
    pub fn image(&self) -> &Arc<[u8]> {
        &self.image
    }

    /// What the planner answered.
    #[must_use]
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// The digests that name this triple.
    #[must_use]
    pub fn digests(&self) -> &Digests {
        &self.digests
    }
}

fn admit_text(part: Part, text: &str, bytes_max: usize) -> Result<(), TripleError> {
    admit_size(part, text.len(), bytes_max)?;
    if text.trim().is_empty() {
        return Err(TripleError::Empty(part));
    }
    if text.contains('\0') {
        return Err(TripleError::Nul(part));
    }
    Ok(())
}

fn admit_size(part: Part, bytes: usize, bytes_max: usize) -> Result<(), TripleError> {
    match bytes {
        0 => Err(TripleError::Empty(part)),
        bytes if bytes > bytes_max => Err(TripleError::TooLarge { part, bytes, bytes_max }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triple(instruction: &str, image: &[u8], plan: &str) -> Result<Triple, TripleError> {
        Triple::new(instruction.to_owned(), image, plan.to_owned())
    }

    #[test]
    fn each_limit_holds_at_its_edge_and_one_past_it() {
        let edge = |part, bytes| match part {
            Part::Instruction => triple(&"i".repeat(bytes), b"p", "1. go"),
            Part::Image => triple("go", &vec![1; bytes], "1. go"),
            Part::Plan => triple("go", b"p", &"p".repeat(bytes)),
        };
        for (part, bytes_max) in
            [(Part::Instruction, INSTRUCTION_BYTES_MAX), (Part::Image, IMAGE_BYTES_MAX), (Part::Plan, PLAN_BYTES_MAX)]
        {
            assert!(edge(part, bytes_max).is_ok(), "{part} at its limit");
            let past = edge(part, bytes_max + 1).expect_err("one past the limit");
            assert_eq!(past, TripleError::TooLarge { part, bytes: bytes_max + 1, bytes_max });
            assert_eq!(edge(part, 0).expect_err("nothing"), TripleError::Empty(part));
        }
    }

    #[test]
    fn whitespace_is_empty_and_nul_is_refused() {
        assert_eq!(triple(" \n", b"p", "1. go").expect_err("blank"), TripleError::Empty(Part::Instruction));
        assert_eq!(triple("go", b"p", "go\0").expect_err("nul"), TripleError::Nul(Part::Plan));
    }

    #[test]
    fn no_byte_moves_across_a_border_unnoticed() {
        let a = triple("ab", b"c", "d").expect("a triple");
        let b = triple("a", b"bc", "d").expect("a triple");
        assert_ne!(a.digests().triple, b.digests().triple);
    }

    #[test]
    fn digest_equals_an_independent_computation() {
        // python3: h=lambda b:hashlib.sha256(b).digest(); h(b"steadfast/triple/1\0"+h(b"go")+h(b"img")+h(b"1. go"))
        let digests = Digests::of(b"go", b"img", b"1. go");
        assert_eq!(digests.triple.to_string(), "20e4e739e937e3be4702c66e041ab1aae664b5c7ca6f7a6ab98c7b205434c255");
        assert_eq!(Digest::parse(&digests.triple.to_string()), Ok(digests.triple));
    }
}
