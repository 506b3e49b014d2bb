//! The signals A1 to A5, one file each; each names its section of the paper, its formula, its sign and the vector that checks it.
//!
//! Every signal is a finite number or an error. A composite is fitted over named [`Feature`]s, so that a reading can
//! neither be left out nor take another's place.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub mod constitution_reliance;
pub mod decoding_instability;
pub mod malleability;
pub mod perturbation_spread;
pub mod trace_ambiguity;

/// What a composite may be fitted over. The names are those of calibration files and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// A1: phrases that leave open which object is meant, per 100 words.
    ObjectAmbiguity,
    /// A1: conditional phrases per 100 words.
    Conditional,
    /// A1: hedges per 100 words.
    Hedge,
    /// A1, recorded beside the three: contrast and negation per 100 words.
    Contrast,
    /// A1, recorded beside the three: mentions of safety per 100 words.
    SafetyMention,
    /// A1: length of the trace in words.
    TraceWords,
    /// A2: standard deviation of the margin over the perturbed copies, in nats.
    PerturbationSpread,
    /// A2 over A2 + |margin|, 0 to 1.
    RelativeSpread,
    /// Share of the perturbed copies whose verdict differs from the clean image's.
    FlipShare,
    /// A3: margin without the constitution − margin with it, in nats.
    ConstitutionReliance,
    /// A2 after a trace: standard deviation over the perturbed copies of the margin that follows the clean image's trace,
    /// in nats.
    ForcedSpread,
    /// A2 with reasoning: the same where each copy has a trace of its own, in nats.
    TracedSpread,
    /// A4: standard deviation of the margin over sampled traces, in nats.
    DecodingInstability,
    /// Size of the clean margin as calibrated, |log-odds of refusing|, in nats: how far the verdict is from turning. The
    /// raw margin turns elsewhere than at zero, and its size foretold wrong verdicts less well (docs/benchmarks.md).
    MarginSize,
}

impl Feature {
    /// Every feature, in the order of declaration.
    pub const ALL: [Self; 14] = [
        Self::ObjectAmbiguity,
        Self::Conditional,
        Self::Hedge,
        Self::Contrast,
        Self::SafetyMention,
        Self::TraceWords,
        Self::PerturbationSpread,
        Self::RelativeSpread,
        Self::FlipShare,
        Self::ConstitutionReliance,
        Self::ForcedSpread,
        Self::TracedSpread,
        Self::DecodingInstability,
        Self::MarginSize,
    ];

    /// A5's six as the first paper defines them: A1's three rates, A2, A3, A4.
    pub const FULL: [Self; 6] = [
        Self::ObjectAmbiguity,
        Self::Conditional,
        Self::Hedge,
        Self::PerturbationSpread,
        Self::ConstitutionReliance,
        Self::DecodingInstability,
    ];

    /// The name used in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ObjectAmbiguity => "object-ambiguity",
            Self::Conditional => "conditional",
            Self::Hedge => "hedge",
            Self::Contrast => "contrast",
            Self::SafetyMention => "safety-mention",
            Self::TraceWords => "trace-words",
            Self::PerturbationSpread => "perturbation-spread",
            Self::RelativeSpread => "relative-spread",
            Self::FlipShare => "flip-share",
            Self::ConstitutionReliance => "constitution-reliance",
            Self::ForcedSpread => "forced-spread",
            Self::TracedSpread => "traced-spread",
            Self::DecodingInstability => "decoding-instability",
            Self::MarginSize => "margin-size",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The readings a composite is scored on. A feature that was not measured is absent, never zero.
pub type Features = BTreeMap<Feature, f64>;
