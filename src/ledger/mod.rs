//! Remembered refusals: the planner said no to this task here before.
//!
//! When the planner then complies with the same instruction in a scene that has changed only by everyday objects, light
//! or a small step aside, its refusal has bent, and the decision is a veto, `flipped-refusal`. The ledger keeps hashes
//! of words and coarse gradient directions ([`SceneFeatures`]), no text and no image. A refusal is on disk before
//! [`Ledger::remember`] returns; entries go after their time to live, and the oldest first when there are too many.

mod scene;
mod wording;

use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

pub use self::scene::{SAME_SCENE_MIN, SCENE_BYTES, SceneFeatures};
use self::wording::Wording;
use crate::store::{self, StoreError};
use crate::triple::{Digest, Digests};

/// Most refusals a ledger may be set to remember; each takes about 2.5 KiB of memory and as much on disk.
pub const ENTRIES_MAX: usize = 65_536;
/// Most scenes remembered for one wording; beyond, the one most like the newcomer goes. It bounds what a recall costs.
pub const SCENES_PER_TASK_MAX: usize = 64;
/// Longest time to live a ledger may be set to, in seconds: ten years.
pub const TTL_S_MAX: u64 = 10 * 366 * 24 * 3600;

const FILE: &str = "ledger.redb";

/// Refused at, Unix time in seconds; joined hash; hashes of words; scene.
type Row<'a> = (u64, u64, Vec<u64>, &'a [u8]);

/// By task digest. The number is that of the features' layout: a change of either module above takes a new one.
const REFUSALS: TableDefinition<'_, [u8; 32], Row<'_>> = TableDefinition::new("refusals/1");

/// How much is remembered, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Refusals remembered at once: 1 to [`ENTRIES_MAX`].
    pub entries_max: usize,
    /// How long each is remembered, in seconds: 1 to [`TTL_S_MAX`].
    pub ttl_s: u64,
}

impl Default for Bounds {
    /// 4,096 refusals for 30 days.
    fn default() -> Self {
        Self { entries_max: 4096, ttl_s: 30 * 24 * 3600 }
    }
}

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A bound is out of range.
    #[error("{0:?} is out of range: 1 to {ENTRIES_MAX} entries, 1 to {TTL_S_MAX} s")]
    Bounds(Bounds),
    /// The database cannot be opened, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An entry is not one of ours.
    #[error("the entry of task {0} is damaged")]
    Damaged(Digest),
}

impl<E: Into<redb::Error>> From<E> for LedgerError {
    fn from(error: E) -> Self {
        Self::Store(StoreError::Database(error.into()))
    }
}

/// A refusal that a task was recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Remembered {
    /// The task refused then; what [`Ledger::forget`] takes.
    pub task: Digest,
    /// When it was refused last, Unix time in seconds.
    pub refused_unix_s: u64,
    /// How alike the scenes are, at least [`SAME_SCENE_MIN`].
    pub scene_similarity: f64,
}

/// Names a task: SHA-256 of `steadfast/task/1`, a NUL, and the digests of instruction and image.
#[must_use]
pub fn task_digest(digests: &Digests) -> Digest {
    let mut whole = Sha256::new();
    whole.update(b"steadfast/task/1\0");
    whole.update(digests.instruction.as_bytes());
    whole.update(digests.image.as_bytes());
    Digest::from_bytes(whole.finalize().into())
}

#[derive(Debug, Clone)]
struct Entry {
    task: Digest,
    refused_unix_s: u64,
    wording: Wording,
    scene: SceneFeatures,
}

/// The remembered refusals of one guard.
#[derive(Debug)]
pub struct Ledger {
    database: Database,
    bounds: Bounds,
    /// One writer at a time; readers wait only while a finished write is taken over.
    writing: Mutex<()>,
    entries: RwLock<Vec<Entry>>,
}

impl Ledger {
    /// Opens the ledger in this directory, making it where there is none.
    ///
    /// # Errors
    /// When a bound is out of range, the disk fails, an entry is damaged, or another process has it open.
    pub fn open(directory: &Path, bounds: Bounds) -> Result<Self, LedgerError> {
        if !(1..=ENTRIES_MAX).contains(&bounds.entries_max) || !(1..=TTL_S_MAX).contains(&bounds.ttl_s) {
            return Err(LedgerError::Bounds(bounds));
        }
        let database = store::open(directory, FILE)?;
        let entries = RwLock::new(read_all(&database)?);
        Ok(Self { database, bounds, writing: Mutex::new(()), entries })
    }

    /// Remembers that this task was refused; on disk when it returns. Refused again, it is remembered from now on.
    ///
    /// # Errors
    /// When the disk fails. Nothing has changed then.
    pub fn remember(
        &self,
        task: Digest,
        instruction: &str,
        scene: &SceneFeatures,
        now_unix_s: u64,
    ) -> Result<(), LedgerError> {
        let entry = Entry { task, refused_unix_s: now_unix_s, wording: Wording::of(instruction), scene: scene.clone() };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = self.due(&entry);
        let write = self.database.begin_write()?;
        {
            let mut refusals = write.open_table(REFUSALS)?;
            for task in &gone {
                refusals.remove(task.as_bytes())?;
            }
            let Wording { joined, words } = &entry.wording;
            let scene = entry.scene.to_bytes();
            refusals.insert(task.as_bytes(), (now_unix_s, *joined, words.clone(), scene.as_slice()))?;
        }
        write.commit()?;
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|known| known.task != task && !gone.contains(&known.task));
        entries.push(entry);
        Ok(())
    }

    /// The refusal of the same task in the same scene, the most similar where there are several.
    #[must_use]
    pub fn recall(&self, instruction: &str, scene: &SceneFeatures, now_unix_s: u64) -> Option<Remembered> {
        let wording = Wording::of(instruction);
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .iter()
            .filter(|entry| !self.expired(entry, now_unix_s) && entry.wording.same_task(&wording))
            .map(|entry| Remembered {
                task: entry.task,
                refused_unix_s: entry.refused_unix_s,
                scene_similarity: entry.scene.similarity(scene),
            })
            .filter(|remembered| remembered.scene_similarity >= SAME_SCENE_MIN)
            .max_by(|one, other| one.scene_similarity.total_cmp(&other.scene_similarity))
    }

    /// Forgets a refusal, and with it every other of the same task in the same scene, so that one call settles it. The
    /// number forgotten comes back; it is 0 when the task is not known.
    ///
    /// # Errors
    /// When the disk fails. Nothing has changed then.
    pub fn forget(&self, task: Digest) -> Result<usize, LedgerError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let same: Vec<Digest> = {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            let Some(named) = entries.iter().find(|entry| entry.task == task) else { return Ok(0) };
            let alike =
                |entry: &&Entry| entry.wording.same_task(&named.wording) && entry.scene.same_scene(&named.scene);
            entries.iter().filter(|entry| entry.task == task || alike(entry)).map(|entry| entry.task).collect()
        };
        let write = self.database.begin_write()?;
        {
            let mut refusals = write.open_table(REFUSALS)?;
            for task in &same {
                refusals.remove(task.as_bytes())?;
            }
        }
        write.commit()?;
        self.entries.write().unwrap_or_else(PoisonError::into_inner).retain(|entry| !same.contains(&entry.task));
        Ok(same.len())
    }

    /// Whether a refusal of this very task is held.
    #[must_use]
    pub fn knows(&self, task: Digest) -> bool {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).iter().any(|entry| entry.task == task)
    }

    /// How many refusals are held, expired ones not yet dropped included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn expired(&self, entry: &Entry, now_unix_s: u64) -> bool {
        now_unix_s.saturating_sub(entry.refused_unix_s) >= self.bounds.ttl_s
    }

    /// What has to go before one more is remembered: the expired, the most redundant where one wording has too many
    /// scenes, then the oldest beyond the bound.
    fn due(&self, newcomer: &Entry) -> Vec<Digest> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let others = entries.iter().filter(|entry| entry.task != newcomer.task);
        let (mut gone, mut alive): (Vec<&Entry>, Vec<&Entry>) =
            others.partition(|entry| self.expired(entry, newcomer.refused_unix_s));
        let same: Vec<&Entry> =
            alive.iter().copied().filter(|entry| entry.wording.same_task(&newcomer.wording)).collect();
        if same.len() >= SCENES_PER_TASK_MAX {
            let similarity = |entry: &&Entry| entry.scene.similarity(&newcomer.scene);
            let redundant = same.into_iter().max_by(|one, other| similarity(one).total_cmp(&similarity(other)));
            alive.retain(|entry| redundant.is_none_or(|redundant| redundant.task != entry.task));
            gone.extend(redundant);
        }
        alive.sort_by_key(|entry| entry.refused_unix_s);
        let surplus = (alive.len() + 1).saturating_sub(self.bounds.entries_max);
        gone.extend(alive.into_iter().take(surplus));
        gone.into_iter().map(|entry| entry.task).collect()
    }
}

fn read_all(database: &Database) -> Result<Vec<Entry>, LedgerError> {
    let refusals = match database.begin_read()?.open_table(REFUSALS) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(vec![]),
        opened => opened?,
    };
    let mut entries = vec![];
    for row in refusals.iter()? {
        let (task, refusal) = row?;
        let task = Digest::from_bytes(task.value());
        let (refused_unix_s, joined, words, scene) = refusal.value();
        let scene = SceneFeatures::from_bytes(scene).ok_or(LedgerError::Damaged(task))?;
        entries.push(Entry { task, refused_unix_s, wording: Wording { joined, words }, scene });
    }
    Ok(entries)
}
