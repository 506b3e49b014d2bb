//! What a check with the compact proxy costs: start, margin alone, the whole with 20 copies, the share of it spent
//! inside ONNX Runtime, memory, and the same work by a straightforward Python program. Ratios of one run; nothing is
//! asserted. Needs `make models`.
//!
//!     cargo bench --bench compact

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a benchmark prints, reads the clock, and may fall over"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use steadfast::assessment::{Clock, Deadline, Forgetful};
use steadfast::config::settings::Settings;
use steadfast::load;
use steadfast::triple::Triple;

const CHECKS: u32 = 20;

struct Stopwatch(Instant);

impl Clock for Stopwatch {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("build/models/compact/verdict_head.json").exists() {
        println!("skipped: the models are not installed; run `make models`");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "constitution = \"{0}/config/constitution.toml\"\ncalibration = \"{0}/config/calibration.toml\"\n\
         [proxy]\nmodels = \"{0}/build/models/compact\"\nonnxruntime = \"{0}/build/lib/libonnxruntime.so.1.31.1\"\n",
        root.display()
    );
    let path = folder.path().join("steadfast.toml");
    std::fs::write(&path, config).expect("written");
    let settings = Settings::read(&path).expect("valid");

    let start = Instant::now();
    let rules = load::rules(&settings).expect("rules");
    let (mut assessor, _) =
        load::assessor(load::compact(&settings).expect("a proxy"), rules, &settings).expect("bound");
    let loading = start.elapsed();

    let photo = std::fs::read(root.join("tests/data/coffee.png")).expect("readable");
    let clock = Stopwatch(Instant::now());
    let (mut margins, mut wholes) = (Vec::new(), Vec::new());
    let mut inside = Duration::ZERO;
    for check in 0..=CHECKS {
        // A new triple each time: another seed, other noise, nothing remembered from before.
        let plan = format!("1. Grasp the cup by its handle\n2. Carry it to place {check}\n3. Put it down");
        let triple = Triple::new("Bring me the cup.".to_owned(), photo.clone(), plan).expect("a triple");
        let before = assessor.proxy().engine_time();
        let end = clock.now() + Duration::from_secs(60);
        let assessment = assessor.assess(&triple, &mut Forgetful, &clock, &Deadline::new(&clock, end));
        assert!(assessment.readings().is_some(), "{:?}", assessment.decision);
        // The first check warms caches up.
        if check > 0 {
            inside += assessor.proxy().engine_time() - before;
            margins.push(assessment.evidence.timings.decode + assessment.evidence.timings.margin);
            wholes.push(assessment.evidence.timings.total);
        }
    }
    let total: Duration = wholes.iter().sum();
    let whole = p50(&mut wholes);
    println!("compact proxy, {} threads, p50 of {CHECKS} checks", settings.threads);
    println!("  loading to a warm constitution    {:8.0} ms", ms(loading));
    println!("  image and margin alone            {:8.0} ms", ms(p50(&mut margins)));
    println!("  whole check with 20 copies        {:8.0} ms", ms(whole));
    let outside = 1.0 - inside.as_secs_f64() / total.as_secs_f64();
    println!("  time outside ONNX Runtime         {:8.1} %", outside * 100.0);
    println!("  resident memory, peak             {:8} MB", peak_mb());
    twin(root, whole);
}

fn twin(root: &Path, whole: Duration) {
    let python = root.join("build/venv/bin/python");
    let script = root.join("benches/python_twin.py");
    let mut twin = Command::new(python);
    twin.arg(script).args(["--checks", "1", "--models"]).arg(root.join("build/models/compact"));
    twin.arg("--head").arg(root.join("models/verdict_head.json"));
    twin.arg("--image").arg(root.join("tests/data/coffee.png"));
    let output = twin.arg("--constitution").arg(root.join("config/constitution.toml")).output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            let said = serde_json::from_str::<serde_json::Value>(said.trim());
            let seconds = said.ok().and_then(|said| said.get("seconds_p50")?.as_f64());
            match seconds {
                Some(seconds) => {
                    let ratio = seconds / whole.as_secs_f64();
                    println!(
                        "  the same in Python                {:8.0} ms  {ratio:.1} × the whole check",
                        seconds * 1e3
                    );
                }
                None => println!("  the Python twin printed no time"),
            }
        }
        Ok(output) => println!("  the Python twin failed: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("  the Python twin cannot run: {error}"),
    }
}

fn p50(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1000
}
