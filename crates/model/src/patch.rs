//! Patches: text → sections, and a section applied to a file's bytes.

use crate::{Conflict, Counts, LogicalPath, Refusal};

/// A patch of many files, parsed and checked as far as that goes without the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// One entry a file, in the order of the patch; no path in two sections.
    pub sections: Vec<Section>,
}

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What kind of change.
    pub operation: PatchOperation,
    /// The file that is read: equal to `path` but for renames and copies.
    pub from: LogicalPath,
    /// The file that is written.
    pub path: LogicalPath,
    /// The executable bit that a created file asks for, or that an existing one shall get (`new mode`).
    pub mode: Option<u32>,
    /// What changes, in the order of the file; none for a pure rename or mode change.
    pub hunks: Vec<Hunk>,
}

/// What a section does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum PatchOperation {
    Create,
    Modify,
    Delete,
    Rename,
    Copy,
}

/// One hunk. Lines keep their line ending; the last may have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// First line in the old file, from 1; 0 where the old side is empty. `None` where the form has no numbers.
    pub old_start: Option<u64>,
    /// First line in the new file.
    pub new_start: Option<u64>,
    /// The lines.
    pub lines: Vec<HunkLine>,
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum HunkLine {
    Context(Vec<u8>),
    Delete(Vec<u8>),
    Insert(Vec<u8>),
}

/// A file as a section leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// For each hunk that did not stand where it said: by how many lines it was moved.
    pub offsets: Vec<HunkOffset>,
    /// Lines added and removed.
    pub counts: Counts,
}

/// A hunk that applied elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HunkOffset {
    /// The hunk, counted from 1 within its file.
    pub hunk: u32,
    /// Lines between where it said and where it applied.
    pub offset: i64,
}

impl Patch {
    /// Parses `text`: git diffs, plain unified diffs.
    ///
    /// # Errors
    ///
    /// `PATCH_INVALID` for text that is not wholly a patch, and for what no patch may hold (binary hunks, submodules,
    /// symbolic links, one path twice, overlapping or miscounted hunks); `PATH_REJECTED` for its paths.
    pub fn parse(_text: &str) -> Result<Self, Refusal> {
        unimplemented!()
    }
}

impl Section {
    /// Applies the hunks to `before`, the whole file as it is (empty for a created one).
    ///
    /// A hunk applies where its context stands, or, where that place is unique, elsewhere; never with fuzz.
    ///
    /// # Errors
    ///
    /// Every hunk that does not apply.
    pub fn apply(&self, _before: &[u8]) -> Result<Patched, Vec<Conflict>> {
        unimplemented!()
    }
}
