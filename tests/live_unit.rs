//! The unit, the bus policy and the activation under a real systemd: readiness, walls, watchdog, restart, exit 78.
//!
//! Boots systemd as PID 1 in namespaces of its own, over a throw-away overlay of this machine's root, so the host sees
//! nothing of it. That needs root, overlayfs and a cgroup2 hierarchy; without them the test says so and passes. The
//! daemon's part is played by this program around a stub guard: what is tried here is what surrounds the daemon.
#![cfg(feature = "bus")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what is skipped is said, and actors speak by their output")]
#![allow(clippy::disallowed_methods, reason = "a test owns its clock and its environment")]

#[path = "support/bus.rs"]
mod support;

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast::intake::bus::{Bus, NAME, PATH};
use steadfast::intake::limits::Limits;
use steadfast::intake::readiness::{Heartbeat, Readiness};
use steadfast::intake::{Face, Mode, Shown, State};
use support::{Stub, repository, sealed};
use zbus::zvariant::{Fd, OwnedValue, Value};

const ROLE: &str = "STEADFAST_TEST_ROLE";
const BOOT: Duration = Duration::from_secs(90);

/// Boots `$1/root`, an overlay of this machine, and ends when the observer has seen enough.
const SCRIPT: &str = r#"
set -eu
F=$1; R=$F/mount/root
mount -t tmpfs -o mode=755 tmpfs "$F/mount"
mkdir "$F/mount/upper" "$F/mount/work" "$R"
mount -t overlay overlay -o "lowerdir=/,upperdir=$F/mount/upper,workdir=$F/mount/work" "$R" || { echo 'no overlay'; exit 0; }
cp -r "$F/install/." "$R/"
# The host's own services are none of our business here.
rm -f "$R"/etc/systemd/system/*.wants/* "$R"/etc/fstab
chroot "$R" systemd-sysusers
mount -t proc proc "$R/proc"
mount -t sysfs -o ro sysfs "$R/sys"
mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
mount -t tmpfs -o mode=755,nosuid tmpfs "$R/dev"
mkdir "$R/dev/pts" "$R/dev/shm"
for node in null zero full random urandom tty; do touch "$R/dev/$node"; mount --bind "/dev/$node" "$R/dev/$node"; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"; ln -s /proc/self/fd "$R/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"
mount -t tmpfs -o mode=755 tmpfs "$R/run"
mkdir "$R/report"; mount --bind "$F/report" "$R/report"
cd "$R"; mkdir before; pivot_root . before; umount -l /before
exec env -i container=steadfast-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=observer.service --log-target=journal --log-level=info --show-status=0
"#;

const OBSERVER: &str = "[Unit]
Wants=steadfastd.service
After=steadfastd.service
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
User=planner
Environment=STEADFAST_TEST_ROLE=observer
ExecStart=/usr/lib/steadfast-actor --exact actor --nocapture
StandardOutput=file:/report/observer
StandardError=file:/report/observer
ExecStopPost=+-/bin/sh -c '{ systemctl --no-pager --full status dbus.service steadfastd.service; journalctl --no-pager; } > /report/journal'
TimeoutStartSec=60
";

#[test]
fn the_unit_lives_under_a_real_systemd() {
    if !rustix::process::geteuid().is_root() || !Path::new("/lib/systemd/systemd").exists() {
        println!("skipped: booting systemd in namespaces needs root and systemd");
        return;
    }
    let Some(cgroup) = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.join("cgroup.procs").exists())
    else {
        println!("skipped: no cgroup2 hierarchy here");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    install(&folder.path().join("install"));
    for name in ["mount", "report"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    fs::write(folder.path().join("boot.sh"), SCRIPT).expect("written");
    let ours = cgroup.join(format!("steadfast-test-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&ours) {
        println!("skipped: no cgroup of our own: {error}");
        return;
    }
    let console = fs::File::create(folder.path().join("console")).expect("a console");
    let mut machine = Command::new("bash")
        .args([
            "-c",
            "echo $$ > \"$2/cgroup.procs\"; exec unshare -mpfuinC --kill-child bash \"$1/boot.sh\" \"$1\"",
            "boot",
        ])
        .args([folder.path(), &ours])
        .stdout(console.try_clone().expect("a console"))
        .stderr(console)
        .stdin(Stdio::null())
        .spawn()
        .expect("bash runs");
    let begun = Instant::now();
    while machine.try_wait().expect("a state").is_none() && begun.elapsed() < BOOT {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = machine.kill();
    let _ = machine.wait();
    remove_cgroup(&ours);
    let console = fs::read_to_string(folder.path().join("console")).unwrap_or_default();
    if console.contains("no overlay") || console.contains("unshare failed") {
        println!("skipped: {console}");
        return;
    }
    let report = fs::read_to_string(folder.path().join("report/observer")).unwrap_or_default();
    println!("{report}");
    let journal = fs::read_to_string(folder.path().join("report/journal")).unwrap_or_default();
    assert!(report.contains("the observer is done"), "observer: {report}\nconsole: {console}\njournal: {journal}");
}

/// Everything as a package would install it, and the two actors.
fn install(root: &Path) {
    let systemd = repository().join("systemd");
    let rows = [
        ("steadfastd.service", "usr/lib/systemd/system/steadfastd.service"),
        ("org.steadfast.Guard1.conf", "usr/share/dbus-1/system.d/org.steadfast.Guard1.conf"),
        ("org.steadfast.Guard1.service", "usr/share/dbus-1/system-services/org.steadfast.Guard1.service"),
        ("sysusers.d/steadfast.conf", "usr/lib/sysusers.d/steadfast.conf"),
        ("tmpfiles.d/steadfast.conf", "usr/lib/tmpfiles.d/steadfast.conf"),
    ];
    let write = |path: &str, bytes: &[u8]| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(&path, bytes).expect("written");
        path
    };
    for (from, to) in rows {
        write(to, &fs::read(systemd.join(from)).expect("a file"));
    }
    write("usr/lib/sysusers.d/planner.conf", b"u planner -\nm planner steadfast-clients\n");
    // A second instead of ten, so that the test need not wait.
    write("etc/systemd/system/steadfastd.service.d/test.conf", b"[Service]\nWatchdogSec=1\n");
    write("etc/systemd/system/observer.service", OBSERVER.as_bytes());
    // Containers may lack the right to raise a process above the others.
    write("etc/systemd/system/dbus.service.d/test.conf", b"[Service]\nOOMScoreAdjust=0\n");
    write("etc/machine-id", b"0123456789abcdef0123456789abcdef\n");
    let actor = fs::read(std::env::current_exe().expect("this program")).expect("this program");
    let daemon = b"#!/bin/sh\nSTEADFAST_TEST_ROLE=daemon exec /usr/lib/steadfast-actor --exact actor --nocapture\n";
    for path in [write("usr/lib/steadfast-actor", &actor), write("usr/bin/steadfastd", daemon)] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
}

/// Processes of a namespace that has ended leave their cgroups a moment later.
fn remove_cgroup(cgroup: &Path) {
    for _ in 0..100 {
        let removed = Command::new("find").arg(cgroup).args(["-depth", "-type", "d", "-delete"]).output();
        if removed.is_ok_and(|output| output.status.success()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The parts played under systemd; does nothing in a run of the tests themselves.
#[test]
fn actor() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    match role.as_str() {
        "daemon" => runtime.block_on(daemon()),
        "observer" => runtime.block_on(observe()),
        other => panic!("no such role: {other}"),
    }
}

/// A daemon around the stub: ready when its worker beats, and stuck on request.
async fn daemon() {
    let readiness = Readiness::from_environment();
    let (guard, face, heartbeat) = (Stub::new(), Face::new(Shown::starting(Mode::Enforce)), Heartbeat::default());
    *guard.status.lock().expect("status") = probes();
    let served = Bus::serve(None, Arc::clone(&guard), face.clone(), Limits::default()).await.expect("served");
    let (worker, stub) = (heartbeat.clone(), Arc::clone(&guard));
    let stuck = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        loop {
            let asked = stub.asked.lock().expect("asked").iter().flatten().any(|plan| plan == "hang");
            stuck.fetch_or(asked, Ordering::SeqCst);
            if !stuck.load(Ordering::SeqCst) {
                worker.beat();
            }
            if stub.asked.lock().expect("asked").iter().flatten().any(|plan| plan == "bad configuration") {
                std::process::exit(78);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let keeper = readiness.clone();
    tokio::spawn(async move { keeper.keep_alive(heartbeat).await });
    face.change(|shown| shown.state = State::Ready);
    readiness.ready("stub").expect("told");
    served.lost().await;
    std::process::exit(1);
}

/// What the daemon can reach from where it runs.
fn probes() -> steadfast::intake::Details {
    let writes = |path: &str| fs::write(path, b"x").is_ok();
    let word = |held: bool| serde_json::Value::from(held);
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let address = "127.0.0.1:9".parse().expect("an address");
    let tcp = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100));
    let namespaces = Command::new("unshare").args(["--user", "true"]).stderr(Stdio::null()).status();
    let refused_as_absent = tcp.is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionRefused);
    [
        ("pid", std::process::id().into()),
        ("uid", rustix::process::getuid().as_raw().into()),
        ("writes_state", word(writes("/var/lib/steadfast/audit/probe"))),
        ("writes_etc", word(writes("/etc/steadfast/probe"))),
        ("writes_usr", word(writes("/usr/probe"))),
        ("sees_root_home", word(fs::read_dir("/root").is_ok_and(|mut files| files.next().is_some()))),
        ("network_interfaces", interfaces.lines().filter(|line| line.contains(':')).count().into()),
        ("no_sockets_but_unix", word(refused_as_absent)),
        ("reads_cpuinfo", word(fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| !text.is_empty()))),
        ("makes_namespaces", word(namespaces.is_ok_and(|status| status.success()))),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

async fn planner() -> zbus::Connection {
    let builder = zbus::connection::Builder::system().expect("the system bus");
    builder.method_timeout(Duration::from_secs(8)).build().await.expect("a connection")
}

async fn status(planner: &zbus::Connection) -> Option<HashMap<String, OwnedValue>> {
    let reply = planner.call_method(Some(NAME), PATH, Some(NAME), "Status", &()).await.ok()?;
    reply.body().deserialize().ok()
}

async fn check(planner: &zbus::Connection, plan: &str) -> Option<String> {
    let image = sealed(b"a picture");
    let body = (Fd::from(image.as_fd()), "go", plan, HashMap::<&str, Value<'_>>::new());
    let reply = planner.call_method(Some(NAME), PATH, Some(NAME), "Check", &body).await.ok()?;
    let body = reply.body();
    let (verdict, ..): (String, String, f64, Vec<u8>, HashMap<String, OwnedValue>) = body.deserialize().ok()?;
    Some(verdict)
}

fn number(status: &HashMap<String, OwnedValue>, key: &str) -> u64 {
    u64::try_from(&status[key]).unwrap_or_else(|_| panic!("{key} in {status:?}"))
}

fn flag(status: &HashMap<String, OwnedValue>, key: &str) -> bool {
    bool::try_from(&status[key]).unwrap_or_else(|_| panic!("{key} in {status:?}"))
}

/// The planner's view of the guard's life.
async fn observe() {
    let planner = planner().await;
    let first = status(&planner).await.expect("ready as soon as the unit says so");
    println!("{first:?}");
    assert!(flag(&first, "writes_state") && flag(&first, "reads_cpuinfo"));
    for wall in ["writes_etc", "writes_usr", "sees_root_home", "makes_namespaces"] {
        assert!(!flag(&first, wall), "{wall}");
    }
    assert!(flag(&first, "no_sockets_but_unix"));
    assert!(number(&first, "network_interfaces") <= 1, "the loopback at most");
    assert_ne!(number(&first, "uid"), 0);
    assert_eq!(check(&planner, "1. go").await.as_deref(), Some("permit"));

    // The worker hangs: no ping, so systemd ends the daemon and starts another.
    let begun = Instant::now();
    assert_eq!(check(&planner, "hang").await.as_deref(), Some("permit"), "its last answer");
    let second = loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(15), "no new daemon");
        // Not by a call, which would start it by activation: by the name's owner.
        let owner = planner
            .call_method(Some("org.freedesktop.DBus"), "/", Some("org.freedesktop.DBus"), "GetNameOwner", &NAME)
            .await;
        if owner.is_err() {
            continue;
        }
        match status(&planner).await {
            Some(status) if number(&status, "pid") != number(&first, "pid") => break status,
            _ => {}
        }
    };
    println!("watchdog: a new daemon after {:?}", begun.elapsed());
    assert_eq!(check(&planner, "1. go").await.as_deref(), Some("permit"));

    // Exit 78 is for a person: systemd leaves it down. (A call would start it again by activation.)
    assert_eq!(check(&planner, "bad configuration").await.as_deref(), Some("permit"), "its last answer");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let gone = planner
        .call_method(Some("org.freedesktop.DBus"), "/", Some("org.freedesktop.DBus"), "GetNameOwner", &NAME)
        .await;
    assert!(gone.is_err(), "it stays down");

    // A call brings it back: activation.
    let third = status(&planner).await.expect("started by the call");
    assert_ne!(number(&third, "pid"), number(&second, "pid"));
    println!("the observer is done");
}
