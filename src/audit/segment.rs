//! The files of a log: their names, and reading one from front to back in constant memory.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::frame::{Damage, GENESIS, HEADER_BYTES, Header, proved_by};
use super::record::{Event, Record, SegmentOpened};
use crate::triple::Digest;

/// Size at which a segment is finished and the next begun, in bytes. One record may reach past it.
pub const SEGMENT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most segments in a log: bounds what a start lists and what retention keeps in mind.
pub const SEGMENTS_MAX: usize = 4096;

const SUFFIX: &str = ".audit";

/// Where a segment lies.
#[must_use]
pub fn path_of(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("{segment:012}{SUFFIX}"))
}

/// Every segment in a directory, oldest first.
///
/// # Errors
/// When the directory cannot be read, or holds more than [`SEGMENTS_MAX`].
pub fn list(dir: &Path) -> io::Result<Vec<u64>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).and_then(|stem| stem.parse().ok());
        let Some(number) = number else { continue };
        if path_of(Path::new(""), number).as_os_str() != name {
            continue;
        }
        if segments.len() == SEGMENTS_MAX {
            return Err(io::Error::other(format!("more than {SEGMENTS_MAX} segments")));
        }
        segments.push(number);
    }
    segments.sort_unstable();
    Ok(segments)
}

/// Makes a directory's entries survive power loss.
///
/// # Errors
/// When the directory cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A frame as read: the payload is borrowed from the scan and gone with the next step.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Its payload; empty where retention has taken it out.
    pub payload: &'a [u8],
    /// Where it begins in its segment, in bytes.
    pub offset: u64,
}

/// One step of a scan.
#[derive(Debug)]
pub enum Step<'a> {
    /// A sound frame that follows the one before.
    Frame(Frame<'a>),
    /// The end of the segment, exactly behind a frame, or room behind it that is still NUL.
    End,
    /// Something else from this offset on.
    Damage {
        /// Where it begins, in bytes.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
}

/// Reads one segment, frame by frame.
#[derive(Debug)]
pub struct Scan {
    reader: BufReader<File>,
    offset: u64,
    payload: Vec<u8>,
    /// Hash and sequence number of the frame before; `None` takes the first frame's own word for it.
    before: Option<(Digest, u64)>,
    done: bool,
}

impl Scan {
    /// Begins at a segment's first byte. With `before` the first frame must follow that hash and sequence number.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, before: Option<(Digest, u64)>) -> io::Result<Self> {
        let reader = BufReader::with_capacity(64 * 1024, File::open(path)?);
        Ok(Self { reader, offset: 0, payload: Vec::new(), before, done: false })
    }

    /// The next frame, the end, or damage. After damage there is no going on: frames have no other border.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn step(&mut self) -> io::Result<Step<'_>> {
        if self.done {
            return Ok(Step::End);
        }
        match self.read_frame()? {
            Ok(Some(header)) => {
                let offset = self.offset;
                self.offset += header.frame_bytes();
                self.before = Some((header.hash, header.sequence));
                Ok(Step::Frame(Frame { header, payload: &self.payload, offset }))
            }
            Ok(None) => {
                self.done = true;
                Ok(Step::End)
            }
            Err(damage) => {
                self.done = true;
                Ok(Step::Damage { offset: self.offset, damage })
            }
        }
    }

    fn read_frame(&mut self) -> io::Result<Result<Option<Header>, Damage>> {
        let mut bytes = [0; HEADER_BYTES];
        let got = read_up_to(&mut self.reader, &mut bytes)?;
        if got == 0 {
            return Ok(Ok(None));
        }
        if is_nul(&bytes) && self.room_follows()? {
            return Ok(Ok(None));
        }
        if got < HEADER_BYTES {
            return Ok(Err(Damage::Cut));
        }
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(damage) => return Ok(Err(damage)),
        };
        self.payload.resize(header.payload_bytes(), 0);
        if read_up_to(&mut self.reader, &mut self.payload)? < self.payload.len() {
            return Ok(Err(Damage::Cut));
        }
        if !header.pruned && Digest::of(&self.payload) != header.content {
            return Ok(Err(Damage::Payload));
        }
        let follows = self
            .before
            .is_none_or(|(hash, sequence)| header.previous == hash && sequence.checked_add(1) == Some(header.sequence));
        Ok(if follows { Ok(Some(header)) } else { Err(Damage::Link) })
    }

    /// Behind a header of NUL: whether nothing was written there when it was read.
    fn room_follows(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            let got = read_up_to(&mut self.reader, &mut bytes)?;
            if !is_nul(bytes.get(..got).unwrap_or_default()) {
                // A writer may have come by since the header was read: then it is no longer NUL.
                let mut header = [0; HEADER_BYTES];
                let got = self.reader.get_ref().read_at(&mut header, self.offset)?;
                return Ok(!is_nul(header.get(..got).unwrap_or_default()));
            }
            if got == 0 {
                return Ok(true);
            }
        }
    }
}

fn is_nul(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

fn read_up_to(reader: &mut impl Read, mut bytes: &mut [u8]) -> io::Result<usize> {
    let wanted = bytes.len();
    while !bytes.is_empty() {
        match reader.read(bytes) {
            Ok(0) => break,
            Ok(got) => bytes = bytes.get_mut(got..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(wanted - bytes.len())
}

/// How much of a segment is proved to have been on disk, judging by the marks in whatever lies behind `offset`.
///
/// # Errors
/// When the file cannot be read, or more lies behind `offset` than a segment can hold.
pub fn proved_behind(path: &Path, offset: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let behind = file.metadata()?.len().saturating_sub(offset);
    if behind > SEGMENT_BYTES_MAX * 2 {
        return Err(io::Error::other("the segment is larger than any segment"));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(proved_by(&bytes))
}

/// The record that opens a segment, and its frame's header; `None` where the segment does not begin with it.
///
/// # Errors
/// When the file cannot be read.
pub fn opening(dir: &Path, segment: u64) -> io::Result<Option<(Header, SegmentOpened)>> {
    let mut scan = Scan::open(&path_of(dir, segment), None)?;
    let Step::Frame(frame) = scan.step()? else { return Ok(None) };
    Ok(opening_of(&frame, segment).map(|opened| (frame.header, opened)))
}

/// What a frame says as the opening record of this segment, if it is one.
#[must_use]
pub fn opening_of(frame: &Frame<'_>, segment: u64) -> Option<SegmentOpened> {
    let Event::SegmentOpened(opened) = Record::decode(frame.payload).ok()?.event else { return None };
    let starts_log = opened.sealed.is_none() == (frame.header.previous == GENESIS);
    let follows = opened.sealed.as_ref().is_none_or(|sealed| sealed.last == frame.header.previous);
    (opened.segment == segment && starts_log && follows).then_some(*opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u64, previous: Digest) -> (Vec<u8>, Digest) {
        let payload = [b'p'; 40];
        let header = Header::seal(40, sequence, 0, previous, Digest::of(&payload));
        ([header.to_bytes().as_slice(), &payload].concat(), header.hash)
    }

    /// A reader holds NUL that it read ahead while the writer puts a frame there: that is the end for now, not damage.
    #[test]
    fn a_frame_written_while_its_room_is_read_is_no_damage() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("segment");
        let (first, hash) = frame(1, GENESIS);
        // More room than a reader takes at once, so that it comes back for the rest.
        let room = vec![0; 256 * 1024];
        std::fs::write(&path, [first.as_slice(), &room].concat()).expect("written");
        let mut scan = Scan::open(&path, None).expect("opens");
        assert!(matches!(scan.step().expect("reads"), Step::Frame(_)));
        let file = File::options().write(true).open(&path).expect("opens");
        let (second, _) = frame(2, hash);
        let at = u64::try_from(first.len()).expect("small");
        file.write_all_at(&second.repeat(1000), at).expect("written");
        assert!(matches!(scan.step().expect("reads"), Step::End));
        // The same bytes with the header still NUL are damage: something was written behind it and it was not.
        file.write_all_at(&[0; HEADER_BYTES], at).expect("written");
        let mut scan = Scan::open(&path, None).expect("opens");
        assert!(matches!(scan.step().expect("reads"), Step::Frame(_)));
        assert!(matches!(scan.step().expect("reads"), Step::Damage { .. }));
    }
}
