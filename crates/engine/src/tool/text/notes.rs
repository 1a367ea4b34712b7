//! Lines in brackets that say what the rest of a text does not.

use std::collections::BTreeSet;

use workspace::NotShown;

use super::quote::{is_unsafe, one_line, quoted};
use crate::tool::input::GLOB_NOTE;

/// How many characters are named.
const MAX_NAMED: usize = 5;

/// Returns a number with commas: `1,240`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns `one` or `many` after the number.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}

/// Returns the lines about globs that match no path.
pub fn glob_notes(notes: &[String]) -> String {
    let lines = notes.iter().filter(|note| note.starts_with(GLOB_NOTE)).map(|note| format!("[{}]\n", one_line(note)));
    lines.collect::<Vec<_>>().concat()
}

/// Returns the line that says what a list leaves out, and the `ways` to see it; `None` if it leaves nothing out.
pub fn not_shown(left: &NotShown, verb: &str, ways: impl Fn(&NotShown) -> Vec<&'static str>) -> Option<String> {
    let plain = |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", thousands(count)));
    let folders =
        |count: u64, of: &str| (count > 0).then(|| format!("{} of {of}", counted(count, "folder", "folders")));
    let files =
        |count: u64, of: &str| (count > 0).then(|| counted(count, &format!("{of} file"), &format!("{of} files")));
    let parts = [
        plain(left.hidden, "hidden"),
        plain(left.ignored, "ignored"),
        files(left.generated_files, "generated"),
        folders(left.generated_folders, "generated files"),
        files(left.vendored_files, "vendored"),
        folders(left.vendored_folders, "vendored files"),
        plain(left.binary_files, "binary"),
        plain(left.more_skipped, "more"),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    let ways = ways(left).join(", ");
    let ways = if ways.is_empty() { ways } else { format!("; {ways}") };
    Some(format!("[{} {verb}{ways}]\n", parts.join(", ")))
}

/// Returns the line that says how to continue a list.
pub(crate) fn continuation(cursor: &str) -> String {
    format!("[continue with cursor={}]\n", quoted(cursor))
}

/// Returns the last line of a list that shows `shown` of `total` entries.
pub(crate) fn cut_list(shown: usize, total: Option<u64>, remedy: &str) -> String {
    let shown = shown as u64;
    match total {
        Some(total) => format!("[{} of {} entries; {remedy}]\n", thousands(shown), thousands(total)),
        None => format!("[{}, more follow; {remedy}]\n", counted(shown, "entry", "entries")),
    }
}

/// Returns a line that names the characters of `text` that a reader may not see, or see elsewhere than they are.
pub(crate) fn hidden_characters(text: &str) -> Option<String> {
    let mut found = BTreeSet::new();
    let mut rest = text;
    while let Some(at) = first_unusual(rest.as_bytes()) {
        // Everything before it is ASCII, so that a character begins here.
        let mut chars = rest[at..].chars();
        let Some(c) = chars.next() else { break };
        rest = chars.as_str();
        let is_line_end = c == '\r' && rest.starts_with('\n');
        if !is_line_end && is_unsafe(c) {
            found.insert(c);
        }
    }
    if found.is_empty() {
        return None;
    }
    let named: Vec<_> = found.iter().take(MAX_NAMED).map(|c| format!("U+{:04X}", u32::from(*c))).collect();
    let more = if found.len() > MAX_NAMED { " and others" } else { "" };
    Some(format!("[the text has control or invisible characters: {}{more}]\n", named.join(", ")))
}

/// Returns the index of the first byte that is neither printable ASCII nor a tab or a line feed. Nearly all of most texts is, so that it is
/// compared in blocks, which the compiler does for many bytes at once.
fn first_unusual(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    let is_unusual = |byte: &u8| !matches!(byte, b' '..=b'~' | b'\t' | b'\n');
    let blocks = bytes.chunks(BLOCK).position(|block| block.iter().fold(false, |any, byte| any | is_unusual(byte)))?;
    let start = blocks * BLOCK;
    bytes[start..].iter().position(is_unusual).map(|at| start + at)
}

/// Returns the first lines of `text` that have at most `max_chars` characters together, and at least one line.
pub(crate) fn first_lines(text: &str, max_chars: usize) -> &str {
    let (mut end, mut chars) = (0, 0);
    for line in text.split_inclusive('\n') {
        chars += line.chars().count();
        if end > 0 && chars > max_chars {
            break;
        }
        end += line.len();
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (number, want) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), want);
        }
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn hidden_characters_are_named() {
        assert_eq!(hidden_characters("1  \ttabs, trailing \r\n2  漢 é 😀\n"), None);
        let note = hidden_characters("a\u{1b}[31m \u{202e}\rb\n").unwrap();
        assert_eq!(note, "[the text has control or invisible characters: U+000D, U+001B, U+202E]\n");
        for before in 0..70 {
            let text = format!("{}\u{7f}{}é\u{200e}\u{85}\r", "a\t\n".repeat(before), "~".repeat(before));
            let note = hidden_characters(&text).unwrap();
            assert_eq!(note, "[the text has control or invisible characters: U+000D, U+007F, U+0085, U+200E]\n");
        }
        let many: String = ('\u{1}'..='\u{8}').collect();
        assert!(hidden_characters(&many).unwrap().ends_with("U+0005 and others]\n"));
    }

    #[test]
    fn a_text_is_cut_after_a_line() {
        for (max_chars, want) in [(1, "ab\n"), (3, "ab\n"), (6, "ab\n"), (7, "ab\ncdé\n"), (100, "ab\ncdé\nf")] {
            assert_eq!(first_lines("ab\ncdé\nf", max_chars), want);
        }
        assert_eq!(first_lines("", 1), "");
    }
}
