//! The extent of a declaration, and its normalized form.

/// The part of a declaration that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Up to its body or its end: the first of these characters outside brackets.
    Head(&'static str),
    /// Up to the end of its body, because everything in the body is public too.
    Whole,
}

/// The maximum length of a declaration, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// Returns the declaration at the start of `text`.
pub(super) fn cut(text: &str, extent: Extent) -> &str {
    let mut depth = 0_usize;
    let mut in_braces = false;
    for (at, c) in text.char_indices() {
        if at >= MAX_BYTES {
            return &text[..at];
        }
        if depth == 0 && at > 0 {
            match extent {
                Extent::Head(ends) if ends.contains(c) => return &text[..at],
                Extent::Whole if c == ';' || (c == '\n' && begins_statement(&text[at + 1..])) => return &text[..at],
                Extent::Head(_) | Extent::Whole => {}
            }
        }
        match c {
            '(' | '[' | '{' => {
                depth += 1;
                in_braces |= c == '{';
            }
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if extent == Extent::Whole && c == '}' && depth == 0 && in_braces {
                    return &text[..=at];
                }
            }
            _ => {}
        }
    }
    text
}

/// Whether a new statement follows, which ends a declaration that has no semicolon.
fn begins_statement(rest: &str) -> bool {
    let line = rest.lines().next().unwrap_or_default();
    line.trim().is_empty() || (line.starts_with(char::is_alphabetic) && !line.starts_with("where"))
}

/// Removes comments at the ends of lines, commas before closing brackets, and white space except between two words.
pub(super) fn normalize(declaration: &str) -> String {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let mut normalized = String::with_capacity(declaration.len());
    for word in declaration.lines().flat_map(|line| line.split("//").next().unwrap_or(line).split_whitespace()) {
        if normalized.ends_with(',') && word.starts_with([')', ']', '}', '>']) {
            normalized.pop();
        }
        if normalized.ends_with(joins) && word.starts_with(joins) {
            normalized.push(' ');
        }
        normalized.push_str(word);
    }
    normalized.truncate(normalized.trim_end_matches(',').len());
    normalized
}
