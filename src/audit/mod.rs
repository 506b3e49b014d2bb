//! Writing down: what was asked, what was answered and why, so that it can be read next week.
//!
//! [`record`] says what is written, [`chain`] stores it in order and for good, [`verify`] tells whether anything was
//! changed since, [`read`] finds it again. [`recent`] answers questions about the last checks from memory, [`journal`]
//! tells journald about vetoes.

pub mod chain;
pub mod clock;
pub mod evidence;
pub mod export;
pub mod frame;
pub mod journal;
pub mod mcap;
mod protobuf;
pub mod read;
pub mod recent;
pub mod record;
mod recovery;
pub mod retention;
pub mod segment;
pub mod verify;
pub mod writer;

pub use chain::{AuditError, AuditLog};
pub use clock::Clock;
pub use recovery::Tail;
