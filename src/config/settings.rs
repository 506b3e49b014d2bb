//! The configuration as validated: every value there, in its range, with the unit in its name.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::audit::chain::Policy;
use crate::audit::evidence::EVIDENCE_BYTES_MAX;
use crate::config::ConfigError;
use crate::config::fragment::{Fragment, Mode, ProxyKind};
use crate::decision::Tier;
use crate::ledger;
use crate::permit::keys::OVERLAP_DEFAULT;
use crate::proxy::Provider;
use crate::proxy::decoding::TRACE_TOKENS_MAX;

/// Everything the daemon is told. The defaults are an installed system's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// Whether answers bind.
    pub mode: Mode,
    /// The constitution's file.
    pub constitution: PathBuf,
    /// The calibration's file.
    pub calibration: PathBuf,
    /// Which proxy family judges.
    pub proxy: ProxyKind,
    /// The folder of its models.
    pub models: PathBuf,
    /// The ONNX Runtime library.
    pub onnxruntime: PathBuf,
    /// Threads of the inference pool, 1 to 64.
    pub threads: usize,
    /// Execution providers in order of preference.
    pub providers: Vec<Provider>,
    /// Whether a provider that cannot run may be passed over.
    pub allow_fallback: bool,
    /// Where TensorRT keeps the engines it has built; `None` builds them anew at each start.
    pub engine_cache: Option<PathBuf>,
    /// Which signals are asked for.
    pub tier: Tier,
    /// Longest trace, in tokens, where the tier reads traces.
    pub trace_tokens_max: usize,
    /// Whether copies are judged no further once the answer can only be a veto.
    pub early_veto: bool,
    /// What a vision-language model's folder leaves open.
    #[cfg(feature = "onnx")]
    pub vlm: crate::proxy::vlm::Options,
    /// The bus to serve on; `None` is the system bus.
    pub bus_address: Option<String>,
    /// Deadline of a check that names none.
    pub deadline_default: Duration,
    /// Longest deadline a client may name.
    pub deadline_max: Duration,
    /// Checks that may wait or run at once, 1 to 1024.
    pub queue_checks_max: usize,
    /// Checks that one client may have waiting or running at once.
    pub client_checks_max: usize,
    /// Checks that one client may ask for per second in the long run.
    pub client_checks_per_second_max: u32,
    /// Checks that one client may ask for at once after a pause.
    pub client_checks_burst_max: u32,
    /// Oldest image accepted where the client stamps it.
    pub image_age_max: Duration,
    /// Whether a check whose image has no stamp is vetoed.
    pub image_stamp_required: bool,
    /// Where the audit log lies.
    pub audit_folder: PathBuf,
    /// What a stored record survives.
    pub audit_policy: Policy,
    /// Whether instruction, plan and image are left out of the records.
    pub audit_redact: bool,
    /// Largest log kept, in bytes.
    pub audit_keep_bytes_max: u64,
    /// Oldest segment kept.
    pub audit_keep_max: Duration,
    /// Largest evidence kept, in bytes; 0 where redaction keeps none.
    pub evidence_bytes_max: u64,
    /// Where the keys lie.
    pub keys: PathBuf,
    /// The issuer's name in every permit.
    pub issuer: String,
    /// How long a permit holds.
    pub permit_lifetime: Duration,
    /// How long a retired key counts for permits it signed before; 0 for a key that may be stolen.
    pub key_overlap: Duration,
    /// Where the refusal ledger lies.
    pub ledger_folder: PathBuf,
    /// How long a refusal is remembered.
    pub ledger_keep_max: Duration,
    /// Refusals remembered at most.
    pub ledger_entries_max: usize,
}

/// A key's accepted range.
struct Range<T> {
    key: &'static str,
    low: T,
    high: T,
}

impl<T: PartialOrd + std::fmt::Display> Range<T> {
    fn check(&self, value: T) -> Result<T, ConfigError> {
        if value < self.low || value > self.high {
            let range = format!("{} to {}", self.low, self.high);
            return Err(ConfigError::Range { key: self.key, value: value.to_string(), range });
        }
        Ok(value)
    }
}

const DAY_S: u64 = 24 * 60 * 60;

impl Settings {
    /// Validates what was written; what was not takes its default.
    ///
    /// # Errors
    /// At the first value out of its range.
    pub fn from_fragment(written: Fragment) -> Result<Self, ConfigError> {
        let Fragment { mode, constitution, calibration, proxy, bus, limits, audit, permit, ledger } = written;
        let path = |written: Option<PathBuf>, default: &str| written.unwrap_or_else(|| PathBuf::from(default));
        let millis = |key, low, high, value: u32| {
            Range { key, low, high }.check(value).map(|ms| Duration::from_millis(u64::from(ms)))
        };
        let days = |key, high, value: u32| {
            Range { key, low: 1, high }.check(value).map(|days| Duration::from_secs(u64::from(days) * DAY_S))
        };
        let deadline_ms_max = limits.deadline_ms_max.unwrap_or(30_000);
        let queue_checks_max = limits.queue_checks_max.unwrap_or(16);
        let providers = proxy.providers.unwrap_or_else(|| vec![Provider::Cpu]);
        if providers.is_empty() {
            let range = "at least one of tensorrt, cuda, cpu".to_owned();
            return Err(ConfigError::Range { key: "proxy.providers", value: "[]".to_owned(), range });
        }
        let trace_tokens_max = Range { key: "proxy.trace_tokens_max", low: 1, high: TRACE_TOKENS_MAX }
            .check(proxy.trace_tokens_max.unwrap_or(TRACE_TOKENS_MAX))?;
        let issuer = permit.issuer.unwrap_or_else(|| "steadfast".to_owned());
        Range { key: "permit.issuer (bytes)", low: 1, high: 64 }.check(issuer.len())?;
        let audit_redact = audit.redact.unwrap_or(false);
        let evidence_bytes_max = Range { key: "audit.evidence_bytes_max", low: 0, high: EVIDENCE_BYTES_MAX }
            .check(audit.evidence_bytes_max.unwrap_or(256 << 20))?;
        Ok(Self {
            mode: mode.unwrap_or(Mode::Enforce),
            constitution: path(constitution, "/etc/steadfast/constitution.toml"),
            calibration: path(calibration, "/etc/steadfast/calibration.toml"),
            proxy: proxy.kind.unwrap_or(ProxyKind::Compact),
            models: path(proxy.models, "/usr/share/steadfast/models/compact"),
            onnxruntime: path(proxy.onnxruntime, "/usr/lib/steadfast/libonnxruntime.so"),
            threads: Range { key: "proxy.threads", low: 1, high: 64 }.check(proxy.threads.unwrap_or(2))?,
            providers,
            allow_fallback: proxy.allow_fallback.unwrap_or(false),
            engine_cache: proxy.engine_cache,
            tier: proxy.tier.unwrap_or(Tier::MarginOnly),
            trace_tokens_max,
            early_veto: proxy.early_veto.unwrap_or(false),
            #[cfg(feature = "onnx")]
            vlm: crate::proxy::vlm::Options {
                precisions: proxy.precision,
                image_splitting: proxy.image_splitting,
                trace_tokens_max: Some(trace_tokens_max),
            },
            bus_address: bus.address,
            deadline_default: millis(
                "limits.deadline_ms_default",
                1,
                deadline_ms_max,
                limits.deadline_ms_default.unwrap_or(5_000),
            )?,
            deadline_max: millis("limits.deadline_ms_max", 1, 600_000, deadline_ms_max)?,
            queue_checks_max: Range { key: "limits.queue_checks_max", low: 1, high: 1024 }.check(queue_checks_max)?,
            client_checks_max: Range { key: "limits.client_checks_max", low: 1, high: queue_checks_max }
                .check(limits.client_checks_max.unwrap_or(4.min(queue_checks_max)))?,
            client_checks_per_second_max: Range { key: "limits.client_checks_per_second_max", low: 1, high: 10_000 }
                .check(limits.client_checks_per_second_max.unwrap_or(50))?,
            client_checks_burst_max: Range { key: "limits.client_checks_burst_max", low: 1, high: 10_000 }
                .check(limits.client_checks_burst_max.unwrap_or(25))?,
            image_stamp_required: limits.image_stamp_required.unwrap_or(false),
            image_age_max: Duration::from_millis(
                Range { key: "limits.image_age_ms_max", low: 1, high: 600_000 }
                    .check(limits.image_age_ms_max.unwrap_or(2_000))?,
            ),
            audit_folder: path(audit.folder, "/var/lib/steadfast/audit"),
            audit_policy: audit.policy.unwrap_or(Policy::Durable),
            audit_redact,
            audit_keep_bytes_max: Range { key: "audit.keep_bytes_max", low: 16 << 20, high: 1 << 50 }
                .check(audit.keep_bytes_max.unwrap_or(1 << 30))?,
            audit_keep_max: days("audit.keep_days_max", 36_500, audit.keep_days_max.unwrap_or(365))?,
            evidence_bytes_max: if audit_redact { 0 } else { evidence_bytes_max },
            keys: path(permit.keys, "/var/lib/steadfast/keys"),
            issuer,
            permit_lifetime: millis("permit.lifetime_ms", 100, 600_000, permit.lifetime_ms.unwrap_or(10_000))?,
            key_overlap: Range { key: "permit.key_overlap_s", low: 0, high: 3_600 }
                .check(permit.key_overlap_s.map_or(OVERLAP_DEFAULT.as_secs(), u64::from))
                .map(Duration::from_secs)?,
            ledger_folder: path(ledger.folder, "/var/lib/steadfast/ledger"),
            ledger_keep_max: days("ledger.keep_days_max", 3_650, ledger.keep_days_max.unwrap_or(30))?,
            ledger_entries_max: Range { key: "ledger.entries_max", low: 1, high: ledger::ENTRIES_MAX }
                .check(ledger.entries_max.unwrap_or(4096))?,
        })
    }

    /// Reads and validates the configuration at this path, with its drop-ins.
    ///
    /// # Errors
    /// When a file does not stand or a value is out of its range.
    pub fn read(path: &std::path::Path) -> Result<Self, ConfigError> {
        Self::from_fragment(Fragment::read(path)?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn settings(text: &str) -> Result<Settings, ConfigError> {
        Settings::from_fragment(Fragment::parse(Path::new("steadfast.toml"), text)?)
    }

    #[test]
    fn each_range_holds_at_its_edge_and_one_past_it() {
        for (section, key, edge, past) in [
            ("proxy", "threads", 64_u64, 65_u64),
            ("proxy", "threads", 1, 0),
            ("proxy", "trace_tokens_max", 2048, 2049),
            ("proxy", "trace_tokens_max", 1, 0),
            ("limits", "deadline_ms_max", 600_000, 600_001),
            ("limits", "deadline_ms_default", 30_000, 30_001),
            ("limits", "queue_checks_max", 1024, 1025),
            ("limits", "client_checks_max", 16, 17),
            ("limits", "client_checks_per_second_max", 10_000, 10_001),
            ("limits", "client_checks_burst_max", 1, 0),
            ("limits", "image_age_ms_max", 600_000, 600_001),
            ("audit", "keep_bytes_max", 16 << 20, (16 << 20) - 1),
            ("audit", "keep_days_max", 36_500, 36_501),
            ("audit", "evidence_bytes_max", 64 << 30, (64 << 30) + 1),
            ("permit", "lifetime_ms", 600_000, 600_001),
            ("permit", "lifetime_ms", 100, 99),
            ("permit", "key_overlap_s", 3_600, 3_601),
            ("ledger", "keep_days_max", 1, 0),
            ("ledger", "keep_days_max", 3_650, 3_651),
            ("ledger", "entries_max", 65_536, 65_537),
        ] {
            let text = |value| format!("[{section}]\n{key} = {value}\n");
            assert!(settings(&text(edge)).is_ok(), "{section}.{key} = {edge}");
            let error = settings(&text(past)).expect_err("past the edge").to_string();
            assert!(error.starts_with(&format!("{section}.{key} = {past}")), "{error}");
        }
    }

    #[test]
    fn redaction_keeps_no_evidence() {
        let kept = |text| settings(text).expect("valid").evidence_bytes_max;
        assert_eq!(kept("[audit]\nevidence_bytes_max = 1000\n"), 1000);
        assert_eq!(kept("[audit]\nevidence_bytes_max = 1000\nredact = true\n"), 0);
    }

    #[test]
    fn unknown_keys_are_refused_with_their_line() {
        let error = settings("mode = \"enforce\"\n[audit]\npolcy = \"durable\"\n").expect_err("a typo").to_string();
        assert!(error.contains("line 3") && error.contains("polcy"), "{error}");
        assert!(settings("fail_open = true").is_err());
    }

    #[test]
    fn later_fragments_win_key_by_key() {
        let parse = |text| Fragment::parse(Path::new("x.toml"), text).expect("valid");
        let whole = parse("mode = \"shadow\"\n[proxy]\nthreads = 3\n").with(parse("[proxy]\nallow_fallback = true\n"));
        let settings = Settings::from_fragment(whole).expect("valid");
        assert_eq!((settings.mode, settings.threads, settings.allow_fallback), (Mode::Shadow, 3, true));
    }

    #[test]
    fn a_file_that_anyone_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("steadfast.toml");
        std::fs::write(&path, "").expect("written");
        assert!(Settings::read(&path).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("mode");
        assert!(matches!(Settings::read(&path), Err(ConfigError::WorldWritable { .. })));
        std::fs::remove_file(&path).expect("removed");
        assert!(matches!(Settings::read(&path), Err(ConfigError::Read { .. })));
    }

    #[test]
    fn drop_ins_are_read_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("steadfast.toml");
        let drop_ins = folder.path().join("steadfast.toml.d");
        std::fs::create_dir(&drop_ins).expect("folder");
        for (file, threads) in [(path.clone(), 1), (drop_ins.join("20-b.toml"), 3), (drop_ins.join("10-a.toml"), 2)] {
            std::fs::write(file, format!("[proxy]\nthreads = {threads}\n")).expect("written");
        }
        assert_eq!(Settings::read(&path).expect("valid").threads, 3);
    }
}
