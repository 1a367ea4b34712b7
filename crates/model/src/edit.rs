//! Edits: replaces a text in a file and keeps every other byte.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use crate::text::{Occurrences, without_line_numbers};
pub use near::NearMatch;
pub(crate) use near::{Effort, is_similar, nearest_position};
pub use range::{RangeFault, replace_range};

mod near;
mod range;

/// A text after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditResult {
    /// The whole text.
    pub text: String,
    /// The number of occurrences that were replaced.
    pub replacements: u64,
}

/// Why an edit does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditFault {
    /// The old text does not occur. Lists the similar passages, best first.
    NotFound(Vec<NearMatch>),
    /// The old text does not occur, but the new text does, at these lines.
    AlreadyApplied(Vec<u64>),
    /// The lines of the old text begin with line numbers. Without them, the text occurs first at this line.
    Numbered(u64),
    /// The old and the new text differ only in the line endings, which an edit keeps.
    SameLines,
    /// The old text occurs several times, but the caller requested a single replacement.
    NotUnique {
        /// The number of occurrences, overlapping ones included.
        occurrences: u64,
        /// The lines at which the first occurrences begin.
        lines: Vec<u64>,
    },
    /// The result would exceed the permitted length.
    TooLong {
        /// Its length in bytes; a lower bound if the text mixes line endings.
        bytes: u64,
    },
}

/// The most lines that [`EditFault::NotUnique`] lists.
const MAX_LISTED_LINES: usize = 50;

/// Replaces `old` by `new` in `text`: the only occurrence, or every one if `all` is set.
///
/// With `all`, occurrences are replaced from left to right, and inserted text is not searched. Overlapping occurrences count
/// separately.
///
/// LF in `old` and `new` also matches CRLF in the text. If all lines of the text have the same ending, `old` and `new` may have
/// any ending, and `new` is converted. Lines that `old` and `new` share at their start and end keep their bytes. A line that replaces
/// another takes its ending; other inserted lines take the ending of the adjacent lines.
///
/// The length of the result is computed first, and nothing is allocated for a result longer than `max_bytes`. If the text
/// mixes line endings, the result may be up to twice as long as computed.
///
/// # Errors
///
/// See [`EditFault`].
pub fn edit(text: &str, old: &str, new: &str, all: bool, max_bytes: u64) -> Result<EditResult, EditFault> {
    let plain = Plain::of(text);
    let (old_plain, new_plain) = (without_cr(old), without_cr(new));
    // An `old` that contains a CR is compared byte by byte, unless the text has one kind of line ending.
    let exact = old.contains('\r') && !(plain.has_uniform_endings() && plain.text.contains(&*old_plain));
    let (searched, needle) = if exact { (text, old) } else { (&*plain.text, &*old_plain) };
    let finder = memmem::Finder::new(needle);
    let first = if needle.is_empty() { None } else { finder.find(searched.as_bytes()) };
    let Some(first) = first else {
        let applied = lines_of_applied(&plain.text, &old_plain, &new_plain).map(EditFault::AlreadyApplied);
        let fault = applied.or_else(|| numbered_at(&plain.text, &old_plain).map(EditFault::Numbered));
        return Err(fault.unwrap_or_else(|| EditFault::NotFound(near::nearest(&plain.text, &old_plain))));
    };
    if !exact && old != new && old_plain == new_plain && plain.has_uniform_endings() {
        return Err(EditFault::SameLines);
    }
    if !all && finder.find(&searched.as_bytes()[first + 1..]).is_some() {
        return Err(not_unique(searched, needle));
    }
    let original = |at: usize| {
        let range = at..at + needle.len();
        if exact { range } else { plain.original(&range) }
    };
    let found = || finder.find_iter(searched.as_bytes()).map(original);
    // A text with one kind of line ending keeps it. If the text mixes them, the caller may choose one.
    let verbatim = exact || (new.contains('\r') && !plain.has_uniform_endings());
    let each = if verbatim { new.len() } else { new_plain.len() + plain.carriage_returns_for(&new_plain) };
    let (count, removed) = found().fold((0_u64, 0), |(count, removed), range| (count + 1, removed + range.len()));
    let bytes = (each as u64).saturating_mul(count).saturating_add((text.len() - removed) as u64);
    let capacity = usize::try_from(bytes).ok().filter(|_| bytes <= max_bytes).ok_or(EditFault::TooLong { bytes })?;
    let mut out = String::with_capacity(capacity);
    let mut done = 0;
    for range in found() {
        out.push_str(&text[done..range.start]);
        if verbatim {
            out.push_str(new);
        } else {
            replace_lines(text, &range, &new_plain, &mut out);
        }
        done = range.end;
    }
    out.push_str(&text[done..]);
    Ok(EditResult { text: out, replacements: count })
}

/// The least length of a new text that shows by itself that an edit is applied already, and of one that must occur once.
const TELLING_BYTES: usize = 3;
const UNIQUE_BELOW_BYTES: usize = 12;

/// The lines at which `new` stands in a text without `old`, if that shows that the edit is applied already.
fn lines_of_applied(text: &str, old: &str, new: &str) -> Option<Vec<u64>> {
    if new.trim().len() < TELLING_BYTES || !new.contains(char::is_alphanumeric) || old.contains(new.trim()) {
        return None;
    }
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let is_whole = |at: &usize| {
        let (before, after) = (text[..*at].chars().next_back(), text[at + new.len()..].chars().next());
        let joins = |outside, inside| is_word(outside) && is_word(inside);
        !joins(before, new.chars().next()) && !joins(after, new.chars().next_back())
    };
    let places: Vec<_> = memmem::find_iter(text.as_bytes(), new).take(MAX_LISTED_LINES).filter(is_whole).collect();
    let is_telling = places.len() == 1 || (!places.is_empty() && new.trim().len() >= UNIQUE_BELOW_BYTES);
    let line = |at: &usize| memchr::memchr_iter(b'\n', &text.as_bytes()[..*at]).count() as u64 + 1;
    is_telling.then(|| places.iter().map(line).collect())
}

/// The line at which `old` stands without the line numbers with which its lines begin.
fn numbered_at(text: &str, old: &str) -> Option<u64> {
    let lines: Vec<_> = old.split_inclusive('\n').map(str::as_bytes).collect();
    let without = without_line_numbers(&lines)?.concat();
    let at = memmem::find(text.as_bytes(), &without)?;
    Some(memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64 + 1)
}

/// Counts every occurrence, overlapping ones included, in one pass.
fn not_unique(searched: &str, needle: &str) -> EditFault {
    let mut lines = Vec::new();
    let (mut occurrences, mut line, mut counted) = (0, 1, 0);
    for at in Occurrences::new(searched.as_bytes(), needle.as_bytes(), 0) {
        occurrences += 1;
        if lines.len() < MAX_LISTED_LINES {
            line += memchr::memchr_iter(b'\n', &searched.as_bytes()[counted..at]).count() as u64;
            counted = at;
            lines.push(line);
        }
    }
    EditFault::NotUnique { occurrences, lines }
}

/// A text with LF only, and the mapping of its offsets to the original.
struct Plain<'a> {
    text: Cow<'a, str>,
    /// Offsets in `text` of each LF whose CR was removed.
    dropped: Vec<usize>,
}

impl<'a> Plain<'a> {
    fn of(text: &'a str) -> Self {
        if !text.contains("\r\n") {
            return Self { text: Cow::Borrowed(text), dropped: Vec::new() };
        }
        let mut plain = String::with_capacity(text.len());
        let mut dropped = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("\r\n") {
            plain.push_str(&rest[..at]);
            dropped.push(plain.len());
            plain.push('\n');
            rest = &rest[at + 2..];
        }
        plain.push_str(rest);
        Self { text: Cow::Owned(plain), dropped }
    }

    /// Whether the text has line endings and all of them are the same.
    fn has_uniform_endings(&self) -> bool {
        let ends = memchr::memchr_iter(b'\n', self.text.as_bytes()).count();
        ends > 0 && (self.dropped.is_empty() || self.dropped.len() == ends)
    }

    /// The least number of carriage returns that the lines of `new` need in this text.
    fn carriage_returns_for(&self, new: &str) -> usize {
        if self.dropped.is_empty() || !self.has_uniform_endings() {
            return 0;
        }
        memchr::memchr_iter(b'\n', new.as_bytes()).count()
    }

    /// Converts a range of `text` to a range of the original.
    fn original(&self, range: &Range<usize>) -> Range<usize> {
        // A range that begins with an LF also includes its CR.
        let start = |at: usize| at + self.dropped.partition_point(|dropped| *dropped < at);
        start(range.start)..start(range.end)
    }
}

fn without_cr(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Writes `new` in place of the lines in `range`. First and last lines that both share keep their bytes.
fn replace_lines(text: &str, range: &Range<usize>, new: &str, out: &mut String) {
    let old_lines = text[range.clone()].split_inclusive('\n');
    let new_lines = new.split_inclusive('\n');
    let same = |(old, new): &(&str, &str)| {
        without_ending(old) == without_ending(new) && old.ends_with('\n') == new.ends_with('\n')
    };
    let (old_count, new_count) = (old_lines.clone().count(), new_lines.clone().count());
    let head = old_lines.clone().zip(new_lines.clone()).take_while(same).count();
    let most = old_count.min(new_count) - head;
    let tail = old_lines.clone().rev().zip(new_lines.clone().rev()).take(most).take_while(same).count();
    let ending = ending_near(text, range, head);
    out.extend(old_lines.clone().take(head));
    let mut removed = old_lines.clone().skip(head);
    for line in new_lines.skip(head).take(new_count - head - tail) {
        // If the number of lines does not change, each line takes the ending of the line it replaces.
        let same = removed.next().filter(|_| old_count == new_count).and_then(ending_of);
        out.push_str(line.trim_end_matches('\n'));
        if line.ends_with('\n') {
            out.push_str(same.unwrap_or(ending));
        }
    }
    out.extend(old_lines.skip(old_count - tail));
}

fn ending_of(line: &str) -> Option<&'static str> {
    if line.ends_with("\r\n") { Some("\r\n") } else { line.ends_with('\n').then_some("\n") }
}

fn without_ending(line: &str) -> &str {
    line.strip_suffix("\r\n").or_else(|| line.strip_suffix('\n')).unwrap_or(line)
}

/// The ending of lines inserted after the first `head` lines of `range`: that of the first removed line, of the last shared
/// line, of the line after, or of the line before.
fn ending_near(text: &str, range: &Range<usize>, head: usize) -> &'static str {
    let old_lines = text[range.clone()].split_inclusive('\n');
    let last_of_head = head.checked_sub(1).and_then(|last| old_lines.clone().nth(last));
    let before = text[..range.start].rfind('\n').map(|at| &text[..=at]);
    let after = text[range.end..].find('\n').map(|at| &text[..=range.end + at]);
    let neighbours = old_lines.skip(head).chain(last_of_head).chain(after).chain(before);
    neighbours.into_iter().find_map(ending_of).unwrap_or("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_BYTES: u64 = 1 << 20;

    #[test]
    fn an_edit_changes_nothing_else() {
        let table = [
            ("a\nb\nc\n", "b", "x", "a\nx\nc\n"),
            ("a\r\nb\r\nc", "b\nc", "x\ny\nc", "a\r\nx\r\ny\r\nc"),
            ("a\r\nb\nc\r\n", "a\nb\nc\n", "a\nx\nc\n", "a\r\nx\nc\r\n"),
            ("a\r\nb\r\n", "a\nb\n", "a\nb\nc\n", "a\r\nb\r\nc\r\n"),
            ("one\r\ntwo\r\n", "two", "2\n3", "one\r\n2\r\n3\r\n"),
            ("a\nb", "b", "b\n", "a\nb\n"),
            ("a\r\nb", "a\r\n", "x\n", "x\r\nb"),
            ("a\r\nb\r\nc\r\n", "a\r\nb\r\n", "a\nB\n", "a\r\nB\r\nc\r\n"),
            ("a\nb\nc\n", "a\r\nb\r\n", "a\r\nB\r\n", "a\nB\nc\n"),
            ("a\rb\n", "a\rb", "x", "x\n"),
            ("x\t y ", "\t ", "", "xy "),
            ("ü\n", "ü", "é", "é\n"),
            // If all lines have the same ending, inserted lines take it.
            ("a\nb\n", "b", "b\r\nc", "a\nb\nc\n"),
            ("a\nb\n", "a\nb\n", "x\r\ny\r\nz\r\n", "x\ny\nz\n"),
            ("a\r\nb\r\n", "b", "b\r\nc\nd", "a\r\nb\r\nc\r\nd\r\n"),
            ("a", "a", "a\r\nb", "a\r\nb"),
            ("a\nb\n", "b", "b\rc", "a\nb\rc\n"),
            // If endings are mixed, the caller's CRLF is kept, and lines keep their own endings.
            ("a\r\nb\n", "b", "b\r\nc", "a\r\nb\r\nc\n"),
            ("a\r\nb\n", "a\r\n", "x\n", "x\nb\n"),
            ("one\r\ntwo\nthree\r\n", "one\ntwo\n", "1\n2\n", "1\r\n2\nthree\r\n"),
            ("a\nb\r\nc\n", "a\nb\nc\n", "a\nB\nC\n", "a\nB\r\nC\n"),
            ("a\nb\r\nc", "b\nc", "B\nC", "a\nB\r\nC"),
        ];
        for (text, old, new, want) in table {
            assert_eq!(edit(text, old, new, false, MAX_BYTES).unwrap().text, want, "{text:?} {old:?} {new:?}");
        }
    }

    #[test]
    fn every_occurrence_is_replaced_once_even_if_the_new_text_contains_the_old() {
        let edited = edit("a a\r\na", "a", "aa", true, MAX_BYTES).unwrap();
        assert_eq!((edited.text.as_str(), edited.replacements), ("aa aa\r\naa", 3));
        assert_eq!(
            edit("a a\r\na", "a", "b", false, MAX_BYTES),
            Err(EditFault::NotUnique { occurrences: 3, lines: vec![1, 1, 2] })
        );
        let many = "a\n".repeat(60);
        let lines = (1..=50).collect();
        assert_eq!(edit(&many, "a", "b", false, MAX_BYTES), Err(EditFault::NotUnique { occurrences: 60, lines }));
    }

    #[test]
    fn a_text_that_is_not_found_lists_the_nearest_match_and_the_difference() {
        let text = "fn a() {\n    let x = 1;\n}\nfn b() {\n    let y = \"2\";\n}\n";
        let Err(EditFault::NotFound(near)) = edit(text, "fn b() {\n  let y = \"2\";", "", false, MAX_BYTES) else {
            panic!()
        };
        assert_eq!((near[0].line, near[0].only), (4, Some("white space")));
        assert!(near[0].difference.contains("-   let y = \"2\";\n+     let y = \"2\";"), "{}", near[0].difference);
        let Err(EditFault::NotFound(near)) = edit(text, "    let y = '2';", "", false, MAX_BYTES) else { panic!() };
        assert_eq!((near[0].line, near[0].only), (5, Some("quotes")));
        assert_eq!(edit("", "x", "y", false, MAX_BYTES), Err(EditFault::NotFound(Vec::new())));
    }

    #[test]
    fn an_edit_that_is_applied_already_is_told_by_its_new_text() {
        let text = "fn a() {\r\n    let limit = 20;\r\n}\r\nuno\r\n";
        for (old, new, lines) in [
            ("let limit = 10;", "let limit = 20;", &[2][..]),
            ("one", "uno", &[4]),
            ("x {\n  y", "fn a() {\n    let limit", &[1]),
        ] {
            assert_eq!(edit(text, old, new, false, MAX_BYTES), Err(EditFault::AlreadyApplied(lines.to_vec())), "{old}");
        }
        for (old, new) in [("limit = 10;\nlimit", "limit"), ("one", "imi"), ("one", "}\n"), ("one", "")] {
            assert!(matches!(edit(text, old, new, false, MAX_BYTES), Err(EditFault::NotFound(_))), "{old} {new}");
        }
        assert_eq!(edit("a\r\nb\r\n", "a\r\n", "a\n", false, MAX_BYTES), Err(EditFault::SameLines));
    }

    #[test]
    fn line_numbers_that_were_copied_with_the_lines_are_told() {
        let text = "alpha\r\n  beta\r\ngamma\r\n";
        for (old, line) in [("2    beta", 2), ("1  alpha\n2    beta\n", 1), ("     3\tgamma", 3)] {
            assert_eq!(edit(text, old, "x", false, MAX_BYTES), Err(EditFault::Numbered(line)), "{old}");
        }
        for old in ["2  delta", "1  alpha\nbeta", "2"] {
            assert!(matches!(edit(text, old, "x", false, MAX_BYTES), Err(EditFault::NotFound(_))), "{old}");
        }
    }

    #[test]
    fn overlapping_occurrences_count_as_several() {
        assert_eq!(
            edit("aaa", "aa", "b", false, MAX_BYTES),
            Err(EditFault::NotUnique { occurrences: 2, lines: vec![1, 1] })
        );
        let lines = "x\r\n".repeat(4);
        let fault = EditFault::NotUnique { occurrences: 3, lines: vec![1, 2, 3] };
        assert_eq!(edit(&lines, "x\nx\n", "y\n", false, MAX_BYTES), Err(fault));
        // With `all`, occurrences are replaced from the left.
        assert_eq!(edit("aaaaa", "aa", "b", true, MAX_BYTES).unwrap().text, "bba");
        // Takes one pass, even for a very repetitive text.
        let (text, half) = ("a".repeat(1 << 20), "a".repeat(1 << 19));
        let Err(EditFault::NotUnique { occurrences, .. }) = edit(&text, &half, "b", false, MAX_BYTES) else { panic!() };
        assert_eq!(occurrences, (1 << 19) + 1);
    }

    #[test]
    fn a_result_that_is_too_long_is_refused_before_it_is_built() {
        let text = "a".repeat(1 << 20);
        // 4 TiB, more than a test can allocate.
        let fault = EditFault::TooLong { bytes: 1 << 42 };
        assert_eq!(edit(&text, "a", &"b".repeat(4 << 20), true, u64::from(u32::MAX)), Err(fault));
        // Exact to a byte, and line endings count.
        for (text, old, new, bytes) in
            [("a.a\n", "a", "bcd", 8), ("a\r\nb\r\n", "a", "x\ny\nz", 12), ("a\n", "a\n", "", 0)]
        {
            assert_eq!(edit(text, old, new, true, bytes).unwrap().text.len() as u64, bytes, "{text:?}");
            if bytes > 0 {
                assert_eq!(edit(text, old, new, true, bytes - 1), Err(EditFault::TooLong { bytes }), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn an_edit_is_undone_by_its_reverse_where_both_are_unique(before in "[ab\\n]{0,20}", old in "[cd\\n]{1,6}x", new in "[ef\\n]{1,6}y", after in "[ab\\n]{0,20}") {
            let text = format!("{before}{old}{after}");
            let edited = edit(&text, &old, &new, false, MAX_BYTES).unwrap();
            prop_assert_eq!(&edited.text, &format!("{before}{new}{after}"));
            prop_assert_eq!(edit(&edited.text, &new, &old, false, MAX_BYTES).unwrap().text, text);
        }

        #[test]
        fn a_text_in_crlf_stays_in_crlf(before in "[ab\\n]{0,20}", old in "[cd\\n]{1,6}x", new in "[ef\\n]{1,6}y", after in "[ab\\n]{0,20}") {
            let crlf = |text: String| text.replace('\n', "\r\n");
            let text = crlf(format!("{before}{old}{after}"));
            prop_assume!(text.contains('\n'));
            prop_assert_eq!(edit(&text, &old, &new, false, MAX_BYTES).unwrap().text, crlf(format!("{before}{new}{after}")));
        }
    }
}
