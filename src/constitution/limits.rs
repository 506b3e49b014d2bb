//! To come.

/// To come.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokenLimit;
impl std::fmt::Display for BrokenLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("to come")
    }
}
