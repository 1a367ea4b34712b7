//! Edits: one text for another inside a file, with everything around it left as it is.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use crate::text::Occurrences;
pub use near::NearMatch;

mod near;

/// A text after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditResult {
    /// The whole text.
    pub text: String,
    /// How many places were changed.
    pub replacements: u64,
}

/// Why an edit does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditFault {
    /// The old text occurs nowhere; these places are nearest, best first.
    NotFound(Vec<NearMatch>),
    /// The old text occurs several times, but only one occurrence was asked for.
    NotUnique {
        /// How many occurrences there are, overlapping ones too.
        occurrences: u64,
        /// The lines at which the first of them begin.
        lines: Vec<u64>,
    },
    /// The result would be longer than it may be.
    TooLong {
        /// Its length in bytes; where the text's lines end in different ways, the least that it can be.
        bytes: u64,
    },
}

/// Lines listed of places that are not unique.
const MAX_LINES_TOLD: usize = 50;

/// Replaces `old` by `new` in `text`: the only occurrence, or with `all` every one, from the left, never inside what was
/// put in. Overlapping occurrences count as several.
///
/// Line endings of `old` and `new` may be LF where the text has CRLF, and those of `new` may be any where all of the text's
/// are the same. Lines that `old` and `new` share at their start and end keep their bytes; a line that takes another's place
/// ends as that did, and other lines that are put in end as their neighbours do.
///
/// The result's length is computed before it is built: nothing is allocated for one of more than `max_bytes`, except that
/// line endings of a text which mixes them may add at most as much again.
///
/// # Errors
///
/// See [`EditFault`].
pub fn edit(text: &str, old: &str, new: &str, all: bool, max_bytes: u64) -> Result<EditResult, EditFault> {
    let plain = Plain::of(text);
    let (old_plain, new_plain) = (without_cr(old), without_cr(new));
    // Where the caller writes CRLF itself, it means the bytes.
    let exact = old.contains('\r');
    let (searched, needle) = if exact { (text, old) } else { (&*plain.text, &*old_plain) };
    let finder = memmem::Finder::new(needle);
    let first = if needle.is_empty() { None } else { finder.find(searched.as_bytes()) };
    let Some(first) = first else { return Err(EditFault::NotFound(near::nearest(&plain.text, &old_plain))) };
    if !all && finder.find(&searched.as_bytes()[first + 1..]).is_some() {
        return Err(not_unique(searched, needle));
    }
    let original = |at: usize| {
        let range = at..at + needle.len();
        if exact { range } else { plain.original(&range) }
    };
    let found = || finder.find_iter(searched.as_bytes()).map(original);
    // A text whose lines all end in one way keeps to it, whatever the caller writes; where they differ, it may mean one.
    let verbatim = exact || (new.contains('\r') && !plain.ends_in_one_way());
    let each = if verbatim { new.len() } else { new_plain.len() + plain.carriage_returns_for(&new_plain) };
    let (count, going) = found().fold((0_u64, 0), |(count, going), place| (count + 1, going + place.len()));
    let bytes = (each as u64).saturating_mul(count).saturating_add((text.len() - going) as u64);
    let capacity = usize::try_from(bytes).ok().filter(|_| bytes <= max_bytes).ok_or(EditFault::TooLong { bytes })?;
    let mut out = String::with_capacity(capacity);
    let mut done = 0;
    for place in found() {
        out.push_str(&text[done..place.start]);
        if verbatim {
            out.push_str(new);
        } else {
            replace_lines(text, &place, &new_plain, &mut out);
        }
        done = place.end;
    }
    out.push_str(&text[done..]);
    Ok(EditResult { text: out, replacements: count })
}

/// Every occurrence is counted, the overlapping ones too, in one pass.
fn not_unique(searched: &str, needle: &str) -> EditFault {
    let mut lines = Vec::new();
    let (mut places, mut line, mut counted) = (0, 1, 0);
    for at in Occurrences::new(searched.as_bytes(), needle.as_bytes(), 0) {
        places += 1;
        if lines.len() < MAX_LINES_TOLD {
            line += memchr::memchr_iter(b'\n', &searched.as_bytes()[counted..at]).count() as u64;
            counted = at;
            lines.push(line);
        }
    }
    EditFault::NotUnique { occurrences: places, lines }
}

/// A text with LF only, and where its characters are in the original.
struct Plain<'a> {
    text: Cow<'a, str>,
    /// Offsets in `text` of the LF whose CR was left out.
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

    /// Whether there are lines that end, and all of them end the same.
    fn ends_in_one_way(&self) -> bool {
        let ends = memchr::memchr_iter(b'\n', self.text.as_bytes()).count();
        ends > 0 && (self.dropped.is_empty() || self.dropped.len() == ends)
    }

    /// The least that the lines of `new` need in carriage returns when they are put into this text.
    fn carriage_returns_for(&self, new: &str) -> usize {
        if self.dropped.is_empty() || !self.ends_in_one_way() {
            return 0;
        }
        memchr::memchr_iter(b'\n', new.as_bytes()).count()
    }

    /// A range of `text` as a range of the original.
    fn original(&self, range: &Range<usize>) -> Range<usize> {
        // An LF also means its CR: a range that begins with one begins before the CR.
        let start = |at: usize| at + self.dropped.partition_point(|dropped| *dropped < at);
        start(range.start)..start(range.end)
    }
}

fn without_cr(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Writes what is at `place` with `new` instead of it: shared first and last lines as they are.
fn replace_lines(text: &str, place: &Range<usize>, new: &str, out: &mut String) {
    let old_lines = text[place.clone()].split_inclusive('\n');
    let new_lines = new.split_inclusive('\n');
    let same = |(old, new): &(&str, &str)| {
        without_ending(old) == without_ending(new) && old.ends_with('\n') == new.ends_with('\n')
    };
    let (old_count, new_count) = (old_lines.clone().count(), new_lines.clone().count());
    let head = old_lines.clone().zip(new_lines.clone()).take_while(same).count();
    let most = old_count.min(new_count) - head;
    let tail = old_lines.clone().rev().zip(new_lines.clone().rev()).take(most).take_while(same).count();
    let ending = ending_near(text, place, head);
    out.extend(old_lines.clone().take(head));
    let mut going = old_lines.clone().skip(head);
    for line in new_lines.skip(head).take(new_count - head - tail) {
        // As many lines as go are taken for the same lines, each in its place.
        let same = going.next().filter(|_| old_count == new_count).and_then(ending_of);
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

/// How the lines put in after the first `head` lines of `place` end: as the first line that goes, or the line before, or
/// the line after.
fn ending_near(text: &str, place: &Range<usize>, head: usize) -> &'static str {
    let old_lines = text[place.clone()].split_inclusive('\n');
    let last_of_head = head.checked_sub(1).and_then(|last| old_lines.clone().nth(last));
    let before = text[..place.start].rfind('\n').map(|at| &text[..=at]);
    let after = text[place.end..].find('\n').map(|at| &text[..=place.end + at]);
    let neighbours = old_lines.skip(head).chain(last_of_head).chain(after).chain(before);
    neighbours.into_iter().find_map(ending_of).unwrap_or("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: u64 = 1 << 20;

    #[test]
    fn an_edit_leaves_everything_else_as_it_is() {
        let table = [
            ("a\nb\nc\n", "b", "x", "a\nx\nc\n"),
            ("a\r\nb\r\nc", "b\nc", "x\ny\nc", "a\r\nx\r\ny\r\nc"),
            ("a\r\nb\nc\r\n", "a\nb\nc\n", "a\nx\nc\n", "a\r\nx\nc\r\n"),
            ("a\r\nb\r\n", "a\nb\n", "a\nb\nc\n", "a\r\nb\r\nc\r\n"),
            ("one\r\ntwo\r\n", "two", "2\n3", "one\r\n2\r\n3\r\n"),
            ("a\nb", "b", "b\n", "a\nb\n"),
            ("a\r\nb", "a\r\n", "x\n", "x\nb"),
            ("x\t y ", "\t ", "", "xy "),
            ("ü\n", "ü", "é", "é\n"),
            // Where all lines end in one way, what is put in ends so too.
            ("a\nb\n", "b", "b\r\nc", "a\nb\nc\n"),
            ("a\nb\n", "a\nb\n", "x\r\ny\r\nz\r\n", "x\ny\nz\n"),
            ("a\r\nb\r\n", "b", "b\r\nc\nd", "a\r\nb\r\nc\r\nd\r\n"),
            ("a", "a", "a\r\nb", "a\r\nb"),
            ("a\nb\n", "b", "b\rc", "a\nb\rc\n"),
            // Where they differ, the caller's CRLF is one, and lines keep their own ends.
            ("a\r\nb\n", "b", "b\r\nc", "a\r\nb\r\nc\n"),
            ("a\r\nb\n", "a\r\n", "x\n", "x\nb\n"),
            ("one\r\ntwo\nthree\r\n", "one\ntwo\n", "1\n2\n", "1\r\n2\nthree\r\n"),
            ("a\nb\r\nc\n", "a\nb\nc\n", "a\nB\nC\n", "a\nB\r\nC\n"),
            ("a\nb\r\nc", "b\nc", "B\nC", "a\nB\r\nC"),
        ];
        for (text, old, new, want) in table {
            assert_eq!(edit(text, old, new, false, MOST).unwrap().text, want, "{text:?} {old:?} {new:?}");
        }
    }

    #[test]
    fn all_places_change_once_even_if_the_new_text_holds_the_old() {
        let edited = edit("a a\r\na", "a", "aa", true, MOST).unwrap();
        assert_eq!((edited.text.as_str(), edited.replacements), ("aa aa\r\naa", 3));
        assert_eq!(
            edit("a a\r\na", "a", "b", false, MOST),
            Err(EditFault::NotUnique { occurrences: 3, lines: vec![1, 1, 2] })
        );
        let many = "a\n".repeat(60);
        let lines = (1..=50).collect();
        assert_eq!(edit(&many, "a", "b", false, MOST), Err(EditFault::NotUnique { occurrences: 60, lines }));
    }

    #[test]
    fn a_miss_tells_the_nearest_place_and_what_differs() {
        let text = "fn a() {\n    let x = 1;\n}\nfn b() {\n    let y = \"2\";\n}\n";
        let Err(EditFault::NotFound(near)) = edit(text, "fn b() {\n  let y = \"2\";", "", false, MOST) else {
            panic!()
        };
        assert_eq!((near[0].line, near[0].only), (4, Some("white space")));
        assert!(near[0].difference.contains("-   let y = \"2\";\n+     let y = \"2\";"), "{}", near[0].difference);
        let Err(EditFault::NotFound(near)) = edit(text, "    let y = '2';", "", false, MOST) else { panic!() };
        assert_eq!((near[0].line, near[0].only), (5, Some("quotes")));
        assert_eq!(edit("", "x", "y", false, MOST), Err(EditFault::NotFound(Vec::new())));
    }

    #[test]
    fn overlapping_occurrences_count_as_several() {
        assert_eq!(
            edit("aaa", "aa", "b", false, MOST),
            Err(EditFault::NotUnique { occurrences: 2, lines: vec![1, 1] })
        );
        let lines = "x\r\n".repeat(4);
        let fault = EditFault::NotUnique { occurrences: 3, lines: vec![1, 2, 3] };
        assert_eq!(edit(&lines, "x\nx\n", "y\n", false, MOST), Err(fault));
        // With all of them asked for, the first ones from the left are replaced.
        assert_eq!(edit("aaaaa", "aa", "b", true, MOST).unwrap().text, "bba");
        // One pass, however much the text is like itself.
        let (text, half) = ("a".repeat(1 << 20), "a".repeat(1 << 19));
        let Err(EditFault::NotUnique { occurrences: places, .. }) = edit(&text, &half, "b", false, MOST) else {
            panic!()
        };
        assert_eq!(places, (1 << 19) + 1);
    }

    #[test]
    fn a_result_that_is_too_long_is_known_before_it_is_built() {
        let text = "a".repeat(1 << 20);
        // 4 TiB, which no test could build.
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
            let there = edit(&text, &old, &new, false, MOST).unwrap();
            prop_assert_eq!(&there.text, &format!("{before}{new}{after}"));
            prop_assert_eq!(edit(&there.text, &new, &old, false, MOST).unwrap().text, text);
        }

        #[test]
        fn a_crlf_text_stays_one(before in "[ab\\n]{0,20}", old in "[cd\\n]{1,6}x", new in "[ef\\n]{1,6}y", after in "[ab\\n]{0,20}") {
            let crlf = |text: String| text.replace('\n', "\r\n");
            let text = crlf(format!("{before}{old}{after}"));
            prop_assume!(text.contains('\n'));
            prop_assert_eq!(edit(&text, &old, &new, false, MOST).unwrap().text, crlf(format!("{before}{new}{after}")));
        }
    }
}
