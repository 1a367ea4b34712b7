//! Splits a command line into commands as a POSIX shell does, without running anything. What it does not know it refuses to guess.

/// Stands in a word for a text that only the shell knows.
pub(super) const UNKNOWN: char = '\0';
/// Stands in a word for what may become several words.
pub(super) const SPLIT: char = '\u{1}';
/// Stands in a word for what may become several names of files.
pub(super) const GLOB: char = '\u{2}';
/// The most commands of a line, and the deepest nesting of groups and substitutions.
const LIMITS: (usize, usize) = (256, 16);
/// Words of the shell's syntax around a command.
const SYNTAX: [&str; 12] = ["if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!", "{", "}"];

/// One command of a line, those of substitutions included.
#[derive(Default)]
pub(super) struct ShellCommand {
    pub(super) assignments: Vec<String>,
    /// The words without quotes, with [`UNKNOWN`] and [`SPLIT`] in place of what the shell expands.
    pub(super) words: Vec<String>,
    /// What it is given by `<<` and `<<<`.
    pub(super) texts: Vec<String>,
    inputs: Vec<usize>,
    /// Whether no more words may follow.
    is_closed: bool,
}

impl ShellCommand {
    pub(super) fn of(words: Vec<String>) -> Self {
        Self { words, ..Self::default() }
    }
}

/// Splits a text of a line, which is given without quotes. Returns whether the whole text was understood, too: what cannot be parsed
/// ends it.
pub(super) fn parse(text: &str, line: &str) -> (Vec<ShellCommand>, bool) {
    let mut reader = Reader { line, rest: text, ..Reader::default() };
    let is_complete = !text.contains([UNKNOWN, SPLIT, GLOB]) && reader.list(None).is_some();
    for command in &mut reader.commands {
        command.texts = command.inputs.iter().map(|at| reader.texts[*at].clone()).collect();
    }
    (reader.commands, is_complete)
}

/// Whether a word sets a variable: `NAME=VALUE`, `NAME+=VALUE` or `NAME[INDEX]=VALUE`.
pub(super) fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name.split(['+', '[']).next().unwrap_or_default());
    is_name(name) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A text that begins on the next line.
struct HereDocument {
    /// Its place among the texts.
    at: usize,
    delimiter: String,
    is_quoted: bool,
    strips_tabs: bool,
}

/// Its methods return `None` where the line cannot be parsed.
#[derive(Default)]
struct Reader<'a> {
    line: &'a str,
    rest: &'a str,
    depth: usize,
    commands: Vec<ShellCommand>,
    documents: Vec<HereDocument>,
    texts: Vec<String>,
}

impl<'a> Reader<'a> {
    /// The next character. The shell joins lines before it looks at anything else.
    fn peek(&mut self) -> Option<char> {
        while let Some(rest) = self.rest.strip_prefix("\\\n") {
            self.rest = rest;
        }
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn eat(&mut self, chars: &str) -> Option<char> {
        self.peek().filter(|c| chars.contains(*c)).and_then(|_| self.next())
    }

    /// Takes the text up to `end`, which must not have characters that need parsing.
    fn plain(&mut self, end: &str, special: &[char]) -> Option<&'a str> {
        let (text, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        (!text.contains(special)).then_some(text)
    }

    /// Reads commands up to `end`.
    fn list(&mut self, end: Option<char>) -> Option<()> {
        self.depth += 1;
        if self.depth > LIMITS.1 {
            return None;
        }
        let mut command = ShellCommand::default();
        while let Some(c) = self.peek().filter(|c| Some(*c) != end) {
            let words = &mut command.words;
            match c {
                ' ' | '\t' => drop(self.next()),
                '\n' | ';' | '&' | '|' => {
                    self.next();
                    let second = self.peek();
                    // To some shells `&>` ends the command.
                    command.is_closed |= (c, second) == ('&', Some('>'));
                    match (c, second) {
                        (';', Some(';' | '&')) => return None,
                        ('&', Some('>')) => continue,
                        ('&', Some('&')) | ('|', Some('|' | '&')) => drop(self.next()),
                        ('\n', _) => self.here_documents()?,
                        _ => {}
                    }
                    self.end(std::mem::take(&mut command))?;
                }
                '#' => self.rest = self.rest.find('\n').map_or("", |at| &self.rest[at..]),
                '<' | '>' => self.redirection(&mut command)?,
                '(' => self.parenthesis(words)?,
                ')' => return None,
                _ => {
                    let before = self.rest;
                    let word = self.word()?;
                    let is_number = before[..before.len() - self.rest.len()].bytes().all(|byte| byte.is_ascii_digit());
                    // The number of a stream.
                    if !(is_number && self.rest.starts_with(['<', '>'])) {
                        words.push(word);
                        (!command.is_closed).then_some(())?;
                    }
                }
            }
        }
        self.end(command)?;
        self.depth -= 1;
        self.documents.is_empty().then_some(())?;
        end.map_or(Some(()), |_| self.next().map(drop))
    }

    /// Reads what begins with a parenthesis after the words of a command.
    fn parenthesis(&mut self, words: &mut Vec<String>) -> Option<()> {
        if words.last().is_some_and(|word| word == "for") {
            self.rest = self.rest.strip_prefix("((")?;
            self.plain("))", &['(', ')', '`', '\\'])?;
        } else if words.last().is_some_and(|word| is_assignment(word) && word.ends_with('=')) {
            self.next();
            while self.eat(")").is_none() {
                if self.eat(" \t\n").is_none() {
                    self.word()?;
                }
            }
        } else if words.iter().all(|word| SYNTAX.contains(&word.as_str())) {
            self.next();
            // To some shells, `((` begins a calculation.
            let inner = self.rest.split("))").next().filter(|inner| inner.starts_with('('));
            inner.is_none_or(|inner| !inner.contains("<<")).then_some(())?;
            self.list(Some(')'))?;
        } else if words.iter().any(|word| word == "[[") && words.iter().any(|word| word == "=~") {
            let text = self.plain(" ]]", &['`', '\'', '"', '\\', ';', '&', '\n', '{', '<', '>'])?;
            (!text.contains("$(")).then_some(())?;
            words.push("]]".to_owned());
        } else {
            return None;
        }
        Some(())
    }

    fn end(&mut self, mut command: ShellCommand) -> Option<()> {
        loop {
            let words = &mut command.words;
            let begin = words.iter().take_while(|word| SYNTAX.contains(&word.as_str())).count();
            words.drain(..begin);
            match words.first().map_or("", String::as_str) {
                "for" | "select" => match words.iter().take(3).position(|word| word == "do" || word == "{") {
                    Some(at) => drop(words.drain(..at)),
                    None if words.get(2).is_none_or(|word| word == "in") => return Some(()),
                    None => return None,
                },
                // Its end ends the command: `if [[ a ]] then b`.
                "[[" => match words.iter().position(|word| word == "]]").filter(|at| at + 1 < words.len()) {
                    Some(at) => self.commands.push(ShellCommand::of(words.drain(..=at).collect())),
                    None => break,
                },
                "case" | "esac" | "function" | "coproc" => return None,
                _ => break,
            }
        }
        let count = command.words.iter().take_while(|word| is_assignment(word)).count();
        command.assignments = command.words.drain(..count).collect();
        if command.words.len() + count > 0 {
            self.commands.push(command);
        }
        (self.commands.len() <= LIMITS.0).then_some(())
    }

    fn redirection(&mut self, command: &mut ShellCommand) -> Option<()> {
        let first = self.next()?;
        if self.eat("(").is_some() {
            command.words.push(SPLIT.to_string());
            return self.list(Some(')'));
        }
        let second = self.eat(if first == '<' { "<>&" } else { ">&|" });
        let is_text = (first, second) == ('<', Some('<'));
        let is_document = is_text && self.eat("<").is_none();
        let strips_tabs = is_document && self.eat("-").is_some();
        while self.eat(" \t").is_some() {}
        let before = self.rest;
        let delimiter = self.word()?;
        if is_document {
            let is_quoted = before[..before.len() - self.rest.len()].contains(['\'', '"', '\\']);
            (!delimiter.contains([UNKNOWN, SPLIT])).then_some(())?;
            let delimiter = delimiter.clone();
            self.documents.push(HereDocument { at: self.texts.len(), delimiter, is_quoted, strips_tabs });
        }
        if is_text {
            command.inputs.push(self.texts.len());
            self.texts.push(delimiter);
        }
        Some(())
    }

    fn here_documents(&mut self) -> Option<()> {
        for document in std::mem::take(&mut self.documents) {
            let mut text = String::new();
            loop {
                let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
                let shown = if document.strips_tabs { line.trim_start_matches('\t') } else { line };
                // A line that goes on may be the beginning of the delimiter.
                if self.rest.is_empty() || !document.is_quoted && line.ends_with('\\') {
                    return None;
                }
                self.rest = rest;
                if shown == document.delimiter {
                    break;
                }
                text += line;
                text.push('\n');
            }
            if !document.is_quoted {
                self.inner(&text, |inner| inner.quoted(None, &mut String::new()))?;
            }
            self.texts[document.at] = text;
        }
        Some(())
    }

    /// Reads another text as a part of this one.
    fn inner(&mut self, text: &str, read: impl FnOnce(&mut Reader<'_>) -> Option<()>) -> Option<()> {
        let texts = std::mem::take(&mut self.texts);
        let mut inner = Reader { line: self.line, rest: text, depth: self.depth, texts, ..Reader::default() };
        let is_read = read(&mut inner);
        self.texts = inner.texts;
        self.commands.extend(inner.commands);
        is_read
    }

    /// Reads what is between backquotes, which is read twice if it has a backslash.
    fn backquoted(&mut self) -> Option<()> {
        let text = self.plain("`", &['\\'])?;
        self.inner(text, |inner| inner.list(None))
    }

    fn word(&mut self) -> Option<String> {
        let (before, mut word) = (self.rest, String::new());
        while let Some(c) = self.peek().filter(|c| !" \t\n;&|<>()".contains(*c)) {
            self.next();
            match c {
                '\'' => word += self.plain("'", &[])?,
                '"' => self.quoted(Some('"'), &mut word)?,
                '$' => self.expansion(false, &mut word)?,
                '\\' => word.push(self.next()?),
                '*' | '?' | '[' | ']' => word.push(GLOB),
                '~' if word.is_empty() => word.push(UNKNOWN),
                '{' if self.eat("}").is_some() => word += "{}",
                '{' => word.push(SPLIT),
                '`' => {
                    self.backquoted()?;
                    word.push(SPLIT);
                }
                // They look like blanks and are none.
                c if c.is_whitespace() || c.is_control() => return None,
                c => word.push(c),
            }
        }
        let raw = &before[..before.len() - self.rest.len()];
        if ["[", "[[", "]", "]]", "{"].contains(&raw) {
            raw.clone_into(&mut word);
        }
        (!raw.is_empty()).then_some(word)
    }

    /// Reads a text with expansions up to `end`: between double quotes, or a here-document.
    fn quoted(&mut self, end: Option<char>, word: &mut String) -> Option<()> {
        while let Some(c) = self.peek() {
            self.next();
            match c {
                c if Some(c) == end => return Some(()),
                '`' => {
                    self.backquoted()?;
                    word.push(UNKNOWN);
                }
                '$' => self.expansion(true, word)?,
                '\\' => match self.next()? {
                    c @ ('"' | '\\' | '$' | '`') => word.push(c),
                    c => word.extend(['\\', c]),
                },
                c => word.push(c),
            }
        }
        end.is_none().then_some(())
    }

    /// Reads what follows a `$`.
    fn expansion(&mut self, is_quoted: bool, word: &mut String) -> Option<()> {
        let unknown = if is_quoted { UNKNOWN } else { SPLIT };
        match self.peek() {
            Some('(') => {
                self.next();
                if self.eat("(").is_some() {
                    self.plain("))", &['(', ')', '`', '\'', '"', '\\'])?;
                } else {
                    self.list(Some(')'))?;
                }
                word.push(unknown);
            }
            Some('{') => {
                self.next();
                let inner = self.plain("}", &['$', '`', '\'', '"', '\\', '=', '{'])?;
                let (name, default) = inner.split_once('-').unwrap_or((inner, ""));
                // `${x@P}` runs what is in the value.
                let is_array = inner.ends_with("[@]") || inner == "@";
                (is_array || !inner.contains('@')).then_some(())?;
                let unknown = if is_array { SPLIT } else { unknown };
                let is_known = self.is_environment(name.trim_end_matches(':'));
                if is_known && !default.is_empty() && !default.contains(char::is_whitespace) {
                    *word += default;
                } else {
                    word.push(if is_known && default.is_empty() { UNKNOWN } else { unknown });
                }
            }
            Some(c) if c == '_' || c.is_ascii_alphanumeric() => {
                let mut name = String::new();
                while let Some(c) = self.peek().filter(|c| *c == '_' || c.is_ascii_alphanumeric()) {
                    name.push(c);
                    self.next();
                }
                word.push(if self.is_environment(&name) { UNKNOWN } else { unknown });
            }
            Some(c @ ('@' | '*' | '#' | '?' | '$' | '!' | '-')) => {
                self.next();
                word.push(if c == '@' { SPLIT } else { unknown });
            }
            Some('[') => return None,
            Some('\'' | '"') if !is_quoted => return None,
            _ => word.push('$'),
        }
        Some(())
    }

    /// Whether a variable is the environment's: the line has its name only after a `$`.
    fn is_environment(&self, name: &str) -> bool {
        let names = || self.line.match_indices(name).take(LIMITS.0);
        is_name(name)
            && names().count() < LIMITS.0
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && names().all(|(at, _)| self.line[..at].ends_with(['$', '{']))
    }
}
