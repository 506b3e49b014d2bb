//! The real daemon with the recorded proxy, in folders and on a bus of its own.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use steadfast::constitution::Constitution;
use steadfast::intake::boot_clock;
use steadfast::triple::Digest;

/// How long anything that should happen is waited for.
pub const SOON: Duration = Duration::from_secs(20);

/// An instruction that the recorded proxy finds harmless, and a plan that complies with it.
pub const GOOD: &str = "fetch the cup";
pub const PLAN: &str = "1. Grasp the cup.\n2. Put the cup on the table.";

/// What the proxy answers, by instruction. Every other instruction is not recorded.
const RECORDING: &str = r#"{"otherwise": null, "answers": {
    "fetch the cup":    {"margin": 5.0, "wobble": 0.1, "reliance": 1.0},
    "fetch it slowly":  {"margin": 5.0, "fault": "slow"},
    "bring the knife":  {"margin": 5.0, "wobble": 0.1, "reliance": 1.0},
    "break the rules":  {"margin": -5.0},
    "bend":             {"margin": 1.0, "wobble": 30.0},
    "nan":              {"margin": 5.0, "fault": "nan"},
    "infinite":         {"margin": 5.0, "fault": "infinite"},
    "huge":             {"margin": 1.7e308},
    "huge copies":      {"margin": 5.0, "wobble": 1.7e308},
    "huge reliance":    {"margin": -1.7e308, "reliance": 1.7e308},
    "nan copies":       {"margin": 5.0, "fault": "nan-copies"},
    "all zero":         {"margin": 5.0, "fault": "all-zero"},
    "blind":            {"margin": 5.0, "fault": "blind"},
    "engine":           {"margin": 5.0, "fault": "engine"},
    "context":          {"margin": 5.0, "fault": "context"},
    "panic":            {"margin": 5.0, "fault": "panic"},
    "break it slowly":  {"margin": -5.0, "fault": "slow"},
    "hang":             {"margin": 5.0, "fault": "hang"}
}}"#;

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Everything one guard reads and writes.
pub struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    /// A whole configuration for a guard on this bus.
    pub fn new(bus: &str) -> Self {
        let home = Self { folder: tempfile::tempdir().expect("a folder") };
        fs::create_dir(home.at("models")).expect("made");
        home.write("models/recording.json", RECORDING);
        let rules = fs::read_to_string(repository().join("config/constitution.toml")).expect("readable");
        home.write("constitution.toml", &rules);
        home.write("calibration.toml", &home.calibration());
        let paths = "constitution = \"constitution.toml\"\ncalibration = \"calibration.toml\"\n";
        let proxy = "[proxy]\nkind = \"recorded\"\nmodels = \"models\"\n";
        let folders =
            "[audit]\nfolder = \"audit\"\n[permit]\nkeys = \"keys\"\n[ledger]\nfolder = \"ledger\"\n[limits]\n";
        home.write("steadfast.toml", &format!("{paths}{proxy}[bus]\naddress = \"{bus}\"\n{folders}"));
        home
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).expect("written");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).expect("readable")
    }

    /// Lays these keys over the configuration.
    pub fn configure(&self, text: &str) {
        fs::create_dir_all(self.at("steadfast.toml.d")).expect("made");
        self.write("steadfast.toml.d/50-test.toml", text);
    }

    /// The text of a calibration for the constitution and the recording that lie here.
    pub fn calibration(&self) -> String {
        let recording = Digest::of(self.read("models/recording.json").as_bytes());
        let constitution = Constitution::parse(&self.read("constitution.toml")).expect("a constitution").digest();
        let layout = Digest::of(b"steadfast/recorded/1");
        calibration_text(recording, constitution, layout, [0.5, 0.75, 0.3])
    }

    /// Starts the daemon, and does not wait for it.
    pub fn spawn(&self) -> Daemon {
        self.spawn_by(Command::new(env!("CARGO_BIN_EXE_steadfastd")))
    }

    /// Starts the daemon in a mount namespace of its own, after this shell script has mounted there what it wants.
    pub fn spawn_after(&self, mounts: &str) -> Daemon {
        let mut command = Command::new("unshare");
        let script = format!("{mounts} && exec \"$0\" \"$@\"");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_steadfastd")]);
        self.spawn_by(command)
    }

    /// Starts the daemon with its boot clock so many seconds off ours.
    pub fn spawn_at(&self, offset_s: i64) -> Daemon {
        self.spawn_by(at(offset_s, env!("CARGO_BIN_EXE_steadfastd")))
    }

    /// Starts the daemon with these in its environment.
    pub fn spawn_with(&self, variables: &[&str]) -> Daemon {
        let mut command = Command::new("env");
        command.args(variables).arg(env!("CARGO_BIN_EXE_steadfastd"));
        self.spawn_by(command)
    }

    fn spawn_by(&self, mut command: Command) -> Daemon {
        let socket = self.at("notify");
        let _old = fs::remove_file(&socket);
        let notify = UnixDatagram::bind(&socket).expect("bound");
        notify.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let said = fs::File::create(self.at("said")).expect("a file");
        let child = command
            .arg("--config")
            .arg(self.at("steadfast.toml"))
            .env("NOTIFY_SOCKET", &socket)
            .env_remove("WATCHDOG_USEC")
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("it runs");
        Daemon { child, notify, said: self.at("said") }
    }

    /// Starts the daemon and waits until it judges.
    pub fn start(&self) -> Daemon {
        let mut daemon = self.spawn();
        assert_eq!(daemon.wait_until_ready(), "ready", "{}", daemon.said());
        daemon
    }

    /// The command line with this configuration.
    pub fn steadfast(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command.arg("--config").arg(self.at("steadfast.toml")).stdin(Stdio::null());
        command
    }

    /// What `steadfast log verify` makes of the log: `whole`, or what it says.
    pub fn verify(&self) -> String {
        let output = self.steadfast().args(["log", "verify"]).output().expect("it runs");
        if output.status.success() {
            return "whole".to_owned();
        }
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// Every record in the log, as JSON.
    pub fn records(&self) -> Vec<serde_json::Value> {
        let output = self.steadfast().args(["log", "export"]).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The newest segment of the log.
    pub fn newest_segment(&self) -> PathBuf {
        let entries = fs::read_dir(self.at("audit")).expect("readable");
        let mut segments: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        segments.retain(|path| path.extension().is_some_and(|extension| extension == "audit"));
        segments.sort();
        segments.pop().expect("a segment")
    }
}

/// A running daemon; killed with this value.
pub struct Daemon {
    child: Child,
    notify: UnixDatagram,
    said: PathBuf,
}

impl Daemon {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard error.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Waits until it says READY or ends: `ready`, or how it ended.
    pub fn wait_until_ready(&mut self) -> String {
        let end = boot_clock() + SOON;
        while boot_clock() < end {
            if self.heard("READY=1") {
                return "ready".to_owned();
            }
            if let Some(status) = self.child.try_wait().expect("waited") {
                return ended(status);
            }
        }
        "neither ready nor ended".to_owned()
    }

    /// Whether systemd would have heard this within the socket's timeout.
    pub fn heard(&self, word: &str) -> bool {
        let mut bytes = [0; 4096];
        match self.notify.recv(&mut bytes) {
            Ok(got) => String::from_utf8_lossy(&bytes[..got]).lines().any(|line| line == word),
            Err(_) => false,
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it lives");
    }

    /// Waits until it ends: `exit N` or `signal N`.
    pub fn wait(&mut self) -> String {
        let end = boot_clock() + SOON;
        while boot_clock() < end {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return ended(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        "still running".to_owned()
    }

    /// Tells it to stop, and waits.
    pub fn stop(&mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    pub fn kill(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }

    pub fn lives(&mut self) -> bool {
        self.child.try_wait().expect("waited").is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// A program whose boot clock is so many seconds off ours.
pub fn at(offset_s: i64, program: &str) -> Command {
    let mut command = Command::new("unshare");
    // Its own child, so that it ends with whoever is killed in its place.
    command.args(["--time", "--fork", "--kill-child", "--boottime", &offset_s.to_string(), program]);
    command
}

/// Whether this machine lets us have a boot clock of our own.
pub fn time_namespaces() -> bool {
    at(1, "true").output().is_ok_and(|output| output.status.success())
}

/// Whether this machine lets us have a mount namespace.
pub fn mount_namespaces() -> bool {
    let tried = Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs t /mnt"]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Where something that `make` brings lies, if it is there.
pub fn brought(variable: &str, default: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map_or_else(|| repository().join(default), PathBuf::from);
    Path::new(&path).exists().then_some(path)
}

/// A calibration bound to these, with limits on the log-odds of refusing, the malleability and the flip share.
pub fn calibration_text(proxy: Digest, constitution: Digest, layout: Digest, limits: [f64; 3]) -> String {
    let [refuse, malleable, flips] = limits;
    format!(
        r#"format = 1
[bound]
proxy = "{proxy}"
constitution = "{constitution}"
prompt_layout = "{layout}"
[margin]
scale = 1.5
bias = 0.0
[limits]
refuse_log_odds_max = {refuse:?}
malleability_max = {malleable:?}
flip_share_max = {flips:?}
[composite]
target = "wrong-verdict"
features = ["perturbation-spread", "constitution-reliance"]
mean = [0.5, 1.0]
scale = [0.25, 2.0]
weights = [0.1, -0.1]
bias = -1.0
[fit]
miss_rate_max = 0.05
false_veto_rate_asked = 0.1
data = "4444444444444444444444444444444444444444444444444444444444444444"
miss = {{ events = 1, of = 20, low = 0.0, high = 0.3 }}
false_veto = {{ events = 1, of = 20, low = 0.0, high = 0.3 }}
"#
    )
}
