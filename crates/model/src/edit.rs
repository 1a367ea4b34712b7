//! Edits: one text for another inside a file, with everything around it left as it is.

use std::ops::Range;

/// A text after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole text.
    pub text: String,
    /// How many places were changed.
    pub replacements: u64,
}

/// Why an edit does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditFault {
    /// The old text stands nowhere; these places are nearest, best first.
    NotFound(Vec<Near>),
    /// The old text stands at several places, but only one was asked for.
    NotUnique {
        /// How many places there are.
        places: u64,
        /// The lines at which the first of them begin.
        lines: Vec<u64>,
    },
}

/// A place that is nearly what an edit looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// Its first line, from 1.
    pub line: u64,
    /// What differs: lines with `-` are looked for, lines with `+` are there.
    pub difference: String,
    /// What kind of difference it is, where it is a small one, such as `white space`.
    pub only: Option<&'static str>,
}

/// Lines told of places that are not unique.
const MAX_LINES_TOLD: usize = 50;
/// Near places told.
const MAX_NEAR: usize = 3;
/// Line comparisons spent on finding near places.
const MAX_COMPARISONS: usize = 4_000_000;

/// Replaces `old` by `new` in `text`: at its only place, or with `all` at every one, from the left, never inside what was
/// put in.
///
/// Line endings of `old` and `new` may be LF where the text has CRLF, and those of `new` may be any where all of the text's
/// are the same. Lines that `old` and `new` share at their start and end keep their bytes; a line that takes another's place
/// ends as that did, and other lines that are put in end as their neighbours do.
///
/// # Errors
///
/// See [`EditFault`].
pub fn edit(text: &str, old: &str, new: &str, all: bool) -> Result<Edited, EditFault> {
    let plain = Plain::of(text);
    let (old_plain, new_plain) = (without_cr(old), without_cr(new));
    // Where the caller writes CRLF itself, it means the bytes.
    let found = if old.contains('\r') { find_exact(text, old) } else { plain.find(&old_plain) };
    match found.as_slice() {
        [] => return Err(EditFault::NotFound(nearest(&plain.text, &old_plain))),
        [_] => {}
        _ if all => {}
        several => {
            let lines = several.iter().map(|place| line_of(text, place.start));
            return Err(EditFault::NotUnique {
                places: several.len() as u64,
                lines: lines.take(MAX_LINES_TOLD).collect(),
            });
        }
    }
    // A text whose lines all end in one way keeps to it, whatever the caller writes; where they differ, it may mean one.
    let verbatim = old.contains('\r') || (new.contains('\r') && !plain.ends_in_one_way());
    let mut out = String::with_capacity(text.len() + new.len() * found.len());
    let mut done = 0;
    for place in &found {
        out.push_str(&text[done..place.start]);
        if verbatim {
            out.push_str(new);
        } else {
            replace_lines(text, place, &new_plain, &mut out);
        }
        done = place.end;
    }
    out.push_str(&text[done..]);
    Ok(Edited { text: out, replacements: found.len() as u64 })
}

/// A text with LF only, and where its characters stand in the original.
struct Plain {
    text: String,
    /// Offsets in `text` of the LF whose CR was left out.
    dropped: Vec<usize>,
}

impl Plain {
    fn of(text: &str) -> Self {
        if !text.contains("\r\n") {
            return Self { text: text.to_owned(), dropped: Vec::new() };
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
        Self { text: plain, dropped }
    }

    /// Whether there are lines that end, and all of them end the same.
    fn ends_in_one_way(&self) -> bool {
        let ends = memchr::memchr_iter(b'\n', self.text.as_bytes()).count();
        ends > 0 && (self.dropped.is_empty() || self.dropped.len() == ends)
    }

    /// Every place of `needle`, as ranges of the original text.
    fn find(&self, needle: &str) -> Vec<Range<usize>> {
        // An LF stands for its CR too: a range that begins with one begins before the CR.
        let start = |at: usize| at + self.dropped.partition_point(|dropped| *dropped < at);
        find_exact(&self.text, needle).into_iter().map(|place| start(place.start)..start(place.end)).collect()
    }
}

fn find_exact(text: &str, needle: &str) -> Vec<Range<usize>> {
    if needle.is_empty() {
        return Vec::new();
    }
    memchr::memmem::find_iter(text.as_bytes(), needle).map(|at| at..at + needle.len()).collect()
}

fn without_cr(text: &str) -> String {
    text.replace("\r\n", "\n")
}

fn line_of(text: &str, at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64 + 1
}

/// Writes what stands at `place` with `new` in its stead: shared first and last lines as they are.
fn replace_lines(text: &str, place: &Range<usize>, new: &str, out: &mut String) {
    let old_lines: Vec<&str> = text[place.clone()].split_inclusive('\n').collect();
    let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
    let same = |old: &&str, new: &&str| {
        without_ending(old) == without_ending(new) && old.ends_with('\n') == new.ends_with('\n')
    };
    let head = old_lines.iter().zip(&new_lines).take_while(|(old, new)| same(old, new)).count();
    let room = old_lines.len().min(new_lines.len()) - head;
    let tail =
        old_lines.iter().rev().zip(new_lines.iter().rev()).take(room).take_while(|(old, new)| same(old, new)).count();
    let ending = ending_near(text, place, head, &old_lines);
    out.extend(old_lines[..head].iter().copied());
    let (going, coming) = (&old_lines[head..old_lines.len() - tail], &new_lines[head..new_lines.len() - tail]);
    for (at, line) in coming.iter().enumerate() {
        // As many lines as go are taken for the same lines, each in its place.
        let same = going.get(at).filter(|_| going.len() == coming.len()).and_then(|going| ending_of(going));
        out.push_str(line.trim_end_matches('\n'));
        if line.ends_with('\n') {
            out.push_str(same.unwrap_or(ending));
        }
    }
    out.extend(old_lines[old_lines.len() - tail..].iter().copied());
}

fn ending_of(line: &str) -> Option<&'static str> {
    if line.ends_with("\r\n") { Some("\r\n") } else { line.ends_with('\n').then_some("\n") }
}

fn without_ending(line: &str) -> &str {
    line.strip_suffix("\r\n").or_else(|| line.strip_suffix('\n')).unwrap_or(line)
}

/// How the lines put in behind the first `head` lines of `place` end: as the first line that goes, or the line before, or
/// the line after.
fn ending_near(text: &str, place: &Range<usize>, head: usize, old_lines: &[&str]) -> &'static str {
    let replaced = old_lines[head..].iter().chain(old_lines[..head].last());
    let before = text[..place.start].rfind('\n').map(|at| &text[..=at]);
    let after = text[place.end..].find('\n').map(|at| &text[..=place.end + at]);
    let neighbours = replaced.copied().chain(after).chain(before);
    neighbours.into_iter().find_map(ending_of).unwrap_or("\n")
}

/// The places of `text` that are most like `old`, best first. Both have LF only.
fn nearest(text: &str, old: &str) -> Vec<Near> {
    let wanted: Vec<&str> = old.lines().collect();
    let lines: Vec<&str> = text.lines().collect();
    if wanted.is_empty() || lines.is_empty() {
        return Vec::new();
    }
    let window = wanted.len().min(lines.len());
    // A text that is too long is compared by its first lines only.
    let depth = window.min((MAX_COMPARISONS / lines.len()).max(1));
    let mut scored: Vec<(usize, usize)> = (0..=lines.len() - window)
        .map(|at| (wanted.iter().zip(&lines[at..]).take(depth).map(|(a, b)| likeness(a, b)).sum::<usize>(), at))
        .filter(|(score, _)| *score > depth * 4 / 10)
        .collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    scored.truncate(MAX_NEAR);
    scored.into_iter().map(|(_, at)| near(&wanted, &lines[at..at + window], at)).collect()
}

/// 10 for the same line, 8 for one that differs in white space or quotes only, 0 to 6 for the share of common words.
fn likeness(wanted: &str, there: &str) -> usize {
    if wanted == there {
        return 10;
    }
    if !squeeze(wanted).is_empty() && squeeze(wanted) == squeeze(there) {
        return 8;
    }
    let words: Vec<&str> = wanted.split_whitespace().collect();
    if words.is_empty() {
        return 0;
    }
    6 * words.iter().filter(|word| there.contains(**word)).count() / words.len()
}

fn squeeze(line: &str) -> String {
    line.chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| if matches!(c, '\'' | '“' | '”' | '‘' | '’' | '`') { '"' } else { c })
        .collect()
}

fn near(wanted: &[&str], there: &[&str], at: usize) -> Near {
    let cut = |line: &str| line.chars().take(200).collect::<String>();
    let mut difference = String::new();
    for (want, have) in wanted.iter().zip(there).take(20) {
        if want == have {
            difference.extend(["  ", &cut(want), "\n"]);
        } else {
            difference.extend(["- ", &cut(want), "\n+ ", &cut(have), "\n"]);
        }
    }
    let pairs = || wanted.iter().zip(there).filter(|(want, have)| want != have);
    let blank = |line: &str| line.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let only = if wanted.len() != there.len() {
        None
    } else if pairs().all(|(want, have)| blank(want) == blank(have)) {
        Some("white space")
    } else if pairs().all(|(want, have)| squeeze(want) == squeeze(have)) {
        Some("quotes")
    } else if pairs().all(|(want, have)| want.to_lowercase() == have.to_lowercase()) {
        Some("letter case")
    } else {
        None
    };
    Near { line: at as u64 + 1, difference, only }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            assert_eq!(edit(text, old, new, false).unwrap().text, want, "{text:?} {old:?} {new:?}");
        }
    }

    #[test]
    fn all_places_change_once_even_if_the_new_text_holds_the_old() {
        let edited = edit("a a\r\na", "a", "aa", true).unwrap();
        assert_eq!((edited.text.as_str(), edited.replacements), ("aa aa\r\naa", 3));
        assert_eq!(edit("a a\r\na", "a", "b", false), Err(EditFault::NotUnique { places: 3, lines: vec![1, 1, 2] }));
        let many = "a\n".repeat(60);
        let lines = (1..=50).collect();
        assert_eq!(edit(&many, "a", "b", false), Err(EditFault::NotUnique { places: 60, lines }));
    }

    #[test]
    fn a_miss_tells_the_nearest_place_and_what_differs() {
        let text = "fn a() {\n    let x = 1;\n}\nfn b() {\n    let y = \"2\";\n}\n";
        let Err(EditFault::NotFound(near)) = edit(text, "fn b() {\n  let y = \"2\";", "", false) else { panic!() };
        assert_eq!((near[0].line, near[0].only), (4, Some("white space")));
        assert!(near[0].difference.contains("-   let y = \"2\";\n+     let y = \"2\";"), "{}", near[0].difference);
        let Err(EditFault::NotFound(near)) = edit(text, "    let y = '2';", "", false) else { panic!() };
        assert_eq!((near[0].line, near[0].only), (5, Some("quotes")));
        assert_eq!(edit("", "x", "y", false), Err(EditFault::NotFound(Vec::new())));
    }

    proptest! {
        #[test]
        fn an_edit_is_undone_by_its_reverse_where_both_are_unique(before in "[ab\\n]{0,20}", old in "[cd\\n]{1,6}x", new in "[ef\\n]{1,6}y", after in "[ab\\n]{0,20}") {
            let text = format!("{before}{old}{after}");
            let there = edit(&text, &old, &new, false).unwrap();
            prop_assert_eq!(&there.text, &format!("{before}{new}{after}"));
            prop_assert_eq!(edit(&there.text, &new, &old, false).unwrap().text, text);
        }

        #[test]
        fn a_crlf_text_stays_one(before in "[ab\\n]{0,20}", old in "[cd\\n]{1,6}x", new in "[ef\\n]{1,6}y", after in "[ab\\n]{0,20}") {
            let crlf = |text: String| text.replace('\n', "\r\n");
            let text = crlf(format!("{before}{old}{after}"));
            prop_assume!(text.contains('\n'));
            prop_assert_eq!(edit(&text, &old, &new, false).unwrap().text, crlf(format!("{before}{new}{after}")));
        }
    }
}
