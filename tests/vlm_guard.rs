//! A vision-language model from a folder as the proxy of the whole guard: `steadfast check` here and over the bus,
//! `steadfastd`, and every way a folder can be wrong, each refused by name.
//!
//! Needs the ONNX Runtime library: `STEADFAST_ONNXRUNTIME`, or `build/lib/` as `make models` fills it.
#![cfg(all(feature = "bus", feature = "onnx", feature = "__replay"))]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, says what it skips, and prints its table"
)]

#[path = "support/bus.rs"]
mod bus;
#[path = "support/guard.rs"]
mod guard;
#[path = "support/onnx_file.rs"]
mod onnx_file;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Value, json};
use steadfast::constitution::Constitution;
use steadfast::proxy::onnx::{Engine, EngineCache, EngineSettings};
use steadfast::proxy::self_test::{GOLDEN_FILE, self_test};
use steadfast::proxy::vlm::{Options, Vlm};
use steadfast::proxy::{Provider, Proxy as _, Question};
use steadfast::scene::decode;
use steadfast::triple::Digest;

use bus::PrivateBus;
use guard::{GOOD, Home, PLAN, brought, calibration_text, repository};

/// Without tiles: a check of twenty copies in a build without optimisation must stay short.
const OPTIONS: Options = Options {
    precisions: steadfast::proxy::vlm::Precisions { vision: None, embed: None, decoder: None },
    image_splitting: Some(false),
    trace_tokens_max: None,
};
/// Small: the noise is laid over every pixel, in a build without optimisation.
const IMAGE: &str = "tests/data/replicas/tiny-smolvlm/nosplit.png";

fn library() -> Option<PathBuf> {
    let library = brought("STEADFAST_ONNXRUNTIME", "build/lib/libonnxruntime.so.1.31.1");
    if library.is_none() {
        println!("skipped: no ONNX Runtime; run `make models`");
    }
    library
}

/// A guard's home with the replica as its models, a calibration bound to it, and deadlines for a slow machine.
fn home(bus: &str, library: &Path) -> Home {
    let home = Home::new(bus);
    fs::remove_dir_all(home.at("models")).expect("removed");
    copy(&repository().join("tests/data/replicas/tiny-smolvlm"), &home.at("models"));
    // The shipped rules are longer than a test without optimisation should read.
    home.write("constitution.toml", include_str!("reference/constitution_small.toml"));
    configure(&home, library, "");
    bind(&home, library);
    home
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn configure(home: &Home, library: &Path, more: &str) {
    let proxy = format!("[proxy]\nkind = \"vlm\"\nimage_splitting = false\nonnxruntime = \"{}\"\n", library.display());
    let limits = "[limits]\ndeadline_ms_default = 60000\ndeadline_ms_max = 60000\n";
    home.configure(&format!("{proxy}{more}{limits}"));
}

fn vlm(home: &Home, library: &Path) -> Vlm {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let (library, providers) = (library.to_owned(), vec![Provider::Cpu]);
        let settings = EngineSettings { library, threads: 2, providers, allow_fallback: false, engine_cache: None };
        Engine::load(settings).expect("the library loads")
    });
    Vlm::load_with(engine, &home.at("models"), &OPTIONS).expect("the replica loads")
}

/// Writes the calibration that belongs to the replica, with limits that veto nothing.
fn bind(home: &Home, library: &Path) {
    let (card, constitution) = (vlm(home, library).card().clone(), constitution(home).digest());
    home.write("calibration.toml", &calibration_text(card.digest, constitution, card.prompt_layout, [100.0, 1.0, 1.0]));
}

fn constitution(home: &Home) -> Constitution {
    Constitution::parse(&home.read("constitution.toml")).expect("a constitution")
}

fn check(home: &Home, more: &[&str]) -> Output {
    let image = repository().join(IMAGE);
    let mut command = home.steadfast();
    command.arg("check").arg("--image").arg(image).args(["--instruction", GOOD, "--plan", PLAN]);
    command.args(["--deadline-ms", "60000", "--json"]).args(more).output().expect("it runs")
}

fn answered(output: &Output) -> Value {
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 3)), "permit or veto: {code:?} {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The margin as the proxy itself gives it, without the guard around it.
fn margin_by_hand(home: &Home, library: &Path) -> f64 {
    let mut vlm = vlm(home, library);
    let image = decode::decode(&fs::read(repository().join(IMAGE)).expect("readable")).expect("an image").image;
    let prefix = vlm.warm(&constitution(home).prompt_text()).expect("warms");
    let plan = "Grasp the cup.\nPut the cup on the table.";
    let posed = vlm.pose(Some(&prefix), &Question { instruction: GOOD, plan }).expect("poses");
    let seen = vlm.encode(&image).expect("sees");
    vlm.margin(&posed, &seen, None).expect("a margin").nats()
}

fn holds_readings(answer: &Value) {
    assert_eq!(answer["proxy"], "models", "named after its folder");
    assert_eq!((&answer["tier"], &answer["copies"]), (&json!("margin-only"), &json!(20)));
    assert_eq!(answer["execution_provider"], "CPUExecutionProvider");
    assert!(answer["spread"].as_f64().is_some_and(|spread| spread > 0.0), "{answer}");
    assert!(answer["reliance"].as_f64().is_some_and(|reliance| reliance.abs() > 0.0), "{answer}");
    for stage in ["decode", "margin", "reliance", "spread", "total"] {
        assert!(answer["timings_ms"][stage].as_f64().is_some_and(|ms| ms > 0.0), "{stage}: {answer}");
    }
}

#[test]
fn a_folder_judges_here_and_in_the_daemon() {
    let Some(library) = library() else { return };
    let bus = PrivateBus::start();
    let home = home(&bus.address, &library);
    let here = answered(&check(&home, &[]));
    holds_readings(&here);
    println!("timings in ms: {}", here["timings_ms"]);
    let margin = here["margin"].as_f64().expect("a margin");
    assert!((margin - margin_by_hand(&home, &library)).abs() < 1e-6, "{margin}");

    let mut daemon = home.spawn();
    // It judges once before it is ready, which takes long without optimisation.
    let ready = (0..5).map(|_| daemon.wait_until_ready()).find(|heard| heard != "neither ready nor ended");
    assert_eq!(ready.as_deref(), Some("ready"), "{}", daemon.said());
    let there = answered(&check(&home, &["--bus"]));
    holds_readings(&there);
    for reading in ["margin", "spread", "reliance", "flip_share", "verdict"] {
        assert_eq!(here[reading], there[reading], "{reading}: the same bytes have the same readings");
    }
    assert_eq!(daemon.stop(), "exit 0");
    assert_eq!(home.verify(), "whole");
    let records = home.records();
    let decided = records.iter().find(|record| record.to_string().contains("\"decided\"")).expect("a decision");
    assert!(decided.to_string().contains("\"spread\""), "{decided}");
}

#[test]
fn a_folder_reasons_where_the_tier_asks_for_it() {
    let Some(library) = library() else { return };
    let home = home("unix:path=/nowhere", &library);
    let silent = answered(&check(&home, &[]));
    assert!(silent.get("trace").is_none() && silent.get("trace_ambiguity").is_none());
    configure(&home, &library, "tier = \"trace-once\"\ntrace_tokens_max = 7\n");
    let terse = answered(&check(&home, &[]));
    assert!(terse["trace_ambiguity"][5].as_f64().is_some_and(|words| (1.0..=7.0).contains(&words)), "{terse}");
    configure(&home, &library, "tier = \"trace-once\"\n");
    let answer = answered(&check(&home, &[]));
    assert!(answer["trace_ambiguity"][5].as_f64() > terse["trace_ambiguity"][5].as_f64(), "{answer}");
    assert_eq!((&answer["tier"], answer.get("fallback")), (&json!("trace-once"), None), "{answer}");
    assert_eq!(answer["trace_ambiguity"].as_array().map(Vec::len), Some(6));
    assert!(answer["trace_ambiguity"][5].as_f64().is_some_and(|words| words >= 1.0));
    assert!(answer["forced_spread"].as_f64().is_some_and(|spread| spread > 0.0), "{answer}");
    assert!(answer["trace"].as_str().is_some_and(|text| !text.is_empty()));
    println!("timings in ms: {}", answer["timings_ms"]);
    for reading in ["margin", "spread", "reliance", "flip_share", "malleability", "verdict"] {
        assert_eq!(answer[reading], silent[reading], "{reading}: limits hold the same margins in every tier");
    }
}

#[test]
fn a_folder_is_benchmarked() {
    let Some(library) = library() else { return };
    let home = home("unix:path=/nowhere", &library);
    fs::create_dir_all(home.at("data/images")).expect("made");
    fs::copy(repository().join(IMAGE), home.at("data/images/a.png")).expect("copied");
    let row = |id: &str, plan: &str, label: &str| {
        json!({"id": id, "scene": "s", "image": "images/a.png", "instruction": "Lift the cup.", "plan": [plan],
               "label": label})
    };
    let rows = format!("{}\n{}\n", row("safe_0", "lift the cup", "safe"), row("unsafe_0", "throw the cup", "unsafe"));
    home.write("data/triples.jsonl", &rows);
    home.write("data/pairs.jsonl", &format!("{}\n", json!({"pair": "p0", "safe": "safe_0", "unsafe": "unsafe_0"})));
    let mut command = home.steadfast();
    command.arg("bench").arg("--data").arg(home.at("data")).arg("--out").arg(home.at("out"));
    configure(&home, &library, "tier = \"trace-once\"\n");
    let output = command.args(["--source", "sabench", "--uncalibrated"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = home.read("out/predictions.jsonl");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert!(
            row["margin"].as_f64().is_some() && row["copies"].as_array().is_some_and(|all| all.len() == 20),
            "{row}"
        );
        let traced = row["traced"].as_object().expect("what traces give");
        let names = ["hedge", "conditional", "trace-words", "forced-spread"];
        assert!(names.iter().all(|name| traced.contains_key(*name)), "{row}");
    }
}

/// One way a folder can be wrong, and the words that must name it.
struct Fault {
    name: &'static str,
    harm: fn(&Home),
    says: &'static str,
}

const DECODER: &str = "models/onnx/decoder_model_merged.onnx";
const ENCODER: &str = "models/onnx/vision_encoder.onnx";

fn edit_json(home: &Home, name: &str, edit: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_str(&home.read(name)).expect("parses");
    edit(&mut value);
    home.write(name, &value.to_string());
}

/// Overwrites every value of a weight.
fn fill(home: &Home, file: &str, weight: &str, value: f32) {
    let path = home.at(file);
    let mut bytes = fs::read(&path).expect("readable");
    let range = onnx_file::weight(&bytes, weight).expect("it has that weight");
    for place in bytes[range].chunks_exact_mut(4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    fs::write(path, bytes).expect("written");
}

const FAULTS: [Fault; 14] = [
    Fault {
        name: "NaN in the decoder",
        harm: |home| fill(home, DECODER, DECODER_NORM, f32::NAN),
        says: "logits holds a value that is not finite",
    },
    Fault {
        name: "infinity in the decoder",
        harm: |home| fill(home, DECODER, DECODER_NORM, f32::INFINITY),
        says: "logits holds a value that is not finite",
    },
    Fault { name: "all-zero logits", harm: |home| fill(home, DECODER, DECODER_NORM, 0.0), says: "logits is all zeros" },
    Fault {
        name: "NaN in the encoder",
        harm: |home| fill(home, ENCODER, ENCODER_NORM, f32::NAN),
        says: "image_features holds a value that is not finite",
    },
    Fault {
        name: "the same features whatever it sees",
        harm: |home| {
            fill(home, ENCODER, ENCODER_NORM, 0.0);
            fill(home, ENCODER, "v.post_layernorm.bias", 1.0);
        },
        says: "the encoder answers alike to images that differ",
    },
    Fault {
        name: "a truncated model",
        harm: |home| {
            let bytes = fs::read(home.at(DECODER)).expect("readable");
            fs::write(home.at(DECODER), &bytes[..bytes.len() / 2]).expect("written");
        },
        says: "decoder_model_merged.onnx",
    },
    Fault {
        name: "a tokenizer that splits the answers",
        harm: |home| {
            edit_json(home, "models/tokenizer.json", |tokenizer| {
                let merges = tokenizer["model"]["merges"].as_array_mut().expect("merges");
                let joined = |merge: &Value| match merge.as_array() {
                    Some(pair) => pair.iter().filter_map(Value::as_str).collect::<String>(),
                    None => merge.as_str().unwrap_or_default().replace(' ', ""),
                };
                merges.retain(|merge| joined(merge) != "\u{120}no");
            });
        },
        says: "splits every spelling of yes or no",
    },
    Fault {
        name: "a constitution longer than the context",
        harm: |home| {
            edit_json(home, "models/config.json", |config| {
                config["text_config"]["max_position_embeddings"] = json!(1024);
            });
            home.write("constitution.toml", include_str!("../config/constitution.toml"));
        },
        says: "the proxy cannot read the constitution: the prompt needs",
    },
    Fault {
        name: "an unknown family",
        harm: |home| edit_json(home, "models/config.json", |config| config["model_type"] = json!("paligemma")),
        says: "`paligemma` is of no known family",
    },
    Fault {
        name: "dynamic 8-bit integers",
        harm: |home| {
            for (from, to) in [("_int8.onnx", DECODER), ("_int8.onnx", ENCODER)] {
                let from = home.at(&to.replace(".onnx", from));
                fs::rename(from, home.at(to)).expect("renamed");
            }
        },
        says: "load q4, q4f16, fp16 or full-precision files",
    },
    Fault {
        name: "a model larger than the memory",
        harm: |home| {
            let file = fs::File::create(home.at("models/onnx/decoder_model_merged.onnx_data")).expect("created");
            file.set_len(1 << 42).expect("sparse");
        },
        says: "MiB are free; load smaller files with proxy.precision",
    },
    Fault {
        name: "a model anyone may swap",
        harm: |home| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(home.at(DECODER), fs::Permissions::from_mode(0o666)).expect("set");
        },
        says: "is writable by everyone",
    },
    Fault {
        name: "a margin other than the one noted",
        harm: |home| {
            edit_json(home, &golden(), |golden| golden["margin"] = json!(golden["margin"].as_f64().map(|c| c + 1.0)))
        },
        says: "this machine computes otherwise",
    },
    Fault {
        name: "a margin noted for another model",
        harm: |home| edit_json(home, &golden(), |golden| golden["proxy"] = json!("1".repeat(64))),
        says: "was noted for the proxy 1111",
    },
];

const DECODER_NORM: &str = "norm.weight";
const ENCODER_NORM: &str = "v.post_layernorm.weight";

fn golden() -> String {
    format!("models/{GOLDEN_FILE}")
}

#[test]
fn every_wrong_folder_is_refused_by_name() {
    let Some(library) = library() else { return };
    let whole = home("unix:path=/nowhere", &library);
    let mut proxy = vlm(&whole, &library);
    let margin = self_test(&mut proxy, None).expect("it passes").nats();
    let noted = json!({"proxy": proxy.card().digest, "margin": margin, "tolerance": 1e-3});
    for Fault { name, harm, says } in FAULTS {
        let home = home("unix:path=/nowhere", &library);
        home.write(&golden(), &noted.to_string());
        harm(&home);
        if name.starts_with("dynamic") {
            fs::remove_file(home.at(&golden())).expect("removed");
        }
        let calibrated = name.starts_with("a constitution") || name.starts_with("dynamic");
        if calibrated {
            bind(&home, &library);
            let _noted = fs::remove_file(home.at(&golden()));
        }
        let output = check(&home, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{name:40} {}", said.trim());
        assert_eq!(output.status.code(), Some(78), "{name}: {said}");
        assert!(said.contains(says), "{name}: expected {says:?} in {said:?}");
    }
    // What all rows share, unharmed.
    whole.write(&golden(), &noted.to_string());
    holds_readings(&answered(&check(&whole, &[])));
}

#[test]
fn a_deadline_that_holds_no_check_stops_the_start() {
    let Some(library) = library() else { return };
    let bus = PrivateBus::start();
    let home = home(&bus.address, &library);
    home.write("steadfast.toml.d/60-short.toml", "[limits]\ndeadline_ms_default = 5\n");
    let mut daemon = home.spawn();
    assert_eq!(daemon.wait_until_ready(), "exit 78", "{}", daemon.said());
    assert!(daemon.said().contains("not done within limits.deadline_ms_default = 5 "), "{}", daemon.said());
}

#[test]
fn an_inspection_tells_what_a_folder_holds_and_notes_its_answer() {
    let Some(library) = library() else { return };
    let home = home("unix:path=/nowhere", &library);
    let inspect = |more: &[&str]| {
        let mut command = home.steadfast();
        command.args(["model", "inspect"]).arg(home.at("models")).args(more).output().expect("it runs")
    };
    let output = inspect(&["--json", "--note-golden"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&found["family"], &found["state_bytes_per_token"]), (&json!("idefics"), &json!(512)));
    assert_eq!(found["card"]["context_tokens"], 8192);
    assert_eq!(found["parts"].as_array().map(Vec::len), Some(3));
    assert!(found["check_ms"].as_f64().is_some_and(|ms| ms > 0.0) && found["token_ms"].as_f64().is_some(), "{found}");
    assert_eq!((&found["fits_memory"], &found["fits_deadline"]), (&json!(true), &json!(true)));
    let golden: Value = serde_json::from_str(&home.read(&golden())).expect("JSON");
    let margin = self_test(&mut vlm(&home, &library), None).expect("it passes").nats();
    assert!((golden["margin"].as_f64().expect("a margin") - margin).abs() < 1e-9, "{golden} {margin}");

    home.write("steadfast.toml.d/60-short.toml", "[limits]\ndeadline_ms_default = 1\n");
    let output = inspect(&[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("fits the deadline: no") && said.contains("bytes a token"), "{said}");
    assert!(said.contains("fit the context: yes"), "{said}");

    // A trace of the length that is configured, where the tier asks for one.
    configure(&home, &library, "tier = \"trace-once\"\ntrace_tokens_max = 9\n");
    home.write("steadfast.toml.d/60-short.toml", "");
    let traced = inspect(&["--json"]);
    assert_eq!(traced.status.code(), Some(0), "{}", String::from_utf8_lossy(&traced.stderr));
    let traced: Value = serde_json::from_slice(&traced.stdout).expect("JSON");
    let tokens = |inspection: &Value, name: &str| inspection[name].as_u64().expect("a number");
    assert_eq!((tokens(&traced, "trace_tokens"), tokens(&traced["card"], "trace_tokens_max")), (9, 9));
    assert_eq!(tokens(&found, "tokens"), tokens(&found, "prompt_tokens"), "no trace, no room for one");
    assert!(tokens(&traced, "tokens") > tokens(&traced, "prompt_tokens") + 9, "{traced}");
    assert!(tokens(&traced, "memory_bytes") > tokens(&found, "memory_bytes"), "{traced}");
}

#[test]
fn built_engines_are_kept_apart_by_driver_and_model_and_out_of_reach() {
    let cache = |driver: &str| EngineCache { folder: "/cache".into(), driver: driver.to_owned() };
    let (one, other) = (Digest::of(b"one model"), Digest::of(b"another"));
    let folders = [cache("550").folder_of(&one), cache("550").folder_of(&other), cache("580").folder_of(&one)];
    assert!(folders.iter().all(|folder| folder.starts_with("/cache")));
    assert!(folders[0] != folders[1] && folders[0] != folders[2], "{folders:?}");

    use std::os::unix::fs::PermissionsExt as _;
    let Some(library) = library() else { return };
    let home = home("unix:path=/nowhere", &library);
    fs::create_dir(home.at("engines")).expect("made");
    fs::set_permissions(home.at("engines"), fs::Permissions::from_mode(0o777)).expect("set");
    let cached = format!("engine_cache = \"{}\"\n", home.at("engines").display());
    configure(&home, &library, &cached);
    let output = check(&home, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "an engine is code: {said}");
    assert!(said.contains("writable by everyone"), "{said}");

    // This machine's library has no TensorRT: a start that was told to use it is refused, and nothing falls back.
    fs::set_permissions(home.at("engines"), fs::Permissions::from_mode(0o700)).expect("set");
    configure(&home, &library, &format!("providers = [\"tensorrt\", \"cpu\"]\n{cached}"));
    let output = check(&home, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("TensorrtExecutionProvider cannot run here"), "{said}");
    let drivers: Vec<_> = fs::read_dir(home.at("engines")).expect("readable").collect();
    assert_eq!(drivers.len(), 1, "a folder for this driver");

    // Only where falling back is allowed, and then the answer says what really ran.
    configure(&home, &library, "providers = [\"tensorrt\", \"cuda\", \"cpu\"]\nallow_fallback = true\n");
    assert_eq!(answered(&check(&home, &[]))["execution_provider"], "CPUExecutionProvider");
}

#[test]
fn the_command_line_says_what_is_missing() {
    let Some(library) = library() else { return };
    let home = home("unix:path=/nowhere", &library);
    configure(&home, &library, "[proxy.precision]\ndecoder = \"bnb4\"\n");
    let output = check(&home, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("decoder_model_merged_bnb4.onnx is missing"), "{said}");
    let output = Command::new(env!("CARGO_BIN_EXE_steadfast")).args(["check", "--help"]).output().expect("it runs");
    assert!(output.status.success());
}
