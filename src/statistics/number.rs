//! Numbers whose range is in their type: finite, positive, share. A file that holds anything else does not parse.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number outside its range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{value} is not {range}")]
pub struct NotInRange {
    /// What was given.
    pub value: f64,
    /// What was asked for, in words.
    pub range: &'static str,
}

macro_rules! ranged {
    ($(#[$doc:meta])* $name:ident, $range:literal, |$value:ident| $holds:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// The number with this value.
            ///
            /// # Errors
            /// When the value is out of range, NaN among that.
            pub fn new($value: f64) -> Result<Self, NotInRange> {
                if $holds { Ok(Self($value)) } else { Err(NotInRange { value: $value, range: $range }) }
            }

            /// The value.
            #[must_use]
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = NotInRange;

            fn try_from(value: f64) -> Result<Self, NotInRange> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(number: $name) -> Self {
                number.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

ranged!(
    /// A number that is neither NaN nor infinite.
    Finite, "a finite number", |value| value.is_finite()
);
ranged!(
    /// A finite number above zero.
    Positive, "a finite number above 0", |value| value.is_finite() && value > 0.0
);
ranged!(
    /// A probability, rate or fraction: 0 to 1, both ends included.
    Share, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value)
);

impl Share {
    /// None of it.
    pub const ZERO: Self = Self(0.0);
    /// All of it.
    pub const ONE: Self = Self(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_holds_at_its_edge_and_one_past_it() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Finite::new(value).is_err() && Positive::new(value).is_err() && Share::new(value).is_err());
        }
        assert!(Finite::new(f64::MAX).is_ok());
        assert!(Positive::new(0.0).is_err() && Positive::new(f64::MIN_POSITIVE).is_ok());
        assert!(Share::new(0.0).is_ok() && Share::new(1.0).is_ok());
        assert!(Share::new(-f64::EPSILON).is_err() && Share::new(1.0 + f64::EPSILON).is_err());
    }
}
