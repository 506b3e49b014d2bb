//! The first paper's protocol: which refusals bend when an everyday object is put into the scene.

pub mod calls;
pub mod characterise;
mod constraint_judge;
pub mod model;
mod objects;
pub mod protocol;
pub mod rates;
pub mod report;
pub mod run;
pub mod table;
