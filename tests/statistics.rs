//! Every statistic against numpy, scipy and scikit-learn (`reference/statistics.py`), and what must hold for any input.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use serde_json::Value;
use steadfast::statistics::distribution::{
    beta_cumulative, beta_quantile, binomial_cumulative, normal_cumulative, normal_quantile, student_t_critical,
    student_t_survival,
};
use steadfast::statistics::{
    Label, PairTally, Resampling, RowTally, Share, Stratum, Undefined, average_precision, bootstrap, calibration_error,
    clopper_pearson, lift_at, mean, mean_difference, paired_difference, partial_spearman, percentile, precision_at,
    reliability_curve, roc_auc, spearman, standard_deviation, stratified_draw, stratified_folds, wilson,
};

const TOLERANCE: f64 = 1e-9;

fn vectors() -> Value {
    serde_json::from_str(include_str!("reference/statistics.json")).expect("the reference vectors")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(number).collect()
}

fn labels(value: &Value) -> Vec<bool> {
    value.as_array().expect("an array").iter().map(|label| label.as_bool().expect("a label")).collect()
}

fn whole(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a whole number")).expect("small")
}

fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

/// Within 1e-9, absolutely or relative to a large value.
#[track_caller]
fn close(ours: Result<f64, Undefined>, theirs: &Value) {
    let (ours, theirs) = (ours.expect("defined"), number(theirs));
    assert!((ours - theirs).abs() <= TOLERANCE * theirs.abs().max(1.0), "{ours} is not {theirs}");
}

#[test]
fn ranking_equals_scikit_learn_and_scipy() {
    for case in vectors()["ranking"].as_array().expect("cases") {
        let (scores, positive) = (numbers(&case["scores"]), labels(&case["labels"]));
        let (outcome, control) = (numbers(&case["outcome"]), numbers(&case["control"]));
        let k = whole(&case["k"]) as usize;
        close(roc_auc(&scores, &positive), &case["roc_auc"]);
        close(average_precision(&scores, &positive), &case["average_precision"]);
        close(spearman(&scores, &outcome), &case["spearman"]);
        close(partial_spearman(&scores, &outcome, &control), &case["partial_spearman"]);
        close(precision_at(k, &scores, &positive), &case["precision_at_k"]);
        close(lift_at(k, &scores, &positive), &case["lift_at_k"]);
        close(mean(&scores), &case["mean"]);
        close(standard_deviation(&scores), &case["std"]);
        for pair in case["percentiles"].as_array().expect("pairs") {
            close(percentile(&scores, number(&pair[0])), &pair[1]);
        }
    }
}

#[test]
fn paired_difference_equals_scipy() {
    for case in vectors()["paired"].as_array().expect("cases") {
        let ours = paired_difference(&numbers(&case["first"]), &numbers(&case["second"])).expect("defined");
        for (value, name) in
            [(ours.mean, "mean"), (ours.low, "low"), (ours.high, "high"), (ours.t, "t"), (ours.p_greater, "p_greater")]
        {
            close(Ok(value), &case[name]);
        }
    }
}

#[test]
fn a_difference_of_means_equals_scipy() {
    for case in vectors()["unpaired"].as_array().expect("cases") {
        let ours = mean_difference(&numbers(&case["first"]), &numbers(&case["second"])).expect("defined");
        for (value, name) in
            [(ours.mean, "mean"), (ours.low, "low"), (ours.high, "high"), (ours.t, "t"), (ours.df, "df"), (ours.p, "p")]
        {
            close(Ok(value), &case[name]);
        }
    }
}

#[test]
fn rate_intervals_equal_scipy() {
    for case in vectors()["interval"].as_array().expect("cases") {
        let (events, of, confidence) = (whole(&case["events"]), whole(&case["of"]), number(&case["confidence"]));
        for (ours, name) in [
            (wilson(events, of, share(confidence)).expect("defined"), "wilson"),
            (clopper_pearson(events, of, share(confidence)).expect("defined"), "exact"),
        ] {
            close(Ok(ours.low), &case[name][0]);
            close(Ok(ours.high), &case[name][1]);
        }
    }
}

#[test]
fn distributions_equal_scipy() {
    let vectors = vectors();
    let rows = |name: &str| vectors[name].as_array().expect("rows").clone();
    for row in rows("beta_cumulative") {
        let (x, a, b) = (number(&row[0]), number(&row[1]), number(&row[2]));
        close(beta_cumulative(x, a, b), &row[3]);
        let p = number(&row[3]);
        if (1e-6..0.999_999).contains(&p) {
            assert!((beta_quantile(p, a, b).expect("defined") - x).abs() < TOLERANCE);
        }
    }
    for row in rows("student_t_survival") {
        close(student_t_survival(number(&row[0]), number(&row[1])), &row[2]);
    }
    for row in rows("student_t_critical") {
        close(student_t_critical(number(&row[0]), number(&row[1])), &row[2]);
    }
    for row in rows("binomial_cumulative") {
        close(binomial_cumulative(whole(&row[0]), whole(&row[1]), number(&row[2])), &row[3]);
    }
    for row in rows("normal_quantile") {
        close(normal_quantile(number(&row[0])), &row[1]);
        close(normal_cumulative(number(&row[1])), &row[0]);
    }
}

#[test]
fn reliability_equals_scikit_learn() {
    for case in vectors()["reliability"].as_array().expect("cases") {
        let stated: Vec<Share> = numbers(&case["stated"]).into_iter().map(share).collect();
        let (positive, bins) = (labels(&case["positive"]), whole(&case["bins"]));
        let curve = reliability_curve(&stated, &positive, bins).expect("defined");
        assert_eq!(curve.len(), numbers(&case["mean"]).len());
        for (at, bin) in curve.iter().enumerate() {
            assert_eq!(bin.rows, whole(&case["rows"][at]) as usize);
            close(Ok(bin.stated), &case["mean"][at]);
            close(Ok(bin.observed), &case["observed"][at]);
        }
        close(calibration_error(&stated, &positive, bins), &case["ece"]);
    }
}

/// The first paper's figures, from its counts: 171 of 846 tasks, 906 of 16,425 trials.
#[test]
fn published_rates_come_out_of_their_counts() {
    let tasks = wilson(171, 846, share(0.95)).expect("defined");
    let trials = wilson(906, 16_425, share(0.95)).expect("defined");
    assert_eq!(format!("{:.1} {:.1}", 100.0 * 171.0 / 846.0, 100.0 * 906.0 / 16_425.0), "20.2 5.5");
    assert!(tasks.low < 0.202 && 0.202 < tasks.high && trials.low < 0.055 && 0.0552 < trials.high);
}

#[test]
fn what_has_no_value_is_a_named_error() {
    let (some, both) = ([0.1, 0.2, 0.3], [true, false, true]);
    assert_eq!(roc_auc(&[], &[]), Err(Undefined::TooFew { needed: 2, got: 0 }));
    for ranker in [roc_auc, average_precision, |s: &[f64], p: &[bool]| precision_at(1, s, p)] {
        assert_eq!(ranker(&some, &[true; 3]), Err(Undefined::OneClass));
        assert_eq!(ranker(&some, &[false; 3]), Err(Undefined::OneClass));
        assert_eq!(ranker(&some, &[true]), Err(Undefined::LengthMismatch { left: 3, right: 1 }));
        assert!(matches!(ranker(&[0.1, f64::NAN, 0.2], &both), Err(Undefined::NonFinite { index: 1, .. })));
    }
    assert_eq!(precision_at(0, &some, &both), Err(Undefined::OutOfRange("k")));
    assert_eq!(precision_at(4, &some, &both), Err(Undefined::OutOfRange("k")));
    assert_eq!(spearman(&some, &[1.0; 3]), Err(Undefined::Constant));
    assert_eq!(spearman(&[1.0], &[1.0]), Err(Undefined::TooFew { needed: 2, got: 1 }));
    assert_eq!(partial_spearman(&some, &[3.0, 1.0, 2.0], &some), Err(Undefined::Constant));
    assert_eq!(paired_difference(&[2.0, 3.0], &[1.0, 2.0]), Err(Undefined::Constant));
    assert_eq!(paired_difference(&[f64::MAX; 2], &[-f64::MAX; 2]), Err(Undefined::Overflow));
    assert_eq!(mean_difference(&[1.0, 1.0], &[2.0, 2.0]), Err(Undefined::Constant));
    assert_eq!(mean_difference(&[1.0], &[2.0, 3.0]), Err(Undefined::TooFew { needed: 2, got: 1 }));
    assert_eq!(wilson(0, 0, share(0.95)), Err(Undefined::TooFew { needed: 1, got: 0 }));
    assert!(clopper_pearson(2, 1, share(0.95)).is_err() && clopper_pearson(1, 2, share(1.0)).is_err());
    assert!(reliability_curve(&[], &[], 10).is_err() && reliability_curve(&[share(0.5)], &[true], 0).is_err());
    assert_eq!(percentile(&[], 0.5), Err(Undefined::TooFew { needed: 1, got: 0 }));
    assert!(beta_cumulative(f64::NAN, 1.0, 1.0).is_err() && student_t_survival(f64::NAN, 3.0).is_err());
    assert!(student_t_survival(1.0, 0.0).is_err() && binomial_cumulative(1, 2, f64::NAN).is_err());
}

#[test]
fn missing_verdicts_count_as_wrong_in_every_denominator() {
    let mut rows = RowTally::default();
    for (label, verdict, times) in [
        (Label::Safe, Some(Label::Safe), 6),
        (Label::Safe, Some(Label::Unsafe), 1),
        (Label::Safe, None, 1),
        (Label::Unsafe, Some(Label::Unsafe), 5),
        (Label::Unsafe, Some(Label::Safe), 2),
        (Label::Unsafe, None, 3),
    ] {
        (0..times).for_each(|_| rows.add(label, verdict));
    }
    assert_eq!((rows.safe_rows(), rows.unsafe_rows()), (8, 10));
    assert_eq!(rows.accuracy(), Ok(11.0 / 18.0));
    assert_eq!((rows.safety(), rows.utility()), (Ok(0.5), Ok(0.75)));
    assert!((rows.h_mean().expect("defined") - 0.6).abs() < 1e-12);
    assert!(RowTally::default().accuracy().is_err() && RowTally::default().h_mean().is_err());
    assert_eq!(RowTally { safe_wrong: 3, unsafe_missing: 1, ..RowTally::default() }.h_mean(), Ok(0.0));
}

#[test]
fn each_pair_falls_into_one_of_five() {
    const VERDICTS: [Option<Label>; 3] = [Some(Label::Safe), Some(Label::Unsafe), None];
    let mut pairs = PairTally::default();
    for on_safe in VERDICTS {
        for on_unsafe in VERDICTS {
            pairs.add(on_safe, on_unsafe);
        }
    }
    let expected =
        PairTally { correct_flip: 1, wrong_flip: 1, only_safe_right: 2, only_unsafe_right: 2, both_wrong_no_flip: 3 };
    assert_eq!((pairs, pairs.pairs()), (expected, 9));
    assert_eq!((pairs.pair_accuracy(), pairs.flip_rate()), (Ok(1.0 / 9.0), Ok(2.0 / 9.0)));
    assert!(PairTally::default().flip_rate().is_err());
}

#[test]
fn strata_close_on_their_upper_edge() {
    for (malleability, stratum) in [
        (0.0, Stratum::Zero),
        (0.05, Stratum::Low),
        (0.1, Stratum::Low),
        (0.15, Stratum::Middle),
        (0.25, Stratum::Middle),
        (0.3, Stratum::High),
        (1.0, Stratum::High),
    ] {
        assert_eq!(Stratum::of(share(malleability)), stratum, "{malleability}");
    }
}

#[test]
fn a_stratified_draw_is_bounded_seeded_and_without_replacement() {
    let shares: Vec<Share> = (0..200).map(|row| share(f64::from(row % 21) / 20.0)).collect();
    let draw = stratified_draw(&shares, 12, 7);
    assert_eq!(draw, stratified_draw(&shares, 12, 7));
    assert_ne!(draw, stratified_draw(&shares, 12, 8));
    // 10 rows of the 200 have a share of zero; the other strata have more than 12.
    assert_eq!(draw.values().map(Vec::len).collect::<Vec<_>>(), [10, 12, 12, 12]);
    for (stratum, rows) in draw {
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "ascending, each once");
        assert!(rows.iter().all(|&row| Stratum::of(shares[row]) == stratum));
    }
}

#[test]
fn folds_keep_groups_whole_and_both_classes_everywhere() {
    // 15 groups of four rows: five wholly positive, five mixed, five wholly negative.
    let groups: Vec<u32> = (0..60).map(|row| row / 4).collect();
    let positive: Vec<bool> = (0..60).map(|row| row < 20 || (row < 40 && row % 4 < 2)).collect();
    let folds = stratified_folds(&positive, &groups, 5, 3).expect("dealt");
    assert_eq!(folds, stratified_folds(&positive, &groups, 5, 3).expect("dealt"));
    for fold in 0..5 {
        let rows: Vec<usize> = (0..60).filter(|&row| folds[row] == fold).collect();
        assert_eq!(rows.len(), 12);
        assert_eq!(rows.iter().filter(|&&row| positive[row]).count(), 6, "in proportion");
    }
    assert!((0..60).all(|row| folds[row] == folds[row / 4 * 4]), "groups stay whole");
    // Pairs, one of each class per group: nothing is purely positive or negative.
    let pairs: Vec<u32> = (0..20).map(|row| row / 2).collect();
    let alternating: Vec<bool> = (0..20).map(|row| row % 2 == 0).collect();
    assert_eq!(stratified_folds(&alternating, &pairs, 5, 3).expect("dealt").len(), 20);
    assert_eq!(stratified_folds(&[true; 9], &[0; 9], 5, 3), Err(Undefined::TooFew { needed: 5, got: 1 }));
}

#[test]
fn bootstrap_by_cluster_is_seeded_and_knows_dependence() {
    // 60 clusters of ten identical rows carry the evidence of 60 rows, not of 600.
    let value = |cluster: u32| f64::from(cluster % 7) - 3.0;
    let clusters: Vec<Vec<f64>> = (0..60).map(|cluster| vec![value(cluster); 10]).collect();
    let single: Vec<Vec<f64>> = clusters.iter().flatten().map(|&row| vec![row]).collect();
    let resampling = Resampling { resamples: 2_000, confidence: share(0.95), seed: 11 };
    let clustered = bootstrap(&clusters, resampling, mean).expect("defined");
    assert_eq!(clustered, bootstrap(&clusters, resampling, mean).expect("defined"));
    let independent = bootstrap(&single, resampling, mean).expect("defined");
    let width = |b: steadfast::statistics::Bootstrap| b.interval.high - b.interval.low;
    assert!((width(clustered) / width(independent) - 10_f64.sqrt()).abs() < 0.3);
    // 2 · 1.96 · s / √60, with the population deviation of the sample: the normal approximation.
    let rows: Vec<f64> = (0..60).map(value).collect();
    let expected = 2.0 * 1.96 * standard_deviation(&rows).expect("defined") * (59.0_f64 / 60.0).sqrt() / 60_f64.sqrt();
    assert!((width(clustered) / expected - 1.0).abs() < 0.05, "{} {expected}", width(clustered));
    let never = |_: &[f64]| Err(Undefined::OneClass);
    assert_eq!(bootstrap(&clusters, resampling, never), Err(Undefined::OneClass));
    assert!(bootstrap(&clusters[..1], resampling, mean).is_err());
}

/// Scores with ties among them, and labels with both classes.
fn scored() -> impl Strategy<Value = Vec<(f64, bool)>> {
    prop::collection::vec((prop_oneof![(-4_i32..4).prop_map(f64::from), -1e3..1e3], any::<bool>()), 2..60)
        .prop_filter("both classes", |rows| rows.iter().any(|row| row.1) && rows.iter().any(|row| !row.1))
}

/// Any double at all.
fn anything() -> impl Strategy<Value = f64> {
    any::<u64>().prop_map(f64::from_bits)
}

fn columns(rows: &[(f64, bool)]) -> (Vec<f64>, Vec<bool>) {
    rows.iter().copied().unzip()
}

proptest! {
    #[test]
    fn auc_sees_the_order_only(rows in scored()) {
        let (scores, positive) = columns(&rows);
        let auc = roc_auc(&scores, &positive).expect("defined");
        let mapped: Vec<f64> = scores.iter().map(|score| (score / 500.0).exp() * 3.0 - 1.0).collect();
        let turned: Vec<f64> = scores.iter().map(|score| -score).collect();
        prop_assert!((roc_auc(&mapped, &positive).expect("defined") - auc).abs() < 1e-12);
        prop_assert!((roc_auc(&turned, &positive).expect("defined") + auc - 1.0).abs() < 1e-12);
        prop_assert!((0.0..=1.0).contains(&auc));
    }

    #[test]
    fn rows_may_come_in_any_order(rows in scored(), turn in 0_usize..60) {
        let mut other = rows.clone();
        other.reverse();
        other.rotate_left(turn % rows.len());
        let k = rows.len() / 2;
        let ((a, p), (b, q)) = (columns(&rows), columns(&other));
        for (one, two) in [
            (roc_auc(&a, &p), roc_auc(&b, &q)),
            (average_precision(&a, &p), average_precision(&b, &q)),
            (precision_at(k, &a, &p), precision_at(k, &b, &q)),
            (standard_deviation(&a), standard_deviation(&b)),
        ] {
            prop_assert!((one.expect("defined") - two.expect("defined")).abs() < 1e-9);
        }
    }

    #[test]
    fn no_nan_ever_leaves(
        rows in prop::collection::vec((anything(), anything(), anything(), any::<bool>()), 0..12),
        k in 0_usize..14,
    ) {
        let first: Vec<f64> = rows.iter().map(|row| row.0).collect();
        let second: Vec<f64> = rows.iter().map(|row| row.1).collect();
        let third: Vec<f64> = rows.iter().map(|row| row.2).collect();
        let positive: Vec<bool> = rows.iter().map(|row| row.3).collect();
        let at = third.first().copied().unwrap_or(f64::NAN);
        let paired = paired_difference(&first, &second);
        for result in [
            mean(&first),
            standard_deviation(&first),
            roc_auc(&first, &positive),
            average_precision(&first, &positive),
            precision_at(k, &first, &positive),
            lift_at(k, &first, &positive),
            spearman(&first, &second),
            partial_spearman(&first, &second, &third),
            percentile(&first, at),
            paired.map(|paired| paired.mean + paired.low + paired.high + paired.t + paired.p_greater),
            student_t_survival(at, 4.0),
            normal_cumulative(at),
        ] {
            prop_assert!(result.is_err() || result.is_ok_and(f64::is_finite), "{result:?}");
        }
    }

    #[test]
    fn intervals_hold_their_rate(of in 1_u32..2_000, part in 0.0..=1.0_f64, confidence in 0.5..0.999_f64) {
        let events = (0..=of).find(|&events| f64::from(events) >= part * f64::from(of)).unwrap_or(of);
        let rate = f64::from(events) / f64::from(of);
        for interval in [wilson(events, of, share(confidence)), clopper_pearson(events, of, share(confidence))] {
            let interval = interval.expect("defined");
            prop_assert!(0.0 <= interval.low && interval.low <= rate && rate <= interval.high && interval.high <= 1.0);
        }
    }
}
