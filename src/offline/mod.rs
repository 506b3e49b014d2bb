//! Offline tools: provisioning, and the same signals over many tasks.

pub mod assess;
pub mod baseline;
pub mod bench;
pub mod calibrate;
pub mod datasets;
pub mod endpoint;
pub mod eyes;
pub mod guard;
pub mod insert;
pub mod measure;
pub mod metrics;
pub mod models;
pub mod narrated;
pub mod rationale;
pub mod report;
pub mod verdict_text;
