//! The first paper's protocol: which refusals bend when an everyday object is put into the scene.

pub mod rates;
