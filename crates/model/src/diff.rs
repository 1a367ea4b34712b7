//! Two versions of a file → a unified diff as git writes it, with its counts.

use crate::{Counts, LogicalPath};

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
    /// `diff --git …` with its hunks; `git apply` takes it. Bytes, since lines are shown as they are.
    pub text: Vec<u8>,
    /// Lines added and removed; none for binary files.
    pub counts: Counts,
    /// Whether either side is binary, whose bytes are not shown.
    pub binary: bool,
}

/// Writes the diff from `old` to `new`, three lines of context; `None` for a side that does not exist.
///
/// Different paths on the two sides are a rename. Bounded in time: a pair that is too different or too large for a
/// minimal diff within a second gets a correct, longer one.
pub fn diff_file(_old: Option<Side<'_>>, _new: Option<Side<'_>>) -> FileDiff {
    unimplemented!()
}
