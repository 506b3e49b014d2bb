//! Configuration in two stages: [`fragment`]s as written, [`settings`] as validated. Nothing is ignored: an unknown key,
//! an unreadable or world-writable file, or a value out of range stops the start.

pub mod fragment;
pub mod settings;

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Largest configuration, constitution or calibration file read, in bytes.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a configuration does not stand. Each line says what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Anyone could have written the file.
    #[error("{path} is writable by everyone; run `chmod o-w {path}`")]
    WorldWritable {
        /// The file.
        path: PathBuf,
    },
    /// What is there is no file: a pipe, a device or a folder, which could stall the start or never end.
    #[error("{path} is not a regular file")]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// The file is larger than any configuration.
    #[error("{path} has {bytes} bytes; at most {FILE_BYTES_MAX} are read")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The text is not TOML, or holds a key nobody knows.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        message: String,
    },
    /// A value is out of its range.
    #[error("{key} = {value} is out of range: {range}")]
    Range {
        /// The key, dotted.
        key: &'static str,
        /// What was written.
        value: String,
        /// What is accepted.
        range: String,
    },
}

/// Reads a file that decides what the guard does: bounded, and refused when anyone may write it.
///
/// # Errors
/// When it is not a regular file, cannot be read, is too large, is not UTF-8, or is writable by everyone.
pub fn read_trusted(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let file = open_trusted(path)?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), bytes });
    }
    // The file may grow while it is read.
    std::io::read_to_string(file.take(FILE_BYTES_MAX)).map_err(failed)
}

/// Opens a file that decides what the guard does, or is run by it.
///
/// # Errors
/// When it is not a regular file, cannot be opened, or is writable by everyone.
pub fn open_trusted(path: &Path) -> Result<File, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    // Opening a pipe would wait for somebody who writes into it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(ConfigError::NotAFile { path: path.to_owned() });
    }
    refuse_world_writable(path, &metadata)?;
    Ok(file)
}

/// Refuses what everyone may write.
///
/// # Errors
/// [`ConfigError::WorldWritable`].
pub(crate) fn refuse_world_writable(path: &Path, metadata: &Metadata) -> Result<(), ConfigError> {
    if metadata.mode() & 0o002 != 0 {
        return Err(ConfigError::WorldWritable { path: path.to_owned() });
    }
    Ok(())
}
