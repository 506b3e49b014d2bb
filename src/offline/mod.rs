//! Offline tools: provisioning, and the same signals over many tasks.

pub mod models;
pub mod verdict_text;
