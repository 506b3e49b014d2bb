//! Each promise in SPECIFICATION.md names tests that exist, run, and stand nowhere ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a test may fall over"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names of all tests, and whether they are ignored. A property test stands inside `proptest!`, where its
/// `#[test]` looks the same.
fn tests() -> BTreeMap<String, bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        sources(&root.join(folder), &mut files);
    }
    let mut found = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("readable");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
                continue;
            }
            let after = &lines[at + 1..(at + 6).min(lines.len())];
            let ignored = after.iter().take_while(|line| line.starts_with("#[")).any(|line| line.contains("ignore"));
            let name = after.iter().find_map(|line| line.trim_start_matches("async ").strip_prefix("fn "));
            if let Some(name) = name.and_then(|rest| rest.split(['(', '<']).next()) {
                found.insert(name.to_owned(), ignored);
            }
        }
    }
    found
}

#[test]
fn every_promise_names_a_living_test() {
    let text = include_str!("../SPECIFICATION.md");
    let tests = tests();
    let mut numbers = BTreeSet::new();
    let mut broken = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| # ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [number, _, named] = cells.as_slice() else { panic!("a row of three cells: {row}") };
        assert!(numbers.insert((*number).to_owned()), "{number} is promised twice");
        let names: Vec<&str> = named.split(',').map(|name| name.trim().trim_matches('`')).collect();
        assert!(!names.is_empty() && names.iter().all(|name| !name.is_empty()), "{number} names no test");
        for name in names {
            match tests.get(name) {
                Some(false) => {}
                Some(true) => broken.push(format!("{number}: {name} is ignored")),
                None => broken.push(format!("{number}: {name} does not exist")),
            }
        }
    }
    assert!(numbers.len() >= 30, "the table was read");
    assert!(broken.is_empty(), "promises without a living test:\n{}", broken.join("\n"));
}
