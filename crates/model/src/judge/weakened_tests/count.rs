//! Counts tests, assertions and skipped tests.

use std::collections::HashSet;

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
    /// The last character before it that is no blank.
    before_blanks: u8,
    /// The first characters after it, without leading blanks.
    after: &'a [u8],
    /// Whether its line ends after it.
    ends_line: bool,
    /// The word before it.
    previous: &'a str,
}

impl Strength {
    /// Counts in `code`, which is `text` without comments and strings. Assertions of a Rust file that is no test file count
    /// only after its first `#[cfg(test)]` or test.
    pub(super) fn of(language: Language, text: &[u8], code: &[u8], is_test_file: bool) -> Self {
        let mut found = Self::default();
        let mut assertions_from = 0;
        if language == Language::Rust {
            let tests_at = found.add_attributes(code, is_test_file);
            assertions_from = if is_test_file { 0 } else { tests_at.unwrap_or(code.len()) };
        }
        if language == Language::Go {
            found.skipped += build_constraints(text);
        }
        let mut classes = PythonNames::default();
        for word in words(code).filter(|word| word.at >= assertions_from) {
            found.skipped += usize::from(word.leaves_early());
            match language {
                Language::Rust => {
                    let is_assertion = ["assert", "debug_assert", "prop_assert"].iter().any(|name| word.starts(name));
                    found.assertions += usize::from(is_assertion && word.after.starts_with(b"!"));
                    // The declaration of a module with tests, which are not compiled without it.
                    found.tests += usize::from(word.previous == "mod" && word.after.starts_with(b";"));
                }
                Language::Java => found.add_java(&word),
                Language::TypeScript => found.add_typescript(&word),
                Language::Python => {
                    found.add_python(&word);
                    // A second test of the same name replaces the first.
                    found.skipped += usize::from(classes.is_repeated(&word));
                }
                Language::Go => found.add_go(&word),
            }
        }
        found
    }

    /// Adds Rust's attributes. Returns where the first `#[cfg(test)]` or test is.
    fn add_attributes(&mut self, code: &[u8], is_test_file: bool) -> Option<usize> {
        let mut tests_at = None;
        let mut conditions_of_file = 0;
        for (at, _) in code.windows(2).enumerate().filter(|(_, pair)| matches!(**pair, [b'#', b'[' | b'!'])) {
            let rest = &code[at..code.len().min(at + MAX_ATTRIBUTE_BYTES)];
            let is_inner = rest.starts_with(b"#!");
            let rest = rest.strip_prefix(b"#!").or_else(|| rest.strip_prefix(b"#")).unwrap_or(rest);
            let Some(inner) = rest.strip_prefix(b"[") else { continue };
            let end = inner.iter().position(|byte| *byte == b']').unwrap_or(inner.len());
            let attribute: String =
                inner[..end].iter().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| char::from(*byte)).collect();
            let path = attribute.split(['(', '=']).next().unwrap_or_default();
            match path.rsplit("::").next().unwrap_or_default() {
                "test" | "rstest" | "test_case" | "case" | "quickcheck" | "bench" => {
                    self.tests += 1;
                    tests_at = tests_at.or(Some(at));
                }
                "ignore" => self.skipped += 1,
                "should_panic" => self.assertions += 1,
                "cfg" if attribute == "cfg(test)" => tests_at = tests_at.or(Some(at)),
                "cfg" if attribute.contains("(test,") || attribute.contains(",test") => {
                    tests_at = tests_at.or(Some(at));
                    self.skipped += 1;
                }
                "cfg" if is_inner => conditions_of_file += 1,
                "cfg" if is_test_file || tests_at.is_some() => self.skipped += 1,
                "cfg_attr" if attribute.contains(",ignore") || attribute.contains(",cfg(") => self.skipped += 1,
                _ => {}
            }
        }
        if is_test_file || tests_at.is_some() {
            self.skipped += conditions_of_file;
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
            "Nested" if is_annotation => self.tests += 1,
            // Runners can leave out tests by tag.
            "Ignore" | "IgnoreIf" | "IgnoreRest" | "PendingFeature" | "Requires" | "IfProfileValue" | "Tag"
            | "Tags" | "Category"
                if is_annotation =>
            {
                self.skipped += 1;
            }
            _ if is_annotation && (word.starts("Disabled") || word.starts("Enabled")) => self.skipped += 1,
            "enabled" if is_false(word.after) => self.skipped += 1,
            "groups" if word.is_assigned() => self.skipped += 1,
            "expected" if word.is_assigned() => self.assertions += 1,
            "abstract" if word.after.starts_with(b"class") => self.skipped += 1,
            "TestAbortedException" | "SkipException" | "AssumptionViolatedException" => self.skipped += 1,
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
            "it" | "test" | "specify" if is_called && (!is_member || is_runner(word.previous)) => self.tests += 1,
            // `fit`, `fdescribe` and `only` skip every other test.
            "xit" | "xtest" | "xdescribe" | "xspecify" | "xcontext" | "fit" | "fdescribe" if is_called => {
                self.skipped += 1;
            }
            "skip" | "todo" | "only" | "failing" | "fails" | "skipIf" | "todoIf" | "runIf" | "if" | "fixme"
                if is_member =>
            {
                self.skipped += 1;
            }
            // Options of a test: `{ skip: true }`.
            "skip" | "todo" | "only" | "ignore" if word.after.starts_with(b":") => self.skipped += 1,
            "pending" if !is_member && word.after.starts_with(b"(") => self.skipped += 1,
            "expect" | "assert" if !is_member && is_called => self.assertions += 1,
            "should" if is_member => self.assertions += 1,
            _ if is_member && word.previous == "t" && is_called => self.assertions += 1,
            _ if word.starts("assert") && is_called && word.text != "assert" => self.assertions += 1,
            _ => {}
        }
    }

    fn add_python(&mut self, word: &Word<'_>) {
        match word.text {
            "skip"
            | "skipif"
            | "skipIf"
            | "skipUnless"
            | "skipTest"
            | "xfail"
            | "expectedFailure"
            | "importorskip"
            | "__test__"
            | "SkipTest"
            | "Skipped"
            | "pytestmark"
            | "collect_ignore"
            | "collect_ignore_glob"
            | "load_tests"
            | "deselected" => self.skipped += 1,
            _ if word.previous == "def" && (word.starts("pytest_") || word.text == "__init__") => self.skipped += 1,
            // Runners can leave out tests by mark.
            "mark" if word.before == b'.' && !is_plain_mark(word.after) => self.skipped += 1,
            "TestCase" => self.tests += 1,
            _ if word.previous == "class" && word.starts("Test") => self.tests += 1,
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
        let is_of = |names: &[&str]| {
            let rest = names.iter().find_map(|name| word.text.strip_prefix(name));
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_lowercase()))
        };
        match word.text {
            "Skip" | "Skipf" | "SkipNow" if is_member => self.skipped += 1,
            "Short" if word.previous == "testing" => self.skipped += 1,
            "Error" | "Errorf" | "Fatal" | "Fatalf" | "Fail" | "FailNow" if is_member => self.assertions += 1,
            "assert" | "require" if !is_member && word.after.starts_with(b".") => self.assertions += 1,
            // It decides whether any test of the package runs.
            "TestMain" if word.previous == "func" => self.skipped += 1,
            "Run" if is_member && word.previous == "suite" => self.tests += 1,
            _ if word.previous == "func" => self.tests += usize::from(is_of(&["Test", "Benchmark", "Fuzz", "Example"])),
            // A method of a suite.
            _ if word.before_blanks == b')' && word.before != b')' && word.after.starts_with(b"(") => {
                self.tests += usize::from(is_of(&["Test"]));
            }
            _ => {}
        }
    }
}

impl Word<'_> {
    fn starts(&self, prefix: &str) -> bool {
        self.text.starts_with(prefix)
    }

    /// Whether a value is assigned to it, and not compared with it.
    fn is_assigned(&self) -> bool {
        self.after.starts_with(b"=") && !self.after.starts_with(b"==")
    }

    /// Whether code after it may not run: it returns nothing, ends the program, or begins what is never true.
    fn leaves_early(&self) -> bool {
        match self.text {
            "return" => {
                let nothing = [&b";"[..], b"}", b"Ok(())", b"None", b"null", b"undefined"];
                self.ends_line || nothing.iter().any(|value| self.after.starts_with(value))
            }
            "exit" | "_exit" | "Exit" | "Goexit" => self.after.starts_with(b"("),
            "if" | "while" if self.before != b'.' => {
                let condition = self.after.strip_prefix(b"(").unwrap_or(self.after).trim_ascii_start();
                let never = [&b"false"[..], b"False", b"0)", b"0:", b"0 "];
                never.iter().any(|value| condition.starts_with(value))
            }
            _ => false,
        }
    }
}

/// The names of the tests of a Python file, by class.
#[derive(Default)]
struct PythonNames<'a> {
    class: &'a str,
    seen: HashSet<(&'a str, &'a str)>,
}

impl<'a> PythonNames<'a> {
    /// Whether the word names a test that its class has already.
    fn is_repeated(&mut self, word: &Word<'a>) -> bool {
        if word.previous == "class" {
            self.class = word.text;
        }
        word.previous == "def" && word.starts("test") && !self.seen.insert((self.class, word.text))
    }
}

/// Whether members called `test` of an object of this name are tests.
fn is_runner(name: &str) -> bool {
    matches!(name, "Deno" | "QUnit" | "t" | "tap" | "node")
}

/// Whether a mark of pytest does not select tests.
fn is_plain_mark(after: &[u8]) -> bool {
    let plain = [
        &b".parametrize"[..],
        b".usefixtures",
        b".filterwarnings",
        b".asyncio",
        b".anyio",
        b".trio",
        b".django_db",
        b".timeout",
        // Counted by their own names.
        b".skip",
        b".xfail",
    ];
    plain.iter().any(|mark| after.starts_with(mark))
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
        let ends_line = end + blanks == code.len() || code[end..end + blanks].contains(&b'\n');
        let earlier = code[start.saturating_sub(64)..start].iter().rev();
        let before_blanks = earlier.copied().find(|byte| !byte.is_ascii_whitespace()).unwrap_or(b' ');
        let word = Word { text, at: start, before, before_blanks, after: &code[end + blanks..], ends_line, previous };
        previous = text;
        Some(word)
    })
}
