//! Opens the small embedded databases behind the refusal ledger and the nonce store, so that a power cut at any
//! moment, the first included, leaves one that opens.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use redb::{Builder, Database};

/// Memory a database may keep pages in, in bytes.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused an operation on a file or directory.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database failed: damaged, full, or open in another process.
    #[error("database: {0}")]
    Database(#[from] redb::Error),
}

/// Opens `directory/name`, making the directory (mode 0700) and the database where they are missing.
///
/// The engine cannot open a file whose initialisation was cut short, so a new one is made under another name and
/// renamed when whole.
pub(crate) fn open(directory: &Path, name: &str) -> Result<Database, StoreError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::File { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
    let path = directory.join(name);
    if !path.try_exists().map_err(failed(&path))? {
        let second = directory.join(format!(".{name}.new"));
        match std::fs::remove_file(&second) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::File { path: second, source });
            }
            Ok(()) | Err(_) => {}
        }
        builder().create(&second).and_then(Database::close).map_err(redb::Error::from)?;
        std::fs::rename(&second, &path).map_err(failed(&path))?;
        File::open(directory).and_then(|handle| handle.sync_all()).map_err(failed(directory))?;
    }
    Ok(builder().open(&path).map_err(redb::Error::from)?)
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}
