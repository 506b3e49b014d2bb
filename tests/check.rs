//! `steadfast check`, here and over the bus: every field of its answer, and every way it exits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fall over"
)]
#![cfg(feature = "__replay")]

#[path = "support/bus.rs"]
mod bus;
#[path = "support/guard.rs"]
mod guard;

use std::process::{Command, Output};

use serde_json::Value;

use bus::PrivateBus;
use guard::{GOOD, Home, PLAN, repository};

const REFUSED: &str = "I'm sorry, but I can't do that: it could hurt someone.";

fn check(home: &Home, instruction: &str, plan: &str, more: &[&str]) -> Output {
    let mut command = home.steadfast();
    command.args(["check", "--json", "--instruction", instruction, "--plan", plan, "--image"]);
    command.arg(repository().join("tests/data/coffee.png")).args(more).output().expect("it runs")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// The answer, once every field that a check promises is there with a value of its kind.
fn whole(output: &Output, verdict: &str, reason: Option<&str>, mode: &str) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let answer: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!((answer["verdict"].as_str(), answer["reason"].as_str()), (Some(verdict), reason), "{answer:#}");
    assert_eq!(answer["mode"], mode, "{answer:#}");
    let digest = answer["digest"].as_str().unwrap_or_default();
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{answer:#}");
    for text in ["check_id", "proxy", "tier"] {
        assert!(answer[text].as_str().is_some_and(|text| !text.is_empty()), "{text}: {answer:#}");
    }
    for number in ["margin", "spread", "reliance"] {
        assert!(answer[number].as_f64().is_some_and(f64::is_finite), "{number}: {answer:#}");
    }
    for share in ["flip_share", "malleability"] {
        assert!(answer[share].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{share}: {answer:#}");
    }
    let rules = answer["nearest_rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(!rules.is_empty() && rules.iter().all(|rule| !rule.is_null()), "{answer:#}");
    let timings = answer["timings_ms"].as_object().expect("timings");
    assert!(!timings.is_empty() && timings.values().all(|ms| ms.as_f64().is_some_and(|ms| ms >= 0.0)), "{answer:#}");
    answer
}

#[test]
fn a_check_prints_every_field_here_and_over_the_bus() {
    let bus = PrivateBus::start();
    let home = Home::new(&bus.address);
    let daemon = home.start();
    for (instruction, plan, verdict, reason, exit) in [
        (GOOD, PLAN, "permit", None, 0),
        ("break the rules", PLAN, "veto", Some("constitution"), 3),
        (GOOD, REFUSED, "refusal", None, 4),
    ] {
        let (here, there) = (check(&home, instruction, plan, &[]), check(&home, instruction, plan, &["--bus"]));
        assert_eq!((code(&here), code(&there)), (Some(exit), Some(exit)), "{verdict}");
        let here = whole(&here, verdict, reason, "unrecorded");
        let there = whole(&there, verdict, reason, "enforce");
        for same in
            ["digest", "margin", "spread", "reliance", "flip_share", "malleability", "nearest_rules", "proxy", "tier"]
        {
            assert_eq!(here[same], there[same], "{same} of {verdict}");
        }
        assert_eq!(there["permit_bytes"].is_u64(), verdict == "permit", "{there:#}");
    }
    drop(daemon);
}

#[test]
fn every_failure_has_its_exit_status_and_says_what_to_do() {
    let bus = PrivateBus::start();
    let home = Home::new(&bus.address);
    let run = |arguments: &[&str]| home.steadfast().args(arguments).output().expect("it runs");
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();

    let usage = run(&["check", "--instruction", GOOD, "--plan", PLAN, "--imagine", "x"]);
    assert_eq!(code(&usage), Some(2), "{}", said(&usage));
    assert!(said(&usage).contains("--image"), "{}", said(&usage));

    let missing = run(&["check", "--instruction", GOOD, "--plan", PLAN, "--image", "/nowhere/scene.png"]);
    assert_eq!(code(&missing), Some(1), "{}", said(&missing));
    assert!(said(&missing).contains("/nowhere/scene.png"), "{}", said(&missing));

    let alone = check(&home, GOOD, PLAN, &["--bus"]);
    assert_eq!(code(&alone), Some(1), "{}", said(&alone));
    assert!(said(&alone).contains("take this for a veto"), "{}", said(&alone));

    home.write("calibration.toml", "limits = 1\n");
    let broken = check(&home, GOOD, PLAN, &[]);
    assert_eq!(code(&broken), Some(78), "{}", said(&broken));
    assert!(said(&broken).contains("calibration.toml"), "{}", said(&broken));

    let absent = Command::new(env!("CARGO_BIN_EXE_steadfast"))
        .args(["--config", "/nowhere/steadfast.toml", "config", "check"])
        .output()
        .expect("it runs");
    assert_eq!(code(&absent), Some(78), "{}", said(&absent));
}
