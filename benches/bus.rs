//! What the guard costs on the bus: a whole check with a recorded proxy beside a bare echo of the same call, and beside
//! the work no guard can leave out (reading the image, its digest, decoding it). Ratios of one run; nothing is asserted.
//!
//!     cargo bench --features __bench --bench bus

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a benchmark prints, reads the clock, and may fall over"
)]

use std::collections::HashMap;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use zbus::zvariant::{Fd, OwnedFd as BusFd, OwnedValue, Value};

const CALLS: usize = 300;
const WARM_UP: usize = 30;
const IMAGE_BYTES: usize = 2 * 1024 * 1024;

type Reply = (String, String, f64, Vec<u8>, HashMap<String, Value<'static>>);
type Answered = (String, String, f64, Vec<u8>, HashMap<String, OwnedValue>);

struct Echo {
    takes_in: bool,
}

#[zbus::interface(name = "org.steadfast.Bench.Echo")]
impl Echo {
    #[zbus(out_args("verdict", "reason", "malleability", "permit", "details"))]
    fn check(&self, image: BusFd, instruction: String, plan: String, options: HashMap<String, Value<'_>>) -> Reply {
        if self.takes_in {
            let bytes = steadfast::intake::memfd::read(image.as_fd(), usize::MAX).expect("sealed");
            let digests = steadfast::triple::Digests::of(instruction.as_bytes(), &bytes, plan.as_bytes());
            let decoded = steadfast::scene::decode::decode(&bytes).expect("an image");
            std::hint::black_box((digests, decoded));
        }
        let details = HashMap::from([("options".to_owned(), Value::from(options.len().to_string()))]);
        ("permit".to_owned(), String::new(), 0.0, vec![0; 400], details)
    }
}

struct Ends(Vec<Child>);

impl Drop for Ends {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A PNG of exactly this size whose pixels are cheap to decode, so that the bus is what is measured.
fn image() -> Vec<u8> {
    let side = 836;
    let pixels = image::RgbImage::from_fn(side, side, |x, y| image::Rgb([(x % 251) as u8, (y % 241) as u8, 77]));
    let mut png = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new_with_quality(
        &mut png,
        image::codecs::png::CompressionType::Uncompressed,
        image::codecs::png::FilterType::NoFilter,
    );
    pixels.write_with_encoder(encoder).expect("encoded");
    assert!(png.len() >= IMAGE_BYTES, "{} bytes", png.len());
    png
}

fn sealed(bytes: &[u8]) -> OwnedFd {
    let memfd = memfd_create("bench", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    let mut file = std::fs::File::from(memfd);
    file.write_all(bytes).expect("written");
    let memfd = OwnedFd::from(file);
    fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).expect("sealed");
    memfd
}

async fn p50(connection: &zbus::Connection, name: &str, path: &str, interface: &str, memfd: &OwnedFd) -> Duration {
    let mut times = Vec::with_capacity(CALLS);
    for call in 0..WARM_UP + CALLS {
        let options: HashMap<&str, Value<'_>> = HashMap::from([("deadline_ms", Value::from(20_000_u32))]);
        let body = (Fd::from(memfd), "Bring the cup.", "1. Grasp the cup\n2. Carry it", options);
        let start = Instant::now();
        let reply = connection.call_method(Some(name), path, Some(interface), "Check", &body).await.expect("an answer");
        let elapsed = start.elapsed();
        let body = reply.body();
        let (verdict, reason, ..): Answered = body.deserialize().expect("a reply");
        assert_eq!(verdict, "permit", "{reason}");
        if call >= WARM_UP {
            times.push(elapsed);
        }
    }
    times.sort();
    times[times.len() / 2]
}

/// A daemon with the recorded proxy; the calibration is bound to whatever the recording's digest is.
fn guard(folder: &Path, address: &str, policy: &str) -> Child {
    let recording = r#"{"answers": {}, "otherwise": {"margin": 3.0, "reliance": 0.2, "wobble": 0.2}}"#;
    let models = folder.join("models");
    std::fs::create_dir_all(&models).expect("a folder");
    std::fs::write(models.join("recording.json"), recording).expect("written");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let constitution = std::fs::read_to_string(root.join("config/constitution.toml")).expect("readable");
    let constitution = steadfast::constitution::Constitution::parse(&constitution).expect("valid").digest();
    let digest = |bytes: &[u8]| steadfast::triple::Digest::of(bytes).to_string();
    let (proxy, layout) = (digest(recording.as_bytes()), digest(b"steadfast/recorded/1"));
    let calibration = include_str!("../tests/data/recorded_calibration.toml")
        .replace("@proxy@", &proxy)
        .replace("@constitution@", &constitution.to_string())
        .replace("@layout@", &layout);
    std::fs::write(folder.join("calibration.toml"), calibration).expect("written");
    let config = format!(
        "constitution = \"{}/config/constitution.toml\"\ncalibration = \"calibration.toml\"\n\
         [proxy]\nkind = \"recorded\"\nmodels = \"models\"\n[bus]\naddress = \"{address}\"\n\
         [limits]\nclient_checks_per_second_max = 10000\nclient_checks_burst_max = 10000\n[audit]\nfolder = \"audit-{policy}\"\npolicy = \"{policy}\"\n\
         [permit]\nkeys = \"keys\"\n[ledger]\nfolder = \"ledger\"\n",
        root.display()
    );
    let path = folder.join(format!("{policy}.toml"));
    std::fs::write(&path, config).expect("written");
    Command::new(env!("CARGO_BIN_EXE_steadfastd"))
        .arg("--config")
        .arg(path)
        .stderr(Stdio::null())
        .spawn()
        .expect("the daemon starts")
}

async fn ready(client: &steadfast::intake::client::Client) {
    for _ in 0..200 {
        if client.status().await.is_ok_and(|status| status.get("state").is_some_and(|state| state == "ready")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the guard is not ready");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("unix:path={}/bus", folder.path().display());
    let bus = Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--nopidfile"])
        .arg(format!("--address={address}"))
        .stderr(Stdio::null())
        .spawn()
        .expect("dbus-daemon starts");
    let mut ends = Ends(vec![bus]);
    tokio::time::sleep(Duration::from_millis(500)).await;

    let mut servers = Vec::new();
    for (name, takes_in) in [("org.steadfast.Bench.Bare", false), ("org.steadfast.Bench.TakesIn", true)] {
        let builder = zbus::connection::Builder::address(address.as_str()).expect("an address");
        let builder = builder.name(name).expect("a name").serve_at("/echo", Echo { takes_in }).expect("served");
        servers.push(builder.build().await.expect("connected"));
    }
    let builder = zbus::connection::Builder::address(address.as_str()).expect("an address");
    let connection = builder.build().await.expect("connected");
    let memfd = sealed(&image());
    let echo = "org.steadfast.Bench.Echo";
    let bare = p50(&connection, "org.steadfast.Bench.Bare", "/echo", echo, &memfd).await;
    let takes_in = p50(&connection, "org.steadfast.Bench.TakesIn", "/echo", echo, &memfd).await;
    println!("2 MiB image in one sealed memfd, p50 of {CALLS} calls");
    let line = |what: &str, time: Duration| {
        let ratio = |base: Duration| time.as_secs_f64() / base.as_secs_f64();
        let ms = time.as_secs_f64() * 1e3;
        println!("  {what:<44} {ms:8.3} ms  {:6.2} × bare  {:6.2} × taking in", ratio(bare), ratio(takes_in));
    };
    line("bare echo", bare);
    line("echo that reads, digests and decodes", takes_in);
    let client = steadfast::intake::client::Client::connect(Some(&address)).await.expect("connected");
    for policy in ["buffered", "durable"] {
        ends.0.push(guard(folder.path(), &address, policy));
        ready(&client).await;
        let name = steadfast::intake::bus::NAME;
        let check = p50(&connection, name, steadfast::intake::bus::PATH, name, &memfd).await;
        line(&format!("whole check, recorded proxy, {policy}"), check);
        let mut daemon = ends.0.pop().expect("the daemon");
        drop(daemon.kill());
        drop(daemon.wait());
    }
}
