//! What systemd hears, from a socket of our own in its place. The speaker is this test program run again as a child,
//! since the protocol lives in the environment.
#![cfg(feature = "bus")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what is skipped is said, and actors speak by their output")]
#![allow(clippy::disallowed_methods, reason = "a test owns its clock and its environment")]

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use steadfast::intake::readiness::{Heartbeat, Readiness};

const ROLE: &str = "STEADFAST_TEST_ROLE";

/// Hears what a child in the given role says.
struct Systemd {
    socket: UnixDatagram,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Systemd {
    fn start(role: &str, watchdog: Option<Duration>, watchdog_pid: Option<u32>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "child", "--nocapture"]).env(ROLE, role).env("NOTIFY_SOCKET", &path);
        command.env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        if let Some(pid) = watchdog_pid {
            command.env("WATCHDOG_PID", pid.to_string());
        }
        let child = command.spawn().expect("a child");
        Self { socket, child, _folder: folder }
    }

    fn hear(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        let bytes = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..bytes].to_vec()).expect("text"))
    }

    /// When each ping came, until there is none for `silence`.
    fn pings(&self, silence: Duration) -> Vec<Instant> {
        self.socket.set_read_timeout(Some(silence)).expect("a timeout");
        std::iter::from_fn(|| self.hear())
            .filter(|message| message.contains("WATCHDOG=1"))
            .map(|_| Instant::now())
            .collect()
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's side; does nothing in a run of the tests themselves.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let readiness = Readiness::from_environment();
    match role.as_str() {
        "life" => {
            readiness.reloading().expect("told");
            readiness.ready("watching\nREADY=0").expect("told");
            readiness.stopping().expect("told");
        }
        "beats for a second" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime");
            let heartbeat = Heartbeat::default();
            let keeper = heartbeat.clone();
            runtime.spawn(async move { readiness.keep_alive(keeper).await });
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(1) {
                heartbeat.beat();
                std::thread::sleep(Duration::from_millis(20));
            }
            // The worker hangs here, while the runtime goes on.
            std::thread::sleep(Duration::from_secs(30));
        }
        other => panic!("no such role: {other}"),
    }
}

#[test]
fn a_life_is_told_in_order() {
    let systemd = Systemd::start("life", None, None);
    let reloading = systemd.hear().expect("a message");
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(systemd.hear().expect("a message"), "READY=1\nSTATUS=watching READY=0\n");
    assert_eq!(systemd.hear().expect("a message"), "STOPPING=1\n");
}

#[test]
fn pings_come_in_half_the_interval_and_stop_when_the_worker_hangs() {
    let interval = Duration::from_millis(500);
    let systemd = Systemd::start("beats for a second", Some(interval), None);
    assert!(systemd.hear().expect("a first ping").contains("WATCHDOG=1"));
    let begun = Instant::now();
    let pings = systemd.pings(Duration::from_millis(1_500));
    assert!(pings.len() >= 3, "{} pings in a second of beats", pings.len());
    for pair in pings.windows(2) {
        assert!(pair[1] - pair[0] < interval, "a gap of {:?}", pair[1] - pair[0]);
    }
    let last = *pings.last().expect("a ping") - begun;
    assert!(last < Duration::from_millis(1_700), "still pinging {last:?} after the start");
}

#[test]
fn a_watchdog_meant_for_another_process_is_left_alone() {
    let systemd = Systemd::start("beats for a second", Some(Duration::from_millis(100)), Some(1));
    assert!(systemd.pings(Duration::from_millis(700)).is_empty());
}
