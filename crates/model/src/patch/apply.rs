//! Applies a file patch to a file's bytes.

mod line_endings;
mod mismatch;
mod position;

pub use mismatch::OUT_OF_ORDER;

use std::ops::Range;

use super::file_patch::{FilePatch, Hunk, HunkLine, HunkOffset, PatchOperation, PatchResult};
use super::locate::{HunkFinder, Matching, PatchBudget, PatchLeniency};
use crate::{Conflict, LineCounts};
use line_endings::NormalizedText;
use position::{HunkTarget, Mismatch};

/// The most conflicts that are reported for one file.
const MAX_CONFLICTS: usize = 100;

/// Why a file patch does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchFault {
    /// These hunks do not match, at most the first hundred.
    Conflicts(Vec<Conflict>),
    /// Every hunk matches, but inserts characters that the file's encoding lacks.
    NotEncodable,
}

impl FilePatch {
    /// Applies the hunks to `before`, the whole file (empty for a created one).
    ///
    /// A hunk applies at its stated line, or elsewhere if it matches at one position only; never with fuzz. As in Git, a hunk
    /// that begins at line 1 belongs to the start of the file, and one without trailing context to the end; a hunk without
    /// any context applies at its stated line or not at all. Once a hunk has moved, later ones have to be unique too.
    ///
    /// Hunks with LF apply to lines with CRLF; inserted lines then end as their neighbours do. Text in an older encoding or
    /// in UTF-16 is compared by its characters. All other bytes stay the same.
    ///
    /// # Errors
    ///
    /// See [`PatchFault`].
    pub fn apply(&self, before: &[u8]) -> Result<PatchResult, PatchFault> {
        self.apply_within(before, PatchLeniency::Strict, &mut PatchBudget::default())
    }

    /// As [`apply`](Self::apply), as strictly as `leniency` says and with a budget that the files of a patch share. Once it is used up, conflicts are described
    /// without the lines that are similar, and hunks that have to be searched for are conflicts.
    ///
    /// # Errors
    ///
    /// See [`PatchFault`].
    pub fn apply_within(
        &self,
        before: &[u8],
        leniency: PatchLeniency,
        budget: &mut PatchBudget,
    ) -> Result<PatchResult, PatchFault> {
        if self.ignores_content {
            let deletions = split(before).len() as u64;
            let counts = LineCounts { insertions: 0, deletions };
            return Ok(PatchResult { bytes: Vec::new(), offsets: Vec::new(), counts, is_lenient: false });
        }
        let normalized = NormalizedText::of(self, before, leniency);
        let applied = self.apply_to(normalized.text(), leniency, budget).map_err(PatchFault::Conflicts)?;
        let AppliedHunks { bytes, offsets, is_lenient } = applied;
        let bytes = normalized.restore(bytes).ok_or(PatchFault::NotEncodable)?;
        if self.operation == PatchOperation::Delete && !bytes.is_empty() {
            return Err(PatchFault::Conflicts(vec![mismatch::leftover(self, &bytes)]));
        }
        let counts = self.hunks.iter().flat_map(|hunk| &hunk.lines).fold(LineCounts::default(), count);
        Ok(PatchResult { bytes, offsets, counts, is_lenient })
    }

    /// Whether the old lines of every hunk occur exactly once in `before`, so that they alone say where the hunk belongs.
    pub fn is_unique_in(&self, before: &[u8]) -> bool {
        let normalized = NormalizedText::of(self, before, PatchLeniency::Strict);
        let lines = split(normalized.text());
        let has_crlf = lines.iter().any(|line| line.ends_with(b"\r\n"));
        let mut finder = HunkFinder::new(&lines, PatchBudget::default());
        let mut is_unique = |hunk| {
            let target = HunkTarget::of(hunk, has_crlf);
            let found = finder.find_all(&target.old, target.matching, 0, &[]);
            !target.old.is_empty() && found.is_some_and(|found| found.len() == 1)
        };
        !self.ignores_content && !self.hunks.is_empty() && self.hunks.iter().all(&mut is_unique)
    }

    fn apply_to(
        &self,
        before: &[u8],
        leniency: PatchLeniency,
        budget: &mut PatchBudget,
    ) -> Result<AppliedHunks, Vec<Conflict>> {
        let lines = split(before);
        let has_crlf = lines.iter().any(|line| line.ends_with(b"\r\n"));
        let mut finder = HunkFinder::new(&lines, *budget);
        let mut taken: Vec<Range<usize>> = Vec::with_capacity(self.hunks.len());
        let mut offsets = Vec::new();
        let mut is_lenient = false;
        let mut conflicts = Vec::new();
        let mut out = PatchOutput { lines: &lines, done: 0, bytes: Vec::with_capacity(before.len()) };
        for (number, hunk) in (1..).zip(&self.hunks) {
            let mut target = HunkTarget::of(hunk, has_crlf);
            let has_moved = !offsets.is_empty();
            let mut found = target.find_position(&mut finder, &lines, &taken, has_moved);
            if leniency == PatchLeniency::Lenient && found.as_ref().is_err_and(Mismatch::is_missing) {
                let again = HunkTarget::of(hunk, has_crlf).lenient();
                let position = again.find_position(&mut finder, &lines, &taken, has_moved);
                is_lenient |= position.is_ok();
                if matches!(position, Ok(_) | Err(Mismatch::Ambiguous(_))) {
                    (target, found) = (again, position);
                }
            }
            match found {
                Ok(at) => {
                    if let Some(offset) = target.offset_of(at).filter(|offset| *offset != 0) {
                        offsets.push(HunkOffset { hunk: number, offset });
                    }
                    taken.push(at..at + target.old.len());
                    out.write_hunk(hunk, at, target.matching);
                }
                Err(mismatch) => {
                    conflicts.push(mismatch.into_conflict(self, number, &target, &mut finder, &lines));
                }
            }
            if conflicts.len() == MAX_CONFLICTS {
                break;
            }
        }
        *budget = finder.budget;
        out.copy_to(lines.len());
        if conflicts.is_empty() { Ok(AppliedHunks { bytes: out.bytes, offsets, is_lenient }) } else { Err(conflicts) }
    }
}

fn count(counts: LineCounts, line: &HunkLine) -> LineCounts {
    match line {
        HunkLine::Context(_) => counts,
        HunkLine::Delete(_) => LineCounts { deletions: counts.deletions + 1, ..counts },
        HunkLine::Insert(_) => LineCounts { insertions: counts.insertions + 1, ..counts },
    }
}

/// The lines of `text`, each with its ending.
fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The text after all hunks.
struct AppliedHunks {
    bytes: Vec<u8>,
    offsets: Vec<HunkOffset>,
    is_lenient: bool,
}

/// The new file, as far as it is written.
struct PatchOutput<'a> {
    lines: &'a [&'a [u8]],
    /// Lines of the old file that are copied or deleted.
    done: usize,
    bytes: Vec<u8>,
}

impl PatchOutput<'_> {
    fn copy_to(&mut self, end: usize) {
        for line in &self.lines[self.done..end] {
            self.bytes.extend_from_slice(line);
        }
        self.done = end;
    }

    /// Writes `hunk`, whose old lines are at line `at`. Context keeps the file's own bytes.
    fn write_hunk(&mut self, hunk: &Hunk, at: usize, matching: Matching) {
        self.copy_to(at);
        for line in &hunk.lines {
            match line {
                HunkLine::Context(_) => self.copy_to(self.done + 1),
                HunkLine::Delete(_) => self.done += 1,
                HunkLine::Insert(bytes) => match (matching, bytes.strip_suffix(b"\n")) {
                    (Matching::AnyEnding | Matching::Lenient, Some(content)) => {
                        let content = content.strip_suffix(b"\r").unwrap_or(content);
                        self.bytes.extend_from_slice(content);
                        self.bytes.extend_from_slice(self.ending());
                    }
                    (Matching::AnyEnding | Matching::Lenient | Matching::Exact, _) => {
                        self.bytes.extend_from_slice(bytes);
                    }
                },
            }
        }
    }

    /// The line ending at the current position: that of the line before, else of the line after.
    fn ending(&self) -> &'static [u8] {
        let (before, after) = self.lines.split_at(self.done);
        let mut neighbours = before.iter().rev().chain(after).filter(|line| line.ends_with(b"\n"));
        if neighbours.next().is_some_and(|line| line.ends_with(b"\r\n")) { b"\r\n" } else { b"\n" }
    }
}
