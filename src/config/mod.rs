//! Configuration in two stages: [`fragment`]s as written, [`settings`] as validated. Nothing is ignored: an unknown key,
//! an unreadable or world-writable file, or a value out of range stops the start.

pub mod fragment;
pub mod settings;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

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
/// When the file cannot be read, is too large, is not UTF-8, or is writable by everyone.
pub fn read_trusted(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & 0o002 != 0 {
        return Err(ConfigError::WorldWritable { path: path.to_owned() });
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), bytes: metadata.len() });
    }
    std::io::read_to_string(file).map_err(failed)
}
