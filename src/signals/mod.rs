//! The signals A1 to A5, one file each; each names its section of the paper, its formula, its sign and the vector that checks it.

pub mod constitution_reliance;
pub mod decoding_instability;
pub mod malleability;
pub mod perturbation_spread;
pub mod trace_ambiguity;
