//! The image half of a triple: strict, bounded decoding and the seeded perturbations behind the spread.

pub mod decode;
pub mod perturb;
