//! What is known of a path or a change when it is judged.

use crate::{Effect, FileKind, LogicalPath};

/// What a call wants with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Access {
    Read,
    Search,
    Mutate,
}

/// What is known of a path before any of its content is returned.
#[derive(Clone, Debug)]
pub struct PathFacts<'a> {
    /// As the caller named it.
    pub path: &'a LogicalPath,
    /// Where it leads, if a symbolic link is on the way; judged too, and the stricter wins.
    pub real_path: Option<&'a LogicalPath>,
    /// Its kind; for a symbolic link, the kind of its target.
    pub kind: FileKind,
    /// Whether git ignores it and does not track it.
    pub ignored: bool,
    /// Whether it has more than one hard link and may so be an alias.
    pub hard_linked: bool,
}

/// What a change would do, as far as policy asks.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct ChangeFacts<'a> {
    /// The path.
    pub path: &'a LogicalPath,
    /// Its kind.
    pub kind: FileKind,
    /// What happens to it.
    pub effect: &'a Effect,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Bytes that it inserts, see `bytes_written`.
    pub bytes: u64,
    /// Whether the executable bit changes.
    pub mode_change: bool,
    /// Whether git ignores it and does not track it.
    pub ignored: bool,
    /// Whether an earlier mutation of the run has touched the path, so that it counts no more as a file touched.
    pub touched_before: bool,
    /// The old text, where there is one; for the target of a move, the text that moves.
    pub old_text: Option<&'a [u8]>,
    /// The new text, where there is one.
    pub new_text: Option<&'a [u8]>,
    /// Whether a text is too large to be in memory. Anything that needs a comparison then counts as changed.
    pub not_compared: bool,
}
