//! A first inference before anything is judged: a proxy that is blind, that wavers between two runs of the same
//! question, or that answers otherwise than it did where it was set up, must not start.
//!
//! Half-precision kernels and execution providers fail by answering, not by stopping: with NaN, zeros, or numbers that
//! look like any other. The picture and the question are built in, so that a margin noted on one machine
//! ([`Golden`]) holds the next one to it.

use image::RgbImage;
use serde::{Deserialize, Serialize};

use super::{Fault, Proxy, Question};
use crate::margin::Margin;
use crate::triple::Digest;

/// The picture's width and height, in pixels, where the proxy names no working size: what most cameras on robots give.
pub const PICTURE_PX: (u32, u32) = (640, 480);
/// The question.
pub const QUESTION: Question<'static> = Question {
    instruction: "bring the cup from the table to the kitchen",
    plan: "1. go to the table\n2. take the cup\n3. go to the kitchen\n4. put the cup down",
};
/// The file in a folder of models that holds a [`Golden`].
pub const GOLDEN_FILE: &str = "steadfast_golden.json";
/// How far a margin may lie from the one noted, in nats, where the file does not say. Different processors move 4-bit
/// models by 4e-5; a wrong kernel moves the margin by far more than this.
pub const TOLERANCE_NATS: f64 = 0.05;

/// What a proxy answered to the built-in question where it was set up and known to work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// The proxy it was noted for; another one's margin says nothing.
    pub proxy: Digest,
    /// Its margin, in nats.
    pub margin: f64,
    /// How far from it a margin may lie, in nats.
    pub tolerance: f64,
}

/// Why a proxy must not start.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SelfTestError {
    /// It failed outright.
    #[error("the first inference failed: {0}")]
    Fault(#[from] Fault),
    /// Two pictures that share nothing look alike to it.
    #[error("the first inference failed: {}", Fault::Blind)]
    Blind,
    /// The same question twice, two answers.
    #[error(
        "the same question had the margin {first} and then {second}; this execution provider does not repeat itself"
    )]
    Unsteady {
        /// The first answer, in nats.
        first: f64,
        /// The second, in nats.
        second: f64,
    },
    /// The note is for other files.
    #[error(
        "{GOLDEN_FILE} was noted for the proxy {noted}, but this is {found}; note it again where it is known to work"
    )]
    OtherProxy {
        /// The proxy it was noted for.
        noted: Digest,
        /// The one in use.
        found: Digest,
    },
    /// The answer is not the one noted.
    #[error(
        "the margin is {found:.4}, but {GOLDEN_FILE} says {noted:.4} ± {tolerance}: this machine computes otherwise"
    )]
    Differs {
        /// The margin noted, in nats.
        noted: f64,
        /// The margin here, in nats.
        found: f64,
        /// The difference allowed, in nats.
        tolerance: f64,
    },
}

/// Asks the built-in question twice and gives the margin.
///
/// # Errors
/// When the proxy fails, does not see, does not repeat itself, or answers otherwise than noted.
pub fn self_test<P: Proxy>(proxy: &mut P, golden: Option<&Golden>) -> Result<Margin, SelfTestError> {
    let (width, height) = proxy.card().working_size.unwrap_or(PICTURE_PX);
    let (seen, other) = (picture(width, height, false), picture(width, height, true));
    let (seen, other) = (proxy.encode(&seen)?, proxy.encode(&other)?);
    if proxy.fingerprint(&seen) == proxy.fingerprint(&other) {
        return Err(SelfTestError::Blind);
    }
    let posed = proxy.pose(None, &QUESTION)?;
    let first = proxy.margin(&posed, &seen, None)?;
    // Read anew: a proxy may remember what it answered to the same reading.
    let posed = proxy.pose(None, &QUESTION)?;
    let second = proxy.margin(&posed, &seen, None)?;
    if first.nats().to_bits() != second.nats().to_bits() {
        return Err(SelfTestError::Unsteady { first: first.nats(), second: second.nats() });
    }
    if let Some(&Golden { proxy: noted, margin, tolerance }) = golden {
        let found = proxy.card().digest;
        if noted != found {
            return Err(SelfTestError::OtherProxy { noted, found });
        }
        // True of no NaN: what is no number is refused too.
        let within = (first.nats() - margin).abs() <= tolerance;
        if !within {
            return Err(SelfTestError::Differs { noted: margin, found: first.nats(), tolerance });
        }
    }
    Ok(first)
}

/// A picture with something in every part of it, or its negative.
#[must_use]
pub fn picture(width: u32, height: u32, negative: bool) -> RgbImage {
    let flip = if negative { u8::MAX } else { 0 };
    RgbImage::from_fn(width, height, |x, y| {
        let sample = |value: u32| u8::try_from(value % 256).unwrap_or_default() ^ flip;
        image::Rgb([sample(x), sample(y), sample(7 * x + 13 * y)])
    })
}
