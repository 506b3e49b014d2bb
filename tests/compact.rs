//! The compact proxy against `models/reference.py`, whose answers are in `tests/reference/compact_golden.json`, with the
//! real models. Skips, saying so, where they are not installed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a test may fall over, and says what it skips"
)]
#![cfg(feature = "onnx")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use steadfast::proxy::compact::{Compact, LoadError, Observation};
use steadfast::proxy::onnx::{Engine, EngineSettings};
use steadfast::proxy::{Provider, Proxy as _, Question, Sampling, Trace, Unbounded};
use steadfast::scene::{decode, resize};

/// The lead over the next best token, in nats, from which no processor's rounding chooses another one: two kinds of
/// processor wrote another fifth word where it was 0.18.
const LEAD_SURE: f64 = 0.5;
/// How far a margin after the same trace may lie from the reference: two kinds of processor were 0.09 apart.
const FORCED_NATS_MAX: f64 = 0.3;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn place(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| root().join(default), PathBuf::from)
}

fn proxy() -> Option<Compact> {
    loaded(Compact::load)
}

fn speaking() -> Option<Compact> {
    loaded(Compact::load_with_traces)
}

fn loaded(load: fn(&Engine, &Path) -> Result<Compact, LoadError>) -> Option<Compact> {
    let models = place("STEADFAST_MODELS", "build/models/compact");
    let library = place("STEADFAST_ONNXRUNTIME", "build/lib/libonnxruntime.so.1.31.1");
    if !models.join("judge_trunk.onnx").exists() || !library.exists() {
        println!("skipped: the models are not installed; run `make models`");
        return None;
    }
    // One process may load the library once.
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let providers = vec![Provider::Cpu];
        let settings = EngineSettings { library, threads: 2, providers, allow_fallback: false, engine_cache: None };
        Engine::load(settings).expect("the library loads")
    });
    Some(load(engine, &models).expect("the proxy loads"))
}

fn golden() -> Value {
    let text = std::fs::read_to_string(root().join("tests/reference/compact_golden.json")).expect("readable");
    serde_json::from_str(&text).expect("JSON")
}

fn see(proxy: &mut Compact, file: &str) -> Observation {
    let bytes = std::fs::read(root().join("tests/data").join(file)).expect("readable");
    let decoded = decode::decode(&bytes).expect("an image").image;
    let (width, height) = proxy.card().working_size.expect("a working size");
    let working = resize::resize(&decoded, width, height, resize::Filter::Bilinear).expect("resized");
    proxy.encode(&working).expect("encoded")
}

#[test]
fn sentences_and_margins_are_the_references() {
    let Some(mut proxy) = proxy() else { return };
    let golden = golden();
    for (file, expected) in golden["images"].as_object().expect("images") {
        let seen = see(&mut proxy, file);
        assert_eq!(proxy.describe(&seen).as_deref(), expected["sentence"].as_str(), "{file}");
    }
    for case in golden["cases"].as_array().expect("cases") {
        let text = |name: &str| case[name].as_str();
        let prefix = text("constitution").map(|rules| proxy.warm(rules).expect("warmed"));
        let question = Question { instruction: text("instruction").expect("text"), plan: text("plan").expect("text") };
        let posed = proxy.pose(prefix.as_ref(), &question).expect("posed");
        let seen = match text("image") {
            Some(file) => see(&mut proxy, file),
            None => Observation::written(text("observation").or(text("sentence")).expect("an observation")),
        };
        let margin = proxy.margin(&posed, &seen, None).expect("a margin").nats();
        let expected = case["margin"].as_f64().expect("a margin in the golden file");
        assert!((margin - expected).abs() < 0.05, "{question:?}: {margin} is not {expected}");
    }
}

#[test]
fn the_same_question_has_the_same_margin_bit_for_bit() {
    let Some(mut proxy) = proxy() else { return };
    let question = Question { instruction: "Bring the cup.", plan: "1. Grasp the cup" };
    let seen = see(&mut proxy, "coffee.png");
    let mut once = || {
        let posed = proxy.pose(None, &question).expect("posed");
        proxy.margin(&posed, &seen, None).expect("a margin").nats().to_bits()
    };
    assert_eq!(once(), once());
}

#[test]
fn embeddings_have_unit_norm_and_know_likeness() {
    let Some(mut proxy) = proxy() else { return };
    let mut embed = |text: &str| proxy.embed(text).expect("embedded");
    let (a, b, c) = (
        embed("Never hand a knife to a child."),
        embed("Do not give sharp blades to children."),
        embed("Water the plants in the evening."),
    );
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    assert!((dot(&a, &a) - 1.0).abs() < 1e-3);
    assert!(dot(&a, &b) > dot(&a, &c), "{} is not over {}", dot(&a, &b), dot(&a, &c));
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_not_cut() {
    let Some(mut proxy) = proxy() else { return };
    let plan = "1. Carry the cup over there and put it down again\n".repeat(400);
    let fault = proxy.pose(None, &Question { instruction: "Tidy up.", plan: &plan }).expect_err("too long");
    assert!(matches!(fault, steadfast::proxy::Fault::ContextExceeded { tokens_max: 4096, .. }), "{fault:?}");
}

#[test]
fn traces_and_the_verdicts_after_them_are_the_references() {
    let Some(mut silent) = proxy() else { return };
    let Some(mut proxy) = speaking() else { return };
    assert_eq!(silent.card().digest, proxy.card().digest, "a tail changes no margin, so no calibration");
    assert!(silent.card().traces.is_none() && proxy.card().traces.is_some_and(|with| with != proxy.card().digest));
    let text = std::fs::read_to_string(root().join("tests/reference/compact_trace.json")).expect("readable");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    for case in golden["cases"].as_array().expect("cases") {
        let text = |name: &str| case[name].as_str().expect("text");
        let question = Question { instruction: text("instruction"), plan: text("plan") };
        let seen = Observation::written(text("scene"));
        let tokens_max = usize::try_from(case["tokens"].as_u64().expect("a number")).expect("small");
        let greedy = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0, tokens_max };
        let constitution = Some(text("constitution")).filter(|rules| !rules.is_empty());
        let prefix = constitution.map(|rules| proxy.warm(rules).expect("warmed"));
        let posed = proxy.pose(prefix.as_ref(), &question).expect("posed");
        let trace = proxy.trace(&posed, &seen, greedy, &Unbounded).expect("a trace");
        let tokens: Vec<u32> = serde_json::from_value(case["trace"].clone()).expect("tokens");
        let leads: Vec<f64> = serde_json::from_value(case["leads"].clone()).expect("leads");
        let sure = leads.iter().take_while(|lead| **lead > LEAD_SURE).count();
        assert!(sure > 2, "{question:?}: nothing to compare");
        assert_eq!(trace.tokens.get(..sure), tokens.get(..sure), "{question:?}");
        if trace.tokens == tokens {
            assert_eq!(trace.text, text("text"));
        }
        let reference = Trace { text: text("text").to_owned(), tokens, finished: true };
        let forced = proxy.margin(&posed, &seen, Some(&reference)).expect("a margin").nats();
        let expected = case["margin"].as_f64().expect("a margin");
        assert!((forced - expected).abs() < FORCED_NATS_MAX, "{question:?}: {forced} is not {expected}");

        let sampled = |seed| Sampling { temperature: 0.7, seed, ..greedy };
        let mut draw = |seed| proxy.trace(&posed, &seen, sampled(seed), &Unbounded).expect("a trace").tokens;
        let draws = [draw(1), draw(1), draw(2)];
        assert!(draws[0] == draws[1] && draws[0] != draws[2], "a seed names one trace");
        let without = proxy.margin(&posed, &seen, None).expect("a margin").nats();
        let prefix = constitution.map(|rules| silent.warm(rules).expect("warmed"));
        let posed = silent.pose(prefix.as_ref(), &question).expect("posed");
        let silently = silent.margin(&posed, &seen, None).expect("a margin").nats();
        assert_eq!(without.to_bits(), silently.to_bits(), "the tail leaves margins alone");
        let refused = silent.trace(&posed, &seen, greedy, &Unbounded).expect_err("it has no tail");
        assert!(matches!(refused, steadfast::proxy::Fault::Unsupported(_)), "{refused}");
    }
}
