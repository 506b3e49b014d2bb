//! From validated settings to an assessor: what the daemon reads at its start and at a reload, and every tool beside it.

use std::path::Path;

use anyhow::Context as _;

use crate::assessment::Assessor;
use crate::calibration::Calibration;
use crate::config::settings::Settings;
use crate::config::{ConfigError, open_trusted, read_trusted, refuse_world_writable};
use crate::constitution::Constitution;
use crate::proxy::Proxy;
use crate::proxy::compact::Compact;
use crate::proxy::onnx::{Engine, EngineSettings};
use crate::triple::Digest;

/// A constitution and the calibration that belongs to it.
#[derive(Debug)]
pub struct Loaded {
    /// The constitution.
    pub constitution: Constitution,
    /// The calibration.
    pub calibration: Calibration,
    /// SHA-256 of the calibration's file.
    pub calibration_digest: Digest,
}

/// Reads constitution and calibration.
///
/// # Errors
/// When a file does not stand; the message names file, line and what to change.
pub fn rules(settings: &Settings) -> anyhow::Result<Loaded> {
    let text = read_trusted(&settings.constitution)?;
    let constitution = Constitution::parse(&text)
        .map_err(|errors| anyhow::anyhow!("{}:\n{errors}", settings.constitution.display()))?;
    let text = read_trusted(&settings.calibration)?;
    let calibration = Calibration::parse(&text).with_context(|| settings.calibration.display().to_string())?;
    Ok(Loaded { constitution, calibration, calibration_digest: Digest::of(text.as_bytes()) })
}

/// Loads the inference library as configured.
///
/// # Errors
/// When the library is missing or too old.
pub fn engine(settings: &Settings) -> anyhow::Result<Engine> {
    // The library's code runs in this process. A missing one is the loader's to report, in the words of a user.
    if settings.onnxruntime.exists() {
        open_trusted(&settings.onnxruntime)?;
    }
    Ok(Engine::load(EngineSettings {
        library: settings.onnxruntime.clone(),
        threads: settings.threads,
        providers: settings.providers.clone(),
        allow_fallback: settings.allow_fallback,
        engine_cache: None,
    })?)
}

/// The folder of models, once it and every file in it are beyond the reach of just anyone. Only the digests tie their
/// content to the calibration, and those are taken when a file is read.
///
/// # Errors
/// When the folder cannot be read, or anyone may write it or a file in it.
pub fn models(settings: &Settings) -> Result<&Path, ConfigError> {
    let folder = settings.models.as_path();
    let failed = |source| ConfigError::Read { path: folder.to_owned(), source };
    refuse_world_writable(folder, &std::fs::metadata(folder).map_err(failed)?)?;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let metadata = std::fs::metadata(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        refuse_world_writable(&path, &metadata)?;
    }
    Ok(folder)
}

/// Loads the compact proxy as configured.
///
/// # Errors
/// When a model is missing or does not load.
pub fn compact(settings: &Settings) -> anyhow::Result<Compact> {
    Ok(Compact::load(&engine(settings)?, models(settings)?)?)
}

/// Binds proxy, constitution and calibration together.
///
/// # Errors
/// When they do not belong together.
pub fn assessor<P: Proxy>(proxy: P, rules: Loaded, settings: &Settings) -> anyhow::Result<(Assessor<P>, Digest)> {
    let Loaded { constitution, calibration, calibration_digest } = rules;
    Ok((Assessor::new(proxy, constitution, calibration, settings.tier)?, calibration_digest))
}
