//! The executor's memory of used permits: survives restarts and power cuts, and stays small.
//!
//! A nonce is durable before [`NonceStore::spend`] says yes. Entries go when their permits have expired; the expiry of
//! the latest one that went is kept as a mark, and permits that expire no later than the mark are refused: should the
//! wall clock step back, nothing that was forgotten can be used again.

use std::path::Path;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, TableDefinition};

use super::claims::Nonce;
use super::verify::LEEWAY_S_MAX;
use crate::store::{self, StoreError};

/// Most nonces remembered at once; while all of them are alive, further permits are refused.
pub const NONCES_MAX: u64 = 65_536;
/// Most expired entries dropped per permit, so that no single one waits for a great clean-up.
const DROPS_MAX: usize = 64;

const FILE: &str = "nonces.redb";
/// Nonce → expiry, Unix time in seconds.
const SPENT: TableDefinition<'_, [u8; 16], u64> = TableDefinition::new("spent");
/// The same the other way round, to find what has expired.
const BY_EXPIRY: TableDefinition<'_, (u64, [u8; 16]), ()> = TableDefinition::new("by-expiry");
/// One value: the latest expiry among the entries dropped.
const FORGOTTEN: TableDefinition<'_, (), u64> = TableDefinition::new("forgotten-until");

/// Why a nonce was not spent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpendError {
    /// Used before.
    #[error("the permit was used before")]
    Spent,
    /// It expires no later than entries already dropped, so nobody can tell whether it was used: the clock stepped
    /// back.
    #[error("permits that expire up to {forgotten_until_unix_s} are forgotten; the clock has stepped back")]
    Forgotten {
        /// The mark, Unix time in seconds.
        forgotten_until_unix_s: u64,
    },
    /// Every place is taken by a permit that is still alive.
    #[error("{NONCES_MAX} permits are remembered, which is the limit")]
    Full,
    /// The nonce could not be written down.
    #[error("the nonce cannot be stored: {0}")]
    Store(String),
}

/// Remembers which permits were used.
pub trait NonceStore {
    /// Spends a nonce. Of any number of calls with the same nonce, at most one succeeds, and it is durable by then.
    ///
    /// # Errors
    /// When it was spent before, or cannot be remembered.
    fn spend(&self, nonce: Nonce, expires_unix_s: u64, now_unix_s: u64) -> Result<(), SpendError>;
}

/// A nonce store in a directory.
#[derive(Debug)]
pub struct NonceFile {
    database: Database,
    entries_max: u64,
}

impl NonceFile {
    /// Opens the store, making it where there is none. One process at a time: a second one is refused.
    ///
    /// # Errors
    /// When the disk fails, the file is damaged, or another process has it open.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: store::open(directory, FILE)?, entries_max: NONCES_MAX })
    }

    /// How many nonces are remembered.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn len(&self) -> Result<u64, StoreError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        match read.open_table(SPENT) {
            Ok(table) => Ok(table.len().map_err(redb::Error::from)?),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(0),
            Err(error) => Err(StoreError::Database(error.into())),
        }
    }

    /// Whether nothing is remembered.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
    }

    /// Writes are serialised by the database, so check and insert are one step; the commit is durable when it returns.
    fn spend_once(
        &self,
        nonce: Nonce,
        expires_unix_s: u64,
        now_unix_s: u64,
    ) -> Result<Result<(), SpendError>, redb::Error> {
        let write = self.database.begin_write()?;
        {
            let mut spent = write.open_table(SPENT)?;
            let mut by_expiry = write.open_table(BY_EXPIRY)?;
            let mut forgotten = write.open_table(FORGOTTEN)?;
            let forgotten_until_unix_s = forgotten.get(())?.map_or(0, |mark| mark.value());
            if spent.get(nonce.0)?.is_some() {
                return Ok(Err(SpendError::Spent));
            }
            if expires_unix_s <= forgotten_until_unix_s {
                return Ok(Err(SpendError::Forgotten { forgotten_until_unix_s }));
            }
            let mut expired = Vec::new();
            for entry in by_expiry.iter()?.take(DROPS_MAX) {
                let key = entry?.0.value();
                if key.0.saturating_add(LEEWAY_S_MAX) > now_unix_s {
                    break;
                }
                expired.push(key);
            }
            for key in &expired {
                by_expiry.remove(key)?;
                spent.remove(key.1)?;
            }
            if let Some(&(latest, _)) = expired.last() {
                forgotten.insert((), latest.max(forgotten_until_unix_s))?;
            }
            if spent.len()? >= self.entries_max {
                return Ok(Err(SpendError::Full));
            }
            spent.insert(nonce.0, expires_unix_s)?;
            by_expiry.insert((expires_unix_s, nonce.0), ())?;
        }
        write.commit()?;
        Ok(Ok(()))
    }
}

impl NonceStore for NonceFile {
    fn spend(&self, nonce: Nonce, expires_unix_s: u64, now_unix_s: u64) -> Result<(), SpendError> {
        self.spend_once(nonce, expires_unix_s, now_unix_s)
            .unwrap_or_else(|error| Err(SpendError::Store(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_refuses_until_something_has_expired() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = NonceFile { entries_max: 2, ..NonceFile::open(directory.path()).expect("opens") };
        assert_eq!(store.spend(Nonce([1; 16]), 100, 50), Ok(()));
        assert_eq!(store.spend(Nonce([2; 16]), 200, 50), Ok(()));
        assert_eq!(store.spend(Nonce([3; 16]), 200, 50), Err(SpendError::Full));
        assert_eq!(store.spend(Nonce([3; 16]), 200, 100 + LEEWAY_S_MAX), Ok(()));
        assert_eq!(store.len().expect("readable"), 2);
    }
}
