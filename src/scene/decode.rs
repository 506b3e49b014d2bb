//! To come.

/// To come.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("to come")]
pub struct ImageError;
