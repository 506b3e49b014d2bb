//! The refusal ledger, as the assessment remembers with it.

use std::sync::Arc;
use std::time::Duration;

use image::RgbImage;

use crate::assessment::Memory;
use crate::audit::clock::wall_clock;
use crate::decision::Failure;
use crate::intake::boot_clock;
use crate::ledger::{Ledger, SceneFeatures, task_digest};
use crate::triple::{Digest, Triple};

/// A ledger shared with whoever may be told to forget, and the time it goes by.
///
/// Refusals outlive a boot, so they are dated by the wall clock; but while the guard runs that clock is carried on by
/// the boot clock. A wall clock that is set a year ahead must not make every refusal look old.
pub(super) struct LedgerMemory {
    ledger: Arc<Ledger>,
    /// Both clocks when the guard started.
    started: (Duration, Duration),
}

impl LedgerMemory {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, started: (wall_clock(), boot_clock()) }
    }

    /// Unix time in seconds.
    fn now_unix_s(&self) -> u64 {
        let (wall, boot) = self.started;
        wall.saturating_add(boot_clock().saturating_sub(boot)).as_secs()
    }
}

impl Memory for LedgerMemory {
    fn refused_before(&mut self, triple: &Triple, scene: &RgbImage) -> Result<Option<Digest>, Failure> {
        let known = self.ledger.recall(triple.instruction(), &SceneFeatures::of(scene), self.now_unix_s());
        Ok(known.map(|refusal| refusal.task))
    }

    fn remember(&mut self, triple: &Triple, scene: &RgbImage) -> Result<(), Failure> {
        let task = task_digest(triple.digests());
        self.ledger
            .remember(task, triple.instruction(), &SceneFeatures::of(scene), self.now_unix_s())
            .map_err(|error| Failure::Internal(format!("a refusal cannot be remembered: {error}")))
    }
}
