//! To come.

/// To come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stance {
    /// To come.
    Complied,
    /// To come.
    Refused,
    /// To come.
    Inconclusive,
}
