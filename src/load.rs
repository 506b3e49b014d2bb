//! From validated settings to an assessor: what the daemon reads at its start and at a reload, and every tool beside it.

use anyhow::Context as _;

use crate::assessment::Assessor;
use crate::calibration::Calibration;
use crate::config::settings::Settings;
use crate::config::{open_trusted, read_trusted};
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

/// Loads the compact proxy as configured.
///
/// # Errors
/// When a model is missing or does not load.
pub fn compact(settings: &Settings) -> anyhow::Result<Compact> {
    Ok(Compact::load(&engine(settings)?, &settings.models)?)
}

/// Binds proxy, constitution and calibration together.
///
/// # Errors
/// When they do not belong together.
pub fn assessor<P: Proxy>(proxy: P, rules: Loaded, settings: &Settings) -> anyhow::Result<(Assessor<P>, Digest)> {
    let Loaded { constitution, calibration, calibration_digest } = rules;
    Ok((Assessor::new(proxy, constitution, calibration, settings.tier)?, calibration_digest))
}
