//! What the audit log does on a disk that is full and with a journald that stalls, comes late, goes away, or is real.
//!
//! Each test runs itself again in a mount namespace of its own, where /mnt and /run are its to fill. Where the system
//! grants no such namespace the test says so and passes.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and says what it skips"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use steadfast::audit::chain::{AuditLog, Policy, Settings};
use steadfast::audit::clock::Clock;
use steadfast::audit::journal::{Journal, MESSAGE_ID, NOTES_MAX, VetoNote};
use steadfast::audit::record::{
    CheckId, Circumstances, Client, Decided, Event, GuardIdentity, Mode, Received, Sizes, Texts,
};
use steadfast::audit::verify::verify;
use steadfast::decision::{Decision, Reason, Veto};
use steadfast::triple::Digest;

const SOON: Duration = Duration::from_secs(20);

/// Runs `inside` in a fresh namespace where `mount` has been done; the marker file tells which side we are on.
fn in_namespace(test: &str, mount: &str, marker: &str, inside: impl FnOnce()) {
    if Path::new(marker).exists() {
        return inside();
    }
    let works = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|output| output.status.success());
    if !works {
        println!("skipped: {test} needs a mount namespace, and the system grants none");
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let script = format!("{mount} && touch {marker} && exec \"$0\" --exact {test} --nocapture");
    let status = Command::new("unshare").args(["-rm", "sh", "-c", &script]).arg(program).status().expect("runs");
    assert!(status.success(), "inside the namespace");
}

fn decided(n: u8, detail: &str) -> Decided {
    let circumstances = Circumstances {
        check_id: CheckId::from_bytes([n; 16]),
        triple: Some(Digest::of(&[n])),
        mode: Mode::Enforce,
        guard: GuardIdentity {
            proxy: Digest::of(b"proxy"),
            constitution: Digest::of(b"constitution"),
            calibration: Digest::of(b"calibration"),
            execution_provider: "CPUExecutionProvider".to_owned(),
        },
        steps_left_out: vec![],
        nearest_rules: vec![],
        scene: None,
        timings_ms: vec![],
    };
    let veto = Veto { reason: Reason::Rule, detail: detail.to_owned(), readings: None };
    Decided::of(&Decision::Veto(veto), circumstances, None)
}

fn note(n: u8, detail: &str) -> VetoNote {
    VetoNote::of(&decided(n, detail)).expect("a veto")
}

fn received(n: u8, plan: &str) -> Event {
    Event::Received(Box::new(Received {
        check_id: CheckId::from_bytes([n; 16]),
        client: Client { name: ":1.1".to_owned(), uid: None, pid: None },
        digests: None,
        sizes: Sizes { instruction: 1, image: None, plan: 1 },
        texts: Some(Texts::keep("pour", plan)),
        redacted: false,
        planner: None,
        plan_id: None,
        audience: None,
        image_stamp_ns: None,
        deadline_ms: None,
        options: BTreeMap::new(),
    }))
}

#[test]
fn a_full_disk_is_an_error_to_each_answer_and_costs_no_stored_record() {
    in_namespace(
        "a_full_disk_is_an_error_to_each_answer_and_costs_no_stored_record",
        "mount -t tmpfs -o size=64k t /mnt",
        "/mnt/inside",
        || {
            for policy in [Policy::Durable, Policy::Buffered] {
                let dir = Path::new("/mnt/audit");
                let clock = Clock::system().expect("a clock");
                let settings = Settings { policy, segment_bytes_max: 16 * 1024, ..Settings::durable(dir) };
                let log = AuditLog::open(settings.clone(), clock.clone(), None).expect("opens");
                let store = |n| log.note(received(n, &"x".repeat(1500))).expect("queued").wait_blocking(SOON);
                let stored = (0..100).take_while(|&n| store(n).is_ok()).count();
                assert!((10..45).contains(&stored), "{stored} records fit into 64 KiB");
                let error = store(101).expect_err("full").to_string();
                assert!(error.contains("No space left"), "{error}");
                let report = verify(dir, &[]).expect("readable");
                assert!(report.is_whole(), "no part of a record is left behind: {report:?}");
                // A start on a full disk fails and says why, unless what it has to report fits into the last page.
                fs::write("/mnt/ballast", vec![1; 1 << 16]).expect_err("full to the brim");
                drop(log);
                let reported = match AuditLog::open(settings.clone(), clock.clone(), None) {
                    Ok(log) => Some(log.opened().undecided.len()),
                    Err(error) => {
                        assert!(error.to_string().contains("No space left"), "{error}");
                        None
                    }
                };
                fs::remove_file("/mnt/ballast").expect("removed");
                fs::remove_file(dir.join("000000000001.audit")).expect("an operator makes room the wrong way");
                let log = AuditLog::open(settings, clock, None).expect("opens");
                assert_eq!(reported.unwrap_or(log.opened().undecided.len()), stored);
                log.note(received(102, "go")).expect("queued").wait_blocking(SOON).expect("stored");
                drop(log);
                let report = verify(dir, &[]).expect("readable");
                assert_eq!(report.faults.len(), 1, "the segment removed by hand is missed: {report:?}");
                fs::remove_dir_all(dir).expect("removed");
            }
        },
    );
}

const RUN: &str = "mount -t tmpfs t /run && mkdir -p /run/systemd/journal /run/log/journal";
const SOCKET: &str = "/run/systemd/journal/socket";

#[test]
fn a_stalled_journald_holds_nobody_up() {
    in_namespace("a_stalled_journald_holds_nobody_up", RUN, "/run/inside", || {
        // Bound and never read: a sender that waits waits for ever.
        let _unread = UnixDatagram::bind(SOCKET).expect("bound");
        let journal = Journal::start("steadfastd").expect("a thread");
        #[expect(clippy::disallowed_methods, reason = "how long it takes is the point")]
        let begun = Instant::now();
        let kept = (0..5000).filter(|_| journal.tell(note(1, "too heavy"))).count();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!((NOTES_MAX..5000).contains(&kept), "{kept} kept");
        assert_eq!(journal.dropped(), u64::try_from(5000 - kept).expect("small"));
        #[expect(clippy::disallowed_methods, reason = "how long it takes is the point")]
        let begun = Instant::now();
        assert_eq!(journal.stop(Duration::from_millis(300)), None, "the thread is stuck, and left behind");
        assert!(begun.elapsed() < Duration::from_secs(2));
    });
}

fn read_one(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(SOON)).expect("set");
    let mut bytes = vec![0; 1 << 16];
    loop {
        let got = socket.recv(&mut bytes).expect("a note");
        // The library says hello with an empty datagram.
        if got > 0 {
            return String::from_utf8_lossy(&bytes[..got]).into_owned();
        }
    }
}

#[test]
fn a_journald_that_comes_late_or_goes_away_gets_every_note() {
    in_namespace("a_journald_that_comes_late_or_goes_away_gets_every_note", RUN, "/run/inside", || {
        let journal = Journal::start("steadfastd").expect("no socket is no error");
        assert!(journal.tell(note(1, "before the first")));
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(journal.told(), 0);
        for n in 1..4 {
            let socket = UnixDatagram::bind(SOCKET).expect("bound");
            if n > 1 {
                assert!(journal.tell(note(n, "in time")));
            }
            assert!(read_one(&socket).contains(&CheckId::from_bytes([n; 16]).to_string()), "note {n}");
            while journal.told() < u64::from(n) {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(socket);
            fs::remove_file(SOCKET).expect("removed");
        }
        assert_eq!(journal.dropped(), 0);
        assert!(journal.tell(note(9, "to nobody")));
        assert_eq!(journal.stop(Duration::from_millis(300)), Some(1), "one note is left behind, and counted");
    });
}

#[test]
fn what_is_waiting_is_handed_on_at_the_stop() {
    in_namespace("what_is_waiting_is_handed_on_at_the_stop", RUN, "/run/inside", || {
        let socket = UnixDatagram::bind(SOCKET).expect("bound");
        let journal = Journal::start("steadfastd").expect("a thread");
        // The reader gives the socket back: a note whose reader goes away in that moment is told again.
        let reader = std::thread::spawn(move || ((0..100).map(|_| read_one(&socket)).collect::<Vec<_>>(), socket));
        (0..100).for_each(|n| assert!(journal.tell(note(n, "too heavy"))));
        assert_eq!(journal.stop(SOON), Some(0));
        assert_eq!(reader.join().expect("read").0.len(), 100);
    });
}

/// A journald of our own, in our own /run.
struct Journald(Child);

impl Journald {
    fn start() -> Option<Self> {
        let program = ["/lib/systemd/systemd-journald", "/usr/lib/systemd/systemd-journald"];
        let program = program.into_iter().find(|path| Path::new(path).exists())?;
        if fs::read_to_string("/etc/machine-id").is_ok_and(|id| id.trim().len() != 32) {
            fs::write("/run/machine-id", "0123456789abcdef0123456789abcdef\n").expect("written");
            let bound = Command::new("mount").args(["--bind", "/run/machine-id", "/etc/machine-id"]).status();
            assert!(bound.is_ok_and(|status| status.success()));
        }
        let child = Command::new(program).spawn().expect("starts");
        Some(Self(child))
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn a_real_journald_stores_every_field_and_no_text_forges_one() {
    in_namespace("a_real_journald_stores_every_field_and_no_text_forges_one", RUN, "/run/inside", || {
        let journal = Journal::start("steadfastd").expect("a thread");
        // Told before journald is there at all.
        assert!(journal.tell(note(1, "the plan lifts 9 kg\nMESSAGE=forged\nPRIORITY=0")));
        let Some(_journald) = Journald::start() else {
            println!("skipped: systemd-journald is not installed");
            return;
        };
        assert!(journal.tell(note(2, "too heavy")));
        assert_eq!(journal.stop(SOON), Some(0));
        let id = CheckId::from_bytes([1; 16]).to_string();
        let query = || {
            let output = Command::new("journalctl")
                .args(["--directory=/run/log/journal", "-o", "json", "--no-pager"])
                .arg(format!("MESSAGE_ID={MESSAGE_ID}"))
                .output()
                .expect("journalctl runs");
            String::from_utf8(output.stdout).expect("text")
        };
        let found = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            let text = query();
            (text.lines().count() == 2).then_some(text)
        });
        let found = found.unwrap_or_else(|| panic!("two vetoes in {:?}", query()));
        let first = found.lines().find(|line| line.contains(&id)).expect("the first note");
        let fields: BTreeMap<String, serde_json::Value> = serde_json::from_str(first).expect("JSON");
        let text = |name: &str| fields.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        assert_eq!(text("STEADFAST_CHECK_ID"), id);
        assert_eq!(text("STEADFAST_REASON"), "rule");
        assert_eq!(text("STEADFAST_VERDICT"), "veto");
        assert_eq!(text("STEADFAST_MODE"), "enforce");
        assert_eq!(text("STEADFAST_TRIPLE"), Digest::of(&[1]).to_string());
        assert_eq!(text("STEADFAST_DETAIL"), "the plan lifts 9 kg\nMESSAGE=forged\nPRIORITY=0");
        assert_eq!(text("SYSLOG_IDENTIFIER"), "steadfastd");
        assert_eq!(text("PRIORITY"), "4");
        assert!(text("MESSAGE").starts_with("veto (rule): the plan lifts 9 kg"));
        assert!(!fields.keys().any(|name| name.starts_with("F_")), "{fields:?}");
    });
}
