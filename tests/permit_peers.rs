//! Permits checked by other people's code: PyPI `cwt` and `pycose`, and C++ with libsodium.
//!
//! Python comes from `STEADFAST_TEST_PYTHON` or `build/venv-test`; where it, g++ or libsodium is missing, the test says
//! so and passes.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use steadfast::decision::{self, Reason, Release};
use steadfast::permit::keys::{Keys, OVERLAP_DEFAULT, system_random};
use steadfast::permit::{self, Grant, Moment, Nonce};
use steadfast::triple::{Digest, Digests};

const PARTS: [(&str, &[u8]); 3] =
    [("instruction", b"bring the mug"), ("image", &[0xff, 0xd8, 0x00, 0x01]), ("plan", b"1. pick up the mug")];

fn python() -> Option<PathBuf> {
    let named = std::env::var_os("STEADFAST_TEST_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| root().join("build/venv-test/bin/python"));
    let has_libraries = |python: &PathBuf| {
        let import = Command::new(python).args(["-c", "import cwt, pycose"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    Some(python).filter(has_libraries)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A person's release of the three parts. A peer sees no difference to a leave but the three further claims.
fn release() -> Release {
    let [(_, instruction), (_, image), (_, plan)] = PARTS;
    let digests = Digests::of(instruction, image, plan);
    decision::release(digests, Reason::Constitution, "uid 1000".to_owned(), "seen on site".to_owned()).expect("judged")
}

/// Writes keys, parts and permits of this very moment: a good one, one that has been over for five seconds, one signed
/// before this boot, one for another executor, and one whose signature was touched.
fn write_world(directory: &Path) -> String {
    let now = Moment::now().expect("clocks");
    let keys = Keys::open_or_create(&directory.join("keys"), OVERLAP_DEFAULT, now.unix_s, system_random).expect("keys");
    let old = keys.signing();
    let sign = |name: &str, grant: Grant| {
        let token = permit::sign(&release(), &grant, &old).expect("signs");
        std::fs::write(directory.join(name), token).expect("written");
    };
    let grant = || Grant {
        issuer: "steadfast-test".to_owned(),
        audience: "arm-1".to_owned(),
        check_id: "check-1".to_owned(),
        constitution: Digest::of(b"constitution"),
        proxy: Digest::of(b"proxy"),
        calibration: Digest::of(b"calibration"),
        now,
        lifetime: Duration::from_secs(600),
        nonce: Nonce::random().expect("randomness"),
    };
    sign("good", grant());
    let over = Moment { unix_s: now.unix_s - 15, boottime_ns: now.boottime_ns, ..now };
    sign("expired", Grant { now: over, lifetime: Duration::from_secs(10), ..grant() });
    let long_ago = Moment { boottime_ns: 0, ..now };
    sign("deadline", Grant { now: long_ago, lifetime: Duration::from_secs(2), ..grant() });
    sign("boot", Grant { now: Moment { boot_id: permit::BootId([1; 16]), ..now }, ..grant() });
    sign("audience", Grant { audience: "arm-2".to_owned(), ..grant() });
    let mut touched = std::fs::read(directory.join("good")).expect("readable");
    *touched.last_mut().expect("not empty") ^= 1;
    std::fs::write(directory.join("signature"), touched).expect("written");
    for (name, bytes) in PARTS {
        std::fs::write(directory.join(name), bytes).expect("written");
    }
    std::fs::write(directory.join("other"), b"1. throw the mug").expect("written");
    let public = hex::encode(old.public().as_bytes());
    // The key is rotated before anybody verifies: what it signed stays good for the overlap.
    keys.rotate(|| now.unix_s, system_random).expect("rotated");
    let later = Grant { now: Moment { unix_s: now.unix_s + 1, ..now }, ..grant() };
    std::fs::write(directory.join("retired"), permit::sign(&release(), &later, &old).expect("signs")).expect("written");
    public
}

/// Runs a verifier over the world; it must take the good permit for the good parts and nothing else.
fn assert_takes_only_the_good_one(verify: impl Fn(&str, [&str; 3]) -> std::process::Output) {
    let parts = ["instruction", "image", "plan"];
    let accepted = verify("good", parts);
    assert!(accepted.status.success(), "{accepted:?}");
    assert!(accepted.stdout.starts_with(b"permit, nonce "), "{accepted:?}");
    for token in ["expired", "deadline", "boot", "audience", "signature"] {
        let refused = verify(token, parts);
        assert_eq!(refused.status.code(), Some(1), "{token}: {refused:?}");
        assert!(refused.stdout.starts_with(b"refused: "), "{token}: {refused:?}");
    }
    for place in 0..3 {
        let mut swapped = parts;
        swapped[place] = "other";
        assert_eq!(verify("good", swapped).status.code(), Some(1), "{swapped:?}");
    }
}

#[test]
fn python_libraries_check_the_vectors() {
    let Some(python) = python() else {
        return println!("skipped: no Python with cwt and pycose (STEADFAST_TEST_PYTHON or build/venv-test)");
    };
    let script = root().join("tests/reference/permit/check_vectors.py");
    let output = Command::new(python).arg(script).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_python_verifier_takes_a_fresh_permit_and_nothing_else() {
    let Some(python) = python() else {
        return println!("skipped: no Python with cwt and pycose (STEADFAST_TEST_PYTHON or build/venv-test)");
    };
    let world = tempfile::tempdir().expect("a directory");
    write_world(world.path());
    let verify = |token: &str, [instruction, image, plan]: [&str; 3]| {
        Command::new(&python)
            .arg(root().join("examples/verify_permit.py"))
            .args(["--keys", "keys/public.json", "--token", token, "--issuer", "steadfast-test", "--audience", "arm-1"])
            .args(["--instruction", instruction, "--image", image, "--plan", plan])
            .current_dir(world.path())
            .output()
            .expect("runs")
    };
    assert_takes_only_the_good_one(verify);
    let parts = ["instruction", "image", "plan"];
    let refused = |token| String::from_utf8_lossy(&verify(token, parts).stdout).into_owned();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(refused("retired"), "refused: signed after its key was retired\n");
    let path = world.path().join("keys/public.json");
    let text = std::fs::read_to_string(&path).expect("readable");
    let mut set: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let ended = set["keys"][1]["retired_unix_s"].clone();
    set["keys"][1]["permits_until_unix_s"] = ended;
    std::fs::write(&path, set.to_string()).expect("written");
    assert_eq!(refused("good"), "refused: the overlap of its retired key has ended\n");
}

#[test]
fn the_cpp_verifier_takes_a_fresh_permit_and_nothing_else() {
    let world = tempfile::tempdir().expect("a directory");
    let binary = world.path().join("verify_permit");
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"])
        .arg(root().join("examples/verify_permit.cpp"))
        .args(["-lsodium", "-o"])
        .arg(&binary)
        .output();
    let Ok(compiled) = compiled else { return println!("skipped: no g++") };
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    if complaint.contains("sodium.h: No such file") || complaint.contains("cannot find -lsodium") {
        return println!("skipped: no libsodium headers (Debian: libsodium-dev)");
    }
    assert!(compiled.status.success(), "{complaint}");
    let public = write_world(world.path());
    assert_takes_only_the_good_one(|token, parts| {
        Command::new(&binary)
            .args([token, &public, "steadfast-test", "arm-1"])
            .args(parts)
            .current_dir(world.path())
            .output()
            .expect("runs")
    });
    let garbage = world.path().join("garbage");
    let good = std::fs::read(world.path().join("good")).expect("readable");
    for bit in (0..good.len() * 8).step_by(7) {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&garbage, flipped).expect("written");
        let output = Command::new(&binary)
            .args(["garbage", &public, "steadfast-test", "arm-1", "instruction", "image", "plan"])
            .current_dir(world.path())
            .output()
            .expect("runs");
        assert_eq!(output.status.code(), Some(1), "bit {bit}: {output:?}");
    }
}
