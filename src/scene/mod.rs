//! The image half of a triple: strict, bounded decoding, resizing to the proxy's working size, and the seeded
//! perturbations behind the spread.

pub mod decode;
pub mod perturb;
pub mod resize;

mod jpeg;
mod jpeg_scan;
mod png;
