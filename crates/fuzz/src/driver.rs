//! Inputs for a target: its corpus, then mutations of it.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use anyhow::Context as _;

use crate::mutate::{Random, mutate};
use crate::target::Target;

/// The inputs in `corpus/TARGET`, in order of name.
///
/// # Errors
///
/// Where the folder cannot be read, or is empty.
pub fn corpus(target: &Target) -> anyhow::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut places = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    places.sort();
    anyhow::ensure!(!places.is_empty(), "{} holds no input", folder.display());
    places.iter().map(|place| std::fs::read(place).with_context(|| place.display().to_string())).collect()
}

/// An input that a target did not withstand.
#[derive(Debug)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// What the target said.
    pub message: String,
}

/// Drives one target.
#[derive(Debug)]
pub struct Driver<'a> {
    target: &'a Target,
    corpus: Vec<Vec<u8>>,
    random: Random,
    done: usize,
}

impl<'a> Driver<'a> {
    /// A driver of `target` with the inputs that `seed` stands for.
    ///
    /// # Errors
    ///
    /// Where there is no corpus.
    pub fn new(target: &'a Target, seed: u64) -> anyhow::Result<Self> {
        Ok(Self { target, corpus: corpus(target)?, random: Random::new(seed), done: 0 })
    }

    /// How many inputs the corpus has.
    pub fn corpus_len(&self) -> usize {
        self.corpus.len()
    }

    /// Tries the next input: first each of the corpus as it is, then mutations without end.
    ///
    /// # Errors
    ///
    /// The input, where the target did not withstand it.
    pub fn attempt_next(&mut self) -> Result<(), Failure> {
        let input = if let Some(input) = self.corpus.get(self.done) {
            input.clone()
        } else {
            let (corpus, random) = (&self.corpus, &mut self.random);
            let one = random.pick(corpus).map_or(&[][..], Vec::as_slice);
            let other = random.pick(corpus).map_or(&[][..], Vec::as_slice);
            mutate(random, one, other, self.target.words, self.target.max_bytes)
        };
        self.done += 1;
        attempt(self.target, input)
    }
}

/// Gives `input` to `target`.
///
/// # Errors
///
/// The input, where the target did not withstand it.
pub fn attempt(target: &Target, input: Vec<u8>) -> Result<(), Failure> {
    match panic::catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) {
        Ok(()) => Ok(()),
        Err(panic) => Err(Failure { message: text_of(&*panic).to_owned(), input }),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without words")
}
