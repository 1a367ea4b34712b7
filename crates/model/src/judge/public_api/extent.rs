//! Where a declaration ends, and what of it counts.

/// How far the declaration that a line begins goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// To its body or its end: the first of these characters outside brackets.
    Head(&'static str),
    /// To the end of its body, since all that is in it is offered too.
    Whole,
}

/// How far a declaration goes at most, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// The declaration at the start of `text`.
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

/// Whether a new statement follows: what ends a declaration where no semicolon does.
fn begins_statement(rest: &str) -> bool {
    let line = rest.lines().next().unwrap_or_default();
    line.trim().is_empty() || (line.starts_with(char::is_alphabetic) && !line.starts_with("where"))
}

/// A declaration without comments at the ends of lines, without a comma before a closing bracket, and without white
/// space but where two words would run together.
pub(super) fn squeeze(declaration: &str) -> String {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let mut squeezed = String::with_capacity(declaration.len());
    for word in declaration.lines().flat_map(|line| line.split("//").next().unwrap_or(line).split_whitespace()) {
        if squeezed.ends_with(',') && word.starts_with([')', ']', '}', '>']) {
            squeezed.pop();
        }
        if squeezed.ends_with(joins) && word.starts_with(joins) {
            squeezed.push(' ');
        }
        squeezed.push_str(word);
    }
    squeezed.truncate(squeezed.trim_end_matches(',').len());
    squeezed
}
