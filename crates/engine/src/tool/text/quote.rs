//! Names and messages on one line.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether `c` can hide or forge text: it controls a terminal, ends a line, changes the direction, or is invisible and has
/// a meaning to models.
pub(crate) fn is_unsafe(c: char) -> bool {
    model::is_unprintable(c) || matches!(c, '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a path as it is, or as a JSON string if it could be taken for something else.
pub fn path(path: &str) -> Cow<'_, str> {
    let is_ambiguous = path.starts_with(['"', ' '])
        || path.ends_with(' ')
        || [": ", " -> ", "  "].iter().any(|mark| path.contains(mark))
        || path.contains('[') && path.contains(' ');
    if is_ambiguous || path.chars().any(is_unsafe) { Cow::Owned(quoted(path)) } else { Cow::Borrowed(path) }
}

/// Returns `text` as a JSON string of printable characters.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        push_escaped(&mut out, c);
    }
    out.push('"');
    out
}

/// Returns `text` with escapes for everything that is not printable, line ends included.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push_escaped(&mut out, c));
    Cow::Owned(out)
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if is_unsafe(c) => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _infallible = write!(out, "\\u{unit:04x}");
            }
        }
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_taken_for_something_else_are_json_strings() {
        let plain = ["src/main.rs", "a b.txt", "[slug]/page.tsx", "ü/漢.md", "back\\slash", "it's", "a:b", "-", "1"];
        for name in plain {
            assert_eq!(path(name), name);
        }
        let odd = [
            ("new\nline", r#""new\nline""#),
            ("tab\t", r#""tab\t""#),
            ("\u{202e}fdp.exe", r#""\u202efdp.exe""#),
            ("a\u{1b}[2J", r#""a\u001b[2J""#),
            ("tag\u{e0041}", r#""tag\udb40\udc41""#),
            (" leading", r#"" leading""#),
            ("trailing ", r#""trailing ""#),
            ("\"quoted\"", r#""\"quoted\"""#),
            ("a -> b", r#""a -> b""#),
            (".env [secret]", r#"".env [secret]""#),
            ("a: b\\c", r#""a: b\\c""#),
            ("1  let x", r#""1  let x""#),
        ];
        for (name, want) in odd {
            assert_eq!(path(name), want);
            assert_eq!(serde_json::from_str::<String>(want).unwrap(), name);
        }
    }

    #[test]
    fn a_message_stays_on_its_line() {
        assert_eq!(one_line("plain “text”"), "plain “text”");
        assert_eq!(one_line("a\n[empty file]\r\u{2028}b"), "a\\n[empty file]\\r\\u2028b");
    }
}
