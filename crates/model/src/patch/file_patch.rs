//! What a patch does to one file.

use crate::{LineCounts, LogicalPath};

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// The kind of change.
    pub operation: PatchOperation,
    /// The file that is read; differs from `path` for renames and copies only.
    pub from: LogicalPath,
    /// The file that is written. The caller checks whether a new file may have this name
    /// ([`LogicalPath::check_new`]).
    pub path: LogicalPath,
    /// The mode of a created file, or the new mode of an existing one: `0o644` or `0o755`.
    pub mode: Option<u32>,
    /// The changes, in the order of the file; empty for a pure rename or change of mode.
    pub hunks: Vec<Hunk>,
    /// Whether a deletion applies to any content: the form `*** Delete File` lists no lines.
    pub ignores_content: bool,
}

/// What a patch does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum PatchOperation {
    Create,
    Modify,
    Delete,
    Rename,
    Copy,
}

/// One hunk. Each line includes its ending; the last may have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// First line in the old file, from 1; 0 if the old side is empty. `None` in the form without numbers.
    pub old_start: Option<u64>,
    /// First line in the new file.
    pub new_start: Option<u64>,
    /// The lines.
    pub lines: Vec<HunkLine>,
    /// Lines above the hunk that select one of several positions; only in the form without numbers.
    pub anchors: Vec<Vec<u8>>,
    /// Whether the hunk states that it ends at the end of the file; only in the form without numbers.
    pub at_end: bool,
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum HunkLine {
    Context(Vec<u8>),
    Delete(Vec<u8>),
    Insert(Vec<u8>),
}

/// A file after a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchResult {
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Hunks that were not at their stated lines, and by how many lines they moved.
    pub offsets: Vec<HunkOffset>,
    /// Lines added and removed.
    pub counts: LineCounts,
    /// Whether a hunk matches only [leniently](crate::PatchLeniency).
    pub is_lenient: bool,
}

/// A hunk that applied at another line than stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HunkOffset {
    /// The hunk, counted from 1 within its file.
    pub hunk: u32,
    /// Lines from the stated line to the one where it applied.
    pub offset: i64,
}

impl FilePatch {
    /// The patch that reverses this one; `None` for a copy, a change of mode, and a deletion that lists no lines, which
    /// lack what is needed.
    pub fn reversed(&self) -> Option<Self> {
        let operation = match self.operation {
            PatchOperation::Create => PatchOperation::Delete,
            PatchOperation::Delete if !self.ignores_content => PatchOperation::Create,
            PatchOperation::Modify if self.mode.is_none() => PatchOperation::Modify,
            PatchOperation::Rename if self.mode.is_none() => PatchOperation::Rename,
            PatchOperation::Delete | PatchOperation::Modify | PatchOperation::Rename | PatchOperation::Copy => {
                return None;
            }
        };
        let hunks = self.hunks.iter().map(Hunk::reversed).collect();
        let (from, path) = (self.path.clone(), self.from.clone());
        Some(Self { operation, from, path, mode: None, hunks, ignores_content: false })
    }
}

impl Hunk {
    fn reversed(&self) -> Self {
        let reverse = |line: &HunkLine| match line {
            HunkLine::Context(bytes) => HunkLine::Context(bytes.clone()),
            HunkLine::Delete(bytes) => HunkLine::Insert(bytes.clone()),
            HunkLine::Insert(bytes) => HunkLine::Delete(bytes.clone()),
        };
        Self {
            old_start: self.new_start,
            new_start: self.old_start,
            lines: self.lines.iter().map(reverse).collect(),
            anchors: self.anchors.clone(),
            at_end: self.at_end,
        }
    }

    /// The lines of the old file.
    pub(crate) fn old_lines(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Context(bytes) | HunkLine::Delete(bytes) => Some(bytes.as_slice()),
            HunkLine::Insert(_) => None,
        })
    }
}

impl HunkLine {
    /// The line's bytes, its ending included.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Context(bytes) | Self::Delete(bytes) | Self::Insert(bytes) => bytes,
        }
    }
}
