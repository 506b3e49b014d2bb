//! A strict walk over a JPEG: every marker segment, and through [`super::jpeg_scan`] every block of every scan.
//!
//! It exists because the codec accepts a JPEG cut anywhere and fills the rest with grey. The walk follows the Huffman
//! codes themselves, so it knows whether each scan holds all of its blocks and nothing more, and it keeps account of
//! the precision each coefficient has reached, so a progressive picture whose last scans are missing is found too.
//! Section and figure numbers are those of ITU-T T.81.

use std::borrow::Cow;

use image::metadata::Orientation;

use super::decode::{Format, ImageError, JPEG_SCANS_MAX, Outline, check_size};
use super::jpeg_scan::{Band, Huffman, Member, Scan};

/// Start of image, two bytes.
const SOI_BYTES: usize = 2;

/// Walks from SOI to EOI.
pub(super) fn walk(bytes: &[u8]) -> Result<Outline<'_>, ImageError> {
    let mut walk = Walk { bytes, at: SOI_BYTES, ..Walk::default() };
    while walk.segment()? {}
    let frame = walk.finish()?;
    let (width, height) = (frame.width, frame.height);
    let rest = bytes.get(walk.at..).unwrap_or_default();
    if rest.iter().any(|byte| *byte != 0) {
        return Err(ImageError::TrailingData { format: Format::Jpeg, bytes: rest.len() });
    }
    let orientation = walk.orientation.unwrap_or(Orientation::NoTransforms);
    let bytes = if walk.standard_tables { Cow::Owned(with_standard_tables(bytes)) } else { Cow::Borrowed(bytes) };
    Ok(Outline { format: Format::Jpeg, width, height, orientation, bytes })
}

pub(super) const fn corrupt(at: usize, what: &'static str) -> ImageError {
    ImageError::Corrupt { format: Format::Jpeg, at, what }
}

pub(super) const fn truncated(at: usize) -> ImageError {
    ImageError::Truncated { format: Format::Jpeg, at }
}

/// The picture's layout as its frame header gives it, and how far each component has come.
pub(super) struct Frame {
    width: u32,
    height: u32,
    progressive: bool,
    components: Vec<Component>,
}

/// One colour component of the frame.
#[derive(Clone)]
pub(super) struct Component {
    id: u8,
    pub(super) horizontal: u32,
    pub(super) vertical: u32,
    /// Blocks that carry pixels, in both directions: what a scan of this component alone holds.
    pub(super) blocks: (u32, u32),
    /// Bits still missing of each coefficient, in zigzag order; `None` before its first scan.
    missing_bits: [Option<u8>; 64],
    /// Which coefficients of each block are non-zero so far, one bit each; only a progressive frame needs them.
    pub(super) non_zero: Vec<u64>,
}

#[derive(Default)]
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    frame: Option<Frame>,
    dc_tables: [Option<Huffman>; 4],
    ac_tables: [Option<Huffman>; 4],
    restart_interval: u32,
    scans: u32,
    orientation: Option<Orientation>,
    tables_seen: bool,
    standard_tables: bool,
}

impl<'a> Walk<'a> {
    /// Reads one marker and what belongs to it; false at EOI.
    fn segment(&mut self) -> Result<bool, ImageError> {
        let start = self.at;
        match self.marker()? {
            0xD9 => return Ok(false),
            0xC0..=0xC2 if self.frame.is_some() => return Err(corrupt(start, "a second frame header")),
            process @ 0xC0..=0xC2 => self.frame = Some(read_frame(self.payload()?, process == 0xC2, start)?),
            0xC4 => {
                let payload = self.payload()?;
                self.read_tables(payload, start)?;
                self.tables_seen = true;
            }
            process @ (0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF) => {
                return Err(ImageError::Process { process: process - 0xC0 });
            }
            0xDA => self.scan(start)?,
            0xDD => {
                let [high, low] = *self.payload()? else { return Err(corrupt(start, "a restart interval's length")) };
                self.restart_interval = u32::from(u16::from_be_bytes([high, low]));
            }
            0xE1 => {
                let payload = self.payload()?;
                if let Some(exif) = payload.strip_prefix(b"Exif\0\0") {
                    self.orientation = self.orientation.or_else(|| Orientation::from_exif_chunk(exif));
                }
            }
            0xDB | 0xE0 | 0xE2..=0xEF | 0xFE => {
                self.payload()?;
            }
            _ => return Err(corrupt(start, "a marker that has no place here")),
        }
        Ok(true)
    }

    /// The next marker's code; any number of 0xFF fill bytes may precede it (B.1.1.2).
    fn marker(&mut self) -> Result<u8, ImageError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let fill = rest.iter().take_while(|byte| **byte == 0xFF).count();
        let Some(code) = rest.get(fill) else { return Err(truncated(self.bytes.len())) };
        if fill == 0 {
            return Err(corrupt(self.at, "bytes between segments"));
        }
        self.at += fill + 1;
        Ok(*code)
    }

    /// A segment's payload behind its two-byte length, which counts itself.
    fn payload(&mut self) -> Result<&'a [u8], ImageError> {
        let cut = truncated(self.bytes.len());
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<2>() else { return Err(cut) };
        let Some(length) = usize::from(u16::from_be_bytes(*length)).checked_sub(2) else {
            return Err(corrupt(self.at, "a segment shorter than its length field"));
        };
        let payload = rest.get(..length).ok_or(cut)?;
        self.at += 2 + length;
        Ok(payload)
    }

    /// Huffman tables (B.2.4.2).
    fn read_tables(&mut self, mut payload: &[u8], at: usize) -> Result<(), ImageError> {
        while let Some((selector, rest)) = payload.split_first() {
            let Some((counts, rest)) = rest.split_first_chunk::<16>() else {
                return Err(corrupt(at, "a Huffman table is cut short"));
            };
            let symbols = counts.iter().copied().map(usize::from).sum();
            let Some((symbols, rest)) = rest.split_at_checked(symbols) else {
                return Err(corrupt(at, "a Huffman table is cut short"));
            };
            let tables = match selector >> 4 {
                0 => &mut self.dc_tables,
                1 => &mut self.ac_tables,
                _ => return Err(corrupt(at, "a Huffman table of no known class")),
            };
            let Some(slot) = tables.get_mut(usize::from(selector & 15)) else {
                return Err(corrupt(at, "a Huffman table of no known number"));
            };
            *slot = Some(Huffman::new(counts, symbols).ok_or(corrupt(at, "a Huffman table codes too much"))?);
            payload = rest;
        }
        Ok(())
    }

    /// A scan's header (B.2.3) and all of its blocks.
    fn scan(&mut self, start: usize) -> Result<(), ImageError> {
        self.scans += 1;
        if self.scans > JPEG_SCANS_MAX {
            return Err(ImageError::TooManyScans);
        }
        let payload = self.payload()?;
        if !self.tables_seen && !self.standard_tables {
            self.read_tables(standard_tables_payload(), start)?;
            self.standard_tables = true;
        }
        let frame = self.frame.as_mut().ok_or(corrupt(start, "a scan before the frame header"))?;
        let Some(([count, members @ ..], [first, last, precision])) = payload.split_last_chunk::<3>() else {
            return Err(corrupt(start, "a scan header is too short"));
        };
        let band = Band { first: *first, last: *last, high: precision >> 4, low: precision & 15 };
        if members.len() != 2 * usize::from(*count) || !matches!(count, 1..=3) {
            return Err(corrupt(start, "a scan header's component count"));
        }
        let mut scan = Scan { progressive: frame.progressive, band, members: Vec::new() };
        for member in members.chunks_exact(2) {
            let [id, tables] = *member else { continue };
            let index = frame.components.iter().position(|component| component.id == id);
            let index = index.ok_or(corrupt(start, "a scan of a component the frame lacks"))?;
            if scan.members.iter().any(|member: &Member<'_>| member.index == index) {
                return Err(corrupt(start, "a scan names a component twice"));
            }
            let dc = self.dc_tables.get(usize::from(tables >> 4)).and_then(Option::as_ref);
            let ac = self.ac_tables.get(usize::from(tables & 15)).and_then(Option::as_ref);
            scan.members.push(Member { index, dc, ac });
        }
        frame.advance(&scan, start)?;
        let mcus = frame.mcus(&scan);
        self.at = scan.walk(self.bytes, self.at, mcus, self.restart_interval, &mut frame.components)?;
        Ok(())
    }

    /// After EOI: there was a frame, and every coefficient of every component came in full.
    fn finish(&self) -> Result<&Frame, ImageError> {
        let frame = self.frame.as_ref().ok_or(corrupt(self.at, "no frame"))?;
        let lacking = |component: &Component| component.missing_bits.iter().any(|missing| *missing != Some(0));
        match frame.components.iter().position(lacking) {
            Some(component) => Err(ImageError::MissingScans { component }),
            None => Ok(frame),
        }
    }
}

impl Frame {
    /// Enters a scan into the account of what has been sent, and refuses one out of order (G.1.1.1).
    fn advance(&mut self, scan: &Scan<'_>, at: usize) -> Result<(), ImageError> {
        let Band { first, last, high, low } = scan.band;
        let whole = (first, last, high, low) == (0, 63, 0, 0);
        let progressive = first <= last
            && last < 64
            && low <= 13
            && (first > 0 || last == 0)
            && (first == 0 || scan.members.len() == 1);
        if !(if self.progressive { progressive } else { whole }) {
            return Err(corrupt(at, "a scan's band or precision"));
        }
        let expected = if high == 0 { None } else { Some(high) };
        if high != 0 && high != low + 1 {
            return Err(corrupt(at, "a scan refines by more than one bit"));
        }
        for member in &scan.members {
            let Some(component) = self.components.get_mut(member.index) else { continue };
            let band = component.missing_bits.iter_mut().take(usize::from(last) + 1).skip(usize::from(first));
            for missing in band {
                if *missing != expected {
                    return Err(corrupt(at, "a scan out of order"));
                }
                *missing = Some(low);
            }
        }
        Ok(())
    }

    /// Number of MCUs in a scan (A.2): a component alone is sent block by block, several interleave in padded groups.
    fn mcus(&self, scan: &Scan<'_>) -> u32 {
        if let [member] = scan.members.as_slice() {
            let blocks = self.components.get(member.index).map_or((0, 0), |component| component.blocks);
            return blocks.0 * blocks.1;
        }
        let (horizontal, vertical) = largest_factors(&self.components);
        self.width.div_ceil(8 * horizontal) * self.height.div_ceil(8 * vertical)
    }
}

/// A frame header (B.2.2).
fn read_frame(payload: &[u8], progressive: bool, at: usize) -> Result<Frame, ImageError> {
    let [bits, h1, h0, w1, w0, count, specification @ ..] = payload else {
        return Err(corrupt(at, "the frame header is too short"));
    };
    if *bits != 8 {
        return Err(ImageError::SampleDepth { bits: *bits });
    }
    let (width, height) = (u32::from(u16::from_be_bytes([*w1, *w0])), u32::from(u16::from_be_bytes([*h1, *h0])));
    check_size(width, height)?;
    if !matches!(count, 1 | 3) {
        return Err(ImageError::Components { components: *count });
    }
    if specification.len() != 3 * usize::from(*count) {
        return Err(corrupt(at, "the frame header's length"));
    }
    let mut components = Vec::with_capacity(3);
    for entry in specification.chunks_exact(3) {
        let [id, factors, _] = *entry else { continue };
        let (horizontal, vertical) = (u32::from(factors >> 4), u32::from(factors & 15));
        if components.iter().any(|component: &Component| component.id == id) {
            return Err(corrupt(at, "the frame names a component twice"));
        }
        let component =
            Component { id, horizontal, vertical, blocks: (0, 0), missing_bits: [None; 64], non_zero: vec![] };
        components.push(component);
    }
    check_sampling(&components)?;
    let (horizontal_max, vertical_max) = largest_factors(&components);
    for component in &mut components {
        let across = (width * component.horizontal).div_ceil(8 * horizontal_max);
        let down = (height * component.vertical).div_ceil(8 * vertical_max);
        component.blocks = (across, down);
        if progressive {
            component.non_zero = vec![0; (across * down) as usize];
        }
    }
    Ok(Frame { width, height, progressive, components })
}

/// Luma at 1 or 2 in each direction (4 across for 4:1:1), chroma at 1: what cameras and libraries write, and what the
/// codec is known to place correctly. A grey picture's own factors mean nothing, but only 1 is in use.
fn check_sampling(components: &[Component]) -> Result<(), ImageError> {
    let factors: Vec<_> = components.iter().map(|component| (component.horizontal, component.vertical)).collect();
    match factors.as_slice() {
        [(1, 1)] | [(1 | 2, 1 | 2) | (4, 1), (1, 1), (1, 1)] => Ok(()),
        _ => Err(ImageError::Sampling),
    }
}

fn largest_factors(components: &[Component]) -> (u32, u32) {
    let horizontal = components.iter().map(|component| component.horizontal).max().unwrap_or(1);
    let vertical = components.iter().map(|component| component.vertical).max().unwrap_or(1);
    (horizontal.max(1), vertical.max(1))
}

/// The picture with the standard tables put in behind SOI.
fn with_standard_tables(bytes: &[u8]) -> Vec<u8> {
    let (soi, rest) = bytes.split_at_checked(SOI_BYTES).unwrap_or((bytes, &[]));
    [soi, &STANDARD_TABLES, rest].concat()
}

fn standard_tables_payload() -> &'static [u8] {
    STANDARD_TABLES.get(4..).unwrap_or_default()
}

/// The Huffman tables of K.3.3 as one DHT segment. Motion-JPEG frames leave it out, since every decoder has it.
#[rustfmt::skip]
static STANDARD_TABLES: [u8; 420] = [
    0xFF, 0xC4, 0x01, 0xA2, 0x00, 0x00, 0x01, 0x05, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x10, 0x00, 0x02,
    0x01, 0x03, 0x03, 0x02, 0x04, 0x03, 0x05, 0x05, 0x04, 0x04, 0x00, 0x00, 0x01, 0x7D, 0x01, 0x02, 0x03, 0x00,
    0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91,
    0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0A, 0x16,
    0x17, 0x18, 0x19, 0x1A, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43,
    0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65,
    0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83, 0x84, 0x85, 0x86, 0x87,
    0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7,
    0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7,
    0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6,
    0xE7, 0xE8, 0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA, 0x01, 0x00, 0x03, 0x01,
    0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04,
    0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x11, 0x00, 0x02, 0x01, 0x02, 0x04, 0x04, 0x03, 0x04, 0x07, 0x05,
    0x04, 0x04, 0x00, 0x01, 0x02, 0x77, 0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41,
    0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33,
    0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1, 0x17, 0x18, 0x19, 0x1A, 0x26,
    0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A,
    0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6A, 0x73, 0x74,
    0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x92, 0x93, 0x94,
    0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4,
    0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4,
    0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF2, 0xF3, 0xF4,
    0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
];
