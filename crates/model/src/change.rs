//! The changes of a mutation: for each path, the state before and after.

use serde::{Deserialize, Serialize};

use crate::{FileKind, LogicalPath, Sha256};

/// Every mutation of a call, together: applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeSet {
    /// One entry a path, sorted by path; no path twice.
    pub changes: Vec<Change>,
}

/// One path's change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path that changes.
    pub path: LogicalPath,
    /// What kind of change it is.
    pub effect: Effect,
    /// The file before the change; `None` if it does not exist.
    pub before: Option<FileState>,
    /// The new content; `None` if the file is removed.
    pub after: Option<Content>,
    /// Line counts of the change, by the diff.
    pub counts: Counts,
}

/// What a change does to its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Effect {
    /// A file where none was.
    Create,
    /// Replaces the content of an existing file.
    Replace,
    /// A file goes.
    Delete,
    /// A file goes to another path, whose change is in the same set.
    MoveFrom {
        /// Where it goes.
        to: LogicalPath,
    },
    /// A file comes from another path, whose change is in the same set.
    MoveTo {
        /// Where it comes from.
        from: LogicalPath,
    },
}

/// A file as it was read by the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileState {
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its permission bits, such as `0o644`.
    pub mode: u32,
    /// Its kind.
    pub kind: FileKind,
}

/// A file as it shall be.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// Where its bytes are: what is large lies in the run's `tmp/`.
    pub bytes: StepBytes,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its permission bits, such as `0o644`.
    pub mode: u32,
}

impl Content {
    /// Takes `bytes` and hashes them.
    pub fn new(bytes: Vec<u8>, mode: u32) -> Self {
        Self { sha256: Sha256::of(&bytes), size_bytes: bytes.len() as u64, bytes: StepBytes::Inline(bytes), mode }
    }

    /// Its bytes, where they are in memory; none of a large file's.
    pub fn inline(&self) -> &[u8] {
        match &self.bytes {
            StepBytes::Inline(bytes) => bytes,
            StepBytes::Staged(_) => &[],
        }
    }
}

impl std::fmt::Debug for Content {
    // The content of a user's file must not be logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({} bytes, {}, {:o})", self.size_bytes, self.sha256, self.mode)
    }
}

/// Lines that a change adds and removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { insertions: self.insertions + other.insertions, deletions: self.deletions + other.deletions }
    }
}

/// What the journal keeps of one path's change: enough to do it, or to do it again after a kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The path that changes.
    pub path: LogicalPath,
    /// Hash of the file before the change; `None` if it does not exist.
    pub before: Option<Sha256>,
    /// The new content; `None` if the file is removed.
    pub after: Option<StepContent>,
}

/// The new content of a step.
#[derive(Clone, PartialEq, Eq)]
pub struct StepContent {
    /// Hash of the bytes.
    pub sha256: Sha256,
    /// Permission bits.
    pub mode: u32,
    /// Where the bytes are.
    pub bytes: StepBytes,
}

/// Where the bytes of a step are.
#[derive(Clone, PartialEq, Eq)]
pub enum StepBytes {
    /// In the journal itself.
    Inline(Vec<u8>),
    /// In a file of the run's `tmp/`, which was synced before the journal named it: for what is too large for a row.
    Staged(String),
}

impl std::fmt::Debug for StepContent {
    // As for `Content`: no bytes of a user's file in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StepContent({}, {:o})", self.sha256, self.mode)
    }
}

impl ChangeSet {
    /// The steps that carry the set out: removals before creations, so that a move within one folder never collides.
    pub fn to_steps(&self) -> Vec<Step> {
        let step = |change: &Change| Step {
            path: change.path.clone(),
            before: change.before.as_ref().map(|state| state.sha256),
            after: change.after.as_ref().map(|content| StepContent {
                sha256: content.sha256,
                mode: content.mode,
                bytes: content.bytes.clone(),
            }),
        };
        let (gone, there): (Vec<_>, Vec<_>) = self.changes.iter().partition(|change| change.after.is_none());
        gone.into_iter().chain(there).map(step).collect()
    }

    /// Line counts of all changes together.
    pub fn counts(&self) -> Counts {
        self.changes.iter().fold(Counts::default(), |sum, change| sum + change.counts)
    }
}
