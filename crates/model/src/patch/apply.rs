//! A section applied to a file.

mod line_endings;
mod mismatch;
mod position;

use std::ops::Range;

use super::file_patch::{FilePatch, Hunk, HunkLine, HunkOffset, PatchOperation, PatchResult};
use super::locate::{Finder, Matching};
use crate::{Conflict, Counts};
use line_endings::Form;
use position::Wanted;

/// Conflicts that are told of one file.
const MAX_CONFLICTS: usize = 100;

/// Why a section does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchFault {
    /// These hunks do not match, at most the first hundred.
    Conflicts(Vec<Conflict>),
    /// Every hunk matches, and puts in characters that the file's encoding does not have.
    NotEncodable,
}

impl FilePatch {
    /// Applies the hunks to `before`, the whole file as it is (empty for a created one).
    ///
    /// A hunk applies where its context stands, or, where that place is unique, elsewhere; never with fuzz. As git has it,
    /// a hunk that begins at line 1 belongs to the start of the file, and one without context behind its change to the
    /// end; a hunk without any context applies exactly where it says or not at all. Once a hunk has moved, those behind it
    /// have to be unique as well.
    ///
    /// Hunks whose lines end in LF apply to lines that end in CRLF; what they put in ends as its neighbours do. Lines of
    /// text in an older encoding or UTF-16 are compared by their characters. Everything else stays bit by bit.
    ///
    /// # Errors
    ///
    /// See [`PatchFault`].
    pub fn apply(&self, before: &[u8]) -> Result<PatchResult, PatchFault> {
        if self.ignores_content {
            let deletions = split(before).len() as u64;
            return Ok(PatchResult {
                bytes: Vec::new(),
                offsets: Vec::new(),
                counts: Counts { insertions: 0, deletions },
            });
        }
        let form = Form::of(self, before);
        let (bytes, offsets) = self.apply_to(form.lines_of()).map_err(PatchFault::Conflicts)?;
        let bytes = form.restore(bytes).ok_or(PatchFault::NotEncodable)?;
        if self.operation == PatchOperation::Delete && !bytes.is_empty() {
            return Err(PatchFault::Conflicts(vec![mismatch::leftover(self, &bytes)]));
        }
        let counts = self.hunks.iter().flat_map(|hunk| &hunk.lines).fold(Counts::default(), count);
        Ok(PatchResult { bytes, offsets, counts })
    }

    fn apply_to(&self, before: &[u8]) -> Result<(Vec<u8>, Vec<HunkOffset>), Vec<Conflict>> {
        let lines = split(before);
        let crlf = lines.iter().any(|line| line.ends_with(b"\r\n"));
        let mut finder = Finder::new(&lines);
        let mut taken: Vec<Range<usize>> = Vec::with_capacity(self.hunks.len());
        let mut offsets = Vec::new();
        let mut conflicts = Vec::new();
        let mut out = Output { lines: &lines, done: 0, bytes: Vec::with_capacity(before.len()) };
        for (number, hunk) in (1..).zip(&self.hunks) {
            let wanted = Wanted::of(hunk, crlf);
            match wanted.place(&mut finder, &lines, &taken, !offsets.is_empty()) {
                Ok(at) => {
                    if let Some(offset) = wanted.offset_of(at).filter(|offset| *offset != 0) {
                        offsets.push(HunkOffset { hunk: number, offset });
                    }
                    taken.push(at..at + wanted.old.len());
                    out.put(hunk, at, wanted.matching);
                }
                Err(missed) => conflicts.push(missed.tell(self, number, &wanted, &mut finder, &lines)),
            }
            if conflicts.len() == MAX_CONFLICTS {
                break;
            }
        }
        out.copy_to(lines.len());
        if conflicts.is_empty() { Ok((out.bytes, offsets)) } else { Err(conflicts) }
    }
}

fn count(counts: Counts, line: &HunkLine) -> Counts {
    match line {
        HunkLine::Context(_) => counts,
        HunkLine::Delete(_) => Counts { deletions: counts.deletions + 1, ..counts },
        HunkLine::Insert(_) => Counts { insertions: counts.insertions + 1, ..counts },
    }
}

/// The lines of `text`, each with its end.
fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The file as it shall be, as far as it is written.
struct Output<'a> {
    lines: &'a [&'a [u8]],
    /// Lines of the file that are copied or gone.
    done: usize,
    bytes: Vec<u8>,
}

impl Output<'_> {
    fn copy_to(&mut self, end: usize) {
        for line in &self.lines[self.done..end] {
            self.bytes.extend_from_slice(line);
        }
        self.done = end;
    }

    /// Writes `hunk`, whose old lines stand at line `at`; what stays is the file's own bytes.
    fn put(&mut self, hunk: &Hunk, at: usize, matching: Matching) {
        self.copy_to(at);
        for line in &hunk.lines {
            match line {
                HunkLine::Context(_) => self.copy_to(self.done + 1),
                HunkLine::Delete(_) => self.done += 1,
                HunkLine::Insert(bytes) => match (matching, bytes.strip_suffix(b"\n")) {
                    (Matching::AnyEnding, Some(content)) => {
                        self.bytes.extend_from_slice(content);
                        self.bytes.extend_from_slice(self.ending());
                    }
                    (Matching::AnyEnding | Matching::Exact, _) => self.bytes.extend_from_slice(bytes),
                },
            }
        }
    }

    /// How the file's lines end here: as the line before, else as the line behind.
    fn ending(&self) -> &'static [u8] {
        let (before, behind) = self.lines.split_at(self.done);
        let mut near = before.iter().rev().chain(behind).filter(|line| line.ends_with(b"\n"));
        if near.next().is_some_and(|line| line.ends_with(b"\r\n")) { b"\r\n" } else { b"\n" }
    }
}
