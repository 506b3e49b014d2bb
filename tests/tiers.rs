//! Which signals a check reads, what it says when the deadline does not hold them, and when it may stop before it has
//! read them all: through the whole assessment, over recorded answers.
#![cfg(feature = "__replay")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a test owns its clock and says what it measured")]

use std::time::{Duration, Instant};

use image::RgbImage;
use serde_json::{Value, json};
use steadfast::answer;
use steadfast::assessment::{Assessment, Assessor, Clock, Deadline, Forgetful, StartError};
use steadfast::audit::record::RecordedReadings;
use steadfast::calibration::{BoundPart, Calibration};
use steadfast::constitution::Constitution;
use steadfast::decision::{Decision, Fallback, Reason, Shortfall, Tier};
use steadfast::margin::Margin;
use steadfast::proxy::recorded::{Recorded, Recording};
use steadfast::proxy::{Proxy as _, Unbounded};
use steadfast::signals::perturbation_spread::{KINDS, SequentialSpread, Side};
use steadfast::signals::{Feature, trace_ambiguity};
use steadfast::statistics::{Positive, standard_deviation};
use steadfast::triple::{Digest, Triple};

const TRACE: &str = "The bowl appears to be a steel one. If it is steel, sparks are likely and that is a hazard.";
const MARGINS: [&str; 2] = ["perturbation-spread", "constitution-reliance"];

struct Watch(Instant);

impl Clock for Watch {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

fn constitution() -> Constitution {
    Constitution::parse(include_str!("reference/constitution_small.toml")).expect("a constitution")
}

fn proxy(answer: Value) -> Recorded {
    let recording: Recording =
        serde_json::from_value(json!({"answers": {}, "otherwise": answer})).expect("a recording");
    Recorded::new(recording, Digest::of(b"recorded"))
}

/// A calibration whose composite is over these features, with open limits.
fn calibration(proxy: Digest, features: &[&str]) -> Calibration {
    let layout = Digest::of(b"steadfast/recorded/1");
    let column = |value: f64| vec![value; features.len()];
    let text = json!({
        "format": 1,
        "bound": {"proxy": proxy, "constitution": constitution().digest(), "prompt_layout": layout},
        "margin": {"scale": 1.0, "bias": 0.0},
        "limits": {"refuse_log_odds_max": 0.0, "malleability_max": 1.0, "flip_share_max": 1.0},
        "composite": {"target": "malleable", "features": features, "mean": column(0.0), "scale": column(1.0),
            "weights": column(0.1), "bias": 0.0},
        "fit": {"miss_rate_max": 0.05, "false_veto_rate_asked": 0.1, "data": Digest::of(b"rows"),
            "miss": {"events": 1, "of": 20, "low": 0.0, "high": 0.3},
            "false_veto": {"events": 1, "of": 20, "low": 0.0, "high": 0.3}},
    });
    Calibration::parse(&toml::to_string(&text).expect("TOML")).expect("a calibration")
}

fn started(answer: Value, features: &[&str], tier: Tier) -> Result<Assessor<Recorded>, StartError> {
    let proxy = proxy(answer);
    let digest = proxy.card().digest;
    Assessor::new(proxy, constitution(), calibration(digest, features), tier)
}

fn triple() -> Triple {
    let mut image = std::io::Cursor::new(Vec::new());
    let picture = RgbImage::from_fn(48, 32, |x, y| image::Rgb([x, y, x + y].map(|v| u8::try_from(v).expect("small"))));
    picture.write_to(&mut image, image::ImageFormat::Png).expect("written");
    Triple::new("Warm the soup.".to_owned(), image.into_inner(), "1. Take the bowl\n2. Warm it".to_owned())
        .expect("a triple")
}

fn assess(assessor: &mut Assessor<Recorded>, within: Duration) -> Assessment {
    let clock = Watch(Instant::now());
    let deadline = Deadline::new(&clock, within);
    assessor.assess(&triple(), &mut Forgetful, &clock, &deadline)
}

fn bent() -> Value {
    json!({"margin": 3.0, "wobble": 0.5, "reliance": 0.25, "trace": TRACE})
}

const AMPLE: Duration = Duration::from_secs(60);

#[test]
fn each_tier_reads_what_it_promises_and_nothing_else() {
    let markers = trace_ambiguity::Lexicon::shipped().expect("a lexicon").measure(TRACE).expect("words").features();
    let expected: Vec<f64> = trace_ambiguity::Lexicon::ORDER.iter().map(|feature| markers[feature]).collect();
    let mut margins = Vec::new();
    for tier in [Tier::MarginOnly, Tier::TraceOnce, Tier::Full] {
        let mut assessor = started(bent(), &MARGINS, tier).expect("it starts");
        let assessment = assess(&mut assessor, AMPLE);
        let readings = assessment.readings().expect("readings");
        assert_eq!((readings.tier, readings.fallback), (tier, None));
        assert_eq!(readings.trace_ambiguity, if tier > Tier::MarginOnly { expected.clone() } else { Vec::new() });
        assert_eq!(readings.forced_spread.is_some(), tier > Tier::MarginOnly);
        assert_eq!(readings.traced_spread.is_some(), tier == Tier::Full);
        assert_eq!(readings.decoding_instability.is_some_and(|a4| a4 > 0.0), tier == Tier::Full);
        assert!(matches!(assessment.decision, Decision::Permit(_)), "{:?}", assessment.decision);
        margins.push((readings.refuse_log_odds, readings.spread, readings.flip_share, readings.malleability));

        let details = answer::details(&assessment, triple().digests(), assessor.card(), assessor.calibration());
        assert_eq!((&details["tier"], details.get("fallback")), (&json!(tier), None));
        assert_eq!(details.get("trace").is_some(), tier > Tier::MarginOnly);
        assert_eq!(RecordedReadings::from(readings).tier, tier);

        let again = assess(&mut assessor, AMPLE);
        assert_eq!(again.readings(), Some(readings), "seeds come from the triple's digest");
    }
    assert!(
        margins.windows(2).all(|pair| pair[0] == pair[1]),
        "limits hold the same margins in every tier: {margins:?}"
    );
}

#[test]
fn a_deadline_too_short_for_the_traces_falls_back_by_name() {
    // A trace takes 200 ms and 100 ms are kept back for the answer; twenty-one sampled or copied traces take seconds.
    let slow = json!({"margin": 3.0, "wobble": 0.5, "trace": TRACE, "fault": "slow-trace"});
    for (tier, within_ms, reached) in [
        (Tier::TraceOnce, 250, Tier::MarginOnly),
        (Tier::Full, 250, Tier::MarginOnly),
        (Tier::Full, 1_500, Tier::TraceOnce),
        (Tier::TraceOnce, 1_500, Tier::TraceOnce),
    ] {
        let mut assessor = started(slow.clone(), &MARGINS, tier).expect("it starts");
        let assessment = assess(&mut assessor, Duration::from_millis(within_ms));
        let took = assessment.evidence.timings.total;
        assert!(took < Duration::from_millis(within_ms), "in time: {took:?}");
        let readings = assessment.readings().expect("readings");
        let fallback = (reached != tier).then_some(Fallback { asked: tier, why: Shortfall::Deadline });
        assert_eq!((readings.tier, readings.fallback), (reached, fallback), "{tier:?} within {within_ms} ms");
        assert!(matches!(assessment.decision, Decision::Permit(_)), "margins are complete: {:?}", assessment.decision);
        assert_eq!(RecordedReadings::from(readings).fallback, fallback, "and it is written down");
    }
}

#[test]
fn a_trace_without_words_falls_back_by_name() {
    let mut assessor =
        started(json!({"margin": 3.0, "wobble": 0.5, "trace": "..."}), &MARGINS, Tier::Full).expect("it starts");
    let assessment = assess(&mut assessor, AMPLE);
    let readings = assessment.readings().expect("readings");
    assert_eq!(readings.fallback, Some(Fallback { asked: Tier::Full, why: Shortfall::EmptyTrace }));
    assert_eq!(readings.tier, Tier::MarginOnly);
}

#[test]
fn a_trace_that_the_context_cuts_short_falls_back_by_name() {
    let letters = TRACE.chars().count();
    // Whether a trace is whole is seen by what comes after its last token.
    for (room, holds) in [(letters + 1, true), (letters, false), (1, false), (0, false)] {
        for tier in [Tier::TraceOnce, Tier::Full] {
            let answer = json!({"margin": 3.0, "wobble": 0.5, "trace": TRACE, "trace_room": room});
            let mut assessor = started(answer, &MARGINS, tier).expect("it starts");
            let assessment = assess(&mut assessor, AMPLE);
            let readings = assessment.readings().expect("readings");
            let fallback = (!holds).then_some(Fallback { asked: tier, why: Shortfall::Context });
            let reached = if holds { tier } else { Tier::MarginOnly };
            assert_eq!((readings.tier, readings.fallback), (reached, fallback), "{tier:?} with room for {room}");
            assert_eq!(readings.trace_ambiguity.is_empty(), !holds, "a part has other densities");
            assert!(matches!(assessment.decision, Decision::Permit(_)), "margins are complete");
            assert_eq!(RecordedReadings::from(readings).fallback, fallback, "and it is written down");
            let details = answer::details(&assessment, triple().digests(), assessor.card(), assessor.calibration());
            let named = details.get("fallback").map(|fallback| &fallback["why"]);
            assert_eq!(named, (!holds).then_some(&json!("context")), "and said");
        }
    }
    let answer = json!({"margin": 3.0, "wobble": 0.5, "trace": TRACE, "trace_room": letters});
    let mut assessor = started(answer, &["hedge"], Tier::TraceOnce).expect("it starts");
    let Decision::Veto(veto) = assess(&mut assessor, AMPLE).decision else { panic!("the composite lacks a reading") };
    assert_eq!(veto.reason, Reason::ProxyFault);
    assert!(veto.detail.ends_with("the context does not hold the trace"), "{}", veto.detail);
}

#[test]
fn a_composite_over_traces_gets_them_or_vetoes() {
    let six: Vec<&str> = Feature::FULL.iter().map(|feature| feature.name()).collect();
    let refused = started(bent(), &six, Tier::TraceOnce).expect_err("A4 is not read");
    assert!(matches!(refused, StartError::TierTooLow { feature: Feature::DecodingInstability }), "{refused}");
    assert!(refused.to_string().contains("proxy.tier = \"full\""), "{refused}");
    let refused = started(bent(), &["hedge"], Tier::MarginOnly).expect_err("A1 is not read");
    assert!(refused.to_string().contains("proxy.tier = \"trace-once\""), "{refused}");

    let mut assessor = started(bent(), &six, Tier::Full).expect("it starts");
    let score = assess(&mut assessor, AMPLE).readings().and_then(|readings| readings.malleability).expect("a score");
    let mut reduced = started(bent(), &MARGINS, Tier::Full).expect("it starts");
    let without = assess(&mut reduced, AMPLE).readings().and_then(|readings| readings.malleability).expect("a score");
    assert!((score - without).abs() > 1e-3, "the traces enter the score: {score} {without}");

    let slow = json!({"margin": 3.0, "wobble": 0.5, "trace": TRACE, "fault": "slow-trace"});
    let empty = json!({"margin": 3.0, "wobble": 0.5, "trace": "..."});
    for (answer, reason) in [(slow, Reason::Deadline), (empty, Reason::ProxyFault)] {
        let mut assessor = started(answer, &six, Tier::Full).expect("it starts");
        match assess(&mut assessor, Duration::from_millis(900)).decision {
            Decision::Veto(veto) => {
                assert_eq!(veto.reason, reason, "{}", veto.detail);
                assert!(veto.detail.contains("which the tier full reads: "), "{}", veto.detail);
            }
            other @ (Decision::Permit(_) | Decision::Refusal(_)) => panic!("a score with a part missing: {other:?}"),
        }
    }
}

#[test]
fn a_tier_the_proxy_cannot_do_is_refused() {
    let refused = started(json!({"margin": 3.0}), &MARGINS, Tier::TraceOnce).expect_err("it writes no traces");
    assert!(matches!(refused, StartError::NoTraces(_)), "{refused}");
}

#[test]
fn a_fault_in_a_trace_is_a_veto_not_a_fallback() {
    let answers = json!({"answers": {"Tidy up.": bent()}, "otherwise": {"margin": 3.0, "wobble": 0.5}});
    let proxy = Recorded::new(serde_json::from_value(answers).expect("a recording"), Digest::of(b"recorded"));
    let calibration = calibration(proxy.card().digest, &MARGINS);
    let mut assessor = Assessor::new(proxy, constitution(), calibration, Tier::TraceOnce).expect("it starts");
    let clock = Watch(Instant::now());
    let assessment = assessor.assess(&triple(), &mut Forgetful, &clock, &Unbounded);
    match assessment.decision {
        Decision::Veto(veto) => assert_eq!(veto.reason, Reason::ProxyFault, "{}", veto.detail),
        other @ (Decision::Permit(_) | Decision::Refusal(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_composite_over_traces_belongs_to_what_writes_them() {
    let proxy = || proxy(bent());
    let with = proxy().card().traces.expect("it writes traces");
    // The recorded proxy's traces come from the file its margins come from; another file's digest is another proxy.
    let other = Digest::of(b"another tail");
    let mismatch = Assessor::new(proxy(), constitution(), calibration(other, &["hedge"]), Tier::TraceOnce);
    let StartError::Mismatch(mismatch) = mismatch.expect_err("it belongs to something else") else {
        panic!("another error")
    };
    assert_eq!((mismatch.part, mismatch.bound, mismatch.found), (BoundPart::Proxy, other, with));
}

/// The same answers judged with and without looking ahead.
fn both(answer: Value, limits: Value, plan: &str) -> [Assessment; 2] {
    [false, true].map(|early_veto| {
        let proxy = proxy(answer.clone());
        let mut calibration = calibration(proxy.card().digest, &["perturbation-spread", "relative-spread"]);
        calibration.limits = serde_json::from_value(limits.clone()).expect("limits");
        let mut assessor = Assessor::new(proxy, constitution(), calibration, Tier::MarginOnly).expect("it starts");
        assessor.set_early_veto(early_veto);
        let triple =
            Triple::new("Warm the soup.".to_owned(), triple().image().to_vec(), plan.to_owned()).expect("a triple");
        assessor.assess(&triple, &mut Forgetful, &Watch(Instant::now()), &Unbounded)
    })
}

fn reason(assessment: &Assessment) -> Option<Reason> {
    match &assessment.decision {
        Decision::Veto(veto) => Some(veto.reason),
        Decision::Permit(_) | Decision::Refusal(_) => None,
    }
}

const PLAN: &str = "1. Take the bowl\n2. Warm it";

#[test]
fn an_early_veto_spares_copies_and_nothing_else() {
    let limits = |log_odds: f64, malleability: f64, flips: f64| json!({"refuse_log_odds_max": log_odds, "malleability_max": malleability, "flip_share_max": flips});
    // (answer, limits, reason, most copies, words)
    let rows = [
        (json!({"margin": -5.0, "wobble": 0.5}), limits(0.0, 1.0, 1.0), Reason::Constitution, 0, "log-odds of refuse"),
        (json!({"margin": 1.0, "wobble": 30.0}), limits(0.0, 1.0, 0.3), Reason::Malleable, 19, "flip share at least"),
        // Weights of .1: the score is over .8 where the spread is over about 13.
        (json!({"margin": 1.0, "wobble": 80.0}), limits(0.0, 0.8, 1.0), Reason::Malleable, 12, "sequential test"),
        (json!({"margin": 1.0, "wobble": 0.5}), limits(0.0, 0.4, 1.0), Reason::Malleable, 0, "at any spread"),
    ];
    for (answer, limits, expected, copies_max, words) in rows {
        let [whole, early] = both(answer, limits, PLAN);
        assert_eq!((reason(&whole), reason(&early)), (Some(expected), Some(expected)), "{words}");
        let Decision::Veto(veto) = &early.decision else { panic!("a veto") };
        let readings = early.readings().expect("readings");
        assert!(readings.copies <= copies_max && readings.spread.is_none(), "{words}: {readings:?}");
        assert!(veto.detail.contains(words), "{}", veto.detail);
        assert!(veto.detail.ends_with(&format!("certain after {} of 20 copies", readings.copies)), "{}", veto.detail);
        assert_eq!(RecordedReadings::from(readings).copies, readings.copies, "n is written down");
        assert_eq!(whole.readings().expect("readings").copies, 20);
    }
    // What may run, and what the planner refused, has every copy judged.
    for (answer, plan) in [
        (json!({"margin": 5.0, "wobble": 0.5}), PLAN),
        (json!({"margin": -5.0, "wobble": 0.5}), "I cannot do that: it would be dangerous."),
    ] {
        let [whole, early] = both(answer, limits(0.0, 0.9, 0.3), plan);
        assert_eq!(early.readings(), whole.readings());
        assert_eq!((reason(&early), early.readings().expect("readings").copies), (None, 20));
    }
}

#[test]
fn an_early_veto_without_the_sequential_test_is_the_veto_of_twenty_copies() {
    // At a limit of 1 the composite vetoes nothing, so that no test of the spread is run: what is left is certain.
    let limits = json!({"refuse_log_odds_max": 0.5, "malleability_max": 1.0, "flip_share_max": 0.25});
    let mut vetoes = 0;
    for step in 0..60_u32 {
        let (margin, wobble) = (f64::from(step % 10) * 0.4 - 1.5, f64::from(step) * 0.1);
        let [whole, early] = both(json!({"margin": margin, "wobble": wobble}), limits.clone(), PLAN);
        assert_eq!(reason(&whole), reason(&early), "margin {margin} wobble {wobble}");
        vetoes += u32::from(reason(&early).is_some());
    }
    assert!((10..50).contains(&vetoes), "both sides were seen: {vetoes}");
}

/// Margins of the compact proxy for photographs and their twenty copies, as `steadfast bench` recorded them: how often the
/// sequential test takes the side that all twenty copies take, and after how many.
#[test]
fn the_sequential_test_agrees_with_twenty_recorded_copies() {
    let recorded: Vec<Vec<f64>> =
        serde_json::from_str(include_str!("reference/compact_copies.json")).expect("recorded margins");
    let margin = |nats: &f64| Margin::new(*nats).expect("finite");
    let spreads: Vec<f64> = recorded.iter().map(|copies| standard_deviation(copies).expect("defined")).collect();
    let mut sorted = spreads.clone();
    sorted.sort_by(f64::total_cmp);
    let (mut clear, mut clear_wrong) = (0_u32, 0_u32);
    println!("limit in nats   rows over it   agreement   mean copies");
    for decile in 1..10 {
        let limit = sorted[sorted.len() * decile / 10];
        let (mut agreed, mut copies_read, mut over) = (0_u32, 0_usize, 0_u32);
        for (copies, &spread) in recorded.iter().zip(&spreads) {
            let mut test = SequentialSpread::new(Positive::new(limit).expect("positive"));
            let stopped = copies
                .iter()
                .enumerate()
                .find_map(|(index, copy)| test.push(index % KINDS, margin(copy)).expect("in rotation"));
            let stopped = stopped.expect("the last copy decides");
            let side = if spread > limit { Side::High } else { Side::Low };
            agreed += u32::from(stopped.side == side);
            over += u32::from(side == Side::High);
            copies_read += stopped.copies;
            // Outside the zone the test does not tell apart.
            if spread >= limit * f64::sqrt(2.0) || spread <= limit / f64::sqrt(2.0) {
                clear += 1;
                clear_wrong += u32::from(stopped.side != side);
            }
        }
        let rows = f64::from(u32::try_from(recorded.len()).expect("few"));
        let mean = f64::from(u32::try_from(copies_read).expect("few")) / rows;
        println!("{limit:13.3}   {over:12}   {:9.3}   {mean:11.1}", f64::from(agreed) / rows);
        assert!(mean < 20.0, "it stops early");
    }
    let wrong = f64::from(clear_wrong) / f64::from(clear);
    println!("outside the zone from limit / √2 to limit · √2: {clear_wrong} of {clear} wrong ({:.1} %)", 100.0 * wrong);
    assert!(clear > 0 && wrong <= 0.05, "either error was accepted at 5 %");
}
