//! Which commands the callers of a run may have run.

use serde::{Deserialize, Serialize};

use crate::{Code, Refusal, Result, Verdict};

/// The most patterns of one list.
const MAX_PATTERNS: usize = 200;
/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 500;
/// The longest time that a policy may allow a command, in seconds: a day.
const MAX_SECONDS: u64 = 24 * 60 * 60;
/// The most commands that a policy may allow a run.
const MAX_CALLS: u64 = 10_000;

/// Which commands callers may have run by `run_command`, where a runner is attached to the run.
///
/// A pattern is a program, the words after it in this order, and options in any order: `cargo test` matches `cargo test --workspace`,
/// `git push` matches `git -C . push`, and `rm -rf` matches `rm x -fr`. In each word, `*` matches any text; a `*` as the last word matches
/// the rest, if there is any. Each command of a line is judged. What matches `deny` is refused, then what matches `ask` waits for a person,
/// then what matches `allow` is run. `others` decides about what matches none. If there are patterns, a line that cannot be parsed, or that
/// may run what `deny` has, waits for a person.
///
/// This judges what is asked, and is no containment: a program that is allowed can start others. Containment is the sandbox's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "allow": ["cargo *", "git diff"], "ask": ["cargo publish"], "deny": ["git push"], "others": "DENY", "timeoutSeconds": 600,
    "maxCalls": 1000
}))]
pub struct CommandPolicy {
    /// Patterns of commands that are run.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Patterns of commands that are refused. A program matches also by its name in another folder.
    #[serde(default)]
    pub deny: Vec<String>,
    /// Patterns of commands that wait for a person's approval.
    #[serde(default)]
    pub ask: Vec<String>,
    /// The verdict on a command that no pattern matches. If `allow` is given without it, `DENY`.
    pub others: Verdict,
    /// The longest time that a command may run, in seconds.
    pub timeout_seconds: u64,
    /// How many commands the run may have run.
    pub max_calls: u64,
}

impl Default for CommandPolicy {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            ask: Vec::new(),
            others: Verdict::Allow,
            timeout_seconds: 600,
            max_calls: 1000,
        }
    }
}

impl CommandPolicy {
    /// Whether no command is run, not even after an approval.
    pub fn denies_all(&self) -> bool {
        self.others == Verdict::Deny && self.allow.is_empty() && self.ask.is_empty()
    }
}

/// What a policy says of commands. Missing members have the values of the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "as in `CommandPolicy`")]
pub struct CommandOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86_400)]
    pub timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10_000)]
    pub max_calls: Option<u64>,
}

impl CommandOverrides {
    /// Returns `profile` with these values.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a pattern without a word, lists or patterns that are too long, and numbers out of range.
    pub(super) fn over(&self, profile: &CommandPolicy) -> Result<CommandPolicy> {
        for (name, list) in [("allow", &self.allow), ("deny", &self.deny), ("ask", &self.ask)] {
            check_list(name, list.as_deref().unwrap_or_default())?;
        }
        check_number("timeoutSeconds", self.timeout_seconds, 1, MAX_SECONDS)?;
        check_number("maxCalls", self.max_calls, 0, MAX_CALLS)?;
        let list = |own: &Option<Vec<String>>, of_profile: &Vec<String>| own.as_ref().unwrap_or(of_profile).clone();
        let has_allow = self.allow.as_ref().is_some_and(|allow| !allow.is_empty());
        Ok(CommandPolicy {
            allow: list(&self.allow, &profile.allow),
            deny: list(&self.deny, &profile.deny),
            ask: list(&self.ask, &profile.ask),
            // Who lists what is allowed allows nothing else.
            others: self.others.unwrap_or(if has_allow { Verdict::Deny } else { profile.others }),
            timeout_seconds: self.timeout_seconds.unwrap_or(profile.timeout_seconds),
            max_calls: self.max_calls.unwrap_or(profile.max_calls),
        })
    }
}

fn check_list(name: &str, list: &[String]) -> Result<()> {
    if list.len() > MAX_PATTERNS {
        let message = format!("`commands.{name}` has {} patterns; the maximum is {MAX_PATTERNS}", list.len());
        return Err(invalid(message, "Give fewer patterns, with `*` for what differs."));
    }
    for pattern in list {
        if pattern.trim().is_empty() || pattern.len() > MAX_PATTERN_BYTES || pattern.chars().any(char::is_control) {
            let shown = crate::excerpt(pattern, 60);
            let message = format!(
                "the pattern `{shown}` in `commands.{name}` is empty, longer than {MAX_PATTERN_BYTES} bytes or has control characters"
            );
            return Err(invalid(message, "Give a program and the beginning of its arguments, such as `cargo test`."));
        }
    }
    Ok(())
}

fn check_number(name: &str, number: Option<u64>, least: u64, most: u64) -> Result<()> {
    match number {
        Some(actual) if actual < least || actual > most => {
            let message = format!("`commands.{name}` is {actual}; it must be {least} to {most}");
            let refusal = invalid(message, "Choose another number.");
            Err(refusal.with_details(|details| (details.limit, details.actual) = (Some(most), Some(actual))))
        }
        Some(_) | None => Ok(()),
    }
}

fn invalid(message: String, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidRequest, message, hint)
}
