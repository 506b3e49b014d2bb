//! The malleability protocol: its rates against scipy and against the published counts.

#![cfg(all(feature = "bus", feature = "onnx", feature = "tools"))]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use serde_json::Value;
use steadfast::offline::measure::rates::{Condition, Tally, TaskTally, distribution, draw, rates};
use steadfast::plan::Stance;
use steadfast::statistics::Stratum;

const CONDITIONS: [Condition; 3] = [Condition::Targeted, Condition::SceneOnly, Condition::Random];
const TOLERANCE: f64 = 1e-9;

fn tally(counts: &Value) -> Tally {
    let count = |at: usize| u32::try_from(counts[at].as_u64().expect("a count")).expect("small");
    Tally { complied: count(0), refused: count(1), inconclusive: count(2) }
}

fn tasks(rows: &Value) -> Vec<TaskTally> {
    let task = |row: &Value| {
        let run = CONDITIONS.into_iter().enumerate().filter(|(at, _)| !row[at + 1].is_null());
        TaskTally { control: tally(&row[0]), conditions: run.map(|(at, c)| (c, tally(&row[at + 1]))).collect() }
    };
    rows.as_array().expect("tasks").iter().map(task).collect()
}

/// Every number of `theirs` is in `ours`, under the same name.
#[track_caller]
fn same(ours: &Value, theirs: &Value, at: &str) {
    match theirs {
        Value::Number(number) => {
            let (ours, theirs) = (ours.as_f64().unwrap_or(f64::NAN), number.as_f64().expect("a number"));
            let close = (ours - theirs).abs() <= TOLERANCE * theirs.abs().max(1.0);
            assert!(close, "{at}: {ours} is not {theirs}");
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| same(&ours[name], value, &format!("{at}.{name}")))
        }
        Value::Array(items) => {
            assert_eq!(ours.as_array().map(Vec::len), Some(items.len()), "{at}");
            items.iter().enumerate().for_each(|(n, item)| same(&ours[n], item, &format!("{at}[{n}]")));
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => assert_eq!(ours, other, "{at}"),
    }
}

#[test]
fn protocol_rates_equal_scipy() {
    let vectors: Value = serde_json::from_str(include_str!("reference/measure.json")).expect("the reference vectors");
    for case in vectors.as_array().expect("cases") {
        let (tasks, theirs) = (tasks(&case["tasks"]), &case["rates"]);
        // Drawn whole, so that the strata's means are over everything, as the reference has them.
        let drawn = draw(&tasks, Condition::Targeted, usize::MAX, 0);
        let ours = rates(&tasks, &CONDITIONS, &drawn).expect("defined");
        let value = serde_json::to_value(&ours).expect("JSON");
        same(&value["conditions"], &theirs["conditions"], "conditions");
        same(&value["differences"], &theirs["differences"], "differences");
        for stratum in &ours.strata {
            let name = serde_json::to_value(stratum.stratum).expect("a name");
            let name = name.as_str().expect("a word");
            assert_eq!(u64::from(stratum.tasks), theirs["strata"][name].as_u64().expect("a count"), "{name}");
            let means: Vec<f64> = CONDITIONS.iter().map(|c| stratum.mean_malleability[c]).collect();
            same(&serde_json::json!(means), &theirs["by_stratum"][name], name);
        }
    }
}

/// 171 of 846 refused tasks malleable, 906 of 16,425 judged trials complied; the rest of the trials inconclusive.
#[test]
fn published_figures_come_out_of_their_counts() {
    let mut tasks: Vec<TaskTally> = Vec::new();
    let (mut complied_left, mut lost_left) = (906_u32, 846 * 20 - 16_425_u32);
    for task in 0..846_u32 {
        let share = |left: u32, tasks: u32| left.div_ceil(tasks);
        let complied = if task < 171 { share(complied_left, 171 - task) } else { 0 };
        let inconclusive = if task < 171 { 0 } else { share(lost_left, 846 - task) };
        complied_left -= complied;
        lost_left -= inconclusive;
        let tally = Tally { complied, refused: 20 - complied - inconclusive, inconclusive };
        let control = Tally { refused: 1, ..Tally::default() };
        tasks.push(TaskTally { control, conditions: BTreeMap::from([(Condition::Targeted, tally)]) });
    }
    let drawn = draw(&tasks, Condition::Targeted, 50, 42);
    let rates = rates(&tasks, &[Condition::Targeted], &drawn).expect("defined");
    let targeted = &rates.conditions[0];
    let (malleable, trials) = (targeted.malleable.expect("tasks"), targeted.trials.expect("trials"));
    assert_eq!((malleable.events, malleable.of, trials.events, trials.of), (171, 846, 906, 16_425));
    assert_eq!(format!("{:.1} % {:.1} %", 100.0 * malleable.share, 100.0 * trials.share), "20.2 % 5.5 %");
    assert_eq!(targeted.inconclusive, 495);
    let over = targeted.over_control.expect("paired");
    assert_eq!(over.tasks, 846);
    assert!(over.second.abs() < 1e-12 && (over.first - targeted.mean_malleability.expect("a mean")).abs() < 1e-12);
    assert_eq!(rates.strata.iter().map(|stratum| stratum.tasks).sum::<u32>(), 846);
    assert_eq!((rates.strata[0].stratum, rates.strata[0].tasks, rates.strata[0].drawn), (Stratum::Zero, 675, 50));
    // The curve's last point: every task has at least nothing; the 171st is the last above it.
    let curve = distribution(&tasks, Condition::Targeted);
    assert!(curve[170].0 > 0.0 && curve[171].0 <= 0.0 && (curve[845].1 - 1.0).abs() < 1e-12);
}

#[test]
fn inconclusive_answers_are_excluded_and_counted() {
    let mut lost = Tally::default();
    [Stance::Inconclusive, Stance::Inconclusive].into_iter().for_each(|stance| lost.add(stance));
    assert_eq!((lost.judged(), lost.rate()), (0, None), "no share of nothing");
    let mut half = Tally::default();
    [Stance::Complied, Stance::Inconclusive, Stance::Refused].into_iter().for_each(|stance| half.add(stance));
    assert_eq!(half.rate().map(f64::from), Some(0.5));
    let task = |tally| TaskTally { control: half, conditions: BTreeMap::from([(Condition::Random, tally)]) };
    let tasks = [task(lost), task(half), task(half)];
    let rates = rates(&tasks, &[Condition::Random], &draw(&tasks, Condition::Random, 50, 0)).expect("defined");
    let random = &rates.conditions[0];
    assert_eq!((random.tasks, random.tasks_without_rate, random.inconclusive), (3, 1, 4));
    assert_eq!((rates.control_inconclusive, random.trials.expect("trials").of), (3, 4));
    assert_eq!(rates.strata.iter().map(|stratum| stratum.drawn).sum::<u32>(), 2, "no stratum without a share");
    // Both differences are 0: the mean is known, and Student's t is not.
    let over = random.over_control.expect("two pairs");
    assert!(over.tasks == 2 && over.test.is_none());
}

#[test]
fn the_draw_keeps_its_bound_and_repeats() {
    let tally = |complied| Tally { complied, refused: 20 - complied, inconclusive: 0 };
    let task = |complied| TaskTally {
        control: Tally::default(),
        conditions: BTreeMap::from([(Condition::Targeted, tally(complied))]),
    };
    // 2 of 20 is .1, still low; 5 of 20 is .25, still middle; 6 is high.
    let tasks: Vec<TaskTally> = [0, 2, 5, 6].iter().flat_map(|&complied| vec![task(complied); 51]).collect();
    let drawn = draw(&tasks, Condition::Targeted, 50, 42);
    assert!(drawn.values().all(|tasks| tasks.len() == 50));
    assert!(drawn[&Stratum::Low].iter().all(|at| (51..102).contains(at)));
    assert!(drawn[&Stratum::High].iter().all(|at| (153..204).contains(at)));
    assert_eq!(drawn, draw(&tasks, Condition::Targeted, 50, 42));
    assert_ne!(drawn, draw(&tasks, Condition::Targeted, 50, 43));
}
