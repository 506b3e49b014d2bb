//! One record as bytes on disk: a header of fixed length that proves itself, and a payload that the header proves.
//!
//! ```text
//! offset  bytes
//!      0      4  magic: "SFa1", or "SFp1" where retention has taken the payload out
//!      4      4  length of the payload, little-endian (kept when the payload is gone)
//!      8      8  sequence number, little-endian, counting from 1 over the whole log
//!     16      8  bytes of this segment that were on disk before this frame was written, little-endian
//!     24     32  hash of the frame before, across segments; zeros for the first
//!     56     32  SHA-256 of the payload
//!     88     32  hash: SHA-256 over "steadfast/audit/1\0" and bytes 4 to 88
//!    120         payload
//! ```
//!
//! Two things follow. The chain runs over payload *digests*, so a payload can be taken out and the chain still
//! verifies. And every frame says how much had been synced before it, so a reader can tell a write that a crash cut
//! off (damage behind every such mark) from damage to what was safely stored (damage before one).
//!
//! Behind the last frame a segment may go on in NUL bytes: room that its writer took ahead, or that a file system left
//! after a power loss. No frame begins so, and NUL says nothing; a frame that lay there and was lost is missed by the
//! next frame, by a checkpoint, or (at the very end) by whoever noted a later head.

use sha2::{Digest as _, Sha256};

use super::record::RECORD_BYTES_MAX;
use crate::triple::Digest;

/// Length of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 120;
/// What stands for "the frame before" in the first frame of a log.
pub const GENESIS: Digest = Digest::from_bytes([0; 32]);

const STORED: [u8; 4] = *b"SFa1";
const PRUNED: [u8; 4] = *b"SFp1";
const DOMAIN: &[u8] = b"steadfast/audit/1\0";

/// What is wrong with bytes that should be a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends inside a frame.
    #[error("ends inside a record")]
    Cut,
    /// The bytes do not begin like a frame.
    #[error("not the beginning of a record")]
    Magic,
    /// The header's hash does not match it.
    #[error("a record's header does not match its hash")]
    Header,
    /// The header names a payload larger than any record.
    #[error("a record claims to be longer than any record")]
    Length,
    /// The payload is not what the header says.
    #[error("a record's payload does not match its digest")]
    Payload,
    /// A sound frame that does not follow the one before.
    #[error("a record does not follow the one before it")]
    Link,
    /// A segment does not begin with the record that opens it.
    #[error("a segment does not begin with its own opening record")]
    Opening,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whether the payload has been taken out.
    pub pruned: bool,
    /// Length of the payload when it was written, in bytes.
    pub length: u32,
    /// Place in the log, counting from 1.
    pub sequence: u64,
    /// Bytes of this segment that were on disk before this frame was written.
    pub synced_before: u64,
    /// Hash of the frame before.
    pub previous: Digest,
    /// SHA-256 of the payload.
    pub content: Digest,
    /// Hash of this frame.
    pub hash: Digest,
}

impl Header {
    /// The header of a new frame. `length` is the payload's, at most [`RECORD_BYTES_MAX`].
    #[must_use]
    pub fn seal(length: u32, sequence: u64, synced_before: u64, previous: Digest, content: Digest) -> Self {
        let mut header = Self { pruned: false, length, sequence, synced_before, previous, content, hash: GENESIS };
        header.hash = hash_of(&header.covered());
        header
    }

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(if self.pruned { &PRUNED } else { &STORED });
        bytes.extend_from_slice(&self.covered());
        bytes.extend_from_slice(self.hash.as_bytes());
        bytes
    }

    /// Reads a header and checks it against its own hash.
    ///
    /// # Errors
    /// When the bytes are not a header that this module wrote.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Damage> {
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or(Damage::Cut)?;
        let pruned = match *magic {
            STORED => false,
            PRUNED => true,
            _ => return Err(Damage::Magic),
        };
        let (covered, hash) = rest.split_last_chunk::<32>().ok_or(Damage::Cut)?;
        let hash = Digest::from_bytes(*hash);
        if hash_of(covered) != hash {
            return Err(Damage::Header);
        }
        let (length, rest) = covered.split_first_chunk::<4>().ok_or(Damage::Cut)?;
        let (sequence, rest) = rest.split_first_chunk::<8>().ok_or(Damage::Cut)?;
        let (synced_before, rest) = rest.split_first_chunk::<8>().ok_or(Damage::Cut)?;
        let (previous, rest) = rest.split_first_chunk::<32>().ok_or(Damage::Cut)?;
        let (content, _) = rest.split_first_chunk::<32>().ok_or(Damage::Cut)?;
        let length = u32::from_le_bytes(*length);
        if usize::try_from(length).map_or(true, |length| length > RECORD_BYTES_MAX) {
            return Err(Damage::Length);
        }
        Ok(Self {
            pruned,
            length,
            sequence: u64::from_le_bytes(*sequence),
            synced_before: u64::from_le_bytes(*synced_before),
            previous: Digest::from_bytes(*previous),
            content: Digest::from_bytes(*content),
            hash,
        })
    }

    /// Bytes of payload that follow the header on disk.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        if self.pruned { 0 } else { usize::try_from(self.length).unwrap_or(usize::MAX) }
    }

    /// Bytes of the whole frame on disk.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        let header: u64 = 120;
        if self.pruned { header } else { header + u64::from(self.length) }
    }

    fn covered(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.synced_before.to_le_bytes());
        bytes.extend_from_slice(self.previous.as_bytes());
        bytes.extend_from_slice(self.content.as_bytes());
        bytes
    }
}

fn hash_of(covered: &[u8]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(DOMAIN);
    hasher.update(covered);
    Digest::from_bytes(hasher.finalize().into())
}

/// The largest `synced_before` of any sound header in these bytes: how much of the segment is proved to have been on
/// disk. Looks at every offset, because damage has lost the frames' borders.
#[must_use]
pub fn proved_by(bytes: &[u8]) -> u64 {
    let mut proved = 0;
    for window in bytes.windows(HEADER_BYTES) {
        if !window.starts_with(&STORED) && !window.starts_with(&PRUNED) {
            continue;
        }
        if let Some(header) = window.first_chunk().and_then(|bytes| Header::parse(bytes).ok()) {
            proved = proved.max(header.synced_before);
        }
    }
    proved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header::seal(7, 3, 512, Digest::of(b"before"), Digest::of(b"payload"))
    }

    fn bytes(header: &Header) -> [u8; HEADER_BYTES] {
        header.to_bytes().try_into().expect("fixed length")
    }

    #[test]
    fn a_header_reads_back() {
        assert_eq!(Header::parse(&bytes(&header())), Ok(header()));
        let pruned = Header { pruned: true, ..header() };
        assert_eq!(Header::parse(&bytes(&pruned)), Ok(pruned));
        assert_eq!(pruned.frame_bytes(), 120);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        let sound = bytes(&header());
        for bit in 0..HEADER_BYTES * 8 {
            let mut broken = sound;
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&broken).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_hash_equals_an_independent_computation() {
        // python3: h=lambda b:hashlib.sha256(b).digest()
        // h(b"steadfast/audit/1\0"+struct.pack("<IQQ",7,3,512)+h(b"before")+h(b"payload")).hex()
        assert_eq!(header().hash.to_string(), "b9a500dcf3b583432ce92ebefb0afe778e5821f8f95d96d672ec1ca7bed68a5b");
    }

    #[test]
    fn a_mark_is_found_wherever_it_lies() {
        let mut noise = vec![0x53; 300];
        noise.extend_from_slice(&bytes(&header()));
        noise.extend_from_slice(&[0; 50]);
        assert_eq!(proved_by(&noise), 512);
        assert_eq!(proved_by(&noise[..noise.len() - 51]), 0);
    }
}
