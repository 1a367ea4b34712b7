//! What a text may run that cannot be taken apart for certain: its words, which of them may be a program, and which may become any words.
//!
//! It is read with leave: where shells differ, or quotes are not closed, more is taken for a command than would be one.

use std::iter::Peekable;
use std::str::Chars;

use super::shell::{assigns, is_strange};
use super::{CommandPattern, glob_matches, is_runner, name_of};

/// The words after which a command begins.
const BEFORE_COMMANDS: [&str; 10] = ["if", "then", "else", "elif", "while", "until", "do", "!", "time", "coproc"];
/// The options of `find` after which a command begins.
const FIND_STARTERS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
/// How many letters of an option may stand before its value, in the same word.
const MAX_OPTION_LETTERS: usize = 16;

/// What looks like a word anywhere in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextWord {
    /// Its text, without quotes.
    text: String,
    /// Whether it has no variable, no substitution and no braces. With those, it may become any words.
    is_exact: bool,
    /// Whether it may be the program of a command.
    may_begin: bool,
    /// Whether it may belong to a redirection, and so be no word of the command around it.
    may_be_target: bool,
}

/// How surely a text has a command that a pattern means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likeness {
    /// It becomes one if a word is expanded to it.
    Possible,
    /// It has the words.
    Written,
}

/// Whether one of the commands in a text may be one that `pattern` means: its words follow each other, redirections left out, or
/// begin before a word that may become any.
pub(super) fn occurs(pattern: &CommandPattern<'_>, text: &[TextWord]) -> Option<Likeness> {
    let mut found = None;
    // At `n`: whether the first n + 1 words of the pattern end before the word that is looked at.
    let mut reached = vec![false; pattern.words.len()];
    for word in text {
        if !word.is_exact && (word.may_begin || reached.contains(&true)) {
            found = Some(Likeness::Possible);
        }
        // From its end, so that what is before still tells of the words before.
        for (at, glob) in pattern.words.iter().enumerate().rev() {
            let is_next = at == 0 || reached[at - 1];
            reached[at] = (word.may_be_target && reached[at]) || (is_next && word.may_be(glob, at == 0));
        }
        if reached.last() == Some(&true) {
            return Some(Likeness::Written);
        }
    }
    found
}

impl TextWord {
    fn may_be(&self, glob: &str, as_program: bool) -> bool {
        if glob_matches(glob, &self.text) {
            return true;
        }
        if !as_program {
            return false;
        }
        let program = if glob.contains('/') { &self.text } else { name_of(&self.text) };
        glob_matches(glob, program)
            || (self.may_begin && (names_may_be(program, glob) || is_value_of_option(&self.text, glob)))
    }
}

/// Whether a pattern of file names may stand for a program: if what is before and after its special characters fits.
fn names_may_be(names: &str, glob: &str) -> bool {
    let is_special = |c: char| "*?[~".contains(c);
    let (Some(first), Some(last)) = (names.find(is_special), names.rfind(|c| is_special(c) || c == ']')) else {
        return false;
    };
    // `[` and `[[` are programs.
    !names.chars().all(|c| c == '[')
        && (glob.contains('*') || (glob.starts_with(&names[..first]) && glob.ends_with(&names[last + 1..])))
}

/// Whether a word is letters of options, and then what `glob` means: `-Scurl`.
fn is_value_of_option(word: &str, glob: &str) -> bool {
    let Some(letters) = word.strip_prefix('-') else { return false };
    letters.char_indices().skip(1).take(MAX_OPTION_LETTERS).any(|(at, _)| glob_matches(glob, name_of(&letters[at..])))
}

/// Returns what looks like a word in `text`. Quotes are taken away, and do not end a word.
pub(super) fn words_in(text: &str) -> Vec<TextWord> {
    let mut reader = TextReader::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => reader.escape(&mut chars),
            '"' | '\'' => reader.quote(c),
            '$' => reader.dollar(&mut chars),
            '`' if reader.close(Bracket::Backquote) => {}
            '`' => reader.open_expansion(Bracket::Backquote),
            '(' => reader.open(Bracket::Group),
            ')' if reader.close(Bracket::Substitution) => {}
            // Also after what a `case` compares with.
            ')' => {
                reader.close(Bracket::Group);
                reader.end_command();
            }
            '{' => reader.brace(&mut chars),
            '}' => {
                reader.close(Bracket::Variable);
                reader.end_word();
            }
            '<' | '>' => reader.redirection(&mut chars),
            // `&>` is a redirection to one shell, and the end of a command to another.
            '&' if chars.peek() == Some(&'>') => reader.end_word(),
            ';' | '|' | '&' | '\n' => reader.end_command(),
            '=' => reader.assign(),
            ',' => reader.end_word(),
            c if is_blank(c) => reader.blank(),
            c => reader.word.push(c),
        }
    }
    reader.end_word();
    reader.words
}

fn is_blank(c: char) -> bool {
    c == ' ' || is_strange(c)
}

/// What the next word may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordPlace {
    Program,
    /// An argument of a program that runs another, before that one's name is certain.
    Runner {
        /// Whether the word before is an option, whose value the next one may be.
        is_after_option: bool,
    },
    Argument,
}

/// What is closed again, and what was expected where it was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Substitution,
    Variable,
    Backquote,
    Group,
}

struct TextReader {
    words: Vec<TextWord>,
    word: String,
    is_exact: bool,
    place: WordPlace,
    /// What is expected after the value that is read.
    after_value: Option<WordPlace>,
    is_target: bool,
    quote: Option<char>,
    opened: Vec<(Bracket, WordPlace)>,
}

impl TextReader {
    fn new() -> Self {
        Self {
            words: Vec::new(),
            word: String::new(),
            is_exact: true,
            place: WordPlace::Program,
            after_value: None,
            is_target: false,
            quote: None,
            opened: Vec::new(),
        }
    }

    fn quote(&mut self, c: char) {
        match self.quote {
            None => self.quote = Some(c),
            Some(opened) if opened == c => self.quote = None,
            Some(_) => {}
        }
    }

    fn end_word(&mut self) {
        if self.word.is_empty() && self.is_exact {
            return;
        }
        let word = TextWord {
            text: std::mem::take(&mut self.word),
            is_exact: std::mem::replace(&mut self.is_exact, true),
            may_begin: self.place != WordPlace::Argument,
            may_be_target: self.is_target,
        };
        if !self.is_target {
            self.place = self.place.after(&word);
        }
        self.words.push(word);
    }

    fn blank(&mut self) {
        self.end_word();
        self.is_target &= self.quote.is_some();
        self.place = self.after_value.take().unwrap_or(self.place);
    }

    fn end_command(&mut self) {
        self.blank();
        self.place = WordPlace::Program;
    }

    /// Ends the name of a variable or of an option.
    fn assign(&mut self) {
        let before = self.place;
        let is_variable = assigns(&self.word);
        self.end_word();
        if is_variable && before != WordPlace::Argument {
            self.after_value.get_or_insert(before);
            self.place = WordPlace::Argument;
        }
    }

    fn escape(&mut self, chars: &mut Peekable<Chars<'_>>) {
        match chars.peek() {
            // Two lines that are one, or a quote that opens nothing.
            Some('\n' | '"' | '\'') => drop(chars.next()),
            Some(' ') if self.is_target => {
                chars.next();
                self.end_word();
            }
            _ => {}
        }
    }

    /// Reads what follows a `$`.
    fn dollar(&mut self, chars: &mut Peekable<Chars<'_>>) {
        if chars.next_if_eq(&'(').is_some() {
            self.open_expansion(Bracket::Substitution);
        } else if chars.next_if_eq(&'{').is_some() {
            self.open_expansion(Bracket::Variable);
        } else {
            self.is_exact = false;
            while chars.next_if(|c| c.is_ascii_alphanumeric() || "_@*#?!-".contains(*c)).is_some() {}
        }
    }

    /// Reads what follows a `{`.
    fn brace(&mut self, chars: &mut Peekable<Chars<'_>>) {
        let is_between = self.word.is_empty() && self.is_exact;
        if chars.next_if_eq(&'}').is_some() {
            self.word.push_str("{}");
        } else if is_between && chars.peek().is_none_or(|c| is_blank(*c)) {
            self.place = WordPlace::Program;
        } else {
            // Choices: `{git,push}`, `c{u,}rl`.
            self.is_exact = false;
        }
    }

    /// Reads what follows a `<` or a `>`, up to the target.
    fn redirection(&mut self, chars: &mut Peekable<Chars<'_>>) {
        while chars.next_if(|c| "<>&|".contains(*c)).is_some() {}
        if chars.next_if_eq(&'(').is_some() {
            self.open(Bracket::Substitution);
            return;
        }
        while chars.next_if(|c| " \t".contains(*c)).is_some() {}
        // Digits before it are the number of a stream.
        self.is_target = self.word.bytes().all(|byte| byte.is_ascii_digit());
        self.end_word();
        self.is_target = true;
    }

    fn open(&mut self, bracket: Bracket) {
        self.end_word();
        self.opened.push((bracket, self.place));
        self.place = if bracket == Bracket::Variable { WordPlace::Argument } else { WordPlace::Program };
    }

    fn open_expansion(&mut self, bracket: Bracket) {
        self.is_exact = false;
        self.open(bracket);
    }

    /// Closes what was opened last, if that is what is meant.
    fn close(&mut self, bracket: Bracket) -> bool {
        let Some((_, place)) = self.opened.pop_if(|(last, _)| *last == bracket) else { return false };
        self.end_word();
        self.place = place;
        true
    }
}

impl WordPlace {
    /// What is expected after a word in this place.
    fn after(self, word: &TextWord) -> Self {
        let text = word.text.as_str();
        let runner = Self::Runner { is_after_option: false };
        match self {
            Self::Argument if FIND_STARTERS.contains(&text) => Self::Program,
            Self::Argument => Self::Argument,
            _ if BEFORE_COMMANDS.contains(&text) => Self::Program,
            _ if word.is_exact && name_of(text) == "find" => Self::Argument,
            _ if word.is_exact && is_runner(text) => runner,
            // The text of a shell.
            Self::Runner { .. } if text.starts_with('-') && text.ends_with('c') => Self::Program,
            Self::Runner { .. } if text.starts_with('-') => Self::Runner { is_after_option: true },
            Self::Runner { .. } if text.starts_with(|c: char| c.is_ascii_digit()) => runner,
            Self::Runner { is_after_option: true } => runner,
            Self::Program | Self::Runner { is_after_option: false } => Self::Argument,
        }
    }
}
