//! What a line runs: its commands, those that its shells and other programs are given, and the words that may be commands.

use super::lists::{INTERPRETERS, LAUNCHERS, READERS, SHELLS, STARTERS, Starter, UNSAFE_VARIABLES, has};
use super::pattern::{CommandPattern, PatternMatch, is_option, name_of};
use super::shell::{self, GLOB, SPLIT, ShellCommand, UNKNOWN};

/// How deep a command in a command is looked into.
const MAX_DEPTH: usize = 6;
/// How many programs in a row may start the next one.
const MAX_STARTERS: usize = 8;
/// How many loose words of a line are compared with patterns.
const MAX_LOOSE: usize = 8192;
/// How many of them are compared with all that follows them.
const MAX_BEGINS: usize = 64;

/// The commands of a line.
pub(super) struct Script<'a> {
    line: &'a str,
    /// The line without its quotes.
    unquoted: String,
    loose: usize,
    pub(super) parts: Vec<CommandPart>,
    /// Whether it may run commands that are not among them.
    pub(super) is_unclear: bool,
}

/// What runs a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RunBy {
    /// The line itself.
    Line,
    /// A program that is a part, too.
    Launcher,
    /// Perhaps such a program.
    PerhapsLauncher,
}

/// One command.
pub(super) struct CommandPart {
    pub(super) assignments: Vec<String>,
    pub(super) words: Vec<String>,
    pub(super) run_by: RunBy,
    /// Whether it runs something else, which its words do not say.
    pub(super) is_changed: bool,
    /// The words of its texts, in any language. At each of them a command may begin.
    loose: Vec<String>,
}

impl<'a> Script<'a> {
    pub(super) fn of(line: &'a str) -> Self {
        let mut script = Self { line, unquoted: unquoted(line), loose: 0, parts: Vec::new(), is_unclear: false };
        script.add(line, RunBy::Line, 0);
        script
    }

    fn add(&mut self, text: &str, run_by: RunBy, depth: usize) {
        let (commands, is_complete) = shell::parse(text, &self.unquoted);
        self.is_unclear |= !is_complete;
        for command in commands {
            self.add_command(command, run_by, depth);
        }
    }

    fn add_command(&mut self, command: ShellCommand, run_by: RunBy, depth: usize) {
        let ShellCommand { mut assignments, mut words, mut texts, .. } = command;
        self.is_unclear |= depth > MAX_DEPTH || !unwrap_starters(&mut assignments, &mut words);
        let program = words.first().map_or("", |program| name_of(program)).to_owned();
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(subcommand) = program.strip_prefix("git-") {
            words.splice(..1, ["git".to_owned(), subcommand.to_owned()]);
        }
        let reader = is_reader(&words);
        let (reads, is_changed) = (reader == Some(true), reader == Some(false));
        let is_unsafe = |word: &String| UNSAFE_VARIABLES.iter().any(|name| word.starts_with(name));
        self.is_unclear |= assignments.iter().any(is_unsafe) || !reads && words.iter().any(is_unsafe);
        let is_exported = !words.is_empty() || self.line.contains("export") || self.line.contains("set -a");
        let values = assignments
            .iter()
            .filter_map(|word| word.split_once('='))
            .filter(|(name, value)| is_exported && *name != "RUST_LOG" || value.contains("$(") || value.contains('`'));
        let values: Vec<_> = values.map(|(_, value)| value.to_owned()).collect();
        let file = self.add_texts(&mut words, run_by, depth);
        let is_fed = words.len() == 1 && INTERPRETERS.split(' ').any(|name| program.starts_with(name))
            || words.iter().any(|word| word == "-" || is_stream(word))
            || has("ssh parallel", &program);
        let is_written = |file: String| self.line.matches(name_of(&file)).count() > 1;
        if !reads && is_fed || file.is_some_and(is_written) {
            texts.push(self.line.to_owned());
        }
        if !self.add_started(&words, &texts, reads, depth) {
            texts.push(words.get(1..).unwrap_or_default().join(" "));
        }
        if reads {
            texts.clear();
        }
        texts.extend(values);
        if program == "git" {
            let settings = words.windows(2).filter(|pair| pair[0] == "-c").map(|pair| pair[1].clone());
            texts.extend(settings.collect::<Vec<_>>());
            self.is_unclear |= texts.iter().any(|text| text.contains("alias.") || text.contains("--config-env"));
        }
        if program == "sed" {
            // In `1ecurl`, a command begins after the `e`.
            texts = texts.iter().map(|text| text.replace('e', "e ").replace('/', " ") + " " + text).collect();
        }
        let loose: Vec<_> = texts.iter().flat_map(|text| loose_words(text)).collect();
        self.loose += loose.len();
        if self.loose > MAX_LOOSE {
            self.is_unclear = true;
        } else if words.len() + assignments.len() > 0 {
            self.parts.push(CommandPart { assignments, words, run_by, is_changed, loose });
        }
    }

    /// Adds the texts that a shell runs, and what `find` does. Returns a file that is run and may be of this line.
    fn add_texts(&mut self, words: &mut Vec<String>, run_by: RunBy, depth: usize) -> Option<String> {
        let mut file = words.first().filter(|program| program.contains('/')).cloned();
        let is_exact = !words.iter().any(|word| word.contains([UNKNOWN, SPLIT, GLOB]));
        match words.first().map_or("", |program| name_of(program)) {
            program if has(SHELLS, program) => match shell_text(words) {
                Ok((true, text)) => {
                    self.add(&text.clone(), run_by, depth + 1);
                    words.clear();
                }
                Ok((false, text)) => file = Some(text.clone()),
                Err(is_unclear) => self.is_unclear |= is_unclear,
            },
            "eval" | "trap" if is_exact => {
                let begin = 1 + usize::from(words.get(1).is_some_and(|word| word == "--"));
                let end = if words[0] == "trap" { begin + 1 } else { words.len() };
                let text = words.get(begin..end.min(words.len())).unwrap_or_default().join(" ");
                self.add(&text, run_by, depth + 1);
            }
            "source" | "." if is_exact => {
                file = words.get(1).cloned();
                self.is_unclear |= file.as_deref().is_none_or(is_stream);
            }
            "eval" | "trap" | "source" | "." => self.is_unclear = true,
            "alias" | "enable" | "hash" if words.len() > 1 => self.is_unclear = true,
            "find" => {
                for words in words.split(|word| word == ";" || word == "+") {
                    if let Some(at) = words.iter().position(|word| has("-exec -execdir -ok -okdir", word)) {
                        self.add_command(filled(&words[at + 1..], "{}"), RunBy::Launcher, depth + 1);
                    }
                }
            }
            _ => {}
        }
        file
    }

    /// Adds what a launcher starts, or a shell among the arguments of another program. Returns whether nothing else is started.
    fn add_started(&mut self, words: &[String], texts: &[String], reads: bool, depth: usize) -> bool {
        match started(words, LAUNCHERS) {
            Ok(0) if reads => return true,
            Ok(0) => {
                if let Some(at) = words.iter().skip(1).position(|word| has(SHELLS, name_of(word))) {
                    self.add_command(ShellCommand::of(words[at + 1..].to_vec()), RunBy::PerhapsLauncher, depth + 1);
                }
                return false;
            }
            Ok(at) => {
                let mut started = ShellCommand::of(words[at..].to_vec());
                if words[0].ends_with("xargs") {
                    let joined = words[..at].iter().find_map(|word| word.strip_prefix("-I"));
                    started = filled(&words[at..], joined.filter(|text| !text.is_empty()).unwrap_or(&words[at - 1]));
                    started.words.push(SPLIT.to_string());
                }
                started.texts = texts.to_vec();
                self.add_command(started, RunBy::Launcher, depth + 1);
            }
            Err(()) => self.is_unclear = true,
        }
        true
    }
}

/// A command in whose words something else stands for a placeholder.
fn filled(words: &[String], placeholder: &str) -> ShellCommand {
    ShellCommand::of(words.iter().map(|word| word.replace(placeholder, &UNKNOWN.to_string())).collect())
}

/// Returns where the command begins that the first word starts, 0 if it starts none, and an error if that is not known.
fn started(words: &[String], starters: &[Starter]) -> Result<usize, ()> {
    let program = words.first().map_or("", String::as_str);
    let program = program.strip_prefix("/usr/bin/").or(program.strip_prefix("/bin/")).unwrap_or(program);
    let is_named = |name: &str| match name.split_once(' ') {
        Some((name, subcommand)) => name == program && words.get(1).is_some_and(|word| word == subcommand),
        None => name == program,
    };
    let Some((name, options, arguments)) = starters.iter().find(|(name, ..)| is_named(name)) else { return Ok(0) };
    let mut at = name.split(' ').count();
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        let mut with_value = options.split(' ').filter_map(|option| option.strip_suffix('='));
        let is_number = *name == "nice" && option[1..].bytes().all(|byte| byte.is_ascii_digit());
        at += match option.as_str() {
            text if has(options, &format!("{text}=")) => 2,
            text if text == "--" || is_number || has(options, text) || with_value.any(|one| text.starts_with(one)) => 1,
            // They print what a name means.
            "-v" | "-V" if *name == "command" => return Ok(0),
            _ => return Err(()),
        };
        if option == "--" {
            break;
        }
    }
    at += arguments;
    while ["env", "sudo"].contains(name) && words.get(at).is_some_and(|word| word.contains('=')) {
        at += 1;
    }
    match words.get(..at) {
        Some(own) if own.iter().any(|word| word.contains(SPLIT)) => Err(()),
        _ => Ok(if at < words.len() { at } else { 0 }),
    }
}

/// Removes programs that run the rest of their arguments as it is. Returns whether it is certain what the rest is.
fn unwrap_starters(assignments: &mut Vec<String>, words: &mut Vec<String>) -> bool {
    for _ in 0..MAX_STARTERS {
        match started(words, STARTERS) {
            Ok(0) => return true,
            Ok(at) => assignments.extend(words.drain(..at).filter(|word| !is_option(word) && word.contains('='))),
            Err(()) => return false,
        }
    }
    false
}

/// Returns whether a shell runs a text, and the text or the file; an error says whether it runs what is not known.
fn shell_text(words: &[String]) -> Result<(bool, &String), bool> {
    let (mut at, mut is_text, mut is_read) = (1, false, false);
    while let Some(option) = words.get(at).filter(|word| is_option(word)) {
        at += 1;
        match option.as_str() {
            "--version" | "--help" => return Err(false),
            "--" => break,
            "--login" | "--norc" | "--noprofile" | "--posix" => {}
            text if text[1..].chars().all(|letter| "acefhilnouvx".contains(letter)) => {
                is_text |= text.contains('c');
                is_read |= text.starts_with('-') && text.contains('n');
                at += text.matches('o').count();
            }
            _ => return Err(true),
        }
    }
    let word = words.get(at).filter(|word| !word.contains([UNKNOWN, SPLIT, GLOB]) && *word != "-" && !is_stream(word));
    word.map(|word| (is_text, word)).ok_or(is_text || !is_read)
}

/// Whether a file is what a command reads.
fn is_stream(file: &str) -> bool {
    file.starts_with("/dev/") && file != "/dev/null" || file.starts_with("/proc/")
}

/// Whether a command of a known program runs nothing in its arguments.
fn is_reader(words: &[String]) -> Option<bool> {
    // Settings of git are looked at on their own.
    let mut words = words.to_vec();
    while words.len() > 2 && words[0] == "git" && words[1] == "-c" {
        words.drain(1..3);
    }
    let (program, arguments) = words.split_first()?;
    let (begins, _) = READERS.split(';').find_map(|text| {
        let (begins, names): (Vec<_>, Vec<_>) = text.split_whitespace().partition(|word| word.starts_with('!'));
        let pattern = names.join(" ");
        Some((begins, CommandPattern::of(&pattern).matches(&[], &words, true)?))
            .filter(|(_, found)| *found == PatternMatch::Definite)
    })?;
    let is_unsafe = |word: &String| {
        let name = word.split('=').next().unwrap_or_default();
        // Where a shell expects a number, it runs what is in an index.
        word.contains("[$(")
            || word.contains("[`")
            || program == "make" && word.contains('=')
            || begins
                .iter()
                .any(|begin| word.starts_with(&begin[1..]) || name.len() > 2 && begin[1..].starts_with(name))
    };
    Some(!(arguments.iter().any(is_unsafe) || program == "sed" && executes(&words)))
}

/// Whether the command or the flag `e` may be in a script of sed.
fn executes(words: &[String]) -> bool {
    let is_marked = words[1..].iter().any(|word| word.starts_with('-') && word.contains('e'));
    let scripts = words[1..].iter().filter(|word| is_marked || !is_option(word));
    let is_letter = char::is_alphabetic;
    scripts.take(if is_marked { words.len() } else { 1 }).filter(|script| *script != "-e").any(|script| {
        script.match_indices('e').any(|(at, _)| {
            let (before, after) = (&script[..at], &script[at + 1..]);
            let flags = before.trim_end_matches(|c: char| "gpiImM".contains(c) || c.is_ascii_digit());
            !before.ends_with(is_letter) || !flags.ends_with(is_letter) && !after.starts_with(is_letter)
        })
    })
}

fn unquoted(text: &str) -> String {
    text.replace("\\\n", "").replace(['\'', '"', '\\'], "")
}

/// The words of a text in any language.
fn loose_words(text: &str) -> Vec<String> {
    let is_between = |c: char| !(c.is_alphanumeric() || "_./-+~".contains(c) || [UNKNOWN, SPLIT, GLOB].contains(&c));
    let words =
        |text: &str| -> Vec<_> { text.split(is_between).filter(|word| !word.is_empty()).map(str::to_owned).collect() };
    let mut all = words(&text.replace("\\n", " ").replace("\\t", " "));
    // The values of options such as `-Ocurl`.
    let is_joined = |word: &&String| word.starts_with('-') && word.chars().nth(1).is_some_and(char::is_alphabetic);
    let values: Vec<_> = all.iter().filter(is_joined).filter_map(|word| word.get(2..)).map(str::to_owned).collect();
    if text.contains(['\'', '"', '\\']) {
        all.extend(words(&unquoted(text)));
    }
    all.extend(values.into_iter().filter(|value| !value.is_empty()));
    all
}

impl CommandPart {
    /// Whether it is not known which program it runs.
    pub(super) fn is_unclear(&self) -> bool {
        let is_known = |word: &String| !word.contains(SPLIT) && !name_of(word).contains([UNKNOWN, GLOB]);
        !self.words.first().is_none_or(is_known)
    }

    /// Whether it runs a command that a pattern means.
    pub(super) fn find(&self, pattern: &CommandPattern<'_>) -> Option<PatternMatch> {
        let direct = pattern.matches(&self.assignments, &self.words, false);
        if direct == Some(PatternMatch::Definite) && self.run_by != RunBy::PerhapsLauncher {
            return direct;
        }
        // `docker run IMAGE/curl` has no program `curl`.
        let may_begin = |word: &str| {
            !word.contains([UNKNOWN, SPLIT, GLOB]) && (!word.contains('/') || word.starts_with(['/', '.', '~']))
        };
        let begins = |at: &usize| may_begin(&self.loose[*at]) && pattern.begins_with(&self.loose[*at]);
        let mut found = (0..self.loose.len()).filter(begins).enumerate().filter_map(|(count, at)| {
            let found = pattern.matches(&[], &self.loose[at..], false);
            if count < MAX_BEGINS { found } else { Some(PatternMatch::Possible) }
        });
        direct.max(found.next()).min(Some(PatternMatch::Possible))
    }
}
