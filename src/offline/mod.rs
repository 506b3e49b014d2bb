//! Offline tools: provisioning, and the same signals over many tasks.

pub mod assess;
pub mod baseline;
pub mod bench;
pub mod calibrate;
pub mod datasets;
pub mod endpoint;
pub mod eyes;
pub mod guard;
pub mod insert;
pub mod latent;
pub mod measure;
pub mod metrics;
pub mod models;
pub mod narrated;
pub mod rationale;
pub mod report;
mod spill;
pub mod verdict_text;

/// Writes a file so that it is there whole or not at all, whoever else writes it.
///
/// # Errors
/// When a folder or file cannot be written.
fn write_whole(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let mut file = std::fs::File::create(&partial)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&partial, path)
}
