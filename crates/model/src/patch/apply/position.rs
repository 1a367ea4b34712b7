//! Finds the one position at which a hunk may be applied.

use std::ops::Range;

use super::super::file_patch::{Hunk, HunkLine};
use super::super::locate::{HunkFinder, MAX_OFFSETS, Matching};

/// What a hunk requires of its position.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing about the hunk, and all of them can be true together"
)]
pub(crate) struct HunkTarget<'a> {
    /// Its context and deleted lines.
    pub(crate) old: Vec<&'a [u8]>,
    /// The line that its header states, from 0.
    pub(crate) stated: Option<usize>,
    pub(crate) matching: Matching,
    /// Whether it must match the start of the file.
    pub(crate) begins_file: bool,
    /// Whether it must match the end of the file.
    pub(crate) ends_file: bool,
    /// Whether it inserts a line without a newline, after which no line may follow.
    pub(crate) inserts_last_line: bool,
    /// Whether it has no context, so that only its line number determines the position.
    is_bare: bool,
    /// Lines above the hunk that it names.
    anchors: &'a [Vec<u8>],
}

/// Why a hunk has no position.
pub(crate) enum Mismatch {
    /// Its lines are not in the file.
    NotFound,
    /// They are at these lines, from 0, at none of which it may be applied.
    Elsewhere(Vec<usize>),
    /// They are at these lines, and nothing selects one.
    Ambiguous(Vec<usize>),
    /// They are only at this line, before an earlier hunk.
    OutOfOrder(usize),
    /// They are only at this line, above the line that the header names.
    AboveAnchor(usize),
    /// A line that the header names is not there once.
    Anchor(AnchorFault),
    /// The search would take too long.
    TooMuchWork,
}

/// Why a line that a hunk's header names selects no position.
pub(crate) struct AnchorFault {
    /// The line as the header names it.
    pub(crate) anchor: Vec<u8>,
    /// The lines of the file, from 0, at which it occurs: none, several, or one that is outside of `within`.
    pub(crate) found: Vec<usize>,
    /// The lines among which it must occur.
    pub(crate) within: Range<usize>,
}

impl Mismatch {
    /// Whether lines of the hunk are not where they may be.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::NotFound | Self::OutOfOrder(_) | Self::AboveAnchor(_) => true,
            Self::Anchor(fault) => fault.found.is_empty(),
            Self::Elsewhere(_) | Self::Ambiguous(_) | Self::TooMuchWork => false,
        }
    }
}

impl<'a> HunkTarget<'a> {
    /// What `hunk` requires; `has_crlf` is whether lines of the file end in CRLF.
    pub(crate) fn of(hunk: &'a Hunk, has_crlf: bool) -> Self {
        let is_context = |line: &&HunkLine| matches!(line, HunkLine::Context(_));
        let leading = hunk.lines.iter().take_while(is_context).count();
        let trailing = hunk.lines.iter().rev().take_while(is_context).count();
        let ends_in_lf = hunk.lines.iter().all(|line| !line.bytes().ends_with(b"\r\n"));
        let old: Vec<_> = hunk.old_lines().collect();
        let is_numbered = hunk.old_start.is_some();
        let is_bare = is_numbered && leading == 0 && trailing == 0 && !old.is_empty();
        let inserts_last_line =
            hunk.lines.iter().any(|line| matches!(line, HunkLine::Insert(bytes) if !bytes.ends_with(b"\n")));
        Self {
            stated: hunk.old_start.and_then(|start| usize::try_from(start.saturating_sub(1)).ok()),
            matching: if has_crlf && ends_in_lf { Matching::AnyEnding } else { Matching::Exact },
            begins_file: !is_bare && hunk.old_start.is_some_and(|start| start <= 1),
            ends_file: inserts_last_line || if is_numbered { !is_bare && trailing == 0 } else { hunk.at_end },
            inserts_last_line,
            is_bare,
            anchors: &hunk.anchors,
            old,
        }
    }

    /// The same, compared leniently.
    pub(crate) fn lenient(self) -> Self {
        Self { matching: Matching::Lenient, ..self }
    }

    /// The distance from the stated line to line `at`.
    pub(crate) fn offset_of(&self, at: usize) -> Option<i64> {
        self.stated.and_then(|stated| i64::try_from(at).ok()?.checked_sub(i64::try_from(stated).ok()?))
    }

    /// Finds the hunk's position after those `taken`. `has_moved` is whether an earlier hunk was not at its stated line.
    pub(crate) fn find_position(
        &self,
        finder: &mut HunkFinder<'_>,
        lines: &[&[u8]],
        taken: &[Range<usize>],
        has_moved: bool,
    ) -> Result<usize, Mismatch> {
        let free_from = taken.last().map_or(0, |range| range.end);
        let block = self.block_under_anchors(finder, lines, free_from..lines.len())?;
        let first = block.start;
        if self.old.is_empty() && !self.ends_file && !self.anchors.is_empty() {
            return Ok(first);
        }
        let matches = |finder: &HunkFinder<'_>, at: usize| {
            let fits = (!self.begins_file || at == 0) && (!self.ends_file || at + self.old.len() == lines.len());
            at >= first && fits && finder.matches_at(&self.old, self.matching, at)
        };
        // A hunk that matches at its stated line applies, even if it lacks trailing context before the end of the file:
        // people and models omit that line. A last line without a newline would be joined to the line that follows.
        let matches_as_stated = |at: usize| {
            let matches_there = at >= first && finder.matches_at(&self.old, self.matching, at);
            matches_there && (!(self.old.is_empty() || self.inserts_last_line) || matches(finder, at))
        };
        if let Some(stated) = self.stated.filter(|at| (!has_moved || self.is_bare) && matches_as_stated(*at)) {
            return Ok(stated);
        }
        // A hunk that only lacks trailing context may have lost it, so that the end of the file must be its only place.
        let states_end = self.ends_file && self.stated.is_none();
        if !self.is_bare && (self.begins_file || states_end) {
            let only = if self.begins_file { Some(0) } else { lines.len().checked_sub(self.old.len()) };
            if let Some(only) = only.filter(|only| matches(finder, *only)) {
                return Ok(only);
            }
        }
        // Line numbers that were wrong once do not prove the order; hunks without numbers have only their order.
        let from = if self.stated.is_some() { 0 } else { first };
        let found = finder.find_all(&self.old, self.matching, from, taken).ok_or(Mismatch::TooMuchWork)?;
        if found.is_empty() {
            // Lines above are shown only to say why they do not count.
            let above = if from > 0 { finder.find_all(&self.old, self.matching, 0, taken) } else { None };
            return Err(match above.unwrap_or_default().first() {
                Some(at) if *at < free_from => Mismatch::OutOfOrder(*at),
                Some(at) => Mismatch::AboveAnchor(*at),
                None => Mismatch::NotFound,
            });
        }
        if self.ends_file && self.stated.is_some() && !self.begins_file && !self.is_bare {
            return match found.as_slice() {
                [only] if matches(finder, *only) => Ok(*only),
                [_] => Err(Mismatch::Elsewhere(found)),
                _ => Err(Mismatch::Ambiguous(found)),
            };
        }
        if self.is_bare || self.begins_file || self.ends_file {
            return Err(Mismatch::Elsewhere(found));
        }
        // A match within the block of the anchors takes precedence over later ones.
        let in_block = found.partition_point(|at| *at < block.end);
        match found.as_slice() {
            [only, ..] if in_block == 1 && !self.anchors.is_empty() => Ok(*only),
            [only] if *only >= first => Ok(*only),
            [only] => Err(Mismatch::OutOfOrder(*only)),
            _ => Err(Mismatch::Ambiguous(found)),
        }
    }

    /// The lines within `all` that belong to the anchors.
    fn block_under_anchors(
        &self,
        finder: &mut HunkFinder<'_>,
        lines: &[&[u8]],
        all: Range<usize>,
    ) -> Result<Range<usize>, Mismatch> {
        let mut block = all;
        for anchor in self.anchors {
            finder.charge_bytes().ok_or(Mismatch::TooMuchWork)?;
            let is_anchor = |line: &&[u8]| self.matching.is_same(line.trim_ascii(), anchor.trim_ascii());
            let occurrences = |range: Range<usize>| range.filter(|at| is_anchor(&lines[*at])).take(MAX_OFFSETS);
            let mut found: Vec<_> = occurrences(block.clone()).collect();
            if let [at] = *found {
                block = at + 1..end_of_block(lines, at, block.end);
                continue;
            }
            if found.is_empty() {
                found = occurrences(0..lines.len()).collect();
            }
            return Err(Mismatch::Anchor(AnchorFault { anchor: anchor.clone(), found, within: block }));
        }
        Ok(block)
    }
}

/// The end of the block that line `head` opens: the next line that is not indented further and closes nothing.
fn end_of_block(lines: &[&[u8]], head: usize, end: usize) -> usize {
    let indent = |line: &[u8]| line.len() - line.trim_ascii_start().len();
    let is_closing = |line: &[u8]| matches!(line.trim_ascii_start().first(), None | Some(b'}' | b')' | b']' | b'{'));
    let is_sibling = |at: &usize| indent(lines[*at]) <= indent(lines[head]) && !is_closing(lines[*at]);
    (head + 1..end).find(is_sibling).unwrap_or(end)
}
