//! The bus object as a planner meets it, on a real dbus-daemon, with a stub for the guard.
#![cfg(feature = "bus")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what is skipped is said, and actors speak by their output")]
#![allow(clippy::disallowed_methods, reason = "a test owns its clock and its environment")]

#[path = "support/bus.rs"]
mod support;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_core::Stream;
use steadfast::decision::Reason;
use steadfast::intake::bus::{Bus, BusError, Lost, MALLEABILITY_UNREAD, NAME, PATH};
use steadfast::intake::limits::Limits;
use steadfast::intake::{Face, Mode, Shown, State, boot_clock};
use steadfast::triple::{IMAGE_BYTES_MAX, INSTRUCTION_BYTES_MAX, PLAN_BYTES_MAX};
use support::{PrivateBus, Stub, ready, sealed, unsealed};
use zbus::fdo;
use zbus::zvariant::{Fd, OwnedValue, Value};

const INTERFACE: &str = "org.steadfast.Guard1";
const ADMIN: &str = "org.steadfast.Guard1.Admin";

type Tail = (String, String, f64, Vec<u8>, HashMap<String, OwnedValue>);
type Options<'a> = HashMap<&'a str, Value<'a>>;

/// A bus, a guard on it, and a planner.
struct Wired {
    bus: PrivateBus,
    guard: Arc<Stub>,
    face: Face,
    served: Bus,
    planner: zbus::Connection,
}

async fn wired_with(face: Face, limits: Limits) -> Wired {
    let bus = PrivateBus::start();
    let guard = Stub::new();
    let served = Bus::serve(Some(&bus.address), Arc::clone(&guard), face.clone(), limits).await.expect("served");
    let planner = bus.client().await;
    Wired { bus, guard, face, served, planner }
}

async fn wired() -> Wired {
    // The pace is tested on its own; here it must not decide.
    let limits = Limits { checks_per_second_max: 10_000, checks_burst_max: 10_000, ..Limits::default() };
    wired_with(ready(), limits).await
}

async fn call<B: serde::Serialize + zbus::zvariant::DynamicType>(
    connection: &zbus::Connection,
    interface: &str,
    member: &str,
    body: &B,
) -> zbus::Result<zbus::Message> {
    connection.call_method(Some(NAME), PATH, Some(interface), member, body).await
}

async fn check(planner: &zbus::Connection, image: impl AsFd, plan: &str, options: Options<'_>) -> zbus::Result<Tail> {
    let body = (Fd::from(image.as_fd()), "fetch the cup", plan, options);
    call(planner, INTERFACE, "Check", &body).await?.body().deserialize()
}

/// Bytes that are written in one go, as a client with such an interest would.
struct Bytes<'a>(&'a [u8]);

impl zbus::zvariant::Type for Bytes<'_> {
    const SIGNATURE: &'static zbus::zvariant::Signature = <&[u8] as zbus::zvariant::Type>::SIGNATURE;
}

impl serde::Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

async fn inline(planner: &zbus::Connection, image: &[u8], plan: &str) -> zbus::Result<Tail> {
    let body = (Bytes(image), "fetch the cup", plan, Options::new());
    call(planner, INTERFACE, "CheckInline", &body).await?.body().deserialize()
}

fn error_name(error: &zbus::Error) -> String {
    let zbus::Error::MethodError(name, _, _) = error else { panic!("not an error from the other side: {error}") };
    name.to_string()
}

fn check_id(tail: &Tail) -> String {
    String::try_from(tail.4["check_id"].try_clone().expect("value")).expect("a check id")
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> S::Item {
    let next = std::future::poll_fn(|context| std::pin::Pin::new(&mut *stream).poll_next(context));
    tokio::time::timeout(Duration::from_secs(5), next).await.expect("in time").expect("a signal")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_verdict_travels_with_its_parts() {
    let wired = wired().await;
    let image = sealed(b"a picture");

    let permit = check(&wired.planner, &image, "1. go", Options::new()).await.expect("an answer");
    assert_eq!((permit.0.as_str(), permit.1.as_str(), permit.2), ("permit", "", 0.25));
    assert_eq!(permit.3, b"signed");
    assert_eq!(check_id(&permit), "check-0");
    assert_eq!(permit.4["mode"], OwnedValue::from(zbus::zvariant::Str::from("enforce")));

    let veto = check(&wired.planner, &image, "1. throw the knife", Options::new()).await.expect("an answer");
    assert_eq!((veto.0.as_str(), veto.1.as_str(), veto.2), ("veto", "constitution", MALLEABILITY_UNREAD));
    assert!(veto.3.is_empty());

    let refusal = check(&wired.planner, &image, "refuse", Options::new()).await.expect("an answer");
    assert_eq!((refusal.0.as_str(), refusal.1.as_str()), ("refusal", ""));
    assert!(refusal.3.is_empty());

    let by_inline = inline(&wired.planner, b"a picture", "1. go").await.expect("an answer");
    assert_eq!(by_inline.0, "permit");
    assert_eq!(by_inline.4["image_digest"], permit.4["image_digest"], "the same bytes either way");

    let client = wired.guard.clients.lock().expect("clients")[0].clone();
    assert_eq!(client.uid, Some(rustix::process::getuid().as_raw()));
    assert_eq!(client.pid, Some(std::process::id()));
    assert_eq!(client.bus_name, wired.planner.unique_name().expect("a name").as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn introspection_is_the_documented_interface() {
    let wired = wired().await;
    let proxy = fdo::IntrospectableProxy::builder(&wired.planner)
        .destination(NAME)
        .and_then(|builder| builder.path(PATH))
        .expect("names")
        .build()
        .await
        .expect("a proxy");
    let xml = proxy.introspect().await.expect("xml");
    let mut seen = Vec::new();
    let mut interface = String::new();
    let mut member = String::new();
    for line in xml.lines().map(str::trim) {
        let attribute = |name: &str| {
            let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
            Some(&line[start..start + line[start..].find('"')?])
        };
        if line.starts_with("<interface") {
            interface = attribute("name").expect("a name").to_owned();
        } else if line.starts_with("<method") || line.starts_with("<signal") || line.starts_with("<property") {
            member = attribute("name").expect("a name").to_owned();
            let kind = attribute("type").unwrap_or_default();
            let access = attribute("access").unwrap_or_default();
            seen.push(format!("{interface} {member} {kind}{access}"));
        } else if line.starts_with("<arg") {
            let (name, kind) = (attribute("name").unwrap_or_default(), attribute("type").expect("a type"));
            let way = attribute("direction").unwrap_or("out");
            seen.push(format!("{interface} {member} {way} {kind} {name}"));
        }
    }
    let ours: Vec<_> = seen.iter().filter(|line| line.starts_with("org.steadfast")).map(String::as_str).collect();
    let mut expected = vec![];
    for (method, image) in [("Check", "h"), ("CheckInline", "ay")] {
        expected.push(format!("{INTERFACE} {method} "));
        let args = [
            ("in", image, "image"),
            ("in", "s", "instruction"),
            ("in", "s", "plan"),
            ("in", "a{sv}", "options"),
            ("out", "s", "verdict"),
            ("out", "s", "reason"),
            ("out", "d", "malleability"),
            ("out", "ay", "permit"),
            ("out", "a{sv}", "details"),
        ];
        expected.extend(args.map(|(way, kind, name)| format!("{INTERFACE} {method} {way} {kind} {name}")));
    }
    for line in [
        "Explain ",
        "Explain in s check_id",
        "Explain out a{sv} record",
        "Status ",
        "Status out a{sv} status",
        "Vetoed ",
        "Vetoed out s check_id",
        "Vetoed out s reason",
        "Vetoed out d malleability",
        "StateChanged ",
        "StateChanged out s state",
        "State sread",
        "Mode sread",
        "ConstitutionDigest sread",
        "ProxyDigest sread",
        "CalibrationDigest sread",
        "ExecutionProvider sread",
        "Checks tread",
        "Permits tread",
        "Vetoes tread",
    ] {
        expected.push(format!("{INTERFACE} {line}"));
    }
    for line in [
        "Reload ",
        "SetMode ",
        "SetMode in s mode",
        "Release ",
        "Release in s check_id",
        "Release in s note",
        "Release out ay permit",
        "RotateKey ",
        "RotateKey out s key_id",
        "Forget ",
        "Forget in s task_digest",
    ] {
        expected.push(format!("{ADMIN} {line}"));
    }
    let (mut ours, mut expected): (Vec<_>, Vec<_>) = (ours, expected.iter().map(String::as_str).collect());
    ours.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ours, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_not_a_sealed_image_is_a_recorded_veto() {
    let wired = wired().await;
    let (pipe, _writer) = std::io::pipe().expect("pipe");
    let folder = std::fs::File::open("/").expect("folder");
    let file = tempfile::tempfile().expect("file");
    let rows: Vec<(&str, OwnedFd, &str)> = vec![
        ("unsealed", unsealed(b"a picture"), "seals"),
        ("pipe", pipe.into(), "pipe"),
        ("directory", folder.into(), "directory"),
        ("file on disk", file.into(), "memfd"),
        ("empty", sealed(b""), "empty"),
        ("one byte too many", sealed(&vec![0; IMAGE_BYTES_MAX + 1]), "at most"),
    ];
    for (number, (what, image, word)) in rows.iter().enumerate() {
        let tail = check(&wired.planner, image, "1. go", Options::new()).await.expect("an answer");
        assert_eq!((tail.0.as_str(), tail.1.as_str()), ("veto", "input-limit"), "{what}");
        let detail = String::try_from(tail.4["detail"].try_clone().expect("value")).expect("text");
        assert!(detail.contains(word), "{what}: {detail}");
        assert!(!check_id(&tail).is_empty());
        assert_eq!(wired.guard.failures().len(), number + 1, "{what} reached the guard");
    }
    let tail = inline(&wired.planner, b"", "1. go").await.expect("an answer");
    assert_eq!((tail.0.as_str(), tail.1.as_str()), ("veto", "input-limit"));
    let edge = inline(&wired.planner, &vec![7; IMAGE_BYTES_MAX], "1. go").await.expect("an answer");
    assert_eq!(edge.0, "permit");
    let past = inline(&wired.planner, &vec![7; IMAGE_BYTES_MAX + 1], "1. go").await.expect("an answer");
    assert_eq!((past.0.as_str(), past.1.as_str()), ("veto", "input-limit"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_hold_at_their_edges_and_one_past_them() {
    let wired = wired().await;
    for (instruction, plan, verdict) in [
        (INSTRUCTION_BYTES_MAX, PLAN_BYTES_MAX, "permit"),
        (INSTRUCTION_BYTES_MAX + 1, 1, "veto"),
        (1, PLAN_BYTES_MAX + 1, "veto"),
        (1, 1024 * 1024, "veto"),
    ] {
        let image = sealed(b"a picture");
        let body = (Fd::from(image.as_fd()), "i".repeat(instruction), "p".repeat(plan), Options::new());
        let reply = call(&wired.planner, INTERFACE, "Check", &body).await.expect("a reply");
        let tail: Tail = reply.body().deserialize().expect("an answer");
        assert_eq!(tail.0, verdict, "{instruction} and {plan} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_are_read_strictly_and_misuse_is_an_error_that_names_its_record() {
    let wired = wired().await;
    let image = sealed(b"a picture");
    let now = u64::try_from(boot_clock().as_nanos()).expect("small");
    let good = Options::from([
        ("plan_id", "p-1".into()),
        ("planner", "vlm".into()),
        ("audience", "arm".into()),
        ("image_stamp_ns", now.into()),
        ("deadline_ms", 700_u32.into()),
    ]);
    let tail = check(&wired.planner, &image, "1. go", good).await.expect("an answer");
    assert_eq!(tail.0, "permit");
    let options: HashMap<String, OwnedValue> = tail.4["options"].try_clone().expect("value").try_into().expect("map");
    assert_eq!(options["deadline_ms"], OwnedValue::from(700_u64));

    for wrong in [
        Options::from([("deadline", 700_u32.into())]),
        Options::from([("deadline_ms", 700_u64.into())]),
        Options::from([("audience", 7_u32.into())]),
    ] {
        let before = wired.guard.failures().len();
        let error = check(&wired.planner, &image, "1. go", wrong).await.expect_err("an error");
        assert_eq!(error_name(&error), "org.freedesktop.DBus.Error.InvalidArgs");
        assert!(error.to_string().contains("recorded as check check-"), "{error}");
        assert_eq!(wired.guard.failures().len(), before + 1, "recorded");
    }
    let rows: [(&str, Value<'_>, &str); 5] = [
        ("deadline_ms", 0_u32.into(), "input-limit"),
        ("deadline_ms", u32::MAX.into(), "input-limit"),
        ("image_stamp_ns", 0_u64.into(), "image-stale"),
        ("image_stamp_ns", (now + 60_000_000_000).into(), "image-stale"),
        ("image_stamp_ns", now.saturating_sub(10_000_000_000).max(1).into(), "image-stale"),
    ];
    for (name, value, reason) in rows {
        let shown = format!("{name} = {value:?}");
        let tail = check(&wired.planner, &image, "1. go", Options::from([(name, value)])).await.expect("an answer");
        assert_eq!((tail.0.as_str(), tail.1.as_str()), ("veto", reason), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_another_shape_is_an_error_and_harms_nobody() {
    let wired = wired().await;
    let wrong = call(&wired.planner, INTERFACE, "Check", &"text alone").await.expect_err("an error");
    assert!(wrong.to_string().contains("ignature"), "{wrong}");
    let unknown = call(&wired.planner, INTERFACE, "Allow", &()).await.expect_err("an error");
    assert_eq!(error_name(&unknown), "org.freedesktop.DBus.Error.UnknownMethod");
    let tail = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!(tail.0, "permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_array_no_bus_carries_ends_that_client_alone() {
    let wired = wired().await;
    let huge = vec![7_u8; 65 * 1024 * 1024];
    assert!(inline(&wired.planner, &huge, "1. go").await.is_err());
    let other = wired.bus.client().await;
    let tail = check(&other, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!(tail.0, "permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_calls_while_starting_are_all_vetoed_and_recorded() {
    let wired = wired_with(Face::new(Shown::starting(Mode::Enforce)), Limits::default()).await;
    // dbus-daemon itself lets one connection wait for 128 replies at most.
    let mut planners = vec![];
    for _ in 0..4 {
        planners.push(wired.bus.client().await);
    }
    let waiting: Vec<_> = (0..200)
        .map(|number| {
            let planner = planners[number % planners.len()].clone();
            tokio::spawn(async move { check(&planner, sealed(b"a picture"), "1. go", Options::new()).await })
        })
        .collect();
    for answer in waiting {
        let tail = answer.await.expect("a task").expect("an answer");
        assert_eq!((tail.0.as_str(), tail.1.as_str()), ("veto", "not-ready"));
    }
    assert_eq!(wired.guard.failures(), vec![Reason::NotReady; 200]);

    wired.face.change(|shown| shown.state = State::Ready);
    let tail = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!(tail.0, "permit");
    wired.face.change(|shown| shown.state = State::Stopping);
    let tail = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!((tail.0.as_str(), tail.1.as_str()), ("veto", "not-ready"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_told_so_at_once_and_the_rest_still_answered() {
    let wired = wired().await;
    let held = wired.guard.gate.acquire_many(1000).await.expect("the gate");
    let ask = |plan: &'static str| {
        let planner = wired.planner.clone();
        tokio::spawn(async move { check(&planner, sealed(b"a picture"), plan, Options::new()).await })
    };
    let waiting: Vec<_> = (0..10).map(|_| ask("1. go")).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(held);
    let mut verdicts = HashMap::<(String, String), usize>::new();
    for answer in waiting {
        let tail = answer.await.expect("a task").expect("an answer");
        *verdicts.entry((tail.0, tail.1)).or_default() += 1;
    }
    let count = |verdict: &str, reason: &str| verdicts.get(&(verdict.to_owned(), reason.to_owned())).copied();
    assert_eq!((count("permit", ""), count("veto", "overload")), (Some(4), Some(6)), "{verdicts:?}");
    let tail = ask("1. go").await.expect("a task").expect("an answer");
    assert_eq!(tail.0, "permit", "places are given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_too_fast_is_slowed_down() {
    let limits = Limits { checks_per_second_max: 1, checks_burst_max: 3, ..Limits::default() };
    let wired = wired_with(ready(), limits).await;
    let mut reasons = vec![];
    for _ in 0..5 {
        let tail = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
        reasons.push(tail.1);
    }
    assert_eq!(reasons, ["", "", "", "overload", "overload"]);
    // The pace is the user's, not the connection's: a new connection brings no new tokens.
    let another = wired.bus.client().await;
    let tail = check(&another, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!(tail.1, "overload");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_does_not_come_back_is_an_error_and_keeps_its_place() {
    let wired = wired().await;
    let held = wired.guard.gate.acquire_many(1000).await.expect("the gate");
    let begun = Instant::now();
    let options = || Options::from([("deadline_ms", 50_u32.into())]);
    for _ in 0..4 {
        let error = check(&wired.planner, sealed(b"a picture"), "1. go", options()).await.expect_err("late");
        assert_eq!(error_name(&error), "org.freedesktop.DBus.Error.TimedOut");
    }
    assert!(begun.elapsed() < Duration::from_secs(8));
    // Four stuck checks still hold the client's four places; the fifth, a failure, is recorded behind the gate too.
    assert_eq!(wired.guard.finished.load(Ordering::SeqCst), 0);
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(5);
    while wired.guard.finished.load(Ordering::SeqCst) < 4 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(wired.guard.finished.load(Ordering::SeqCst), 4, "what is begun is finished");
    let tail = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!(tail.0, "permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_dies_mid_call_is_still_recorded() {
    let wired = wired().await;
    let held = wired.guard.gate.acquire_many(1000).await.expect("the gate");
    let dying = wired.bus.client().await;
    let asking = {
        let dying = dying.clone();
        tokio::spawn(async move { check(&dying, sealed(b"a picture"), "1. last words", Options::new()).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    asking.abort();
    dying.close().await.expect("closed");
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(5);
    while wired.guard.finished.load(Ordering::SeqCst) < 1 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let asked = wired.guard.asked.lock().expect("asked").clone();
    assert_eq!(asked, [Ok("1. last words".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_panics_or_forgets_its_permit_permits_nothing() {
    let wired = wired().await;
    for plan in ["panic", "forget the permit"] {
        let error = check(&wired.planner, sealed(b"a picture"), plan, Options::new()).await.expect_err("an error");
        assert_eq!(error_name(&error), "org.freedesktop.DBus.Error.Failed", "{plan}");
    }
    let tail = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!(tail.0, "permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadow_cannot_be_taken_for_enforce() {
    let wired = wired().await;
    *wired.guard.mode.lock().expect("mode") = Mode::Shadow;
    for (plan, verdict) in [("1. go", "shadow-permit"), ("knife", "shadow-veto"), ("refuse", "shadow-refusal")] {
        let tail = check(&wired.planner, sealed(b"a picture"), plan, Options::new()).await.expect("an answer");
        assert_eq!(tail.0, verdict);
        assert!(tail.3.is_empty(), "no permit");
        assert_eq!(tail.4["mode"], OwnedValue::from(zbus::zvariant::Str::from("shadow")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_and_properties_follow_what_happens() {
    let wired = wired().await;
    let proxy = zbus::Proxy::new(&wired.planner, NAME, PATH, INTERFACE).await.expect("a proxy");
    let mut vetoed = proxy.receive_signal("Vetoed").await.expect("a stream");
    let mut states = proxy.receive_signal("StateChanged").await.expect("a stream");
    let mut provider = proxy.receive_property_changed::<String>("ExecutionProvider").await;
    let first = next(&mut provider).await;
    assert_eq!(first.get().await.expect("a value"), "");

    check(&wired.planner, sealed(b"a picture"), "knife", Options::new()).await.expect("an answer");
    check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    let message = next(&mut vetoed).await;
    let (id, reason, malleability): (String, String, f64) = message.body().deserialize().expect("a veto");
    assert_eq!((id.as_str(), reason.as_str(), malleability), ("check-0", "constitution", MALLEABILITY_UNREAD));

    wired.face.change(|shown| {
        shown.state = State::Degraded;
        shown.execution_provider = "CPUExecutionProvider".to_owned();
    });
    let (state,): (String,) = next(&mut states).await.body().deserialize().expect("a state");
    assert_eq!(state, "degraded");
    let changed = next(&mut provider).await;
    assert_eq!(changed.get().await.expect("a value"), "CPUExecutionProvider");
    let mut counted = vec![];
    for name in ["Checks", "Permits", "Vetoes"] {
        let properties = "org.freedesktop.DBus.Properties";
        let reply = call(&wired.planner, properties, "Get", &(INTERFACE, name)).await.expect("a property");
        counted.push(u64::try_from(reply.body().deserialize::<Value<'_>>().expect("a value")).expect("a number"));
    }
    assert_eq!(counted, [2, 1, 1]);
    // Nothing can be written.
    assert!(proxy.set_property("State", "ready").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_its_signals_hinders_nobody() {
    let wired = wired().await;
    let deaf = wired.bus.client().await;
    let proxy = zbus::Proxy::new(&deaf, NAME, PATH, INTERFACE).await.expect("a proxy");
    let _never_read = proxy.receive_all_signals().await.expect("a stream");
    for _ in 0..300 {
        let tail = check(&wired.planner, sealed(b"a picture"), "knife", Options::new()).await.expect("an answer");
        assert_eq!(tail.1, "constitution");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_status_and_administration() {
    let wired = wired().await;
    let explained = call(&wired.planner, INTERFACE, "Explain", &"check-0").await.expect("a record");
    let record: HashMap<String, OwnedValue> = explained.body().deserialize().expect("a dictionary");
    assert_eq!(Vec::<String>::try_from(record["rules"].try_clone().expect("value")).expect("a list"), ["r1"]);
    let long = "x".repeat(1000);
    for unknown in ["check-9", "", long.as_str()] {
        let error = call(&wired.planner, INTERFACE, "Explain", &unknown).await.expect_err("an error");
        assert_eq!(error_name(&error), "org.freedesktop.DBus.Error.InvalidArgs");
    }
    let status = call(&wired.planner, INTERFACE, "Status", &()).await.expect("a status");
    let status: HashMap<String, OwnedValue> = status.body().deserialize().expect("a dictionary");
    for key in ["proxy", "state", "mode", "checks", "checks_waiting", "execution_provider"] {
        assert!(status.contains_key(key), "{key}");
    }

    let kept = call(&wired.planner, ADMIN, "Reload", &()).await.expect_err("the new one is bad");
    assert!(kept.to_string().contains("line 3"), "{kept}");
    call(&wired.planner, ADMIN, "SetMode", &"shadow").await.expect("set");
    assert_eq!(*wired.guard.mode.lock().expect("mode"), Mode::Shadow);
    let error = call(&wired.planner, ADMIN, "SetMode", &"off").await.expect_err("no such mode");
    assert_eq!(error_name(&error), "org.freedesktop.DBus.Error.InvalidArgs");
    let released = call(&wired.planner, ADMIN, "Release", &("check-0", "seen by eye")).await.expect("a permit");
    assert_eq!(released.body().deserialize::<Vec<u8>>().expect("bytes"), b"released");
    assert!(call(&wired.planner, ADMIN, "Release", &("check-0", "  ")).await.is_err(), "a release needs a reason");
    let rotated = call(&wired.planner, ADMIN, "RotateKey", &()).await.expect("a new key");
    assert_eq!(rotated.body().deserialize::<String>().expect("an id"), "0123456789abcdef");
    assert!(call(&wired.planner, ADMIN, "Forget", &"not a digest").await.is_err());
    call(&wired.planner, ADMIN, "Forget", &"0".repeat(64)).await.expect("forgotten");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_is_had_once_and_never_taken_over() {
    let wired = wired().await;
    let second = Bus::serve(Some(&wired.bus.address), Stub::new(), ready(), Limits::default()).await;
    assert!(matches!(second, Err(BusError::NameTaken)));
    let hostile = wired.bus.client().await;
    let flags = fdo::RequestNameFlags::ReplaceExisting | fdo::RequestNameFlags::DoNotQueue;
    assert!(matches!(hostile.request_name_with_flags(NAME, flags).await, Err(zbus::Error::NameTaken)));
    let tail = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect("an answer");
    assert_eq!(tail.0, "permit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_that_dies_is_noticed_on_both_sides() {
    let mut wired = wired().await;
    assert!(tokio::time::timeout(Duration::from_millis(100), wired.served.lost()).await.is_err(), "alive");
    wired.bus.kill();
    let lost = tokio::time::timeout(Duration::from_secs(5), wired.served.lost()).await.expect("noticed");
    assert_eq!(lost, Lost::Bus);
    assert!(check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_leaving_nobody_answers() {
    let wired = wired().await;
    wired.served.leave().await;
    let error = check(&wired.planner, sealed(b"a picture"), "1. go", Options::new()).await.expect_err("an error");
    assert_eq!(error_name(&error), "org.freedesktop.DBus.Error.ServiceUnknown");
    let again = Bus::serve(Some(&wired.bus.address), Stub::new(), ready(), Limits::default()).await;
    assert!(again.is_ok(), "the name is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_bus_there_is_a_clear_error() {
    let nowhere = Bus::serve(Some("unix:path=/nonexistent/bus"), Stub::new(), ready(), Limits::default()).await;
    let error = nowhere.expect_err("no bus");
    assert!(error.to_string().contains("the bus cannot be used"), "{error}");
}
