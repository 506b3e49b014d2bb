//! The two callers in examples/, run as they are against the real bus object on a real bus: every way a plan may end,
//! and every way the guard may be gone.
#![cfg(feature = "bus")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what is skipped is said, and actors speak by their output")]
#![allow(clippy::disallowed_methods, reason = "a test owns its clock and its environment")]

#[path = "support/bus.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast::intake::Mode;
use steadfast::intake::bus::Bus;
use steadfast::intake::limits::Limits;
use support::{PrivateBus, Stub, ready, repository};

/// Longest either caller may be.
const LINES_MAX: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_caller_takes_everything_but_a_permit_for_a_no() {
    let python = std::env::var("STEADFAST_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_peer = Command::new(&python).args(["-c", "import dbus_fast"]).output();
    if !has_peer.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python} has no dbus-fast; STEADFAST_TEST_PYTHON names one that has");
        return;
    }
    every_ending(&[python, example("check.py").display().to_string()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cpp_caller_takes_everything_but_a_permit_for_a_no() {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "sdbus-c++"]).output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        println!("skipped: pkg-config knows no sdbus-c++ (Debian: libsdbus-c++-dev libsystemd-dev)");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("check");
    let built = Command::new("g++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror"])
        .arg(example("check.cpp"))
        .arg("-o")
        .arg(&program)
        .args(String::from_utf8_lossy(&flags.stdout).split_whitespace())
        .output()
        .expect("g++ is installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    every_ending(&[program.display().to_string()]).await;
}

#[test]
fn both_callers_stay_short() {
    for name in ["check.py", "check.cpp"] {
        let lines = std::fs::read_to_string(example(name)).expect("the example").lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines");
    }
}

fn example(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

async fn run(caller: &[String], address: &str, image: &Path, plan: &str) -> (Option<i32>, String) {
    let mut command = Command::new(&caller[0]);
    command.args(&caller[1..]).arg(image).args(["fetch the cup", plan]).env("STEADFAST_BUS_ADDRESS", address);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("a task").expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

async fn every_ending(caller: &[String]) {
    let mut bus = PrivateBus::start();
    let address = bus.address.clone();
    let image = bus.folder.path().join("picture");
    std::fs::write(&image, b"a picture").expect("written");

    let (code, said) = run(caller, &address, &image, "1. go").await;
    assert_eq!(code, Some(3), "nobody has the name: {said}");
    assert!(said.starts_with("veto "), "{said}");

    let guard = Stub::new();
    let served = Bus::serve(Some(&address), Arc::clone(&guard), ready(), Limits::default()).await.expect("served");
    assert_eq!(run(caller, &address, &image, "1. go").await, (Some(0), "permit  7369676e6564".to_owned()));
    assert_eq!(run(caller, &address, &image, "knife").await, (Some(3), "veto constitution".to_owned()));
    assert_eq!(run(caller, &address, &image, "refuse").await, (Some(4), "refusal".to_owned()));
    assert_eq!(**guard.images.lock().expect("images").first().expect("one"), *b"a picture");

    // The guard forgets its permit: a D-Bus error.
    let (code, said) = run(caller, &address, &image, "forget the permit").await;
    assert_eq!(code, Some(3), "{said}");
    *guard.mode.lock().expect("mode") = Mode::Shadow;
    assert_eq!(run(caller, &address, &image, "1. go").await, (Some(3), "shadow-permit".to_owned()));
    *guard.mode.lock().expect("mode") = Mode::Enforce;

    let held = guard.gate.acquire_many(1000).await.expect("the gate");
    let begun = Instant::now();
    let (code, said) = run(caller, &address, &image, "1. go").await;
    let took = begun.elapsed();
    assert_eq!(code, Some(3), "silence: {said}");
    assert!(took > Duration::from_secs(5) && took < Duration::from_secs(9), "gave up after {took:?}");
    drop(held);

    let (code, said) = run(caller, &address, Path::new("/nonexistent/picture"), "1. go").await;
    assert_eq!(code, Some(3), "no picture: {said}");
    served.leave().await;
    bus.kill();
    let (code, said) = run(caller, &address, &image, "1. go").await;
    assert_eq!(code, Some(3), "no bus: {said}");
}
