//! The bus policy as it is installed, with several users, on a real dbus-daemon and a real dbus-broker.
//!
//! Runs in a mount and process namespace with a private /run and private user and group files, so the host sees
//! nothing of it. That needs root; without it the tests say so and pass. The actors are this test program run again
//! under other users: see [`actor`].
#![cfg(feature = "bus")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what is skipped is said, and actors speak by their output")]
#![allow(clippy::disallowed_methods, reason = "a test owns its clock and its environment")]

#[path = "support/bus.rs"]
mod support;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_core::Stream;
use steadfast::intake::bus::{Bus, NAME, PATH};
use steadfast::intake::limits::Limits;
use support::{Stub, connect, ready, repository, sealed};
use zbus::zvariant::{Fd, Value};

const ROLE: &str = "STEADFAST_TEST_ROLE";
const SOCKET: &str = "/run/dbus/system_bus_socket";
const ADDRESS: &str = "unix:path=/run/dbus/system_bus_socket";
const GUARD: &str = "org.steadfast.Guard1";
const ADMIN: &str = "org.steadfast.Guard1.Admin";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Users beside root, and the group of ours each is in.
const USERS: [(&str, u32, Option<&str>); 5] = [
    ("steadfast", 7001, None),
    ("planner", 7002, Some("steadfast-clients")),
    ("operator", 7003, Some("steadfast-admin")),
    ("stranger", 7004, None),
    ("chief", 7005, Some("steadfast-clients,steadfast-admin")),
];

#[test]
fn dbus_daemon_keeps_everyone_to_their_part() {
    on_a_private_host("dbus-daemon");
}

#[test]
fn dbus_broker_keeps_everyone_to_their_part() {
    on_a_private_host("dbus-broker");
}

fn on_a_private_host(broker: &str) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: several users on one bus need root");
        return;
    }
    if broker == "dbus-broker" && Command::new("dbus-broker-launch").arg("--version").output().is_err() {
        println!("skipped: dbus-broker is not installed (Debian: dbus-broker)");
        return;
    }
    // The other users may not be able to reach the build folder.
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("readable");
    let program = folder.path().join("bus_policy");
    fs::copy(std::env::current_exe().expect("this program"), &program).expect("copied");
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
        .arg(&program)
        .args(["--exact", "actor", "--nocapture"])
        .env(ROLE, format!("host {broker}"))
        .env("STEADFAST_TEST_FOLDER", folder.path())
        .output()
        .expect("unshare runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if said.contains("unshare: unshare failed") {
        println!("skipped: no namespaces here: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the host is done"), "{said}");
}

/// Every part that is played under another user or in the namespace; does nothing in a run of the tests themselves.
#[test]
fn actor() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = std::env::var("STEADFAST_TEST_FOLDER").map(PathBuf::from).expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    match role.split_once(' ').unwrap_or((&role, "")) {
        ("host", broker) => host(broker, &folder),
        ("guard", _) => runtime.block_on(guard()),
        ("listener", _) => runtime.block_on(listen()),
        ("caller", _) => runtime.block_on(call_everything()),
        (other, _) => panic!("no such role: {other}"),
    }
}

/// A machine with our users on it, and a system bus with our policy.
fn host(broker: &str, folder: &Path) {
    private_files(folder);
    let journal = UnixDatagram::bind("/run/systemd/journal/socket").expect("a journal");
    // dbus-broker says everything to the journal and will not start without one.
    std::thread::spawn(move || {
        let mut line = [0; 65536];
        while journal.recv(&mut line).is_ok() {}
    });
    let config = system_bus_config(folder);
    let mut bus = match broker {
        "dbus-daemon" => Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile"])
            .spawn(),
        _ => Command::new("systemd-socket-activate")
            .args(["-l", SOCKET, "dbus-broker-launch", "--scope=system"])
            .arg(format!("--config-file={}", config.display()))
            .spawn(),
    }
    .expect("a bus");
    wait_for(|| Path::new(SOCKET).exists());
    fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o666)).expect("open to all");

    // An impostor comes first, while the name is free.
    let before = said_by(play("stranger", "caller", folder));
    assert_eq!(before.get("own").map(String::as_str), Some("AccessDenied"), "{before:?}");

    let mut guard = play("steadfast", "guard", folder);
    let first = BufReader::new(guard.stdout.take().expect("its output"))
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("serving") || line.contains("panicked"));
    assert!(first.expect("the guard speaks").contains("serving"), "the guard serves");

    for (user, allowed) in expected() {
        let said = said_by(play(user, "caller", folder));
        assert_eq!(said.len(), CALLS.len() + 1, "{user}: {said:?}");
        for (call, outcome) in said {
            let expected = allowed.contains(&call.as_str());
            assert_eq!(outcome != "AccessDenied", expected, "{broker}: {user} {call}: {outcome}");
        }
    }
    for (user, hears) in [("planner", true), ("stranger", false), ("root", false)] {
        assert_eq!(hears_vetoes(user, folder), hears, "{broker}: {user} hears of vetoes");
    }
    for child in [&mut guard, &mut bus] {
        let _ = child.kill();
        let _ = child.wait();
    }
    println!("the host is done");
}

/// What each user may do; everything else must be denied.
fn expected() -> Vec<(&'static str, Vec<&'static str>)> {
    let client = ["Check", "CheckInline", "Explain", "Status", "Get", "GetAll", "Introspect", "Ping"];
    let admin = ["Reload", "SetMode", "Release", "RotateKey", "Forget", "Introspect"];
    vec![
        ("planner", client.to_vec()),
        ("operator", admin.to_vec()),
        ("chief", [client.as_slice(), admin.as_slice()].concat()),
        ("stranger", vec![]),
        ("root", vec![]),
    ]
}

fn private_files(folder: &Path) {
    let run = |command: &mut Command| assert!(command.status().expect("runs").success(), "{command:?}");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"]));
    for place in ["/run/systemd/journal", "/run/dbus"] {
        fs::create_dir_all(place).expect("a folder");
    }
    let mut passwd = fs::read_to_string("/etc/passwd").expect("users");
    let mut group = fs::read_to_string("/etc/group").expect("groups");
    let mut members = BTreeMap::<&str, Vec<&str>>::new();
    for (user, id, groups) in USERS {
        passwd.push_str(&format!("{user}:x:{id}:{id}::/:/usr/sbin/nologin\n"));
        group.push_str(&format!("{user}:x:{id}:\n"));
        for name in groups.into_iter().flat_map(|groups| groups.split(',')) {
            members.entry(name).or_default().push(user);
        }
    }
    for (number, (name, users)) in (7010..).zip(members) {
        group.push_str(&format!("{name}:x:{number}:{}\n", users.join(",")));
    }
    for (name, text) in [("passwd", passwd), ("group", group)] {
        let ours = folder.join(name);
        fs::write(&ours, text).expect("written");
        run(Command::new("mount").arg("--bind").arg(&ours).arg(Path::new("/etc").join(name)));
    }
}

/// The distribution's own system.conf; only its place, its includes and its servants are ours.
fn system_bus_config(folder: &Path) -> PathBuf {
    let policies = folder.join("system.d");
    fs::create_dir(&policies).expect("a folder");
    let ours = repository_policy();
    fs::write(policies.join("org.steadfast.Guard1.conf"), ours).expect("the policy");
    let stock = fs::read_to_string("/usr/share/dbus-1/system.conf").expect("the stock configuration");
    let mut text = String::new();
    for line in stock.lines() {
        let dropped = [
            "<user>",
            "<fork/>",
            "<pidfile>",
            "<syslog/>",
            "<servicehelper>",
            "<standard_system_servicedirs/>",
            "<includedir>",
            "<include ",
        ];
        if line.contains("<listen>") {
            text.push_str(&format!("<listen>unix:path={SOCKET}</listen>\n"));
        } else if line.contains("<includedir>system.d<") {
            // In its own place: what is said later wins.
            text.push_str(&format!("<includedir>{}</includedir>\n", policies.display()));
        } else if !dropped.iter().any(|dropped| line.contains(dropped)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    let config = folder.join("system.conf");
    fs::write(&config, text).expect("written");
    config
}

fn repository_policy() -> String {
    fs::read_to_string(repository().join("systemd/org.steadfast.Guard1.conf")).expect("the policy")
}

fn play(user: &str, role: &str, folder: &Path) -> Child {
    Command::new("setpriv")
        .arg(format!("--reuid={user}"))
        .arg(format!("--regid={user}"))
        .arg("--init-groups")
        .arg(folder.join("bus_policy"))
        .args(["--exact", "actor", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .expect("setpriv runs")
}

/// What a caller reports: call and outcome, a line each.
fn said_by(mut caller: Child) -> BTreeMap<String, String> {
    let lines = BufReader::new(caller.stdout.take().expect("its output")).lines().map_while(Result::ok);
    let said = lines
        .filter_map(|line| line.strip_prefix("outcome ").map(str::to_owned))
        .filter_map(|line| line.split_once(' ').map(|(call, outcome)| (call.to_owned(), outcome.to_owned())))
        .collect();
    let _ = caller.wait();
    said
}

/// Whether a user hears of a veto that a planner provokes.
fn hears_vetoes(user: &str, folder: &Path) -> bool {
    let mut listener = play(user, "listener", folder);
    let mut lines = BufReader::new(listener.stdout.take().expect("its output")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")), "{user} listens");
    said_by(play("planner", "caller", folder));
    let heard = lines.find_map(|line| line.strip_prefix("heard ").map(str::to_owned)).expect("a report");
    let _ = listener.wait();
    heard == "true"
}

fn wait_for(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing came of it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn guard() {
    let limits = Limits { checks_per_second_max: 1000, checks_burst_max: 1000, ..Limits::default() };
    let served = Bus::serve(Some(ADDRESS), Stub::new(), ready(), limits).await.expect("served");
    println!("serving");
    served.lost().await;
}

async fn listen() {
    let connection = connect(ADDRESS).await;
    let rule = format!("type='signal',interface='{GUARD}',member='Vetoed'");
    let rule = zbus::MatchRule::try_from(rule.as_str()).expect("a rule");
    let stream = zbus::MessageStream::for_match_rule(rule, &connection, None).await.expect("a stream");
    println!("\nlistening");
    let mut stream = std::pin::pin!(stream);
    let next = std::future::poll_fn(|context| stream.as_mut().poll_next(context));
    let heard = tokio::time::timeout(Duration::from_secs(2), next).await.is_ok();
    println!("\nheard {heard}");
}

/// Every call there is, as interface and member.
const CALLS: [(&str, &str); 14] = [
    (GUARD, "Check"),
    (GUARD, "CheckInline"),
    (GUARD, "Explain"),
    (GUARD, "Status"),
    (PROPERTIES, "Get"),
    (PROPERTIES, "GetAll"),
    (PROPERTIES, "Set"),
    ("org.freedesktop.DBus.Introspectable", "Introspect"),
    ("org.freedesktop.DBus.Peer", "Ping"),
    (ADMIN, "Reload"),
    (ADMIN, "SetMode"),
    (ADMIN, "Release"),
    (ADMIN, "RotateKey"),
    (ADMIN, "Forget"),
];

async fn call_everything() {
    let connection = connect(ADDRESS).await;
    let image = sealed(b"a picture");
    let none = HashMap::<&str, Value<'_>>::new();
    println!();
    for (interface, member) in CALLS {
        let result = match member {
            "Check" => send(&connection, interface, member, &(Fd::from(image.as_fd()), "go", "knife", &none)).await,
            "CheckInline" => send(&connection, interface, member, &(&b"a picture"[..], "go", "1. go", &none)).await,
            "Explain" => send(&connection, interface, member, &"check-0").await,
            "Get" => send(&connection, interface, member, &(GUARD, "State")).await,
            "GetAll" => send(&connection, interface, member, &GUARD).await,
            "Set" => send(&connection, interface, member, &(GUARD, "State", Value::from("ready"))).await,
            "SetMode" => send(&connection, interface, member, &"enforce").await,
            "Release" => send(&connection, interface, member, &("check-0", "seen")).await,
            "Forget" => send(&connection, interface, member, &"0".repeat(64)).await,
            _ => send(&connection, interface, member, &()).await,
        };
        println!("outcome {member} {result}");
    }
    let flags = zbus::fdo::RequestNameFlags::DoNotQueue.into();
    let owned = match connection.request_name_with_flags(NAME, flags).await {
        Ok(_) => "done".to_owned(),
        // A taken name hides whether it could have been had; the policy is asked first.
        Err(error) => last_word(&error),
    };
    println!("outcome own {owned}");
}

async fn send<B: serde::Serialize + zbus::zvariant::DynamicType>(
    connection: &zbus::Connection,
    interface: &str,
    member: &str,
    body: &B,
) -> String {
    match connection.call_method(Some(NAME), PATH, Some(interface), member, body).await {
        Ok(_) => "done".to_owned(),
        Err(error) => last_word(&error),
    }
}

fn last_word(error: &zbus::Error) -> String {
    if let zbus::Error::MethodError(name, _, _) = error {
        return name.as_str().rsplit('.').next().unwrap_or_default().to_owned();
    }
    let said = format!("{error:?}");
    if said.contains("AccessDenied") { "AccessDenied".to_owned() } else { said.replace(char::is_whitespace, "-") }
}
