//! Each corpus, and a fixed sequence of mutations of it.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test fails by panicking, and so does what it calls"))]

use fuzz::{Driver, TARGETS, target};

fn withstands(name: &str) {
    let target = target(name).unwrap();
    let mut driver = Driver::new(target, 1).unwrap();
    for number in 0..driver.corpus_len() + target.tries {
        if let Err(failure) = driver.attempt_next() {
            let shown = String::from_utf8_lossy(&failure.input);
            panic!("input {number} of {name}: {}\n{shown:?}\n{:02x?}", failure.message, failure.input);
        }
    }
}

#[test]
fn paths_are_withstood() {
    withstands("path");
}

#[test]
fn patches_are_withstood() {
    withstands("patch");
}

#[test]
fn edits_are_withstood() {
    withstands("edit");
}

#[test]
fn json_is_withstood() {
    withstands("json");
}

#[test]
fn archives_are_withstood() {
    withstands("archive");
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut found: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    let mut names: Vec<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    names.sort();
    assert_eq!(found, names);
}
