//! Two versions of a file → a unified diff as git writes it, with its counts.

mod lines;
mod script;
mod search;
mod write;

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::{Counts, LogicalPath, decode};
use lines::Region;

/// One side of a diff.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Where the file is.
    pub path: &'a LogicalPath,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its permission bits, such as `0o644`; git keeps only whether anyone may execute it.
    pub mode: u32,
}

/// The diff of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// `diff --git …` with its hunks; `git apply` takes it. Bytes, since lines are shown as they are. Empty where the
    /// sides do not differ.
    pub text: Vec<u8>,
    /// Lines added and removed; none for binary files.
    pub counts: Counts,
    /// Whether either side is binary, whose bytes are not shown.
    pub binary: bool,
    /// Bytes of the new side's lines that are not among the old side's, each as often as it is there; `None` where that is
    /// not what the diff compares: for a binary side, and for UTF-16. The same as [`bytes_written`](crate::bytes_written).
    pub bytes_written: Option<u64>,
}

/// Bytes at the start of a file that are looked at for a NUL, which makes it binary; as many as git looks at.
const BINARY_PROBE: usize = 8000;

/// Writes the diff from `old` to `new`, three lines of context; `None` for a side that does not exist.
///
/// Different paths on the two sides are a rename. Text in UTF-16 is shown and counted by its characters, in UTF-8. A pure
/// function: the same sides give the same text on every machine. Bounded in work instead of time: a pair that is too
/// different or too large for a minimal diff within about a second gets a correct, longer one.
pub fn diff_file(old: Option<Side<'_>>, new: Option<Side<'_>>) -> FileDiff {
    let (old_bytes, new_bytes) = (bytes_of(old), bytes_of(new));
    let mut text = Vec::new();
    if old_bytes == new_bytes {
        write::header(&mut text, old, new, 100);
        return FileDiff { text, counts: Counts::default(), binary: is_binary(old_bytes), bytes_written: Some(0) };
    }
    let Some((old_text, new_text)) = texts(old_bytes, new_bytes) else {
        write::header(&mut text, old, new, 0);
        write::binary_line(&mut text, old, new);
        return FileDiff { text, counts: Counts::default(), binary: true, bytes_written: None };
    };
    let region = Region::new(&old_text, &new_text);
    let script = script::shortest(&region);
    write::header(&mut text, old, new, similarity(&region, &script, old_text.len().max(new_text.len())));
    write::names(&mut text, old, new);
    write::hunks(&mut text, &region, &script);
    let is_raw = matches!((&old_text, &new_text), (Cow::Borrowed(_), Cow::Borrowed(_)));
    // Lines that are equal on both sides cancel out, so that only the changes have to be looked at.
    let old_lines = script.iter().flat_map(|replace| &region.old[replace.old.clone()]).copied();
    let new_lines = script.iter().flat_map(|replace| &region.new[replace.new.clone()]).copied();
    let bytes_written = is_raw.then(|| inserted_bytes(old_lines, new_lines));
    FileDiff { text, counts: counts_of(&script), binary: false, bytes_written }
}

/// Lines that the diff from `old` to `new` adds and removes, without writing it; none for binary files.
pub fn count_changes(old: &[u8], new: &[u8]) -> Counts {
    match texts(old, new) {
        Some((old, new)) if old != new => counts_of(&script::shortest(&Region::new(&old, &new))),
        Some(_) | None => Counts::default(),
    }
}

/// The lines that a diff shows, all together.
type Text<'a> = Cow<'a, [u8]>;

/// What the hunks of a diff show of two files that differ; `None` where that is not their lines.
fn texts<'a>(old: &'a [u8], new: &'a [u8]) -> Option<(Text<'a>, Text<'a>)> {
    if !is_binary(old) && !is_binary(new) {
        return Some((Cow::Borrowed(old), Cow::Borrowed(new)));
    }
    // UTF-16 is full of NULs, but text: an edit of it has to be seen by whoever approves it, and counted.
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

fn counts_of(script: &[script::Replace]) -> Counts {
    script.iter().fold(Counts::default(), |sum, replace| {
        sum + Counts { insertions: replace.new.len() as u64, deletions: replace.old.len() as u64 }
    })
}

/// The bytes of the new lines that are not among the old ones, each as often as it is there.
pub(crate) fn inserted_bytes<'a>(old: impl Iterator<Item = &'a [u8]>, new: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut there: HashMap<&[u8], usize, RandomState> = HashMap::default();
    for line in old {
        *there.entry(line).or_default() += 1;
    }
    let mut bytes = 0;
    for line in new {
        match there.get_mut(line) {
            Some(count) if *count > 0 => *count -= 1,
            _ => bytes += line.len() as u64,
        }
    }
    bytes
}

/// How much of the larger side stays, in percent; below 100 since the sides differ.
fn similarity(region: &Region<'_>, script: &[script::Replace], larger: usize) -> u64 {
    let added: usize = script.iter().flat_map(|replace| &region.new[replace.new.clone()]).map(|line| line.len()).sum();
    let kept = region.new_len.saturating_sub(added);
    (kept as u64 * 100 / larger.max(1) as u64).min(99)
}

#[cfg(test)]
mod tests;
