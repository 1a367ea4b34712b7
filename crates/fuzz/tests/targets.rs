//! Runs every target on its corpus, on random bytes, and on mutations of its corpus. `README.md` describes longer runs.

#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a generator in a test fails by panicking"))]

use std::path::{Path, PathBuf};

use bolero::{Driver, ValueGenerator, check, produce};
use fuzz::{ARCHIVE, EDIT, JSON, PATCH, PATH, Target};

/// The number of random inputs of each target in the ordinary tests.
const RANDOM_INPUTS: usize = 1000;

fn corpus_folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/__fuzz__").join(target).join("corpus")
}

/// Generates mutations of a corpus.
struct Mutations {
    target: Target,
    corpus: Vec<Vec<u8>>,
}

impl Mutations {
    fn new(target: Target) -> Self {
        let entries = std::fs::read_dir(corpus_folder(target.name)).unwrap();
        let corpus: Vec<_> = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        Self { target, corpus }
    }
}

impl ValueGenerator for Mutations {
    type Output = Vec<u8>;

    /// Replaces up to eight ranges of an input with bytes, fragments of the dictionary or parts of another input.
    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Vec<u8>> {
        let mut input = self.corpus[(0..self.corpus.len()).generate(driver)?].clone();
        for _ in 0..(1..=8_u8).generate(driver)? {
            let start = (0..=input.len()).generate(driver)?;
            let longest = [0, 1, 32, 512][(0..4_usize).generate(driver)?];
            let end = (start..=input.len().min(start + longest)).generate(driver)?;
            let inserted = match (0..4_u8).generate(driver)? {
                0 => Vec::new(),
                1 => produce::<Vec<u8>>().with().len(1..9_usize).generate(driver)?,
                2 => self.target.dictionary[(0..self.target.dictionary.len()).generate(driver)?].to_vec(),
                _ => {
                    let other = &self.corpus[(0..self.corpus.len()).generate(driver)?];
                    let start = (0..=other.len()).generate(driver)?;
                    other[start..(start..=other.len()).generate(driver)?].to_vec()
                }
            };
            input.splice(start..end, inserted);
        }
        input.truncate(self.target.max_bytes);
        Some(input)
    }
}

/// Runs a target on the corpus of the test's name and on random bytes. A fuzzing engine chooses the bytes under `cargo bolero`.
macro_rules! check_corpus {
    ($target:ident) => {
        check!()
            .with_max_len($target.max_bytes)
            .with_iterations(RANDOM_INPUTS)
            .for_each(|input: &[u8]| ($target.run)(input))
    };
}

/// Runs a target on mutations of its corpus.
macro_rules! check_mutations {
    ($target:ident) => {
        check!()
            .with_generator(Mutations::new($target))
            .with_max_len(1 << 16)
            .with_iterations($target.iterations)
            .for_each(|input: &Vec<u8>| ($target.run)(input))
    };
}

#[test]
fn path() {
    check_corpus!(PATH);
}

#[test]
fn mutated_path() {
    check_mutations!(PATH);
}

#[test]
fn patch() {
    check_corpus!(PATCH);
}

#[test]
fn mutated_patch() {
    check_mutations!(PATCH);
}

#[test]
fn edit() {
    check_corpus!(EDIT);
}

#[test]
fn mutated_edit() {
    check_mutations!(EDIT);
}

#[test]
fn json() {
    check_corpus!(JSON);
}

#[test]
fn mutated_json() {
    check_mutations!(JSON);
}

#[test]
fn archive() {
    check_corpus!(ARCHIVE);
}

#[test]
fn mutated_archive() {
    check_mutations!(ARCHIVE);
}

/// bolero skips a missing corpus without an error.
#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let names = [ARCHIVE.name, EDIT.name, JSON.name, PATCH.name, PATH.name];
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/__fuzz__")).unwrap();
    let mut found: Vec<_> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, names);
    for name in names {
        assert!(std::fs::read_dir(corpus_folder(name)).unwrap().next().is_some(), "{name} has an empty corpus");
    }
}
