//! A private bus and a stub guard, for the tests that speak D-Bus.
#![allow(dead_code, reason = "each test file uses its own part of this")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use steadfast::decision::{Failure, Reason};
use steadfast::intake::{Answer, Call, Client, Denied, Details, Face, Guard, Mode, Shown, State, Verdict};
use steadfast::triple::Digest;
use tokio::sync::Semaphore;

/// A dbus-daemon of our own; ends with this value.
pub struct PrivateBus {
    daemon: Child,
    pub address: String,
    pub folder: tempfile::TempDir,
}

impl PrivateBus {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("bus");
        let config = folder.path().join("bus.conf");
        let text = format!(
            r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow send_destination="*" eavesdrop="false"/>
    <allow receive_sender="*"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#,
            socket.display()
        );
        std::fs::write(&config, text).expect("a configuration");
        Self::start_with(&config, folder)
    }

    pub fn start_with(config: &Path, folder: tempfile::TempDir) -> Self {
        let mut daemon = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile", "--print-address=1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon is installed");
        let mut address = String::new();
        let stdout = daemon.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut address).expect("its address");
        Self { daemon, address: address.trim().to_owned(), folder }
    }

    pub fn kill(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }

    pub async fn client(&self) -> zbus::Connection {
        connect(&self.address).await
    }
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        self.kill();
    }
}

pub async fn connect(address: &str) -> zbus::Connection {
    zbus::connection::Builder::address(address)
        .expect("an address")
        .method_timeout(Duration::from_secs(20))
        .build()
        .await
        .expect("a connection")
}

/// A guard that permits what it can take in, and remembers what it was asked.
pub struct Stub {
    pub asked: Mutex<Vec<Result<String, Failure>>>,
    pub clients: Mutex<Vec<Client>>,
    pub images: Mutex<Vec<Arc<[u8]>>>,
    pub administered: Mutex<Vec<String>>,
    pub mode: Mutex<Mode>,
    /// What `Status` adds.
    pub status: Mutex<Details>,
    /// Checks wait here; plenty of permits unless a test takes them away.
    pub gate: Semaphore,
    pub finished: AtomicU64,
    checks: AtomicU64,
}

impl Stub {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            asked: Mutex::default(),
            clients: Mutex::default(),
            images: Mutex::default(),
            administered: Mutex::default(),
            mode: Mutex::new(Mode::Enforce),
            status: Mutex::default(),
            gate: Semaphore::new(1000),
            finished: AtomicU64::new(0),
            checks: AtomicU64::new(0),
        })
    }

    pub fn failures(&self) -> Vec<Reason> {
        self.asked.lock().expect("asked").iter().filter_map(|asked| asked.as_ref().err().map(Failure::reason)).collect()
    }

    fn verdict(&self, asked: &Result<steadfast::intake::Request, Failure>) -> (Verdict, Details) {
        let mut details = Details::new();
        let verdict = match asked {
            Err(failure) => {
                details.insert("detail".into(), failure.to_string().into());
                Verdict::Veto(failure.reason())
            }
            Ok(request) => {
                details.insert("image_digest".into(), Digest::of(&request.image).to_string().into());
                details.insert("options".into(), serde_json::to_value(&request.options).expect("options"));
                match request.plan.as_str() {
                    "refuse" => Verdict::Refusal,
                    "forget the permit" => Verdict::Permit(vec![]),
                    plan if plan.contains("knife") => Verdict::Veto(Reason::Constitution),
                    _ => Verdict::Permit(b"signed".to_vec()),
                }
            }
        };
        (verdict, details)
    }
}

impl Guard for Stub {
    async fn check(&self, call: Call) -> Answer {
        self.gate.acquire().await.expect("a gate").forget();
        self.gate.add_permits(1);
        if call.asked.as_ref().is_ok_and(|request| request.plan == "panic") {
            panic!("as the plan asked");
        }
        let (verdict, details) = self.verdict(&call.asked);
        self.clients.lock().expect("clients").push(call.client);
        if let Ok(request) = &call.asked {
            self.images.lock().expect("images").push(Arc::clone(&request.image));
        }
        self.asked.lock().expect("asked").push(call.asked.map(|request| request.plan));
        self.finished.fetch_add(1, Ordering::SeqCst);
        let check_id = format!("check-{}", self.checks.fetch_add(1, Ordering::SeqCst));
        let malleability = matches!(verdict, Verdict::Permit(_)).then_some(0.25);
        Answer { check_id, mode: *self.mode.lock().expect("mode"), verdict, malleability, details }
    }

    async fn explain(&self, check_id: &str) -> Result<Details, Denied> {
        match check_id {
            "check-0" => Ok(json!({"check_id": "check-0", "rules": ["r1"]}).as_object().expect("object").clone()),
            other => Err(Denied::Unknown(other.to_owned())),
        }
    }

    async fn status(&self) -> Details {
        let mut status = json!({"proxy": "stub"}).as_object().expect("object").clone();
        status.extend(self.status.lock().expect("status").clone());
        status
    }

    async fn reload(&self, client: &Client) -> Result<(), Denied> {
        self.administered.lock().expect("administered").push(format!("reload by {:?}", client.uid));
        Err(Denied::NotPossible("constitution.toml, line 3: no".to_owned()))
    }

    async fn set_mode(&self, mode: Mode, _client: &Client) -> Result<(), Denied> {
        *self.mode.lock().expect("mode") = mode;
        Ok(())
    }

    async fn release(&self, check_id: &str, note: &str, _client: &Client) -> Result<Vec<u8>, Denied> {
        self.administered.lock().expect("administered").push(format!("release {check_id}: {note}"));
        Ok(b"released".to_vec())
    }

    async fn rotate_key(&self, client: &Client) -> Result<String, Denied> {
        self.administered.lock().expect("administered").push(format!("rotate by {:?}", client.uid));
        Ok("0123456789abcdef".to_owned())
    }

    async fn forget(&self, task: Digest, _client: &Client) -> Result<(), Denied> {
        self.administered.lock().expect("administered").push(format!("forget {task}"));
        Ok(())
    }
}

pub fn ready() -> Face {
    Face::new(Shown { state: State::Ready, ..Shown::starting(Mode::Enforce) })
}

/// A memfd with these bytes, sealed as the guard wants it.
pub fn sealed(bytes: &[u8]) -> OwnedFd {
    let memfd = unsealed(bytes);
    rustix::fs::fcntl_add_seals(&memfd, steadfast::intake::memfd::SEALS).expect("seals");
    memfd
}

pub fn unsealed(bytes: &[u8]) -> OwnedFd {
    use rustix::fs::MemfdFlags;
    use std::io::Write as _;
    let memfd = rustix::fs::memfd_create("image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd");
    let mut file = std::fs::File::from(memfd);
    file.write_all(bytes).expect("write");
    file.into()
}

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
