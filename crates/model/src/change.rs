//! The changes of a mutation: for each path, the state before and after.

use serde::{Deserialize, Serialize};

use crate::{FileKind, LogicalPath, Sha256};

/// The mode of a symbolic link, as Git writes it. Its content is its target; it has no permission bits.
pub const LINK_MODE: u32 = 0o120_000;

/// Whether `mode` is that of a symbolic link, and not the permission bits of a file.
pub const fn is_link_mode(mode: u32) -> bool {
    mode & 0o170_000 == LINK_MODE
}

/// Returns the mode that Git has for permission bits or for [`LINK_MODE`].
pub const fn git_mode(mode: u32) -> u32 {
    if is_link_mode(mode) {
        LINK_MODE
    } else if mode & 0o111 == 0 {
        0o100_644
    } else {
        0o100_755
    }
}

/// The mode of a file as Git has it. In JSON, its octal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub enum GitMode {
    /// A file.
    #[default]
    #[serde(rename = "100644")]
    File,
    /// A file that can be executed.
    #[serde(rename = "100755")]
    Executable,
    /// A symbolic link.
    #[serde(rename = "120000")]
    Link,
}

impl GitMode {
    /// Returns the mode of a file with these permission bits, or of a link with [`LINK_MODE`].
    pub const fn of(mode: u32) -> Self {
        if is_link_mode(mode) {
            Self::Link
        } else if mode & 0o111 == 0 {
            Self::File
        } else {
            Self::Executable
        }
    }

    /// Returns the permission bits that git gives a file: `0o644` or `0o755`; of a link, [`LINK_MODE`].
    pub const fn bits(self) -> u32 {
        match self {
            Self::File => 0o644,
            Self::Executable => 0o755,
            Self::Link => LINK_MODE,
        }
    }

    /// Whether it is that of a symbolic link.
    pub fn is_link(self) -> bool {
        self == Self::Link
    }
}

/// The change of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path that changes.
    pub path: LogicalPath,
    /// The kind of change.
    pub effect: Effect,
    /// The file before the change; `None` if it does not exist.
    pub before: Option<FileState>,
    /// The new content; `None` if the file is removed.
    pub after: Option<Content>,
    /// Lines that the diff adds and removes.
    pub counts: LineCounts,
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Effect {
    /// Creates a file.
    Create,
    /// Replaces the content of an existing file.
    Replace,
    /// Deletes a file.
    Delete,
    /// Moves a file to another path, whose change is of the same call.
    MoveFrom {
        /// The target.
        to: LogicalPath,
    },
    /// Receives a file from another path, whose change is of the same call.
    MoveTo {
        /// The source.
        from: LogicalPath,
    },
}

/// A file as the plan read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileState {
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its permission bits, such as `0o644`, or [`LINK_MODE`].
    pub mode: u32,
    /// Its kind.
    pub kind: FileKind,
}

/// The new content of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// Where its bytes are. Large content is in the run's `tmp/`.
    pub bytes: StepBytes,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its permission bits, such as `0o644`, or [`LINK_MODE`].
    pub mode: u32,
}

impl Content {
    /// Wraps `bytes` and computes their hash.
    pub fn new(bytes: Vec<u8>, mode: u32) -> Self {
        Self { sha256: Sha256::of(&bytes), size_bytes: bytes.len() as u64, bytes: StepBytes::Inline(bytes), mode }
    }

    /// Its bytes if they are in memory; empty for staged content.
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
pub struct LineCounts {
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
}

impl std::ops::Add for LineCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { insertions: self.insertions + other.insertions, deletions: self.deletions + other.deletions }
    }
}

/// The journal entry of one path's change: enough to apply it, and to apply it again after a crash.
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
    /// Permission bits, or [`LINK_MODE`].
    pub mode: u32,
    /// Where the bytes are.
    pub bytes: StepBytes,
}

/// Where the bytes of a step are.
#[derive(Clone, PartialEq, Eq)]
pub enum StepBytes {
    /// In the journal itself.
    Inline(Vec<u8>),
    /// In a file of the run's `tmp/`, which is synced before the journal refers to it. For content too large for a row.
    Staged(String),
}

impl std::fmt::Debug for StepContent {
    // The content of a user's file must not be logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StepContent({}, {:o})", self.sha256, self.mode)
    }
}

impl Change {
    /// The step that applies the change.
    pub fn to_step(&self) -> Step {
        Step {
            path: self.path.clone(),
            before: self.before.as_ref().map(|state| state.sha256),
            after: self.after.as_ref().map(|content| StepContent {
                sha256: content.sha256,
                mode: content.mode,
                bytes: content.bytes.clone(),
            }),
        }
    }
}
