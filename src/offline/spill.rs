//! Numbers sorted without being held: full buffers are sorted and spilled to unnamed files, and merged when they are read.
//! What a tool keeps of each of its tasks then grows on the disk (`TMPDIR`) and not in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};

/// What is sorted: by the first number, and where that is the same by the second.
pub(super) type Record = [u64; 2];

/// Records held before they are spilled: 256 KiB.
const HELD: usize = 16 * 1024;
/// Files kept open before they are merged into one.
const RUNS_MAX: usize = 32;
/// Read ahead and written behind a file, in bytes.
const BUFFER_BYTES: usize = 4096;

/// Takes records in any order.
#[derive(Debug)]
pub(super) struct Sorter {
    held_max: usize,
    held: Vec<Record>,
    runs: Vec<Run>,
    len: u64,
}

/// Records in order.
#[derive(Debug)]
pub(super) struct Sorted {
    runs: Vec<Run>,
    next: BinaryHeap<Reverse<(Record, usize)>>,
}

/// A sorted part.
#[derive(Debug)]
enum Run {
    Held(std::vec::IntoIter<Record>),
    Spilled(BufReader<File>),
}

impl Default for Sorter {
    fn default() -> Self {
        Self::holding(HELD)
    }
}

impl Sorter {
    const fn holding(held_max: usize) -> Self {
        Self { held_max, held: Vec::new(), runs: Vec::new(), len: 0 }
    }

    /// Records taken so far.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Takes a record.
    pub(super) fn push(&mut self, record: Record) -> io::Result<()> {
        self.held.push(record);
        self.len += 1;
        if self.held.len() < self.held_max {
            return Ok(());
        }
        self.held.sort_unstable();
        let run = spill(self.held.drain(..).map(Ok))?;
        self.runs.push(run);
        if self.runs.len() >= RUNS_MAX {
            let merged = spill(Sorted::merging(std::mem::take(&mut self.runs))?)?;
            self.runs.push(merged);
        }
        Ok(())
    }

    /// The records, in order.
    pub(super) fn sorted(mut self) -> io::Result<Sorted> {
        self.held.sort_unstable();
        self.runs.push(Run::Held(self.held.into_iter()));
        Sorted::merging(self.runs)
    }
}

fn spill(records: impl Iterator<Item = io::Result<Record>>) -> io::Result<Run> {
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, tempfile::tempfile()?);
    for record in records {
        for number in record? {
            file.write_all(&number.to_le_bytes())?;
        }
    }
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(Run::Spilled(BufReader::with_capacity(BUFFER_BYTES, file)))
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Record>> {
        let file = match self {
            Self::Held(records) => return Ok(records.next()),
            Self::Spilled(file) => file,
        };
        let (mut first, mut second) = ([0; 8], [0; 8]);
        match file.read_exact(&mut first) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        file.read_exact(&mut second)?;
        Ok(Some([u64::from_le_bytes(first), u64::from_le_bytes(second)]))
    }
}

impl Sorted {
    fn merging(runs: Vec<Run>) -> io::Result<Self> {
        let mut sorted = Self { runs, next: BinaryHeap::new() };
        for run in 0..sorted.runs.len() {
            sorted.draw(run)?;
        }
        Ok(sorted)
    }

    fn draw(&mut self, run: usize) -> io::Result<()> {
        if let Some(record) = self.runs.get_mut(run).map(Run::next).transpose()?.flatten() {
            self.next.push(Reverse((record, run)));
        }
        Ok(())
    }
}

impl Iterator for Sorted {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((record, run)) = self.next.pop()?;
        Some(self.draw(run).map(|()| record))
    }
}

/// A number's bits such that they sort as the numbers do.
pub(super) const fn ascending(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_back_sorted_however_they_are_spilled(
            records in proptest::collection::vec((0_u64..50, any::<u64>()), 0..400),
            held in 1_usize..9,
        ) {
            let mut sorter = Sorter::holding(held);
            let mut expected: Vec<Record> = records.iter().map(|(a, b)| [*a, *b]).collect();
            for record in &expected {
                sorter.push(*record).expect("taken");
            }
            prop_assert!(sorter.runs.len() < RUNS_MAX && sorter.held.len() < held);
            expected.sort_unstable();
            let sorted: Vec<Record> = sorter.sorted().expect("read").map(|record| record.expect("read")).collect();
            prop_assert_eq!(sorted, expected);
        }

        #[test]
        fn bits_sort_as_numbers_do(a in any::<f64>(), b in any::<f64>()) {
            prop_assert_eq!(ascending(a).cmp(&ascending(b)), a.total_cmp(&b));
        }
    }
}
