//! The lines of a unified diff.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::LogicalPath;
use crate::patch::name;

/// A line in a hunk.
pub(super) struct DiffLine<'a> {
    /// The file: its new name, or the old one if it is deleted.
    pub(super) path: LogicalPath,
    /// `+`, `-` or a blank.
    pub(super) mark: u8,
    /// The number of the line in the new file.
    pub(super) number: u64,
    /// The line without its mark and ending.
    pub(super) text: Cow<'a, str>,
}

impl DiffLine<'_> {
    pub(super) fn is_added(&self) -> bool {
        self.mark == b'+'
    }
}

/// Returns the lines of all hunks of a diff that the service wrote. Only the counts in a hunk's header say where it ends, so that a line
/// that looks like a header is none.
pub(super) fn diff_lines(diff: &str) -> Vec<DiffLine<'_>> {
    let mut found = Vec::new();
    let (mut old_path, mut path) = (None, None);
    let (mut old_left, mut new_left, mut number) = (0, 0, 0);
    for line in diff.split_terminator('\n') {
        if old_left == 0 && new_left == 0 {
            if let Some(name) = line.strip_prefix("--- ") {
                old_path = path_of(name, "a/");
            } else if let Some(name) = line.strip_prefix("+++ ") {
                path = path_of(name, "b/").or_else(|| old_path.clone());
            } else if let Some((old, new)) = line.strip_prefix("@@ -").and_then(ranges) {
                (old_left, new_left, number) = (old.1, new.1, new.0);
            }
            continue;
        }
        let Some(mark) = line.bytes().next() else { continue };
        let (in_old, in_new) = match mark {
            b'+' => (0, 1),
            b'-' => (1, 0),
            b' ' => (1, 1),
            _ => continue,
        };
        if let Some(path) = &path {
            let text = line[1..].strip_suffix('\r').unwrap_or(&line[1..]);
            found.push(DiffLine { path: path.clone(), mark, number, text: Cow::Borrowed(text) });
        }
        (old_left, new_left) = (u64::saturating_sub(old_left, in_old), u64::saturating_sub(new_left, in_new));
        number += in_new;
    }
    found
}

/// Reads `1,2 +3,4 @@ …`: the first line and the number of lines of each side.
fn ranges(header: &str) -> Option<((u64, u64), (u64, u64))> {
    let range = |text: &str| match text.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    let (old, rest) = header.split_once(" +")?;
    Some((range(old)?, range(rest.split_once(" @@")?.0)?))
}

fn path_of(name: &str, prefix: &str) -> Option<LogicalPath> {
    let (name, _) = name::with_tail(name.as_bytes())?;
    LogicalPath::parse(std::str::from_utf8(&name).ok()?.strip_prefix(prefix)?).ok()
}

/// Whether one change contains the other: each file of one has, among the lines that the other adds to or removes from it, all of its
/// own. Lines without a letter or a digit say nothing.
pub fn is_part_of_other(one: &str, other: &str) -> bool {
    let changed = |diff: &str| -> BTreeSet<(LogicalPath, u8, String)> {
        let lines = diff_lines(diff).into_iter();
        let lines = lines.filter(|line| line.mark != b' ' && line.text.chars().any(char::is_alphanumeric));
        lines.map(|line| (line.path, line.mark, line.text.trim().to_owned())).collect()
    };
    let (one, other) = (changed(one), changed(other));
    !one.is_empty() && !other.is_empty() && (one.is_subset(&other) || other.is_subset(&one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Side, diff_file};

    fn diff(path: &str, old: &str, new: &str) -> String {
        let path = LogicalPath::parse(path).unwrap();
        let side = |bytes| Some(Side { path: &path, bytes, mode: 0o644 });
        String::from_utf8(diff_file(side(str::as_bytes(old)), side(str::as_bytes(new))).text).unwrap()
    }

    #[test]
    fn lines_that_look_like_headers_are_lines() {
        let text = diff("a b\u{e4}.txt", "1\n-- a/x\n2\n", "1\n++ b/y\n@@ -1 +1 @@\n2\n") + &diff("c", "", "new\r\n");
        let lines: Vec<_> = diff_lines(&text)
            .into_iter()
            .map(|line| (line.path.to_string(), char::from(line.mark), line.number, line.text.into_owned()))
            .collect();
        let line = |path: &str, mark, number, text: &str| (path.to_owned(), mark, number, text.to_owned());
        let first = "a b\u{e4}.txt";
        let expected = [
            line(first, ' ', 1, "1"),
            line(first, '-', 2, "-- a/x"),
            line(first, '+', 2, "++ b/y"),
            line(first, '+', 3, "@@ -1 +1 @@"),
            line(first, ' ', 4, "2"),
            line("c", '+', 1, "new"),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_change_contains_another_wherever_the_lines_are() {
        let small = diff("a", "x\ny\n", "x\nz\n");
        let moved = diff("a", "0\n1\n2\n3\n4\nx\ny\n", "0\n1\n2\n3\n4\nx\nz\n");
        let larger = diff("a", "x\ny\nlast\n", "first\nx\nz\nlast\n") + &diff("b", "", "more\n");
        for (one, other, contains) in [
            (&small, &small, true),
            (&small, &moved, true),
            (&small, &larger, true),
            (&small, &diff("a", "x\ny\n", "x\nw\n"), false),
            (&small, &diff("b", "x\ny\n", "x\nz\n"), false),
            (&small, &String::new(), false),
            (&diff("a", "{\n", "{\n}\n"), &diff("a", "x\n", "x\n}\n"), false),
        ] {
            assert_eq!(is_part_of_other(one, other), contains, "{one}{other}");
            assert_eq!(is_part_of_other(other, one), contains, "{one}{other}");
        }
    }
}
