//! The judge: one total function over the policy in force and the facts.

use crate::{Effect, FileKind, LogicalPath, Refusal, Rules, Usage, Verdict};

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
    /// Bytes of the new content.
    pub bytes: u64,
    /// Whether the executable bit changes.
    pub mode_change: bool,
    /// The old text, where there is one.
    pub old_text: Option<&'a [u8]>,
    /// The new text, where there is one.
    pub new_text: Option<&'a [u8]>,
}

/// What policy says to a whole call, and which rules say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What it says.
    pub verdict: Verdict,
    /// The rules that decided, such as `kind:SECRET_LIKE`, `deny:secrets/**`, `budget:maxInsertions`.
    pub reasons: Vec<String>,
    /// What the caller is told where the verdict is `Deny`.
    pub refusal: Option<Refusal>,
}

/// Judges one path by what it is: the refusal is `POLICY_DENIED_SECRET` or `POLICY_DENIED` with its reasons.
///
/// # Errors
///
/// The refusal, where policy denies.
pub fn judge_path(_rules: &Rules, _access: Access, _facts: &PathFacts<'_>) -> Result<(), Refusal> {
    unimplemented!()
}

/// Judges a whole change set by what it does: mode bits, credentials in new text, budgets, triggers. Every path has been
/// through [`judge_path`] with [`Access::Mutate`] before.
///
/// `usage` is what the run has used up; `in_run` the files that the run has touched before.
pub fn judge_change(_rules: &Rules, _changes: &[ChangeFacts<'_>], _usage: &Usage) -> Decision {
    unimplemented!()
}
