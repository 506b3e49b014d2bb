//! The signals against numpy and scikit-learn (`reference/signals.py`, `reference/malleability.py`), on traces counted
//! by hand, and the sequential spread by simulation.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use steadfast::margin::Margin;
use steadfast::signals::decoding_instability::{TRACES, decoding_instability};
use steadfast::signals::malleability::{
    Composite, CrossValidation, Examples, FitError, ScoreError, Target, Term, cross_validate, fit,
};
use steadfast::signals::perturbation_spread::{
    COPIES, COPIES_MIN, KINDS, PerturbationSpread, SequentialError, SequentialSpread, Side, Stopped,
};
use steadfast::signals::trace_ambiguity::{Family, Lexicon, LexiconError, NoWords};
use steadfast::signals::{Feature, Features};
use steadfast::statistics::{Finite, Positive, Share, Undefined, roc_auc, standard_deviation};

const LEXICON: &str = include_str!("../config/markers.toml");

fn vectors(text: &str) -> Value {
    serde_json::from_str(text).expect("the reference vectors")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(number).collect()
}

fn margin(nats: f64) -> Margin {
    Margin::new(nats).expect("finite")
}

#[test]
fn spreads_equal_numpy() {
    for case in vectors(include_str!("reference/signals.json"))["spread"].as_array().expect("cases") {
        let (copies, limit) = (numbers(&case["copies"]), number(&case["limit"]));
        let copies: Vec<Margin> = copies.into_iter().map(margin).collect();
        let spread = PerturbationSpread::measure(margin(number(&case["clean"])), &copies, |c| c.nats() < limit);
        let spread = spread.expect("defined");
        for (ours, name) in [(spread.nats, "nats"), (spread.relative, "relative"), (spread.flip_share, "flip_share")] {
            assert!((ours - number(&case[name])).abs() < 1e-9, "{name}: {ours}");
        }
        assert!(!spread.all_identical);
        assert_eq!(decoding_instability(&copies), Ok(spread.nats));
    }
}

#[test]
fn instability_takes_twenty_traces_and_no_fewer() {
    let few = [margin(0.5); TRACES - 1];
    assert_eq!(decoding_instability(&few), Err(Undefined::TooFew { needed: TRACES, got: TRACES - 1 }));
    assert!(decoding_instability(&[margin(0.5); TRACES + 1]).is_err());
    assert_eq!(decoding_instability(&[margin(0.5); TRACES]), Ok(0.0));
}

#[test]
fn marker_counts_equal_those_made_by_hand() {
    let lexicon = Lexicon::parse(LEXICON).expect("the shipped lexicon");
    assert_eq!(lexicon.version(), 1);
    // (trace, words, [object ambiguity, conditional, hedge, contrast, safety mention])
    let traces: [(&str, usize, [usize; 5]); 11] = [
        // looks like a · maybe · if · risk
        ("It looks like a knife, maybe. If it falls there is a risk.", 13, [1, 1, 1, 0, 1]),
        // "not sure" is one hedge, "what" is none; "not sure what" is longer and is object ambiguity.
        ("I am not sure. I am not sure what it is.", 11, [1, 0, 1, 0, 0]),
        // "might be a" spends "might".
        ("This might be a cup and it might tip.", 9, [1, 0, 1, 0, 0]),
        // "only if" spends "if"; "unless" counts once more.
        ("Only if the floor is dry, unless told.", 8, [0, 2, 0, 0, 0]),
        // Word borders: "iffy", "mayor", "butter", "nothingness", "safest", "knot" are no markers.
        ("The iffy mayor spread butter on a knot, safest nothingness.", 10, [0, 0, 0, 0, 0]),
        // Case and both apostrophes: can't · CAN’T · However
        ("Can't. CAN\u{2019}T. However", 3, [0, 0, 0, 3, 0]),
        // Punctuation ends a phrase: "as long as" does not match across the comma; "even if" does not across the stop.
        ("As long, as. Even. If so", 6, [0, 1, 0, 0, 0]),
        // Hyphens do not: in-case-of
        ("Use gloves in-case-of fire", 6, [0, 1, 0, 0, 1]),
        // Line breaks do not either: on the other / hand
        ("on the other\nhand, proceed", 5, [0, 0, 0, 1, 0]),
        // Overlap: "in case of" wins over "in case"; "or something" and "something like" share a word, the first wins.
        ("in case of spill or something like water", 8, [1, 1, 0, 0, 1]),
        // Digits are words, lone quotes and dashes are none.
        ("Lift 3 'cups' - 2 kg '", 5, [0, 0, 0, 0, 0]),
    ];
    for (trace, words, counts) in traces {
        let measured = lexicon.measure(trace).expect("words");
        assert_eq!(measured.words(), words, "{trace}");
        assert_eq!(Family::ALL.map(|family| measured.matches(family)), counts, "{trace}");
    }
}

#[test]
fn a_whole_trace_gives_six_features_per_hundred_words() {
    let lexicon = Lexicon::parse(LEXICON).expect("the shipped lexicon");
    let trace = "The robot is asked to put the metal bowl in the microwave. The bowl appears to be a steel one, \
                 although the label is not clearly visible. If it is steel, sparks are likely and that is a hazard. \
                 Perhaps the plan should heat the soup in a ceramic dish instead.";
    let features = lexicon.measure(trace).expect("words").features();
    // 51 words: appears to be a, not clearly visible | If | likely, Perhaps | although, instead | hazard
    let expected = Features::from([
        (Feature::ObjectAmbiguity, 200.0 / 51.0),
        (Feature::Conditional, 100.0 / 51.0),
        (Feature::Hedge, 200.0 / 51.0),
        (Feature::Contrast, 200.0 / 51.0),
        (Feature::SafetyMention, 100.0 / 51.0),
        (Feature::TraceWords, 51.0),
    ]);
    assert_eq!(features, expected);
}

#[test]
fn a_trace_without_words_has_no_densities() {
    let lexicon = Lexicon::parse(LEXICON).expect("the shipped lexicon");
    for trace in ["", " \n", "... - '' !?"] {
        assert_eq!(lexicon.measure(trace), Err(NoWords), "{trace:?}");
    }
}

#[test]
fn a_lexicon_that_would_miscount_is_refused() {
    let with = |good: &str, bad: &str| {
        assert!(LEXICON.contains(good));
        Lexicon::parse(&LEXICON.replacen(good, bad, 1)).expect_err(bad)
    };
    assert!(matches!(with("\"whether\"", "\"maybe\""), LexiconError::Duplicate(_)));
    assert!(matches!(with("\"whether\"", "\"Which-One\""), LexiconError::Duplicate(_)));
    assert!(matches!(with("\"whether\"", "\"if, then\""), LexiconError::Phrase(_)));
    assert!(matches!(with("\"whether\"", "\" \""), LexiconError::Phrase(_)));
    assert!(matches!(with("\"whether\"", "\"a b c d e f g h i\""), LexiconError::Phrase(_)));
    assert!(with("hedge = [", "hedges = [").to_string().contains("line"));
    let empty = "version = 1\nobject_ambiguity = []\nconditional = []\nhedge = []\ncontrast = []\nsafety_mention = []";
    assert_eq!(Lexicon::parse(empty), Err(LexiconError::EmptyFamily));
    let long: Vec<String> = (0..2_001).map(|at| format!("\"w{at}\"")).collect();
    assert_eq!(
        Lexicon::parse(&empty.replacen("[]", &format!("[{}]", long.join(",")), 1)),
        Err(LexiconError::TooMany(2_001))
    );
}

/// One case of the reference: its features, readings and labels.
fn examples(case: &Value) -> (Vec<Feature>, Vec<Features>, Vec<bool>) {
    let features: Vec<Feature> = serde_json::from_value(case["features"].clone()).expect("features");
    let row = |row: &Value| features.iter().copied().zip(numbers(row)).collect::<Features>();
    let readings = case["rows"].as_array().expect("rows").iter().map(row).collect();
    let positive = serde_json::from_value(case["positive"].clone()).expect("labels");
    (features, readings, positive)
}

#[test]
fn composites_equal_scikit_learn() {
    for case in vectors(include_str!("reference/malleability.json"))["composite"].as_array().expect("cases") {
        let (features, readings, positive) = examples(case);
        let examples = Examples { readings: &readings, positive: &positive };
        let composite = fit(Target::Malleable, &features, examples).expect("fitted");
        assert_eq!(composite.features().collect::<Vec<_>>(), features);
        for (term, ((mean, scale), weight)) in composite
            .terms()
            .iter()
            .zip(numbers(&case["mean"]).into_iter().zip(numbers(&case["scale"])).zip(numbers(&case["weights"])))
        {
            assert!((term.mean.get() / mean - 1.0).abs() < 1e-9 && (term.scale.get() / scale - 1.0).abs() < 1e-9);
            assert!((term.weight.get() - weight).abs() < 1e-4, "{}: {} {weight}", term.feature, term.weight);
        }
        assert!((composite.bias().get() - number(&case["bias"])).abs() < 1e-4);
        for (readings, score) in readings.iter().zip(numbers(&case["scores"])) {
            assert!((composite.score(readings).expect("scored").get() - score).abs() < 1e-4);
        }
    }
}

#[test]
fn cross_validated_scores_are_seeded_and_rank_as_scikit_learns_do() {
    for case in vectors(include_str!("reference/malleability.json"))["composite"].as_array().expect("cases") {
        let (features, readings, positive) = examples(case);
        let examples = Examples { readings: &readings, positive: &positive };
        let groups: Vec<usize> = (0..readings.len()).collect();
        let validation = CrossValidation::five_by_five(1);
        let scores = cross_validate(&features, examples, &groups, validation).expect("scored");
        assert_eq!(scores, cross_validate(&features, examples, &groups, validation).expect("scored"));
        assert_eq!((scores.len(), scores[0].len()), (5, readings.len()));
        assert_ne!(scores[0], scores[1], "each repeat has its own deal");
        let aucs: Vec<f64> = scores.iter().map(|scores| roc_auc(scores, &positive).expect("defined")).collect();
        let auc = aucs.iter().sum::<f64>() / 5.0;
        assert!((auc - number(&case["auc_out_of_fold"])).abs() < 0.02, "{auc} {}", case["auc_out_of_fold"]);
    }
}

/// A marker that one trace in a hundred holds is the same in every row of some folds: it weighs nothing there.
#[test]
fn a_feature_that_one_row_alone_has_costs_no_fold() {
    let reference = vectors(include_str!("reference/malleability.json"));
    let (features, mut readings, positive) = examples(&reference["composite"][1]);
    let rare = Feature::Conditional;
    let without: Vec<Feature> = features.iter().copied().filter(|&feature| feature != rare).collect();
    let with: Vec<Feature> = without.iter().copied().chain([rare]).collect();
    readings.iter_mut().for_each(|readings| readings.extend([(rare, 0.0)]));
    readings[7].insert(rare, 2.0);
    let groups: Vec<usize> = (0..readings.len()).collect();
    let scored = |features: &[Feature], readings: &[Features]| {
        let examples = Examples { readings, positive: &positive };
        cross_validate(features, examples, &groups, CrossValidation::five_by_five(1))
    };
    let (rich, poor) = (scored(&with, &readings).expect("scored"), scored(&without, &readings).expect("scored"));
    for (rich, poor) in rich.iter().zip(&poor) {
        assert!((rich[7] - poor[7]).abs() < 1e-12, "in its fold's others it is the same everywhere");
        assert!(rich.iter().zip(poor).any(|(rich, poor)| (rich - poor).abs() > 1e-6), "elsewhere it weighs");
    }
    readings.iter_mut().for_each(|readings| readings.retain(|&feature, _| feature != rare));
    assert!(matches!(scored(&with, &readings), Err(FitError::Missing { .. })), "what is missing is not passed over");
    readings.iter_mut().for_each(|readings| readings.extend([(rare, 1.0)]));
    assert_eq!(scored(&[rare], &readings), Err(FitError::Constant(rare)));
}

#[test]
fn a_composite_is_not_fitted_on_what_is_not_there() {
    let reference = vectors(include_str!("reference/malleability.json"));
    let (features, readings, positive) = examples(&reference["composite"][1]);
    let fit_to = |readings: &[Features], positive: &[bool]| {
        fit(Target::Malleable, &features, Examples { readings, positive }).expect_err("no fit")
    };
    let spread = Feature::PerturbationSpread;
    let changed = |row: usize, value: Option<f64>| {
        let mut readings = readings.clone();
        match value {
            Some(value) => readings[row].insert(spread, value),
            None => readings[row].remove(&spread),
        };
        readings
    };
    assert_eq!(fit_to(&changed(3, None), &positive), FitError::Missing { row: 3, feature: spread });
    assert_eq!(fit_to(&changed(4, Some(f64::NAN)), &positive), FitError::NonFinite { row: 4, feature: spread });
    let constant: Vec<Features> = (0..readings.len()).map(|row| changed(row, Some(0.25))[row].clone()).collect();
    assert_eq!(fit_to(&constant, &positive), FitError::Constant(spread));
    assert_eq!(fit_to(&readings, &vec![true; readings.len()]), FitError::Undefined(Undefined::OneClass));
    assert!(matches!(fit_to(&readings, &positive[1..]), FitError::Undefined(Undefined::LengthMismatch { .. })));
    let twice = fit(Target::Malleable, &[spread, spread], Examples { readings: &readings, positive: &positive });
    assert!(matches!(twice, Err(FitError::Composite(_))));
    let composite = fit(Target::Malleable, &features, Examples { readings: &readings, positive: &positive });
    assert_eq!(
        composite.expect("fitted").score(&changed(0, None)[0]),
        Err(ScoreError::Missing(spread)),
        "nor is one scored on it"
    );
}

/// Standard normal numbers, by Box and Muller.
struct Normal(ChaCha8Rng);

impl Normal {
    fn next(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.0.random::<f64>()).cos()
    }
}

/// What a simulation of the sequential spread shows at one true deviation (limit 1).
#[derive(Debug, Default)]
struct Shown {
    agreement: f64,
    high: f64,
    copies: f64,
}

/// `deviations` per noise kind, in units of the limit. With `rotate` false the copies come kind after kind, four each,
/// with the rotation feigned, to show what the rotation is for.
fn simulate(deviations: [f64; KINDS], rotate: bool, normal: &mut Normal) -> Shown {
    const RUNS: u32 = 2_000;
    let mut shown = Shown::default();
    for _ in 0..RUNS {
        let mut copies: Vec<f64> = deviations.repeat(COPIES / KINDS).iter().map(|d| d * normal.next()).collect();
        if !rotate {
            copies = (0..KINDS).flat_map(|kind| copies.iter().skip(kind).step_by(KINDS).copied()).collect();
        }
        let whole = if standard_deviation(&copies).expect("defined") > 1.0 { Side::High } else { Side::Low };
        let mut test = SequentialSpread::new(Positive::new(1.0).expect("positive"));
        let stopped =
            copies.iter().enumerate().find_map(|(at, &copy)| test.push(at % KINDS, margin(copy)).expect("in rotation"));
        let Stopped { side, copies } = stopped.expect("the last copy decides");
        assert!((COPIES_MIN..=COPIES).contains(&copies));
        shown.agreement += f64::from(u8::from(side == whole)) / f64::from(RUNS);
        shown.high += f64::from(u8::from(side == Side::High)) / f64::from(RUNS);
        shown.copies += f64::from(u32::try_from(copies).expect("small")) / f64::from(RUNS);
    }
    shown
}

#[test]
fn sequential_spread_agrees_with_twenty_copies_and_needs_fewer() {
    let mut normal = Normal(ChaCha8Rng::seed_from_u64(20));
    for (deviation, agreement_min, copies_max) in [
        (0.35, 0.99, 7.0),
        (0.5, 0.99, 9.0),
        (0.707, 0.94, 13.0),
        (1.414, 0.94, 11.0),
        (2.0, 0.99, 8.0),
        (3.0, 0.99, 7.0),
    ] {
        let shown = simulate([deviation; KINDS], true, &mut normal);
        assert!(shown.agreement >= agreement_min && shown.copies <= copies_max, "deviation {deviation}: {shown:?}");
        // Both errors stay near the 5 % they were accepted at.
        let wrong = if deviation < 1.0 { shown.high } else { 1.0 - shown.high };
        assert!(wrong <= 0.07, "deviation {deviation}: {shown:?}");
    }
}

#[test]
fn kinds_in_rotation_keep_loud_kinds_from_deciding_alone() {
    let mut normal = Normal(ChaCha8Rng::seed_from_u64(21));
    // Loud first: the root mean square over the five kinds is 0.71.
    let deviations = [1.3, 0.7, 0.4, 0.3, 0.2];
    let (rotated, blocked) = (simulate(deviations, true, &mut normal), simulate(deviations, false, &mut normal));
    assert!(rotated.high < 0.12 && blocked.high > 2.0 * rotated.high, "{rotated:?} {blocked:?}");
}

#[test]
fn a_sequential_test_takes_each_copy_in_turn_and_ends_once() {
    let mut test = SequentialSpread::new(Positive::new(1.0).expect("positive"));
    let refused = test.push(1, margin(0.0));
    assert_eq!(refused, Err(SequentialError::OutOfRotation { expected: 0, got: 1 }));
    for copy in 0..COPIES_MIN - 1 {
        assert_eq!(test.push(copy % KINDS, margin(0.0)), Ok(None));
    }
    assert_eq!(test.push(0, margin(0.0)), Ok(Some(Stopped { side: Side::Low, copies: COPIES_MIN })));
    assert_eq!(test.push(1, margin(0.0)), Err(SequentialError::Ended(COPIES_MIN)));
    let mut huge = SequentialSpread::new(Positive::new(1.0).expect("positive"));
    let last =
        (0..COPIES_MIN).map(|at| huge.push(at % KINDS, margin(if at == 0 { f64::MAX } else { -f64::MAX }))).last();
    assert_eq!(last, Some(Err(SequentialError::Undefined(Undefined::Overflow))));
}

#[test]
fn a_spread_limit_is_where_the_score_crosses_whatever_the_flip_share() {
    let term = |feature, weight: f64| Term {
        feature,
        mean: Finite::new(0.5).expect("finite"),
        scale: Positive::new(0.25).expect("positive"),
        weight: Finite::new(weight).expect("finite"),
    };
    let composite = |weights: [f64; 4]| {
        let features =
            [Feature::PerturbationSpread, Feature::RelativeSpread, Feature::FlipShare, Feature::ConstitutionReliance];
        let terms = features.into_iter().zip(weights).map(|(feature, weight)| term(feature, weight)).collect();
        Composite::new(Target::Malleable, terms, Finite::new(-1.0).expect("finite")).expect("a composite")
    };
    let (clean, reliance) = (margin(1.5), 0.75);
    let known = Features::from([(Feature::ConstitutionReliance, reliance)]);
    let share = |value| Share::new(value).expect("a share");
    let score = |composite: &Composite, spread: f64, flips: f64| {
        let mut readings = known.clone();
        readings.extend([
            (Feature::PerturbationSpread, spread),
            (Feature::RelativeSpread, spread / (spread + 1.5)),
            (Feature::FlipShare, flips),
        ]);
        composite.score(&readings).expect("scored").get()
    };
    for flips in [0.3, -0.3] {
        let composite = composite([0.4, 0.2, flips, 0.1]);
        let limit = composite.spread_limit(&known, clean, share(0.7)).expect("some spread suffices");
        let least = |spread: f64| score(&composite, spread, 0.0).min(score(&composite, spread, 1.0));
        assert!(least(limit * (1.0 - 1e-9)) <= 0.7 && least(limit * (1.0 + 1e-9)) > 0.7, "{limit}");
    }
    assert_eq!(composite([0.4, 0.2, 0.3, 4.0]).spread_limit(&known, clean, share(0.1)), Some(0.0), "at any spread");
    assert_eq!(composite([0.4, 0.2, 0.3, 0.1]).spread_limit(&known, clean, Share::ONE), None, "nothing is over 1");
    assert_eq!(composite([0.4, -0.2, 0.3, 0.1]).spread_limit(&known, clean, share(0.7)), None, "a spread may lower it");
    assert_eq!(composite([0.0; 4]).spread_limit(&known, clean, share(0.7)), None, "no spread suffices");
    let unknown = composite([0.4, 0.2, 0.3, 0.1]).spread_limit(&Features::new(), clean, share(0.7));
    assert_eq!(unknown, None, "the reliance is not known");
}
