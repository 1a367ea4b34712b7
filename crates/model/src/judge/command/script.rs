//! What a line runs: its commands, and those that its shells and other programs are given.

use super::lists::{INTERPRETERS, LAUNCHERS, LAUNCHING, READERS, SHELLS, STARTERS, has};
use super::pattern::{CommandPattern, PatternMatch, is_option, name_of};
use super::shell::{self, SPLIT, ShellCommand, UNKNOWN, is_assignment};

/// How deep a shell in a command is looked into.
const MAX_DEPTH: usize = 4;
/// How many programs in a row may start the next one.
const MAX_STARTERS: usize = 8;
/// How many words of a text are compared with one pattern.
const MAX_WINDOW: usize = 64;

/// The commands of a line.
#[derive(Default)]
pub(super) struct Script {
    pub(super) parts: Vec<CommandPart>,
    /// Whether it may run commands that are not among them.
    pub(super) is_unclear: bool,
}

/// One command.
pub(super) struct CommandPart {
    pub(super) assignments: Vec<String>,
    pub(super) words: Vec<String>,
    /// The words in its arguments, in any language, and how surely a command begins there. That of several words may begin anywhere.
    inner: Vec<(Option<PatternMatch>, String)>,
}

impl Script {
    pub(super) fn of(line: &str) -> Self {
        let mut script = Self::default();
        script.add(line, 0);
        script
    }

    fn add(&mut self, line: &str, depth: usize) {
        let (commands, is_complete) = shell::parse(line);
        self.is_unclear |= !is_complete || depth > MAX_DEPTH;
        for command in commands.into_iter().take_while(|_| depth <= MAX_DEPTH) {
            self.add_command(command, line, depth);
        }
    }

    fn add_command(&mut self, mut command: ShellCommand, line: &str, depth: usize) {
        self.is_unclear |= !unwrap_starters(&mut command);
        let ShellCommand { assignments, mut words, .. } = command;
        let mut texts: Vec<_> =
            assignments.iter().filter_map(|word| Some(word.split_once('=')?.1.to_owned())).collect();
        let is_exact = !words.iter().any(|word| word.contains([UNKNOWN, SPLIT]));
        match words.first().map_or("", |program| name_of(program)) {
            program if has(SHELLS, program) => match shell_text(&words) {
                Ok(Some(text)) => return self.add(text, depth + 1),
                Ok(None) => {}
                Err(()) => self.is_unclear = true,
            },
            "eval" | "trap" if is_exact => {
                let end = if words[0] == "trap" { 2 } else { words.len() };
                self.add(&words[1..end.min(words.len())].join(" "), depth + 1);
            }
            "eval" | "trap" | "source" | "." if !is_exact || line.contains("<<") => self.is_unclear = true,
            "alias" | "enable" | "hash" if words.len() > 1 => self.is_unclear = true,
            // What they read is in the line, or in no reach.
            program if has(INTERPRETERS, program) && words[1..].iter().all(|word| word == "-") => {
                texts.push(line.to_owned());
            }
            "xargs" | "parallel" => {
                for word in words[1..].iter_mut().filter(|word| !is_option(word)) {
                    *word = word.replace("{}", &UNKNOWN.to_string()).replace('%', &UNKNOWN.to_string());
                }
                words.push(SPLIT.to_string());
            }
            _ => {}
        }
        let mut inner = inner_words(&words, !assignments.is_empty());
        if !words.is_empty() {
            inner.extend(texts.iter().flat_map(|text| loose_words(text, true)));
        }
        self.parts.push(CommandPart { assignments, words, inner });
    }
}

/// Removes programs that run the rest of their arguments as it is. Returns whether it is certain what the rest is.
fn unwrap_starters(command: &mut ShellCommand) -> bool {
    let words = &mut command.words;
    for _ in 0..MAX_STARTERS {
        let program = words.first().map_or("", String::as_str);
        let program = program.strip_prefix("/usr/bin/").or(program.strip_prefix("/bin/")).unwrap_or(program);
        let Some((name, options, arguments)) = STARTERS.iter().find(|(name, ..)| *name == program) else { return true };
        let mut at = 1;
        while let Some(option) = words.get(at).filter(|word| is_option(word)) {
            let mut with_value = options.split(' ').filter_map(|option| option.strip_suffix('='));
            let is_number = *name == "nice" && option[1..].bytes().all(|byte| byte.is_ascii_digit());
            at += match option.as_str() {
                text if has(options, &format!("{text}=")) => 2,
                text if text == "--"
                    || is_number
                    || has(options, text)
                    || with_value.any(|one| text.starts_with(one)) =>
                {
                    1
                }
                // They print what a name means.
                text => return *name == "command" && ["-v", "-V"].contains(&text),
            };
        }
        at += arguments;
        while *name == "env" && words.get(at).is_some_and(|word| is_assignment(word)) {
            command.assignments.push(words.remove(at));
        }
        if at >= words.len() {
            return true;
        }
        words.drain(..at);
    }
    false
}

/// Returns the text that a shell runs; `None` if it runs a file, and an error if what it runs is not known.
fn shell_text(words: &[String]) -> Result<Option<&str>, ()> {
    let (mut at, mut is_text) = (1, false);
    while let Some(option) = words.get(at).filter(|word| is_option(word)) {
        at += 1;
        match option.as_str() {
            "--version" | "--help" => return Ok(None),
            "--" => break,
            "--login" | "--norc" | "--noprofile" | "--posix" => {}
            text if text[1..].chars().all(|letter| "acefhilouvx".contains(letter)) => {
                is_text |= text.contains('c');
                at += text.matches('o').count();
            }
            _ => return Err(()),
        }
    }
    let word = words.get(at).filter(|word| !word.contains([UNKNOWN, SPLIT])).ok_or(())?;
    Ok(is_text.then_some(word))
}

/// Whether a command runs nothing in its arguments.
fn is_reader(words: &[String]) -> bool {
    READERS.split(';').any(|text| CommandPattern::of(text).matches(&[], words, true) == Some(PatternMatch::Definite))
}

/// The words in the arguments of a command at which another one may begin.
fn inner_words(words: &[String], sets_variables: bool) -> Vec<(Option<PatternMatch>, String)> {
    let program = words.first().map_or("", |word| name_of(word));
    let mut reads = words.is_empty() || !sets_variables && is_reader(words);
    let mut starts = !reads && has(LAUNCHERS, program);
    let (mut inner, mut has_argument, mut is_first) = (Vec::new(), false, !starts);
    for (at, word) in words.iter().enumerate().skip(1) {
        if has(LAUNCHING, word) && (!reads || word.starts_with('-')) {
            (reads, starts, has_argument, is_first) = (false, true, false, false);
            continue;
        }
        let may_be_value = has_argument && is_option(&words[at - 1]) && words[at - 1] != "--";
        let is_plain = !is_option(word) && !word.contains(char::is_whitespace);
        if starts && is_plain && !may_be_value {
            has_argument = true;
            inner.push((may_be_program(word).then_some(PatternMatch::Definite), word.clone()));
            reads = is_reader(&words[at..]);
            starts = !reads;
        } else if !reads {
            inner.extend(loose_words(word, is_first || !is_plain && !is_option(word)));
        }
        is_first &= word == "--";
    }
    inner
}

/// Whether a name that may have a folder is that of a program: `docker run IMAGE/curl` has none.
fn may_be_program(word: &str) -> bool {
    !word.contains('/') || word.starts_with(['/', '.', UNKNOWN])
}

/// The words of a text in any language, and whether a command may begin there.
fn loose_words(text: &str, begins: bool) -> Vec<(Option<PatternMatch>, String)> {
    let is_between = |c: char| !(c.is_alphanumeric() || "_./-+:@~".contains(c) || c == UNKNOWN || c == SPLIT);
    let is_several = text.contains(char::is_whitespace);
    let (mut words, mut end) = (Vec::new(), 0);
    for piece in text.split_inclusive(is_between) {
        let (word, before) = (piece.trim_end_matches(is_between), &text[..end]);
        let is_opened = before.ends_with(['\'', '"', '(', '`', '!', '{']) || is_several && before.ends_with('=');
        let is_next = before.ends_with(' ') && before.trim_end().ends_with([';', '&', '|']);
        if !word.is_empty() {
            let is_begin = (begins && before.is_empty() || is_opened || is_next) && may_be_program(word);
            words.push((is_begin.then_some(PatternMatch::Possible), word.to_owned()));
        }
        end += piece.len();
    }
    words
}

impl CommandPart {
    /// Whether it is not known which program it runs.
    pub(super) fn is_unclear(&self) -> bool {
        let is_known = |word: &String| !word.contains(SPLIT) && !name_of(word).contains(UNKNOWN);
        !self.words.first().is_none_or(is_known)
    }

    /// Whether it runs a command that a pattern means.
    pub(super) fn find(&self, pattern: &CommandPattern<'_>) -> Option<PatternMatch> {
        let direct = pattern.matches(&self.assignments, &self.words, false);
        if direct == Some(PatternMatch::Definite) || self.inner.is_empty() {
            return direct;
        }
        let words: Vec<_> = self.inner.iter().map(|(_, word)| word.clone()).collect();
        let found = self.inner.iter().enumerate().map(|(at, (begins, word))| {
            let is_unknown = *begins != Some(PatternMatch::Definite) && word.contains([UNKNOWN, SPLIT]);
            if is_unknown || begins.is_none() && pattern.is_one_word() {
                return None;
            }
            let window = &words[at..words.len().min(at + MAX_WINDOW)];
            pattern.matches(&[], window, false).min(Some(begins.unwrap_or(PatternMatch::Possible)))
        });
        found.max().flatten().max(direct)
    }
}
