//! What a patch does to one file.

use crate::{Counts, LogicalPath};

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// What kind of change.
    pub operation: PatchOperation,
    /// The file that is read: equal to `path` but for renames and copies.
    pub from: LogicalPath,
    /// The file that is written. Whether a name may be a new one ([`LogicalPath::check_new`]) is the caller's to check.
    pub path: LogicalPath,
    /// The mode that a created file asks for, or that an existing one shall get (`new mode`): `0o644` or `0o755`.
    pub mode: Option<u32>,
    /// What changes, in the order of the file; none for a pure rename or mode change.
    pub hunks: Vec<Hunk>,
    /// Whether a deletion takes the file whatever it holds: the form `*** Delete File` tells no lines.
    pub ignores_content: bool,
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
    /// Lines of the file above the hunk that say which of several places is meant; only in the form without numbers.
    pub below: Vec<Vec<u8>>,
    /// Whether the hunk says that it ends where the file ends; only in the form without numbers.
    pub at_end: bool,
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
pub struct PatchResult {
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

impl FilePatch {
    /// The section that undoes this one; `None` for a copy, which is undone by a deletion that it does not hold the lines
    /// of, for a change of mode, and for forms that do not tell enough.
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
        let turn = |line: &HunkLine| match line {
            HunkLine::Context(bytes) => HunkLine::Context(bytes.clone()),
            HunkLine::Delete(bytes) => HunkLine::Insert(bytes.clone()),
            HunkLine::Insert(bytes) => HunkLine::Delete(bytes.clone()),
        };
        Self {
            old_start: self.new_start,
            new_start: self.old_start,
            lines: self.lines.iter().map(turn).collect(),
            below: self.below.clone(),
            at_end: self.at_end,
        }
    }

    /// The lines that the old file has.
    pub(super) fn old_lines(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
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
