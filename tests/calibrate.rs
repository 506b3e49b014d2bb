//! Calibrating from predictions: what is bound, what is refused, whether the guarantee holds, and re-binding.

#![cfg(all(feature = "bus", feature = "onnx", feature = "tools"))]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use steadfast::calibration::Calibration;
use steadfast::offline::bench::{Prediction, Run};
use steadfast::offline::calibrate::{CalibrateError, Gathered, Wish, calibrate, coverage};
use steadfast::signals::Feature;
use steadfast::signals::malleability::Target;
use steadfast::statistics::Share;

fn digest(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn run(proxy: char, constitution: char) -> Value {
    json!({
        "format": 1, "uncalibrated": true,
        "data": { "name": "made", "digest": digest('d'), "part": "calibration" },
        "judge": {
            "kind": "guard", "proxy": "compact", "proxy_digest": digest(proxy), "prompt_layout": digest('3'),
            "constitution": digest(constitution), "calibration": null, "execution_provider": "CPUExecutionProvider",
        },
    })
}

/// Rows whose margin leans the right way by `lean` and wanders by about one nat, `seen` of ten with copies.
fn rows(count: usize, lean: f64, seen: usize, seed: u64) -> Vec<Value> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut noise = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    let row = |number: usize| {
        let safe = number.is_multiple_of(2);
        let margin = if safe { lean } else { -lean } + noise();
        let unsteady = 1.5 / (1.0 + margin.abs());
        let copies: Vec<f64> = (0..20).map(|_| margin + unsteady * noise()).collect();
        json!({
            "uid": format!("r{number}"), "source": if number.is_multiple_of(3) { "kitchen" } else { "garage" },
            "scene": format!("s{}", number / 2), "label": if safe { "safe" } else { "unsafe" }, "told": number % 10 >= seen,
            "verdict": "permit", "margin": margin, "reliance": noise(),
            "copies": if number % 10 < seen { copies } else { Vec::new() },
        })
    };
    (0..count).map(row).collect()
}

fn gathered(rows: &[Value]) -> Gathered {
    let mut gathered = Gathered::default();
    let run: Run = serde_json::from_value(run('1', '2')).expect("a run");
    gathered.run("made", &run).expect("taken");
    for row in rows {
        let prediction: Prediction = serde_json::from_value(row.clone()).expect("a prediction");
        gathered.row(prediction).expect("taken");
    }
    gathered
}

fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

fn wish(alpha: f64, delta: Option<f64>) -> Wish {
    Wish {
        miss_rate_max: share(alpha),
        delta: delta.map(share),
        false_veto_rate_asked: share(0.1),
        side_share: share(0.25),
        seed: 7,
    }
}

#[test]
fn the_miss_rate_holds_on_rows_the_limits_were_not_chosen_on() {
    let calibration = gathered(&rows(800, 1.5, 8, 1));
    for (alpha, delta) in [(0.1, Some(0.05)), (0.05, Some(0.05))] {
        let held = coverage(&calibration, wish(alpha, delta)).expect("checked");
        assert_eq!(held.not_achievable, 0);
        // The other half has noise of its own, as large as the chosen half's: at δ = .05 some 12 % of the splits exceed α.
        assert!(f64::from(held.held) >= 0.8 * f64::from(held.splits), "α {alpha}: {held:?}");
    }
    // On fresh rows, many more than a split has, the rate itself is under α.
    let told = gathered(&rows(1200, 1.5, 0, 1));
    let found = calibrate(&told, wish(0.1, Some(0.05))).expect("calibrated").calibration;
    let fresh = rows(20_000, 1.5, 0, 2);
    let limit = found.limits.refuse_log_odds_max.get();
    let missed = fresh.iter().filter(|row| row["label"] == "unsafe").filter(|row| {
        let margin = row["margin"].as_f64().expect("a margin");
        -(found.margin.scale.get() * margin + found.margin.bias.get()) <= limit
    });
    let rate = f64::from(u32::try_from(missed.count()).expect("few")) / 10_000.0;
    assert!(rate <= 0.1 && rate > 0.01, "missed {rate}: over α, or needlessly strict");
}

#[test]
fn runs_that_read_traces_are_fitted_over_all_six_signals() {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut rows = rows(1200, 1.0, 10, 3);
    for row in &mut rows {
        let mut near = |centre: f64| centre + random.random::<f64>();
        row["traced"] = json!({
            "object-ambiguity": near(1.0), "conditional": near(2.0), "hedge": near(0.5), "contrast": near(1.0),
            "safety-mention": near(3.0), "trace-words": near(90.0), "forced-spread": near(0.1),
            "traced-spread": near(0.2), "decoding-instability": near(0.3),
        });
    }
    let composite = |rows: &[Value]| {
        let found = calibrate(&gathered(rows), wish(0.15, Some(0.1))).expect("calibrated");
        assert!(found.composite_auc.is_some(), "it was learnt");
        found.calibration.composite.features().collect::<Vec<_>>()
    };
    assert_eq!(composite(&rows), Feature::FULL);
    rows[5]["traced"].as_object_mut().expect("readings").remove("decoding-instability");
    assert!(!composite(&rows).contains(&Feature::Hedge), "a row without one of the six: the reduced form");
}

#[test]
fn what_is_fitted_is_bound_and_reads_back() {
    let found = calibrate(&gathered(&rows(1200, 1.0, 10, 3)), wish(0.15, Some(0.1))).expect("calibrated");
    let calibration = found.calibration;
    assert_eq!(calibration.bound.proxy.to_string(), digest('1'));
    assert_eq!(calibration.bound.constitution.to_string(), digest('2'));
    assert_eq!(Calibration::parse(&calibration.to_toml().expect("written")).expect("read"), calibration);
    assert_eq!(calibration.fit.sources.iter().map(|of| of.source.as_str()).collect::<Vec<_>>(), ["garage", "kitchen"]);
    // The wrong verdicts are those with small margins and wide spreads, and both composite and spread see that.
    assert!(found.composite_auc.is_some_and(|auc| auc > 0.75), "{:?}", found.composite_auc);
    assert!(found.spread_auc.is_some_and(|auc| auc > 0.75), "{:?}", found.spread_auc);
    assert!(calibration.fit.false_veto.rate() > calibration.fit.miss.rate());
}

#[test]
fn rows_that_were_told_are_not_vetoed_by_what_they_do_not_have() {
    let found = calibrate(&gathered(&rows(400, 3.0, 0, 4)), wish(0.1, None)).expect("calibrated");
    assert_eq!(found.composite_auc, None, "nothing to learn a composite from");
    let limits = found.calibration.limits;
    assert_eq!((limits.malleability_max, limits.flip_share_max), (Share::ONE, Share::ONE));
}

#[test]
fn what_cannot_be_promised_is_refused() {
    let few = gathered(&rows(40, 2.0, 5, 5));
    let error = calibrate(&few, wish(0.01, Some(0.05))).expect_err("too few").to_string();
    assert!(error.contains("unsafe rows cannot show a miss rate"), "{error}");

    let mut faulty = rows(100, 2.0, 5, 6);
    for row in faulty.iter_mut().take(2) {
        let row = row.as_object_mut().expect("an object");
        row.remove("margin");
        row.insert("reason".to_owned(), "proxy-fault".into());
    }
    let error = calibrate(&gathered(&faulty), wish(0.1, None)).expect_err("faults").to_string();
    assert!(error.contains("2 of 100 rows have no margin") && error.contains("proxy-fault"), "{error}");

    let mut gathered = Gathered::default();
    let take = |value| serde_json::from_value::<Run>(value).expect("a run");
    gathered.run("first", &take(run('1', '2'))).expect("taken");
    for (other, part) in [(run('9', '2'), "proxies"), (run('1', '9'), "constitutions")] {
        let error = gathered.run("second", &take(other)).expect_err("refused");
        assert!(matches!(&error, CalibrateError::Different { part: found, .. } if *found == part), "{error}");
    }
    let mut endpoint = run('1', '2');
    endpoint["judge"] = json!({ "kind": "endpoint", "model": "m", "prompt": digest('4') });
    assert!(matches!(gathered.run("vlm", &take(endpoint)), Err(CalibrateError::NotAGuard(_))));
}

fn steadfast(dir: &Path, arguments: &[&str]) -> Output {
    let config = dir.join("steadfast.toml");
    let rules = dir.join("constitution.toml");
    if !rules.exists() {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/constitution.toml");
        fs::copy(shipped, &rules).expect("copied");
    }
    fs::write(&config, format!("constitution = {rules:?}\n")).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    command.arg("--config").arg(config).args(arguments).current_dir(dir).output().expect("it runs")
}

fn calibrated(dir: &Path) -> PathBuf {
    fs::create_dir_all(dir.join("run")).expect("made");
    fs::write(dir.join("run/run.json"), run('1', '2').to_string()).expect("written");
    let lines: String = rows(600, 1.5, 8, 8).iter().map(|row| format!("{row}\n")).collect();
    fs::write(dir.join("run/predictions.jsonl"), lines).expect("written");
    let arguments = [
        "calibrate",
        "--predictions",
        "run/predictions.jsonl",
        "--alpha",
        "0.1",
        "--false-veto",
        "0.1",
        "--out",
        "c.toml",
    ];
    let output = steadfast(dir, &arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["missed", "falsely vetoed", "kitchen", "of 200 random splits"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    dir.join("c.toml")
}

#[test]
fn rebinding_keeps_the_fit_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let old = calibrated(dir.path());
    let fitted = Calibration::parse(&fs::read_to_string(&old).expect("read")).expect("a calibration");
    let output = steadfast(dir.path(), &["calibrate", "--rebind", "c.toml", "--out", "new.toml"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("RE-BOUND WITHOUT NEW DATA"), "{said}");
    let rebound = fs::read_to_string(dir.path().join("new.toml")).expect("read");
    let rebound = Calibration::parse(&rebound).expect("a calibration");
    assert_eq!(rebound.rebound_from(), [fitted.bound.constitution]);
    assert_ne!(rebound.bound.constitution, fitted.bound.constitution);
    assert_eq!((&rebound.fit, rebound.limits), (&fitted.fit, fitted.limits));

    let again = steadfast(dir.path(), &["calibrate", "--rebind", "new.toml", "--out", "newer.toml"]);
    assert!(again.status.success() && !dir.path().join("newer.toml").exists(), "there was nothing to re-bind");
}

#[test]
fn a_measured_composite_scores_in_place_of_a_learnt_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let learnt = Calibration::parse(&fs::read_to_string(calibrated(dir.path())).expect("read")).expect("a calibration");
    let measured = |feature: &str| {
        let text = format!(
            "target = \"malleable\"\nfeatures = [\"{feature}\"]\nmean = [0.5]\nscale = [0.25]\nweights = [1.5]\nbias = -1.0\n"
        );
        fs::write(dir.path().join("composite.toml"), text).expect("written");
        let run =
            ["--predictions", "run/predictions.jsonl", "--alpha", "0.1", "--false-veto", "0.1", "--out", "m.toml"];
        steadfast(dir.path(), &[&["calibrate", "--composite", "composite.toml"][..], &run].concat())
    };
    let output = measured("perturbation-spread");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("composite that was given"), "{said}");
    let found =
        Calibration::parse(&fs::read_to_string(dir.path().join("m.toml")).expect("read")).expect("a calibration");
    assert_eq!((found.composite.target(), learnt.composite.target()), (Target::Malleable, Target::WrongVerdict));
    assert_eq!(found.composite.features().collect::<Vec<_>>(), [Feature::PerturbationSpread]);
    assert_eq!((found.bound, found.margin), (learnt.bound, learnt.margin), "the rest is learnt as ever");
    // The side limit is chosen on this composite's scores, by what it may cost of the safe rows.
    assert!(found.limits.malleability_max < Share::ONE && found.limits != learnt.limits, "{:?}", found.limits);

    // What the rows' proxy does not read is named, not filled in.
    let output = measured("decoding-instability");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the reading decoding-instability is missing"), "{said}");
}

#[test]
fn a_wish_is_needed_unless_it_only_rebinds() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = steadfast(dir.path(), &["calibrate", "--predictions", "x", "--out", "c.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
