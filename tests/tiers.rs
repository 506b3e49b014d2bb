//! Which signals a check reads, and what it says when the deadline does not hold them: through the whole assessment,
//! over recorded answers.
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
use steadfast::proxy::recorded::{Recorded, Recording};
use steadfast::proxy::{Proxy as _, Unbounded};
use steadfast::signals::{Feature, trace_ambiguity};
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
fn a_fault_in_a_trace_is_a_veto_not_a_fallback() {
    let mut assessor = started(json!({"margin": 3.0, "wobble": 0.5}), &MARGINS, Tier::TraceOnce).expect("it starts");
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
