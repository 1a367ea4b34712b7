//! The judgement of commands: the parts of a line, as a shell would take them, against the patterns of a policy.

mod shell;
mod text;

use self::shell::{ShellWord, parts_of};
use self::text::{Likeness, TextWord, occurs, words_in};
use super::decision::Decision;
use crate::{Code, CommandPolicy, Refusal, Verdict};

/// How deep a shell in a command is looked into.
const MAX_DEPTH: usize = 4;
/// How many programs in a row may start the next one.
const MAX_STARTERS: usize = 8;
/// The most reasons of a decision.
const MAX_REASONS: usize = 8;
/// The programs that run the text after `-c`, or a file.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh"];
/// The programs that run the command after them, if no option comes before it.
const STARTERS: [&str; 6] = ["env", "command", "exec", "nohup", "time", "nice"];
/// Other programs that run what is among their arguments.
const RUNNERS: [&str; 42] = [
    "eval",
    "builtin",
    "timeout",
    "xargs",
    "sudo",
    "doas",
    "setsid",
    "stdbuf",
    "ionice",
    "busybox",
    "trap",
    "find",
    "script",
    "watch",
    "flock",
    "unshare",
    "nsenter",
    "setpriv",
    "taskset",
    "chroot",
    "su",
    "runuser",
    "gosu",
    "strace",
    "ltrace",
    "setarch",
    "prlimit",
    "chrt",
    "numactl",
    "fakeroot",
    "systemd-run",
    "parallel",
    "xvfb-run",
    "tini",
    "dumb-init",
    "npx",
    "uv",
    "docker",
    "podman",
    "kubectl",
    "ssh",
    "entr",
];

/// Whether a program runs another, which its arguments name.
fn is_runner(program: &str) -> bool {
    [&SHELLS[..], &STARTERS, &RUNNERS].iter().any(|list| list.contains(&name_of(program)))
}

/// Judges a command line. The strictest verdict on one of its parts counts.
#[must_use]
pub fn judge_command(policy: &CommandPolicy, line: &str) -> Decision {
    if policy.denies_all() {
        return Decision::deny(denied(policy, &["commands:others".to_owned()]));
    }
    let parts = parts(line, 0).filter(|parts| !parts.is_empty()).unwrap_or_else(|| vec![CommandPart::of_text(line)]);
    let patterns = CommandPatterns::of(policy);
    let (mut verdict, mut reasons, mut is_written) = (Verdict::Allow, Vec::new(), true);
    for part in &parts {
        let (of_part, likeness, reason) = part.judge(&patterns);
        if severity(of_part) > severity(verdict) {
            (verdict, reasons) = (of_part, Vec::new());
            is_written = likeness == Likeness::Written;
        }
        if of_part == verdict && reasons.len() < MAX_REASONS && !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    match verdict {
        Verdict::Deny if is_written => Decision::deny(denied(policy, &reasons)),
        Verdict::Deny => Decision::deny(unclear(policy, &reasons)),
        Verdict::Allow => Decision::allow(reasons),
        Verdict::RequireApproval => Decision { verdict, reasons, refusal: None },
    }
}

/// The patterns of a policy, each as its words.
struct CommandPatterns<'a> {
    deny: Vec<CommandPattern<'a>>,
    ask: Vec<CommandPattern<'a>>,
    allow: Vec<CommandPattern<'a>>,
    others: Verdict,
}

struct CommandPattern<'a> {
    text: &'a str,
    words: Vec<&'a str>,
}

impl<'a> CommandPatterns<'a> {
    fn of(policy: &'a CommandPolicy) -> Self {
        let of = |list: &'a [String]| list.iter().map(|pattern| CommandPattern::of(pattern)).collect();
        Self { deny: of(&policy.deny), ask: of(&policy.ask), allow: of(&policy.allow), others: policy.others }
    }
}

impl<'a> CommandPattern<'a> {
    fn of(text: &'a str) -> Self {
        let mut words: Vec<_> = text.split_whitespace().collect();
        // The rest, if there is any, is matched by every pattern.
        if words.len() > 1 && words.last() == Some(&"*") {
            words.pop();
        }
        Self { text, words }
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

/// The refusal of a command that becomes a denied one if a word of it is expanded to that.
fn unclear(policy: &CommandPolicy, reasons: &[String]) -> Refusal {
    let refusal = denied(policy, reasons);
    let pattern = reasons.first().and_then(|reason| reason.strip_prefix("commands:deny:")).unwrap_or_default();
    let message = format!("it cannot be told whether the command becomes `{pattern}`, which the policy denies");
    let hint = "Write the command out: its program and the words after it, without variables, substitutions or patterns of file names.";
    Refusal { message, hint: hint.to_owned(), ..refusal }
}

/// One command of a line.
#[derive(Debug)]
struct CommandPart {
    /// Its words, and those of the command that it starts, if it starts one.
    forms: Vec<Vec<ShellWord>>,
    /// How many of the forms are what is run for certain: a variable that is set before a program may make it another one.
    sure: usize,
    /// What is run by it in words that are not taken apart, such as the arguments of a program that runs another.
    text: Vec<TextWord>,
}

/// Takes a line apart; `None` if that is not certain.
fn parts(line: &str, depth: usize) -> Option<Vec<CommandPart>> {
    let mut all = Vec::new();
    let mut is_read = false;
    for words in parts_of(line)? {
        let mut part = CommandPart::of_words(words)?;
        if !is_read && part.reads_commands() {
            // What another part of the line writes, or what follows `<<<`.
            part.text.extend(words_in(line));
            is_read = true;
        }
        match part.forms.last().and_then(|words| shell_text(words)) {
            Some(text) if depth < MAX_DEPTH && part.sure == part.forms.len() => match parts(text, depth + 1) {
                // A shell does what its text says.
                Some(inner) if !inner.is_empty() => all.extend(inner),
                _ => all.push(part),
            },
            _ => all.push(part),
        }
    }
    Some(all)
}

/// Returns the command that a command starts, and whether it sets variables for it.
fn started(words: &[ShellWord]) -> Option<(&[ShellWord], bool)> {
    let (program, rest) = words.split_first()?;
    if !program.is_exact || !STARTERS.contains(&name_of(&program.text)) {
        return None;
    }
    let is_env = name_of(&program.text) == "env";
    let begin = rest.iter().position(|word| !(is_env && word.is_assignment()))?;
    let inner = &rest[begin..];
    inner.first().is_some_and(|word| !word.text.starts_with('-')).then_some((inner, begin > 0))
}

/// Returns the text that a shell is told to run, in the only form in which that is certain: letters of options, and the text.
fn shell_text(words: &[ShellWord]) -> Option<&str> {
    let [program, options, text, ..] = words else { return None };
    let letters = options.text.strip_prefix('-')?.strip_suffix('c')?;
    let is_shell = program.is_exact && SHELLS.contains(&name_of(&program.text));
    let is_certain = options.is_exact && letters.chars().all(|letter| "aefhiluvx".contains(letter));
    (is_shell && is_certain && text.is_exact && !text.text.starts_with(['-', '+'])).then_some(&text.text)
}

/// The name of a program without its folder.
fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl CommandPart {
    /// A line that cannot be taken apart, as the text of a shell.
    fn of_text(line: &str) -> Self {
        let words = ["sh", "-c", line].into_iter().map(ShellWord::exact);
        Self { forms: vec![words.collect()], sure: 1, text: words_in(line) }
    }

    /// `None` if too many programs start the next one.
    fn of_words(words: Vec<ShellWord>) -> Option<Self> {
        let mut forms = vec![words];
        let mut sure = 1;
        let mut sets = false;
        loop {
            let last = forms.last().map(Vec::as_slice).unwrap_or_default();
            let begin = last.iter().position(|word| !word.is_assignment()).unwrap_or(last.len());
            let next = if begin > 0 && begin < last.len() {
                (last[begin..].to_vec(), true)
            } else if let Some((inner, has_set)) = started(last) {
                (inner.to_vec(), has_set)
            } else {
                break;
            };
            if forms.len() > MAX_STARTERS {
                return None;
            }
            sets |= next.1;
            forms.push(next.0);
            sure += usize::from(!sets);
        }
        let runner = forms.iter().find(|words| words.first().is_some_and(|program| is_runner(&program.text)));
        let text = runner.map_or_else(Vec::new, |words| {
            words_in(&words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "))
        });
        Some(Self { forms, sure, text })
    }

    /// Whether it is a shell that reads its commands from its input.
    fn reads_commands(&self) -> bool {
        let Some([program, options @ ..]) = self.forms.last().map(Vec::as_slice) else { return false };
        SHELLS.contains(&name_of(&program.text)) && options.iter().all(|word| word.text.starts_with(['-', '+']))
    }

    /// How surely it is a command that one of the patterns means, and which; the first of those that are written.
    fn find<'a>(&self, patterns: &'a [CommandPattern<'a>]) -> Option<(Likeness, &'a CommandPattern<'a>)> {
        let mut possible = None;
        for pattern in patterns {
            let forms = self.forms.iter().filter_map(|words| may_match(pattern, words));
            match forms.chain(occurs(pattern, &self.text)).max() {
                Some(Likeness::Written) => return Some((Likeness::Written, pattern)),
                Some(Likeness::Possible) => possible = possible.or(Some((Likeness::Possible, pattern))),
                None => {}
            }
        }
        possible
    }

    fn judge(&self, patterns: &CommandPatterns<'_>) -> (Verdict, Likeness, String) {
        if let Some((likeness, pattern)) = self.find(&patterns.deny) {
            return (Verdict::Deny, likeness, format!("commands:deny:{}", pattern.text));
        }
        if let Some((likeness, pattern)) = self.find(&patterns.ask) {
            return (Verdict::RequireApproval, likeness, format!("commands:ask:{}", pattern.text));
        }
        let is_allowed =
            |pattern: &&CommandPattern<'_>| self.forms[..self.sure].iter().any(|words| surely_matches(pattern, words));
        if let Some(pattern) = patterns.allow.iter().find(is_allowed) {
            return (Verdict::Allow, Likeness::Written, format!("commands:allow:{}", pattern.text));
        }
        let program = self.forms.last().and_then(|words| words.first()).map_or("", |word| word.text.as_str());
        (patterns.others, Likeness::Written, format!("commands:others:{}", crate::excerpt(program, 100)))
    }
}

/// Whether a command may be one that `pattern` means. From a word on that a shell expands, it may be any.
fn may_match(pattern: &CommandPattern<'_>, words: &[ShellWord]) -> Option<Likeness> {
    for (at, glob) in pattern.words.iter().enumerate() {
        let word = words.get(at)?;
        if !word.is_exact {
            return Some(Likeness::Possible);
        }
        let by_name = at == 0 && !glob.contains('/') && glob_matches(glob, name_of(&word.text));
        if !glob_matches(glob, &word.text) && !by_name {
            return None;
        }
    }
    Some(Likeness::Written)
}

/// Whether a command is certainly one that `pattern` means. A program in another folder is another program.
fn surely_matches(pattern: &CommandPattern<'_>, words: &[ShellWord]) -> bool {
    pattern.words.len() <= words.len()
        && pattern.words.iter().zip(words).enumerate().all(|(at, (glob, word))| {
            *glob == "*"
                || (word.is_exact
                    && glob_matches(glob, &word.text)
                    && (at > 0 || glob.contains('/') == word.text.contains('/')))
        })
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
