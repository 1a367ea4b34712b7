//! The unified diff between two versions of a file, as Git writes it, with its line counts.

mod changes;
mod region;
mod side;
mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::{Counts, decode};
use changes::{Change, changes};
use region::Region;
pub use side::Side;
pub use write::quoted_name;

/// The diff of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// `diff --git …` with its hunks; `git apply` accepts it. Bytes, since lines are shown unchanged. Empty if the sides
    /// are equal.
    pub text: Vec<u8>,
    /// Lines added and removed; zero for binary files.
    pub counts: Counts,
    /// Whether either side is binary, so that its bytes are not shown.
    pub binary: bool,
    /// Bytes of the new side's lines that the old side lacks, each counted as often as it occurs. `None` for a binary side
    /// and for UTF-16, where the diff does not compare these bytes. Equals [`bytes_written`](crate::bytes_written).
    pub bytes_written: Option<u64>,
}

/// Bytes at the start of a file in which a NUL makes it binary, as in Git.
const BINARY_PROBE: usize = 8000;

/// Writes the diff from `old` to `new` with three lines of context; `None` for a side that does not exist.
///
/// Different paths on the two sides are a rename. UTF-16 is shown and counted as UTF-8 text. The same sides result in the
/// same text on every machine. The work is bounded: a pair too large or too different for the shortest diff gets a longer
/// one that is also correct.
pub fn diff_file(old: Option<Side<'_>>, new: Option<Side<'_>>) -> FileDiff {
    let (old_bytes, new_bytes) = (bytes_of(old), bytes_of(new));
    let mut text = Vec::new();
    if old_bytes == new_bytes {
        write::header(&mut text, old, new, 100);
        return FileDiff { text, counts: Counts::default(), binary: is_binary(old_bytes), bytes_written: Some(0) };
    }
    let Some((old_text, new_text)) = texts(old_bytes, new_bytes) else {
        return diff_binary(old, new, write::blob_id);
    };
    let region = Region::new(&old_text, &new_text);
    let changes = changes(&region);
    write::header(&mut text, old, new, similarity(&region, &changes, old_text.len().max(new_text.len())));
    write::names(&mut text, old, new);
    write::hunks(&mut text, &region, &changes);
    let is_raw = matches!((&old_text, &new_text), (Cow::Borrowed(_), Cow::Borrowed(_)));
    // Lines outside the changes are equal on both sides and cancel out.
    let old_lines = changes.iter().flat_map(|change| &region.old[change.old.clone()]).copied();
    let new_lines = changes.iter().flat_map(|change| &region.new[change.new.clone()]).copied();
    let bytes_written = is_raw.then(|| inserted_bytes(old_lines, new_lines));
    FileDiff { text, counts: counts_of(&changes), binary: false, bytes_written }
}

/// As [`diff_file`], for sides that differ and whose bytes are too many to be read. Those of `old` and `new` are not looked at.
pub fn diff_unread(old: Option<Side<'_>>, new: Option<Side<'_>>) -> FileDiff {
    diff_binary(old, new, |_| write::UNKNOWN_BLOB.to_owned())
}

fn diff_binary(old: Option<Side<'_>>, new: Option<Side<'_>>, id: impl Fn(&[u8]) -> String) -> FileDiff {
    let mut text = Vec::new();
    write::changed_header(&mut text, old, new, 0);
    if let (Some(old), Some(new)) = (old, new) {
        write::index(&mut text, old, new, id);
    }
    write::binary_line(&mut text, old, new);
    FileDiff { text, counts: Counts::default(), binary: true, bytes_written: None }
}

/// Counts the lines that the diff from `old` to `new` adds and removes, without writing it; zero for binary files.
pub fn count_changes(old: &[u8], new: &[u8]) -> Counts {
    match texts(old, new) {
        Some((old, new)) if old != new => counts_of(&changes(&Region::new(&old, &new))),
        Some(_) | None => Counts::default(),
    }
}

/// The lines, counted from 0, that change between two texts: ranges of old lines with the new lines that replace them, in
/// order. The work is bounded as for [`diff_file`].
pub(crate) fn changed_lines(old: &str, new: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let region = Region::new(old.as_bytes(), new.as_bytes());
    let shifted = |range: Range<usize>| range.start + region.lines_before..range.end + region.lines_before;
    changes(&region).into_iter().map(|change| (shifted(change.old), shifted(change.new))).collect()
}

/// A text as a diff shows it.
type Text<'a> = Cow<'a, [u8]>;

/// The texts that a diff compares; `None` if it does not show lines.
fn texts<'a>(old: &'a [u8], new: &'a [u8]) -> Option<(Text<'a>, Text<'a>)> {
    if !is_binary(old) && !is_binary(new) {
        return Some((Cow::Borrowed(old), Cow::Borrowed(new)));
    }
    // UTF-16 contains NULs but is text: a person who approves an edit has to see it.
    let text = |bytes| decode(bytes).map(|decoded| Cow::Owned(decoded.text.into_bytes()));
    let (old, new) = (text(old)?, text(new)?);
    (old != new).then_some((old, new))
}

fn bytes_of(side: Option<Side<'_>>) -> &[u8] {
    side.map_or(&[], |side| side.bytes)
}

fn is_binary(bytes: &[u8]) -> bool {
    memchr::memchr(0, &bytes[..bytes.len().min(BINARY_PROBE)]).is_some()
}

fn counts_of(changes: &[Change]) -> Counts {
    changes.iter().fold(Counts::default(), |sum, change| {
        sum + Counts { insertions: change.new.len() as u64, deletions: change.old.len() as u64 }
    })
}

/// The bytes of the new lines that are not among the old ones, each line counted as often as it occurs.
pub(crate) fn inserted_bytes<'a>(old: impl Iterator<Item = &'a [u8]>, new: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut remaining: HashMap<&[u8], usize, RandomState> = HashMap::default();
    for line in old {
        *remaining.entry(line).or_default() += 1;
    }
    let mut bytes = 0;
    for line in new {
        match remaining.get_mut(line) {
            Some(count) if *count > 0 => *count -= 1,
            _ => bytes += line.len() as u64,
        }
    }
    bytes
}

/// The unchanged share of the larger side, in percent. Below 100, because the sides differ.
fn similarity(region: &Region<'_>, changes: &[Change], larger: usize) -> u64 {
    let added: usize = changes.iter().flat_map(|change| &region.new[change.new.clone()]).map(|line| line.len()).sum();
    let kept = region.new_len.saturating_sub(added);
    (kept as u64 * 100 / larger.max(1) as u64).min(99)
}

#[cfg(test)]
mod tests;
