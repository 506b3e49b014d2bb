//! Taking an image out of the file descriptor a client passed: a sealed memfd, or nothing.
//!
//! Only a sealed memfd cannot change between the moment it is judged and the moment its digest is taken, cannot make
//! a read wait (as a pipe or a network file would), and cannot shrink under the reader. Everything else is refused by
//! name. The bytes are copied out with `pread`, which leaves the client's file offset alone; mapping them would save
//! that copy at the price of `unsafe`.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fstat};
use rustix::io::{Errno, pread};

use crate::decision::Failure;
use crate::triple::{Part, TripleError};

/// The seals an image must carry: its content, and its size in both directions, can never change again.
pub const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Why a file descriptor is not an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemfdError {
    /// It is something other than a file in memory.
    #[error("the image must be a sealed memfd, not a {0}")]
    Kind(&'static str),
    /// It could still change.
    #[error("the image's memfd lacks the seals {0}")]
    Unsealed(&'static str),
    /// It has nothing in it, or more than an image may have.
    #[error(transparent)]
    Size(#[from] TripleError),
    /// The client passed a descriptor that cannot be read.
    #[error("the image's memfd cannot be read: {0}")]
    Unreadable(Errno),
}

impl From<MemfdError> for Failure {
    fn from(error: MemfdError) -> Self {
        match error {
            MemfdError::Size(size) => Self::Triple(size),
            MemfdError::Kind(_) | MemfdError::Unsealed(_) | MemfdError::Unreadable(_) => Self::Input(error.to_string()),
        }
    }
}

/// Copies the image out of a sealed memfd of at most `bytes_max` bytes. Nothing is read before seals and size hold.
///
/// # Errors
/// When the descriptor is anything but a memfd with all of [`SEALS`], is empty, is larger than `bytes_max`, or was
/// opened without leave to read.
pub fn read(memfd: impl AsFd, bytes_max: usize) -> Result<Arc<[u8]>, MemfdError> {
    let bytes = admit(&memfd, bytes_max)?;
    // Straight into the shared allocation: a `Vec` would have to be copied once more.
    let mut image: Arc<[u8]> = std::iter::repeat_n(0, bytes).collect();
    let buffer = Arc::get_mut(&mut image).ok_or(MemfdError::Unreadable(Errno::BUSY))?;
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let offset = u64::try_from(filled).map_err(|_| MemfdError::Unreadable(Errno::OVERFLOW))?;
        match pread(&memfd, rest, offset) {
            Ok(0) => return Err(MemfdError::Unreadable(Errno::NODATA)),
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(MemfdError::Unreadable(errno)),
        }
    }
    Ok(image)
}

/// The size of a sealed memfd within its limit.
fn admit(memfd: impl AsFd, bytes_max: usize) -> Result<usize, MemfdError> {
    let kind = FileType::from_raw_mode(fstat(&memfd).map_err(MemfdError::Unreadable)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(MemfdError::Kind(kind_name(kind)));
    }
    // An O_PATH descriptor names a file without leave to read it, and knows nothing of seals.
    if fcntl_getfl(&memfd).map_err(MemfdError::Unreadable)?.contains(OFlags::PATH) {
        return Err(MemfdError::Unreadable(Errno::BADF));
    }
    let seals = fcntl_get_seals(&memfd).map_err(|_| MemfdError::Kind("file on disk"))?;
    if !seals.contains(SEALS) {
        return Err(MemfdError::Unsealed(missing(seals)));
    }
    // Only now: before the seals held, the size could still change, and what was added since would go unread.
    let size = fstat(&memfd).map_err(MemfdError::Unreadable)?.st_size;
    let bytes = usize::try_from(size).unwrap_or(usize::MAX);
    match bytes {
        0 => Err(TripleError::Empty(Part::Image).into()),
        bytes if bytes > bytes_max => Err(TripleError::TooLarge { part: Part::Image, bytes, bytes_max }.into()),
        bytes => Ok(bytes),
    }
}

fn missing(seals: SealFlags) -> &'static str {
    let lacks = |seal| !seals.contains(seal);
    match (lacks(SealFlags::WRITE), lacks(SealFlags::SHRINK), lacks(SealFlags::GROW)) {
        (true, true, true) => "write, shrink and grow",
        (true, true, false) => "write and shrink",
        (true, false, true) => "write and grow",
        (true, false, false) => "write",
        (false, true, true) => "shrink and grow",
        (false, true, false) => "shrink",
        (false, false, _) => "grow",
    }
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "kernel object",
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, Mode, fcntl_add_seals, memfd_create, open};

    use super::*;

    const BYTES_MAX: usize = 1000;

    fn memfd(bytes: &[u8], seals: SealFlags) -> OwnedFd {
        let mut file =
            File::from(memfd_create("image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd"));
        file.write_all(bytes).expect("write");
        fcntl_add_seals(&file, seals).expect("seal");
        file.into()
    }

    #[test]
    fn a_sealed_memfd_is_read_whole_wherever_its_offset_stands() {
        let bytes: Vec<u8> = (0..=255).cycle().take(BYTES_MAX).collect();
        let mut file = File::from(memfd(&bytes, SEALS | SealFlags::SEAL));
        file.seek(SeekFrom::Start(77)).expect("seek");
        assert_eq!(*read(&file, BYTES_MAX).expect("an image"), *bytes);
        assert_eq!(file.stream_position().expect("offset"), 77, "the client's offset is its own");
    }

    #[test]
    fn size_holds_at_its_edge_and_one_past_it() {
        assert!(read(memfd(&[7; BYTES_MAX], SEALS), BYTES_MAX).is_ok());
        let past = read(memfd(&[7; BYTES_MAX + 1], SEALS), BYTES_MAX);
        let too_large = TripleError::TooLarge { part: Part::Image, bytes: BYTES_MAX + 1, bytes_max: BYTES_MAX };
        assert_eq!(past, Err(MemfdError::Size(too_large)));
        assert_eq!(read(memfd(&[], SEALS), BYTES_MAX), Err(MemfdError::Size(TripleError::Empty(Part::Image))));
    }

    #[test]
    fn each_missing_seal_is_named() {
        let rows = [
            (SealFlags::empty(), "write, shrink and grow"),
            (SealFlags::WRITE, "shrink and grow"),
            (SealFlags::SHRINK, "write and grow"),
            (SealFlags::GROW, "write and shrink"),
            (SealFlags::WRITE | SealFlags::SHRINK, "grow"),
            (SealFlags::WRITE | SealFlags::GROW, "shrink"),
            (SealFlags::SHRINK | SealFlags::GROW, "write"),
        ];
        for (seals, lacking) in rows {
            assert_eq!(read(memfd(b"image", seals), BYTES_MAX), Err(MemfdError::Unsealed(lacking)));
        }
        // A promise about the future alone leaves the mappings that exist already.
        let future = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW;
        assert_eq!(read(memfd(b"image", future), BYTES_MAX), Err(MemfdError::Unsealed("write")));
    }

    #[test]
    fn nothing_but_a_memfd_is_read() {
        let (pipe, _writer) = std::io::pipe().expect("pipe");
        assert_eq!(read(&pipe, BYTES_MAX), Err(MemfdError::Kind("pipe")));
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("pair");
        assert_eq!(read(&socket, BYTES_MAX), Err(MemfdError::Kind("socket")));
        let open_read = |path: &str| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("open");
        assert_eq!(read(open_read("/"), BYTES_MAX), Err(MemfdError::Kind("directory")));
        assert_eq!(read(open_read("/dev/zero"), BYTES_MAX), Err(MemfdError::Kind("character device")));
        // procfs knows no seals; a file in a temporary filesystem may, and then lacks them.
        assert_eq!(read(open_read("/proc/self/maps"), BYTES_MAX), Err(MemfdError::Kind("file on disk")));
        let file = tempfile::tempfile().expect("file");
        assert!(matches!(read(&file, BYTES_MAX), Err(MemfdError::Kind("file on disk") | MemfdError::Unsealed(_))));
        let path = open("/proc/self/maps", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("open");
        assert_eq!(read(path, BYTES_MAX), Err(MemfdError::Unreadable(Errno::BADF)));
    }

    #[test]
    fn a_sealed_memfd_without_leave_to_read_is_refused() {
        use std::os::fd::AsRawFd;
        let sealed = memfd(b"image", SEALS);
        // Opening for writing fails once the write seal is on, so open first and seal after.
        let unsealed = memfd(b"image", SealFlags::empty());
        let path = format!("/proc/self/fd/{}", unsealed.as_raw_fd());
        let write_only = open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).expect("open");
        fcntl_add_seals(&unsealed, SEALS).expect("seal");
        assert_eq!(read(&write_only, BYTES_MAX), Err(MemfdError::Unreadable(Errno::BADF)));
        assert!(read(&sealed, BYTES_MAX).is_ok());
    }
}
