//! Refusals that several modules give.

use std::time::Duration;

use ledger::FailedPrecondition;
use model::{Code, LogicalPath, PathRejected, Permission, Refusal, RunState};
use workspace::FollowedPath;

/// The run does not exist. Only operators see this: a run token is forbidden in another run, whether or not that run exists.
pub(crate) fn run_not_found() -> Refusal {
    Refusal::new(Code::RunNotFound, "the run does not exist", "List the runs with GET /v1/runs.")
}

/// The run accepts no calls, or no mutations, in `state`.
pub(crate) fn run_not_open(state: RunState) -> Refusal {
    let (message, hint) = match state {
        RunState::Preparing => ("the run is still preparing", "Retry when the run's state is `open`."),
        RunState::Deleted => (
            "the run is deleted",
            "Its audit is still available; if the run has an `archiveUri`, in that archive, which `workspaced archive read` unpacks.",
        ),
        RunState::Open | RunState::AwaitingApproval | RunState::Closed => {
            ("the run is closed: it accepts no mutations", "Reads still work; ask the orchestrator for a new run.")
        }
    };
    Refusal::new(Code::RunClosed, message, hint)
}

/// The run is archived at `uri`, with its audit and its files.
pub(crate) fn run_archived(uri: &str) -> Refusal {
    let hint = format!("Read the archive {uri} with `workspaced archive read`.");
    Refusal::new(Code::RunClosed, "the run is archived: its audit and its files are in the archive", hint)
}

/// Returns the refusal of a call that could not be recorded because a precondition no longer holds.
pub(crate) fn refusal_of(failed: FailedPrecondition) -> Refusal {
    match failed {
        FailedPrecondition::Run(state) => run_not_open(state),
        FailedPrecondition::Token => Refusal::new(
            Code::Unauthenticated,
            "the token was revoked or expired during the call; nothing was changed",
            "Ask the orchestrator for another token.",
        ),
    }
}

/// An object that the call needs was deleted, or is being deleted, because nothing used it for long.
pub(crate) fn object_not_reserved() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "a content of the call is being deleted from the object store, where nothing used it; nothing was changed",
        "Retry the same call in a moment: the content is stored again.",
    )
}

/// The service ends.
pub(crate) fn shutting_down() -> Refusal {
    Refusal::new(Code::Unavailable, "the service is shutting down", "Use another instance.")
}

/// The run has no files: it is preparing, deleted, or was closed before its import was complete.
pub(crate) fn run_without_files(state: RunState) -> Refusal {
    match state {
        RunState::Preparing | RunState::Deleted => run_not_open(state),
        RunState::Open | RunState::AwaitingApproval | RunState::Closed => {
            let message = "the run was closed before it had files";
            Refusal::new(Code::RunClosed, message, "Ask the orchestrator for a new run.")
        }
    }
}

/// The files of the run were changed from outside, or cannot be read.
pub(crate) fn needs_repair() -> Refusal {
    Refusal::new(
        Code::RunNeedsRepair,
        "the run's files were changed from outside while a change was pending; it accepts no mutations",
        "Reads still work; ask the operator to repair the run.",
    )
}

/// A file that the run started from has other bytes than it must have.
pub(crate) fn damaged_base(error: &std::io::Error) -> Refusal {
    tracing::error!(%error, "what a run started from is damaged");
    crate::metrics::run_damaged();
    Refusal::new(
        Code::Unavailable,
        "a file that the run started from is damaged on the service's disk; nothing was changed",
        "Go on without this file. Only an operator can bring it back, from a backup or the object store.",
    )
}

/// The caller has none of `permissions`.
pub fn forbidden(permissions: &[Permission]) -> Refusal {
    let names: Vec<_> = permissions.iter().map(|permission| permission.as_str()).collect();
    let message = format!("the token lacks the permission {}", names.join(" or "));
    Refusal::new(Code::Forbidden, message, "Continue without this tool, or ask the orchestrator for another token.")
        .with_details(|details| details.reasons = names.iter().map(|name| format!("permission:{name}")).collect())
}

/// A read exceeded its time limit.
pub fn timed_out(limit: Duration) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("the call took longer than {} seconds and was cancelled; nothing was changed", limit.as_secs()),
        "Request less at a time, or retry when the service is less busy.",
    )
}

/// The approval is not pending any more.
pub(crate) fn approval_not_pending() -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        "the approval is already decided",
        "Get the decision with GET /v1/approvals/{id}. An approval is decided once.",
    )
}

/// An earlier attempt at the same call, whose commit was uncertain, is recorded.
pub(crate) fn already_recorded() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "an earlier attempt at this call, whose outcome was uncertain until now, is recorded; nothing was done twice",
        "Send the same call again under the same toolCallId: the answer is that of the first attempt.",
    )
}

/// The policy denies the change, for `reasons`.
pub(crate) fn denied(reasons: Vec<String>) -> Refusal {
    Refusal::new(
        Code::PolicyDenied,
        "the run's policy denies this change",
        "Read the run's policy and make a change that it allows.",
    )
    .with_details(|details| details.reasons = reasons)
}

/// `paths` changed between the plan and the commit. Nothing is pending, so this is an ordinary conflict.
pub(crate) fn changed_meanwhile(paths: &[LogicalPath]) -> Refusal {
    let names: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
    let message = format!("{} changed during the call", names.join(", "));
    let refusal = Refusal::new(Code::WriteConflict, message, "Read the file again and repeat the call.");
    paths.first().map_or(refusal.clone(), |path| refusal.at(path))
}

/// Returns the refusal of a new file at `path`, whose name is canonically equal to that of an existing one.
pub(crate) fn canonically_equal(path: &LogicalPath, existing: &FollowedPath) -> Refusal {
    let refusal = Refusal::path(path.as_str(), PathRejected::CanonicallyEqual);
    let hint = format!("{} The existing path is `{}`.", refusal.hint, existing.path);
    Refusal { hint, ..refusal }
}

/// The maximum length of an escaped path in a record, in characters.
const MAX_ATTEMPTED_PATH: usize = 200;

/// Returns the invalid path that a refused call named, escaped for the record's reasons. Lists of paths have valid paths only.
pub(crate) fn attempted_path(refusal: &Refusal) -> Option<String> {
    let path = refusal.details.path.as_deref().filter(|_| refusal.code == Code::PathRejected)?;
    let mut shown = "path: ".to_owned();
    let mut length = 0;
    for character in model::redact(path).chars() {
        // Control characters must not change how the line is displayed.
        let escaped = match character {
            '"' | '\'' => character.to_string(),
            other => other.escape_debug().to_string(),
        };
        length += escaped.chars().count();
        if length > MAX_ATTEMPTED_PATH {
            shown.push('…');
            break;
        }
        shown.push_str(&escaped);
    }
    Some(shown)
}
