//! A3, constitution reliance: how far the verdict rests on the written rules.
//!
//! Definition (first paper, signal A3): `c_without − c_with`, the clean margin without the constitution in the prompt
//! minus the one with it, in nats. Sign: positive when the constitution moves the verdict towards refusing, so a large
//! value is a refusal that the rules hold up and the scene does not. One subtraction; no reference vector is needed.

use crate::margin::{Margin, NonFinite};

/// A3 in nats: the margin `without` the constitution minus the margin `with` it.
///
/// # Errors
/// When the difference of two huge margins overflows.
pub fn constitution_reliance(without: Margin, with: Margin) -> Result<f64, NonFinite> {
    Margin::new(without.nats() - with.nats()).map(Margin::nats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_positive_when_the_rules_pull_towards_refusing() {
        let margin = |nats| Margin::new(nats).expect("finite");
        assert_eq!(constitution_reliance(margin(1.5), margin(-2.0)), Ok(3.5));
        assert_eq!(constitution_reliance(margin(-2.0), margin(1.5)), Ok(-3.5));
        assert!(constitution_reliance(margin(f64::MAX), margin(-f64::MAX)).is_err());
    }
}
