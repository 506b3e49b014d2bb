//! Steadfast answers one question on the robot, offline and in bounded time: **may this plan run?**
//!
//! A planner's output is intercepted as a [`triple::Triple`] of instruction, image and plan. A local proxy re-judges
//! it against a written constitution, the spread of its verdict margin is measured, and [`decision`] answers
//! *permit*, *veto* or *refusal*. The modules below stand in the order the data moves; `tests/architecture.rs`
//! holds who may import whom.
//!
//! # Seven invariants
//!
//! 1. Only [`decision`] makes a permit. It is a must-use type that carries the triple's digest and the readings,
//!    never a bool, never a default, never deserialised.
//! 2. Every failure has a veto reason. There is no path from an error to a permit.
//! 3. A permit names the digest of the triple it judged, an audience, a nonce and an expiry on the boot clock.
//! 4. No answer leaves before its record is stored: "received" is written before the work, "decided" after. One
//!    without the other means a crash and is reported at the next start.
//! 5. Same bytes, seed, models, constitution and calibration give the same decision; the seed is derived from the
//!    triple's digest.
//! 6. Every input, queue, thread pool and file has a named bound.
//! 7. Absent from the daemon by design: internet, downloads, rewriting plans, learning while guarding.

// Vocabulary: what everything else speaks of.
pub mod constitution;
pub mod margin;
pub mod statistics;
pub mod triple;

// Judgement: pure functions; no clock, async, file, environment or unseeded randomness.
pub mod calibration;
pub mod decision;
pub mod plan;
pub mod scene;
pub mod signals;

// Adapters: one foreign engine per file.
pub mod audit;
pub mod config;
pub mod ledger;
pub mod permit;
pub mod proxy;
mod store;

// Sequence: the one path a triple takes, on the robot and offline alike.
pub mod answer;
pub mod assessment;

// Edges.
#[cfg(all(feature = "bus", feature = "onnx", feature = "tools"))]
pub mod cli;
#[cfg(all(feature = "bus", feature = "onnx"))]
pub mod daemon;
#[cfg(feature = "bus")]
pub mod intake;
#[cfg(feature = "onnx")]
pub mod load;
#[cfg(feature = "tools")]
pub mod offline;
