//! Code without its comments and strings.

use super::super::public_api::Language;

/// Returns `text` with spaces in place of comments and of the contents of strings. Takes one pass. Lines stay where they are.
pub(super) fn code_of(language: Language, text: &[u8]) -> Vec<u8> {
    let mut code = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        let Some(end) = hidden_end(language, text, at).map(|end| end.min(text.len())) else {
            at += 1;
            continue;
        };
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end.max(at + 1);
    }
    code
}

/// The end of the comment or string that begins at `at`.
fn hidden_end(language: Language, text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at..];
    let is_c_like = language != Language::Python;
    match rest[0] {
        b'#' if !is_c_like => Some(at + line_length(rest)),
        b'/' if is_c_like && rest.starts_with(b"//") => Some(at + line_length(rest)),
        b'/' if is_c_like && rest.starts_with(b"/*") => Some(at + block_comment(rest, language == Language::Rust)),
        b'"' | b'\'' if has_triple(language, rest) => Some(at + 3 + find(&rest[3..], &[rest[0]; 3])),
        b'"' => {
            let raw = (language == Language::Rust).then(|| raw_hashes(&text[..at])).flatten();
            Some(at + raw.map_or_else(|| quoted(rest, language == Language::Rust), |hashes| raw_string(rest, hashes)))
        }
        b'\'' => match language {
            Language::TypeScript | Language::Python => Some(at + quoted(rest, false)),
            Language::Rust | Language::Java | Language::Go => character(rest).map(|length| at + length),
        },
        b'`' if language == Language::TypeScript => Some(at + quoted(rest, true)),
        b'`' if language == Language::Go => Some(at + 1 + find(&rest[1..], b"`")),
        _ => None,
    }
}

fn has_triple(language: Language, rest: &[u8]) -> bool {
    let quotes: &[&[u8]] = match language {
        Language::Python => &[b"\"\"\"", b"'''"],
        Language::Java => &[b"\"\"\""],
        Language::Rust | Language::TypeScript | Language::Go => &[],
    };
    quotes.iter().any(|quote| rest.starts_with(quote))
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
}

/// The length up to the end of the first `end`.
fn find(rest: &[u8], end: &[u8]) -> usize {
    rest.windows(end.len()).position(|window| window == end).map_or(rest.len(), |at| at + end.len())
}

fn block_comment(rest: &[u8], is_nested: bool) -> usize {
    let (mut depth, mut at) = (1_usize, 2);
    while at < rest.len() && depth > 0 {
        if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
        } else if is_nested && rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a string with escapes. Where it may not have several lines, it ends with its line.
fn quoted(rest: &[u8], has_lines: bool) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'\n' if !has_lines => return at,
            byte if *byte == rest[0] => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The number of `#` of a raw string whose quote follows `before`; `None` if it is no raw string.
fn raw_hashes(before: &[u8]) -> Option<usize> {
    let hashes = before.iter().rev().take_while(|byte| **byte == b'#').count();
    let prefix = &before[..before.len() - hashes];
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word = prefix.iter().rev().take(3).take_while(|byte| is_word(byte)).count();
    matches!(&prefix[prefix.len() - word..], b"r" | b"br" | b"cr").then_some(hashes)
}

fn raw_string(rest: &[u8], hashes: usize) -> usize {
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    1 + find(&rest[1..], &end)
}

/// The length of a character literal; `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).take(12).position(|byte| *byte == b'\'');
        return end.map(|at| at + 4);
    }
    // A character has at most four bytes.
    (2..=5).find(|at| rest.get(*at) == Some(&b'\'')).filter(|at| *at == 2 || !rest[1].is_ascii()).map(|at| at + 1)
}
