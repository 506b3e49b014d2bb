//! The unit, the bus policy and the activation under a real systemd: readiness, walls, watchdog, restart, exit 78.
//!
//! Boots systemd as PID 1 in namespaces of its own, over a throw-away overlay of this machine's root, so the host sees
//! nothing of it. That needs root, overlayfs, a cgroup2 hierarchy and no chroot around it all; else the test says so and
//! passes. The daemon's part is played three times: by this program around a stub guard, which can say what it reaches;
//! by the real daemon with the recorded proxy; and by the real daemon with the compact proxy, where its models are
//! installed.
#![cfg(all(feature = "bus", feature = "__replay"))]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what is skipped is said, and actors speak by their output")]
#![allow(clippy::disallowed_methods, reason = "a test owns its clock and its environment")]

#[path = "support/guard.rs"]
mod guard;
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
const BOOT: Duration = Duration::from_secs(180);

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
Environment=STEADFAST_TEST_ROLE=@ROLE@
ExecStartPre=+/bin/sh /usr/lib/steadfast-walls
ExecStart=/usr/lib/steadfast-actor --exact actor --nocapture
StandardOutput=file:/report/observer
StandardError=file:/report/observer
ExecStopPost=+-/bin/sh -c '{ systemctl --no-pager --full status dbus.service steadfastd.service; journalctl --no-pager; } > /report/journal'
TimeoutStartSec=120
";

/// What the kernel says of the daemon, whoever it is: its privileges, its filter, its namespaces, and what its user sees
/// and writes from inside them.
const WALLS: &str = r#"
pid=$(systemctl show -p MainPID --value steadfastd)
inside() { nsenter -t "$pid" -m -n -- setpriv --reuid=steadfast --regid=steadfast --clear-groups "$@" 2>&1; }
{
    grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd|CapPrm):' "/proc/$pid/status" | tr -s '\t ' ' '
    echo "interfaces: $(inside cat /proc/net/dev | grep -c :)"
    for path in /usr /etc/steadfast /var/lib /; do
        inside touch "$path/probe" >/dev/null && echo "writes $path" || echo "cannot write $path"
    done
    inside touch /var/lib/steadfast/audit/probe >/dev/null && echo 'writes its log' && rm /var/lib/steadfast/audit/probe
    echo "homes: $(inside ls /root /home | grep -vc -e : -e '^$' -e denied)"
    echo "devices: $(inside ls /dev | tr '\n' ' ')"
} >/report/walls 2>&1
true
"#;

/// Who plays the daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cast {
    Stub,
    Recorded,
    Compact,
}

#[test]
fn the_unit_lives_under_a_real_systemd() {
    boot(Cast::Stub);
}

#[test]
fn the_daemon_lives_under_a_real_systemd() {
    if let Some((walls, journal)) = boot(Cast::Recorded) {
        hold(&walls);
        assert!(journal.contains("Suppressed "), "journald limits the rate: {journal}");
    }
}

#[test]
fn the_models_run_inside_the_sandbox() {
    if guard::brought("STEADFAST_MODELS", "build/models/compact").is_none() || library().is_none() {
        println!("skipped: the models are not installed; run `make models`");
        return;
    }
    if let Some((walls, _)) = boot(Cast::Compact) {
        hold(&walls);
    }
}

fn library() -> Option<std::path::PathBuf> {
    guard::brought("STEADFAST_ONNXRUNTIME", "build/lib/libonnxruntime.so.1.31.1")
}

/// The walls around the real daemon.
fn hold(walls: &str) {
    for line in
        ["NoNewPrivs: 1", "Seccomp: 2", "CapEff: 0000000000000000", "CapBnd: 0000000000000000", "writes its log"]
    {
        assert!(walls.contains(line), "{line} in {walls}");
    }
    for path in ["/usr", "/etc/steadfast", "/var/lib", "/"] {
        assert!(walls.contains(&format!("cannot write {path}\n")), "{path} in {walls}");
    }
    assert!(walls.contains("homes: 0"), "{walls}");
    assert!(walls.contains("interfaces: 1") || walls.contains("interfaces: 0"), "the loopback at most: {walls}");
    let devices = walls.lines().find_map(|line| line.strip_prefix("devices: ")).expect("devices");
    let harmless = ["null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "fd", "stdin", "stdout"];
    let harmless = |name: &&str| {
        harmless.contains(name) || ["stderr", "core", "mqueue", "hugepages", "log", "char"].contains(name)
    };
    let others: Vec<&str> = devices.split_whitespace().filter(|name| !harmless(name)).collect();
    assert!(others.is_empty(), "devices: {others:?}");
}

/// Boots a machine with this cast and gives what was found of the daemon's walls, and the machine's journal; `None` where
/// it cannot be booted here.
fn boot(cast: Cast) -> Option<(String, String)> {
    if !rustix::process::geteuid().is_root() || !Path::new("/lib/systemd/systemd").exists() {
        println!("skipped: booting systemd in namespaces needs root and systemd");
        return None;
    }
    if chrooted() {
        println!("skipped: the root is a chroot, and a systemd booted in one does not bring the unit up");
        return None;
    }
    let Some(cgroup) = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.join("cgroup.procs").exists())
    else {
        println!("skipped: no cgroup2 hierarchy here");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    install(&folder.path().join("install"), cast);
    for name in ["mount", "report"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    fs::write(folder.path().join("boot.sh"), SCRIPT).expect("written");
    let ours = cgroup.join(format!("steadfast-test-{}-{}", std::process::id(), cast as u8));
    if let Err(error) = fs::create_dir(&ours) {
        println!("skipped: no cgroup of our own: {error}");
        return None;
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
        return None;
    }
    let report = fs::read_to_string(folder.path().join("report/observer")).unwrap_or_default();
    println!("{report}");
    let journal = fs::read_to_string(folder.path().join("report/journal")).unwrap_or_default();
    let walls = fs::read_to_string(folder.path().join("report/walls")).unwrap_or_default();
    println!("{walls}");
    assert!(report.contains("the observer is done"), "observer: {report}\nconsole: {console}\njournal: {journal}");
    Some((walls, journal))
}

/// Whether the root is a chroot. The kernel tells: it lets nobody in one make a user namespace. The mount table and
/// `/proc/1/root` do not, where the chroot is a mount of its own or process 1 cannot be looked at.
fn chrooted() -> bool {
    let forbidden = |namespace: &str| {
        let tried = Command::new("unshare").args([namespace, "true"]).env("LC_ALL", "C").output();
        tried.is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("Operation not permitted"))
    };
    forbidden("--user") && !forbidden("--mount")
}

/// Everything as a package would install it, and the two actors.
fn install(root: &Path, cast: Cast) {
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
    // A second instead of ten, so that the test need not wait. Inference on a busy machine has the ten.
    if cast != Cast::Compact {
        write("etc/systemd/system/steadfastd.service.d/test.conf", b"[Service]\nWatchdogSec=1\n");
    }
    if cast == Cast::Recorded {
        let rate = b"[Service]\nLogRateLimitIntervalSec=1s\nLogRateLimitBurst=1\n";
        write("etc/systemd/system/steadfastd.service.d/rate.conf", rate);
    }
    let role = if cast == Cast::Stub { "observer" } else { "witness" };
    write("etc/systemd/system/observer.service", OBSERVER.replace("@ROLE@", role).as_bytes());
    write("usr/lib/steadfast-walls", WALLS.as_bytes());
    // Containers may lack the right to raise a process above the others.
    write("etc/systemd/system/dbus.service.d/test.conf", b"[Service]\nOOMScoreAdjust=0\n");
    write("etc/machine-id", b"0123456789abcdef0123456789abcdef\n");
    let actor = fs::read(std::env::current_exe().expect("this program")).expect("this program");
    let stub = b"#!/bin/sh\nSTEADFAST_TEST_ROLE=daemon exec /usr/lib/steadfast-actor --exact actor --nocapture\n";
    let daemon = match cast {
        Cast::Stub => stub.to_vec(),
        Cast::Recorded | Cast::Compact => fs::read(env!("CARGO_BIN_EXE_steadfastd")).expect("the daemon"),
    };
    if cast != Cast::Stub {
        settle(&write, cast);
    }
    for path in [write("usr/lib/steadfast-actor", &actor), write("usr/bin/steadfastd", &daemon)] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
}

/// A configuration for the real daemon. The compact proxy's models stay where they lie: the machine is an overlay of
/// this one, and they are copied to where the sandbox lets the daemon's user read them.
fn settle(write: &dyn Fn(&str, &[u8]) -> std::path::PathBuf, cast: Cast) {
    let home = guard::Home::new("unused");
    let file = |name: &str| home.read(name).into_bytes();
    let shipped = |name: &str| fs::read(repository().join("config").join(name)).expect("readable");
    write(
        "usr/share/steadfast-test/photo.png",
        &fs::read(repository().join("tests/data/coffee.png")).expect("readable"),
    );
    let (proxy, rules, calibration) = match cast {
        Cast::Compact => {
            let models = guard::brought("STEADFAST_MODELS", "build/models/compact").expect("models");
            for entry in fs::read_dir(models).expect("a folder") {
                let path = entry.expect("an entry").path();
                if let (true, Some(name)) = (path.is_file(), path.file_name().and_then(|name| name.to_str())) {
                    write(&format!("usr/share/steadfast/models/compact/{name}"), &fs::read(&path).expect("readable"));
                }
            }
            write("usr/lib/steadfast/libonnxruntime.so", &fs::read(library().expect("a library")).expect("readable"));
            ("", shipped("constitution.toml"), shipped("calibration.toml"))
        }
        Cast::Stub | Cast::Recorded => {
            write("usr/share/steadfast/models/recorded/recording.json", &file("models/recording.json"));
            let proxy = "[proxy]\nkind = \"recorded\"\nmodels = \"/usr/share/steadfast/models/recorded\"\n";
            (proxy, file("constitution.toml"), file("calibration.toml"))
        }
    };
    write("etc/steadfast/constitution.toml", &rules);
    write("etc/steadfast/calibration.toml", &calibration);
    write("etc/steadfast/steadfast.toml", proxy.as_bytes());
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
        "witness" => runtime.block_on(witness()),
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
    builder.method_timeout(Duration::from_secs(40)).build().await.expect("a connection")
}

async fn status(planner: &zbus::Connection) -> Option<HashMap<String, OwnedValue>> {
    let reply = planner.call_method(Some(NAME), PATH, Some(NAME), "Status", &()).await.ok()?;
    reply.body().deserialize().ok()
}

async fn check(planner: &zbus::Connection, plan: &str) -> Option<String> {
    Some(ask(planner, b"a picture", "go", plan, 5_000).await?.0)
}

/// Verdict and reason.
async fn ask(
    planner: &zbus::Connection,
    image: &[u8],
    instruction: &str,
    plan: &str,
    deadline_ms: u32,
) -> Option<(String, String)> {
    let image = sealed(image);
    let options = HashMap::from([("deadline_ms", Value::from(deadline_ms))]);
    let body = (Fd::from(image.as_fd()), instruction, plan, options);
    let reply = planner.call_method(Some(NAME), PATH, Some(NAME), "Check", &body).await.ok()?;
    let body = reply.body();
    let (verdict, reason, ..): (String, String, f64, Vec<u8>, HashMap<String, OwnedValue>) = body.deserialize().ok()?;
    Some((verdict, reason))
}

/// The planner's view of the real daemon's life.
async fn witness() {
    let planner = planner().await;
    let photo = fs::read("/usr/share/steadfast-test/photo.png").expect("the photo");
    let text = |status: &HashMap<String, OwnedValue>, key: &str| format!("{:?}", status.get(key));
    let first = status(&planner).await.expect("ready as soon as the unit says so");
    println!("{first:?}");
    assert!(text(&first, "state").contains("ready"), "{first:?}");
    let recorded = Path::new("/usr/share/steadfast/models/recorded").exists();
    if !recorded {
        let plan = "1. Grasp the cup by its handle.\n2. Carry it upright to the table.";
        let answer = ask(&planner, &photo, "Bring me the cup of coffee.", plan, 30_000).await.expect("an answer");
        println!("the models answered {answer:?}");
        assert!(matches!(answer.1.as_str(), "" | "constitution" | "malleable"), "an answer of the models: {answer:?}");
        println!("the observer is done");
        return;
    }
    let permit = Some(("permit".to_owned(), String::new()));
    assert_eq!(ask(&planner, &photo, guard::GOOD, guard::PLAN, 5_000).await, permit);

    // journald takes a few lines a second of a service and drops the others; no answer is.
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(25)).await;
        let answer = ask(&planner, &photo, "break the rules", guard::PLAN, 5_000).await.expect("an answer");
        assert_eq!(answer, ("veto".to_owned(), "constitution".to_owned()));
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;

    // Inference hangs: the deadline answers, no ping follows, systemd ends the daemon and starts another.
    let (begun, before) = (Instant::now(), owner(&planner).await.expect("an owner"));
    let hung = ask(&planner, &photo, "hang", guard::PLAN, 300).await.expect("an answer");
    assert_eq!(hung, ("veto".to_owned(), "deadline".to_owned()));
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "no new daemon");
        // Not by a call, which would start it by activation: by the name's owner.
        if owner(&planner).await.is_some_and(|owner| owner != before)
            && status(&planner).await.is_some_and(|status| text(&status, "state").contains("ready"))
        {
            break;
        }
    }
    println!("watchdog: a new daemon is ready after {:?}", begun.elapsed());
    assert_eq!(ask(&planner, &photo, guard::GOOD, guard::PLAN, 5_000).await, permit);
    println!("the observer is done");
}

/// Who has the guard's name.
async fn owner(planner: &zbus::Connection) -> Option<String> {
    let bus = "org.freedesktop.DBus";
    planner.call_method(Some(bus), "/", Some(bus), "GetNameOwner", &NAME).await.ok()?.body().deserialize().ok()
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
