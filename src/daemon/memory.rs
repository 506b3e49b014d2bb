//! The refusal ledger, as the assessment remembers with it.

use std::sync::Arc;

use image::RgbImage;
use rustix::time::{ClockId, clock_gettime};

use crate::assessment::Memory;
use crate::decision::Failure;
use crate::ledger::{Ledger, SceneFeatures, task_digest};
use crate::triple::{Digest, Triple};

/// A ledger shared with whoever may be told to forget.
pub(super) struct LedgerMemory(pub(super) Arc<Ledger>);

impl Memory for LedgerMemory {
    fn refused_before(&mut self, triple: &Triple, scene: &RgbImage) -> Result<Option<Digest>, Failure> {
        let known = self.0.recall(triple.instruction(), &SceneFeatures::of(scene), now_unix_s());
        Ok(known.map(|refusal| refusal.task))
    }

    fn remember(&mut self, triple: &Triple, scene: &RgbImage) -> Result<(), Failure> {
        let task = task_digest(triple.digests());
        self.0
            .remember(task, triple.instruction(), &SceneFeatures::of(scene), now_unix_s())
            .map_err(|error| Failure::Internal(format!("a refusal cannot be remembered: {error}")))
    }
}

/// The wall clock, because refusals outlive a boot; a step of it moves nothing but when they are forgotten.
fn now_unix_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}
