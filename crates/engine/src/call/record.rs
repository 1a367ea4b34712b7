//! Records of calls: their ledger entries, and recording calls that fail.

use ledger::{Appended, Entry, LedgerError, Reply};
use model::{Code, FileKind, LogicalPath, Outcome, Record, RecordFile, Refusal, Verdict};

use crate::CallError;
use crate::call::CallContext;
use crate::call::history_quota::{history_exceeded, unrecorded};
use crate::call_error::refusals::attempted_path;
use crate::call_error::refusals::{already_recorded, approval_not_pending, refusal_of};
use crate::engine::Engine;
use crate::tool::output::ReadOutput;

/// Why a transaction had no effect.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call at this index failed.
    Call(usize, CallError),
    /// No single call caused the failure.
    All(CallError),
    /// The calls are recorded already, or cannot be recorded.
    Recorded(CallError),
}

impl Failure {
    /// Returns the failure of calls whose records were not appended.
    pub(crate) fn of_recording(error: CallError) -> Self {
        if is_failed_precondition(&error) { Self::All(error) } else { Self::Recorded(error) }
    }

    /// The same failure of a single call, whose refusal also says `note`.
    #[must_use]
    pub(crate) fn with_note(self, note: Option<&str>) -> Self {
        match (self, note) {
            (Self::Call(0, CallError::Refused(refusal)), Some(note)) if !refusal.code.is_retryable() => {
                Self::Call(0, refusal.with_note(note).into())
            }
            (failure, _) => failure,
        }
    }

    /// Returns the error, without the index of the call that failed.
    pub(crate) fn into_error(self) -> CallError {
        match self {
            Self::Call(_, error) | Self::All(error) | Self::Recorded(error) => error,
        }
    }
}

/// The answers of a failed transaction.
#[derive(Debug)]
pub struct RecordedFailure {
    /// The error of each call, in order.
    pub errors: Vec<CallError>,
    /// The index of the call that failed, if it was a single one.
    pub failed: Option<usize>,
}

impl RecordedFailure {
    /// Returns `refusal` as the error of each call that was refused, for whose record there is no room.
    ///
    /// # Errors
    ///
    /// `error`, if it is not a refusal.
    fn unrecorded(
        calls: &[CallContext],
        error: CallError,
        refusal: &Refusal,
        failed: Option<usize>,
    ) -> Result<Self, CallError> {
        match error {
            CallError::Refused(_) => {
                Ok(Self { errors: calls.iter().map(|_| refusal.clone().into()).collect(), failed })
            }
            error @ (CallError::Moved(_) | CallError::Internal(_)) => Err(error),
        }
    }
}

/// Refusals that precede the search for the stored answer.
const BEFORE_REPLAY: [Code; 3] = [Code::Forbidden, Code::InvalidRequest, Code::PreconditionRequired];

impl Engine {
    /// Appends the `entries` of `calls`, which have the same order, all or none.
    ///
    /// # Errors
    ///
    /// The refusal of entries that the ledger did not append; the errors of the ledger.
    pub(crate) async fn append_for(
        &self,
        calls: &[CallContext],
        entries: Vec<Entry>,
    ) -> Result<Vec<Record>, CallError> {
        match self.append(entries).await? {
            Appended::Recorded(records) => Ok(records.into()),
            Appended::NotPending => Err(approval_not_pending().into()),
            Appended::Repeated(_) => Err(already_recorded().into()),
            Appended::HistoryQuotaExceeded(excess) => Err(history_exceeded(excess).into()),
            Appended::PreconditionFailed(failed) => Err(refusal_of(failed).into()),
            Appended::Reused(index) => Err(self.record_reused_id(&calls[index]).await),
            other @ (Appended::Unchanged | Appended::NoSuchToken | Appended::EventQuotaExceeded(_)) => {
                Err(CallError::Internal(format!("the ledger rejected a tool call as {other:?}").into()))
            }
        }
    }

    /// Records that `calls` had no effect, and why. `paths` has the known paths of each call; the last calls may be missing.
    ///
    /// # Errors
    ///
    /// If the failure is recorded already or cannot be recorded.
    pub(crate) async fn record_failure(
        &self,
        calls: &[CallContext],
        paths: &[&[LogicalPath]],
        failure: Failure,
    ) -> Result<RecordedFailure, CallError> {
        let (failed, error) = match failure {
            Failure::Call(index, error) => (Some(index), error),
            Failure::All(error) => (None, error),
            Failure::Recorded(error) => return Err(error),
        };
        if let CallError::Moved(_) = error {
            return Err(error);
        }
        if let Some(refusal) = self.unrecorded_refusal(calls) {
            return RecordedFailure::unrecorded(calls, error, &refusal, failed);
        }
        let mut refusals = Vec::with_capacity(calls.len());
        let mut entries = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let paths = paths.get(index).copied().unwrap_or_default();
            let refusal = match (failed, &error) {
                (Some(other), error) if other != index => Some(batch_not_done(other, error)),
                (_, CallError::Refused(refusal)) => Some(refusal.clone().redacted()),
                (_, CallError::Moved(_) | CallError::Internal(_)) => None,
            };
            let mut entry = failure_entry(call, paths, refusal.as_ref());
            if error.is_retryable() {
                // The ID may be used again.
                (entry.reply, entry.client_supplied_id) = (None, false);
            }
            refusals.push(refusal);
            entries.push(entry);
        }
        let records = match self.append(entries.clone()).await {
            Ok(Appended::Repeated(_)) => {
                let is_early = BEFORE_REPLAY.iter().any(|code| error.is(*code));
                if let Some(errors) = if is_early { None } else { self.stored_refusals(calls).await? } {
                    return Ok(RecordedFailure { errors, failed });
                }
                // The ID has an answer that this caller may not see, or the request was refused before it was looked up. The
                // refusal is a further record.
                for entry in &mut entries {
                    entry.reply = None;
                }
                self.append_for(calls, entries).await?
            }
            Ok(Appended::Recorded(records)) => records.into(),
            Ok(Appended::HistoryQuotaExceeded(excess)) => {
                return RecordedFailure::unrecorded(calls, error, &unrecorded(excess), failed);
            }
            Ok(Appended::Reused(index)) => return Err(self.record_reused_id(&calls[index]).await),
            Ok(_) => return Err(already_recorded().into()),
            // What has failed may have been seen in a tree that was not up to date.
            Err(unrecorded @ LedgerError::RunMoved(_)) => return Err(unrecorded.into()),
            Err(unrecorded) if matches!(error, CallError::Refused(_)) => return Err(unrecorded.into()),
            Err(unrecorded) => {
                tracing::error!(error = &unrecorded as &dyn std::error::Error, "a failed call could not be recorded");
                return Err(error);
            }
        };
        let mut internal = Some(error);
        let errors = refusals.into_iter().zip(records).map(|(refusal, record)| match refusal {
            Some(refusal) => refusal.recorded(record.seq, record.hash).into(),
            None => internal.take().unwrap_or_else(|| CallError::Internal("the transaction failed".into())),
        });
        Ok(RecordedFailure { errors: errors.collect(), failed })
    }

    /// Records that `call` failed with `error`, and returns the error with the record's number.
    pub(crate) async fn record_error(&self, call: &CallContext, paths: &[LogicalPath], error: CallError) -> CallError {
        let failure = Failure::Call(0, error);
        // Boxed, so that the future of a successful call is smaller.
        match Box::pin(self.record_failure(std::slice::from_ref(call), &[paths], failure)).await {
            Ok(mut recorded) => recorded.errors.pop().unwrap_or_else(|| already_recorded().into()),
            Err(error) => error,
        }
    }

    /// Records a call whose ID belongs to another call.
    pub(crate) async fn record_reused_id(&self, call: &CallContext) -> CallError {
        let refusal = Refusal::new(
            Code::ToolCallIdReused,
            format!("the tool call ID `{}` belongs to another call of this run", call.tool_call_id),
            "Give every new call a new toolCallId, or omit it.",
        );
        let mut draft = call.draft(Verdict::Allow, Outcome::Refused);
        draft.code = Some(refusal.code);
        draft.reasons = reasons_of(&refusal);
        let entry = Entry { client_supplied_id: false, ..call.entry(draft, None) };
        self.append_refusal(entry, refusal).await
    }

    /// Appends the record of a refusal, and returns the refusal with the number of its record.
    pub(crate) async fn append_refusal(&self, entry: Entry, refusal: Refusal) -> CallError {
        match Box::pin(self.append(vec![entry])).await {
            Ok(Appended::Recorded(records)) => match records.first() {
                Some(record) => refusal.recorded(record.seq, record.hash).into(),
                None => refusal.into(),
            },
            Ok(Appended::HistoryQuotaExceeded(excess)) => unrecorded(excess).into(),
            Ok(_) => refusal.into(),
            Err(error) => error.into(),
        }
    }
}

/// Whether `error` comes from [`refusal_of`] or [`history_exceeded`] and is not recorded yet.
pub(crate) fn is_failed_precondition(error: &CallError) -> bool {
    matches!(error, CallError::Refused(refusal)
        if refusal.details.seq.is_none()
            && matches!(refusal.code, Code::RunClosed | Code::Unauthenticated | Code::QuotaExceeded))
}

/// Returns the entry of a successful read. Takes the output's parts of the record.
pub(crate) fn read_entry(call: &CallContext, output: &mut ReadOutput) -> Entry {
    let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
    draft.paths_read = std::mem::take(&mut output.paths_read);
    draft.files = std::mem::take(&mut output.files);
    draft.reasons = std::mem::take(&mut output.reasons);
    // Its paths are those of the mount.
    draft.reasons.extend(call.mount.as_ref().map(|mount| format!("mount:{mount}")));
    call.entry(draft, None)
}

/// Returns the entry of a refused call, with the reply to its repetitions.
pub(crate) fn refused_entry(call: &CallContext, paths: &[LogicalPath], refusal: &Refusal) -> Entry {
    let mut draft = call.draft(verdict_of(refusal.code), Outcome::Refused);
    draft.code = Some(refusal.code);
    draft.reasons = reasons_of(refusal);
    draft.reasons.extend(attempted_path(refusal));
    draft.files = requested_files(paths);
    let is_retryable = refusal.code.is_retryable();
    let reply = (call.tool.mutates() && !is_retryable).then(|| stored_reply(refusal));
    let mut entry = call.entry(draft, reply);
    // The hint asks the caller to repeat the call, so this answer is not final.
    entry.client_supplied_id &= !is_retryable;
    entry
}

/// Returns the entry of a call that failed with an internal error.
pub(crate) fn failed_entry(call: &CallContext, paths: &[LogicalPath]) -> Entry {
    let mut draft = call.draft(Verdict::Allow, Outcome::Failed);
    draft.code = Some(Code::Internal);
    draft.files = requested_files(paths);
    // The caller may repeat the call under the same ID.
    Entry { client_supplied_id: false, ..call.entry(draft, None) }
}

/// Returns the entry of a call that was refused, or else failed.
fn failure_entry(call: &CallContext, paths: &[LogicalPath], refusal: Option<&Refusal>) -> Entry {
    let Some(refusal) = refusal else { return failed_entry(call, paths) };
    let mut entry = refused_entry(call, paths, refusal);
    if refusal.code == Code::ToolCallIdReused {
        // The ID belongs to another call.
        (entry.reply, entry.client_supplied_id) = (None, false);
    }
    entry
}

/// Returns the reply to a repetition of a refused mutation, without credentials.
pub(crate) fn stored_reply(refusal: &Refusal) -> Reply {
    // A refusal has only strings, numbers and lists, which always serialise.
    Reply { status: 0, body: serde_json::to_string(&refusal.clone().redacted()).unwrap_or_default() }
}

/// Returns the refusal of a call that had no effect because the call at `index` of its batch failed.
fn batch_not_done(index: usize, error: &CallError) -> Refusal {
    let code = match error {
        CallError::Refused(refusal) => refusal.code,
        CallError::Moved(_) => Code::Unavailable,
        CallError::Internal(_) => Code::Internal,
    };
    let message = format!("nothing was done: call {index} of the batch was refused with {code}");
    let hint = "Correct that call and send the whole batch again under new IDs.";
    Refusal::new(Code::BatchNotDone, message, hint)
        .with_details(|details| details.reasons = vec![format!("batch:{index}:{code}")])
}

/// Returns the verdict in the record of a call that was refused with `code`.
pub(crate) fn verdict_of(code: Code) -> Verdict {
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
        | Code::IdempotencyKeyReused
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
        | Code::ChangedOutside
        | Code::BatchNotDone
        | Code::Unavailable
        | Code::Internal => Verdict::Allow,
    }
}

/// Returns the reasons in the record of a refusal.
pub(crate) fn reasons_of(refusal: &Refusal) -> Vec<String> {
    if refusal.details.reasons.is_empty() { vec![refusal.message.clone()] } else { refusal.details.reasons.clone() }
}

/// Returns the files that a call named and did not change, for its record.
pub(crate) fn requested_files(paths: &[LogicalPath]) -> Vec<RecordFile> {
    let file = |path: &LogicalPath| RecordFile {
        kind: FileKind::of_path(path),
        new_sha256: None,
        old_sha256: None,
        path: path.clone(),
    };
    paths.iter().take(1000).map(file).collect()
}
