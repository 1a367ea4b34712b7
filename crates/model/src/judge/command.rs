//! The judgement of commands: the parts of a line, as a shell would take them, against the patterns of a policy.

mod shell;

use self::shell::{ShellWord, parts_of, words_in};
use super::decision::Decision;
use crate::{Code, CommandPolicy, Refusal, Verdict};

/// How deep a shell in a command is looked into.
const MAX_DEPTH: usize = 4;
/// The programs that run the text after `-c`.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
/// The programs that run the command after them, if no option comes before it.
const STARTERS: [&str; 6] = ["env", "command", "exec", "nohup", "time", "nice"];

/// Judges a command line. The strictest verdict on one of its parts counts.
#[must_use]
pub fn judge_command(policy: &CommandPolicy, line: &str) -> Decision {
    let parts = parts(line, 0).unwrap_or_else(|| vec![CommandPart::of_text(line)]);
    let (mut verdict, mut reasons) = (Verdict::Allow, Vec::new());
    for part in &parts {
        let (of_part, reason) = part.judge(policy);
        if severity(of_part) > severity(verdict) {
            (verdict, reasons) = (of_part, Vec::new());
        }
        if of_part == verdict && !reasons.contains(&reason) {
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

/// One command of a line: its words, and those of the command that it starts, if it starts one. The last one is what it does.
#[derive(Debug)]
struct CommandPart {
    forms: Vec<Vec<ShellWord>>,
    /// The words anywhere in a line that cannot be taken apart.
    text: Vec<String>,
}

/// Takes a line apart; `None` if that is not certain.
fn parts(line: &str, depth: usize) -> Option<Vec<CommandPart>> {
    let mut all = Vec::new();
    for words in parts_of(line)? {
        let mut forms = vec![words];
        while let Some(inner) = forms.last().and_then(|words| started(words)) {
            forms.push(inner);
        }
        match forms.last().and_then(|words| shell_text(words)) {
            Some(text) if depth < MAX_DEPTH => match parts(text, depth + 1) {
                // A shell does what its text says.
                Some(inner) => all.extend(inner),
                None => all.push(CommandPart { text: words_in(text), forms }),
            },
            Some(text) => all.push(CommandPart { text: words_in(text), forms }),
            None => all.push(CommandPart { forms, text: Vec::new() }),
        }
    }
    Some(all)
}

/// Returns the command that a command starts.
fn started(words: &[ShellWord]) -> Option<Vec<ShellWord>> {
    let program = words.first().filter(|program| program.is_exact)?;
    if !STARTERS.contains(&name_of(&program.text)) {
        return None;
    }
    let is_env = name_of(&program.text) == "env";
    let rest = &words[1..];
    let begin = rest.iter().position(|word| !(is_env && word.is_assignment()))?;
    let inner = &rest[begin..];
    inner.first().is_some_and(|word| !word.text.starts_with('-')).then(|| inner.to_vec())
}

/// Returns the text that a shell is told to run.
fn shell_text(words: &[ShellWord]) -> Option<&str> {
    let (program, rest) = words.split_first()?;
    if !program.is_exact || !SHELLS.contains(&name_of(&program.text)) {
        return None;
    }
    let is_text =
        |word: &ShellWord| word.text.starts_with('-') && !word.text.starts_with("--") && word.text.ends_with('c');
    let at = rest.iter().position(|word| !word.text.starts_with('-') || is_text(word))?;
    let text = rest.get(at + 1)?;
    (is_text(&rest[at]) && text.is_exact).then_some(&text.text)
}

/// The name of a program without its folder.
fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl CommandPart {
    /// A line that cannot be taken apart, as the text of a shell.
    fn of_text(line: &str) -> Self {
        let words = ["sh", "-c", line].into_iter().map(ShellWord::exact);
        Self { forms: vec![words.collect()], text: words_in(line) }
    }

    fn judge(&self, policy: &CommandPolicy) -> (Verdict, String) {
        let strict =
            |pattern: &&String| self.forms.iter().any(|words| may_match(pattern, words)) || occurs(pattern, &self.text);
        if let Some(pattern) = policy.deny.iter().find(strict) {
            return (Verdict::Deny, format!("commands:deny:{pattern}"));
        }
        if let Some(pattern) = policy.ask.iter().find(strict) {
            return (Verdict::RequireApproval, format!("commands:ask:{pattern}"));
        }
        let is_allowed = |pattern: &&String| self.forms.iter().any(|words| surely_matches(pattern, words));
        if let Some(pattern) = policy.allow.iter().find(is_allowed) {
            return (Verdict::Allow, format!("commands:allow:{pattern}"));
        }
        let program = self.forms.last().and_then(|words| words.first()).map_or("", |word| word.text.as_str());
        (policy.others, format!("commands:others:{}", crate::excerpt(program, 100)))
    }
}

/// Whether a command may be one that `pattern` means: a word that a shell would expand may become any.
fn may_match(pattern: &str, words: &[ShellWord]) -> bool {
    matches(pattern, words, |glob, word, is_program| {
        !word.is_exact
            || glob_matches(glob, &word.text)
            || (is_program && !glob.contains('/') && glob_matches(glob, name_of(&word.text)))
    })
}

/// Whether a command is certainly one that `pattern` means. A program in another folder is another program.
fn surely_matches(pattern: &str, words: &[ShellWord]) -> bool {
    matches(pattern, words, |glob, word, is_program| {
        glob == "*" || (word.is_exact && glob_matches(glob, &word.text) && (!is_program || !has_folder(glob, word)))
    })
}

/// Whether a program is named with a folder that the pattern does not name.
fn has_folder(glob: &str, word: &ShellWord) -> bool {
    word.text.contains('/') && !glob.contains('/')
}

fn matches(pattern: &str, words: &[ShellWord], one: impl Fn(&str, &ShellWord, bool) -> bool) -> bool {
    let globs: Vec<_> = pattern.split_whitespace().collect();
    let globs = match globs.as_slice() {
        [first, rest @ .., "*"] => [&[*first], rest].concat(),
        all => all.to_vec(),
    };
    globs.len() <= words.len() && globs.iter().zip(words).enumerate().all(|(at, (glob, word))| one(glob, word, at == 0))
}

/// Whether the words of `pattern` follow each other in `text`.
fn occurs(pattern: &str, text: &[String]) -> bool {
    let exact: Vec<_> = text.iter().map(|word| ShellWord::exact(word)).collect();
    (0..exact.len()).any(|at| may_match(pattern, &exact[at..]))
}

/// Whether `text` is what `glob` means, in which `*` is any text.
fn glob_matches(glob: &str, text: &str) -> bool {
    let mut pieces = glob.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut pieces: Vec<_> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests;
