//! Replaces whole lines of a text by their numbers.

use std::ops::Range;

use super::{Plain, replace_lines, without_cr};

/// Why lines cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeFault {
    /// The lines are not all in the text.
    OutOfRange {
        /// The number of the text's lines.
        total_lines: u64,
    },
    /// The result would exceed the permitted length.
    TooLong {
        /// Its length in bytes.
        bytes: u64,
    },
}

/// Replaces the lines `start` to `end`, counted from 1, by the lines of `content`. With `end` = `start` - 1 it inserts before
/// line `start`, which may be the line after the last one. Empty content removes the lines.
///
/// The last line of `content` gets a line ending if it has none, unless it becomes the last line of a text whose last line
/// has none. LF in `content` becomes the ending of the text if all its lines have the same; in a text that mixes endings,
/// each line takes the ending of the line that it replaces or of its neighbours. All other bytes stay.
///
/// # Errors
///
/// See [`RangeFault`].
pub fn replace_range(text: &str, start: u64, end: u64, content: &str, max_bytes: u64) -> Result<String, RangeFault> {
    let range = byte_range(text, start, end)?;
    let plain = Plain::of(text);
    let verbatim = content.contains('\r') && !plain.has_uniform_endings();
    let mut new = if verbatim { content.to_owned() } else { without_cr(content) };
    let has_open_end = !text.ends_with('\n');
    let ends_as_the_file_did = range.end == text.len() && has_open_end;
    if !(new.is_empty() || new.ends_with('\n') || ends_as_the_file_did) {
        new.push_str(if verbatim && new.contains("\r\n") { "\r\n" } else { "\n" });
    }
    if !new.is_empty() && range.start == text.len() && has_open_end && !text.is_empty() {
        // The last line becomes one with a line after it.
        new.insert(0, '\n');
    }
    let mut out = String::with_capacity(text.len() - range.len() + new.len());
    out.push_str(&text[..range.start]);
    if verbatim {
        out.push_str(&new);
    } else {
        replace_lines(text, &range, &new, &mut out);
    }
    out.push_str(&text[range.end..]);
    let bytes = out.len() as u64;
    if bytes > max_bytes { Err(RangeFault::TooLong { bytes }) } else { Ok(out) }
}

/// The bytes of the lines `start` to `end`.
fn byte_range(text: &str, start: u64, end: u64) -> Result<Range<usize>, RangeFault> {
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    let total_lines = ends as u64 + u64::from(!text.is_empty() && !text.ends_with('\n'));
    if start == 0 || end > total_lines || start > end.saturating_add(1) {
        return Err(RangeFault::OutOfRange { total_lines });
    }
    let end_of = |line: u64| match usize::try_from(line).ok().and_then(|line| line.checked_sub(1)) {
        None => 0,
        Some(before) => memchr::memchr_iter(b'\n', text.as_bytes()).nth(before).map_or(text.len(), |at| at + 1),
    };
    Ok(end_of(start - 1)..end_of(end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_BYTES: u64 = 1 << 20;

    #[test]
    fn whole_lines_are_replaced_and_nothing_else() {
        let table = [
            ("a\nb\nc\n", 2, 2, "B\n", "a\nB\nc\n"),
            ("a\nb\nc\n", 2, 2, "B", "a\nB\nc\n"),
            ("a\nb\nc\n", 1, 3, "x\ny\n", "x\ny\n"),
            ("a\nb\nc\n", 2, 3, "", "a\n"),
            ("a\nb\nc\n", 1, 3, "", ""),
            // Inserts before a line, and after the last one.
            ("a\nb\n", 1, 0, "x", "x\na\nb\n"),
            ("a\nb\n", 2, 1, "x\ny", "a\nx\ny\nb\n"),
            ("a\nb\n", 3, 2, "x", "a\nb\nx\n"),
            ("", 1, 0, "x", "x"),
            ("", 1, 0, "x\n", "x\n"),
            // A file without a final newline keeps being one, unless the content has one.
            ("a\nb", 2, 2, "B", "a\nB"),
            ("a\nb", 2, 2, "B\n", "a\nB\n"),
            ("a\nb", 1, 1, "A", "A\nb"),
            ("a\nb", 3, 2, "c", "a\nb\nc"),
            ("a\nb", 3, 2, "c\n", "a\nb\nc\n"),
            ("a\nb", 2, 2, "", "a\n"),
            // The content takes the text's line endings.
            ("a\r\nb\r\n", 2, 2, "x\ny\n", "a\r\nx\r\ny\r\n"),
            ("a\r\nb", 3, 2, "c", "a\r\nb\r\nc"),
            ("a\nb\n", 2, 2, "x\r\ny\r\n", "a\nx\ny\n"),
            ("a\r\nb\nc\r\n", 2, 2, "B\n", "a\r\nB\nc\r\n"),
            ("a\r\nb\nc\r\n", 1, 1, "A\n", "A\r\nb\nc\r\n"),
            ("a\r\nb\nc\r\n", 2, 2, "B\r\nC", "a\r\nB\r\nC\r\nc\r\n"),
            ("a\rb\n", 1, 1, "c", "c\n"),
            ("a\n\n\nb\n", 2, 3, "\n", "a\n\nb\n"),
        ];
        for (text, start, end, content, want) in table {
            let got = replace_range(text, start, end, content, MAX_BYTES);
            assert_eq!(got.as_deref(), Ok(want), "{text:?} {start}-{end} {content:?}");
        }
    }

    #[test]
    fn lines_outside_the_text_are_refused_with_the_number_of_its_lines() {
        for (text, start, end, total_lines) in [
            ("a\nb\n", 3, 3, 2),
            ("a\nb\n", 4, 3, 2),
            ("a\nb", 1, 3, 2),
            ("a\n", 0, 0, 1),
            ("", 1, 1, 0),
            ("", 2, 1, 0),
            ("a\nb\n", 2, 0, 2),
            ("a\n", u64::MAX, u64::MAX, 1),
        ] {
            let fault = RangeFault::OutOfRange { total_lines };
            assert_eq!(replace_range(text, start, end, "x\n", MAX_BYTES), Err(fault), "{text:?} {start}-{end}");
        }
        assert_eq!(replace_range("a\nb\n", 1, 1, "xyz\n", 5), Err(RangeFault::TooLong { bytes: 6 }));
    }

    proptest! {
        #[test]
        fn the_lines_around_the_range_keep_their_bytes(
            lines in prop::collection::vec("[ab]{0,3}(\r\n|\n)", 1..12),
            at in 0_usize..12, count in 0_usize..4, content in "[xy\n]{1,8}",
        ) {
            let at = at.min(lines.len());
            let count = count.min(lines.len() - at);
            let (start, end) = (at as u64 + 1, (at + count) as u64);
            let edited = replace_range(&lines.concat(), start, end, &content, MAX_BYTES).unwrap();
            let (before, after) = (lines[..at].concat(), lines[at + count..].concat());
            prop_assert!(edited.starts_with(&before) && edited.ends_with(&after), "{edited:?}");
            let inner = &edited[before.len()..edited.len() - after.len()];
            let want = if content.ends_with('\n') { content } else { content + "\n" };
            prop_assert_eq!(inner.replace("\r\n", "\n"), want);
        }
    }
}
