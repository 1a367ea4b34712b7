//! The unified diff between two versions of a file, as Git writes it, with its line counts.

mod changes;
mod region;
mod side;
mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::text::view;
use crate::{Encoding, LineCounts, decode_as, git_mode, is_guessed};
use changes::{LineChange, changes};
use region::Region;
pub use side::Side;
pub use write::quoted_name;

/// The diff of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// `diff --git …` with its hunks. Bytes, since a text whose encoding cannot be determined is shown unchanged. Empty if the
    /// sides are equal.
    pub text: Vec<u8>,
    /// Lines added and removed; zero for binary files.
    pub counts: LineCounts,
    /// Whether either side is binary, so that its bytes are not shown.
    pub binary: bool,
    /// Bytes of the new side's lines that the old side lacks, each counted as often as it occurs. `None` for a binary side
    /// and for decoded text, where the diff does not compare these bytes. Equals [`bytes_written`](crate::bytes_written).
    pub bytes_written: Option<u64>,
    /// The encoding that the text was decoded from. `None` if the diff shows the bytes of the files.
    pub decoded: Option<DecodedFrom>,
}

/// The encoding of a text that a diff shows in UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedFrom {
    /// The encoding of the new side, or of the old one if only that is not UTF-8.
    pub encoding: Encoding,
    /// Whether it is guessed from the bytes.
    pub is_guessed: bool,
}

/// Bytes at the start of a file in which a NUL makes it binary, as in Git.
const BINARY_PROBE: usize = 8000;

/// Writes the diff from `old` to `new` with three lines of context; `None` for a side that does not exist.
///
/// Different paths on the two sides are a rename. Text in UTF-16 or an older encoding is shown and counted as UTF-8 text, as
/// [`decode`](crate::decode) reads it. The same sides result in the same text on every machine. The work is bounded: a pair
/// too large or too different for the shortest diff gets a longer one that is also correct. A file that becomes a symbolic link, or a
/// link that becomes a file, is removed and created, as in Git.
pub fn diff_file(old: Option<Side<'_>>, new: Option<Side<'_>>) -> FileDiff {
    if let Some(diff) = diff_types(old, new, diff_file) {
        return diff;
    }
    let (old_bytes, new_bytes) = (bytes_of(old), bytes_of(new));
    let mut text = Vec::new();
    if old_bytes == new_bytes {
        let identity = |side: Side<'_>| (side.path.clone(), git_mode(side.mode));
        if old.map(identity) != new.map(identity) {
            write::header(&mut text, old, new, 100);
        }
        let binary = is_binary(old_bytes);
        return FileDiff { text, counts: LineCounts::default(), binary, bytes_written: Some(0), decoded: None };
    }
    let Some(Texts { old: old_text, new: new_text, decoded }) = texts(old_bytes, new_bytes) else {
        return diff_binary(old, new, write::blob_id);
    };
    let region = Region::new(&old_text, &new_text);
    let changes = changes(&region);
    write::header(&mut text, old, new, similarity(&region, &changes, old_text.len().max(new_text.len())));
    write::names(&mut text, old, new);
    write::hunks(&mut text, &region, &changes);
    // Lines outside the changes are equal on both sides and cancel out.
    let old_lines = changes.iter().flat_map(|change| &region.old[change.old.clone()]).copied();
    let new_lines = changes.iter().flat_map(|change| &region.new[change.new.clone()]).copied();
    let bytes_written = decoded.is_none().then(|| inserted_bytes(old_lines, new_lines));
    FileDiff { text, counts: counts_of(&changes), binary: false, bytes_written, decoded }
}

/// As [`diff_file`], for sides that differ and whose bytes are too many to be read. Those of `old` and `new` are not looked at.
pub fn diff_unread(old: Option<Side<'_>>, new: Option<Side<'_>>) -> FileDiff {
    diff_types(old, new, diff_unread).unwrap_or_else(|| diff_binary(old, new, |_| write::UNKNOWN_BLOB.to_owned()))
}

/// The removal and the creation of a path of which only one side is a symbolic link.
fn diff_types(
    old: Option<Side<'_>>,
    new: Option<Side<'_>>,
    diff: fn(Option<Side<'_>>, Option<Side<'_>>) -> FileDiff,
) -> Option<FileDiff> {
    if old?.is_link() == new?.is_link() {
        return None;
    }
    let (removed, created) = (diff(old, None), diff(None, new));
    Some(FileDiff {
        text: [removed.text, created.text].concat(),
        counts: removed.counts + created.counts,
        binary: removed.binary || created.binary,
        bytes_written: None,
        decoded: removed.decoded.or(created.decoded),
    })
}

fn diff_binary(old: Option<Side<'_>>, new: Option<Side<'_>>, id: impl Fn(&[u8]) -> String) -> FileDiff {
    let mut text = Vec::new();
    write::header(&mut text, old, new, 0);
    if let (Some(old), Some(new)) = (old, new)
        && !old.is_link()
    {
        write::index(&mut text, old, new, id);
    }
    write::binary_line(&mut text, old, new);
    FileDiff { text, counts: LineCounts::default(), binary: true, bytes_written: None, decoded: None }
}

/// Counts the lines that the diff from `old` to `new` adds and removes, without writing it; zero for binary files.
pub fn count_changes(old: &[u8], new: &[u8]) -> LineCounts {
    match texts(old, new) {
        Some(Texts { old, new, .. }) if old != new => counts_of(&changes(&Region::new(&old, &new))),
        Some(_) | None => LineCounts::default(),
    }
}

/// The lines, counted from 0, that change between two texts: ranges of old lines with the new lines that replace them, in
/// order. The work is bounded as for [`diff_file`].
pub(crate) fn changed_lines(old: &str, new: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let region = Region::new(old.as_bytes(), new.as_bytes());
    let shifted = |range: Range<usize>| range.start + region.lines_before..range.end + region.lines_before;
    changes(&region).into_iter().map(|change| (shifted(change.old), shifted(change.new))).collect()
}

/// The texts that a diff compares.
struct Texts<'a> {
    old: Cow<'a, [u8]>,
    new: Cow<'a, [u8]>,
    decoded: Option<DecodedFrom>,
}

/// The texts that a diff compares; `None` if it does not show lines.
fn texts<'a>(old: &'a [u8], new: &'a [u8]) -> Option<Texts<'a>> {
    let raw = || Texts { old: Cow::Borrowed(old), new: Cow::Borrowed(new), decoded: None };
    // A person who approves an edit has to see it, whatever the encoding.
    match (is_binary(old) || is_binary(new), is_utf8(old) && is_utf8(new)) {
        // UTF-16 contains NULs but is text.
        (true, _) => decoded_texts(old, new),
        (false, true) => Some(raw()),
        (false, false) => Some(decoded_texts(old, new).unwrap_or_else(raw)),
    }
}

/// The decoded texts; `None` if a side is no text, or the sides differ in their encoding only.
fn decoded_texts<'a>(old: &'a [u8], new: &'a [u8]) -> Option<Texts<'a>> {
    let ((mut old_text, old_encoding), (mut new_text, new_encoding)) = (view(old)?, view(new)?);
    let mut encoding = if is_utf8(new) { old_encoding } else { new_encoding };
    // A change must not show other lines only because the guess is another one now.
    if old_encoding != new_encoding && old_encoding.is_older() && new_encoding.is_older() {
        let (old_guessed, new_guessed) = (is_guessed(old, old_encoding), is_guessed(new, new_encoding));
        let both_in = |encoding| Some((decode_as(old, encoding)?, decode_as(new, encoding)?, encoding));
        let (first, second) =
            if new_guessed && !old_guessed { (old_encoding, new_encoding) } else { (new_encoding, old_encoding) };
        if (old_guessed || new_guessed)
            && let Some((old, new, common)) = both_in(first).or_else(|| both_in(second))
        {
            (old_text, new_text, encoding) = (Cow::Owned(old), Cow::Owned(new), common);
        }
    }
    let is_guessed = is_guessed(if is_utf8(new) { old } else { new }, encoding);
    let into_bytes = |text: Cow<'a, str>| match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    let decoded = Some(DecodedFrom { encoding, is_guessed });
    (old_text != new_text).then(|| Texts { old: into_bytes(old_text), new: into_bytes(new_text), decoded })
}

fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

fn bytes_of(side: Option<Side<'_>>) -> &[u8] {
    side.map_or(&[], |side| side.bytes)
}

fn is_binary(bytes: &[u8]) -> bool {
    memchr::memchr(0, &bytes[..bytes.len().min(BINARY_PROBE)]).is_some()
}

fn counts_of(changes: &[LineChange]) -> LineCounts {
    changes.iter().fold(LineCounts::default(), |sum, change| {
        sum + LineCounts { insertions: change.new.len() as u64, deletions: change.old.len() as u64 }
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
fn similarity(region: &Region<'_>, changes: &[LineChange], larger: usize) -> u64 {
    let added: usize = changes.iter().flat_map(|change| &region.new[change.new.clone()]).map(|line| line.len()).sum();
    let kept = region.new_len.saturating_sub(added);
    (kept as u64 * 100 / larger.max(1) as u64).min(99)
}

#[cfg(test)]
mod tests;
