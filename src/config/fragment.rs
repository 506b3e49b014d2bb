//! The configuration as written: every key optional, none unknown, later files over earlier ones.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::audit::chain::Policy;
use crate::config::{ConfigError, read_trusted, refuse_world_writable};
use crate::decision::Tier;

/// One file's worth of configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fragment {
    /// `enforce` or `shadow`.
    pub mode: Option<Mode>,
    /// The constitution's file.
    pub constitution: Option<PathBuf>,
    /// The calibration's file.
    pub calibration: Option<PathBuf>,
    /// The proxy and how it runs.
    #[serde(default)]
    pub proxy: Proxy,
    /// The bus.
    #[serde(default)]
    pub bus: Bus,
    /// Bounds on what is admitted.
    #[serde(default)]
    pub limits: Limits,
    /// The audit log.
    #[serde(default)]
    pub audit: Audit,
    /// Permits.
    #[serde(default)]
    pub permit: Permit,
    /// The refusal ledger.
    #[serde(default)]
    pub ledger: Ledger,
}

/// Whether answers bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Answers bind; permits are signed.
    Enforce,
    /// Answers are computed and recorded, marked shadow, and never signed: for trials.
    Shadow,
}

impl Mode {
    /// The stable word, as it is written in files and on the bus.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }

    /// The mode a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Enforce, Self::Shadow].into_iter().find(|mode| mode.word() == word)
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Which proxy family judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyKind {
    /// Detector, tagger and a small language model with a trained verdict head.
    Compact,
    /// A vision-language model's public ONNX export.
    Vlm,
    /// Recorded answers; for tests of everything but judgement.
    #[cfg(feature = "__replay")]
    Recorded,
}

/// `[proxy]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Which family.
    pub kind: Option<ProxyKind>,
    /// The folder of its models.
    pub models: Option<PathBuf>,
    /// The ONNX Runtime library.
    pub onnxruntime: Option<PathBuf>,
    /// Threads of the inference pool.
    pub threads: Option<usize>,
    /// Execution providers in order of preference.
    pub providers: Option<Vec<crate::proxy::Provider>>,
    /// Whether a provider that cannot run may be passed over.
    pub allow_fallback: Option<bool>,
    /// Which signals are asked for.
    pub tier: Option<Tier>,
    /// Longest trace, in tokens.
    pub trace_tokens_max: Option<usize>,
    /// Whether copies are judged no further once the answer can only be a veto.
    pub early_veto: Option<bool>,
    /// Which of a vision-language model's files are loaded.
    #[cfg(feature = "onnx")]
    #[serde(default)]
    pub precision: crate::proxy::vlm::Precisions,
    /// Whether models of the Idefics family cut images into tiles; as the model says where nothing is written.
    pub image_splitting: Option<bool>,
    /// Where TensorRT keeps the engines it has built.
    pub engine_cache: Option<PathBuf>,
}

/// `[bus]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// A D-Bus address; the system bus where none is given.
    pub address: Option<String>,
}

/// `[limits]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Deadline of a check that names none, in milliseconds.
    pub deadline_ms_default: Option<u32>,
    /// Longest deadline a client may name, in milliseconds.
    pub deadline_ms_max: Option<u32>,
    /// Checks that may wait or run at once.
    pub queue_checks_max: Option<usize>,
    /// Checks that one client may have waiting or running at once.
    pub client_checks_max: Option<usize>,
    /// Checks that one client may ask for per second in the long run.
    pub client_checks_per_second_max: Option<u32>,
    /// Checks that one client may ask for at once after a pause.
    pub client_checks_burst_max: Option<u32>,
    /// Whether a check whose image has no stamp is vetoed.
    pub image_stamp_required: Option<bool>,
    /// Oldest image accepted, in milliseconds, where the client stamps it.
    pub image_age_ms_max: Option<u64>,
}

/// `[audit]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// Where the log lies.
    pub folder: Option<PathBuf>,
    /// `durable` or `buffered`.
    pub policy: Option<Policy>,
    /// Whether instruction, plan and image are left out of the records.
    pub redact: Option<bool>,
    /// Largest log kept, in bytes.
    pub keep_bytes_max: Option<u64>,
    /// Oldest segment kept, in days.
    pub keep_days_max: Option<u32>,
    /// Largest evidence kept beside the log, in bytes: vetoed images and what came before them. 0 keeps none.
    pub evidence_bytes_max: Option<u64>,
}

/// `[permit]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permit {
    /// Where the keys lie.
    pub keys: Option<PathBuf>,
    /// The issuer's name in every permit.
    pub issuer: Option<String>,
    /// How long a permit holds, in milliseconds.
    pub lifetime_ms: Option<u32>,
    /// How long a retired key counts for permits it signed before, in seconds.
    pub key_overlap_s: Option<u32>,
}

/// `[ledger]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// Where the ledger lies.
    pub folder: Option<PathBuf>,
    /// How long a refusal is remembered, in days.
    pub keep_days_max: Option<u32>,
    /// Refusals remembered at most.
    pub entries_max: Option<usize>,
}

/// Sets every `Some` of the later one over the earlier one's.
macro_rules! over {
    ($earlier:expr, $later:expr, $($field:ident),+) => { $( if $later.$field.is_some() { $earlier.$field = $later.$field; } )+ };
}

impl Fragment {
    /// Parses one file's text; `path` is for the message.
    ///
    /// # Errors
    /// When it is not TOML, or holds an unknown key or a value of the wrong type.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax { path: path.to_owned(), message: error.to_string() })
    }

    /// Lays a later fragment over this one.
    #[must_use]
    pub fn with(mut self, later: Self) -> Self {
        over!(self, later, mode, constitution, calibration);
        over!(self.proxy, later.proxy, kind, models, onnxruntime, threads, providers, allow_fallback, tier);
        over!(self.proxy, later.proxy, image_splitting, engine_cache, early_veto, trace_tokens_max);
        #[cfg(feature = "onnx")]
        over!(self.proxy.precision, later.proxy.precision, vision, embed, decoder);
        over!(self.bus, later.bus, address);
        over!(self.limits, later.limits, deadline_ms_default, deadline_ms_max, queue_checks_max, client_checks_max);
        over!(self.limits, later.limits, client_checks_per_second_max, client_checks_burst_max);
        over!(self.limits, later.limits, image_age_ms_max, image_stamp_required);
        over!(self.audit, later.audit, folder, policy, redact, keep_bytes_max, keep_days_max, evidence_bytes_max);
        over!(self.permit, later.permit, keys, issuer, lifetime_ms, key_overlap_s);
        over!(self.ledger, later.ledger, folder, keep_days_max, entries_max);
        self
    }

    /// Reads `steadfast.toml` and, over it, every `steadfast.toml.d/*.toml` beside it in the order of their names.
    ///
    /// # Errors
    /// When any of the files does not stand.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let mut whole = Self::read_one(path)?;
        let mut folder = path.as_os_str().to_owned();
        folder.push(".d");
        let folder = PathBuf::from(folder);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(whole),
            Err(source) => return Err(ConfigError::Read { path: folder, source }),
        };
        // Whoever may add a drop-in may say what the guard does.
        let metadata =
            std::fs::metadata(&folder).map_err(|source| ConfigError::Read { path: folder.clone(), source })?;
        refuse_world_writable(&folder, &metadata)?;
        let mut files = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| ConfigError::Read { path: folder, source })?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        for file in files {
            whole = whole.with(Self::read_one(&file)?);
        }
        Ok(whole)
    }

    /// Reads one file; relative paths in it are relative to it, so that a configuration can be moved as a folder.
    fn read_one(path: &Path) -> Result<Self, ConfigError> {
        let mut fragment = Self::parse(path, &read_trusted(path)?)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let paths = [
            &mut fragment.constitution,
            &mut fragment.calibration,
            &mut fragment.proxy.models,
            &mut fragment.proxy.onnxruntime,
            &mut fragment.proxy.engine_cache,
            &mut fragment.audit.folder,
            &mut fragment.permit.keys,
            &mut fragment.ledger.folder,
        ];
        for written in paths.into_iter().flatten() {
            *written = folder.join(&written);
        }
        Ok(fragment)
    }
}
