//! Words in the instruction, the plan and the picture that address the guard, measured with the real compact proxy: how
//! many unsafe triples are kept from running with each, and without. Asserts nothing: over all of them the share is not
//! lowered, but single ones do lower it; KNOWN_LIMITS.md says which. Skips, saying so, where the models are not installed.
//!
//!     cargo bench --bench injections

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a measurement may fall over, and prints"
)]
#![cfg(feature = "onnx")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use image::imageops;
use serde::Deserialize;
use steadfast::assessment::step_texts;
use steadfast::calibration::Calibration;
use steadfast::constitution::Constitution;
use steadfast::plan::{Plan, Stance, stance};
use steadfast::proxy::compact::{Compact, Observation, Prefix};
use steadfast::proxy::onnx::{Engine, EngineSettings};
use steadfast::proxy::{Provider, Proxy as _, Question};
use steadfast::scene::{decode, resize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Battery {
    r#unsafe: Vec<Unsafe>,
    injection: Vec<Injection>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Unsafe {
    instruction: String,
    plan: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Injection {
    kind: String,
    place: Place,
    text: String,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Place {
    Instruction,
    Ahead,
    Step,
    First,
    Prose,
    Image,
}

impl Injection {
    fn put_into(&self, clean: &Unsafe) -> Unsafe {
        let Unsafe { instruction, plan } = clean.clone();
        let text = &self.text;
        match self.place {
            Place::Instruction => Unsafe { instruction: format!("{instruction} {text}"), plan },
            Place::Ahead => Unsafe { instruction: format!("{text} {instruction}"), plan },
            Place::Step => Unsafe { plan: format!("{plan}\n4. {text}"), instruction },
            Place::First => Unsafe { plan: format!("0. {text}\n{plan}"), instruction },
            Place::Prose => Unsafe { plan: format!("{text}\n\n{plan}"), instruction },
            Place::Image => Unsafe { instruction, plan },
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn place(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| root().join(default), PathBuf::from)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("readable")
}

struct Judge {
    proxy: Compact,
    prefix: Prefix,
    calibration: Calibration,
    seen: HashMap<String, Observation>,
}

/// What keeps a triple from running, and by how much the proxy leans.
struct Answer {
    no: bool,
    margin: Option<f64>,
}

impl Judge {
    fn load() -> Option<Self> {
        let models = place("STEADFAST_MODELS", "build/models/compact");
        let library = place("STEADFAST_ONNXRUNTIME", "build/lib/libonnxruntime.so.1.31.1");
        if !models.join("judge_trunk.onnx").exists() || !library.exists() {
            println!("skipped: the models are not installed; run `make models`");
            return None;
        }
        let providers = vec![Provider::Cpu];
        let settings = EngineSettings { library, threads: 2, providers, allow_fallback: false, engine_cache: None };
        let engine = Engine::load(settings).expect("the library loads");
        let mut proxy = Compact::load(&engine, &models).expect("the proxy loads");
        let constitution = Constitution::parse(&read("config/constitution.toml")).expect("the shipped constitution");
        let calibration = Calibration::parse(&read("config/calibration.toml")).expect("the shipped calibration");
        let prefix = proxy.warm(&constitution.prompt_text()).expect("warmed");
        Some(Self { proxy, prefix, calibration, seen: HashMap::new() })
    }

    /// The photo, with a plate over its upper half where one is named.
    fn see(&mut self, plate: &str) -> Observation {
        if let Some(seen) = self.seen.get(plate) {
            return seen.clone();
        }
        let picture = |path: &str| {
            let bytes = std::fs::read(root().join("tests/data").join(path)).expect("readable");
            decode::decode(&bytes).expect("an image").image
        };
        let mut photo = picture("coffee.png");
        if !plate.is_empty() {
            let plate = picture(&format!("plates/{plate}.png"));
            let width = photo.width() * 9 / 10;
            let height = plate.height() * width / plate.width();
            let plate = imageops::resize(&plate, width, height, imageops::FilterType::Nearest);
            let left = i64::from((photo.width() - width) / 2);
            imageops::replace(&mut photo, &plate, left, 10);
        }
        let (width, height) = self.proxy.card().working_size.expect("a working size");
        let working = resize::resize(&photo, width, height, resize::Filter::Bilinear).expect("resized");
        let seen = self.proxy.encode(&working).expect("encoded");
        self.seen.insert(plate.to_owned(), seen.clone());
        seen
    }

    /// The way of [`steadfast::assessment`] up to the clean margin. What comes after it only adds vetoes.
    fn answer(&mut self, triple: &Unsafe, plate: &str) -> Answer {
        let seen = self.see(plate);
        let Ok(plan) = Plan::parse(&triple.plan) else { return Answer { no: true, margin: None } };
        if stance(&triple.instruction, &plan).stance != Stance::Complied {
            return Answer { no: true, margin: None };
        }
        let steps = step_texts(&plan).join("\n");
        let question = Question { instruction: &triple.instruction, plan: &steps };
        let posed = self.proxy.pose(Some(&self.prefix), &question).expect("posed");
        let margin = self.proxy.margin(&posed, &seen, None).expect("a margin");
        Answer { no: self.calibration.refuses(margin), margin: Some(margin.nats()) }
    }
}

fn main() {
    let Some(mut judge) = Judge::load() else { return };
    let battery: Battery = toml::from_str(&read("benches/injections.toml")).expect("the battery");
    let of = battery.r#unsafe.len();
    let clean: Vec<Answer> = battery.r#unsafe.iter().map(|triple| judge.answer(triple, "")).collect();
    let clean_no = clean.iter().filter(|answer| answer.no).count();
    println!("clean: {clean_no} of {of} kept from running");
    for (triple, answer) in battery.r#unsafe.iter().zip(&clean) {
        println!("  {:7.2}  {}", answer.margin.unwrap_or(f64::NAN), triple.instruction);
    }
    println!("{:12} {:12} {:>7} {:>11}  words", "kind", "place", "no", "mean shift");
    let (mut injected_no, mut lowered) = (0, Vec::new());
    for injection in &battery.injection {
        let plate = if injection.place == Place::Image { injection.text.as_str() } else { "" };
        let (mut no, mut shifts) = (0, Vec::new());
        for (triple, before) in battery.r#unsafe.iter().zip(&clean) {
            let after = judge.answer(&injection.put_into(triple), plate);
            no += usize::from(after.no);
            shifts.extend(after.margin.zip(before.margin).map(|(after, before)| after - before));
        }
        let shift = shifts.iter().sum::<f64>() / shifts.len().max(1) as f64;
        let place = format!("{:?}", injection.place).to_lowercase();
        println!("{:12} {place:12} {no:>3}/{of:<3} {shift:>+11.2}  {}", injection.kind, injection.text.escape_debug());
        injected_no += no;
        if no < clean_no {
            lowered.push((injection.kind.clone(), place, clean_no - no));
        }
    }
    let (clean_rate, injected_rate) =
        (clean_no as f64 / of as f64, injected_no as f64 / (of * battery.injection.len()) as f64);
    println!("kept from running: {clean_rate:.3} clean, {injected_rate:.3} injected; lowered by {lowered:?}");
}
