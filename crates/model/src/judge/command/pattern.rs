//! Patterns of commands: words in order with options between them, and options in any order.

use super::lists::{LONG_OPTIONS, SUBCOMMAND_OPTIONS, has};
use super::shell::{GLOB, SPLIT, UNKNOWN, is_assignment};

/// How many words after a program are compared with a pattern.
const MAX_WORDS: usize = 32;

/// How surely a command is one that a pattern means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternMatch {
    Possible,
    Definite,
}

/// A pattern of a policy.
pub(super) struct CommandPattern<'a> {
    pub(super) text: &'a str,
    assignments: Vec<&'a str>,
    /// The program, its subcommands and other arguments.
    names: Vec<&'a str>,
    options: Vec<&'a str>,
}

impl<'a> CommandPattern<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut words: Vec<_> = text.split_whitespace().collect();
        // The rest, if there is any, is matched by every pattern.
        if words.len() > 1 && words.last() == Some(&"*") {
            words.pop();
        }
        let begin = words.iter().take_while(|word| is_assignment(word)).count();
        let (options, names) = words.iter().skip(begin).partition::<Vec<_>, _>(|word| is_option(word));
        Self { text, assignments: words[..begin].to_vec(), names, options }
    }

    /// Whether a command of the pattern may begin with a word.
    pub(super) fn begins_with(&self, word: &str) -> bool {
        self.names
            .first()
            .is_some_and(|glob| [word, name_of(word)].iter().any(|word| word_matches(glob, word).is_some()))
    }

    /// Whether a command is one that the pattern means. Without `strictly`, a program may be in any folder. With it, a match is definite
    /// only if nothing else changes what the words do.
    pub(super) fn matches(&self, assignments: &[String], words: &[String], strictly: bool) -> Option<PatternMatch> {
        let ((program, words), (glob, names)) = (words.split_first()?, self.names.split_first()?);
        let is_set = |glob: &&str| assignments.iter().any(|word| word_matches(glob, word).is_some());
        let is_known = |word: &String| self.assignments.iter().any(|glob| word_matches(glob, word).is_some());
        if !self.assignments.iter().all(is_set) || strictly && !assignments.iter().all(is_known) {
            return None;
        }
        let name = if glob.contains('/') || strictly || program.contains(SPLIT) { program } else { name_of(program) };
        let found = if strictly && *glob == "*" { Some(PatternMatch::Definite) } else { word_matches(glob, name) };
        found?;
        let names = names_match(name_of(program), names, words, strictly);
        let is_rm = name_of(program) == "rm";
        self.options.iter().map(|option| option_matches(option, words, is_rm)).fold(found.min(names), Option::min)
    }
}

/// Matches words in order. Options may stand between them, and the values of options.
fn names_match(program: &str, names: &[&str], words: &[String], strictly: bool) -> Option<PatternMatch> {
    let Some((name, names)) = names.split_first() else { return Some(PatternMatch::Definite) };
    let table = SUBCOMMAND_OPTIONS.iter().find(|(name, _)| *name == program).map(|(_, options)| *options);
    let (mut sure, mut best, mut may_be_value, mut is_value) = (PatternMatch::Definite, None, false, false);
    for (at, word) in words.iter().enumerate() {
        if word.contains(SPLIT) || at == MAX_WORDS {
            return best.max(Some(PatternMatch::Possible));
        }
        let found = if is_value {
            // It may say what a name means: `git -c alias.p=push p`.
            word.split_once('=').and_then(|(_, value)| word_matches(name, value)).min(Some(PatternMatch::Possible))
        } else {
            let is_beginning = !strictly && word.len() > 2 && name.starts_with(word.as_str());
            let found = word_matches(name, word).max(is_beginning.then_some(PatternMatch::Possible));
            found.min(Some(if may_be_value && strictly { PatternMatch::Possible } else { sure }))
        };
        if found.is_some() {
            best = best.max(found.min(names_match(program, names, &words[at + 1..], strictly)));
        }
        let is_unsafe = is_option(word) && table.is_some_and(|table| has(table, &format!("!{}", self::name(word))));
        if is_unsafe && strictly || word == "--" {
            sure = PatternMatch::Possible;
        }
        if is_option(word) && !is_value {
            is_value = is_unsafe && !word.contains('=') || table.is_some_and(|table| has(table, word));
            may_be_value = table.is_none() && !word.contains('=') && !word.starts_with('+') && word != "--";
        } else if is_value {
            is_value = false;
        } else if may_be_value {
            (may_be_value, sure) = (false, PatternMatch::Possible);
        } else {
            break;
        }
    }
    best
}

/// Whether an option is among the words: in any place before `--`, joined with others, or in its other form.
fn option_matches(option: &str, words: &[String], is_rm: bool) -> Option<PatternMatch> {
    let words = words.split(|word| word == "--").next().unwrap_or_default();
    if words.iter().any(|word| name(word) == option || word_matches(option, word) == Some(PatternMatch::Definite)) {
        return Some(PatternMatch::Definite);
    }
    // What `rm` has as its only argument it does not remove if it is an option. A name such as `*.log` is none.
    let is_alone = is_rm && words.iter().filter(|word| !is_option(word)).count() == 1;
    let may_be_option = |word: &String| {
        let is_letter = |c: char| c.is_ascii_alphabetic() || "-=".contains(c) || [UNKNOWN, GLOB].contains(&c);
        word.contains(SPLIT)
            || word.starts_with([UNKNOWN, GLOB]) && word.chars().all(is_letter) && (!is_alone || word.contains(GLOB))
    };
    let unknown = words.iter().any(may_be_option).then_some(PatternMatch::Possible);
    let has_letter = |letter: char| {
        let is_short = |word: &&String| word.starts_with('-') && !word.starts_with("--");
        let is_in = |word: &String| word.contains(letter) || letter == 'r' && word.contains('R');
        let joined = words.iter().filter(is_short).any(is_in).then_some(PatternMatch::Definite);
        let long = LONG_OPTIONS.split(' ').find(|long| long.starts_with(letter));
        // The beginning of a long option is enough.
        let is_long = |word: &String| {
            name(word)
                .strip_prefix("--")
                .is_some_and(|name| name.len() > 1 && long.is_some_and(|long| long.starts_with(name)))
        };
        joined.max(words.iter().any(is_long).then_some(PatternMatch::Possible))
    };
    let found = match option.strip_prefix("--") {
        Some(long) if has(LONG_OPTIONS, long) => {
            long.chars().next().and_then(has_letter).min(Some(PatternMatch::Possible))
        }
        // More letters are one option: `find -delete`.
        None if option.len() <= 4 => option.chars().skip(1).map(has_letter).min().flatten(),
        Some(_) | None => None,
    };
    found.max(unknown)
}

/// The name of a long option without its value.
fn name(word: &str) -> &str {
    word.split('=').next().unwrap_or_default()
}

pub(super) fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with(['-', '+'])
}

/// The name of a program without its folder.
pub(super) fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a word is what `glob` means, in which `*` is any text.
fn word_matches(glob: &str, word: &str) -> Option<PatternMatch> {
    let special = |c: char| [UNKNOWN, SPLIT, GLOB].contains(&c);
    if let (Some(first), Some(last)) = (word.find(special), word.rfind(special)) {
        let fits = glob.contains('*') || glob.starts_with(&word[..first]) && glob.ends_with(&word[last + 1..]);
        return fits.then_some(PatternMatch::Possible);
    }
    let mut pieces = glob.split('*');
    let mut rest = word.strip_prefix(pieces.next().unwrap_or_default())?;
    let mut pieces: Vec<_> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty().then_some(PatternMatch::Definite) };
    for piece in pieces {
        rest = &rest[rest.find(piece)? + piece.len()..];
    }
    rest.ends_with(last).then_some(PatternMatch::Definite)
}
