//! What a vision-language model of SmolVLM-256M's shape costs as the proxy: 20 copies with the constitution's state
//! cached against reading the whole prompt for each, decoding against ONNX Runtime's own step, time outside ONNX
//! Runtime, peak memory, and the same work in Python. Ratios of one run; nothing is asserted.
//!
//!     build/venv/bin/python models/make_bench_vlm.py build/bench/smolvlm-256m
//!     cargo bench --bench vlm
//!
//! Memory is allocated as under the unit, which sets one variable of the C library's.
//! `STEADFAST_BENCH_THREADS` (2) is the number of threads on both sides: one, where other work runs beside it.

#![expect(clippy::disallowed_methods, clippy::expect_used, clippy::print_stdout, reason = "a benchmark")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use steadfast::proxy::onnx::{Engine, EngineSettings};
use steadfast::proxy::vlm::{Options, Vlm};
use steadfast::proxy::{Provider, Proxy as _, Question, Sampling, Unbounded};
use steadfast::scene::perturb;

const COPIES: usize = 20;
const TRACE_TOKENS: usize = 64;
const QUESTION: Question<'static> = Question {
    instruction: "move the towel onto the stove top and wipe the table",
    plan: "1. navigate to the table\n2. grasp the towel\n3. place the towel on the stove top",
};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unit = std::fs::read_to_string(root.join("systemd/steadfastd.service")).expect("the unit");
    let (name, value) = unit
        .lines()
        .find_map(|line| line.strip_prefix("Environment=").and_then(|set| set.split_once('=')))
        .expect("the unit sets the allocator");
    if std::env::var_os(name).is_none() {
        // Read before the first line of any program runs: only a new process has it.
        let status = Command::new(std::env::current_exe().expect("a path")).env(name, value).status();
        std::process::exit(status.expect("runs").code().unwrap_or(1));
    }
    let model = root.join("build/bench/smolvlm-256m");
    let library = std::env::var_os("STEADFAST_ONNXRUNTIME")
        .map_or_else(|| root.join("build/lib/libonnxruntime.so.1.31.1"), PathBuf::from);
    if !model.join("config.json").is_file() || !library.is_file() {
        println!("skipped: no model at {} or no ONNX Runtime at {}", model.display(), library.display());
        return;
    }
    let settings = EngineSettings {
        library,
        threads: threads(),
        providers: vec![Provider::Cpu],
        allow_fallback: false,
        engine_cache: None,
    };
    let engine = Engine::load(settings).expect("the library loads");
    let start = Instant::now();
    let options = Options { image_splitting: Some(false), ..Options::default() };
    let mut vlm = Vlm::load_with(&engine, &model, &options).expect("the model loads");
    let loading = start.elapsed();
    measure(&mut vlm, &model, loading);
}

fn measure(vlm: &mut Vlm, model: &Path, loading: Duration) {
    let constitution = constitution();
    let (prefix, warming) = timed(|| vlm.warm(&constitution).expect("warms"));
    let picture = image::RgbImage::from_fn(640, 480, |x, y| {
        image::Rgb([x % 256, y % 256, (7 * x + 13 * y) % 256].map(|value| u8::try_from(value).expect("below 256")))
    });
    let inside_before = vlm.engine_time();
    let check = Instant::now();
    let posed = vlm.pose(Some(&prefix), &QUESTION).expect("poses");
    let (mut encoding, mut reading) = (Duration::ZERO, Duration::ZERO);
    let mut seen = Vec::new();
    for index in 0..COPIES {
        let copy = perturb::copy(&picture, 7, index);
        let (features, took) = timed(|| vlm.encode(&copy).expect("sees"));
        encoding += took;
        reading += timed(|| vlm.margin(&posed, &features, None).expect("a margin")).1;
        seen.push(features);
    }
    let check = check.elapsed();
    let inside = vlm.engine_time() - inside_before;

    let first = seen.first().expect("there are some");
    // Hot, so that no stop token ends it early.
    let hot = |tokens_max| Sampling { temperature: 50.0, top_p: 1.0, top_k: 0, seed: 1, tokens_max };
    let short = timed(|| vlm.trace(&posed, first, hot(1), &Unbounded).expect("a trace")).1;
    let inside_before = vlm.engine_time();
    let (trace, long) = timed(|| vlm.trace(&posed, first, hot(TRACE_TOKENS), &Unbounded).expect("a trace"));
    let stepping = vlm.engine_time() - inside_before;
    let steps = u32::try_from(trace.tokens.len()).unwrap_or(1).max(2) - 1;
    let step = long.saturating_sub(short) / steps;

    // Before what is only done for comparison.
    let peak = peak_bytes();

    // Three copies suffice for what is the same for each.
    let repeats = seen.get(..3).expect("there are more");
    let whole = timed(|| {
        for features in repeats {
            let prefix = vlm.warm(&constitution).expect("warms");
            let posed = vlm.pose(Some(&prefix), &QUESTION).expect("poses");
            vlm.margin(&posed, features, None).expect("a margin");
        }
    });
    let whole = whole.1 / 3;

    let copies = u32::try_from(COPIES).expect("few");
    println!("SmolVLM-256M's shape, 4 bits, {} threads, one tile an image", threads());
    println!("  the state is appended to {}", if vlm.appends_in_place() { "in place" } else { "by copying" });
    println!("  loading {:.0} ms, the constitution's state {:.0} ms", ms(loading), ms(warming));
    println!("  per copy: encoding {:.1} ms, reading {:.1} ms", ms(encoding / copies), ms(reading / copies));
    println!("  reading the whole prompt instead   {:8.1} ms = {:.1} times", ms(whole), ratio(whole, reading / copies));
    let (with, without) = ((encoding + reading) / copies, encoding / copies + whole);
    println!("  with the encoding on both sides                = {:.1} times", ratio(without, with));
    println!("  time outside ONNX Runtime          {:8.2} % of a check", 100.0 * (1.0 - ratio(inside, check)));
    println!(
        "  a decoding step                    {:8.1} ms, {:.3} of ONNX Runtime's own",
        ms(step),
        ratio(long, stepping)
    );
    memory(model, vlm, peak);
    python(model, reading / copies, encoding / copies, step);
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
}

fn memory(model: &Path, vlm: &Vlm, peak: u64) {
    let files = model.join("onnx").read_dir().expect("listed");
    let bytes: u64 = files.map(|file| file.expect("an entry").metadata().expect("a size").len()).sum();
    let tokens = 1200;
    let state = u64::try_from(tokens * vlm.state_bytes_per_token()).expect("small");
    let share = f64::from(u32::try_from(peak >> 10).expect("fits"))
        / f64::from(u32::try_from((bytes + state) >> 10).expect("fits"));
    println!(
        "  peak memory {} MB = {share:.2} of model and one state of {tokens} tokens ({} MB)",
        peak >> 20,
        (bytes + state) >> 20
    );
}

fn python(model: &Path, reading: Duration, encoding: Duration, step: Duration) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let interpreter =
        std::env::var_os("STEADFAST_BENCH_PYTHON").map_or_else(|| root.join("build/venv/bin/python"), PathBuf::from);
    let script = root.join("models/bench_vlm.py");
    let Ok(output) =
        Command::new(interpreter).arg(script).arg(model).arg(constitution()).arg(threads().to_string()).output()
    else {
        println!("  Python: not there");
        return;
    };
    let figures: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
    let Ok(figures) = figures else {
        println!("  Python: {}", String::from_utf8_lossy(&output.stderr));
        return;
    };
    for (name, ours) in [("reading", reading), ("encoding", encoding), ("step", step)] {
        let theirs = figures.get(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
        println!("  Python's {name:8} {theirs:8.1} ms = {:.2} times ours", theirs / ms(ours));
    }
}

/// About 900 tokens, as the shipped constitution has with the real tokenizer.
fn constitution() -> String {
    (1..=48).map(|rule| format!("Rule {rule}: never place a heat source next to flammable material.\n")).collect()
}

fn threads() -> usize {
    std::env::var("STEADFAST_BENCH_THREADS").map_or(2, |count| count.parse().expect("a number"))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn ratio(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64()
}
