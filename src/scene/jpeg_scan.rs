//! Follows the Huffman codes of one JPEG scan block by block, without computing a single pixel, to learn whether the
//! scan is whole. Section and figure numbers are those of ITU-T T.81.

use super::decode::ImageError;
use super::jpeg::{Component, corrupt, truncated};

/// Codes up to this length are looked up in one step.
const LOOKUP_BITS: u32 = 9;
const CODE_BITS_MAX: u32 = 16;

/// A Huffman table, as canonical code ranges and a lookup for the short codes.
pub(super) struct Huffman {
    /// For each prefix of [`LOOKUP_BITS`] bits: code length and symbol, length 0 where the code is longer.
    lookup: Vec<(u8, u8)>,
    /// For each length from 1: one past the largest code, and what to add to a code to get its symbol's index.
    ranges: [(i32, i32); CODE_BITS_MAX as usize],
    symbols: Vec<u8>,
}

impl Huffman {
    /// The table with this many codes of each length from 1 to 16 (figure C.1 and after); `None` if they overflow.
    pub(super) fn new(counts: &[u8; CODE_BITS_MAX as usize], symbols: &[u8]) -> Option<Self> {
        let mut lookup = vec![(0, 0); 1 << LOOKUP_BITS];
        let mut ranges = [(0, 0); CODE_BITS_MAX as usize];
        let (mut code, mut index) = (0_i32, 0_i32);
        for ((length, count), range) in (1_u8..).zip(counts).zip(&mut ranges) {
            let (first, end) = (code, code + i32::from(*count));
            if end > 1 << length {
                return None;
            }
            *range = (end, index - first);
            if let Some(spare) = LOOKUP_BITS.checked_sub(u32::from(length)) {
                let entries = lookup.iter_mut().skip(usize::try_from(first << spare).ok()?);
                let symbols = symbols.iter().skip(usize::try_from(index).ok()?).take(usize::from(*count));
                let repeated = symbols.flat_map(|symbol| std::iter::repeat_n(*symbol, 1 << spare));
                entries.zip(repeated).for_each(|(entry, symbol)| *entry = (length, symbol));
            }
            index += i32::from(*count);
            code = end << 1;
        }
        Some(Self { lookup, ranges, symbols: symbols.to_vec() })
    }

    fn decode(&self, bits: &mut Bits<'_>) -> Result<u8, ImageError> {
        let window = bits.peek(CODE_BITS_MAX);
        let (length, symbol) =
            self.lookup.get((window >> (CODE_BITS_MAX - LOOKUP_BITS)) as usize).copied().unwrap_or_default();
        if length > 0 {
            bits.skip(u32::from(length))?;
            return Ok(symbol);
        }
        let window = i32::try_from(window).unwrap_or_default();
        for (length, (end, offset)) in (1..).zip(self.ranges) {
            let code = window >> (CODE_BITS_MAX - length);
            if code < end {
                bits.skip(length)?;
                let symbol = usize::try_from(code + offset).ok().and_then(|index| self.symbols.get(index));
                return symbol.copied().ok_or(corrupt(bits.at, "a code outside its Huffman table"));
            }
        }
        Err(bits.out_of_codes())
    }
}

/// The bits of one entropy-coded segment, from a scan header or restart marker to the next marker.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bits read ahead, the next one highest of the low `held`.
    window: u64,
    held: u32,
}

impl Bits<'_> {
    /// Reads ahead as far as the segment reaches; a stuffed zero follows each 0xFF of data (B.1.1.5).
    fn refill(&mut self) {
        while self.held <= 56 {
            let byte = match self.bytes.get(self.at..) {
                Some([0xFF, 0x00, ..]) => {
                    self.at += 2;
                    0xFF
                }
                Some([0xFF, ..] | []) | None => return,
                Some([byte, ..]) => {
                    self.at += 1;
                    *byte
                }
            };
            self.window = (self.window << 8) | u64::from(byte);
            self.held += 8;
        }
    }

    /// The next bits without taking them, zeros where the segment has ended.
    fn peek(&mut self, count: u32) -> u32 {
        if self.held < count {
            self.refill();
        }
        let aligned =
            if self.held >= count { self.window >> (self.held - count) } else { self.window << (count - self.held) };
        u32::try_from(aligned & ((1 << count) - 1)).unwrap_or_default()
    }

    fn skip(&mut self, count: u32) -> Result<(), ImageError> {
        if self.held < count {
            self.refill();
        }
        self.held = self.held.checked_sub(count).ok_or(truncated(self.at))?;
        Ok(())
    }

    fn take(&mut self, count: u32) -> Result<u32, ImageError> {
        let value = self.peek(count);
        self.skip(count)?;
        Ok(value)
    }

    /// What no matching code means: the segment's end was reached within a code, or the data are wrong.
    const fn out_of_codes(&self) -> ImageError {
        if self.held < CODE_BITS_MAX { truncated(self.at) } else { corrupt(self.at, "no Huffman code matches") }
    }

    /// Demands that nothing but the padding of the last byte is left, and forgets it.
    fn finish(&mut self) -> Result<(), ImageError> {
        self.refill();
        if self.held >= 8 {
            return Err(corrupt(self.at, "scan data go on after the last block"));
        }
        self.held = 0;
        Ok(())
    }

    /// Takes restart marker `number` mod 8 (E.1.4).
    fn restart(&mut self, number: u32) -> Result<(), ImageError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let fill = rest.iter().take_while(|byte| **byte == 0xFF).count();
        let code = *rest.get(fill).ok_or(truncated(self.at))?;
        if u32::from(code) != 0xD0 + number % 8 {
            return Err(corrupt(self.at, "a restart marker is missing or out of order"));
        }
        self.at += fill + 1;
        Ok(())
    }
}

/// Which coefficients a scan sends, in zigzag order, and with what precision: bits missing before (0: first time) and
/// after.
#[derive(Clone, Copy)]
pub(super) struct Band {
    pub(super) first: u8,
    pub(super) last: u8,
    pub(super) high: u8,
    pub(super) low: u8,
}

/// A component's part in a scan: its place in the frame and its tables, which not every kind of scan needs.
pub(super) struct Member<'a> {
    pub(super) index: usize,
    pub(super) dc: Option<&'a Huffman>,
    pub(super) ac: Option<&'a Huffman>,
}

/// A scan as its header describes it.
pub(super) struct Scan<'a> {
    pub(super) progressive: bool,
    pub(super) band: Band,
    pub(super) members: Vec<Member<'a>>,
}

impl Scan<'_> {
    /// Follows all blocks from `at` and returns where the scan ends.
    pub(super) fn walk(
        &self,
        bytes: &[u8],
        at: usize,
        mcus: u32,
        restart_interval: u32,
        components: &mut [Component],
    ) -> Result<usize, ImageError> {
        let mut bits = Bits { bytes, at, window: 0, held: 0 };
        let mut end_of_band_run = 0;
        for mcu in 0..mcus {
            if restart_interval > 0 && mcu > 0 && mcu % restart_interval == 0 {
                end_segment(&mut bits, end_of_band_run)?;
                bits.restart(mcu / restart_interval - 1)?;
            }
            for member in &self.members {
                let component = components.get_mut(member.index).ok_or(corrupt(at, "a scan without its component"))?;
                let alone = self.members.len() == 1;
                let blocks = if alone { 1 } else { component.horizontal * component.vertical };
                for _ in 0..blocks {
                    let spare = &mut 0;
                    let history = component.non_zero.get_mut(mcu as usize).filter(|_| alone).unwrap_or(spare);
                    self.block(&mut bits, member, history, &mut end_of_band_run)?;
                }
            }
        }
        end_segment(&mut bits, end_of_band_run)?;
        Ok(bits.at)
    }

    fn block(
        &self,
        bits: &mut Bits<'_>,
        member: &Member<'_>,
        non_zero: &mut u64,
        run: &mut u32,
    ) -> Result<(), ImageError> {
        let lacking = corrupt(bits.at, "a scan without its Huffman table");
        match (self.progressive, self.band.first, self.band.high) {
            (false, ..) => {
                let (dc, ac) = member.dc.zip(member.ac).ok_or(lacking)?;
                skip_dc(bits, dc)?;
                skip_ac(bits, ac)
            }
            (true, 0, 0) => skip_dc(bits, member.dc.ok_or(lacking)?),
            (true, 0, _) => bits.skip(1),
            (true, _, 0) => skip_ac_first(bits, member.ac.ok_or(lacking)?, self.band, non_zero, run),
            (true, ..) => skip_ac_refinement(bits, member.ac.ok_or(lacking)?, self.band, non_zero, run),
        }
    }
}

fn end_segment(bits: &mut Bits<'_>, end_of_band_run: u32) -> Result<(), ImageError> {
    if end_of_band_run > 0 {
        return Err(corrupt(bits.at, "a run of empty blocks passes the end of its segment"));
    }
    bits.finish()
}

/// A DC difference (F.2.2.1): a category, then that many bits.
fn skip_dc(bits: &mut Bits<'_>, table: &Huffman) -> Result<(), ImageError> {
    let category = u32::from(table.decode(bits)?);
    if category > 11 {
        return Err(corrupt(bits.at, "a DC difference of more than 11 bits"));
    }
    bits.skip(category)
}

/// The 63 AC coefficients of a sequential block (F.2.2.2).
fn skip_ac(bits: &mut Bits<'_>, table: &Huffman) -> Result<(), ImageError> {
    let mut index = 1;
    while index < 64 {
        let symbol = table.decode(bits)?;
        match (u32::from(symbol >> 4), u32::from(symbol & 15)) {
            (15, 0) => index += 16,
            (_, 0) => return Ok(()),
            (zeros, size) => {
                bits.skip(size)?;
                index += zeros + 1;
            }
        }
    }
    if index > 64 { Err(past_the_band(bits)) } else { Ok(()) }
}

/// A band's first scan (G.1.2.2).
fn skip_ac_first(
    bits: &mut Bits<'_>,
    table: &Huffman,
    band: Band,
    non_zero: &mut u64,
    run: &mut u32,
) -> Result<(), ImageError> {
    if *run > 0 {
        *run -= 1;
        return Ok(());
    }
    let (mut index, last) = (u32::from(band.first), u32::from(band.last));
    while index <= last {
        let symbol = table.decode(bits)?;
        match (u32::from(symbol >> 4), u32::from(symbol & 15)) {
            (15, 0) => index += 16,
            (exponent, 0) => {
                *run = (1 << exponent) + bits.take(exponent)? - 1;
                return Ok(());
            }
            (zeros, size) => {
                bits.skip(size)?;
                index += zeros;
                if index > last {
                    return Err(past_the_band(bits));
                }
                *non_zero |= 1 << index;
                index += 1;
            }
        }
    }
    if index > last + 1 { Err(past_the_band(bits)) } else { Ok(()) }
}

/// A band's later scans (G.1.2.3): one correction bit for each coefficient that is already non-zero, and the new ones
/// between them.
fn skip_ac_refinement(
    bits: &mut Bits<'_>,
    table: &Huffman,
    band: Band,
    non_zero: &mut u64,
    run: &mut u32,
) -> Result<(), ImageError> {
    let (mut index, last) = (u32::from(band.first), u32::from(band.last));
    while *run == 0 && index <= last {
        let symbol = table.decode(bits)?;
        let (mut zeros, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        if size > 1 {
            return Err(corrupt(bits.at, "a refinement by more than one bit"));
        }
        if size == 0 && zeros < 15 {
            *run = (1 << zeros) + bits.take(zeros)?;
            break;
        }
        bits.skip(size)?;
        while index <= last {
            if *non_zero >> index & 1 == 1 {
                bits.skip(1)?;
            } else if zeros == 0 {
                break;
            } else {
                zeros -= 1;
            }
            index += 1;
        }
        if index > last && (size == 1 || zeros > 0) {
            return Err(past_the_band(bits));
        }
        if size == 1 {
            *non_zero |= 1 << index;
        }
        index += 1;
    }
    if *run > 0 {
        let left = (index..=last).filter(|index| *non_zero >> index & 1 == 1).count();
        for _ in 0..left {
            bits.skip(1)?;
        }
        *run -= 1;
    }
    Ok(())
}

const fn past_the_band(bits: &Bits<'_>) -> ImageError {
    corrupt(bits.at, "a coefficient outside its band")
}
