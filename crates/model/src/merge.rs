//! Three-way merges of texts: a change is carried over to a version that has changed meanwhile.

mod conflict;

use std::ops::Range;

use diffy::{ConflictStyle, MergeOptions};

use crate::diff::changed_lines;
use crate::text::LineEnding;
use crate::{ConflictRegion, Decoded, decode, encode};

/// The largest version of a file that is merged, in bytes.
pub const MAX_MERGE_BYTES: u64 = 1 << 20;
/// The most that one comparison may cost: lines of both sides times changed lines, at worst some tenths of a second. `diffy`
/// needs time in that proportion.
const MAX_COST: usize = 100_000_000;

/// Why two changes of a text are not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeFault {
    /// A version is not text.
    NotText,
    /// The merged text has characters that the encoding of the current version lacks.
    NotEncodable,
    /// A version has more than [`MAX_MERGE_BYTES`].
    TooLarge {
        /// Its length in bytes.
        bytes: u64,
    },
    /// The versions differ in so many lines that comparing them would take too long.
    TooDifferent,
    /// Both sides change the same or adjacent lines in different ways.
    Conflicts {
        /// The first of the regions.
        regions: Vec<ConflictRegion>,
        /// The number of all regions.
        count: usize,
    },
}

/// Merges the change from `base` to `new` into `current`, which has changed since `base`. Returns the bytes of the merged file.
///
/// Lines are compared without their endings, and whether the last line has one is merged by itself. The result has the
/// encoding, the byte order mark and the line endings of `current`; in a file that mixes endings, inserted lines end as their
/// neighbours do. The work is bounded.
///
/// # Errors
///
/// See [`MergeFault`].
pub fn merge(base: &[u8], current: &[u8], new: &str) -> Result<Vec<u8>, MergeFault> {
    let longest = base.len().max(current.len()).max(new.len()) as u64;
    if longest > MAX_MERGE_BYTES {
        return Err(MergeFault::TooLarge { bytes: longest });
    }
    let base = decode(base).ok_or(MergeFault::NotText)?.text;
    let Decoded { text: current, encoding } = decode(current).ok_or(MergeFault::NotText)?;
    let new = new.strip_prefix('\u{feff}').unwrap_or(new);
    let [base_side, new_side, current_side] = [&base, new, &current].map(Normalized::of);
    let text = merge_lines(&base_side.text, &new_side.text, &current_side.text)?;
    let is_ended = if new_side.is_ended == base_side.is_ended { current_side.is_ended } else { new_side.is_ended };
    let merged = with_endings(&current, &current_side.text, &text, new, is_ended);
    encode(&merged, encoding).ok_or(MergeFault::NotEncodable)
}

/// Returns the text `new` with the line endings of `current`, which it replaces. A text without line endings has none to keep.
/// Where endings are mixed, lines that stay keep theirs, and others end as their neighbours do.
pub fn keep_line_endings(current: &str, new: &str) -> String {
    match LineEnding::of(current) {
        LineEnding::None => return new.to_owned(),
        LineEnding::Lf if !new.contains("\r\n") => return new.to_owned(),
        LineEnding::Lf | LineEnding::Crlf | LineEnding::Mixed => {}
    }
    let [current_side, new_side] = [current, new].map(Normalized::of);
    with_endings(current, &current_side.text, &new_side.text, new, new_side.is_ended)
}

/// A text in which every line ends in LF.
struct Normalized {
    text: String,
    /// Whether the last line of the original has an ending. True for an empty text.
    is_ended: bool,
}

impl Normalized {
    fn of(text: &str) -> Self {
        let is_ended = text.is_empty() || text.ends_with('\n');
        let mut text = text.replace("\r\n", "\n");
        if !is_ended {
            text.push('\n');
        }
        Self { text, is_ended }
    }
}

/// Merges texts in which every line ends in LF.
fn merge_lines(base: &str, new: &str, current: &str) -> Result<String, MergeFault> {
    if new == base || new == current {
        return Ok(current.to_owned());
    }
    if current == base {
        return Ok(new.to_owned());
    }
    if [new, current].into_iter().any(|side| cost(base, side) > MAX_COST) {
        return Err(MergeFault::TooDifferent);
    }
    let marker_length = conflict::marker_length([base, new, current]);
    let mut options = MergeOptions::new();
    options.set_conflict_style(ConflictStyle::Diff3).set_conflict_marker_length(marker_length);
    options.merge(base, new, current).map_err(|marked| {
        let (regions, count) = conflict::regions(&marked, current, marker_length);
        MergeFault::Conflicts { regions, count }
    })
}

/// What `diffy` needs at most to compare `old` and `new`.
fn cost(old: &str, new: &str) -> usize {
    let changed: usize = changed_lines(old, new).iter().map(|(old, new)| old.len() + new.len()).sum();
    let lines = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count();
    (lines(old) + lines(new)).saturating_mul(changed)
}

/// Gives the lines of `merged` the endings of `current`, whose normalized text is `plain`. A text without any line ending
/// takes those of `new`.
fn with_endings(current: &str, plain: &str, merged: &str, new: &str, is_ended: bool) -> String {
    let all_crlf = |text: &str| LineEnding::of(text) == LineEnding::Crlf;
    let mut text = match LineEnding::of(current) {
        LineEnding::Crlf => merged.replace('\n', "\r\n"),
        LineEnding::None if all_crlf(new) => merged.replace('\n', "\r\n"),
        LineEnding::Lf | LineEnding::None => merged.to_owned(),
        LineEnding::Mixed => with_mixed_endings(current, plain, merged),
    };
    if !is_ended && text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

/// Lines that stay keep their endings; others take that of the line before, or else of the line after.
fn with_mixed_endings(current: &str, plain: &str, merged: &str) -> String {
    let endings: Vec<_> = current.split_inclusive('\n').map(ending_of).collect();
    let mut out = String::with_capacity(merged.len() + endings.len());
    let mut lines = merged.split_inclusive('\n');
    let mut kept_from = 0;
    let mut write = |range: Range<usize>, count: usize, is_kept: bool| {
        for (index, line) in lines.by_ref().take(count).enumerate() {
            let own = endings.get(range.start + index).copied().flatten().filter(|_| is_kept);
            let near = || range.start.checked_sub(1).and_then(|before| endings.get(before).copied().flatten());
            let after = || endings.get(range.start).copied().flatten();
            out.push_str(line.strip_suffix('\n').unwrap_or(line));
            out.push_str(own.or_else(near).or_else(after).unwrap_or("\n"));
        }
    };
    for (old, new) in changed_lines(plain, merged) {
        write(kept_from..old.start, old.start - kept_from, true);
        write(old.clone(), new.len(), false);
        kept_from = old.end;
    }
    write(kept_from..endings.len(), endings.len() - kept_from, true);
    out
}

fn ending_of(line: &str) -> Option<&'static str> {
    if line.ends_with("\r\n") { Some("\r\n") } else { line.ends_with('\n').then_some("\n") }
}

#[cfg(test)]
mod tests;
