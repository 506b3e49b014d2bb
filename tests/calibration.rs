//! The calibration's fits: scale and bias against scikit-learn, and the two guarantees by resampling.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use steadfast::calibration::{
    Choice, ChoiceError, Guarantee, Judged, Request, ScaleError, choose_limits, fit_margin_scale, rates, vetoes,
};
use steadfast::margin::Margin;
use steadfast::statistics::distribution::{binomial_cumulative, normal_cumulative};
use steadfast::statistics::{Finite, Label, Share, Undefined};

const SPLITS: u32 = 200;

fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

fn row(label: Label, refuse_log_odds: f64) -> Judged {
    let refuse_log_odds = Finite::new(refuse_log_odds).expect("finite");
    Judged { label, source: "made up".to_owned(), refuse_log_odds, flip_share: None, malleability: None }
}

fn request(alpha: f64, guarantee: Guarantee) -> Request {
    Request { miss_rate_max: share(alpha), guarantee, false_veto_rate_asked: share(0.1), side_share: share(0.25) }
}

fn high_probability(delta: f64) -> Guarantee {
    Guarantee::HighProbability { delta: share(delta) }
}

/// Unsafe rows at 0, 1, 2, …; safe rows at −0.5, −1.5, …, and one high up so that it never bounds the limit.
fn ladder(unsafe_rows: u32, safe_rows: u32) -> Vec<Judged> {
    let unsafe_rows = (0..unsafe_rows).map(|at| row(Label::Unsafe, f64::from(at)));
    let safe_rows = (0..safe_rows).map(|at| row(Label::Safe, -0.5 - f64::from(at)));
    unsafe_rows.chain(safe_rows).chain([row(Label::Safe, 1e6)]).collect()
}

#[test]
fn two_sided_scale_equals_scikit_learn() {
    let reference: Value = serde_json::from_str(include_str!("reference/malleability.json")).expect("vectors");
    for case in reference["two_sided"].as_array().expect("cases") {
        let margins = |name: &str| -> Vec<Margin> {
            let nats = case[name].as_array().expect("margins").iter();
            nats.map(|nats| Margin::new(nats.as_f64().expect("a number")).expect("finite")).collect()
        };
        let fitted = fit_margin_scale(&margins("comply"), &margins("refuse")).expect("fitted");
        for (ours, name) in [(fitted.scale.get(), "scale"), (fitted.bias.get(), "bias")] {
            assert!((ours - case[name].as_f64().expect("a number")).abs() < 1e-6, "{name}: {ours} {}", case[name]);
        }
        let inverted = fit_margin_scale(&margins("refuse"), &margins("comply"));
        assert!(matches!(inverted, Err(ScaleError::Inverted(scale)) if scale < 0.0));
        assert_eq!(fit_margin_scale(&margins("comply"), &[]), Err(ScaleError::Undefined(Undefined::OneClass)));
    }
}

#[test]
fn sides_that_do_not_overlap_still_have_a_finite_scale() {
    let margins = |nats: [f64; 3]| nats.map(|nats| Margin::new(nats).expect("finite"));
    let fitted = fit_margin_scale(&margins([2.0, 3.0, 4.0]), &margins([-4.0, -3.0, -2.0])).expect("fitted");
    assert!(fitted.scale.get() > 0.1 && fitted.scale.get() < 10.0, "{fitted:?}");
    assert!(fitted.bias.get().abs() < 1e-9, "both sides weigh the same");
}

#[test]
fn the_limit_stands_just_under_the_first_row_it_must_veto() {
    // 99 unsafe rows, α = .05: (misses + 1) / 100 ≤ .05 allows four, the rows at 0 to 3.
    let choice = choose_limits(&ladder(99, 9), request(0.05, Guarantee::Expectation)).expect("achievable");
    let limit = choice.limits.refuse_log_odds_max.get();
    assert!(limit < 4.0 && limit.next_up() >= 4.0, "{limit}");
    assert_eq!((choice.miss.events(), choice.miss.of()), (4, 99));
    assert_eq!((choice.false_veto.events(), choice.false_veto.of()), (1, 10));
    assert!((choice.limits.flip_share_max.get(), choice.limits.malleability_max.get()) == (1.0, 1.0));
    assert_eq!(choice.miss_rate_for_asked, Some(0.01), "one veto in ten is met without a miss");
    // The binomial test is stricter: P(Bin(99, .05) ≤ k) ≤ .05 holds for k = 1, not for k = 2.
    let choice = choose_limits(&ladder(99, 9), request(0.05, high_probability(0.05))).expect("achievable");
    assert_eq!(choice.miss.events(), 1);
    assert!(binomial_cumulative(1, 99, 0.05).expect("defined") <= 0.05);
    assert!(binomial_cumulative(2, 99, 0.05).expect("defined") > 0.05);
}

#[test]
fn too_few_rows_say_what_they_could_show() {
    let expect = |guarantee| match choose_limits(&ladder(18, 5), request(0.05, guarantee)) {
        Err(ChoiceError::NotAchievable { asked: 0.05, smallest, unsafe_rows: 18 }) => smallest,
        other => panic!("{other:?}"),
    };
    for (guarantee, smallest) in
        [(Guarantee::Expectation, 1.0 / 19.0), (high_probability(0.1), 1.0 - 0.1_f64.powf(1.0 / 18.0))]
    {
        assert!((expect(guarantee) - smallest).abs() < 1e-12);
        // What is called achievable is.
        let choice = choose_limits(&ladder(18, 5), request(smallest + 1e-12, guarantee)).expect("achievable");
        assert_eq!(choice.miss.events(), 0);
    }
    let one_side: Vec<Judged> = ladder(40, 0).into_iter().filter(|row| row.label == Label::Unsafe).collect();
    let none = choose_limits(&one_side, request(0.05, Guarantee::Expectation));
    assert_eq!(none, Err(ChoiceError::Undefined(Undefined::OneClass)));
    for delta in [0.0, 1.0] {
        assert!(choose_limits(&ladder(99, 9), request(0.05, high_probability(delta))).is_err());
    }
}

#[test]
fn a_limit_is_never_looser_than_any_safe_row_needs() {
    let mut rows = ladder(99, 9);
    rows.retain(|row| row.label == Label::Unsafe || row.refuse_log_odds.get() < 0.0);
    let choice = choose_limits(&rows, request(0.05, Guarantee::Expectation)).expect("achievable");
    assert_eq!(choice.limits.refuse_log_odds_max.get().to_bits(), (-0.5_f64).to_bits());
    assert_eq!((choice.miss.events(), choice.false_veto.events()), (0, 0));
}

#[test]
fn side_limits_spend_their_part_of_the_false_vetoes_and_catch_what_the_margin_misses() {
    let mut rows = ladder(99, 39);
    for (at, row) in (0_u32..).zip(&mut rows) {
        // Four unsafe rows the margin would miss have unstable verdicts; safe rows' flip shares go up to .4.
        let flips =
            if row.label == Label::Unsafe { f64::from(u8::from(at < 4)) * 0.9 } else { f64::from(at % 5) * 0.1 };
        row.flip_share = Some(share(flips));
    }
    let mut asked = request(0.05, Guarantee::Expectation);
    asked.false_veto_rate_asked = share(0.5);
    asked.side_share = share(0.4);
    let choice = choose_limits(&rows, asked).expect("achievable");
    // A fifth of the 40 safe rows may be vetoed: the eight at .4.
    assert!((choice.limits.flip_share_max.get() - 0.3).abs() < 1e-12);
    let vetoed =
        rows.iter().filter(|row| row.label == Label::Safe && row.flip_share > Some(choice.limits.flip_share_max));
    assert_eq!(vetoed.count(), 8);
    // The rows at 0 to 3 are caught by the flip share, so the margin may let the next four pass.
    assert!((choice.limits.refuse_log_odds_max.get() - 8.0).abs() < 1e-9);
    assert_eq!(choice.miss.events(), 4);

    asked.side_share = share(0.6);
    assert!(choose_limits(&rows, asked).is_err());
    rows[7].flip_share = None;
    asked.side_share = share(0.4);
    let incomplete = choose_limits(&rows, asked);
    assert_eq!(incomplete, Err(ChoiceError::Incomplete { row: 7, reading: "flip share" }));
}

#[test]
fn sources_are_reported_apart() {
    let mut rows = ladder(99, 9);
    for row in rows.iter_mut().filter(|row| row.refuse_log_odds.get() < 10.0 && row.label == Label::Unsafe) {
        row.source = "kitchen".to_owned();
    }
    let choice = choose_limits(&rows, request(0.05, Guarantee::Expectation)).expect("achievable");
    let [kitchen, made_up] = <[_; 2]>::try_from(choice.sources).expect("two sources");
    assert_eq!((kitchen.source.as_str(), made_up.source.as_str()), ("kitchen", "made up"));
    assert_eq!(kitchen.miss.map(|miss| (miss.events(), miss.of())), Some((4, 10)));
    assert_eq!(kitchen.false_veto, None);
    assert_eq!(made_up.miss.map(|miss| (miss.events(), miss.of())), Some((0, 89)));
}

/// A world where log-odds are normal (unsafe at 1.5, safe at −1.5, deviation 1), two decimals, so that ties happen; with
/// `side`, one unsafe row in ten and one safe row in fifty has an unstable verdict.
struct World {
    random: ChaCha8Rng,
    side: bool,
}

impl World {
    fn judged(&mut self, label: Label) -> Judged {
        let radius = (-2.0 * (1.0 - self.random.random::<f64>()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.random.random::<f64>()).cos();
        let (centre, unstable) = match label {
            Label::Unsafe => (1.5, 0.1),
            Label::Safe => (-1.5, 0.02),
        };
        let mut judged = row(label, ((normal + centre) * 100.0).round() / 100.0);
        if self.side {
            let flips = if self.random.random::<f64>() < unstable { 0.6 } else { 0.2 };
            judged.flip_share = Some(share(flips * self.random.random::<f64>()));
        }
        judged
    }

    fn draw(&mut self, unsafe_rows: u32, safe_rows: u32) -> Vec<Judged> {
        let labels = [(Label::Unsafe, unsafe_rows), (Label::Safe, safe_rows)];
        labels.into_iter().flat_map(|(label, n)| (0..n).map(move |_| label)).map(|label| self.judged(label)).collect()
    }
}

/// The true miss rate of each of 200 calibrations on 150 unsafe and 150 safe rows.
fn realised(guarantee: Guarantee, alpha: f64, side: bool) -> Vec<f64> {
    let mut world = World { random: ChaCha8Rng::seed_from_u64(2_026), side };
    let true_miss_rate = |choice: &Choice, world: &mut World| {
        if side {
            let fresh = world.draw(4_000, 0);
            rates(&fresh, &choice.limits).expect("defined").0.expect("unsafe rows").rate()
        } else {
            // Rounded to two decimals, a row passes while it is at most half a step above the limit's last step.
            let step = (choice.limits.refuse_log_odds_max.get() * 100.0).floor() / 100.0 + 0.005;
            normal_cumulative(step - 1.5).expect("defined")
        }
    };
    (0..SPLITS)
        .map(|_| {
            let choice = choose_limits(&world.draw(150, 150), request(alpha, guarantee)).expect("achievable");
            true_miss_rate(&choice, &mut world)
        })
        .collect()
}

#[test]
fn in_expectation_the_miss_rate_stays_at_alpha_over_200_splits() {
    for (alpha, side) in [(0.05, false), (0.1, false), (0.1, true)] {
        let missed = realised(Guarantee::Expectation, alpha, side);
        let n = f64::from(SPLITS);
        let mean = missed.iter().sum::<f64>() / n;
        let error = (missed.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
        // The bound, and from below that it is not bought by vetoing everything.
        assert!(mean <= alpha + 2.0 * error, "{mean} ± {error} at {alpha}");
        assert!(mean >= alpha - 3.0 / 151.0 - 3.0 * error, "{mean} ± {error} at {alpha}");
    }
}

#[test]
fn with_high_probability_the_miss_rate_stays_under_alpha_in_95_of_100_splits() {
    for (alpha, side) in [(0.05, false), (0.1, false), (0.1, true)] {
        let missed = realised(high_probability(0.05), alpha, side);
        let over = missed.iter().filter(|&&rate| rate > alpha).count();
        assert!(over * 20 <= missed.len(), "{over} of {SPLITS} splits over {alpha}");
        let mean = missed.iter().sum::<f64>() / f64::from(SPLITS);
        assert!(mean > alpha / 4.0, "{mean}: not bought by vetoing everything");
    }
}

proptest! {
    #[test]
    fn whatever_the_rows_the_guarantee_holds_on_them(
        unsafe_rows in prop::collection::vec((-5.0..5.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64), 1..80),
        safe_rows in prop::collection::vec((-5.0..5.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64), 1..40),
        alpha in 0.0..=1.0_f64,
        delta in proptest::option::of(0.001..0.999_f64),
        side_share in 0.0..=0.5_f64,
    ) {
        let judge = |label: Label, (log_odds, flips, score): (f64, f64, f64)| {
            let mut judged = row(label, (log_odds * 2.0).round() / 2.0);
            judged.flip_share = Some(share(flips));
            judged.malleability = Some(share(score));
            judged
        };
        let mut rows: Vec<Judged> = unsafe_rows.iter().map(|&row| judge(Label::Unsafe, row)).collect();
        rows.extend(safe_rows.iter().map(|&row| judge(Label::Safe, row)));
        let guarantee = delta.map_or(Guarantee::Expectation, high_probability);
        let request = Request {
            miss_rate_max: share(alpha),
            guarantee,
            false_veto_rate_asked: share(0.2),
            side_share: share(side_share),
        };
        let n = f64::from(u32::try_from(unsafe_rows.len()).expect("small"));
        match choose_limits(&rows, request) {
            Ok(choice) => {
                let misses = rows.iter().filter(|row| row.label == Label::Unsafe && !vetoes(&choice.limits, row)).count();
                prop_assert_eq!(choice.miss.events() as usize, misses);
                let misses = choice.miss.events();
                match delta {
                    None => prop_assert!((f64::from(misses) + 1.0) / (n + 1.0) <= alpha + 1e-9),
                    Some(delta) => prop_assert!(
                        misses == choice.miss.of() && alpha >= 1.0 - 1e-9
                            || binomial_cumulative(misses, choice.miss.of(), alpha).expect("defined") <= delta + 1e-9
                    ),
                }
                prop_assert!(choice.miss_rate_for_asked.is_none_or(|alpha| alpha > 0.0 && alpha < 1.0));
            }
            Err(ChoiceError::NotAchievable { smallest, .. }) => prop_assert!(smallest > alpha && smallest <= 1.0),
            Err(other) => prop_assert!(false, "{other:?}"),
        }
        rows.reverse();
        let again = choose_limits(&rows, request).map(|choice| choice.limits);
        rows.reverse();
        prop_assert_eq!(again, choose_limits(&rows, request).map(|choice| choice.limits), "the order says nothing");
    }
}
