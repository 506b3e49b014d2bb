//! Writing down: what was asked, what was answered and why, so that it can be read next week.

pub mod chain;
pub mod journal;
pub mod recent;
pub mod record;
