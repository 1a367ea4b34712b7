//! Detects deleted and weakened tests, by language. Counts words outside of comments and strings; this is not a parser.

mod count;
mod mask;
mod runners;

use super::facts::ChangeFacts;
use super::public_api::{Language, language_of};
use crate::credential::readable;
use crate::path::confusables::with_folded;
use crate::{Effect, LogicalPath};
use count::Strength;

/// Whether a change deletes or empties a test file, or moves it to a name that is not one of a test or that no runner which
/// collected it still collects. A Rust file with tests in it counts as a test file if it is deleted.
pub(crate) fn deletes_test(facts: &ChangeFacts<'_>) -> bool {
    match facts.effect {
        Effect::Delete => {
            let has_tests = || facts.not_compared || strength(facts.path, facts.old_text).tests > 0;
            is_test_file(facts.path) || (language_of(facts.path) == Some(Language::Rust) && has_tests())
        }
        Effect::MoveFrom { to } => {
            let collectors = runners::collectors(facts.path);
            let is_collected =
                collectors & runners::collectors(to) != 0 && runners::package_of(facts.path) == runners::package_of(to);
            (is_test_file(facts.path) && !is_test_file(to)) || (collectors != 0 && !is_collected)
        }
        Effect::Create | Effect::Replace | Effect::MoveTo { .. } => {
            let is_empty = |text: Option<&[u8]>| text.is_some_and(|text| text.trim_ascii().is_empty());
            let had_text = facts.old_text.is_some_and(|text| !text.trim_ascii().is_empty());
            is_test_file(facts.path) && had_text && is_empty(facts.new_text)
        }
    }
}

/// Whether a change leaves fewer tests or assertions in a file than before, skips or leaves more tests early, or changes what a
/// runner of tests is told. In Rust, tests among other code count too; in the other languages, only test files.
pub(crate) fn weakens_test(facts: &ChangeFacts<'_>) -> bool {
    if runners::changes_runner(facts) {
        return true;
    }
    let old_path = match facts.effect {
        Effect::Replace => facts.path,
        Effect::MoveTo { from } => from,
        // A deletion is another trigger, and a new file had no tests.
        Effect::Create | Effect::Delete | Effect::MoveFrom { .. } => return false,
    };
    let may_have_tests = is_test_file(old_path) || language_of(old_path) == Some(Language::Rust);
    if !may_have_tests || (facts.old_text == facts.new_text && old_path == facts.path) {
        return false;
    }
    if facts.not_compared {
        return true;
    }
    let (old, new) = (strength(old_path, facts.old_text), strength(facts.path, facts.new_text));
    new.tests < old.tests || new.assertions < old.assertions || new.skipped > old.skipped
}

/// Whether a change creates a test file.
pub(super) fn is_new_test(facts: &ChangeFacts<'_>) -> bool {
    *facts.effect == Effect::Create && facts.old_text.is_none() && is_test_file(facts.path)
}

fn strength(path: &LogicalPath, text: Option<&[u8]>) -> Strength {
    let (Some(language), Some(text)) = (language_of(path), text) else { return Strength::default() };
    let is_test_file = is_test_file(path);
    if !is_test_file && language != Language::Rust {
        return Strength::default();
    }
    let text = readable(text);
    Strength::of(language, &text, &mask::code_of(language, &text), is_test_file)
}

/// Whether a file of this name has tests, by the conventions of its language.
fn is_test_file(path: &LogicalPath) -> bool {
    let Some(language) = language_of(path) else { return false };
    let folders = path.as_str().rsplit_once('/').map_or("", |(folders, _)| folders);
    let is_in = |names: &[&str]| folders.split('/').any(|folder| with_folded(folder, |name| names.contains(&name)));
    let file = path.file_name();
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    with_folded(stem, |folded| match language {
        Language::Rust => {
            let is_named = matches!(folded, "test" | "tests") || folded.starts_with("test_");
            is_in(&["tests"]) || is_named || folded.ends_with("_test") || folded.ends_with("_tests")
        }
        Language::Java => {
            let is_named = ["Test", "Tests", "TestCase", "IT"].iter().any(|end| stem.ends_with(end));
            is_in(&["test", "tests"]) || is_named || stem.starts_with("Test")
        }
        Language::TypeScript => {
            let is_named = matches!(folded.rsplit_once('.'), Some((_, "test" | "spec")));
            is_in(&["test", "tests", "__tests__", "spec"]) || is_named
        }
        Language::Python => {
            is_in(&["test", "tests"]) || folded.starts_with("test_") || folded.ends_with("_test") || folded == "tests"
        }
        Language::Go => folded.ends_with("_test"),
    })
}

#[cfg(test)]
mod tests;
