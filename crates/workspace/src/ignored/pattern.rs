//! The patterns of ignore rules, matched as git matches them: byte by byte, in bounded time.

/// What may still be spent on comparing one path with the patterns of a file.
pub(super) struct Steps(usize);

impl Default for Steps {
    fn default() -> Self {
        // A few milliseconds. Only patterns made to be slow need as many.
        Self(1_000_000)
    }
}

impl Steps {
    /// Takes one step; `None` if none is left.
    fn take(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// One rule of a `.gitignore`.
pub(super) struct Rule {
    /// Whether it takes files back in.
    pub(super) is_negated: bool,
    only_folders: bool,
    /// Whether the pattern has a `/`, so that it is compared with the path and not with the last name.
    pub(super) has_folder: bool,
    pub(super) pattern: IgnorePattern,
}

/// What a rule is compared with.
pub(super) enum IgnorePattern {
    /// These bytes.
    Literal(Vec<u8>),
    /// Anything, and then these bytes.
    Suffix(Vec<u8>),
    Glob(Vec<PatternToken>),
}

/// A part of a glob.
pub(super) enum PatternToken {
    Byte(u8),
    /// One byte other than `/`.
    Any,
    /// One byte of a set, other than `/`: a bit for each.
    Set(Box<[u64; 4]>),
    /// Bytes other than `/`.
    Star,
    /// Any bytes.
    Run,
    /// Nothing, or any bytes up to a `/`.
    Folders,
}

impl Rule {
    /// Reads a line without its ending; `None` if it has no rule, or one that matches nothing.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = trimmed(&line[..memchr::memchr(0, line).unwrap_or(line.len())]);
        if line.is_empty() || line.starts_with(b"#") {
            return None;
        }
        let (is_negated, text) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let (only_folders, text) = text.strip_suffix(b"/").map_or((false, text), |rest| (true, rest));
        let has_folder = text.contains(&b'/');
        let text = text.strip_prefix(b"/").unwrap_or(text);
        let pattern = IgnorePattern::compile(text, has_folder)?;
        Some(Self { is_negated, only_folders, has_folder, pattern })
    }

    /// Whether the rule matches `path`, whose last name is `name`; `None` if the steps do not suffice.
    pub(super) fn matches(&self, path: &[u8], name: &[u8], is_folder: bool, steps: &mut Steps) -> Option<bool> {
        if self.only_folders && !is_folder {
            return Some(false);
        }
        self.pattern.matches(if self.has_folder { path } else { name }, steps)
    }
}

/// The line without the spaces at its end that no backslash precedes. Tabs stay.
fn trimmed(line: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while at < line.len() {
        match line[at] {
            b' ' => {}
            // A backslash alone at the end keeps what is before it.
            b'\\' if at + 1 == line.len() => return line,
            b'\\' => {
                at += 1;
                end = at + 1;
            }
            _ => end = at + 1,
        }
        at += 1;
    }
    &line[..end]
}

impl IgnorePattern {
    /// Compiles the pattern; `None` if it can match nothing.
    fn compile(text: &[u8], has_folder: bool) -> Option<Self> {
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        match text.iter().position(is_special) {
            None if text.is_empty() => None,
            None => Some(Self::Literal(text.to_vec())),
            Some(0) if !has_folder && text[0] == b'*' && !text[1..].iter().any(is_special) => {
                Some(Self::Suffix(text[1..].to_vec()))
            }
            Some(first) => compile_glob(text, first, has_folder).map(Self::Glob),
        }
    }

    fn matches(&self, text: &[u8], steps: &mut Steps) -> Option<bool> {
        match self {
            Self::Literal(literal) => Some(text == literal.as_slice()),
            Self::Suffix(suffix) => Some(text.ends_with(suffix)),
            Self::Glob(tokens) => matches(tokens, text, steps),
        }
    }
}

/// Compiles a glob whose first special character is at `first`.
fn compile_glob(text: &[u8], first: usize, has_folder: bool) -> Option<Vec<PatternToken>> {
    let mut tokens = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'\\' => {
                tokens.push(PatternToken::Byte(*text.get(at)?));
                at += 1;
            }
            b'?' => tokens.push(PatternToken::Any),
            b'[' => {
                let (set, end) = compile_set(text, at)?;
                tokens.push(PatternToken::Set(Box::new(set)));
                at = end;
            }
            b'*' => {
                let start = at - 1;
                at += text[at..].iter().take_while(|byte| **byte == b'*').count();
                // What precedes the first special character is compared by itself, so that the glob begins there.
                let begins = start == first || text[start - 1] == b'/';
                let rest = &text[at..];
                let ends = rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
                tokens.push(match (has_folder && at - start > 1 && begins && ends, rest.first()) {
                    (true, Some(b'/')) => {
                        at += 1;
                        PatternToken::Folders
                    }
                    (true, _) => PatternToken::Run,
                    (false, _) => PatternToken::Star,
                });
            }
            byte => tokens.push(PatternToken::Byte(*byte)),
        }
    }
    Some(tokens)
}

/// Compiles a bracket expression whose first byte is at `at`. Returns the set and the position after it; `None` if it is not
/// closed or names an unknown class.
fn compile_set(text: &[u8], mut at: usize) -> Option<([u64; 4], usize)> {
    let mut set = [0_u64; 4];
    let mut add = |range: std::ops::RangeInclusive<u8>| {
        for byte in range {
            set[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
    };
    let is_negated = matches!(text.get(at)?, b'!' | b'^');
    at += usize::from(is_negated);
    // The byte at which a range may begin.
    let mut from = None;
    let first = at;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        match byte {
            b']' if at - 1 > first => break,
            b'-' if from.is_some() && text.get(at).is_some_and(|next| *next != b']') => {
                let mut to = text[at];
                at += 1;
                if to == b'\\' {
                    to = *text.get(at)?;
                    at += 1;
                }
                add(from.unwrap_or(to)..=to);
                from = None;
            }
            b'[' if text.get(at) == Some(&b':') => {
                let length = text[at + 1..].iter().position(|byte| *byte == b']')?;
                if let Some(name) = text[at + 1..at + 1 + length].strip_suffix(b":") {
                    let class = class(name)?;
                    (0..=u8::MAX).filter(class).for_each(|byte| add(byte..=byte));
                    at += length + 2;
                    from = None;
                } else {
                    add(b'['..=b'[');
                    from = Some(b'[');
                }
            }
            b'\\' => {
                let escaped = *text.get(at)?;
                at += 1;
                add(escaped..=escaped);
                from = Some(escaped);
            }
            byte => {
                add(byte..=byte);
                from = Some(byte);
            }
        }
    }
    if is_negated {
        set = set.map(|bits| !bits);
    }
    // The slash is in the first 64 bytes.
    set[0] &= !(1_u64 << b'/');
    Some((set, at))
}

/// The bytes of a POSIX class.
fn class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

impl PatternToken {
    fn fits(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::Any => byte != b'/',
            Self::Set(set) => set[usize::from(byte / 64)] & (1 << (byte % 64)) != 0,
            Self::Star | Self::Run | Self::Folders => false,
        }
    }
}

/// Whether the glob matches the whole text; `None` if the steps do not suffice. Of each kind of repetition only the last has to be
/// tried with more bytes, because earlier ones have matched the least that is possible.
fn matches(tokens: &[PatternToken], text: &[u8], steps: &mut Steps) -> Option<bool> {
    let (mut next, mut at) = (0, 0);
    let mut star = None;
    let mut run = None;
    loop {
        steps.take()?;
        match tokens.get(next) {
            None if at == text.len() => return Some(true),
            Some(PatternToken::Star) => {
                next += 1;
                star = Some((next, at));
                continue;
            }
            Some(kind @ (PatternToken::Run | PatternToken::Folders)) => {
                next += 1;
                (star, run) = (None, Some((next, at, matches!(kind, PatternToken::Folders))));
                continue;
            }
            Some(token) if text.get(at).is_some_and(|byte| token.fits(*byte)) => {
                (next, at) = (next + 1, at + 1);
                continue;
            }
            None | Some(_) => {}
        }
        if let Some((after, from)) = star.filter(|(_, from)| text.get(*from).is_some_and(|byte| *byte != b'/')) {
            star = Some((after, from + 1));
            (next, at) = (after, from + 1);
            continue;
        }
        let Some((after, from, to_folder)) = run else { return Some(false) };
        let more = if to_folder {
            memchr::memchr(b'/', &text[from..]).map(|end| end + 1)
        } else {
            (from < text.len()).then_some(1)
        };
        let Some(more) = more else { return Some(false) };
        (star, run) = (None, Some((after, from + more, to_folder)));
        (next, at) = (after, from + more);
    }
}
