//! A strict walk over a PNG's chunks: sizes, checksums and end. It reads no pixels; the codec does.
//!
//! The codec skips ancillary chunks whose checksum fails, which would silently drop transparency or orientation, and
//! yields the first frame of an animation without saying so.

use std::borrow::Cow;

use image::metadata::Orientation;

use super::decode::{Format, ImageError, Outline, check_size};

const SIGNATURE_BYTES: usize = 8;
/// Length field, type and checksum around a chunk's data.
const CHUNK_OVERHEAD_BYTES: usize = 12;

/// Walks the chunks from signature to IEND.
pub(super) fn walk(bytes: &[u8]) -> Result<Outline<'_>, ImageError> {
    let mut at = SIGNATURE_BYTES;
    let header = chunk(bytes, at)?;
    let (width, height) = read_header(&header, at)?;
    at += CHUNK_OVERHEAD_BYTES + header.data.len();
    let mut orientation = None;
    loop {
        let next = chunk(bytes, at)?;
        let start = at;
        at += CHUNK_OVERHEAD_BYTES + next.data.len();
        match &next.kind {
            b"IHDR" => return Err(corrupt(start, "a second header")),
            b"acTL" | b"fcTL" | b"fdAT" => return Err(ImageError::Animated),
            b"eXIf" => orientation = orientation.or_else(|| Orientation::from_exif_chunk(next.data)),
            b"IEND" => break,
            _ => {}
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    if rest.iter().any(|byte| *byte != 0) {
        return Err(ImageError::TrailingData { format: Format::Png, bytes: rest.len() });
    }
    let orientation = orientation.unwrap_or(Orientation::NoTransforms);
    Ok(Outline { format: Format::Png, width, height, orientation, bytes: Cow::Borrowed(bytes) })
}

struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
}

/// The chunk at this offset, its checksum verified.
fn chunk(bytes: &[u8], at: usize) -> Result<Chunk<'_>, ImageError> {
    let cut = || ImageError::Truncated { format: Format::Png, at: bytes.len() };
    let rest = bytes.get(at..).unwrap_or_default();
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| cut())?;
    let (kind, tail) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (data, tail) = tail.split_at_checked(length).ok_or_else(cut)?;
    let (checksum, _) = tail.split_first_chunk::<4>().ok_or_else(cut)?;
    if crc32(kind, data) != u32::from_be_bytes(*checksum) {
        return Err(corrupt(at, "a chunk's checksum does not match"));
    }
    Ok(Chunk { kind: *kind, data })
}

fn read_header(header: &Chunk<'_>, at: usize) -> Result<(u32, u32), ImageError> {
    if &header.kind != b"IHDR" {
        return Err(corrupt(at, "the first chunk is not the header"));
    }
    let [w0, w1, w2, w3, h0, h1, h2, h3, bits, ..] = *header.data else {
        return Err(corrupt(at, "the header is too short"));
    };
    let (width, height) = (u32::from_be_bytes([w0, w1, w2, w3]), u32::from_be_bytes([h0, h1, h2, h3]));
    check_size(width, height)?;
    if bits > 8 {
        return Err(ImageError::SampleDepth { bits });
    }
    Ok((width, height))
}

const fn corrupt(at: usize, what: &'static str) -> ImageError {
    ImageError::Corrupt { format: Format::Png, at, what }
}

/// The CRC-32 of a chunk (PNG specification, annex D), over its type and data.
fn crc32(kind: &[u8], data: &[u8]) -> u32 {
    let crc = kind.iter().chain(data).fold(u32::MAX, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        CRC_TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default() ^ (crc >> 8)
    });
    !crc
}

static CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut rest: &mut [u32] = &mut table;
    let mut value = 0_u32;
    while let Some((entry, tail)) = rest.split_first_mut() {
        let mut crc = value;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        *entry = crc;
        value += 1;
        rest = tail;
    }
    table
}
