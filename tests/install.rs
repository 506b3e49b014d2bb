//! `make install` puts every file where the units and the configuration look for it, and keeps what was edited.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Installs these programs, and stand-ins for models and library, into a folder.
fn install(programs: &Path, built: &Path, to: &Path) -> Output {
    let of = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut make = Command::new("make");
    make.current_dir(root()).arg("install").env_remove("MAKEFLAGS").args([
        of("BINARIES", programs),
        of("LIBRARY", &built.join("libonnxruntime.so.1.31.1")),
        of("MODELS", &built.join("models")),
        of("DESTDIR", to),
    ]);
    make.output().expect("make runs")
}

fn built(folder: &Path) {
    fs::create_dir(folder.join("models")).expect("a folder");
    for name in ["models/judge_trunk.onnx", "models/verdict_head.json", "libonnxruntime.so.1.31.1"] {
        fs::write(folder.join(name), name).expect("written");
    }
}

#[test]
fn everything_is_where_units_and_configuration_look_for_it() {
    let (from, to) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    built(from.path());
    let programs = Path::new(env!("CARGO_BIN_EXE_steadfastd")).parent().expect("a folder");
    let output = install(programs, from.path(), to.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut wanted: Vec<PathBuf> = Vec::new();
    let config = fs::read_to_string(root().join("config/steadfast.toml")).expect("readable");
    let config: toml::Table = config.parse().expect("TOML");
    for value in
        [&config["constitution"], &config["calibration"], &config["proxy"]["models"], &config["proxy"]["onnxruntime"]]
    {
        wanted.push(value.as_str().expect("a path").into());
    }
    let unit = fs::read_to_string(root().join("systemd/steadfastd.service")).expect("readable");
    for line in unit.lines() {
        let named = line.strip_prefix("ExecStart=").or(line.strip_prefix("Documentation=file://"));
        wanted.extend(named.map(|text| text.split(' ').next().unwrap_or_default().into()));
    }
    wanted.push("/etc/steadfast/steadfast.toml".into());
    // Each of these says at its head where it belongs.
    let shared = ["steadfastd.service", "org.steadfast.Guard1.conf", "org.steadfast.Guard1.service"];
    for file in shared.into_iter().chain(["sysusers.d/steadfast.conf", "tmpfiles.d/steadfast.conf"]) {
        let text = fs::read_to_string(root().join("systemd").join(file)).expect("readable");
        let place = text.split_once("Install as").and_then(|(_, rest)| rest.find("/usr").map(|at| &rest[at..]));
        let place = place.and_then(|place| place.split_whitespace().next()).expect("a place");
        wanted.push(place.trim_end_matches('.').into());
    }
    assert!(wanted.len() > 10, "{wanted:?}");
    for path in wanted {
        let installed = to.path().join(path.strip_prefix("/").expect("an absolute path"));
        assert!(installed.exists(), "{} is not installed", path.display());
    }
}

#[test]
fn what_was_edited_is_kept_and_what_is_missing_is_named() {
    let (from, to) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    built(from.path());
    let programs = Path::new(env!("CARGO_BIN_EXE_steadfastd")).parent().expect("a folder");
    assert!(install(programs, from.path(), to.path()).status.success());
    let rules = to.path().join("etc/steadfast/constitution.toml");
    fs::write(&rules, "# ours\n").expect("written");
    let output = install(programs, from.path(), to.path());
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("constitution.toml.new"));
    assert_eq!(fs::read_to_string(&rules).expect("read"), "# ours\n");
    let beside = fs::read_to_string(rules.with_extension("toml.new")).expect("the one that comes with it");
    assert_eq!(beside, fs::read_to_string(root().join("config/constitution.toml")).expect("read"));
    assert!(!to.path().join("etc/steadfast/steadfast.toml.new").exists(), "it was not edited");

    let output = install(from.path(), from.path(), to.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("steadfastd is not there; run make models release first"),
        "{said}"
    );
}
