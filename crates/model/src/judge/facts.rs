//! The facts about a path or a change that decisions depend on.

use crate::{Effect, FileKind, LogicalPath};

/// The kind of access to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Access {
    Read,
    Search,
    Mutate,
}

/// The facts about a path.
#[derive(Clone, Debug)]
pub struct PathFacts<'a> {
    /// The path that the caller named.
    pub path: &'a LogicalPath,
    /// The target, if the path contains a symbolic link. It is judged too, and the stricter decision applies.
    pub real_path: Option<&'a LogicalPath>,
    /// The kind of the file; for a symbolic link, of its target.
    pub kind: FileKind,
    /// Whether Git ignores it and does not track it.
    pub ignored: bool,
    /// Whether it has several hard links, so that it may be an alias of another file.
    pub hard_linked: bool,
}

/// What the evidence of a call says about its check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvidenceFact {
    /// The call has no evidence.
    #[default]
    Missing,
    /// The check failed, or its outcome is not known.
    NotSuccessful,
    /// The event of the check was appended before the run's last change.
    Stale,
    /// The event of the check was appended by a caller that may not attest.
    Unattested,
    /// The check succeeded.
    Successful,
}

/// The facts about a change of one path.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
pub struct ChangeFacts<'a> {
    /// The path.
    pub path: &'a LogicalPath,
    /// Its kind.
    pub kind: FileKind,
    /// The kind of change.
    pub effect: &'a Effect,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Bytes that it inserts; see [`bytes_written`](crate::bytes_written).
    pub bytes: u64,
    /// Whether the executable bit changes.
    pub mode_change: bool,
    /// Whether it leaves a new symbolic link, or one with a new target.
    pub new_link: bool,
    /// Whether Git ignores it and does not track it.
    pub ignored: bool,
    /// Whether an earlier mutation of the run touched the path, so that it does not count as touched again.
    pub touched_before: bool,
    /// The old text, if the file existed; for the target of a move, the moved text.
    pub old_text: Option<&'a [u8]>,
    /// The new text, if the file is not deleted.
    pub new_text: Option<&'a [u8]>,
    /// Whether a text is too large for memory. Everything that needs a comparison of the texts then counts as changed.
    pub not_compared: bool,
    /// The evidence of the call.
    pub evidence: EvidenceFact,
}
