//! The judge: one total function over the policy in force and the facts.

mod api;
mod change;
mod path;
mod sensitive;

pub use self::change::{
    bytes_written, explain_path, judge_call_bytes, judge_change, judge_file_count, judge_new_text,
    judge_scanned_content,
};
pub use self::path::judge_path;
use crate::{Effect, FileKind, LogicalPath, Refusal, Usage, Verdict};

/// What a call wants with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Access {
    Read,
    Search,
    Mutate,
}

/// What is known of a path before a byte of it is told.
#[derive(Clone, Debug)]
pub struct PathFacts<'a> {
    /// As the caller named it.
    pub path: &'a LogicalPath,
    /// Where it leads, if a symbolic link is on the way; judged too, and the stricter wins.
    pub real_path: Option<&'a LogicalPath>,
    /// Its kind; where it leads elsewhere, the kind of what is there.
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
    /// Bytes that it writes anew, see [`bytes_written`].
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
    /// Whether a text of it is too large to be held: what only a comparison tells counts as changed then.
    pub not_compared: bool,
}

/// What policy says, and which rules say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What it says.
    pub verdict: Verdict,
    /// The rules that decided, such as `kind:SECRET_LIKE`, `deny:secrets/**`, `budget:maxInsertions`.
    pub reasons: Vec<String>,
    /// What the caller is told where the verdict is `Deny`.
    pub refusal: Option<Refusal>,
}

impl Usage {
    /// What a change set adds to its run's usage, for the ledger to add up; see [`Usage`] for what counts.
    pub fn of(changes: &[ChangeFacts<'_>]) -> Self {
        change::usage_of(changes, |facts| !facts.touched_before)
    }
}

#[cfg(test)]
mod tests;
