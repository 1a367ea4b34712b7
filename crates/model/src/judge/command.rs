//! The judgement of commands: each command of a line against the patterns of a policy.
//!
//! This judges what is written, and is no containment: a program that is allowed can start any other. What cannot be parsed is never
//! allowed by a policy that lists commands; a person is asked.

mod lists;
mod pattern;
mod script;
mod shell;

use self::lists::{BUILT_IN, has};
use self::pattern::{CommandPattern, PatternMatch};
use self::script::{CommandPart, RunBy, Script};
use super::decision::Decision;
use crate::{Code, CommandPolicy, Refusal, Verdict};

/// The most reasons of a decision.
const MAX_REASONS: usize = 8;
/// The reason for asking about what cannot be parsed.
const UNCLEAR: &str = "commands:unclear";

/// Judges a command line. The strictest verdict on one of its commands counts.
#[must_use]
pub fn judge_command(policy: &CommandPolicy, line: &str) -> Decision {
    if policy.denies_all() {
        return Decision::deny(denied(policy, &["commands:others".to_owned()]));
    }
    let patterns = CommandPatterns::of(policy);
    let script = Script::of(line);
    let mut judged: Vec<_> = script.parts.iter().map(|part| patterns.judge(part)).collect();
    if judged.is_empty() && !script.is_unclear {
        // A comment, or nothing.
        judged.push((policy.others, "commands:others:".to_owned()));
    }
    if script.is_unclear {
        let verdict = if patterns.has_any() { Verdict::RequireApproval } else { policy.others };
        judged.push((verdict, UNCLEAR.to_owned()));
    }
    let verdict = judged.iter().map(|(verdict, _)| *verdict).max_by_key(|verdict| severity(*verdict));
    let verdict = verdict.unwrap_or(policy.others);
    let mut reasons = Vec::new();
    for (_, reason) in judged.into_iter().filter(|(of_part, _)| *of_part == verdict) {
        if reasons.len() < MAX_REASONS && !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    match verdict {
        Verdict::Deny => Decision::deny(denied(policy, &reasons)),
        Verdict::Allow => Decision::allow(reasons),
        Verdict::RequireApproval => Decision { verdict, reasons, refusal: None },
    }
}

fn severity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::RequireApproval => 1,
        Verdict::Deny => 2,
    }
}

fn denied(policy: &CommandPolicy, reasons: &[String]) -> Refusal {
    let message = match reasons.first().and_then(|reason| reason.strip_prefix("commands:deny:")) {
        Some(pattern) => format!("the policy denies the command: `{pattern}`"),
        None => "the policy does not allow the command".to_owned(),
    };
    let allowed = policy.allow.iter().take(20).map(|pattern| format!("`{pattern}`")).collect::<Vec<_>>().join(", ");
    let hint = match (policy.denies_all(), allowed.is_empty()) {
        (true, _) => "No command is allowed in this run: use the other tools.".to_owned(),
        (false, true) => "Do without this command.".to_owned(),
        (false, false) => format!("Use a command that is allowed: {allowed}."),
    };
    Refusal::new(Code::PolicyDenied, message, hint).with_details(|details| details.reasons = reasons.to_vec())
}

/// The patterns of a policy.
struct CommandPatterns<'a> {
    deny: Vec<CommandPattern<'a>>,
    ask: Vec<CommandPattern<'a>>,
    allow: Vec<CommandPattern<'a>>,
    others: Verdict,
}

impl<'a> CommandPatterns<'a> {
    fn of(policy: &'a CommandPolicy) -> Self {
        let of = |list: &'a [String]| list.iter().map(|pattern| CommandPattern::of(pattern)).collect();
        Self { deny: of(&policy.deny), ask: of(&policy.ask), allow: of(&policy.allow), others: policy.others }
    }

    fn has_any(&self) -> bool {
        !(self.deny.is_empty() && self.ask.is_empty() && self.allow.is_empty())
    }

    fn judge(&self, part: &CommandPart) -> (Verdict, String) {
        // The first of the surest.
        let denied =
            self.deny.iter().rev().map(|pattern| (part.find(pattern), pattern)).max_by_key(|(found, _)| *found);
        match denied {
            Some((Some(PatternMatch::Definite), pattern)) => {
                return (Verdict::Deny, format!("commands:deny:{}", pattern.text));
            }
            Some((Some(PatternMatch::Possible), pattern)) => {
                return (Verdict::RequireApproval, format!("commands:maybe:{}", pattern.text));
            }
            Some((None, _)) | None => {}
        }
        if let Some(pattern) = self.ask.iter().find(|pattern| part.find(pattern).is_some()) {
            return (Verdict::RequireApproval, format!("commands:ask:{}", pattern.text));
        }
        let allowed = self
            .allow
            .iter()
            .rev()
            .map(|pattern| (pattern.matches(&part.assignments, &part.words, true), pattern))
            .max_by_key(|(found, _)| *found);
        let program = part.words.first().map_or("", String::as_str);
        let others = || format!("commands:others:{}", crate::excerpt(program, 100));
        match allowed {
            Some((Some(PatternMatch::Definite), pattern)) if !part.is_changed => {
                (Verdict::Allow, format!("commands:allow:{}", pattern.text))
            }
            Some((Some(_), _)) => (Verdict::RequireApproval, UNCLEAR.to_owned()),
            _ if self.has_any() && part.is_unclear() => (Verdict::RequireApproval, UNCLEAR.to_owned()),
            // What launches it must be allowed.
            _ if part.run_by != RunBy::Line => (Verdict::Allow, others()),
            _ if has(BUILT_IN, program) && part.assignments.is_empty() => (Verdict::Allow, others()),
            _ => (self.others, others()),
        }
    }
}

#[cfg(test)]
mod tests;
