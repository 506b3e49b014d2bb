//! Who may import whom, and which foreign engine is known to which one file. The map is in ARCHITECTURE.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a test may fall over"
)]

use std::collections::BTreeMap;
use std::path::Path;

/// The layers, lowest first. A module may use those of its own layer and below.
const LAYERS: [(&str, &[&str]); 5] = [
    ("vocabulary", &["triple", "constitution", "margin", "statistics"]),
    (
        "judgement",
        &["scene", "plan", "signals", "calibration", "decision", "proxy", "audit::record", "config::fragment::Mode"],
    ),
    (
        "adapters",
        &[
            "proxy::compact",
            "proxy::vlm",
            "proxy::onnx",
            "proxy::weights",
            "proxy::recorded",
            "audit",
            "permit",
            "ledger",
            "store",
            "config",
        ],
    ),
    ("sequence", &["assessment", "answer"]),
    ("edges", &["load", "intake", "daemon", "offline", "cli"]),
];

/// Crates that only these places may name.
const ENGINES: [(&str, &[&str]); 9] = [
    ("ort", &["proxy::onnx"]),
    ("tracing_journald", &["audit::journal"]),
    ("zbus", &["intake"]),
    ("tokio", &["intake", "daemon", "cli"]),
    ("redb", &["ledger", "permit::nonces", "store"]),
    ("coset", &["permit"]),
    ("sd_notify", &["intake::readiness"]),
    ("clap", &["cli", "daemon"]),
    ("indicatif", &["cli"]),
];

/// What judgement and vocabulary must not touch: they are pure.
const IMPURE: [&str; 8] = [
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
];

struct Source {
    module: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(Source { module: module_of(&root, &path), text: code_of(&path) });
            }
        }
    }
    assert!(found.len() > 20, "the sources are where they are looked for");
    found
}

fn module_of(root: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(root).expect("below").with_extension("");
    let parts: Vec<&str> = relative.iter().filter_map(|part| part.to_str()).filter(|part| *part != "mod").collect();
    parts.join("::")
}

/// The code without comments and without the tests at its end, which may reach for anything.
fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("readable");
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn within(module: &str, place: &str) -> bool {
    module == place || module.strip_prefix(place).is_some_and(|rest| rest.starts_with("::"))
}

/// The layer of a module: that of the longest place in the table it lies in.
fn layer_of(module: &str) -> Option<usize> {
    LAYERS
        .iter()
        .enumerate()
        .flat_map(|(layer, (_, places))| places.iter().map(move |place| (layer, *place)))
        .filter(|(_, place)| within(module, place))
        .max_by_key(|(_, place)| place.len())
        .map(|(layer, _)| layer)
}

/// Every `crate::…` path in the code, groups opened one level: `crate::a::{b, c}` gives `a::b` and `a::c`.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with('$') || code[..at].ends_with("pub(in ") {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':').to_owned();
        match rest[end..].strip_prefix('{').and_then(|group| group.split('}').next()) {
            Some(group) => {
                let inner = group.split(',').map(str::trim).filter(|name| !name.is_empty());
                found.extend(inner.map(|name| format!("{path}::{}", name.split_whitespace().next().unwrap_or(name))));
            }
            None => found.push(path),
        }
    }
    found
}

#[test]
fn every_module_has_a_layer() {
    for source in sources() {
        if source.module == "lib" || source.module.starts_with("bin") {
            continue;
        }
        assert!(layer_of(&source.module).is_some(), "{} is in no layer of the table", source.module);
    }
}

#[test]
fn imports_point_downwards() {
    let mut upwards = Vec::new();
    for source in sources() {
        let Some(own) = layer_of(&source.module) else { continue };
        for path in paths(&source.text) {
            let Some(other) = layer_of(&path) else { continue };
            if other > own {
                upwards.push(format!("{} ({}) uses {path} ({})", source.module, LAYERS[own].0, LAYERS[other].0));
            }
        }
    }
    assert!(upwards.is_empty(), "imports against the direction:\n{}", upwards.join("\n"));
}

#[test]
fn each_foreign_engine_is_known_to_one_place() {
    let mut strangers = Vec::new();
    for source in sources() {
        for (engine, places) in ENGINES {
            let named = source
                .text
                .match_indices(&format!("{engine}::"))
                .any(|(at, _)| !source.text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'));
            if named && !places.iter().any(|place| within(&source.module, place)) {
                strangers.push(format!("{} names {engine}", source.module));
            }
        }
    }
    assert!(strangers.is_empty(), "engines out of place:\n{}", strangers.join("\n"));
}

#[test]
fn judgement_is_pure() {
    let mut impure = Vec::new();
    for source in sources() {
        if layer_of(&source.module).is_none_or(|layer| layer > 1) {
            continue;
        }
        impure.extend(
            IMPURE.iter().filter(|path| source.text.contains(*path)).map(|path| format!("{}: {path}", source.module)),
        );
    }
    assert!(impure.is_empty(), "judgement reaches for the world:\n{}", impure.join("\n"));
}

#[test]
fn the_reader_of_imports_reads_them() {
    let code = "use crate::a::b;\nuse crate::c::{d, e as f};\nlet x = crate::g::h();";
    let expected = ["a::b", "c::d", "c::e", "g::h"];
    assert_eq!(paths(code), expected);
    let layers: BTreeMap<&str, Option<usize>> =
        ["proxy", "proxy::onnx", "audit::record", "audit::chain", "nowhere"].map(|m| (m, layer_of(m))).into();
    assert_eq!(layers["proxy"], Some(1));
    assert_eq!(layers["proxy::onnx"], Some(2));
    assert_eq!(layers["audit::record"], Some(1));
    assert_eq!(layers["audit::chain"], Some(2));
    assert_eq!(layers["nowhere"], None);
}
