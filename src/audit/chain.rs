//! To come.

use serde::{Deserialize, Serialize};

/// What a stored record survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Power loss.
    Durable,
    /// The end of the process.
    Buffered,
}
