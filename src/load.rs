//! From validated settings to an assessor: what the daemon reads at its start and at a reload, and every tool beside it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::assessment::{Assessor, Clock, Deadline, Forgetful};
use crate::calibration::Calibration;
use crate::config::settings::Settings;
use crate::config::{ConfigError, open_trusted, read_trusted, refuse_world_writable};
use crate::constitution::Constitution;
use crate::decision::{Decision, Reason, Tier};
use crate::proxy::Proxy;
use crate::proxy::compact::Compact;
use crate::proxy::onnx::{Engine, EngineCache, EngineSettings};
use crate::proxy::self_test::{GOLDEN_FILE, Golden, PICTURE_PX, QUESTION, SelfTestError, picture, self_test};
use crate::proxy::vlm::{Options, Vlm};
use crate::triple::{Digest, Triple};

/// Where an NVIDIA driver says its version, on desktops and on Jetsons.
const DRIVER_FILES: [&str; 3] = ["/sys/module/nvidia/version", "/proc/driver/nvidia/version", "/etc/nv_tegra_release"];
/// Checks that may be tried at the start before a deadline counts as too short; the first one warms every cache.
const REHEARSALS: u32 = 2;

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
        engine_cache: engine_cache(settings)?,
    })?)
}

/// Built engines are code: they belong to one driver, and nobody else may write them.
fn engine_cache(settings: &Settings) -> Result<Option<EngineCache>, ConfigError> {
    let Some(folder) = settings.engine_cache.clone() else { return Ok(None) };
    if let Ok(metadata) = std::fs::metadata(&folder) {
        refuse_world_writable(&folder, &metadata)?;
    }
    let said = DRIVER_FILES.iter().find_map(|file| std::fs::read(file).ok());
    let driver = said.map_or_else(|| "none".to_owned(), |said| Digest::of(&said).to_string());
    Ok(Some(EngineCache { folder, driver }))
}

/// The folder of models, once it and every file in it are beyond the reach of just anyone. Only the digests tie their
/// content to the calibration, and those are taken when a file is read.
///
/// # Errors
/// When the folder cannot be read, or anyone may write it or a file in it.
pub fn models(settings: &Settings) -> Result<&Path, ConfigError> {
    let folder = settings.models.as_path();
    refuse_open(folder)?;
    // Public exports keep the models themselves one folder down.
    let inner = folder.join("onnx");
    if inner.is_dir() {
        refuse_open(&inner)?;
    }
    Ok(folder)
}

/// Refuses a folder that anyone may write, or a file in it.
fn refuse_open(folder: &Path) -> Result<(), ConfigError> {
    let failed = |source| ConfigError::Read { path: folder.to_owned(), source };
    refuse_world_writable(folder, &std::fs::metadata(folder).map_err(failed)?)?;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let metadata = std::fs::metadata(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        refuse_world_writable(&path, &metadata)?;
    }
    Ok(())
}

/// Loads the compact proxy as configured, with what writes its traces where the tier reads them, and has it answer once.
///
/// # Errors
/// When a model is missing, does not load, or does not answer as it must.
pub fn compact(settings: &Settings) -> anyhow::Result<Compact> {
    let folder = models(settings)?;
    let engine = engine(settings)?;
    let proxy = match settings.tier {
        Tier::MarginOnly => Compact::load(&engine, folder)?,
        Tier::TraceOnce | Tier::Full => Compact::load_with_traces(&engine, folder, settings.trace_tokens_max)?,
    };
    tested(proxy, folder)
}

/// Loads the vision-language model as configured, and has it answer once.
///
/// # Errors
/// When memory does not hold it, a file is missing, unknown or does not load, or it does not answer as it must.
pub fn vlm(settings: &Settings) -> anyhow::Result<Vlm> {
    let folder = models(settings)?;
    hold_memory(folder, &settings.vlm)?;
    tested(Vlm::load_with(&engine(settings)?, folder, &settings.vlm)?, folder)
}

/// Refuses a model that memory does not hold before it is loaded: the kernel would end whoever is largest.
///
/// # Errors
/// When a file is missing, or memory does not hold them.
pub fn hold_memory(folder: &Path, options: &Options) -> anyhow::Result<()> {
    let needed = Vlm::memory_bytes(folder, options)?;
    if let Some(free) = memory_available().filter(|&free| needed > free) {
        let (needed, free) = (needed >> 20, free >> 20);
        anyhow::bail!(
            "{} needs about {needed} MiB of memory and {free} MiB are free; load smaller files with proxy.precision \
             (such as decoder = \"q4\"), or bring a smaller model",
            folder.display()
        );
    }
    Ok(())
}

/// Holds a proxy to the built-in question, and to the margin noted in its folder where one is.
fn tested<P: Proxy>(mut proxy: P, folder: &Path) -> anyhow::Result<P> {
    let path = folder.join(GOLDEN_FILE);
    let golden: Option<Golden> = match path.exists() {
        true => Some(serde_json::from_str(&read_trusted(&path)?).with_context(|| path.display().to_string())?),
        false => None,
    };
    self_test(&mut proxy, golden.as_ref())
        .map_err(|error: SelfTestError| anyhow::anyhow!("{}: {error}", folder.display()))?;
    Ok(proxy)
}

/// Judges the built-in triple and gives the time that took; refuses a deadline that does not hold it.
///
/// # Errors
/// When the answer is a fault, or comes after the deadline.
pub fn rehearse<P: Proxy>(
    assessor: &mut Assessor<P>,
    clock: &dyn Clock,
    settings: &Settings,
) -> anyhow::Result<Duration> {
    let within = settings.deadline_default;
    // The longest a check can take is what has to fit.
    assessor.set_early_veto(false);
    let (width, height) = PICTURE_PX;
    let mut image = std::io::Cursor::new(Vec::new());
    picture(width, height, false).write_to(&mut image, image::ImageFormat::Png)?;
    let triple = Triple::new(QUESTION.instruction.to_owned(), image.into_inner(), QUESTION.plan.to_owned())?;
    let mut tries = 0;
    loop {
        tries += 1;
        let deadline = Deadline::new(clock, clock.now() + within);
        let assessment = assessor.assess(&triple, &mut Forgetful, clock, &deadline);
        match assessment.decision {
            Decision::Veto(veto) if veto.reason == Reason::Deadline && tries < REHEARSALS => {}
            Decision::Veto(veto) if veto.reason == Reason::Deadline => anyhow::bail!(
                "a check by {} is not done within limits.deadline_ms_default = {} on this machine; raise that limit, \
                 load smaller files with proxy.precision, set proxy.image_splitting = false where the model cuts \
                 images into tiles, or bring a smaller model (`steadfast model inspect` tells the time)",
                assessor.card().name,
                within.as_millis()
            ),
            Decision::Veto(veto) if veto.readings.is_none() => {
                anyhow::bail!("the first check ended in the veto {}: {}", veto.reason, veto.detail)
            }
            Decision::Veto(_) | Decision::Permit(_) | Decision::Refusal(_) => {
                assessor.set_early_veto(settings.early_veto);
                return Ok(assessment.evidence.timings.total);
            }
        }
    }
}

/// Memory that this process may still take, in bytes: the system's, or what its control group leaves where that is
/// less. `None` where the kernel does not say.
#[must_use]
pub fn memory_available() -> Option<u64> {
    let said = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = said.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let system = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024);
    Some(group_memory().map_or(system, |group| group.min(system)))
}

/// What the control group leaves; `None` where it sets no bound.
fn group_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(own);
    let bytes = |file: &str| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    Some(bytes("memory.max")?.saturating_sub(bytes("memory.current")?))
}

/// Binds proxy, constitution and calibration together.
///
/// # Errors
/// When they do not belong together.
pub fn assessor<P: Proxy>(proxy: P, rules: Loaded, settings: &Settings) -> anyhow::Result<(Assessor<P>, Digest)> {
    let Loaded { constitution, calibration, calibration_digest } = rules;
    let mut assessor = Assessor::new(proxy, constitution, calibration, settings.tier)?;
    assessor.set_early_veto(settings.early_veto);
    Ok((assessor, calibration_digest))
}
