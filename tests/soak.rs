//! Many checks against one real daemon with the recorded proxy: memory, descriptors and latency at the end are what they
//! were at the start. A few thousand by default; as many as wanted with
//!
//!     STEADFAST_SOAK_CHECKS=1000000 cargo test --release --features __bench --test soak -- --nocapture

#![cfg(all(feature = "bus", feature = "__replay"))]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a test fails by panicking, owns its clock and prints what it measured"
)]

#[path = "support/bus.rs"]
mod bus;
#[path = "support/guard.rs"]
mod guard;
#[path = "support/planner.rs"]
mod planner;

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::{PrivateBus, sealed};
use guard::{GOOD, Home, PLAN, repository};
use planner::{Options, Planner};
use tokio::task::JoinSet;

/// Checks where nothing else is asked for.
const CHECKS: usize = 1_000;
/// So many checks are under way at once: what one client may have.
const AT_ONCE: usize = 4;
/// The run is measured in so many windows; the first tenth of them is warm-up.
const WINDOWS: usize = 50;
const WARM_UP: usize = WINDOWS / 10;
/// From so many checks on the latency's tail is worth comparing, and the memory has settled: the log's oldest segments
/// have been given up, the evidence is full.
const CHECKS_TELLING: usize = 100_000;

/// What the daemon holds when nothing is asked of it.
struct Held {
    resident_kib: u64,
    descriptors: usize,
    p99: Duration,
}

#[test]
fn memory_descriptors_and_latency_stay_what_they_were() {
    let checks = std::env::var("STEADFAST_SOAK_CHECKS").map_or(CHECKS, |count| count.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(soak(checks));
}

async fn soak(checks: usize) {
    let bus = PrivateBus::start();
    let home = Home::new(&bus.address);
    home.configure(
        "[limits]\nclient_checks_per_second_max = 10000\nclient_checks_burst_max = 10000\n\
         [audit]\npolicy = \"buffered\"\nkeep_bytes_max = 16777216\nevidence_bytes_max = 1048576\n",
    );
    let mut daemon = home.start();
    let mut planners = Vec::new();
    for _ in 0..AT_ONCE {
        planners.push(Arc::new(Planner::hurried(&bus.address).await));
    }
    let each = checks.div_ceil(WINDOWS * AT_ONCE);
    let begun = Instant::now();
    let mut windows: Vec<Held> = Vec::new();
    for window in 0..WINDOWS {
        let asked = planners.iter().map(|planner| ask(Arc::clone(planner), window * each..(window + 1) * each));
        let mut times = asked.collect::<JoinSet<_>>().join_all().await.concat();
        times.sort();
        let p99 = times[times.len() * 99 / 100];
        let held = Held { resident_kib: resident_kib(daemon.pid()), descriptors: descriptors(daemon.pid()).await, p99 };
        println!(
            "{:>9} checks  {:>7} KiB resident  {:>3} descriptors  p50 {:>9.3?}  p99 {p99:>9.3?}",
            (window + 1) * each * AT_ONCE,
            held.resident_kib,
            held.descriptors,
            times[times.len() / 2],
        );
        windows.push(held);
        planners.iter().for_each(|planner| planner.forget());
    }
    let (start, end) = (&windows[WARM_UP..2 * WARM_UP], &windows[WINDOWS - WARM_UP..]);
    let mean = |held: &[Held], of: fn(&Held) -> f64| held.iter().map(of).sum::<f64>() / held.len() as f64;
    let growth = mean(end, |held| held.resident_kib as f64) / mean(start, |held| held.resident_kib as f64) - 1.0;
    let slower = mean(end, |held| held.p99.as_secs_f64()) / mean(start, |held| held.p99.as_secs_f64());
    let (before, after) = (windows[WARM_UP].descriptors, windows[WINDOWS - 1].descriptors);
    println!(
        "{} checks in {:.0?}: resident {:+.2} % after warm-up, descriptors {before} and {after}, p99 at the end {slower:.2} × at the start",
        each * WINDOWS * AT_ONCE,
        begun.elapsed(),
        growth * 100.0,
    );
    assert_eq!(daemon.stop(), "exit 0", "{}", daemon.said());
    assert_eq!(home.verify(), "whole");
    assert_eq!(before, after, "descriptors leak");
    if checks >= CHECKS_TELLING {
        assert!(growth <= 0.02, "memory grows");
        assert!(slower <= 1.2, "answers grow slower");
    }
}

/// Asks so many times: mostly what is permitted, sometimes what is vetoed (which leaves evidence), now and then a plan
/// that refuses (which the ledger remembers).
async fn ask(planner: Arc<Planner>, numbers: Range<usize>) -> Vec<Duration> {
    let image = fs::read(repository().join("fuzz/corpus/image/rgb.png")).expect("readable");
    let mut took = Vec::with_capacity(numbers.len());
    for number in numbers {
        let (instruction, plan, expected) = match number % 100 {
            0 => ("bring the knife", "I can't do that: it is dangerous.", "refusal"),
            1..=8 => ("break the rules", PLAN, "veto constitution"),
            _ => (GOOD, PLAN, "permit"),
        };
        let begun = Instant::now();
        let answer = planner.check(sealed(&image), instruction, plan, Options::new()).await;
        took.push(begun.elapsed());
        assert_eq!(answer, expected, "check {number}");
    }
    took
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Descriptors held when nothing is under way: the last answer's evidence may still be on its way to the disk.
async fn descriptors(pid: u32) -> usize {
    let mut least = usize::MAX;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        least = least.min(fs::read_dir(format!("/proc/{pid}/fd")).expect("readable").count());
    }
    least
}
