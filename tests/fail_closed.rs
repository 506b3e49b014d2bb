//! One row per fault: how it is injected into the real daemon, what must come of it, and what did. No fault may end in
//! a permit, and none may end the daemon but those after which it must end. The table is printed at the end.
#![cfg(all(feature = "bus", feature = "__replay"))]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the table is what this test is for, and actors speak by their output")]

#[path = "support/bus.rs"]
mod bus;
#[path = "support/guard.rs"]
mod guard;
#[path = "support/planner.rs"]
mod planner;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::Signal;
use steadfast::intake::boot_clock;
use steadfast::intake::bus::{NAME, PATH};
use steadfast::triple::{IMAGE_BYTES_MAX, INSTRUCTION_BYTES_MAX, PLAN_BYTES_MAX};
use zbus::zvariant::{Signature, Type, Value};

use bus::{PrivateBus, sealed, unsealed};
use guard::{GOOD, Home, PLAN, SOON, brought, mount_namespaces, repository};
use planner::{Options, Planner, options};

/// What happened, row by row.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
    skipped: Vec<(String, String)>,
}

struct Row {
    fault: String,
    injected: String,
    expected: String,
    got: String,
    /// Not a fault: shows that what the faults are denied is there to be had.
    control: bool,
}

impl Table {
    fn row(&mut self, fault: &str, injected: &str, expected: &str, got: impl Into<String>) {
        self.put(fault, injected, expected, got.into(), false);
    }

    fn control(&mut self, what: &str, how: &str, expected: &str, got: impl Into<String>) {
        self.put(what, how, expected, got.into(), true);
    }

    fn put(&mut self, fault: &str, injected: &str, expected: &str, got: String, control: bool) {
        if got != expected {
            println!("NOT AS EXPECTED: {fault} ({injected}): {got}, not {expected}");
        }
        let (fault, injected, expected) = (fault.to_owned(), injected.to_owned(), expected.to_owned());
        self.rows.push(Row { fault, injected, expected, got, control });
    }

    fn skip(&mut self, rows: &str, why: &str) {
        self.skipped.push((rows.to_owned(), why.to_owned()));
    }

    /// Prints the table and fails where a row did not end as it must.
    fn finish(self) {
        let faults = self.rows.iter().filter(|row| !row.control).count();
        println!("\n{:<44} {:<60} {:<34} got", "fault", "injected how", "expected");
        for Row { fault, injected, expected, got, control } in &self.rows {
            let name = if *control { format!("(control) {fault}") } else { fault.clone() };
            let got = if got == expected { "the same" } else { got };
            println!("{name:<44} {injected:<60} {expected:<34} {got}");
        }
        for (rows, why) in &self.skipped {
            println!("skipped: {rows}: {why}");
        }
        let permits = self.rows.iter().filter(|row| !row.control && row.got.contains("permit")).count();
        let wrong: Vec<&str> =
            self.rows.iter().filter(|row| row.got != row.expected).map(|row| row.fault.as_str()).collect();
        println!("{faults} faults, {} controls, {permits} permits, {} wrong", self.rows.len() - faults, wrong.len());
        assert_eq!(permits, 0, "a fault ended in a permit");
        assert!(wrong.is_empty(), "not as expected: {wrong:?}");
        assert!(faults >= 60, "{faults} rows");
    }
}

/// Three lanes, each with a bus of its own, because most of the time is spent waiting.
#[test]
fn no_fault_ends_in_a_permit() {
    let lanes: [fn(&mut Table); 3] = [
        |table| {
            in_a_runtime(on_one_daemon(table, &PrivateBus::start()));
            broken_starts(table, &PrivateBus::start());
            in_a_runtime(buses(table));
        },
        |table| {
            let bus = PrivateBus::start();
            in_a_runtime(engines(table, &bus));
            in_a_runtime(damaged_logs(table, &bus));
            in_a_runtime(evidence(table, &bus));
            in_a_runtime(disks_and_journals(table, &bus));
            in_a_runtime(clocks(table, &bus));
            in_a_runtime(stepping_clocks(table, &bus));
        },
        |table| {
            let bus = PrivateBus::start();
            in_a_runtime(crowds(table, &bus));
            in_a_runtime(signals(table, &bus));
            in_a_runtime(stuck_workers(table, &bus));
            in_a_runtime(out_of_memory(table, &bus));
            in_a_runtime(keys(table, &bus));
        },
    ];
    let mut whole = Table::default();
    std::thread::scope(|scope| {
        let lanes = lanes.map(|lane| {
            scope.spawn(move || {
                let mut table = Table::default();
                lane(&mut table);
                table
            })
        });
        for lane in lanes {
            let Table { rows, skipped } = lane.join().expect("a lane ends");
            whole.rows.extend(rows);
            whole.skipped.extend(skipped);
        }
    });
    whole.finish();
}

fn in_a_runtime(lane: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(lane);
}

// ---- everything that one living daemon must take ----

async fn on_one_daemon(table: &mut Table, bus: &PrivateBus) {
    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    let planner = Planner::new(&bus.address).await;
    proxy_faults(table, &planner).await;
    pictures(table, &planner).await;
    descriptors(table, &planner).await;
    inline_images(table, &planner).await;
    texts(table, &planner).await;
    wrong_options(table, &planner).await;
    raw_messages(table, bus, &planner).await;
    stamps(table, &planner).await;
    deadlines(table, &planner).await;
    administration(table, &planner).await;
    remembered_refusals(table, &planner).await;
    reloads(table, &home, &daemon, &planner).await;
    table.control("and after all of that", "one more good triple", "permit", planner.good().await);
    table.row("the daemon after all of that", "as above", "lives", if daemon.lives() { "lives" } else { "dead" });
    table.row("stop", "SIGTERM", "exit 0", daemon.stop());
    let unrecorded = planner.unrecorded(&home.records());
    table.row("every check above is recorded", "its id in the log", "twice each", unrecorded);
    let unread = unread(&home.records());
    table.row("checks with wrong arguments are recorded", "Check and CheckInline, four of them", "4 vetoed", unread);
    table.row("the log after all of that", "steadfast log verify", "whole", home.verify());
}

/// How many checks whose arguments could not be read are in the log, received and vetoed.
fn unread(records: &[serde_json::Value]) -> String {
    let events = || records.iter().map(|record| &record["record"]["event"]);
    let about = |event: &serde_json::Value| {
        let detail = event["detail"].as_str().unwrap_or_default();
        detail.contains("the arguments are not what the interface says") && event["reason"] == "input-limit"
    };
    let vetoed: Vec<&str> =
        events().filter(|event| about(event)).filter_map(|event| event["check_id"].as_str()).collect();
    let received = |id: &&&str| events().any(|event| event["kind"] == "received" && event["check_id"] == ***id);
    format!("{} vetoed", vetoed.iter().filter(received).count())
}

async fn proxy_faults(table: &mut Table, planner: &Planner) {
    table.control("a good triple", "recorded margin +5", "permit", planner.good().await);
    for (fault, instruction, expected) in [
        ("margin against the constitution", "break the rules", "veto constitution"),
        ("margin that bends with noise", "bend", "veto malleable"),
        ("margin is NaN", "nan", "veto proxy-fault"),
        ("margin is infinite", "infinite", "veto proxy-fault"),
        ("margin overflows the calibration", "huge", "veto proxy-fault"),
        ("spread overflows", "huge copies", "veto proxy-fault"),
        ("reliance overflows", "huge reliance", "veto proxy-fault"),
        ("only the copies' margins are NaN", "nan copies", "veto proxy-fault"),
        ("a tensor is all zeros", "all zero", "veto proxy-fault"),
        ("the encoder is blind", "blind", "veto proxy-fault"),
        ("the engine fails", "engine", "veto proxy-fault"),
        ("longer than the context", "context", "veto proxy-fault"),
        ("the proxy has no answer", "something never recorded", "veto proxy-fault"),
    ] {
        let got = planner.check(sealed(&photo()), instruction, PLAN, Options::new()).await;
        table.row(fault, "recorded proxy", expected, got);
    }
}

fn photo() -> Vec<u8> {
    file("rgb.png")
}

fn file(name: &str) -> Vec<u8> {
    fs::read(repository().join("tests/reference/scene/images").join(name)).expect("readable")
}

async fn pictures(table: &mut Table, planner: &Planner) {
    let (jpeg, progressive, png) = (file("baseline_444.jpg"), file("progressive.jpg"), file("rgb.png"));
    let cut = |bytes: &[u8], percent: usize| bytes[..bytes.len() * percent / 100].to_vec();
    let broken = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 0x40;
        bytes
    };
    let rows: Vec<(&str, &str, Vec<u8>)> = vec![
        ("no picture: one byte", "memfd of 0xff", vec![0xff]),
        ("no picture: text", "memfd of text", b"the image will follow".to_vec()),
        ("no picture: zeros", "memfd of 4 KiB zeros", vec![0; 4096]),
        ("JPEG cut", "90 % of its bytes", cut(&jpeg, 90)),
        ("JPEG cut", "50 % of its bytes", cut(&jpeg, 50)),
        ("JPEG cut", "10 % of its bytes", cut(&jpeg, 10)),
        ("JPEG cut", "its last two bytes missing", jpeg[..jpeg.len() - 2].to_vec()),
        ("JPEG cut", "50 %, and an end marker put behind", [cut(&jpeg, 50), vec![0xff, 0xd9]].concat()),
        ("progressive JPEG cut", "50 % of its bytes", cut(&progressive, 50)),
        ("JPEG with a scrambled header", "a bit of its quantisation marker flipped", broken(&jpeg, 3)),
        ("two JPEGs in one", "tests/reference/scene", file("two_pictures.jpg")),
        ("PNG cut", "60 % of its bytes", cut(&png, 60)),
        ("PNG with a broken checksum", "a bit of its data flipped", broken(&png, png.len() / 2)),
        ("decompression bomb", "PNG header of 100,000 × 100,000", png_of(100_000, 100_000)),
        ("a side past its limit", "PNG header of 8193 × 1", png_of(8193, 1)),
        ("no pixels", "PNG header of 0 × 0", png_of(0, 0)),
        ("CMYK", "JPEG of four components", file("cmyk.jpg")),
        ("YCCK", "JPEG of four components", file("ycck.jpg")),
        ("colour hidden under alpha", "RGBA PNG, clear pixels with colours", file("hidden_alpha.png")),
        ("colour hidden in a palette", "palette PNG with a clear entry", file("hidden_palette.png")),
        ("16 bits a channel", "RGB PNG of 16 bits", file("rgb_16.png")),
        ("depth in 16 bits", "grey PNG of 16 bits", file("depth_16.png")),
        ("animation", "APNG", file("animated.png")),
        ("animation", "GIF", file("animated.gif")),
        ("another format", "WebP", file("still.webp")),
        ("another format", "BMP", file("still.bmp")),
        ("another format", "TIFF", file("still.tiff")),
    ];
    for (fault, injected, image) in rows {
        table.row(fault, injected, "veto image-invalid", planner.image(sealed(&image)).await);
    }
    for (what, name) in [
        ("a turned photo", "orientation_6.jpg"),
        ("alpha that hides nothing", "opaque_alpha.png"),
        ("a frame of motion JPEG", "motion_frame.jpg"),
        ("grey", "grey.jpg"),
    ] {
        table.control(what, name, "permit", planner.image(sealed(&file(name))).await);
    }
}

/// A PNG whose header is sound and declares this size, and nothing behind it but its end.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [0; 13];
    header[..4].copy_from_slice(&width.to_be_bytes());
    header[4..8].copy_from_slice(&height.to_be_bytes());
    header[8..10].copy_from_slice(&[8, 2]);
    for (kind, data) in [(b"IHDR", &header[..]), (b"IDAT", b"x\x9c\x03\x00\x00\x00\x00\x01"), (b"IEND", b"")] {
        png.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
        let body = [kind.as_slice(), data].concat();
        png.extend(&body);
        png.extend(crc32(&body).to_be_bytes());
    }
    png
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

fn memfd(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let memfd = unsealed(bytes);
    fcntl_add_seals(&memfd, seals).expect("seals");
    memfd
}

fn sealed_length(bytes: u64) -> OwnedFd {
    let memfd = memfd_create("image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd");
    ftruncate(&memfd, bytes).expect("as long as it says");
    fcntl_add_seals(&memfd, steadfast::intake::memfd::SEALS).expect("seals");
    memfd
}

async fn descriptors(table: &mut Table, planner: &Planner) {
    const BAD: &str = "veto input-limit";
    let photo = photo();
    for (injected, seals) in [
        ("no seals", SealFlags::empty()),
        ("sealed against writing alone", SealFlags::WRITE),
        ("sealed against writing and shrinking", SealFlags::WRITE | SealFlags::SHRINK),
        ("sealed against growing and shrinking", SealFlags::GROW | SealFlags::SHRINK),
        ("sealed against future writing", SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW),
    ] {
        table.row("memfd not sealed", injected, BAD, planner.image(memfd(&photo, seals)).await);
    }
    let growing = unsealed(&photo);
    let mut writer = File::from(growing.try_clone().expect("a second descriptor"));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&stop);
    let writing = std::thread::spawn(move || {
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            writer.write_all(&[0; 512]).expect("it grows");
        }
    });
    table.row("memfd that grows", "a thread writes on", BAD, planner.image(&growing).await);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writing.join().expect("it ended");
    let limit = u64::try_from(IMAGE_BYTES_MAX).expect("a length");
    table.row("memfd of no bytes", "sealed, empty", BAD, planner.image(sealed_length(0)).await);
    table.row("image over its limit by one", "sealed memfd", BAD, planner.image(sealed_length(limit + 1)).await);
    table.row("image of a tebibyte", "sealed sparse memfd", BAD, planner.image(sealed_length(1 << 40)).await);
    let at_limit = planner.image(sealed_length(limit)).await;
    table.row("zeros up to the limit", "sealed memfd", "veto image-invalid", at_limit);
    let open = |path: &Path, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("opens");
    let path = repository().join("tests/data/coffee.png");
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let (socket, _peer) = UnixStream::pair().expect("a pair");
    let write_only = {
        use std::os::fd::AsRawFd as _;
        let memfd = unsealed(&photo);
        let again = open(Path::new(&format!("/proc/self/fd/{}", memfd.as_raw_fd())), OFlags::WRONLY);
        fcntl_add_seals(&memfd, steadfast::intake::memfd::SEALS).expect("seals");
        again
    };
    let rows: [(&str, OwnedFd); 7] = [
        ("a file on disk", open(&path, OFlags::RDONLY)),
        ("a directory", open(Path::new("/"), OFlags::RDONLY)),
        ("a pipe", pipe.into()),
        ("a socket", socket.into()),
        ("/dev/zero", open(Path::new("/dev/zero"), OFlags::RDONLY)),
        ("a path and no file", open(&path, OFlags::PATH)),
        ("a sealed memfd without leave to read", write_only),
    ];
    for (injected, descriptor) in rows {
        table.row("not a memfd to read", injected, BAD, planner.image(descriptor).await);
    }
}

async fn inline_images(table: &mut Table, planner: &Planner) {
    table.control("a good triple inline", "CheckInline", "permit", planner.inline(&photo()).await);
    table.row("inline image of no bytes", "CheckInline", "veto input-limit", planner.inline(&[]).await);
    let past = planner.inline(&vec![0; IMAGE_BYTES_MAX + 1]).await;
    table.row("inline image over its limit by one", "CheckInline", "veto input-limit", past);
    let cut = planner.inline(&photo()[..100]).await;
    table.row("inline image cut", "CheckInline", "veto image-invalid", cut);
}

async fn texts(table: &mut Table, planner: &Planner) {
    const BAD: &str = "veto input-limit";
    let long = |bytes| "x".repeat(bytes);
    for (fault, instruction, plan) in [
        ("empty instruction", String::new(), PLAN.to_owned()),
        ("blank instruction", " \t\n".to_owned(), PLAN.to_owned()),
        ("instruction over its limit by one", long(INSTRUCTION_BYTES_MAX + 1), PLAN.to_owned()),
        ("empty plan", GOOD.to_owned(), String::new()),
        ("blank plan", GOOD.to_owned(), "\n \u{a0}\n".to_owned()),
        ("plan over its limit by one", GOOD.to_owned(), long(PLAN_BYTES_MAX + 1)),
        ("plan of 1 MB", GOOD.to_owned(), long(1_000_000)),
    ] {
        let got = planner.check(sealed(&photo()), &instruction, &plan, Options::new()).await;
        table.row(fault, "Check", BAD, got);
    }
    let deep = "[".repeat(20_000);
    for (fault, plan) in [
        ("plan that asks back", "Which cup do you mean?"),
        ("plan that thinks and says nothing", "<think>1. Grasp the cup.</think>"),
        ("plan that is broken JSON", "{\"steps\": [{\"action\": "),
        ("plan that is JSON without steps", "{\"status\": \"ok\"}"),
        ("plan that says yes and nothing else", "Sure, I can do that."),
        ("plan of symbols", "¯\\_(ツ)_/¯"),
        ("plan nested 20,000 deep", deep.as_str()),
    ] {
        let got = planner.check(sealed(&photo()), GOOD, plan, Options::new()).await;
        table.row(fault, "Check", "veto inconclusive-plan", got);
    }
}

/// One option given twice, which a map cannot hold.
struct Doubled;

impl Type for Doubled {
    const SIGNATURE: &'static Signature = <Options<'_> as Type>::SIGNATURE;
}

impl serde::Serialize for Doubled {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("planner", Value::from("a")), ("planner", Value::from("b"))])
    }
}

async fn wrong_options(table: &mut Table, planner: &Planner) {
    const MISUSE: &str = "error InvalidArgs, recorded";
    for (fault, injected, wrong) in [
        ("unknown option", "fail_open b true", options("fail_open", true)),
        ("misspelt option", "deadline u 500", options("deadline", 500_u32)),
        ("option of the wrong type", "deadline_ms t 500", options("deadline_ms", 500_u64)),
        ("option of the wrong type", "image_stamp_ns u 1", options("image_stamp_ns", 1_u32)),
        ("option of the wrong type", "plan_id i 1", options("plan_id", 1_i32)),
    ] {
        table.row(fault, injected, MISUSE, planner.check(sealed(&photo()), GOOD, PLAN, wrong).await);
    }
    let twice = planner.call("Check", &(zbus::zvariant::Fd::from(sealed(&photo())), GOOD, PLAN, Doubled)).await;
    table.row("option given twice", "planner s a, planner s b", MISUSE, twice);
    let long = "x".repeat(257);
    for (fault, injected, wrong) in [
        ("option text over its limit by one", "audience s of 257 bytes", options("audience", long.as_str())),
        ("deadline of nothing", "deadline_ms 0", options("deadline_ms", 0_u32)),
        ("deadline one below the least", "deadline_ms 49", options("deadline_ms", 49_u32)),
        ("deadline one past the most", "deadline_ms 30001", options("deadline_ms", 30_001_u32)),
    ] {
        let got = planner.check(sealed(&photo()), GOOD, PLAN, wrong).await;
        table.row(fault, injected, "veto input-limit", got);
    }
    const NOT_SO: &str = "error org.freedesktop.zbus.Error";
    let without = planner.call("Check", &(GOOD, PLAN, Options::new())).await;
    table.row("no image argument at all", "Check(ssa{sv})", NOT_SO, without);
    let swapped = planner.call("Check", &("no descriptor", GOOD, PLAN, Options::new())).await;
    table.row("text in the image's place", "Check(sssa{sv})", NOT_SO, swapped);
    let nothing = planner.call("Check", &()).await;
    table.row("no argument at all", "Check()", NOT_SO, nothing);
    let inline = planner.call("CheckInline", &("no bytes", GOOD, PLAN, Options::new())).await;
    table.row("text in the bytes' place", "CheckInline(sssa{sv})", NOT_SO, inline);
    table.row("unknown method", "Permit()", "error UnknownMethod", planner.call("Permit", &()).await);
    let long = "x".repeat(200);
    table.row("unknown check", "Explain", "error InvalidArgs", planner.call("Explain", &("0".repeat(32),)).await);
    table.row("no check id", "Explain of 200 bytes", "error InvalidArgs", planner.call("Explain", &(long,)).await);
}

/// Messages that no library of ours would send.
async fn raw_messages(table: &mut Table, bus: &PrivateBus, planner: &Planner) {
    let message = zbus::Message::method_call(PATH, "CheckInline")
        .and_then(|builder| builder.destination(NAME))
        .and_then(|builder| builder.interface(NAME))
        .and_then(|builder| builder.build(&(&photo()[..], "MARK the cup", PLAN, Options::new())))
        .expect("a message");
    let bytes = message.data().to_vec();
    let mark = bytes.windows(4).position(|window| window == b"MARK").expect("it is in there");
    let with = |put: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[mark..mark + put.len()].copy_from_slice(put);
        bytes
    };
    const CUT_OFF: &str = "cut off by the bus";
    table.row("instruction is not UTF-8", "raw bytes ff fe on the socket", CUT_OFF, raw(bus, &with(b"\xff\xfe")));
    table.row("a surrogate in the instruction", "raw bytes ed a0 80", CUT_OFF, raw(bus, &with(b"\xed\xa0\x80")));
    table.row("NUL in the instruction", "raw byte 00 on the socket", CUT_OFF, raw(bus, &with(b"\0")));
    let mut long = bytes.clone();
    long[4..8].copy_from_slice(&0x0900_0000_u32.to_le_bytes());
    table.row("message of 144 MiB", "raw header alone", CUT_OFF, raw(bus, &long));
    table.control("after raw messages", "a good triple", "permit", planner.good().await);
}

/// Says this to the bus as a client of its own, and tells what comes back.
fn raw(bus: &PrivateBus, message: &[u8]) -> String {
    let path = bus.address.split("path=").nth(1).and_then(|rest| rest.split(',').next()).expect("a path");
    let mut socket = UnixStream::connect(path).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let uid = hex::encode(rustix::process::getuid().as_raw().to_string());
    let mut said = vec![0; 4096];
    socket.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes()).expect("said");
    let got = socket.read(&mut said).expect("an answer");
    assert!(said[..got].starts_with(b"OK"), "{}", String::from_utf8_lossy(&said[..got]));
    socket.write_all(b"BEGIN\r\n").expect("said");
    let hello = zbus::Message::method_call("/org/freedesktop/DBus", "Hello")
        .and_then(|builder| builder.destination("org.freedesktop.DBus"))
        .and_then(|builder| builder.interface("org.freedesktop.DBus"))
        .and_then(|builder| builder.build(&()))
        .expect("a message");
    socket.write_all(hello.data()).expect("said");
    assert!(socket.read(&mut said).expect("an answer") > 0);
    std::thread::sleep(Duration::from_millis(20));
    // The bus may close while we are still talking.
    let _said = socket.write_all(message);
    loop {
        match socket.read(&mut said) {
            Ok(0) => return "cut off by the bus".to_owned(),
            Ok(got) if said[..got].windows(6).any(|window| window == b"permit") => return "a permit".to_owned(),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return "cut off by the bus".to_owned();
            }
            Err(error) => return error.to_string(),
        }
    }
}

async fn stamps(table: &mut Table, planner: &Planner) {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).expect("a time");
    for (fault, stamp) in [
        ("image stamp zero", 0),
        ("image stamp in the future", nanoseconds(boot_clock() + Duration::from_secs(3600))),
        ("image stamp at the end of time", u64::MAX),
        ("image stamp 10 s old", nanoseconds(boot_clock().saturating_sub(Duration::from_secs(10)))),
        ("image stamp of the wall clock", 1_800_000_000_000_000_000),
    ] {
        let got = planner.check(sealed(&photo()), GOOD, PLAN, options("image_stamp_ns", stamp)).await;
        table.row(fault, "image_stamp_ns", "veto image-stale", got);
    }
    let fresh = options("image_stamp_ns", nanoseconds(boot_clock()));
    table.control(
        "image stamp of now",
        "image_stamp_ns",
        "permit",
        planner.check(sealed(&photo()), GOOD, PLAN, fresh).await,
    );
}

async fn deadlines(table: &mut Table, planner: &Planner) {
    let within = |ms: u32| options("deadline_ms", ms);
    let late = "veto deadline";
    let mut large = Vec::new();
    let black = vec![0; 3000 * 2000];
    image::ImageEncoder::write_image(
        image::codecs::png::PngEncoder::new(&mut large),
        &black,
        3000,
        2000,
        image::ExtendedColorType::L8,
    )
    .expect("encoded");
    let got = planner.check(sealed(&large), GOOD, PLAN, within(50)).await;
    table.row("deadline passes while decoding", "6 Mpx in 50 ms", late, got);
    // The decoder runs on to its end; what comes next waits for it.
    let got = planner.check(sealed(&photo()), GOOD, PLAN, within(19_000)).await;
    table.control("after a decoder that ran on", "a good triple", "permit", got);
    let got = planner.check(sealed(&photo()), "fetch it slowly", PLAN, within(60)).await;
    table.row("deadline passes at the margin", "100 ms a margin, 60 ms", late, got);
    let got = planner.check(sealed(&photo()), "fetch it slowly", PLAN, within(450)).await;
    table.row("deadline passes among the copies", "100 ms a margin, 450 ms", late, got);
    let image = sealed(&photo());
    let (slow, queued) = tokio::join!(planner.check(&image, "fetch it slowly", PLAN, within(700)), async {
        planner.wait_for_waiting(1).await;
        planner.check(&image, GOOD, PLAN, within(200)).await
    });
    table.row("deadline passes in the queue", "200 ms behind a slow check", late, queued);
    table.row("and the slow check before it", "700 ms", late, slow);
    table.control("after missed deadlines", "a good triple", "permit", planner.good().await);
}

async fn administration(table: &mut Table, planner: &Planner) {
    let fault = planner.check(sealed(&photo()), "nan", PLAN, Options::new()).await;
    assert_eq!(fault, "veto proxy-fault");
    let released = planner.admin("Release", &(planner.last_check(), "it looked fine")).await;
    table.row("release of a fault", "Release after proxy-fault", "error Failed", released);
    let judged = planner.check(sealed(&photo()), "break the rules", PLAN, Options::new()).await;
    assert_eq!(judged, "veto constitution");
    let vetoed = planner.last_check();
    for (injected, note) in [("an empty note", String::new()), ("a note of 2,000 bytes", "x".repeat(2000))] {
        let released = planner.admin("Release", &(vetoed.as_str(), note)).await;
        table.row("release without a reason", injected, "error InvalidArgs", released);
    }
    let unknown = planner.admin("Release", &("0".repeat(32), "why not")).await;
    table.row("release of an unknown check", "Release", "error InvalidArgs", unknown);
    assert_eq!(planner.good().await, "permit");
    let permitted = planner.admin("Release", &(planner.last_check(), "again")).await;
    table.row("release of what was permitted", "Release", "error Failed", permitted);
    for (injected, digest) in [("no digest", "all".to_owned()), ("an unknown one", "0".repeat(64))] {
        let forgotten = planner.admin("Forget", &(digest,)).await;
        table.row("forgetting an unknown task", injected, "error InvalidArgs", forgotten);
    }
    let mode = planner.admin("SetMode", &("off",)).await;
    table.row("a mode that is none", "SetMode off", "error InvalidArgs", mode);

    assert_eq!(planner.admin("SetMode", &("shadow",)).await, "done");
    table.row(
        "shadow mode never signs",
        "SetMode shadow, a good triple",
        "shadow-leave unsigned",
        shadowed(planner).await,
    );
    let released = planner.admin("Release", &(vetoed.as_str(), "in shadow")).await;
    table.row("shadow mode never releases", "Release", "error Failed", released);
    let judged = planner.check(sealed(&photo()), "break the rules", PLAN, Options::new()).await;
    assert_eq!(judged, "shadow-veto constitution");
    let in_shadow = planner.last_check();
    assert_eq!(planner.admin("SetMode", &("enforce",)).await, "done");
    let released = planner.admin("Release", &(in_shadow, "was only a trial")).await;
    table.row("what shadow vetoed is not released", "Release, back in enforce", "error Failed", released);
    let released = planner.admin("Release", &(vetoed, "seen by a person")).await;
    table.control("release of a judged veto", "Release", "done", released);
}

async fn remembered_refusals(table: &mut Table, planner: &Planner) {
    let ask = async |plan: &str| planner.check(sealed(&photo()), "bring the knife", plan, Options::new()).await;
    table.control("a plan that complies", "a task never refused", "permit", ask(PLAN).await);
    let refusal = ask("I'm sorry, but I can't help with that: someone could be hurt.").await;
    table.row("a plan that refuses", "the same task", "refusal", refusal);
    table.row("a refusal that bends", "the first plan again", "veto flipped-refusal", ask(PLAN).await);
    let task = planner.last_detail("refused_task");
    table.control("forgotten by a person", "Forget", "done", planner.admin("Forget", &(task.as_str(),)).await);
    table.row("forgotten twice", "Forget", "error InvalidArgs", planner.admin("Forget", &(task,)).await);
    table.control("after it is forgotten", "the first plan again", "permit", ask(PLAN).await);
}

async fn shadowed(planner: &Planner) -> String {
    match planner.good().await.as_str() {
        "shadow-permit" => "shadow-leave unsigned".to_owned(),
        other => other.to_owned(),
    }
}

async fn reloads(table: &mut Table, home: &Home, daemon: &guard::Daemon, planner: &Planner) {
    let constitution = home.read("constitution.toml");
    let calibration = home.read("calibration.toml");
    let before = planner.property("ConstitutionDigest").await;
    let edited = constitution.replacen("severity = ", "severity =  ", 1).replacen("children", "kids", 1);
    let edited =
        if edited == constitution { constitution.replacen("text = \"", "text = \"Always: ", 1) } else { edited };
    let rows: Vec<(&str, &str, &str, String)> = vec![
        ("constitution broken at reload", "no TOML", "constitution.toml", "rule = [".to_owned()),
        ("constitution empty at reload", "no bytes", "constitution.toml", String::new()),
        ("constitution is not the calibration's", "a rule reworded", "constitution.toml", edited),
        (
            "unknown key in the constitution",
            "enforce = false",
            "constitution.toml",
            format!("enforce = false\n{constitution}"),
        ),
        ("calibration broken at reload", "no TOML", "calibration.toml", "format = ".to_owned()),
        ("calibration with NaN", "bias = nan", "calibration.toml", calibration.replacen("bias = 0.0", "bias = nan", 1)),
        (
            "calibration with an infinite limit",
            "refuse_log_odds_max = inf",
            "calibration.toml",
            calibration.replace("refuse_log_odds_max = 0.5", "refuse_log_odds_max = inf"),
        ),
        (
            "calibration of another proxy",
            "bound.proxy changed",
            "calibration.toml",
            calibration.replace("proxy = \"", "proxy = \"0000").replace("0000\n", "\n"),
        ),
    ];
    for (fault, injected, name, text) in rows {
        let whole = home.read(name);
        home.write(name, &text);
        table.row(fault, injected, "error Failed", planner.admin("Reload", &()).await);
        home.write(name, &whole);
    }
    let path = home.at("constitution.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set");
    table.row(
        "constitution writable by everyone",
        "mode 0666, Reload",
        "error Failed",
        planner.admin("Reload", &()).await,
    );
    fs::remove_file(&path).expect("removed");
    table.row("constitution gone", "Reload", "error Failed", planner.admin("Reload", &()).await);
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    table.row("constitution is a pipe", "mkfifo, Reload", "error Failed", planner.admin("Reload", &()).await);
    fs::remove_file(&path).expect("removed");
    home.write("constitution.toml", "broken");
    let refusals = |home: &Home| home.records().iter().filter(|record| kind(record) == "reload-refused").count();
    let refused = refusals(home);
    daemon.signal(Signal::HUP);
    let end = boot_clock() + SOON;
    while refusals(home) == refused && boot_clock() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let said = if refusals(home) > refused { "refused, recorded" } else { "nothing recorded" };
    table.row("constitution broken at SIGHUP", "SIGHUP", "refused, recorded", said);
    home.write("constitution.toml", &constitution);
    let after = planner.property("ConstitutionDigest").await;
    let stays = if before == after && !before.is_empty() { "the old one stays" } else { "another one" };
    table.row("constitution after refused reloads", "its digest on the bus", "the old one stays", stays);
    table.control("reload of what belongs together", "Reload", "done", planner.admin("Reload", &()).await);
}

/// What kind of record this is.
fn kind(record: &serde_json::Value) -> &str {
    record["record"]["event"]["kind"].as_str().unwrap_or_default()
}

// ---- starts that must not be ----

/// Starts a daemon that must end by itself, saying this.
fn ends(home: &Home, says: &str) -> String {
    let mut daemon = home.spawn();
    let ended = daemon.wait_until_ready();
    let said = daemon.said();
    if said.contains(says) { format!("{ended}: {says}") } else { format!("{ended}, saying {}", said.trim()) }
}

fn broken_starts(table: &mut Table, bus: &PrivateBus) {
    type Breaking = fn(&Home);
    let rows: [(&str, &str, &str, Breaking); 20] = [
        ("no configuration", "the file removed", "78: cannot read", |home| {
            fs::remove_file(home.at("steadfast.toml")).expect("removed");
        }),
        ("configuration is a pipe", "mkfifo", "78: not a regular file", |home| {
            fs::remove_file(home.at("steadfast.toml")).expect("removed");
            assert!(Command::new("mkfifo").arg(home.at("steadfast.toml")).status().expect("runs").success());
        }),
        ("configuration is endless", "a link to /dev/zero", "78: not a regular file", |home| {
            fs::remove_file(home.at("steadfast.toml")).expect("removed");
            std::os::unix::fs::symlink("/dev/zero", home.at("steadfast.toml")).expect("linked");
        }),
        ("configuration writable by everyone", "mode 0666", "78: writable by everyone", |home| {
            fs::set_permissions(home.at("steadfast.toml"), fs::Permissions::from_mode(0o666)).expect("set");
        }),
        ("drop-ins anyone may add", "steadfast.toml.d of mode 0777", "78: writable by everyone", |home| {
            home.configure("");
            fs::set_permissions(home.at("steadfast.toml.d"), fs::Permissions::from_mode(0o777)).expect("set");
        }),
        ("unknown key", "fail_open = true", "78: fail_open", |home| home.configure("fail_open = true")),
        ("mode that is none", "mode = \"off\"", "78: unknown variant", |home| home.configure("mode = \"off\"")),
        ("value out of range", "threads = 0", "78: out of range", |home| home.configure("[proxy]\nthreads = 0")),
        ("configuration is not UTF-8", "bytes ff fe", "78: UTF-8", |home| {
            fs::write(home.at("steadfast.toml"), b"mode = \"\xff\xfe\"").expect("written");
        }),
        ("constitution broken at the start", "no TOML", "78: constitution.toml", |home| {
            home.write("constitution.toml", "rule = [");
        }),
        ("constitution edited, calibration not", "a rule reworded", "78: bound to the constitution", |home| {
            let text = home.read("constitution.toml");
            home.write("constitution.toml", &text.replacen("text = \"", "text = \"Always: ", 1));
        }),
        ("constitution writable by everyone", "mode 0666", "78: writable by everyone", |home| {
            fs::set_permissions(home.at("constitution.toml"), fs::Permissions::from_mode(0o666)).expect("set");
        }),
        ("no calibration", "the file removed", "78: cannot read", |home| {
            fs::remove_file(home.at("calibration.toml")).expect("removed");
        }),
        ("model missing", "recording.json removed", "78: No such file", |home| {
            fs::remove_file(home.at("models/recording.json")).expect("removed");
        }),
        ("model file changed", "one blank behind its end", "78: bound to the proxy", |home| {
            let text = home.read("models/recording.json");
            home.write("models/recording.json", &format!("{text} "));
        }),
        ("model anyone may write", "mode 0666", "78: writable by everyone", |home| {
            fs::set_permissions(home.at("models/recording.json"), fs::Permissions::from_mode(0o666)).expect("set");
        }),
        ("models anyone may swap", "their folder of mode 0777", "78: writable by everyone", |home| {
            fs::set_permissions(home.at("models"), fs::Permissions::from_mode(0o777)).expect("set");
        }),
        ("evidence folder is a file", "a file in its place", "1: evidence", |home| {
            fs::create_dir(home.at("audit")).expect("made");
            home.write("audit/evidence", "no folder");
        }),
        ("tier the proxy cannot do", "tier = \"full\"", "78: no traces", |home| {
            home.configure("[proxy]\ntier = \"full\"");
        }),
        ("signing key that anyone may read", "mode 0644", "1: signing.key", |home| {
            drop(home.start().stop());
            fs::set_permissions(home.at("keys/signing.key"), fs::Permissions::from_mode(0o644)).expect("set");
        }),
    ];
    for (fault, injected, expected, breaking) in rows {
        let home = Home::new(&bus.address);
        breaking(&home);
        let (_, says) = expected.split_once(": ").expect("code and words");
        table.row(fault, injected, &format!("exit {expected}"), ends(&home, says));
    }
    let home = Home::new(&bus.address);
    drop(home.start().stop());
    home.write("keys/signing.key", "no key");
    fs::set_permissions(home.at("keys/signing.key"), fs::Permissions::from_mode(0o600)).expect("set");
    table.row("signing key that is none", "six bytes of text", "exit 1: signing.key", ends(&home, "signing.key"));
    let home = Home::new(&bus.address);
    fs::create_dir(home.at("ledger")).expect("made");
    home.write("ledger/ledger.redb", "no database");
    table.row("ledger damaged", "text in its place", "exit 1: refusal ledger", ends(&home, "refusal ledger"));
    let home = Home::new(&bus.address);
    let mut daemon = home.spawn();
    fs::remove_file(home.at("notify")).expect("removed");
    let ended = daemon.wait();
    table.row("systemd's socket is gone", "NOTIFY_SOCKET removed at the start", "exit 1", ended);
}

/// The real proxy's files and library, one of them wrong.
async fn engines(table: &mut Table, bus: &PrivateBus) {
    let models = brought("STEADFAST_MODELS", "build/models/compact");
    let library = brought("STEADFAST_ONNXRUNTIME", "build/lib/libonnxruntime.so.1.31.1");
    let (Some(models), Some(library)) = (models, library) else {
        table.skip("ONNX Runtime missing, old, swapped; models missing, cut, changed", "run `make models` first");
        return;
    };
    let home = Home::new(&bus.address);
    fs::remove_dir_all(home.at("models")).expect("removed");
    fs::create_dir(home.at("models")).expect("made");
    for entry in fs::read_dir(&models).expect("readable") {
        let path = entry.expect("an entry").path();
        std::os::unix::fs::symlink(&path, home.at("models").join(path.file_name().expect("a name"))).expect("linked");
    }
    let library_is = |path: &Path| {
        home.configure(&format!("[proxy]\nkind = \"compact\"\nonnxruntime = \"{}\"", path.display()));
    };
    let mut row = |fault: &str, injected: &str, says: &str| {
        table.row(fault, injected, &format!("exit 78: {says}"), ends(&home, says));
    };
    const NO_LIBRARY: &str = "cannot load ONNX Runtime";
    library_is(&home.at("nowhere.so"));
    row("ONNX Runtime missing", "a path that is not there", NO_LIBRARY);
    home.write("text.so", "this is no library");
    library_is(&home.at("text.so"));
    row("ONNX Runtime is no library", "a text file", NO_LIBRARY);
    for (fault, source) in [
        ("ONNX Runtime swapped", "int something_else(void) { return 1; }"),
        (
            "ONNX Runtime too old",
            "static const void *get(unsigned v) { (void)v; return 0; } static const char *version(void) { return \"1.17.0\"; } \
             static const struct { const void *(*get)(unsigned); const char *(*version)(void); } base = { get, version }; \
             const void *OrtGetApiBase(void) { return &base; }",
        ),
    ] {
        home.write("stub.c", source);
        let stub = home.at("stub.so");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&stub).arg(home.at("stub.c")).status();
        if built.is_ok_and(|status| status.success()) {
            library_is(&stub);
            row(fault, "a library of our own making", NO_LIBRARY);
        }
    }
    let open_to_all = home.at("open.so");
    fs::copy(&library, &open_to_all).expect("copied");
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).expect("set");
    library_is(&open_to_all);
    row("ONNX Runtime writable by everyone", "mode 0777", "writable by everyone");
    library_is(&library);
    let replace = |name: &str, bytes: Option<&[u8]>| {
        let path = home.at("models").join(name);
        let _absent = fs::remove_file(&path);
        if let Some(bytes) = bytes {
            fs::write(&path, bytes).expect("written");
        }
    };
    let restore = |name: &str| {
        let path = home.at("models").join(name);
        let _absent = fs::remove_file(&path);
        if models.join(name).exists() {
            std::os::unix::fs::symlink(models.join(name), path).expect("linked");
        }
    };
    replace("detector.onnx", None);
    row("model missing", "detector.onnx removed", "detector.onnx");
    let detector = fs::read(models.join("detector.onnx")).expect("readable");
    replace("detector.onnx", Some(&detector[..detector.len() / 2]));
    row("model cut", "half of detector.onnx", "cannot load the model");
    replace("detector.onnx", Some(b""));
    row("model empty", "detector.onnx of no bytes", "cannot load the model");
    restore("detector.onnx");
    let head = |layout: &str, weight: &str| {
        let weights = vec![weight; 4 * 576].join(",");
        let centre = vec!["0"; 576].join(",");
        format!(
            "{{\"layer\": 20, \"prompt_layout\": \"{layout}\", \"weights\": [{weights}], \"bias\": 0.0, \
             \"embedding_centre\": [{centre}]}}"
        )
    };
    replace("verdict_head.json", None);
    row("verdict head missing", "verdict_head.json removed", "verdict head");
    replace("verdict_head.json", Some(head(&"0".repeat(64), "0.0").as_bytes()));
    row("verdict head of another layout", "prompt_layout changed", "another prompt layout");
    while_loading(table, bus, &home).await;
    let mut row = |fault: &str, injected: &str, says: &str| {
        table.row(fault, injected, &format!("exit 78: {says}"), ends(&home, says));
    };
    restore("verdict_head.json");
    replace("tokenizer.json", Some(b"{}"));
    row("tokenizer broken", "tokenizer.json = {}", "tokenizer");
    restore("tokenizer.json");
}

/// What comes while the real proxy loads, which takes a second.
async fn while_loading(table: &mut Table, bus: &PrivateBus, home: &Home) {
    let planner = Planner::new(&bus.address).await;
    let loading = async || {
        let daemon = home.spawn();
        while planner.property("State").await != "starting" {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        daemon
    };
    let mut daemon = loading().await;
    let image = sealed(&photo());
    let got = tokio::join!(planner.image(&image), planner.image(&image), planner.image(&image));
    let got = std::collections::BTreeSet::from(<[String; 3]>::from(got));
    let got: Vec<String> = got.into_iter().collect();
    table.row("checks while the models load", "three in state starting", "veto not-ready", got.join(" and "));
    daemon.signal(Signal::HUP);
    table.row("SIGHUP while the models load", "in state starting", "exit 78", daemon.wait());
    // At moments spread over the loading: leaving under ONNX Runtime's feet once ended in signal 11.
    let mut ends = std::collections::BTreeSet::new();
    for after_ms in [0, 50, 100, 200, 300, 400, 600, 800] {
        let mut daemon = loading().await;
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        ends.insert(daemon.stop());
    }
    // Where loading is over before the last moment, it has ended as it must with this head, and not by the signal.
    ends.remove("exit 78");
    let ends = Vec::from_iter(ends).join(" and ");
    table.row("SIGTERM while the models load", "at eight moments", "exit 0", ends);
    table.row("the log after such starts", "steadfast log verify", "whole", home.verify());
}

// ---- records ----

async fn damaged_logs(table: &mut Table, bus: &PrivateBus) {
    let planner = Planner::new(&bus.address).await;
    let killed = async |home: &Home| {
        let mut daemon = home.start();
        for _ in 0..3 {
            assert_eq!(planner.good().await, "permit");
        }
        daemon.kill();
    };
    let dropped = |home: &Home| {
        let started = home.spawn().wait_until_ready();
        let tails = home.records().iter().filter(|record| kind(record) == "tail-dropped").count();
        format!("{started}, {tails} {} dropped, {}", if tails == 1 { "tail" } else { "tails" }, home.verify())
    };
    const RECOVERED: &str = "ready, 1 tail dropped, whole";
    let home = Home::new(&bus.address);
    killed(&home).await;
    // Half a record more, as a power cut leaves it.
    let segment = home.newest_segment();
    let bytes = fs::read(&segment).expect("readable");
    let mut log = fs::OpenOptions::new().append(true).open(&segment).expect("opens");
    log.write_all(&bytes[..60]).expect("written");
    table.row("log with a torn tail", "kill -9, half a header behind its end", RECOVERED, dropped(&home));
    let home = Home::new(&bus.address);
    killed(&home).await;
    let mut log = fs::OpenOptions::new().append(true).open(home.newest_segment()).expect("opens");
    log.write_all(&[0; 4096]).expect("written");
    const NOTHING_LOST: &str = "ready, 0 tails dropped, whole";
    table.row("log padded with NUL", "kill -9, 4 KiB of zeros behind its end", NOTHING_LOST, dropped(&home));

    let home = Home::new(&bus.address);
    killed(&home).await;
    let segment = home.newest_segment();
    let mut bytes = fs::read(&segment).expect("readable");
    // Behind the last record lies room, which is NUL.
    let middle = bytes.iter().rposition(|&byte| byte != 0).expect("records") / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, &bytes).expect("written");
    table.row(
        "log damaged in the middle",
        "one bit flipped",
        "exit 1: is damaged at byte",
        ends(&home, "is damaged at byte"),
    );
    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    let (got, ()) = tokio::join!(planner.check(sealed(&photo()), "fetch it slowly", PLAN, Options::new()), async {
        let other = Planner::new(&bus.address).await;
        other.wait_for_waiting(1).await;
        daemon.kill();
    });
    table.row("guard killed during a check: the client", "kill -9", "silence", got);
    drop(home.start().stop());
    let found = home.records().iter().filter(|record| kind(record) == "crash-found").count();
    table.row(
        "guard killed during a check: the next start",
        "kill -9",
        "1 crash found",
        format!("{found} crash found"),
    );
    table.row("the log after it", "steadfast log verify", "whole", home.verify());

    let home = Home::new(&bus.address);
    home.write("audit", "no folder");
    table.row("log folder is a file", "a file in its place", "exit 1: cannot make", ends(&home, "cannot make"));
}

/// What may be found later of what was asked.
async fn evidence(table: &mut Table, bus: &PrivateBus) {
    let planner = Planner::new(&bus.address).await;
    for redact in [false, true] {
        let home = Home::new(&bus.address);
        home.configure(&format!("[audit]\nredact = {redact}\nevidence_bytes_max = 200000"));
        let mut daemon = home.start();
        // A plan that is quoted in the veto's own words.
        let plan = "1. Lift the 900 kg xylophone.";
        let got = planner.check(sealed(&photo()), GOOD, plan, Options::new()).await;
        assert_eq!(got, "veto rule");
        let told = planner.told("Explain", &(planner.last_check(),)).await;
        for _ in 0..30 {
            planner
                .check(
                    sealed(&fs::read(repository().join("tests/data/synthetic.png")).expect("readable")),
                    "break the rules",
                    PLAN,
                    Options::new(),
                )
                .await;
        }
        assert_eq!(daemon.stop(), "exit 0");
        let said = daemon.said();
        let folder = home.at("audit");
        let found =
            Command::new("grep").args(["-r", "-l", "-a", "xylophone"]).arg(&folder).output().expect("grep runs");
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let bytes = Command::new("du").args(["-sb", "--"]).arg(folder.join("evidence")).output().expect("du runs");
        let bytes = String::from_utf8_lossy(&bytes.stdout)
            .split_whitespace()
            .next()
            .and_then(|bytes| bytes.parse::<u64>().ok());
        let quoted = [
            ("Explain", told.contains("xylophone")),
            ("the log", found.contains(".audit")),
            ("stderr", said.contains("xylophone")),
            ("evidence", bytes.is_some()),
        ];
        let quoted: Vec<&str> = quoted.iter().filter(|(_, quoted)| *quoted).map(|(place, _)| *place).collect();
        if redact {
            table.row(
                "redaction: words of the input",
                "in Explain, log, stderr, evidence",
                "nowhere",
                if quoted.is_empty() { "nowhere".to_owned() } else { quoted.join(", ") },
            );
        } else {
            table.control(
                "no redaction: words of the input",
                "in Explain, log, stderr, evidence",
                "Explain, the log, evidence",
                quoted.join(", "),
            );
            // Two folders count as 4 KiB each.
            let within = if bytes.is_some_and(|bytes| bytes < 220_000) { "within its bound" } else { "too large" };
            table.row("evidence of many vetoes", "31 vetoes, 200 kB allowed", "within its bound", within);
        }
    }
}

/// The boot clock counts through suspend: a machine that slept is one whose boot clock is ahead of what was stamped,
/// signed or written down before. One behind it cannot be, and must not be believed either.
async fn clocks(table: &mut Table, bus: &PrivateBus) {
    if !guard::time_namespaces() {
        return table.skip("suspend, boot clock behind", "no time namespace is granted");
    }
    let home = Home::new(&bus.address);
    home.configure("[permit]\nlifetime_ms = 60000\n");
    // Not all the way back: no clock may show a time before the start.
    let back = -i64::try_from(boot_clock().as_secs() / 2).expect("a time");
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).expect("a time");
    let stamped = |at: Duration| options("image_stamp_ns", nanoseconds(at));
    let planner = Planner::new(&bus.address).await;
    for (fault, injected, offset_s) in [
        ("suspended between picture and check", "a daemon whose boot clock is an hour ahead", 3600),
        ("picture of another, later boot", "a daemon whose boot clock is behind by half", back),
    ] {
        let mut daemon = home.spawn_at(offset_s);
        assert_eq!(daemon.wait_until_ready(), "ready", "{}", daemon.said());
        let got = planner.check(sealed(&photo()), GOOD, PLAN, stamped(boot_clock())).await;
        table.row(fault, injected, "veto image-stale", got);
        let there = Duration::from_secs(boot_clock().as_secs().saturating_add_signed(offset_s));
        let got = planner.check(sealed(&photo()), GOOD, PLAN, stamped(there)).await;
        table.control("a picture stamped by that clock", injected, "permit", got);
        daemon.kill();
        while !planner.property("State").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    table.row("the log over clocks that jump", "steadfast log verify", "whole", home.verify());

    let mut daemon = home.start();
    let (image, permit) = (home.at("photo.png"), home.at("permit"));
    fs::write(&image, photo()).expect("written");
    let of_this_triple = |command: &mut Command| {
        command.args(["--audience", "arm", "--instruction", GOOD, "--plan", PLAN, "--image"]).arg(&image);
    };
    let mut check = home.steadfast();
    of_this_triple(check.args(["check", "--bus", "--permit-out"]).arg(&permit));
    let checked = check.output().expect("it runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    for (what, offset_s, expected) in [
        ("a permit at its time", 0, "exit 0"),
        ("suspended between permit and plan", 3600, "exit 3, its deadline on the boot clock passed"),
        ("a permit from a later time of this boot", back, "exit 3, lives longer than"),
    ] {
        let mut verify = guard::at(offset_s, env!("CARGO_BIN_EXE_steadfast"));
        of_this_triple(
            verify.arg("--config").arg(home.at("steadfast.toml")).args(["permit", "verify", "--permit"]).arg(&permit),
        );
        let verified = verify.output().expect("it runs");
        let told = String::from_utf8_lossy(&verified.stdout).into_owned();
        let why = expected.split_once(", ").map(|(_, why)| why).filter(|why| told.contains(why));
        let got = guard::ended(verified.status) + &why.map(|why| format!(", {why}")).unwrap_or_default();
        table.put(what, "steadfast permit verify in a time namespace", expected, got, offset_s == 0);
    }
    table.row("stop after the clocks", "SIGTERM", "exit 0", daemon.stop());
}

/// A wall clock that is set while the daemon judges. Namespaces hold no wall clock, so a library moves it.
async fn stepping_clocks(table: &mut Table, bus: &PrivateBus) {
    const HOUR_S: i64 = 3600;
    const DECADE_S: i64 = 10 * 365 * 24 * HOUR_S;
    let home = Home::new(&bus.address);
    home.configure("[permit]\nlifetime_ms = 2000\n");
    let library = home.at("wall_clock.so");
    let source = repository().join("tests/support/wall_clock.c");
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    if !built.is_ok_and(|status| status.success()) {
        return table.skip("wall clock set under the running daemon", "no gcc");
    }
    let set = |offset_s: i64| {
        use std::os::unix::fs::FileExt as _;
        let file = File::options().write(true).create(true).truncate(false).open(home.at("offset")).expect("opened");
        file.write_all_at(&offset_s.to_ne_bytes(), 0).expect("written");
    };
    set(0);
    let preload = format!("LD_PRELOAD={}", library.display());
    let offset = format!("WALL_CLOCK_OFFSET={}", home.at("offset").display());
    let mut daemon = home.spawn_with(&[&preload, &offset]);
    assert_eq!(daemon.wait_until_ready(), "ready", "{}", daemon.said());
    let planner = Planner::new(&bus.address).await;
    let refusal = planner.check(sealed(&photo()), "bring the knife", "I can't: it is dangerous.", Options::new()).await;
    assert_eq!(refusal, "refusal");

    let lifetime = Duration::from_secs(2);
    for (what, offset_s) in [
        ("set an hour ahead", HOUR_S),
        ("set two hours back", -HOUR_S),
        ("set ten years ahead", DECADE_S),
        ("set ten years back", -DECADE_S),
        ("set right again", 0),
    ] {
        let (mut answers, mut ends) = (Vec::new(), Vec::new());
        for step in 0..12 {
            if step == 4 {
                set(offset_s);
            }
            let before = boot_clock();
            answers.push(planner.good().await);
            let after = boot_clock();
            let (_, end) = times_of(&planner.last_permit());
            ends.push(before + lifetime <= end && end <= after + lifetime);
        }
        answers.dedup();
        table.control(&format!("wall clock {what}"), "under the daemon, 12 checks", "permit", answers.join(" and "));
        let kept = if ends.iter().all(|kept| *kept) { "2 s on the boot clock" } else { "another time" };
        table.row(&format!("wall clock {what}: lifetimes"), "as above", "2 s on the boot clock", kept);
        let bent = planner.check(sealed(&photo()), "bring the knife", PLAN, Options::new()).await;
        table.row(&format!("wall clock {what}: a refusal"), "a plan for it", "veto flipped-refusal", bent);
    }
    set(-100 * 365 * 24 * HOUR_S);
    table.row("wall clock before 1970", "under the daemon", "veto internal", planner.good().await);
    set(0);

    assert_eq!(planner.good().await, "permit");
    let (image, permit) = (home.at("photo.png"), home.at("permit"));
    fs::write(&image, photo()).expect("written");
    let audience = planner.name();
    let verified = |offset_s: i64| {
        set(offset_s);
        let output = home
            .steadfast()
            .env("LD_PRELOAD", &library)
            .env("WALL_CLOCK_OFFSET", home.at("offset"))
            .args(["permit", "verify", "--audience", &audience, "--instruction", GOOD, "--plan", PLAN, "--permit"])
            .arg(&permit)
            .arg("--image")
            .arg(&image)
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let why = ["expired", "in the future", "deadline on the boot clock"].into_iter().find(|why| told.contains(why));
        guard::ended(output.status) + &why.map(|why| format!(", {why}")).unwrap_or_default()
    };
    fs::write(&permit, planner.last_permit()).expect("written");
    for (what, offset_s, expected) in [
        ("a permit at its time", 0, "exit 0"),
        ("clock set ahead between permit and plan", HOUR_S, "exit 3, expired"),
        ("clock set back between permit and plan", -HOUR_S, "exit 3, in the future"),
    ] {
        table.put(what, "steadfast permit verify", expected, verified(offset_s), offset_s == 0);
    }
    // Set back by as much as has gone by, the wall clock says that the permit is fresh for ever.
    let (issued, over) = times_of(&planner.last_permit());
    while boot_clock() < over {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let wall = i64::try_from(steadfast::audit::clock::wall_clock().as_secs()).expect("a time");
    let got = verified(issued - wall);
    table.row("clock set back to when it was signed", "after its deadline", "exit 3, deadline on the boot clock", got);
    set(0);
    table.row("stop after the steps", "SIGTERM", "exit 0", daemon.stop());
    table.row("the log over the steps", "steadfast log verify", "whole", home.verify());
    table.row("records over the steps", "the boot clock in the log", "in order, steps seen", order(&home));
}

/// Whether a log's records follow each other on the boot clock, and whether the wall clock in them jumped both ways.
fn order(home: &Home) -> String {
    let stamp = |record: &serde_json::Value| {
        let at = &record["record"]["at"];
        (at["boot_ns"].as_u64().expect("a time"), at["wall_ns"].as_u64().expect("a time"))
    };
    // Checks alone: a checkpoint is stamped by the writer, which may be a moment behind a check that is on its way.
    let records = home.records();
    let of_checks = records.iter().filter(|record| matches!(kind(record), "received" | "decided"));
    let stamps: Vec<(u64, u64)> = of_checks.map(stamp).collect();
    let pairs = || stamps.windows(2).map(|pair| (pair[0], pair[1]));
    let in_order = pairs().all(|(one, next)| one.0 <= next.0);
    let back = pairs().any(|(one, next)| next.1 < one.1);
    let ahead = pairs().any(|(one, next)| next.1 > one.1.saturating_add(3_000_000_000_000));
    match (in_order, back && ahead) {
        (true, true) => "in order, steps seen".to_owned(),
        (true, false) => "no step seen".to_owned(),
        (false, _) => "not in order".to_owned(),
    }
}

/// When a permit was signed, by the wall clock, and its deadline on the boot clock.
fn times_of(token: &[u8]) -> (i64, Duration) {
    use coset::cbor::value::Value as Cbor;
    use coset::{CborSerializable as _, CoseSign1, TaggedCborSerializable as _};
    const ISSUED: i64 = 6;
    const DEADLINE: i64 = -70_009;
    let payload = CoseSign1::from_tagged_slice(token).expect("a permit").payload.expect("claims");
    let claims = Cbor::from_slice(&payload).expect("claims").into_map().expect("a map");
    let number = |label: i64| {
        let (_, value) = claims.iter().find(|(name, _)| *name == Cbor::from(label)).expect("the claim");
        i64::try_from(value.as_integer().expect("a number")).expect("a time")
    };
    (number(ISSUED), Duration::from_nanos(u64::try_from(number(DEADLINE)).expect("a time")))
}

/// Keys that are rotated while the daemon judges, and what becomes of what they signed.
async fn keys(table: &mut Table, bus: &PrivateBus) {
    use steadfast::permit::Moment;
    use steadfast::permit::keys::PublicKeys;
    use steadfast::permit::verify::{Clock, Expectation, Parts, Verifier};
    let home = Home::new(&bus.address);
    home.configure("[permit]\nlifetime_ms = 60000\nkey_overlap_s = 2\n");
    let mut daemon = home.start();
    let planner = Planner::new(&bus.address).await;
    let (published, list) = (home.at("keys/public.json"), home.at("public.json"));
    let image = photo();
    let parts = Parts { instruction: GOOD.as_bytes(), image: &image, plan: PLAN.as_bytes() };
    let audience = planner.name();
    let verified = |token: &[u8], keys: &Path| {
        let clock = Clock::SameMachine(Moment::now().expect("clocks"));
        let verifier = Verifier::new(PublicKeys::read(keys).expect("a list"));
        match verifier.examine(token, parts, &Expectation::new("steadfast", &audience, clock)) {
            Ok(_) => "good".to_owned(),
            Err(rejection) => rejection.to_string(),
        }
    };
    let rotate = || guard::ended(home.steadfast().args(["permit", "rotate"]).status().expect("it runs"));
    let log_by = |list: &Path| {
        let output = home.steadfast().args(["log", "verify", "--keys"]).arg(list).output().expect("it runs");
        let unknown = String::from_utf8_lossy(&output.stdout).contains("unknown key");
        guard::ended(output.status) + if unknown { ", unknown key" } else { "" }
    };

    // A stop signs the log's end: it will have been signed with the first key, with a later one, and with the last.
    assert_eq!(planner.good().await, "permit");
    assert_eq!(daemon.stop(), "exit 0");
    daemon = home.start();
    assert_eq!(planner.good().await, "permit");
    let before = planner.last_permit();
    table.control("key rotated", "steadfast permit rotate", "exit 0", rotate());
    fs::copy(&published, &list).expect("copied");
    table.control("a permit of the key before", "within the overlap of 2 s", "good", verified(&before, &published));
    assert_eq!(planner.good().await, "permit");
    table.control("a permit of the new key", "as above", "good", verified(&planner.last_permit(), &published));
    let over = boot_clock() + Duration::from_secs(4);
    while boot_clock() < over {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let got = verified(&before, &list);
    let got = if got.contains("its overlap ended") { "its overlap ended" } else { &got };
    table.row("a permit of the key before", "after the overlap", "its overlap ended", got);
    let got = verified(&before, &published);
    let got = if got.contains("is not known") { "is not known" } else { &got };
    table.row("a permit of the key before", "the list as published by then", "is not known", got);

    let (mut answers, mut good) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let own = planner.check(sealed(&image), GOOD, PLAN, Options::new());
        let turned = planner.admin("RotateKey", &());
        let (answer, rotated) = tokio::join!(own, turned);
        answers.extend([answer, rotated]);
        good.push(verified(&planner.last_permit(), &published));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    answers.sort();
    answers.dedup();
    good.dedup();
    table.control("checks while keys rotate", "5 rotations", "done, permit", answers.join(", "));
    table.control("their permits", "as above", "good", good.join(", "));
    assert_eq!(daemon.stop(), "exit 0");
    daemon = home.start();

    let own = fs::read(home.at("keys/signing.key")).expect("readable");
    fs::write(home.at("keys/signing.key"), [9; 32]).expect("written");
    daemon.signal(Signal::HUP);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(planner.good().await, "permit");
    let got = verified(&planner.last_permit(), &published);
    table.row("signing key swapped under the guard", "SIGHUP", "good", got);
    fs::write(home.at("keys/signing.key"), own).expect("written");
    fs::create_dir(home.at("keys/.archive.json.new")).expect("made");
    table.row("rotation that cannot be written", "a folder in its way", "exit 1", rotate());
    assert_eq!(planner.good().await, "permit");
    let got = verified(&planner.last_permit(), &published);
    table.row("after it", "a good triple", "good", got);
    fs::remove_dir(home.at("keys/.archive.json.new")).expect("removed");

    let mut seen = Vec::new();
    for round in 0..6 {
        let turning = async {
            let other = Planner::new(&bus.address).await;
            while other.admin("RotateKey", &()).await == "done" {}
        };
        let killing = async {
            tokio::time::sleep(Duration::from_millis(40 + 7 * round)).await;
            daemon.kill();
        };
        tokio::join!(turning, killing);
        daemon = home.start();
        seen.push(planner.good().await);
        seen.push(verified(&planner.last_permit(), &published));
    }
    seen.sort();
    seen.dedup();
    table.control("killed while it rotates", "kill -9, six times", "good, permit", seen.join(", "));
    table.row("stop after rotations", "SIGTERM", "exit 0", daemon.stop());
    table.row("the log of many keys", "steadfast log verify", "whole", home.verify());
    let without = log_by(&published);
    table.row("the log without the retired keys", "log verify --keys public.json", "exit 1, unknown key", without);
}

async fn disks_and_journals(table: &mut Table, bus: &PrivateBus) {
    if mount_namespaces() {
        disks(table, bus).await;
        journals(table, bus).await;
    } else {
        table.skip("disk full, disk read-only, journald stalled, journald gone", "no mount namespace is granted");
    }
}

async fn disks(table: &mut Table, bus: &PrivateBus) {
    let home = Home::new(&bus.address);
    let audit = home.at("audit");
    fs::create_dir(&audit).expect("made");
    let mount = |what: &str| what.replace("AUDIT", &audit.display().to_string());
    let mut daemon = home.spawn_after(&mount("mount -t tmpfs -o size=1m t AUDIT"));
    assert_eq!(daemon.wait_until_ready(), "ready", "{}", daemon.said());
    let planner = Planner::new(&bus.address).await;
    assert_eq!(planner.good().await, "permit");
    // The folder as the daemon sees it.
    let inside =
        Path::new("/proc").join(daemon.pid().to_string()).join("root").join(audit.strip_prefix("/").expect("absolute"));
    let ballast = inside.join("ballast");
    let mut file = File::create(&ballast).expect("made");
    while file.write_all(&[1; 512]).is_ok() {}
    drop(file);
    let full = "veto audit-unavailable";
    // What the log has room for is stored before the disk's state is felt: 64 KiB are some forty answers.
    table.control("disk full: a good triple", "tmpfs filled, the log has room", "permit", planner.good().await);
    let mut got = String::new();
    for _ in 0..200 {
        got = planner.good().await;
        if got != "permit" {
            break;
        }
    }
    table.row("disk full: a good triple", "tmpfs filled to the brim, no room left", full, got);
    let again = planner.check(sealed(&photo()), "break the rules", PLAN, Options::new()).await;
    table.row("disk full: a bad triple", "as above", full, again);
    let reload = planner.admin("Reload", &()).await;
    table.row("disk full: reload", "as above", "error Failed", reload);
    let mode = planner.admin("SetMode", &("shadow",)).await;
    table.row("disk full: change of mode", "as above", "error Failed", mode);
    table.row("disk full: the state shown", "as above", "degraded", planner.property("State").await);
    fs::remove_file(&ballast).expect("removed");
    table.control("room again", "the ballast removed", "permit", planner.good().await);
    table.control("the state shown", "as above", "ready", planner.property("State").await);
    let verified = home.steadfast().args(["log", "verify", "--folder"]).arg(&inside).output().expect("runs");
    let whole =
        if verified.status.success() { "whole".to_owned() } else { String::from_utf8_lossy(&verified.stderr).into() };
    table.row("the log after a full disk", "steadfast log verify", "whole", whole);
    table.row("stop after a full disk", "SIGTERM", "exit 0", daemon.stop());

    for (fault, name) in [("log on a read-only disk", "audit"), ("ledger on a read-only disk", "ledger")] {
        let home = Home::new(&bus.address);
        fs::create_dir(home.at(name)).expect("made");
        let folder = home.at(name).display().to_string();
        let read_only = format!("mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}");
        let mut daemon = home.spawn_after(&read_only);
        table.row(fault, "its folder remounted", "exit 1", daemon.wait_until_ready());
    }
}

async fn journals(table: &mut Table, bus: &PrivateBus) {
    for stalled in [true, false] {
        let home = Home::new(&bus.address);
        let journal = home.at("journal");
        fs::create_dir(&journal).expect("made");
        // Bound and never read: a sender that waits waits for ever.
        let socket = stalled.then(|| std::os::unix::net::UnixDatagram::bind(journal.join("socket")).expect("bound"));
        let mounts = format!(
            "mount -t tmpfs t /run && mkdir -p /run/systemd/journal && mount --bind {} /run/systemd/journal",
            journal.display()
        );
        let mut daemon = home.spawn_after(&mounts);
        assert_eq!(daemon.wait_until_ready(), "ready", "{}", daemon.said());
        let planner = Planner::new(&bus.address).await;
        let mut got = std::collections::BTreeSet::new();
        for _ in 0..30 {
            got.insert(
                planner.check(sealed(&photo()), "break the rules", PLAN, options("deadline_ms", 1000_u32)).await,
            );
        }
        let got: Vec<String> = got.into_iter().collect();
        let (fault, injected) = if stalled {
            ("journald stalled", "30 vetoes, a socket nobody reads")
        } else {
            ("journald gone", "30 vetoes, no socket")
        };
        table.row(fault, injected, "veto constitution", got.join(" and "));
        table.row(&format!("stop with {fault}"), "SIGTERM", "exit 0", daemon.stop());
        table.row(&format!("the log with {fault}"), "steadfast log verify", "whole", home.verify());
        drop(socket);
    }
}

// ---- too many at once ----

async fn crowds(table: &mut Table, bus: &PrivateBus) {
    let home = Home::new(&bus.address);
    home.configure("[limits]\nqueue_checks_max = 4\nclient_checks_max = 3\n[audit]\npolicy = \"buffered\"");
    let mut daemon = home.start();
    let planner = Planner::new(&bus.address).await;
    let image = sealed(&photo());
    let slow = || planner.check(&image, "break it slowly", PLAN, options("deadline_ms", 900_u32));
    let (a, b, c, fourth) = tokio::join!(slow(), slow(), slow(), async {
        planner.wait_for_waiting(3).await;
        planner.good().await
    });
    table.row("client over its share", "a fourth check while three wait", "veto overload", fourth);
    let waited = if [a, b, c].iter().all(|got| got == "veto deadline") { "veto deadline" } else { "something else" };
    table.row("the three before it", "100 ms a margin, 900 ms", "veto deadline", waited);
    let as_nobody = |command: &str| {
        Command::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", command]).status()
    };
    let binary = env!("CARGO_BIN_EXE_steadfast");
    let runs = as_nobody(&format!("test -x '{binary}' && '{binary}' --version >/dev/null"));
    if runs.is_ok_and(|status| status.success()) {
        for folder in [home.at(""), bus.folder.path().to_owned()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("set");
        }
        let scene = home.at("scene.png");
        fs::write(&scene, photo()).expect("written");
        let command = format!(
            "'{binary}' --config '{}' check --bus --image '{}' --instruction '{GOOD}' --plan '{PLAN}' >/dev/null",
            home.at("steadfast.toml").display(),
            scene.display()
        );
        let (flood, other) = tokio::join!(
            async { tokio::join!(slow(), slow(), slow()) },
            tokio::task::spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(150));
                Command::new("setpriv")
                    .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &command])
                    .status()
                    .map(guard::ended)
            })
        );
        drop(flood);
        let got = other.expect("joined").expect("ran");
        table.control("another client during a flood", "three slow checks of uid 0, one of uid 65534", "exit 0", got);
    } else {
        table.skip("one client starving another", "no second user can run the command line");
    }
    let hurried = Planner::hurried(&bus.address).await;
    let mut paced = String::new();
    for _ in 0..400 {
        let got = hurried.check(&image, "", PLAN, Options::new()).await;
        if got != "veto input-limit" {
            paced = got;
            break;
        }
    }
    home.configure("[limits]\nimage_stamp_required = true");
    table.row("client faster than its pace", "checks without a pause", "veto overload", paced);
    table.row("stop after crowds", "SIGTERM", "exit 0", daemon.stop());
    table.row("the log after crowds", "steadfast log verify", "whole", home.verify());
    let _strict = home.start();
    table.row("image without a stamp", "image_stamp_required = true", "veto image-stale", planner.good().await);
}

// ---- signals ----

async fn signals(table: &mut Table, bus: &PrivateBus) {
    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    let planner = Planner::new(&bus.address).await;
    fs::write(home.at("scene.png"), photo()).expect("written");
    let client = |instruction: &str, deadline_ms: u32| {
        let mut command = home.steadfast();
        command.args(["check", "--bus", "--instruction", instruction, "--plan", PLAN, "--image"]);
        command.arg(home.at("scene.png")).arg(format!("--deadline-ms={deadline_ms}"));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        command
    };
    let mut killed = client("break it slowly", 700).spawn().expect("it runs");
    planner.wait_for_waiting(1).await;
    killed.kill().and_then(|()| killed.wait()).expect("killed");
    planner.wait_for_waiting(0).await;
    let open = undecided(&home);
    table.row("client killed in mid-call", "kill -9 of the command line", "0 undecided", format!("{open} undecided"));

    daemon.signal(Signal::STOP);
    let silent = client(GOOD, 300).output().expect("it runs");
    let told = String::from_utf8_lossy(&silent.stderr).contains("take this for a veto");
    let got = format!("{}{}", guard::ended(silent.status), if told { ", take it for a veto" } else { "" });
    table.row("guard stopped: the client", "SIGSTOP, 300 ms", "exit 1, take it for a veto", got);
    let status = home.steadfast().arg("status").output().expect("it runs");
    table.row("guard stopped: the command line", "SIGSTOP, steadfast status", "exit 1", guard::ended(status.status));
    daemon.signal(Signal::CONT);
    table.control("guard goes on", "SIGCONT", "permit", planner.good().await);
    let image = sealed(&photo());
    let (slept, ()) =
        tokio::join!(planner.check(&image, "fetch it slowly", PLAN, options("deadline_ms", 500_u32)), async {
            planner.wait_for_waiting(1).await;
            daemon.signal(Signal::STOP);
            tokio::time::sleep(Duration::from_millis(700)).await;
            daemon.signal(Signal::CONT);
        });
    table.row("guard sleeps past a deadline", "SIGSTOP for 700 ms, deadline 500 ms", "veto deadline", slept);

    let late = Planner::new(&bus.address).await;
    let (drained, after) =
        tokio::join!(planner.check(&image, "break it slowly", PLAN, options("deadline_ms", 8000_u32)), async {
            late.wait_for_waiting(1).await;
            daemon.signal(Signal::TERM);
            while late.property("State").await == "ready" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            late.good().await
        });
    table.row("stop during a check: its answer", "SIGTERM while it is judged", "veto constitution", drained);
    table.row("stop during a check: the next one", "as above", "veto not-ready", after);
    table.row("stop during a check: the daemon", "as above", "exit 0", daemon.wait());
    let records = home.records();
    let stopped = records.iter().rev().map(kind).find(|kind| *kind != "checkpoint").unwrap_or_default();
    table.row("stop during a check: the log's end", "as above", "stopped", stopped);
    table.row("the log after signals", "steadfast log verify", "whole", home.verify());
}

/// Checks in the log that have no second half.
fn undecided(home: &Home) -> usize {
    let records = home.records();
    let ids = |wanted: &str| {
        let of_kind = records.iter().filter(|record| kind(record) == wanted);
        of_kind
            .map(|record| record["record"]["event"]["check_id"].to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    ids("received").difference(&ids("decided")).count()
}

async fn stuck_workers(table: &mut Table, bus: &PrivateBus) {
    let home = Home::new(&bus.address);
    let mut daemon = home.spawn_with(&["WATCHDOG_USEC=400000"]);
    assert_eq!(daemon.wait_until_ready(), "ready", "{}", daemon.said());
    table.control("watchdog of a live worker", "WATCHDOG_USEC = 400 ms", "pings", pings(&daemon));
    let planner = Planner::new(&bus.address).await;
    let within = || options("deadline_ms", 300_u32);
    let got = planner.check(sealed(&photo()), "hang", PLAN, within()).await;
    table.row("worker hangs: its check", "60 s inside one call, 300 ms", "veto deadline", got);
    table.row("worker hangs: the watchdog", "as above", "silence", pings(&daemon));
    let got = planner.check(sealed(&photo()), GOOD, PLAN, within()).await;
    table.row("worker hangs: the next check", "as above", "veto deadline", got);
    let mut last = String::new();
    for _ in 0..20 {
        let image = sealed(&photo());
        let four = tokio::join!(
            planner.check(&image, GOOD, PLAN, options("deadline_ms", 50_u32)),
            planner.check(&image, GOOD, PLAN, options("deadline_ms", 50_u32)),
            planner.check(&image, GOOD, PLAN, options("deadline_ms", 50_u32)),
        );
        last = four.2;
        if last != "veto deadline" {
            break;
        }
    }
    table.row("worker hangs: the queue fills", "three at once, again and again", "veto overload", last);
    table.row("the log after a full queue", "steadfast log verify", "whole", home.verify());
    daemon.kill();

    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    let hanging = async { planner.check(sealed(&photo()), "hang", PLAN, options("deadline_ms", 25_000_u32)).await };
    let stop = async {
        let other = Planner::new(&bus.address).await;
        other.wait_for_waiting(1).await;
        daemon.signal(Signal::HUP);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let begun = boot_clock();
        (daemon.stop(), boot_clock() - begun)
    };
    let (got, (ended, took)) = tokio::join!(hanging, stop);
    table.row("worker hangs: a check at the stop", "deadline 25 s, SIGHUP, SIGTERM", "veto not-ready", got);
    let in_time = if took < Duration::from_secs(9) { "in time" } else { "too late for systemd" };
    table.row("worker hangs: the stop", "as above", "exit 0, in time", format!("{ended}, {in_time}"));
    table.row("worker hangs: records", "as above", "0 undecided", format!("{} undecided", undecided(&home)));
    table.row("the log after a hang", "steadfast log verify", "whole", home.verify());

    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    let got = planner.check(sealed(&photo()), "panic", PLAN, Options::new()).await;
    table.row("worker panics: its check", "recorded proxy", "veto internal", got);
    table.row("worker panics: the daemon", "as above", "exit 1", daemon.wait());
    table.row("worker panics: its record", "as above", "0 undecided", format!("{} undecided", undecided(&home)));
    table.row("the log after a panic", "steadfast log verify", "whole", home.verify());
}

async fn out_of_memory(table: &mut Table, bus: &PrivateBus) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let home = Home::new(&bus.address);
    // One arena: the others keep address space of their own in reserve.
    let mut daemon = home.spawn_with(&["MALLOC_ARENA_MAX=1"]);
    assert_eq!(daemon.wait_until_ready(), "ready", "{}", daemon.said());
    let planner = Planner::new(&bus.address).await;
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it lives");
    let mapped_kb =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next()?.parse().ok());
    let bytes = mapped_kb.map(|kb: u64| (kb + 4096) * 1024).expect("a size");
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).expect("a pid"));
    prlimit(pid, Resource::As, Rlimit { current: Some(bytes), maximum: None }).expect("set");
    let got = planner.inline(&vec![0; IMAGE_BYTES_MAX]).await;
    table.row("memory runs out: the client", "RLIMIT_AS, 16 MiB inline", "silence", got);
    table.row("memory runs out: the daemon", "as above", "signal 6", daemon.wait());
    table.row("memory runs out: the next start", "as above", "ready", home.spawn().wait_until_ready());
    table.row("the log after it", "steadfast log verify", "whole", home.verify());
}

/// Whether the watchdog is pinged in the second to come.
fn pings(daemon: &guard::Daemon) -> &'static str {
    let settled = boot_clock() + Duration::from_millis(450);
    while boot_clock() < settled {
        let _early = daemon.heard("WATCHDOG=1");
    }
    let end = boot_clock() + Duration::from_millis(900);
    while boot_clock() < end {
        if daemon.heard("WATCHDOG=1") {
            return "pings";
        }
    }
    "silence"
}

// ---- the bus itself ----

async fn buses(table: &mut Table) {
    let mut bus = PrivateBus::start();
    let home = Home::new(&bus.address);
    let mut daemon = home.start();
    table.row("second instance", "the same configuration", "exit 1: already open in", ends(&home, "already open in"));
    let other = Home::new(&bus.address);
    table.row("name taken", "another guard on the same bus", "exit 1: is taken", ends(&other, "is taken"));
    let planner = Planner::new(&bus.address).await;
    let replaced = bus.client().await;
    let flags = zbus::fdo::RequestNameFlags::ReplaceExisting | zbus::fdo::RequestNameFlags::DoNotQueue;
    let got = match replaced.request_name_with_flags(NAME, flags).await {
        Err(zbus::Error::NameTaken) => "stays the guard's".to_owned(),
        other => format!("{other:?}"),
    };
    table.row("impostor asks for the name", "RequestName, replace", "stays the guard's", got);
    table.control("after all these", "a good triple", "permit", planner.good().await);
    let pending = tokio::spawn({
        let planner = Planner::new(&bus.address).await;
        async move { planner.check(sealed(&photo()), "fetch it slowly", PLAN, Options::new()).await }
    });
    planner.wait_for_waiting(1).await;
    bus.kill();
    let got = pending.await.expect("joined");
    table.row("bus killed: the client", "kill -9 of dbus-daemon during a check", "silence", got);
    table.row("bus killed: the daemon", "as above", "exit 1", daemon.wait());
    table.row("the log after the bus died", "steadfast log verify", "whole", home.verify());
    table.row(
        "no bus at the start",
        "a dead socket",
        "exit 1: the bus cannot be used",
        ends(&home, "the bus cannot be used"),
    );
    let gone = home.steadfast().arg("status").output().expect("it runs");
    table.row("no bus: the command line", "steadfast status", "exit 1", guard::ended(gone.status));
}
