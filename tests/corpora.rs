//! The seeds under `fuzz/corpus`, run through the same properties as the fuzz targets, on the stable toolchain and
//! without a fuzzer: each once as it is, each broken in a hundred ways, and then a thousand inputs a target that are
//! broken out of one another, spliced, and sown with the target's dictionary. The fuzzer itself stays out of `make test`:
//! building everything once more with its counters takes minutes, and `make fuzz` does it.

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
/// Inputs made up for each target.
const MADE_UP: usize = 1_000;

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

/// The words of a target's dictionary, written as libFuzzer reads them.
fn words(target: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/dictionaries").join(target);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let quoted = |line: &str| {
        let mut word = Vec::new();
        let mut rest = line.trim().strip_prefix('"')?.strip_suffix('"')?.as_bytes().iter();
        while let Some(&byte) = rest.next() {
            match (byte, byte == b'\\' && rest.as_slice().first() == Some(&b'x')) {
                (_, true) => {
                    let digits = std::str::from_utf8(rest.as_slice().get(1..3)?).ok()?;
                    word.push(u8::from_str_radix(digits, 16).ok()?);
                    rest = rest.as_slice()[3..].iter();
                }
                (b'\\', false) => word.push(*rest.next()?),
                (byte, false) => word.push(byte),
            }
        }
        Some(word)
    };
    text.lines().filter_map(quoted).collect()
}

/// What a fuzzer without eyes makes up: every input may become the parent of others.
#[test]
fn a_thousand_inputs_made_up_from_the_seeds_keep_the_properties() {
    for (target, property) in properties::TARGETS {
        let words = words(target);
        let mut pool: Vec<Vec<u8>> = seeds(target).into_iter().map(|(_, seed)| seed).collect();
        pool.retain(|seed| seed.len() <= 4096);
        assert!(!pool.is_empty(), "{target} has small seeds");
        let mut draw = ChaCha8Rng::seed_from_u64(7);
        for number in 0..MADE_UP {
            let mut made = broken(&pool[draw.random_range(0..pool.len())], &mut draw);
            if draw.random_ratio(1, 3) {
                let other = &pool[draw.random_range(0..pool.len())];
                made.truncate(draw.random_range(0..=made.len()));
                made.extend_from_slice(&other[draw.random_range(0..=other.len())..]);
            }
            if !words.is_empty() && draw.random_ratio(1, 2) {
                let at = draw.random_range(0..=made.len());
                made.splice(at..at, words[draw.random_range(0..words.len())].iter().copied());
            }
            made.truncate(4096);
            let outcome = std::panic::catch_unwind(|| property(&made));
            assert!(outcome.is_ok(), "{target}: made up {number}: {:?}", String::from_utf8_lossy(&made));
            if draw.random_ratio(1, 10) {
                pool.push(made);
            }
        }
        println!("{target}: {MADE_UP} inputs, {} words", words.len());
    }
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
