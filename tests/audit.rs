//! The audit log from outside: what a crash, a bad disk, a second instance or a stranger's hand does to it.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ed25519_dalek::{Signer as _, SigningKey};
use steadfast::audit::chain::{AuditError, AuditLog, Policy, Settings, Signer, Stored};
use steadfast::audit::clock::Clock;
use steadfast::audit::evidence::Evidence;
use steadfast::audit::read::{self, Content, Filter};
use steadfast::audit::recent::Glimpse;
use steadfast::audit::record::{
    CheckId, Circumstances, Client, Decided, Event, GuardIdentity, Mode, Received, Record, Sizes, Stamp, Texts, Verdict,
};
use steadfast::audit::retention::Retention;
use steadfast::audit::segment;
use steadfast::audit::verify::{Fault, Report, verify};
use steadfast::audit::{export, mcap};
use steadfast::decision::{Decision, Reason, Veto};
use steadfast::triple::{Digest, Digests};

const SOON: Duration = Duration::from_secs(20);
const SECRET: [u8; 32] = [7; 32];

/// A clock that moves on by a millisecond each time it is asked.
fn clock() -> Clock {
    let ticks = AtomicU64::new(1);
    Clock::new(move || stamp(ticks.fetch_add(1, Ordering::Relaxed) * 1_000_000))
}

fn stamp(ns: u64) -> Stamp {
    Stamp { wall_ns: 1_700_000_000_000_000_000 + ns, boot_ns: ns, boot_id: "0f".repeat(16) }
}

fn signer() -> Signer {
    let key = SigningKey::from_bytes(&SECRET);
    Signer(Box::new(move |message| (key.verifying_key().to_bytes(), key.sign(message).to_bytes())))
}

fn public() -> [[u8; 32]; 1] {
    [SigningKey::from_bytes(&SECRET).verifying_key().to_bytes()]
}

fn id(n: u64) -> CheckId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    CheckId::from_bytes(bytes)
}

fn received(n: u64) -> Event {
    Event::Received(Box::new(Received {
        check_id: id(n),
        client: Client { name: ":1.7".to_owned(), uid: Some(1000), pid: Some(42) },
        digests: Some(Digests::of(b"pour the coffee", b"image", b"1. pour")),
        sizes: Sizes { instruction: 15, image: Some(5), plan: 7 },
        texts: Some(Texts::keep("pour the coffee", "1. pour")),
        redacted: false,
        planner: None,
        plan_id: None,
        audience: None,
        image_stamp_ns: None,
        deadline_ms: Some(1500),
        options: BTreeMap::new(),
    }))
}

fn decided(n: u64, verdict: Verdict) -> Event {
    let guard = GuardIdentity {
        proxy: Digest::of(b"proxy"),
        constitution: Digest::of(b"constitution"),
        calibration: Digest::of(b"calibration"),
        execution_provider: "CPUExecutionProvider".to_owned(),
    };
    let circumstances = Circumstances {
        check_id: id(n),
        triple: Some(Digest::of(&n.to_le_bytes())),
        mode: Mode::Enforce,
        guard,
        steps_left_out: vec![],
        nearest_rules: vec![],
        scene: Some("clearly a cup on the left".to_owned()),
        timings_ms: vec![("margin".to_owned(), 80.5)],
    };
    let veto = Veto { reason: Reason::Constitution, detail: "log-odds over the limit".to_owned(), readings: None };
    let mut decided = Decided::of(&Decision::Veto(veto), circumstances, None);
    if verdict != Verdict::Veto {
        // Only `decide` makes a permit; a record of one is just a description.
        (decided.verdict, decided.reason) = (verdict, None);
    }
    Event::Decided(Box::new(decided))
}

fn put(log: &AuditLog, event: Event) -> Stored {
    log.note(event).expect("queued").wait_blocking(SOON).expect("stored")
}

fn open(settings: &Settings) -> AuditLog {
    AuditLog::open(settings.clone(), clock(), Some(signer())).expect("opens")
}

fn whole(dir: &Path) -> Report {
    let report = verify(dir, &public()).expect("readable");
    assert!(report.is_whole(), "{report:#?}");
    report
}

fn records(dir: &Path) -> Vec<Record> {
    let entries = read::entries(dir).expect("readable");
    entries.map(|entry| entry.expect("sound").record().expect("a record").clone()).collect()
}

fn count(dir: &Path, wanted: impl Fn(&Event) -> bool) -> usize {
    records(dir).iter().filter(|record| wanted(&record.event)).count()
}

fn newest(dir: &Path) -> PathBuf {
    segment::path_of(dir, *segment::list(dir).expect("readable").last().expect("a segment"))
}

/// A closed log of a few records in a fresh directory, as bytes of its only segment.
fn a_log() -> (tempfile::TempDir, Settings, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings::durable(dir.path().join("audit"));
    let log = open(&settings);
    for n in 1..=3 {
        put(&log, received(n));
        put(&log, decided(n, Verdict::Veto));
    }
    log.close("test over", SOON).expect("closes");
    let bytes = fs::read(newest(&settings.dir)).expect("readable");
    (dir, settings, bytes)
}

#[test]
fn what_is_stored_is_found_again_and_whole() {
    let (_keep, settings, _) = a_log();
    let report = whole(&settings.dir);
    assert_eq!((report.records, report.checkpoints, report.unsigned), (9, 1, 0));
    let vetoes: Vec<_> = read::list(&settings.dir, Filter { verdict: Some(Verdict::Veto), ..Filter::default() })
        .expect("readable")
        .collect::<Result<_, _>>()
        .expect("sound");
    assert_eq!(vetoes.len(), 3);
    let none = Filter { reason: Some(Reason::Deadline), ..Filter::default() };
    assert_eq!(read::list(&settings.dir, none).expect("readable").count(), 0);
    let late = Filter { since_wall_ns: Some(vetoes[2].record().expect("read").at.wall_ns), ..Filter::default() };
    assert_eq!(read::list(&settings.dir, late).expect("readable").count(), 1);
    let found = read::show(&settings.dir, &id(2).to_string()[..16]).expect("readable");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, id(2));
    assert!(found[0].1.received.is_some() && found[0].1.decided.is_some());
}

#[test]
fn reopening_continues_one_chain() {
    let (_keep, settings, _) = a_log();
    let log = open(&settings);
    assert_eq!(log.opened().sequence, 9);
    assert!(log.opened().tail.is_none() && log.opened().undecided.is_empty());
    put(&log, received(4));
    drop(log);
    assert_eq!(whole(&settings.dir).records, 11, "nine, one, and a checkpoint at the end");
}

#[test]
fn a_second_instance_is_refused_by_name() {
    let (_keep, settings, _) = a_log();
    let first = open(&settings);
    let error = AuditLog::open(settings.clone(), clock(), None).expect_err("refused");
    assert!(matches!(error, AuditError::InUse { .. }));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(first);
    drop(open(&settings));
}

#[test]
fn checks_without_an_answer_are_reported_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings::durable(dir.path());
    let log = open(&settings);
    put(&log, received(1));
    put(&log, received(2));
    put(&log, decided(1, Verdict::Permit));
    drop(log);
    assert_eq!(open(&settings).opened().undecided, [id(2)]);
    let found = |event: &Event| matches!(event, Event::CrashFound { check_ids, more: 0 } if *check_ids == [id(2)]);
    assert_eq!(count(dir.path(), found), 1);
    assert!(open(&settings).opened().undecided.is_empty(), "reported once is enough");
    whole(dir.path());
}

#[test]
fn an_unanswered_check_is_remembered_across_segments() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { segment_bytes_max: 2048, ..Settings::durable(dir.path()) };
    let log = open(&settings);
    put(&log, received(1));
    for n in 2..20 {
        put(&log, received(n));
        put(&log, decided(n, Verdict::Permit));
    }
    drop(log);
    assert!(segment::list(dir.path()).expect("readable").len() > 5);
    assert_eq!(open(&settings).opened().undecided, [id(1)]);
    whole(dir.path());
}

/// `kill -9` or a power cut at every byte of the last records: the log opens, says what it dropped, keeps all before.
#[test]
fn cut_at_every_byte_of_the_last_records() {
    let (_keep, settings, bytes) = a_log();
    let path = newest(&settings.dir);
    let (last, borders) = last_borders(&settings.dir);
    for cut in borders[0]..=bytes.len() {
        fs::write(&path, &bytes[..cut]).expect("written");
        let at_border = borders.contains(&cut) || cut == bytes.len();
        let log = open(&settings);
        match &log.opened().tail {
            Some(tail) => {
                let border = borders.iter().rfind(|&&border| border < cut).expect("a border");
                assert_eq!(tail.bytes, u64::try_from(cut - border).expect("small"));
            }
            None => assert!(at_border, "{cut}: a tail was dropped unsaid"),
        }
        assert!(log.opened().sequence >= last - 3);
        put(&log, decided(9, Verdict::Veto));
        drop(log);
        let report = whole(&settings.dir);
        let dropped = count(&settings.dir, |event| matches!(event, Event::TailDropped { .. }));
        assert_eq!(dropped, usize::from(!at_border), "{cut}: {report:?}");
        fs::write(&path, &bytes).expect("restored");
    }
}

/// Sequence number of the last record, and where each of the last three begins.
fn last_borders(dir: &Path) -> (u64, Vec<usize>) {
    let path = newest(dir);
    let mut scan = segment::Scan::open(&path, None).expect("opens");
    let mut offsets = Vec::new();
    while let segment::Step::Frame(frame) = scan.step().expect("reads") {
        offsets.push(usize::try_from(frame.offset).expect("small"));
    }
    (u64::try_from(offsets.len()).expect("small"), offsets.split_off(offsets.len() - 3))
}

/// NUL behind the last record is room, be it the writer's own or what a file system left: it says nothing, so nothing
/// is missing and nothing is reported.
#[test]
fn nul_behind_the_last_record_is_room() {
    let (_keep, settings, bytes) = a_log();
    for nuls in [1, 119, 120, 4096, 1 << 20] {
        let padded = [bytes.as_slice(), &vec![0; nuls]].concat();
        fs::write(newest(&settings.dir), padded).expect("written");
        let report = verify(&settings.dir, &public()).expect("readable");
        assert!(report.is_whole(), "{report:?}");
        let log = open(&settings);
        assert_eq!((log.opened().tail.as_ref(), log.opened().sequence), (None, report.sequence));
        put(&log, decided(9, Verdict::Veto));
        drop(log);
        assert_eq!(whole(&settings.dir).records, report.records + 2, "the answer and a checkpoint behind it");
        fs::write(newest(&settings.dir), &bytes).expect("restored");
    }
}

/// A torn write whose later pages reached the disk and whose first did not.
#[test]
fn a_batch_torn_at_its_beginning_is_a_tail() {
    let (_keep, settings, bytes) = a_log();
    let (_, borders) = last_borders(&settings.dir);
    // The last record is the checkpoint, in a write of its own: everything before it is proved.
    let mut torn = bytes.clone();
    torn[borders[2]..borders[2] + 60].fill(0);
    fs::write(newest(&settings.dir), &torn).expect("written");
    assert!(open(&settings).opened().tail.is_some());
    whole(&settings.dir);
}

#[test]
fn every_flipped_byte_is_seen_and_stored_records_are_never_dropped_for_it() {
    let (_keep, settings, bytes) = a_log();
    let path = newest(&settings.dir);
    let (_, borders) = last_borders(&settings.dir);
    for offset in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[offset] ^= 0x20;
        fs::write(&path, &broken).expect("written");
        let report = verify(&settings.dir, &public()).expect("readable");
        assert!(!report.is_whole(), "byte {offset}");
        if offset < borders[2] {
            let fault = report.faults.iter().any(|fault| matches!(fault, Fault::Damaged { .. }));
            assert!(fault, "byte {offset}: damage to a stored record is a fault, not a tail");
        }
        // Opening is slower; a prime stride visits every field of every frame.
        if offset % 37 == 0 {
            let opened = AuditLog::open(settings.clone(), clock(), Some(signer()));
            if offset < borders[2] {
                assert!(matches!(opened.expect_err("refused"), AuditError::Damaged { segment: 1, .. }));
                assert_eq!(fs::read(&path).expect("readable"), broken, "nothing was dropped");
            } else {
                assert!(opened.expect("opens").opened().tail.is_some());
            }
        }
    }
}

#[test]
fn a_record_taken_out_put_in_or_swapped_is_seen() {
    let (_keep, settings, bytes) = a_log();
    let path = newest(&settings.dir);
    let (_, borders) = last_borders(&settings.dir);
    let [a, b, c] = [borders[0], borders[1], borders[2]];
    let (head, one, two, rest) = (&bytes[..a], &bytes[a..b], &bytes[b..c], &bytes[c..]);
    for forged in [[head, two, rest].concat(), [head, one, one, two, rest].concat(), [head, two, one, rest].concat()] {
        fs::write(&path, forged).expect("written");
        assert!(!verify(&settings.dir, &public()).expect("readable").faults.is_empty());
        assert!(matches!(AuditLog::open(settings.clone(), clock(), None), Err(AuditError::Damaged { .. })));
    }
}

#[test]
fn checkpoints_need_the_right_key_and_the_right_head() {
    let (_keep, settings, _) = a_log();
    let stranger = SigningKey::from_bytes(&[8; 32]).verifying_key().to_bytes();
    let report = verify(&settings.dir, &[stranger]).expect("readable");
    assert!(matches!(report.faults.as_slice(), [Fault::UnknownKey { sequence: 9, .. }]));
    let report = verify(&settings.dir, &[]).expect("readable");
    assert_eq!((report.checkpoints, report.checkpoints_unchecked), (0, 1));
}

#[test]
fn a_log_signed_with_three_keys_verifies_and_a_retired_key_signs_nothing_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { checkpoint_records: 4, ..Settings::durable(dir.path()) };
    let key = |n: u8| SigningKey::from_bytes(&[n; 32]);
    let public = |n: u8| key(n).verifying_key().to_bytes();
    let in_use = std::sync::Arc::new(std::sync::atomic::AtomicU8::new(1));
    let signs = || {
        let in_use = std::sync::Arc::clone(&in_use);
        Signer(Box::new(move |message| {
            let key = key(in_use.load(Ordering::SeqCst));
            (key.verifying_key().to_bytes(), key.sign(message).to_bytes())
        }))
    };
    let rotated = |from: u8, to: u8| Event::KeyRotated {
        retired: hex::encode(public(from)),
        key: hex::encode(public(to)),
        by: Client { name: ":1.9".to_owned(), uid: Some(0), pid: None },
    };
    let log = AuditLog::open(settings.clone(), clock(), Some(signs())).expect("opens");
    (1..=6).for_each(|n| assert!(put(&log, received(n)).sequence > 0));
    in_use.store(2, Ordering::SeqCst);
    put(&log, rotated(1, 2));
    (7..=12).for_each(|n| assert!(put(&log, received(n)).sequence > 0));
    drop(log);
    // The third across a restart.
    in_use.store(3, Ordering::SeqCst);
    let log = AuditLog::open(settings.clone(), clock(), Some(signs())).expect("opens");
    put(&log, rotated(2, 3));
    (13..=18).for_each(|n| assert!(put(&log, received(n)).sequence > 0));
    drop(log);
    let report = verify(dir.path(), &[public(1), public(2), public(3)]).expect("readable");
    assert!(report.is_whole() && report.checkpoints >= 5 && report.unsigned <= 1, "{report:?}");
    let without = verify(dir.path(), &[public(2), public(3)]).expect("readable");
    assert!(matches!(without.faults.first(), Some(Fault::UnknownKey { .. })), "{without:?}");

    in_use.store(2, Ordering::SeqCst);
    let log = AuditLog::open(settings, clock(), Some(signs())).expect("opens");
    (19..=24).for_each(|n| assert!(put(&log, received(n)).sequence > 0));
    drop(log);
    let report = verify(dir.path(), &[public(1), public(2), public(3)]).expect("readable");
    assert!(matches!(report.faults.first(), Some(Fault::RetiredKey { key, .. }) if *key == hex::encode(public(2))));
}

#[test]
fn a_wall_clock_set_ten_years_ahead_ages_no_record() {
    const DECADE_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;
    let dir = tempfile::tempdir().expect("a directory");
    let mut settings = Settings { segment_bytes_max: 4096, ..Settings::durable(dir.path()) };
    settings.retention.age_max = Some(Duration::from_secs(365 * 86_400));
    let ahead = std::sync::Arc::new(AtomicU64::new(0));
    let ticks = AtomicU64::new(1);
    let stepping = || {
        let ahead = std::sync::Arc::clone(&ahead);
        let ticks = AtomicU64::new(ticks.fetch_add(1_000_000, Ordering::Relaxed));
        Clock::new(move || {
            let stamp = stamp(ticks.fetch_add(1, Ordering::Relaxed) * 1_000_000);
            Stamp { wall_ns: stamp.wall_ns + ahead.load(Ordering::Relaxed), ..stamp }
        })
    };
    let log = AuditLog::open(settings.clone(), stepping(), Some(signer())).expect("opens");
    (1..=20).for_each(|n| assert!(put(&log, received(n)).sequence > 0));
    ahead.store(DECADE_NS, Ordering::Relaxed);
    (21..=60).for_each(|n| assert!(put(&log, received(n)).sequence > 0));
    drop(log);
    assert_eq!(whole(dir.path()).dropped, 0, "set ahead while the log is open");
    let kept = records(dir.path());
    assert!(kept.iter().any(|record| record.at.wall_ns > DECADE_NS), "the records say what the clock showed");

    // Years that have gone by when the log is opened are years.
    let log = AuditLog::open(settings, stepping(), Some(signer())).expect("opens");
    (61..=80).for_each(|n| assert!(put(&log, received(n)).sequence > 0));
    drop(log);
    assert!(whole(dir.path()).dropped > 0);
}

#[test]
fn a_forged_signature_is_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let forger = Signer(Box::new(|_| (public()[0], [1; 64])));
    let log = AuditLog::open(Settings::durable(dir.path()), clock(), Some(forger)).expect("opens");
    put(&log, received(1));
    drop(log);
    let report = verify(dir.path(), &public()).expect("readable");
    assert!(matches!(report.faults.as_slice(), [Fault::Signature { .. }]), "{report:?}");
}

#[test]
fn checkpoints_come_every_so_many_records_and_after_so_much_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { checkpoint_records: 4, ..Settings::durable(dir.path()) };
    let log = open(&settings);
    (1..=12).for_each(|n| assert!(put(&log, received(n)).sequence > 1));
    drop(log);
    assert!((3..=5).contains(&whole(dir.path()).checkpoints));

    let timed = tempfile::tempdir().expect("a directory");
    // The test's clock runs a millisecond per question, so this is due at once.
    let settings = Settings { checkpoint_within: Duration::from_millis(2), ..Settings::durable(timed.path()) };
    let log = open(&settings);
    put(&log, received(1));
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        if verify(timed.path(), &public()).expect("readable").checkpoints > 0 {
            break;
        }
    }
    assert!(verify(timed.path(), &public()).expect("readable").checkpoints > 0);
    drop(log);
}

#[test]
fn segments_are_finished_at_their_size_and_stay_one_chain() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { segment_bytes_max: 4096, ..Settings::durable(dir.path()) };
    let log = open(&settings);
    let tickets: Vec<_> = (1..=200).map(|n| log.note(received(n)).expect("queued")).collect();
    tickets.into_iter().for_each(|ticket| assert!(ticket.wait_blocking(SOON).is_ok()));
    drop(log);
    let segments = segment::list(dir.path()).expect("readable");
    assert!(segments.len() > 20, "{} segments", segments.len());
    for &segment in &segments {
        let bytes = fs::metadata(segment::path_of(dir.path(), segment)).expect("there").len();
        // A checkpoint may reach past the bound; and late opening records alone do, for they name what is undecided.
        assert!(bytes <= 4096 + 700 || segment > 20, "segment {segment} has {bytes} bytes");
    }
    whole(dir.path());
    fs::remove_file(segment::path_of(dir.path(), 3)).expect("removed");
    let report = verify(dir.path(), &public()).expect("readable");
    assert_eq!(report.faults, [Fault::Missing { first: 3, last: 3 }]);
}

#[test]
fn a_segment_whose_creation_was_cut_off_costs_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { segment_bytes_max: 2048, ..Settings::durable(dir.path()) };
    let log = open(&settings);
    (1..=9).for_each(|n| assert!(put(&log, received(n)).sequence > 1));
    drop(log);
    let last = *segment::list(dir.path()).expect("readable").last().expect("one");
    let sound = fs::read(segment::path_of(dir.path(), last)).expect("readable");
    for begun in [0, 1, 119, 130, 400] {
        let path = segment::path_of(dir.path(), last + 1);
        fs::write(&path, &sound[..begun.min(sound.len())]).expect("written");
        let log = open(&settings);
        assert_eq!(log.opened().tail.as_ref().map(|tail| (tail.segment, tail.bytes)), Some((last + 1, begun as u64)));
        drop(log);
        whole(dir.path());
        // Start over from the same state.
        for segment in segment::list(dir.path()).expect("readable").into_iter().filter(|&segment| segment > last) {
            fs::remove_file(segment::path_of(dir.path(), segment)).expect("removed");
        }
        fs::write(segment::path_of(dir.path(), last), &sound).expect("restored");
    }
}

#[test]
fn concurrent_answers_are_all_stored_in_one_order() {
    for policy in [Policy::Durable, Policy::Buffered] {
        let dir = tempfile::tempdir().expect("a directory");
        let log = open(&Settings { policy, segment_bytes_max: 64 * 1024, ..Settings::durable(dir.path()) });
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let log = &log;
                scope.spawn(move || {
                    for n in 0..20 {
                        let stored = put(log, received(thread * 100 + n));
                        let again = put(log, decided(thread * 100 + n, Verdict::Permit));
                        assert!(again.sequence > stored.sequence);
                    }
                });
            }
        });
        drop(log);
        assert_eq!(count(dir.path(), |event| matches!(event, Event::Received(_))), 320);
        assert_eq!(count(dir.path(), |event| matches!(event, Event::Decided(_))), 320);
        whole(dir.path());
    }
}

#[test]
fn completions_are_called_without_blocking_the_caller() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(&Settings::durable(dir.path()));
    let (sender, receiver) = std::sync::mpsc::channel();
    let record = Record::new(log.now(), received(1));
    log.append_then(&record, Box::new(move |outcome| sender.send(outcome).expect("heard"))).expect("queued");
    let stored = receiver.recv_timeout(SOON).expect("called").expect("stored");
    assert_eq!(stored.sequence, 2);
}

#[test]
fn redaction_keeps_no_word_and_all_digests() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(&Settings { redact: true, ..Settings::durable(dir.path()) });
    put(&log, received(1));
    put(&log, decided(1, Verdict::Veto));
    drop(log);
    let bytes = fs::read(newest(dir.path())).expect("readable");
    let text = String::from_utf8_lossy(&bytes);
    for word in ["coffee", "pour", "cup"] {
        assert!(!text.contains(word), "{word}");
    }
    assert!(text.contains(&Digests::of(b"pour the coffee", b"image", b"1. pour").triple.to_string()));
    whole(dir.path());
}

fn with_retention(dir: &Path, bytes_max: u64) -> Settings {
    let retention = Retention { bytes_max, age_max: None, veto_age_max: None };
    Settings { segment_bytes_max: 8 * 1024, retention, policy: Policy::Buffered, ..Settings::durable(dir) }
}

fn answers(dir: &Path) -> (Vec<u64>, Vec<u64>) {
    let (mut vetoes, mut others) = (Vec::new(), Vec::new());
    for entry in read::entries(dir).expect("readable") {
        let entry = entry.expect("sound");
        let Content::Record(record) = &entry.content else { continue };
        let Event::Decided(decided) = &record.event else { continue };
        if decided.verdict == Verdict::Veto {
            vetoes.push(entry.sequence);
        } else {
            others.push(entry.sequence);
        }
    }
    (vetoes, others)
}

#[test]
fn retention_keeps_the_bound_and_every_veto_while_anything_else_can_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { segment_bytes_max: 32 * 1024, ..with_retention(dir.path(), 512 * 1024) };
    let log = open(&settings);
    // One answer in fifty is a veto: there are segments with and without.
    for chunk in 0..24 {
        let answer = |n| [received(n), decided(n, if n % 50 == 0 { Verdict::Veto } else { Verdict::Permit })];
        let events = (chunk * 50..chunk * 50 + 50).flat_map(answer);
        let tickets: Vec<_> = events.map(|event| log.note(event).expect("queued")).collect();
        tickets.into_iter().for_each(|ticket| assert!(ticket.wait_blocking(SOON).is_ok()));
    }
    log.close("over", SOON).expect("closes");
    let bytes: u64 = segment::list(dir.path())
        .expect("readable")
        .iter()
        .map(|&segment| fs::metadata(segment::path_of(dir.path(), segment)).expect("there").len())
        .sum();
    assert!(bytes <= (512 + 32) * 1024, "{bytes} bytes");
    let report = whole(dir.path());
    assert!(report.dropped > 0 && report.pruned > 0, "{report:?}");
    let (vetoes, others) = answers(dir.path());
    assert_eq!(vetoes.len(), 24, "no veto went while permits could");
    assert!(others.len() < 1000);
    // The same log again: counts, gaps and pruned segments are understood by a new start, which also finishes a
    // removal that was cut off after it was written down.
    let gone = segment::path_of(dir.path(), 2);
    assert!(!gone.exists());
    fs::write(&gone, b"as if the removal had been cut off").expect("written");
    let log = open(&settings);
    put(&log, decided(9999, Verdict::Permit));
    drop(log);
    assert!(!gone.exists());
    whole(dir.path());
    assert_eq!(answers(dir.path()).0.len(), 24);
}

#[test]
fn when_only_vetoes_are_left_the_oldest_go_and_the_chain_still_verifies() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = with_retention(dir.path(), 48 * 1024);
    let log = open(&settings);
    for n in 0..300 {
        put(&log, received(n));
        put(&log, decided(n, Verdict::Veto));
    }
    drop(log);
    let (vetoes, _) = answers(dir.path());
    assert!(!vetoes.is_empty() && vetoes.len() < 300);
    assert!(vetoes[0] > 1, "the oldest went");
    assert!(whole(dir.path()).dropped > 0);
}

#[test]
fn a_payload_that_retention_did_not_take_out_is_missed() {
    let (_keep, settings, bytes) = a_log();
    let (_, borders) = last_borders(&settings.dir);
    let mut emptied = bytes[..borders[0]].to_vec();
    let mut header = bytes[borders[0]..borders[0] + 120].to_vec();
    header[..4].copy_from_slice(b"SFp1");
    emptied.extend_from_slice(&header);
    emptied.extend_from_slice(&bytes[borders[1]..]);
    fs::write(newest(&settings.dir), emptied).expect("written");
    let report = verify(&settings.dir, &public()).expect("readable");
    assert_eq!(report.faults, [Fault::Emptied { segment: 1, records: 1 }]);
}

#[test]
fn old_answers_go_by_age_and_vetoes_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention {
        bytes_max: u64::MAX,
        age_max: Some(Duration::from_millis(200)),
        veto_age_max: Some(Duration::from_secs(3600)),
    };
    let settings = Settings { retention, ..with_retention(dir.path(), 0) };
    let log = open(&settings);
    for n in 0..400 {
        put(&log, received(n));
        put(&log, decided(n, if n < 20 { Verdict::Veto } else { Verdict::Permit }));
    }
    drop(log);
    let (vetoes, others) = answers(dir.path());
    assert_eq!(vetoes.len(), 20);
    assert!(others.len() < 300, "{} others", others.len());
    whole(dir.path());
}

#[test]
fn a_file_changed_under_us_is_an_error_and_not_a_stored_record() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(&Settings::durable(dir.path()));
    put(&log, received(1));
    fs::File::options().write(true).open(newest(dir.path())).expect("opens").set_len(100).expect("cut");
    assert!(log.note(received(2)).expect("queued").wait_blocking(SOON).is_err());
    assert!(log.failing().is_some());
}

#[test]
fn exports_hold_every_record_and_the_images_of_vetoes() {
    let (keep, settings, _) = a_log();
    let mut lines = Vec::new();
    let exported = export::json_lines(&settings.dir, |_| true, &mut lines).expect("written");
    assert_eq!((exported.records, exported.damaged), (9, 0));
    let text = String::from_utf8(lines).expect("text");
    for (line, record) in text.lines().zip(records(&settings.dir)) {
        let value: serde_json::Value = serde_json::from_str(line).expect("one JSON value a line");
        assert_eq!(value["record"], serde_json::to_value(&record).expect("encodes"));
    }

    let dir = keep.path().join("evidence");
    let mut evidence = Evidence::open(&dir, 1 << 20).expect("opens");
    let glimpse = |n, image: &[u8]| Glimpse {
        check_id: id(n),
        at: stamp(n),
        instruction: "pour the coffee".to_owned(),
        image: image.into(),
        plan: "1. pour".to_owned(),
    };
    let before = [std::sync::Arc::new(glimpse(1, b"\x89PNG one"))];
    evidence.keep(&glimpse(2, b"\xff\xd8 two"), &before).expect("written").expect("fits");
    let mut file = std::io::Cursor::new(Vec::new());
    let exported = mcap::write(&settings.dir, Some(&dir), |_| true, &mut file).expect("written");
    assert_eq!((exported.records, exported.vetoes, exported.images, exported.damaged), (9, 3, 2, 0));
    let bytes = file.into_inner();
    let mut topics = BTreeMap::new();
    for message in ::mcap::MessageStream::new(&bytes).expect("a stream") {
        let message = message.expect("a message");
        *topics.entry(message.channel.topic.clone()).or_insert(0) += 1;
        if message.channel.topic == "/steadfast/image" {
            let data: &[u8] = if message.log_time == stamp(1).wall_ns { b"\x89PNG one" } else { b"\xff\xd8 two" };
            assert!(message.data.windows(data.len()).any(|window| window == data));
        }
    }
    let expected = [("/steadfast/image", 2), ("/steadfast/record", 9), ("/steadfast/veto", 3)];
    assert_eq!(topics, expected.map(|(topic, count)| (topic.to_owned(), count)).into());
    // For the reader in tests/reference/audit/read_mcap.py.
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit.mcap"), &bytes).expect("written");
}

const CHILD: &str = "this-is-the-child";

/// Killed at random moments under load, the log still holds whatever was acknowledged, in one sound chain.
#[test]
fn killed_at_random_moments_nothing_acknowledged_is_missing() {
    if Path::new(CHILD).exists() {
        return write_until_killed();
    }
    let program = std::env::current_exe().expect("this program");
    let mut acknowledged_in_all = 0;
    for round in 0..24_u64 {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(CHILD), if round % 2 == 0 { "durable" } else { "buffered" }).expect("written");
        let mut child = std::process::Command::new(&program)
            .args(["--exact", "killed_at_random_moments_nothing_acknowledged_is_missing", "--nocapture"])
            .current_dir(dir.path())
            .stdout(fs::File::create(dir.path().join("acknowledged")).expect("made"))
            .spawn()
            .expect("starts");
        std::thread::sleep(Duration::from_millis(60 + 37 * round % 400));
        child.kill().expect("killed");
        child.wait().expect("gone");
        let said = fs::read_to_string(dir.path().join("acknowledged")).expect("readable");
        let said: Vec<u64> = said.lines().filter_map(|line| line.strip_prefix("stored ")?.parse().ok()).collect();
        let log = dir.path().join("log");
        if !log.exists() {
            continue;
        }
        drop(open(&Settings::durable(&log)));
        let report = whole(&log);
        let kept: std::collections::BTreeSet<_> = read::entries(&log)
            .expect("readable")
            .filter_map(|entry| entry.expect("sound").record()?.check_id())
            .collect();
        for &n in &said {
            assert!(kept.contains(&id(n)), "round {round}: check {n} was acknowledged and is missing: {report:?}");
        }
        acknowledged_in_all += said.len();
    }
    assert!(acknowledged_in_all > 100, "only {acknowledged_in_all} acknowledged: the test has not tested much");
}

fn write_until_killed() {
    use std::io::Write as _;
    let policy = match fs::read_to_string(CHILD).expect("readable").as_str() {
        "durable" => Policy::Durable,
        _ => Policy::Buffered,
    };
    let settings = Settings { policy, segment_bytes_max: 16 * 1024, checkpoint_records: 7, ..Settings::durable("log") };
    let log = open(&settings);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let log = &log;
            scope.spawn(move || {
                for n in 0.. {
                    let check = thread * 1_000_000 + n;
                    put(log, received(check));
                    // One write: a line is there whole or not at all.
                    std::io::stdout().write_all(format!("stored {check}\n").as_bytes()).expect("said");
                }
            });
        }
    });
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    /// Whatever follows a cut, be it nothing, NULs or noise, costs at most the record that was cut.
    #[test]
    fn any_tail_costs_only_the_record_it_tore(
        cut in 0.0..1.0_f64,
        tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        nuls in 0_usize..300,
    ) {
        let (_keep, settings, bytes) = a_log();
        let (_, borders) = last_borders(&settings.dir);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small")]
        let cut = borders[2] + (cut * (bytes.len() - borders[2]) as f64) as usize;
        let torn = [&bytes[..cut], tail.as_slice(), &vec![0; nuls]].concat();
        fs::write(newest(&settings.dir), &torn).expect("written");
        let log = open(&settings);
        let sequence = log.opened().sequence;
        drop(log);
        let report = whole(&settings.dir);
        proptest::prop_assert!(sequence >= 8 && report.records > sequence);
    }
}
