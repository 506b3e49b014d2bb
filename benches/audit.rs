//! What storing an answer costs, as ratios within one run: the durable log against one bare write and fdatasync of the
//! same bytes, by the caller and by a thread that the caller waits for as it waits for the log's, and 32 callers at once
//! against one.
//!
//! `cargo bench --bench audit [-- DIRECTORY]`. Run it on the disk that will hold the log.
#![expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first fault")]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steadfast::audit::chain::{AuditLog, Policy, Settings};
use steadfast::audit::clock::Clock;
use steadfast::audit::record::{CheckId, Circumstances, Decided, Event, GuardIdentity, Mode, Record};
use steadfast::decision::{Decision, Reason, Veto};
use steadfast::triple::Digest;

const ANSWERS: u32 = 400;
const ROUNDS: u32 = 5;
const CALLERS: u32 = 32;
const SOON: Duration = Duration::from_secs(60);

fn main() {
    let chosen = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let root = chosen.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(root).expect("a directory");
    let clock = Clock::system().expect("a clock");
    let record = Record::new(clock.now(), answer());
    let frame = [vec![0; 120], record.encode().expect("encodes")].concat();
    println!("records of {} bytes, {ANSWERS} answers a round, medians of {ROUNDS} rounds", frame.len());

    let (mut bare, mut alone, mut bare_2, mut together, mut buffered) = (vec![], vec![], vec![], vec![], vec![]);
    let mut handed_over = vec![];
    for round in 0..ROUNDS {
        // Interleaved, so that a slow minute of the disk falls on all of them.
        bare.push(bare_writes(&dir.path().join(format!("bare-{round}")), &frame));
        alone.push(one_caller(&dir.path().join(format!("alone-{round}")), Policy::Durable, &clock, &record));
        handed_over.push(handed_over_writes(&dir.path().join(format!("handed-{round}")), &frame));
        bare_2.push(bare_writes(&dir.path().join(format!("bare2-{round}")), &frame));
        together.push(many_callers(&dir.path().join(format!("together-{round}")), &clock, &record));
        buffered.push(one_caller(&dir.path().join(format!("buffered-{round}")), Policy::Buffered, &clock, &record));
    }
    let [bare, alone, bare_2, together, buffered] = [bare, alone, bare_2, together, buffered].map(median);
    let handed_over = median(handed_over);
    println!("bare write + fdatasync     {:9.1} us, and once more {:9.1} us", micros(bare), micros(bare_2));
    println!("the same by another thread {:9.1} us", micros(handed_over));
    println!("durable, 1 caller          {:9.1} us an answer", micros(alone));
    println!("durable, {CALLERS} callers        {:9.1} us an answer", micros(together));
    println!("buffered, 1 caller         {:9.1} us an answer", micros(buffered));
    println!("ratio durable / bare       {:9.2}   (goal: at most 1.3)", ratio(alone, (bare + bare_2) / 2));
    println!("ratio durable / by a thread{:9.2}", ratio(alone, handed_over));
    println!("ratio rate of {CALLERS} / of 1    {:9.2}   (goal: at least 5)", ratio(alone, together));
}

fn answer() -> Event {
    let circumstances = Circumstances {
        check_id: CheckId::from_bytes([1; 16]),
        triple: Some(Digest::of(b"triple")),
        mode: Mode::Enforce,
        guard: GuardIdentity {
            proxy: Digest::of(b"proxy"),
            constitution: Digest::of(b"constitution"),
            calibration: Digest::of(b"calibration"),
            execution_provider: "CPUExecutionProvider".to_owned(),
        },
        steps_left_out: vec![],
        nearest_rules: vec![],
        scene: Some("clearly a cup in the middle, maybe a laptop on the left, perhaps a keyboard".to_owned()),
        timings_ms: vec![("decode".to_owned(), 8.25), ("margin".to_owned(), 96.5), ("spread".to_owned(), 801.0)],
    };
    let veto = Veto { reason: Reason::Constitution, detail: "log-odds of refuse over".to_owned(), readings: None };
    Event::Decided(Box::new(Decided::of(&Decision::Veto(veto), circumstances, None)))
}

fn bare_writes(path: &Path, frame: &[u8]) -> Duration {
    let mut file = File::options().append(true).create(true).open(path).expect("opens");
    timed(|| {
        for _ in 0..ANSWERS {
            file.write_all(frame).expect("written");
            file.sync_data().expect("synced");
        }
    })
}

fn handed_over_writes(path: &Path, frame: &[u8]) -> Duration {
    let mut file = File::options().append(true).create(true).open(path).expect("opens");
    let (hand_over, orders) = std::sync::mpsc::channel::<Vec<u8>>();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for frame in orders {
                file.write_all(&frame).expect("written");
                file.sync_data().expect("synced");
                tell.send(()).expect("heard");
            }
        });
        let took = timed(|| {
            for _ in 0..ANSWERS {
                hand_over.send(frame.to_vec()).expect("taken");
                told.recv().expect("told");
            }
        });
        drop(hand_over);
        took
    })
}

fn one_caller(dir: &Path, policy: Policy, clock: &Clock, record: &Record) -> Duration {
    let log = AuditLog::open(Settings { policy, ..Settings::durable(dir) }, clock.clone(), None).expect("opens");
    timed(|| {
        for _ in 0..ANSWERS {
            log.append(record).expect("queued").wait_blocking(SOON).expect("stored");
        }
    })
}

fn many_callers(dir: &Path, clock: &Clock, record: &Record) -> Duration {
    let log = AuditLog::open(Settings::durable(dir), clock.clone(), None).expect("opens");
    let each = ANSWERS.div_ceil(CALLERS) * 4;
    let all = timed(|| {
        std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    for _ in 0..each {
                        log.append(record).expect("queued").wait_blocking(SOON).expect("stored");
                    }
                });
            }
        });
    });
    // Per answer, scaled to what `timed` callers divide by.
    all * ANSWERS / (each * CALLERS)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed() / ANSWERS
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
