//! What runners of tests collect: which names they take for tests, and the files that configure them.

use std::collections::BTreeMap;

use super::super::facts::ChangeFacts;
use super::super::public_api::{Language, language_of};
use crate::credential::readable;
use crate::path::confusables::with_folded;
use crate::{Effect, LogicalPath};

/// Files that only configure a runner of tests or what it measures, by their whole names. Without comments: any change counts.
const CONFIGURATIONS: &[&str] = &[
    ".behaverc",
    ".c8rc",
    ".coveragerc",
    ".jestrc",
    ".mocharc",
    ".noserc",
    ".nycrc",
    ".pytest.ini",
    ".pytest.toml",
    ".rspec",
    ".stestr.conf",
    ".taprc",
    ".tarpaulin.toml",
    ".testcaferc",
    ".testr.conf",
    "allure.properties",
    "archunit.properties",
    "behave.ini",
    "conftest.py",
    "cucumber.properties",
    "cypress.json",
    "insta.yaml",
    "intern.json",
    "jasmine.json",
    "jasmine.mjs",
    "junit-platform.properties",
    "karma.js",
    "kotest.properties",
    "mocha.opts",
    "nextest.toml",
    "nightwatch.json",
    "nose.cfg",
    "nose2.cfg",
    "phpunit.xml",
    "pytest.ini",
    "pytest.toml",
    "spockconfig.groovy",
    "tarpaulin.toml",
    "testng.xml",
    "unittest.cfg",
];

/// First words of such names, before a dot: `.mocharc.yml`, `jest.config.ts`.
const CONFIGURATION_STEMS: &[&str] = &[
    ".c8rc",
    ".coveragerc",
    ".jestrc",
    ".mocharc",
    ".nycrc",
    ".taprc",
    ".testcaferc",
    "ava.config",
    "codecept.conf",
    "cucumber",
    "cypress.config",
    "intern",
    "jasmine",
    "jest.config",
    "jest.preset",
    "jest.setup",
    "karma.conf",
    "mocha.config",
    "nightwatch.conf",
    "nyc.config",
    "playwright.config",
    "protractor.conf",
    "setupjest",
    "setuptests",
    "stryker.conf",
    "stryker.config",
    "testem",
    "vitest.config",
    "vitest.setup",
    "vitest.workspace",
    "wdio.conf",
    "web-test-runner.config",
    "wtr.config",
];

/// Extensions of files whose stem is one of [`CONFIGURATION_STEMS`].
const CONFIGURATION_EXTENSIONS: &[&str] =
    &["cjs", "cts", "js", "json", "json5", "jsonc", "jsx", "mjs", "mts", "toml", "ts", "tsx", "yaml", "yml"];

/// How a file that also configures other things says which tests run.
#[derive(Clone, Copy)]
enum RunnerPart {
    /// By sections of INI or TOML whose names begin with one of these, and lines with one of the words.
    Sections(&'static [&'static str], &'static [&'static str]),
    /// By members of the top level of a JSON object, and scripts whose names have one of the words.
    Members(&'static [&'static str]),
    /// By lines with one of these words.
    Lines(&'static [&'static str]),
}

/// Words of lines of programs and scripts that run tests.
const TASK_WORDS: &[&str] = &["test", "check", "jest", "mocha", "surefire", "nextest", "tox", "coverage"];

/// Words of lines of Maven's and Gradle's files about tests.
const JVM_WORDS: &[&str] =
    &["test", "surefire", "failsafe", "junit", "exclude", "include", "skipits", "ignorefailures", "groups"];

/// Files that also configure other things, by their names.
const SHARED: &[(&str, RunnerPart)] = &[
    ("angular.json", RunnerPart::Lines(&["test", "karma", "jest"])),
    ("build", RunnerPart::Lines(TASK_WORDS)),
    ("build.bazel", RunnerPart::Lines(TASK_WORDS)),
    ("build.gradle", RunnerPart::Lines(JVM_WORDS)),
    ("build.gradle.kts", RunnerPart::Lines(JVM_WORDS)),
    ("build.sbt", RunnerPart::Lines(&["test"])),
    ("build.xml", RunnerPart::Lines(JVM_WORDS)),
    ("bunfig.toml", RunnerPart::Sections(&["test"], &["preload"])),
    ("cargo.toml", RunnerPart::Sections(&["test", "profile.test", "package.metadata.nextest"], CARGO_WORDS)),
    ("config.toml", RunnerPart::Lines(&["runner", "test", "rustflags"])),
    ("deno.json", RunnerPart::Members(&["test", "tasks", "exclude", "bench"])),
    ("deno.jsonc", RunnerPart::Members(&["test", "tasks", "exclude", "bench"])),
    ("gnumakefile", RunnerPart::Lines(TASK_WORDS)),
    ("gradle.properties", RunnerPart::Lines(JVM_WORDS)),
    ("hatch.toml", RunnerPart::Lines(&["test", "pytest", "cov"])),
    ("justfile", RunnerPart::Lines(TASK_WORDS)),
    ("lerna.json", RunnerPart::Lines(&["test"])),
    ("magefile.go", RunnerPart::Lines(TASK_WORDS)),
    ("makefile", RunnerPart::Lines(TASK_WORDS)),
    ("maven.config", RunnerPart::Lines(JVM_WORDS)),
    ("noxfile.py", RunnerPart::Lines(PYTHON_WORDS)),
    ("nx.json", RunnerPart::Lines(&["test", "jest", "vitest"])),
    ("package.json", RunnerPart::Members(&["ava", "c8", "jasmine", "jest", "mocha", "nyc", "tap", "vitest", "wtr"])),
    ("pom.xml", RunnerPart::Lines(JVM_WORDS)),
    ("project.json", RunnerPart::Lines(&["test", "jest", "vitest"])),
    ("pyproject.toml", RunnerPart::Sections(PYTHON_SECTIONS, &[])),
    ("rakefile", RunnerPart::Lines(TASK_WORDS)),
    ("settings.gradle", RunnerPart::Lines(&["test"])),
    ("settings.gradle.kts", RunnerPart::Lines(&["test"])),
    ("setup.cfg", RunnerPart::Sections(PYTHON_SECTIONS, &[])),
    ("setup.py", RunnerPart::Lines(PYTHON_WORDS)),
    ("taskfile.yaml", RunnerPart::Lines(TASK_WORDS)),
    ("taskfile.yml", RunnerPart::Lines(TASK_WORDS)),
    ("tasks.py", RunnerPart::Lines(PYTHON_WORDS)),
    ("tox.ini", RunnerPart::Sections(PYTHON_SECTIONS, &[])),
    ("tox.toml", RunnerPart::Sections(&["env", "pytest"], &["commands", "env_list"])),
    ("turbo.json", RunnerPart::Lines(&["test"])),
    ("vite.config.cjs", RunnerPart::Lines(VITE_WORDS)),
    ("vite.config.js", RunnerPart::Lines(VITE_WORDS)),
    ("vite.config.mjs", RunnerPart::Lines(VITE_WORDS)),
    ("vite.config.mts", RunnerPart::Lines(VITE_WORDS)),
    ("vite.config.ts", RunnerPart::Lines(VITE_WORDS)),
];

const CARGO_WORDS: &[&str] = &["autotests", "harness", "doctest", "test", "required-features", "members", "exclude"];
const PYTHON_SECTIONS: &[&str] = &[
    "tool:pytest",
    "pytest",
    "tool.pytest",
    "tool.coverage",
    "coverage",
    "tool.tox",
    "tox",
    "testenv",
    "tool.nose",
    "nosetests",
    "aliases",
    "tool.hatch.envs",
    "tool.pdm.scripts",
    "tool.poe.tasks",
    "tool.poetry.scripts",
    "tool.taskipy",
    "tool.unittest",
    "unittest",
    "tool.stestr",
    "behave",
    "tool.behave",
];
const PYTHON_WORDS: &[&str] = &["test", "nose", "coverage", "session.run"];
const VITE_WORDS: &[&str] = &["test", "include", "exclude", "globals", "setupfiles"];

/// Whether a change touches what a runner of tests is told: any change of a file that only does that, or of such a part of another
/// file.
pub(super) fn changes_runner(facts: &ChangeFacts<'_>) -> bool {
    let moved = match facts.effect {
        Effect::MoveTo { from } => Some(from),
        Effect::MoveFrom { .. } | Effect::Create | Effect::Replace | Effect::Delete => None,
    };
    let is_only_content = moved.is_none() && !matches!(facts.effect, Effect::MoveFrom { .. });
    if is_only_content && facts.old_text == facts.new_text && !facts.not_compared {
        return false;
    }
    if is_configuration(facts.path) || moved.is_some_and(is_configuration) {
        return true;
    }
    let Some(part) = shared_part(facts.path) else { return false };
    let (old, new) = match facts.effect {
        Effect::Create => (None, facts.new_text),
        Effect::Delete | Effect::MoveFrom { .. } => (facts.old_text, None),
        // The old text is that of another file.
        Effect::MoveTo { from } if from.file_name() != facts.path.file_name() => (None, facts.new_text),
        Effect::Replace | Effect::MoveTo { .. } => (facts.old_text, facts.new_text),
    };
    facts.not_compared || part.of(old) != part.of(new)
}

/// Whether a file of this name only configures a runner of tests.
fn is_configuration(path: &LogicalPath) -> bool {
    with_folded(path.file_name(), |name| {
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
        CONFIGURATIONS.binary_search(&name).is_ok()
            || (CONFIGURATION_EXTENSIONS.binary_search(&extension).is_ok()
                && CONFIGURATION_STEMS.binary_search(&stem).is_ok())
            || (extension == "xml" && stem.starts_with("testng"))
            // `jest-e2e.json`, `vitest.unit.config.ts`, `karma.ci.conf.js`
            || (extension == "json" && stem.starts_with("jest-"))
            || (CONFIGURATION_EXTENSIONS.binary_search(&extension).is_ok()
                && stem.rsplit_once('.').is_some_and(|(_, last)| matches!(last, "config" | "conf"))
                && ["jest.", "vitest.", "playwright.", "karma.", "wdio.", "cypress."].iter().any(|tool| stem.starts_with(tool)))
    })
}

fn shared_part(path: &LogicalPath) -> Option<RunnerPart> {
    with_folded(path.file_name(), |name| {
        let at = SHARED.binary_search_by(|(shared, _)| (*shared).cmp(name)).ok()?;
        // Of files called so, only Cargo's run tests.
        let is_other = name == "config.toml" && !path.components().any(|folder| folder == ".cargo");
        (!is_other).then_some(SHARED[at].1)
    })
    .or_else(|| {
        let is_makefile = |name: &str| name.rsplit_once('.').is_some_and(|(_, extension)| extension == "mk");
        with_folded(path.file_name(), is_makefile).then_some(RunnerPart::Lines(TASK_WORDS))
    })
}

impl RunnerPart {
    /// Returns the lines of `text` that belong to the part, with the number of their occurrences.
    fn of(self, text: Option<&[u8]>) -> BTreeMap<String, usize> {
        let text = String::from_utf8_lossy(&readable(text.unwrap_or_default())).into_owned();
        let mut found = BTreeMap::new();
        let mut add = |line: String| *found.entry(line).or_default() += 1;
        match self {
            Self::Lines(words) => text.lines().filter(|line| has_word(line, words)).map(normalized).for_each(add),
            Self::Sections(names, words) => {
                let mut section = String::new();
                let mut is_part = false;
                for line in
                    text.lines().map(normalized).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
                {
                    if let Some(name) = line.strip_prefix('[') {
                        section = name.trim_matches(['[', ']', ' ', '"']).to_lowercase();
                        is_part = names.iter().any(|part| is_section(&section, part));
                    }
                    // A key with dots can name a section: `tool.pytest.ini_options.addopts = "…"`.
                    let is_dotted =
                        section.is_empty() && names.iter().any(|part| is_section(&line.to_lowercase(), part));
                    if is_part || is_dotted || has_word(&line, words) {
                        add(format!("{section}: {line}"));
                    }
                }
            }
            Self::Members(names) => match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(serde_json::Value::Object(members)) => {
                    for (name, value) in members {
                        if names.contains(&name.as_str()) {
                            add(format!("{name}: {value}"));
                        } else if let ("scripts", Some(scripts)) = (name.as_str(), value.as_object()) {
                            let is_run = |(name, script): &(&String, &serde_json::Value)| {
                                has_word(name, TASK_WORDS)
                                    || script.as_str().is_some_and(|text| has_word(text, TASK_WORDS))
                            };
                            scripts.iter().filter(is_run).for_each(|(name, script)| add(format!("{name}: {script}")));
                        }
                    }
                }
                // What cannot be read may say anything.
                _ => text.lines().map(normalized).filter(|line| !line.is_empty()).for_each(add),
            },
        }
        found
    }
}

fn is_section(section: &str, part: &str) -> bool {
    let rest = section.strip_prefix(part);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-'))
}

fn has_word(line: &str, words: &[&str]) -> bool {
    let lower = line.to_ascii_lowercase();
    words.iter().any(|word| lower.contains(word))
}

fn normalized(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The conventions by which runners of a language collect files, as bits. Files of no language, and those which only other files
/// can name, have none.
pub(super) fn collectors(path: &LogicalPath) -> u32 {
    let Some(language) = language_of(path) else { return 0 };
    let components: Vec<&str> = path.components().collect();
    let Some((file, folders)) = components.split_last() else { return 0 };
    let stem = file.rsplit_once('.').map_or(*file, |(stem, _)| stem);
    if folders.iter().any(|folder| is_skipped_folder(language, folder)) {
        return 0;
    }
    let is_in = |names: &[&str]| folders.iter().any(|folder| names.contains(folder));
    let bits = |found: &[bool]| found.iter().enumerate().map(|(at, found)| u32::from(*found) << at).sum();
    match language {
        // `tests/NAME.rs` and `tests/NAME/main.rs` are found; modules have to be declared.
        Language::Rust => {
            let of = |kind: &str| {
                folders.ends_with(&[kind])
                    || (*file == "main.rs" && folders.len() > 1 && folders[folders.len() - 2] == kind)
            };
            bits(&[of("tests"), of("benches")])
        }
        Language::Java => {
            let set = folders.iter().rposition(|folder| *folder == "src").and_then(|at| folders.get(at + 1));
            let is_test_set = set.is_none_or(|set| set.to_lowercase().contains("test") || *set == "it");
            let is_code = is_test_set && !is_in(&["resources"]);
            let unit = ["Test", "Tests", "TestCase"].iter().any(|end| stem.ends_with(end)) || stem.starts_with("Test");
            let integration = stem.starts_with("IT") || stem.ends_with("IT") || stem.ends_with("ITCase");
            bits(&[is_code && unit, is_code && integration])
        }
        Language::TypeScript => {
            let is_marked = |marks: &[&str]| stem.rsplit_once('.').is_some_and(|(_, mark)| marks.contains(&mark));
            bits(&[
                is_marked(&["test", "spec"]),
                is_in(&["__tests__"]),
                is_in(&["test"]),
                is_in(&["tests"]),
                is_in(&["spec"]),
                is_marked(&["cy", "e2e", "e2e-spec"]),
                stem.ends_with("-test") || stem.ends_with("_test") || stem.starts_with("test-") || stem == "test",
                stem.ends_with("-spec") || stem.ends_with("_spec") || stem.ends_with("Spec"),
            ])
        }
        Language::Python => {
            bits(&[stem.starts_with("test_"), stem.ends_with("_test"), stem.starts_with("test"), stem == "tests"])
        }
        Language::Go => {
            bits(&[stem.ends_with("_test") && !stem.starts_with(['_', '.']) && !is_for_another_system(stem)])
        }
    }
}

/// Whether runners do not look into a folder.
fn is_skipped_folder(language: Language, folder: &str) -> bool {
    let is_hidden = folder.starts_with('.') && folder.len() > 1;
    match language {
        Language::Rust | Language::Java => folder == "target" || is_hidden,
        Language::TypeScript => {
            ["node_modules", "dist", "build", "coverage", "fixtures", "__fixtures__"].contains(&folder) || is_hidden
        }
        Language::Python => {
            ["build", "dist", "node_modules", "venv", "CVS", "_darcs"].contains(&folder)
                || folder.rsplit_once('.').is_some_and(|(_, extension)| extension == "egg")
                || is_hidden
        }
        Language::Go => ["testdata", "vendor"].contains(&folder) || folder.starts_with('_') || is_hidden,
    }
}

/// Whether the name of a Go test says that it is built for one operating system or architecture alone.
fn is_for_another_system(stem: &str) -> bool {
    const SYSTEMS: &[&str] = &[
        "386",
        "aix",
        "amd64",
        "android",
        "arm",
        "arm64",
        "darwin",
        "dragonfly",
        "freebsd",
        "illumos",
        "ios",
        "js",
        "linux",
        "loong64",
        "mips",
        "mips64",
        "mips64le",
        "mipsle",
        "nacl",
        "netbsd",
        "openbsd",
        "plan9",
        "ppc64",
        "ppc64le",
        "riscv64",
        "s390x",
        "solaris",
        "wasip1",
        "wasm",
        "windows",
        "zos",
    ];
    let name = stem.strip_suffix("_test").unwrap_or(stem);
    name.rsplit_once('_').is_some_and(|(_, last)| SYSTEMS.binary_search(&last).is_ok())
}

/// Returns the folder of the package whose runner finds the test at `path`, where the runner looks into the package alone.
pub(super) fn package_of(path: &LogicalPath) -> Option<&str> {
    (language_of(path) == Some(Language::Rust)).then(|| {
        let text = path.as_str();
        ["tests/", "benches/"]
            .iter()
            .find_map(|folder| {
                let at = text.rfind(folder)?;
                (at == 0 || text[..at].ends_with('/')).then_some(&text[..at])
            })
            .unwrap_or("")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_for_binary_search_are_sorted() {
        for table in [CONFIGURATIONS, CONFIGURATION_STEMS, CONFIGURATION_EXTENSIONS] {
            assert!(table.is_sorted_by(|a, b| a < b), "{table:?}");
        }
        assert!(SHARED.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}
