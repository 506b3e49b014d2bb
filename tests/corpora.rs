//! The seeds under `fuzz/corpus`, run through the same properties as the fuzz targets, on the stable toolchain and
//! without a fuzzer: each once as it is, and each broken in a few hundred places.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says how much it ran"
)]
#![cfg(all(feature = "bus", feature = "tools"))]

#[path = "../fuzz/src/lib.rs"]
mod properties;

use std::path::{Path, PathBuf};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Broken copies of each seed.
const BROKEN_COPIES: usize = 100;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("fuzz/corpus").join(target)];
    if target == "image" {
        folders.push(root.join("tests/reference/scene/images"));
    }
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder of seeds"));
    let mut paths: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("readable"))).collect()
}

/// A few bytes changed, put in, taken out or doubled.
fn broken(seed: &[u8], draw: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..draw.random_range(1..5) {
        let at = draw.random_range(0..=bytes.len());
        let end = (at + draw.random_range(0..32)).min(bytes.len());
        match draw.random_range(0..5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << draw.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = draw.random(),
            2 => bytes.insert(at, draw.random()),
            3 => drop(bytes.drain(at..end)),
            _ => {
                let run = bytes[at..end].to_vec();
                let place = draw.random_range(0..=bytes.len());
                bytes.splice(place..place, run);
            }
        }
    }
    bytes
}

#[test]
fn every_seed_and_its_broken_copies_keep_the_properties() {
    for (target, property) in properties::TARGETS {
        let seeds = seeds(target);
        assert!(seeds.len() >= 3, "{target} has seeds");
        for (number, (path, seed)) in (0..).zip(&seeds) {
            let held = |bytes: &[u8], what: &str| {
                let outcome = std::panic::catch_unwind(|| property(bytes));
                assert!(outcome.is_ok(), "{target}: {} {what}: {:?}", path.display(), String::from_utf8_lossy(bytes));
            };
            held(seed, "as it is");
            let mut draw = ChaCha8Rng::seed_from_u64(number);
            for copy in 0..BROKEN_COPIES {
                held(&broken(seed, &mut draw), &format!("broken copy {copy}"));
            }
        }
        println!("{target}: {} seeds, {} runs", seeds.len(), seeds.len() * (BROKEN_COPIES + 1));
    }
}

/// The seeds are worth something only where they get past the first look.
#[test]
fn each_reader_takes_some_of_its_seeds() {
    let taken = |target: &str, takes: &dyn Fn(&[u8]) -> bool| {
        let count = seeds(target).iter().filter(|(_, seed)| takes(seed)).count();
        assert!(count > 0, "no seed of {target} is taken");
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    taken("image", &|seed| steadfast::scene::decode::decode(seed).is_ok());
    taken("plan", &|seed| steadfast::plan::Plan::parse(&text(seed)).is_ok_and(|plan| plan.steps.len() > 1));
    taken("verdict", &|seed| steadfast::offline::verdict_text::strict(&text(seed)).label().is_some());
    taken("config", &|seed| {
        let fragment = steadfast::config::fragment::Fragment::parse(Path::new("seed"), &text(seed));
        fragment.is_ok_and(|fragment| steadfast::config::settings::Settings::from_fragment(fragment).is_ok())
    });
    taken("constitution", &|seed| steadfast::constitution::Constitution::parse(&text(seed)).is_ok());
    taken("calibration", &|seed| steadfast::calibration::Calibration::parse(&text(seed)).is_ok());
}
