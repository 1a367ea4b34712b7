//! What becomes of calls that did not go well: their records, and what a repetition of them is answered.

use futures_util::future::BoxFuture;
use ledger::{Appended, Entry, FailedPrecondition, LedgerError, Preconditions, Reply};
use model::{Code, Draft, FileKind, LogicalPath, Outcome, RecordFile, Refusal, Verdict};

use crate::CallError;
use crate::call::{CallContext, run_not_open};
use crate::engine::{Caller, Engine};
use crate::tools::ReadOutput;
use crate::transaction::repeated;

impl Engine {
    /// Records a refused call, and gives the refusal back with the record's `seq` and hash.
    pub async fn record_refused(&self, head: &CallContext, paths: &[LogicalPath], refusal: Refusal) -> CallError {
        let refusal = refusal.redacted();
        match self.append_aside(refused_entry(head, paths, &refusal)).await {
            Ok(Appended::Recorded(record)) => refusal.recorded(record.seq, record.hash).into(),
            // The ID has its answer already, which this caller may not have: that is recorded beside it.
            Ok(Appended::Repeated) if refusal.code == Code::Forbidden => {
                let entry = Entry { reply: None, ..refused_entry(head, paths, &refusal) };
                match self.append_aside(entry).await {
                    Ok(Appended::Recorded(record)) => refusal.recorded(record.seq, record.hash).into(),
                    Ok(_) => self.record_reused(head).await,
                    Err(error) => error.into(),
                }
            }
            Ok(Appended::Repeated) => repeated().into(),
            Ok(Appended::Reused | Appended::NotPending | Appended::PreconditionFailed(_)) => {
                self.record_reused(head).await
            }
            Err(error) => error.into(),
        }
    }

    /// Records a call that was not carried out, for whatever reason.
    pub async fn record_undone(&self, head: &CallContext, paths: &[LogicalPath], error: CallError) -> CallError {
        match error {
            CallError::Refused(refusal) => self.record_refused(head, paths, refusal).await,
            error @ CallError::Internal(_) => self.record_failed(head, paths, error).await,
        }
    }

    /// Records a call that failed by a fault of ours.
    pub async fn record_failed(&self, head: &CallContext, paths: &[LogicalPath], error: CallError) -> CallError {
        match self.append_aside(failed_entry(head, paths)).await {
            Ok(_) => error,
            Err(second) => {
                tracing::error!(error = &second as &dyn std::error::Error, "a failed call could not be recorded");
                error
            }
        }
    }

    /// Records a call whose ID belongs to another one.
    pub async fn record_reused(&self, head: &CallContext) -> CallError {
        let refusal = Refusal::new(
            Code::ToolCallIdReused,
            format!("the tool call ID `{}` belongs to another call of this run", head.tool_call_id),
            "Give every new call an ID of its own, or leave toolCallId out.",
        );
        let mut draft = head.draft(Verdict::Allow, Outcome::Refused);
        draft.code = Some(refusal.code);
        draft.reasons = reasons_of(&refusal);
        let entry = Entry { client_supplied_id: false, ..head.entry(draft, None) };
        match self.append_aside(entry).await {
            Ok(Appended::Recorded(record)) => refusal.recorded(record.seq, record.hash).into(),
            Ok(Appended::Reused | Appended::Repeated | Appended::NotPending | Appended::PreconditionFailed(_)) => {
                refusal.into()
            }
            Err(error) => error.into(),
        }
    }

    /// Appends what few calls come to: with memory of its own, so that not every call's future has room for it.
    fn append_aside(&self, entry: Entry) -> BoxFuture<'_, Result<Appended, LedgerError>> {
        Box::pin(self.append(entry))
    }
}

/// What must hold still when a call is recorded that was carried out; one that was refused is recorded in any case.
pub fn needs_of(caller: &Caller, draft: &Draft) -> Preconditions {
    match draft.outcome {
        Outcome::Ok | Outcome::Pending => Preconditions { open_run: draft.mutates, token: caller.token.clone() },
        Outcome::Refused | Outcome::Failed => Preconditions::default(),
    }
}

/// The refusal of a call that could not be recorded, since what it needs does not hold any more.
pub fn refusal_of(unmet: FailedPrecondition) -> Refusal {
    match unmet {
        FailedPrecondition::Run(state) => run_not_open(state),
        FailedPrecondition::Token => Refusal::new(
            Code::Unauthenticated,
            "the token was revoked or has expired while the call was under way; nothing was changed",
            "Ask the orchestrator for another token.",
        ),
    }
}

/// Whether `error` is of [`refusal_of`], and not recorded yet.
pub fn is_unmet(error: &CallError) -> bool {
    matches!(error, CallError::Refused(refusal)
        if refusal.details.seq.is_none() && matches!(refusal.code, Code::RunClosed | Code::Unauthenticated))
}

/// The record of a read that told something.
pub fn read_entry(head: &CallContext, told: &mut ReadOutput) -> Entry {
    let mut draft = head.draft(Verdict::Allow, Outcome::Ok);
    draft.paths_read = std::mem::take(&mut told.paths_read);
    draft.files = std::mem::take(&mut told.files);
    draft.reasons = std::mem::take(&mut told.reasons);
    head.entry(draft, None)
}

/// The record of a refused call, with what a repetition of it is answered.
pub fn refused_entry(head: &CallContext, paths: &[LogicalPath], refusal: &Refusal) -> Entry {
    let mut draft = head.draft(verdict_of(refusal.code), Outcome::Refused);
    draft.code = Some(refusal.code);
    draft.reasons = reasons_of(refusal);
    draft.reasons.extend(tried(refusal));
    draft.files = asked(paths);
    let passes = refusal.code.is_retryable();
    let reply = (head.tool.mutates() && !passes).then(|| stored_reply(refusal));
    let mut entry = head.entry(draft, reply);
    // What passes by itself is no answer to keep: the caller is told to try the same call again.
    entry.client_supplied_id &= !passes;
    entry
}

/// The record of a call that failed by a fault of ours.
pub fn failed_entry(head: &CallContext, paths: &[LogicalPath]) -> Entry {
    let mut draft = head.draft(Verdict::Allow, Outcome::Failed);
    draft.code = Some(Code::Internal);
    draft.files = asked(paths);
    // Another call's ID must not be taken by a failure: the caller may try the same call again.
    Entry { client_supplied_id: false, ..head.entry(draft, None) }
}

/// What a repetition of a refused mutation is answered, without credentials.
pub fn stored_reply(refusal: &Refusal) -> Reply {
    // A refusal holds strings, numbers and lists only, which always serialise.
    Reply { status: 0, body: serde_json::to_string(&refusal.clone().redacted()).unwrap_or_default() }
}

/// What policy said, where a call was refused with `code`.
pub fn verdict_of(code: Code) -> Verdict {
    match code {
        Code::Forbidden
        | Code::PathRejected
        | Code::RunClosed
        | Code::RunNeedsRepair
        | Code::PolicyDeniedSecret
        | Code::PolicyDenied
        | Code::PatchBudgetExceeded
        | Code::QuotaExceeded => Verdict::Deny,
        Code::ApprovalRequired => Verdict::RequireApproval,
        Code::BodyTooLarge
        | Code::Unauthenticated
        | Code::RateLimited
        | Code::RunNotFound
        | Code::ToolNotFound
        | Code::InvalidRequest
        | Code::PatchInvalid
        | Code::PreconditionRequired
        | Code::ToolCallIdReused
        | Code::BaseCommitMismatch
        | Code::NotFound
        | Code::AlreadyExists
        | Code::NotADirectory
        | Code::NotAFile
        | Code::FileTooLarge
        | Code::UnsupportedBinary
        | Code::WriteConflict
        | Code::PatchConflict
        | Code::EditNotFound
        | Code::EditNotUnique
        | Code::RevertConflict
        | Code::BatchNotDone
        | Code::Unavailable
        | Code::Internal => Verdict::Allow,
    }
}

pub fn reasons_of(refusal: &Refusal) -> Vec<String> {
    if refusal.details.reasons.is_empty() { vec![refusal.message.clone()] } else { refusal.details.reasons.clone() }
}

/// The longest path that a record's reasons hold, in characters as they are written there.
const MAX_TRIED: usize = 200;

/// What a call tried that named a path outside its reach, for the record: such a path is none, so that no list of paths
/// could hold it.
pub fn tried(refusal: &Refusal) -> Option<String> {
    let path = refusal.details.path.as_deref().filter(|_| refusal.code == Code::PathRejected)?;
    let mut shown = "path: ".to_owned();
    let mut length = 0;
    for character in model::redact(path).chars() {
        // Whoever reads the audit sees what the path holds, and not what it would make of the line.
        let escaped = match character {
            '"' | '\'' => character.to_string(),
            other => other.escape_debug().to_string(),
        };
        length += escaped.chars().count();
        if length > MAX_TRIED {
            shown.push('…');
            break;
        }
        shown.push_str(&escaped);
    }
    Some(shown)
}

/// What a call that did nothing asked for.
pub fn asked(paths: &[LogicalPath]) -> Vec<RecordFile> {
    let file = |path: &LogicalPath| RecordFile {
        kind: FileKind::of_path(path),
        new_sha256: None,
        old_sha256: None,
        path: path.clone(),
    };
    paths.iter().take(1000).map(file).collect()
}
