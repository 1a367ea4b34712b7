//! Reads a patch line by line.

use std::cell::Cell;

/// A patch's lines without their endings, and the reading position.
pub(crate) struct Lines<'a> {
    all: Vec<&'a [u8]>,
    at: usize,
    /// The index after the last line that is not blank.
    blank_from: usize,
    /// Empty lines that were counted last, by their indices: each of them may ask for those that follow it.
    empty: Cell<(usize, usize)>,
    /// Whether headers end in `***`, as the first line does.
    has_closed_headers: bool,
    /// What was wrong with the patch and could be corrected.
    pub(crate) warnings: Vec<String>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        // Reserved at once, because a vector that grows takes up to three times the memory meanwhile.
        let split = || text.split(|byte| *byte == b'\n');
        let mut lines = Vec::with_capacity(split().count());
        lines.extend(split());
        // The text after the last line's ending is not a line.
        lines.pop_if(|last| last.is_empty());
        // The last line may be cut before its carriage return. A single line proves nothing.
        let last = lines.len().saturating_sub(1);
        if last > 0 && lines[..last].iter().all(|line| line.ends_with(b"\r")) {
            for line in &mut lines {
                *line = line.strip_suffix(b"\r").unwrap_or(line);
            }
        }
        let blank_from = lines.iter().rposition(|line| !line.trim_ascii().is_empty()).map_or(0, |last| last + 1);
        let mut all = Self {
            all: lines,
            at: 0,
            blank_from,
            empty: Cell::default(),
            has_closed_headers: false,
            warnings: Vec::new(),
        };
        all.has_closed_headers = all.first().is_some_and(|line| line.trim_ascii() == b"*** Begin Patch ***");
        all
    }

    /// The next line, not read yet.
    pub(crate) fn peek(&self) -> Option<&'a [u8]> {
        self.peek_at(0)
    }

    /// The line `ahead` lines after the next one.
    pub(crate) fn peek_at(&self, ahead: usize) -> Option<&'a [u8]> {
        self.all.get(self.at + ahead).copied()
    }

    /// Reads the next line.
    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// Reads the next line if it begins with `prefix`, and returns the rest of it.
    pub(crate) fn next_after(&mut self, prefix: &str) -> Option<&'a [u8]> {
        let rest = self.peek()?.strip_prefix(prefix.as_bytes())?;
        self.at += 1;
        Some(rest)
    }

    /// The number of the next line, from 1.
    pub(crate) fn number(&self) -> usize {
        self.at + 1
    }

    /// Returns to the line with this number.
    pub(crate) fn rewind(&mut self, number: usize) {
        self.at = number.saturating_sub(1);
    }

    /// The number of lines that are not read yet.
    pub(crate) fn remaining(&self) -> usize {
        self.all.len() - self.at
    }

    /// Skips lines that contain only white space.
    pub(crate) fn skip_blank(&mut self) {
        while self.peek().is_some_and(|line| line.trim_ascii().is_empty()) {
            self.at += 1;
        }
    }

    /// Whether all lines from `ahead` lines after the next one are blank.
    pub(crate) fn only_blank_from(&self, ahead: usize) -> bool {
        self.at + ahead >= self.blank_from
    }

    /// The number of empty lines before the next other line.
    pub(crate) fn count_empty(&self) -> usize {
        let (start, end) = self.empty.get();
        if (start..end).contains(&self.at) {
            return end - self.at;
        }
        let count = self.all[self.at..].iter().take_while(|line| line.is_empty()).count();
        self.empty.set((self.at, self.at + count));
        count
    }

    /// Whether one or more empty lines precede a line for which `ends` holds.
    pub(crate) fn is_blank_up_to(&self, ends: impl Fn(&[u8]) -> bool) -> bool {
        let blank = self.count_empty();
        blank > 0 && self.peek_at(blank).is_some_and(ends)
    }

    /// Whether the two lines `--- NAME` and `+++ NAME` are `ahead` lines after the next one.
    pub(crate) fn is_file_head(&self, ahead: usize) -> bool {
        let begins = |ahead, mark: &[u8]| self.peek_at(ahead).is_some_and(|line| line.starts_with(mark));
        begins(ahead, b"--- ") && begins(ahead + 1, b"+++ ")
    }

    /// As [`is_file_head`](Self::is_file_head), where the two lines may also be lines of a hunk: a hunk must follow them.
    pub(crate) fn is_file_head_before_hunk(&self, ahead: usize) -> bool {
        self.is_file_head(ahead) && self.peek_at(ahead + 2).is_some_and(|line| line.starts_with(b"@@"))
    }

    /// Whether the next lines are the signature that Git writes after a mailed patch, and nothing follows it.
    pub(crate) fn is_signature(&self) -> bool {
        let is_version = |line: &[u8]| line.first().is_some_and(u8::is_ascii_digit);
        matches!(self.peek(), Some(b"-- " | b"--")) && self.peek_at(1).is_none_or(is_version) && self.only_blank_from(2)
    }

    /// Whether the patch has the format that begins with `*** Begin Patch`.
    pub(crate) fn is_begin_patch_format(&self) -> bool {
        self.first().is_some_and(|line| line.trim_ascii_start().starts_with(b"*** Begin Patch"))
    }

    /// The first line of the patch that is not blank.
    fn first(&self) -> Option<&'a [u8]> {
        self.all.iter().find(|line| !line.trim_ascii().is_empty()).copied()
    }

    /// A header, or the rest of one, without blanks around it and without its end if headers have one.
    pub(crate) fn header<'b>(&self, line: &'b [u8]) -> &'b [u8] {
        let line = line.trim_ascii();
        if self.has_closed_headers { line.strip_suffix(b" ***").unwrap_or(line) } else { line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_empty_lines_is_counted_once() {
        let text = ["x\n", &"\n".repeat(1000), "y\n\n\nz\n\n"].concat();
        let mut lines = Lines::new(text.as_bytes());
        assert_eq!((lines.count_empty(), lines.next()), (0, Some(&b"x"[..])));
        for left in (1..=1000).rev() {
            assert_eq!(lines.count_empty(), left);
            // Counted from the first of them only.
            assert_eq!(lines.empty.get(), (1, 1001), "{left}");
            assert!(lines.is_blank_up_to(|line| line == b"y") && !lines.only_blank_from(left));
            lines.next();
        }
        assert_eq!((lines.count_empty(), lines.next()), (0, Some(&b"y"[..])));
        assert!(lines.count_empty() == 2 && lines.is_blank_up_to(|line| line == b"z"));
        lines.skip_blank();
        assert_eq!((lines.count_empty(), lines.next()), (0, Some(&b"z"[..])));
        assert!(lines.count_empty() == 1 && lines.only_blank_from(0));
        assert!(!lines.is_blank_up_to(|_| true), "nothing follows");
        // After a return, they are counted again.
        lines.rewind(3);
        assert_eq!(lines.count_empty(), 999);
    }

    #[test]
    fn runs_of_blank_lines_are_read_in_linear_time() {
        // Quadratic, each of these would take minutes.
        let blank = "\n".repeat(300_000);
        for text in [
            format!("*** Begin Patch\n*** Update File: a\n@@\n x\n{blank}-y\n+z\n*** End Patch\n"),
            format!("--- a/a\n+++ b/a\n@@ -1,9 +1,9 @@\n x\n{blank}-y\n+z\n"),
            format!("--- a/a\n+++ b/a\n@@\n x\n{blank}-y\n+z\n{blank}"),
            format!("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-y\n+z\n{blank}@@ -3 +3 @@\n-y\n+z\n"),
            format!("{blank}--- a/a\n+++ b/a\n@@ -1 +1 @@\n-y\n+z\n{blank}x\n"),
        ] {
            // Whether it is a patch does not matter here.
            let _parsed = crate::Patch::parse(&text);
        }
    }
}
