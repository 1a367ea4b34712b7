//! Counts tests, assertions and skipped tests.

use super::super::public_api::Language;

/// The longest attribute that is read, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 512;

/// How much a file tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strength {
    pub(super) tests: usize,
    pub(super) assertions: usize,
    pub(super) skipped: usize,
}

/// A word of code with what surrounds it.
struct Word<'a> {
    text: &'a str,
    /// Where it begins.
    at: usize,
    /// The character before it.
    before: u8,
    /// The first characters after it, without leading blanks.
    after: &'a [u8],
    /// The word before it.
    previous: &'a str,
}

impl Strength {
    /// Counts in `code`, which is `text` without comments and strings. Assertions of a Rust file that is no test file count
    /// only after its first `#[cfg(test)]`.
    pub(super) fn of(language: Language, text: &[u8], code: &[u8], is_test_file: bool) -> Self {
        let mut found = Self::default();
        let mut assertions_from = 0;
        if language == Language::Rust {
            let tests_at = found.add_attributes(code);
            assertions_from = if is_test_file { 0 } else { tests_at.unwrap_or(code.len()) };
        }
        if language == Language::Go {
            found.skipped += build_constraints(text);
        }
        for word in words(code) {
            match language {
                Language::Rust => {
                    let is_assertion = ["assert", "debug_assert", "prop_assert"].iter().any(|name| word.starts(name));
                    let counts = is_assertion && word.after.starts_with(b"!") && word.at >= assertions_from;
                    found.assertions += usize::from(counts);
                }
                Language::Java => found.add_java(&word),
                Language::TypeScript => found.add_typescript(&word),
                Language::Python => found.add_python(&word),
                Language::Go => found.add_go(&word),
            }
        }
        found
    }

    /// Adds Rust's attributes. Returns where the first `#[cfg(test)]` is.
    fn add_attributes(&mut self, code: &[u8]) -> Option<usize> {
        let mut tests_at = None;
        for (at, _) in code.windows(2).enumerate().filter(|(_, pair)| matches!(**pair, [b'#', b'[' | b'!'])) {
            let rest = &code[at..code.len().min(at + MAX_ATTRIBUTE_BYTES)];
            let rest = rest.strip_prefix(b"#!").or_else(|| rest.strip_prefix(b"#")).unwrap_or(rest);
            let Some(inner) = rest.strip_prefix(b"[") else { continue };
            let end = inner.iter().position(|byte| *byte == b']').unwrap_or(inner.len());
            let attribute: String =
                inner[..end].iter().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| char::from(*byte)).collect();
            let path = attribute.split(['(', '=']).next().unwrap_or_default();
            match path.rsplit("::").next().unwrap_or_default() {
                "test" | "rstest" | "test_case" | "case" | "quickcheck" | "bench" => self.tests += 1,
                "ignore" => self.skipped += 1,
                "should_panic" => self.assertions += 1,
                "cfg" if attribute == "cfg(test)" => tests_at = tests_at.or(Some(at)),
                "cfg" if matches!(attribute.as_str(), "cfg(any())" | "cfg(false)") => self.skipped += 1,
                "cfg_attr" if attribute.contains(",ignore") => self.skipped += 1,
                _ => {}
            }
        }
        tests_at
    }

    fn add_java(&mut self, word: &Word<'_>) {
        let is_annotation = word.before == b'@';
        let is_call = word.after.starts_with(b"(");
        match word.text {
            "Test" | "ParameterizedTest" | "RepeatedTest" | "TestFactory" | "TestTemplate" if is_annotation => {
                self.tests += 1;
            }
            "Ignore" if is_annotation => self.skipped += 1,
            _ if is_annotation && (word.starts("Disabled") || word.starts("Enabled")) => self.skipped += 1,
            "enabled" if is_false(word.after) => self.skipped += 1,
            "assert" | "verify" | "fail" | "expectThrows" => self.assertions += 1,
            _ if word.starts("assert") && is_call => self.assertions += 1,
            _ if word.starts("assume") && is_call => self.skipped += 1,
            _ if word.starts("test") && word.previous == "void" => self.tests += 1,
            _ => {}
        }
    }

    fn add_typescript(&mut self, word: &Word<'_>) {
        let is_member = word.before == b'.';
        let is_called = word.after.starts_with(b"(") || word.after.starts_with(b".") || word.after.starts_with(b"`");
        match word.text {
            "it" | "test" | "specify" if !is_member && is_called => self.tests += 1,
            // `fit`, `fdescribe` and `only` skip every other test.
            "xit" | "xtest" | "xdescribe" | "xspecify" | "xcontext" | "fit" | "fdescribe" if is_called => {
                self.skipped += 1;
            }
            "skip" | "todo" | "only" | "failing" | "skipIf" | "runIf" | "fixme" if is_member => self.skipped += 1,
            "expect" | "assert" if !is_member && is_called => self.assertions += 1,
            "should" if is_member => self.assertions += 1,
            _ if word.starts("assert") && is_called && word.text != "assert" => self.assertions += 1,
            _ => {}
        }
    }

    fn add_python(&mut self, word: &Word<'_>) {
        match word.text {
            "skip" | "skipif" | "skipIf" | "skipUnless" | "skipTest" | "xfail" | "expectedFailure" | "importorskip"
            | "__test__" | "SkipTest" => self.skipped += 1,
            "assert" | "raises" | "assertRaises" | "warns" => self.assertions += 1,
            _ if word.previous == "def" && word.starts("test") => self.tests += 1,
            _ if word.previous != "def" && word.starts("assert") && word.after.starts_with(b"(") => {
                self.assertions += 1;
            }
            _ => {}
        }
    }

    fn add_go(&mut self, word: &Word<'_>) {
        let is_member = word.before == b'.';
        match word.text {
            "Skip" | "Skipf" | "SkipNow" if is_member => self.skipped += 1,
            "Error" | "Errorf" | "Fatal" | "Fatalf" | "Fail" | "FailNow" if is_member => self.assertions += 1,
            "assert" | "require" if !is_member && word.after.starts_with(b".") => self.assertions += 1,
            _ if word.previous == "func" => {
                let names = ["Test", "Benchmark", "Fuzz", "Example"];
                self.tests += usize::from(names.iter().any(|name| word.starts(name)));
            }
            _ => {}
        }
    }
}

impl Word<'_> {
    fn starts(&self, prefix: &str) -> bool {
        self.text.starts_with(prefix)
    }
}

/// Whether `= false` follows.
fn is_false(after: &[u8]) -> bool {
    after.strip_prefix(b"=").is_some_and(|value| value.trim_ascii_start().starts_with(b"false"))
}

/// The number of lines that keep a Go file from being built.
fn build_constraints(text: &[u8]) -> usize {
    let is_constraint = |line: &&[u8]| line.starts_with(b"//go:build") || line.starts_with(b"// +build");
    text.split(|byte| *byte == b'\n').filter(is_constraint).count()
}

fn words(code: &[u8]) -> impl Iterator<Item = Word<'_>> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$';
    let mut at = 0;
    let mut previous = "";
    std::iter::from_fn(move || {
        let start = at + code.get(at..)?.iter().position(|byte| is_word(*byte))?;
        let end = code[start..].iter().position(|byte| !is_word(*byte)).map_or(code.len(), |length| start + length);
        at = end;
        // Words are ASCII.
        let text = std::str::from_utf8(&code[start..end]).unwrap_or_default();
        let before = start.checked_sub(1).map_or(b' ', |index| code[index]);
        let blanks = code[end..].iter().take(64).take_while(|byte| byte.is_ascii_whitespace()).count();
        let word = Word { text, at: start, before, after: &code[end + blanks..], previous };
        previous = text;
        Some(word)
    })
}
