//! Which commands run tests.

/// Programs that run tests.
const RUNNERS: &[&str] = &[
    "ava",
    "ctest",
    "cypress",
    "gotestsum",
    "jest",
    "karma",
    "mocha",
    "nextest",
    "nose2",
    "nox",
    "phpunit",
    "playwright",
    "pytest",
    "rspec",
    "tox",
    "unittest",
    "vitest",
];
/// Tasks that run tests.
const TASKS: &[&str] = &["check", "test", "tests", "verify"];
/// Programs whose arguments are files and texts.
const OTHERS: &[&str] = &[
    "[", "awk", "cat", "cd", "chmod", "cp", "diff", "echo", "find", "git", "grep", "head", "less", "ls", "mkdir", "mv",
    "printf", "rg", "rm", "sed", "tail", "test", "touch", "vi", "vim", "wc",
];
/// The words of a command, after its program, among which a runner or a task is looked for.
const MAX_WORDS: usize = 4;

/// Whether a command line runs tests, as far as its words tell: `cargo test`, `python -m pytest -q`, `npm run test:unit`,
/// `sh -c "make; ./run_tests.sh"`. This is not a parser.
pub fn is_test_command(line: &str) -> bool {
    let is_end = |c: char| matches!(c, ';' | '|' | '&' | '\n' | '(' | ')' | '"' | '\'' | '`');
    line.split(is_end).any(|part| {
        let is_setting = |word: &&str| word.split_once('=').is_some_and(|(name, _)| !name.starts_with('-'));
        let mut words = part.split_whitespace().skip_while(is_setting).filter(|word| !word.starts_with('-'));
        let Some(program) = words.next() else { return false };
        if OTHERS.contains(&file_name(program)) {
            return false;
        }
        let has_task = words.take(MAX_WORDS).any(|word| TASKS.contains(&task_of(word)) || runs_tests(word));
        has_task || runs_tests(program)
    })
}

fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The task before its variant: `test:unit`.
fn task_of(word: &str) -> &str {
    word.split([':', '-']).next().unwrap_or(word)
}

/// Whether a word is a runner, or a script whose name says that it tests.
fn runs_tests(word: &str) -> bool {
    let name = file_name(word);
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let is_script =
        matches!(extension, "sh" | "bash" | "bat" | "cmd" | "ps1") || (extension.is_empty() && word.contains('/'));
    RUNNERS.contains(&name)
        || RUNNERS.contains(&stem)
        || (is_script && stem.split(['-', '_', '.']).any(|part| TASKS.contains(&part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_test_are_known_by_their_words() {
        for line in [
            "cargo test --workspace",
            "cargo nextest run",
            "RUST_LOG=debug cargo test",
            "python3 -m pytest -q",
            "uv run pytest tests/test_a.py",
            "npm run test:unit",
            "npx vitest",
            "go test ./...",
            "sh -c \"sed -i s/a/b/ x; python -m unittest\"",
            "cd app && make check",
            "./run_tests.sh",
            "sh check.sh",
            "mvn -q verify",
        ] {
            assert!(is_test_command(line), "{line}");
        }
        for line in [
            "cargo build",
            "grep -r pytest .",
            "test -f a.txt",
            "cat tests/test_a.py",
            "rm -rf test",
            "python tests/helper.py",
            "git commit -m test",
            "npm install jest-mock-extended",
            "",
        ] {
            assert!(!is_test_command(line), "{line}");
        }
    }
}
