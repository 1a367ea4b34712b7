//! Takes a line apart as a POSIX shell does, as far as that is certain without running it.

use std::iter::Peekable;
use std::str::Chars;

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// Its text, without quotes.
    pub(super) text: String,
    /// Whether the shell takes it as it is. If not, it becomes something else: a variable, names of files.
    pub(super) is_exact: bool,
}

impl ShellWord {
    pub(super) fn exact(text: &str) -> Self {
        Self { text: text.to_owned(), is_exact: true }
    }

    /// Whether it sets a variable of the command after it.
    pub(super) fn is_assignment(&self) -> bool {
        self.text.split_once('=').is_some_and(|(name, _)| assigns(name))
    }
}

/// Whether what is before a `=` names a variable, to some shells one of its elements, or is added to one.
pub(super) fn assigns(name: &str) -> bool {
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').filter(|(_, index)| index.ends_with(']')).map_or(name, |(name, _)| name);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_name) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The most commands of a line.
const MAX_PARTS: usize = 256;
/// Words that begin what is more than one command.
const RESERVED: [&str; 21] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select", "function",
    "coproc", "{", "}", "[[", "]]", "in", "!",
];

/// Returns the commands of a line; `None` if it has what only a shell can tell: substitutions, loops, functions, texts that follow.
pub(super) fn parts_of(line: &str) -> Option<Vec<Vec<ShellWord>>> {
    let mut reader = Reader {
        chars: line.chars().peekable(),
        parts: Vec::new(),
        words: Vec::new(),
        is_target: false,
        redirects: false,
    };
    reader.read()?;
    reader.end_part()?;
    Some(reader.parts)
}

/// Whether a character looks like a blank and is none to a shell, or controls something.
pub(super) fn is_strange(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// What looks like a word.
enum ShellPiece {
    Word(ShellWord),
    /// The number of a stream that is redirected.
    Stream,
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    parts: Vec<Vec<ShellWord>>,
    words: Vec<ShellWord>,
    /// Whether the next word names the file of a redirection.
    is_target: bool,
    /// Whether the command has a redirection.
    redirects: bool,
}

impl Reader<'_> {
    fn read(&mut self) -> Option<()> {
        loop {
            match self.chars.peek().copied() {
                None => return Some(()),
                Some('\n' | ';' | '&' | '|') => self.operator()?,
                Some('<' | '>') => self.redirection()?,
                Some('(' | ')' | '`') => return None,
                Some(' ' | '\t') => {
                    self.chars.next();
                }
                // A line that goes on.
                Some('\\') if self.continues() => {}
                Some(c) if is_strange(c) => return None,
                Some('#') => while self.chars.next_if(|c| *c != '\n').is_some() {},
                Some(_) => {
                    if let ShellPiece::Word(word) = self.word()? {
                        self.add(word);
                    }
                }
            }
        }
    }

    /// Skips a backslash at the end of a line, which joins two lines.
    fn continues(&mut self) -> bool {
        let mut ahead = self.chars.clone();
        let is_end = ahead.next() == Some('\\') && ahead.next() == Some('\n');
        if is_end {
            self.chars = ahead;
        }
        is_end
    }

    fn add(&mut self, word: ShellWord) {
        if !std::mem::take(&mut self.is_target) {
            self.words.push(word);
        }
    }

    /// Reads what ends a command.
    fn operator(&mut self) -> Option<()> {
        let first = self.chars.next()?;
        match (first, self.chars.peek().copied()) {
            ('&', Some('&')) | ('|', Some('|' | '&')) => {
                self.chars.next();
            }
            // `&>` is both outputs into a file to one shell, and a command in the background to another.
            (';', Some(';' | '&')) | ('&', Some('>')) => return None,
            _ => {}
        }
        self.end_part()
    }

    fn redirection(&mut self) -> Option<()> {
        let first = self.chars.next()?;
        let second = self.chars.next_if(|c| matches!(c, '<' | '>' | '&' | '|'));
        match (first, second) {
            // A text that follows, and the pipe of a command.
            ('<', Some('<')) if self.chars.next_if_eq(&'<').is_none() => return None,
            _ if self.chars.peek() == Some(&'(') => return None,
            (_, Some('&')) if !self.chars.peek().is_some_and(|c| c.is_ascii_digit() || *c == '-') => return None,
            _ => {}
        }
        if self.is_target {
            return None;
        }
        (self.is_target, self.redirects) = (true, true);
        Some(())
    }

    fn end_part(&mut self) -> Option<()> {
        if self.is_target {
            return None;
        }
        let mut words = std::mem::take(&mut self.words);
        if std::mem::take(&mut self.redirects) && words.is_empty() {
            // It makes or empties a file.
            words.push(ShellWord::exact(">"));
        }
        let program = words.iter().find(|word| !word.is_assignment());
        if program.is_some_and(|program| RESERVED.contains(&program.text.as_str())) {
            return None;
        }
        if !words.is_empty() {
            self.parts.push(words);
        }
        (self.parts.len() <= MAX_PARTS).then_some(())
    }

    /// Reads a word, or what looks like one and is none.
    fn word(&mut self) -> Option<ShellPiece> {
        let (mut word, mut is_plain) = (ShellWord { text: String::new(), is_exact: true }, true);
        while let Some(c) = self.chars.peek().copied() {
            match c {
                // Digits before a redirection are the number of a stream.
                '<' | '>' if is_plain && word.text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    return Some(ShellPiece::Stream);
                }
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' => break,
                '(' | ')' | '`' => return None,
                c if is_strange(c) => return None,
                '\'' => {
                    is_plain = false;
                    self.chars.next();
                    self.single_quoted(&mut word)?;
                }
                '"' => {
                    is_plain = false;
                    self.chars.next();
                    self.double_quoted(&mut word)?;
                }
                '\\' => {
                    self.chars.next();
                    match self.chars.next()? {
                        '\n' => {}
                        c => word.text.push(c),
                    }
                }
                '$' => {
                    self.chars.next();
                    self.variable(&mut word)?;
                }
                _ => {
                    self.chars.next();
                    word.is_exact &= !matches!(c, '*' | '?' | '[' | '{' | '~');
                    word.text.push(c);
                }
            }
        }
        // The program `[` is no pattern.
        word.is_exact |= word.text == "[";
        Some(ShellPiece::Word(word))
    }

    fn single_quoted(&mut self, word: &mut ShellWord) -> Option<()> {
        loop {
            match self.chars.next()? {
                '\'' => return Some(()),
                c => word.text.push(c),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut ShellWord) -> Option<()> {
        loop {
            match self.chars.next()? {
                '"' => return Some(()),
                '`' => return None,
                '$' => self.variable(word)?,
                '\\' => match self.chars.next()? {
                    '\n' => {}
                    c @ ('"' | '\\' | '$' | '`') => word.text.push(c),
                    c => word.text.extend(['\\', c]),
                },
                c => word.text.push(c),
            }
        }
    }

    /// Reads what follows a `$`.
    fn variable(&mut self, word: &mut ShellWord) -> Option<()> {
        match self.chars.peek() {
            Some('(' | '\'' | '"') => return None,
            Some('{') => loop {
                match self.chars.next()? {
                    '}' => break,
                    c if c == '{' || c == '_' || c.is_ascii_alphanumeric() => {}
                    // It may run a command.
                    _ => return None,
                }
            },
            _ => {}
        }
        word.is_exact = false;
        word.text.push('$');
        Some(())
    }
}
