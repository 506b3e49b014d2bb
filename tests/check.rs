//! The command line around a running guard: every field of an answer, here and over the bus, every way it exits, and what is
//! found afterwards in the log, in the evidence and in a released permit.

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
#[path = "support/planner.rs"]
mod planner;

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use steadfast::audit::evidence::Page;
use steadfast::decision::Reason;
use steadfast::permit::Moment;
use steadfast::permit::keys::{PUBLIC_FILE, PublicKeys};
use steadfast::permit::verify::{Clock, Expectation, Parts, Rejection, Verifier};
use steadfast::triple::Digest;

use bus::{PrivateBus, sealed};
use guard::{GOOD, Home, PLAN, repository};
use planner::{Options, Planner};

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

#[test]
fn the_log_is_listed_shown_and_exported() {
    let bus = PrivateBus::start();
    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    for (instruction, plan) in [(GOOD, PLAN), ("break the rules", PLAN), (GOOD, REFUSED), ("bend", PLAN)] {
        assert!(matches!(code(&check(&home, instruction, plan, &["--bus"])), Some(0 | 3 | 4)), "{instruction}");
    }
    assert_eq!(daemon.stop(), "exit 0");
    let run = |arguments: &[&str]| home.steadfast().arg("log").args(arguments).output().expect("it runs");
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let output = run(arguments);
        assert_eq!(code(&output), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let events = |arguments: &[&str], field: &str| -> Vec<String> {
        let field = |record: &Value| record["event"][field].as_str().unwrap_or_default().to_owned();
        lines(&[arguments, &["--json"]].concat()).iter().map(field).collect()
    };
    assert_eq!(events(&["list"], "verdict"), ["permit", "veto", "refusal", "veto"], "oldest first");
    assert_eq!(events(&["list", "--verdict", "veto"], "reason"), ["constitution", "malleable"]);
    assert_eq!(events(&["list", "--verdict", "refusal"], "verdict"), ["refusal"]);
    assert_eq!(
        (events(&["list", "--since", "60"], "kind").len(), events(&["list", "--since", "0"], "kind").len()),
        (4, 0)
    );
    assert_eq!(code(&run(&["list", "--reason", "because"])), Some(2));
    let words = String::from_utf8(run(&["list", "--verdict", "permit"]).stdout).expect("text");
    assert!(words.lines().count() == 1 && words.contains("permit ") && words.contains("margin +5.00"), "{words}");

    let bent = events(&["list", "--reason", "malleable"], "check_id");
    let shown = lines(&["show", &bent[0][..10], "--json"]);
    let kinds: Vec<&str> = shown.iter().filter_map(|record| record["event"]["kind"].as_str()).collect();
    assert_eq!(kinds, ["received", "decided"], "both halves, by its first digits");
    assert!(shown.iter().all(|record| record["event"]["check_id"] == bent[0].as_str()), "and no other's");
    assert!(
        shown[0].to_string().contains("\"bend\"") && shown[0].to_string().contains("Grasp the cup"),
        "{}",
        shown[0]
    );
    let unknown = run(&["show", "ffffffffffff"]);
    assert_eq!(code(&unknown), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("nothing is recorded as ffffffffffff"));

    let exported = lines(&["export"]);
    let sequence: Vec<u64> = exported.iter().filter_map(|line| line["sequence"].as_u64()).collect();
    assert!(sequence.windows(2).all(|pair| pair[1] == pair[0] + 1), "{sequence:?}");
    let of_kind = |kind: &str| exported.iter().filter(|line| line["record"]["event"]["kind"] == kind).count();
    assert_eq!((of_kind("received"), of_kind("decided"), of_kind("stopped")), (4, 4, 1));
    let verified = lines(&["verify", "--json"]);
    assert_eq!(
        (&verified[0]["whole"], verified[0]["records"].as_u64()),
        (&true.into(), u64::try_from(exported.len()).ok())
    );
    assert_eq!(verified[0]["head"], exported.last().expect("records")["hash"], "the export ends where the chain does");
}

#[test]
fn a_veto_keeps_what_the_robot_saw_before_it() {
    let bus = PrivateBus::start();
    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    let asked = [(GOOD, "synthetic.png"), (GOOD, "coffee.png"), ("break the rules", "coffee.png")];
    for (instruction, image) in asked {
        let mut command = home.steadfast();
        command.args(["check", "--bus", "--instruction", instruction, "--plan", PLAN, "--image"]);
        let output = command.arg(repository().join("tests/data").join(image)).output().expect("it runs");
        assert_eq!(code(&output), Some(if instruction == GOOD { 0 } else { 3 }));
    }
    assert_eq!(daemon.stop(), "exit 0");
    let files = |folder: &str| {
        let entries = fs::read_dir(home.at("audit/evidence").join(folder)).expect("readable");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let pages = files("vetoes");
    assert_eq!((pages.len(), files("images").len()), (1, 2), "one veto; an image that was seen twice is kept once");
    let page: Page = serde_json::from_slice(&fs::read(&pages[0]).expect("readable")).expect("a page");
    assert_eq!(page.check_id, page.exhibits.last().expect("the vetoed one").check_id);
    for (exhibit, (instruction, image)) in page.exhibits.iter().zip(asked) {
        let kept = home.at("audit/evidence/images").join(exhibit.digests.image.to_string());
        let sent = fs::read(repository().join("tests/data").join(image)).expect("readable");
        assert_eq!((exhibit.instruction.as_str(), exhibit.plan.as_str()), (instruction, PLAN), "oldest first");
        assert_eq!((exhibit.digests.image, fs::read(kept).expect("kept")), (Digest::of(&sent), sent), "{image}");
    }
    assert_eq!(page.exhibits.len(), asked.len());
}

#[test]
fn a_release_says_who_and_why_to_whoever_has_the_keys_from_the_bus() {
    let bus = PrivateBus::start();
    let home = Home::new(&bus.address);
    let daemon = home.start();
    let image = fs::read(repository().join("tests/data/coffee.png")).expect("readable");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (token, published, audience) = runtime.block_on(async {
        let planner = Planner::new(&bus.address).await;
        let vetoed = planner.check(sealed(&image), "break the rules", PLAN, Options::new()).await;
        assert_eq!(vetoed, "veto constitution");
        let token = planner.released(&planner.last_check(), "seen on site, it is a toy").await;
        (token, planner.status("public_keys").await, planner.name())
    });
    let keys = PublicKeys::from_jwk_set(&published).expect("a set of keys");
    assert_eq!(
        keys,
        PublicKeys::read(&home.at("keys").join(PUBLIC_FILE)).expect("the file"),
        "on the bus as in the file"
    );
    let parts = Parts { instruction: b"break the rules", image: &image, plan: PLAN.as_bytes() };
    let expectation = Expectation::new("steadfast", &audience, Clock::SameMachine(Moment::now().expect("clocks")));
    let verifier = Verifier::new(keys);
    let released = verifier.examine(&token, parts, &expectation).expect("it is good").released.expect("a release");
    assert_eq!((released.vetoed, released.note.as_str()), (Reason::Constitution, "seen on site, it is a toy"));
    assert_eq!(released.who, format!("uid {}", rustix::process::getuid().as_raw()));
    let strict = Expectation { releases: false, ..expectation };
    assert_eq!(verifier.examine(&token, parts, &strict), Err(Rejection::Release), "an executor may take none");
    drop(daemon);
    let records = home.records();
    let record = records.iter().map(|line| &line["record"]["event"]).find(|event| event["kind"] == "released");
    let record = record.expect("it is written down");
    assert_eq!(
        (record["note"].as_str(), record["who"]["uid"].as_u64()),
        (Some("seen on site, it is a toy"), Some(rustix::process::getuid().as_raw().into()))
    );
}
