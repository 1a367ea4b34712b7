//! Records of calls: their ledger entries, and recording calls that fail.

use std::borrow::Borrow;

use ledger::{Appended, Entry, LedgerError, Records, Reply};
use model::{Code, FileKind, LogicalPath, Outcome, Record, RecordFile, Refusal, Verdict};

use crate::CallError;
use crate::call::Outcomes;
use crate::call::history_quota::{self, events_exceeded, history_exceeded};
use crate::call::{Call, OpenedCall};
use crate::call_error::refusals::{already_recorded, approval_not_pending, attempted_path, refusal_of};
use crate::engine::{Engine, NotRecorded};
use crate::run::chain_head::ChainHead;
use crate::run::open_run::OpenRun;
use crate::tool::output::ReadOutput;

/// The tool in the record of an upload.
pub(crate) const UPLOAD: &str = "artifact.upload";

/// Why a transaction had no effect.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call at this index failed.
    Call(usize, CallError),
    /// No single call caused the failure.
    All(CallError),
    /// The calls are recorded already, or cannot be recorded.
    Recorded(RecordedError),
}

/// The error of a call, as its record has it.
///
/// Whoever executes a call returns this error, which only this module makes, by recording one. What leaves no record has to be
/// left out by name, so that a refusal whose record is forgotten does not compile.
#[derive(Debug)]
pub struct RecordedError(CallError);

impl RecordedError {
    /// Leaves an error without a record: there is no such run, it is on another node, the ledger fails, or it is recorded already.
    pub(crate) fn left_out(error: impl Into<CallError>) -> Self {
        Self(error.into())
    }

    /// The refusal of a call, which `record` has.
    pub(crate) fn of(refusal: Refusal, record: &Record) -> Self {
        Self(refusal.recorded(record.seq, record.hash).into())
    }

    /// Returns the error.
    pub fn as_error(&self) -> &CallError {
        &self.0
    }

    /// Returns the error, to add what is told to the caller alone.
    pub(crate) fn as_error_mut(&mut self) -> &mut CallError {
        &mut self.0
    }

    /// Returns the error without file content.
    #[must_use]
    pub(crate) fn without_content(self) -> Self {
        Self(match self.0 {
            CallError::Refused(refusal) => refusal.without_content().into(),
            error => error,
        })
    }
}

impl From<RecordedError> for CallError {
    fn from(recorded: RecordedError) -> Self {
        recorded.0
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::All(error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::All(refusal.into())
    }
}

impl Failure {
    /// The failure of calls that leave no record; see [`RecordedError::left_out`].
    pub(crate) fn left_out(error: impl Into<CallError>) -> Self {
        Self::Recorded(RecordedError::left_out(error))
    }

    /// The error, without the index of the call that failed.
    pub(crate) fn as_error(&self) -> &CallError {
        match self {
            Self::Call(_, error) | Self::All(error) => error,
            Self::Recorded(error) => error.as_error(),
        }
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

    /// As [`as_error`](Self::as_error). It may not be recorded yet.
    pub(crate) fn into_error(self) -> CallError {
        match self {
            Self::Call(_, error) | Self::All(error) => error,
            Self::Recorded(error) => error.into(),
        }
    }
}

impl From<NotRecorded> for CallError {
    fn from(error: NotRecorded) -> Self {
        match error {
            NotRecorded::Failed(error) => error.into(),
            NotRecorded::Rejected(Appended::PreconditionFailed(failed)) => refusal_of(failed).into(),
            NotRecorded::Rejected(Appended::HistoryQuotaExceeded(excess)) => history_exceeded(excess).into(),
            NotRecorded::Rejected(Appended::EventQuotaExceeded(quota)) => events_exceeded(quota).into(),
            NotRecorded::Rejected(Appended::NotPending) => approval_not_pending().into(),
            NotRecorded::Rejected(Appended::Repeated(_)) => already_recorded().into(),
            NotRecorded::Rejected(Appended::NoSuchToken) => {
                let hint = "Use the tokenId that was returned with the token.";
                Refusal::new(Code::NotFound, "the run has no such token", hint).into()
            }
            NotRecorded::Rejected(other @ (Appended::Recorded(_) | Appended::Reused(_) | Appended::Unchanged)) => {
                Self::Internal(format!("the ledger rejected a record as {other:?}").into())
            }
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
    /// The refusal of entries that the ledger did not append, recorded unless a precondition of them has failed; the errors of the
    /// ledger.
    pub(crate) async fn record_calls(
        &self,
        calls: &[impl Borrow<Call>],
        entries: Vec<Entry>,
    ) -> Result<Records, Failure> {
        match self.record(entries).await {
            Ok(records) => Ok(records),
            Err(error) => Err(self.failure_of(calls, error).await),
        }
    }

    /// Returns why the entries of `calls` were not recorded.
    pub(crate) async fn failure_of(&self, calls: &[impl Borrow<Call>], error: NotRecorded) -> Failure {
        match error {
            NotRecorded::Rejected(Appended::Reused(index)) => {
                Failure::Recorded(self.record_reused_id(calls[index].borrow()).await)
            }
            NotRecorded::Rejected(
                Appended::PreconditionFailed(_) | Appended::HistoryQuotaExceeded(_) | Appended::EventQuotaExceeded(_),
            ) => Failure::All(error.into()),
            error => Failure::left_out(error),
        }
    }

    /// Records a read with its outcome, and returns what it has read. `paths` are those of its input.
    ///
    /// # Errors
    ///
    /// The error of the outcome, recorded.
    pub(crate) async fn record_read(
        &self,
        call: &OpenedCall,
        run: &OpenRun,
        paths: &[LogicalPath],
        outcome: Result<ReadOutput, CallError>,
    ) -> Result<ReadOutput, RecordedError> {
        let mut output = match outcome {
            Ok(output) => output,
            Err(error) => return Err(self.record_error(call, paths, error).await),
        };
        let entry = read_entry(call, &mut output);
        match self.record_calls(std::slice::from_ref(call), vec![entry]).await {
            Ok(records) => {
                for record in &*records {
                    run.seen_versions.add(record);
                }
                output.head = records.first().map(|record| ChainHead { seq: record.seq, hash: record.hash });
                Ok(output)
            }
            // The token was revoked during the call, or the history is full.
            Err(Failure::Call(_, error) | Failure::All(error)) => Err(self.record_error(call, paths, error).await),
            Err(Failure::Recorded(error)) => Err(error),
        }
    }

    /// Records that `calls` had no effect, and why. `paths` has the known paths of each call; the last calls may be missing.
    ///
    /// # Errors
    ///
    /// If the failure is recorded already or cannot be recorded.
    pub(crate) async fn record_failure<C: Borrow<Call>>(
        &self,
        calls: &[C],
        paths: &[&[LogicalPath]],
        failure: Failure,
    ) -> Result<Outcomes, RecordedError> {
        let (failed, error) = match failure {
            Failure::Call(index, error) => (Some(index), error),
            Failure::All(error) => (None, error),
            Failure::Recorded(error) => return Err(error),
        };
        if let CallError::Moved(_) = error {
            return Err(RecordedError(error));
        }
        let outcomes =
            |answers: Vec<RecordedError>| Outcomes { answers: answers.into_iter().map(Err).collect(), failed };
        // There is no room for the records.
        let unrecorded = |error: CallError, refusal: &Refusal| match error {
            CallError::Refused(_) => {
                Ok(outcomes(calls.iter().map(|_| RecordedError::left_out(refusal.clone())).collect()))
            }
            error @ (CallError::Moved(_) | CallError::Internal(_)) => Err(RecordedError(error)),
        };
        if let Some(refusal) = self.unrecorded_refusal(calls) {
            return unrecorded(error, &refusal);
        }
        let (refusals, mut entries) = failure_rows(calls, paths, failed, &error);
        let records = match self.record(entries.clone()).await {
            Ok(records) => records,
            Err(NotRecorded::Rejected(Appended::Repeated(_))) => {
                let is_early = BEFORE_REPLAY.iter().any(|code| error.is(*code));
                let stored = if is_early { Ok(None) } else { self.stored_refusals(calls).await };
                if let Some(refusals) = stored.map_err(RecordedError)? {
                    return Ok(outcomes(refusals.into_iter().map(|refusal| RecordedError(refusal.into())).collect()));
                }
                // The ID has an answer that this caller may not see, or the request was refused before it was looked up. The
                // refusal is a further record.
                for entry in &mut entries {
                    entry.reply = None;
                }
                self.record_calls(calls, entries).await.map_err(|failure| RecordedError(failure.into_error()))?
            }
            Err(NotRecorded::Rejected(Appended::HistoryQuotaExceeded(excess))) => {
                return unrecorded(error, &history_quota::unrecorded(excess));
            }
            Err(NotRecorded::Rejected(Appended::Reused(index))) => {
                return Err(self.record_reused_id(calls[index].borrow()).await);
            }
            Err(NotRecorded::Rejected(_)) => return Err(RecordedError::left_out(already_recorded())),
            // What has failed may have been seen in a tree that was not up to date.
            Err(NotRecorded::Failed(unrecorded))
                if matches!(unrecorded, LedgerError::RunMoved(_)) || matches!(error, CallError::Refused(_)) =>
            {
                return Err(RecordedError::left_out(unrecorded));
            }
            Err(NotRecorded::Failed(unrecorded)) => {
                tracing::error!(error = &unrecorded as &dyn std::error::Error, "a failed call could not be recorded");
                return Err(RecordedError(error));
            }
        };
        let mut internal = Some(error);
        let unknown = || CallError::Internal("the transaction failed".into());
        let errors = refusals.into_iter().zip(&*records).map(|(refusal, record)| match refusal {
            Some(refusal) => RecordedError::of(refusal, record),
            None => RecordedError(internal.take().unwrap_or_else(unknown)),
        });
        Ok(outcomes(errors.collect()))
    }

    /// Records that `call` failed with `error`, and returns the error with the record's number.
    pub(crate) async fn record_error(
        &self,
        call: &impl Borrow<Call>,
        paths: &[LogicalPath],
        error: CallError,
    ) -> RecordedError {
        let failure = Failure::Call(0, error);
        // Boxed, so that the future of a successful call is smaller.
        match Box::pin(self.record_failure(std::slice::from_ref(call.borrow()), &[paths], failure)).await {
            Ok(mut recorded) => {
                let error = recorded.answers.pop().and_then(Result::err);
                error.unwrap_or_else(|| RecordedError::left_out(already_recorded()))
            }
            Err(error) => error,
        }
    }

    /// Records a call whose ID belongs to another call.
    pub(crate) async fn record_reused_id(&self, call: &Call) -> RecordedError {
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
    pub(crate) async fn append_refusal(&self, entry: Entry, refusal: Refusal) -> RecordedError {
        match Box::pin(self.record(vec![entry])).await {
            Ok(records) => match records.first() {
                Some(record) => RecordedError::of(refusal, record),
                None => RecordedError::left_out(refusal),
            },
            Err(NotRecorded::Rejected(Appended::HistoryQuotaExceeded(excess))) => {
                RecordedError::left_out(history_quota::unrecorded(excess))
            }
            Err(NotRecorded::Rejected(_)) => RecordedError::left_out(refusal),
            Err(error) => RecordedError::left_out(error),
        }
    }
}

/// Returns the entry of a successful read. Takes the output's parts of the record.
pub(crate) fn read_entry(call: &Call, output: &mut ReadOutput) -> Entry {
    let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
    draft.paths_read = std::mem::take(&mut output.paths_read);
    draft.files = std::mem::take(&mut output.files);
    draft.reasons = std::mem::take(&mut output.reasons);
    // Its paths are those of the mount.
    draft.reasons.extend(call.mount.as_ref().map(|mount| format!("mount:{mount}")));
    call.entry(draft, None)
}

/// Returns the entry of a refused call, with the reply to its repetitions.
pub(crate) fn refused_entry(call: &Call, paths: &[LogicalPath], refusal: &Refusal) -> Entry {
    let mut draft = call.draft(verdict_of(refusal.code), Outcome::Refused);
    draft.code = Some(refusal.code);
    draft.reasons = reasons_of(refusal);
    draft.reasons.extend(attempted_path(refusal));
    draft.files = requested_files(paths);
    let is_retryable = refusal.code.is_retryable();
    let reply = (!call.tool.only_reads() && !is_retryable).then(|| stored_reply(refusal));
    let mut entry = call.entry(draft, reply);
    // The hint asks the caller to repeat the call, so this answer is not final.
    entry.client_supplied_id &= !is_retryable;
    entry
}

/// Returns the entry of a call that failed with an internal error.
pub(crate) fn failed_entry(call: &Call, paths: &[LogicalPath]) -> Entry {
    let mut draft = call.draft(Verdict::Allow, Outcome::Failed);
    draft.code = Some(Code::Internal);
    draft.files = requested_files(paths);
    // The caller may repeat the call under the same ID.
    Entry { client_supplied_id: false, ..call.entry(draft, None) }
}

/// Returns the refusal of each call of a failed transaction, if it is one, and its entry.
fn failure_rows<C: Borrow<Call>>(
    calls: &[C],
    paths: &[&[LogicalPath]],
    failed: Option<usize>,
    error: &CallError,
) -> (Vec<Option<Refusal>>, Vec<Entry>) {
    let row = |(index, call): (usize, &C)| {
        let paths = paths.get(index).copied().unwrap_or_default();
        let refusal = match (failed, error) {
            (Some(other), error) if other != index => Some(batch_not_done(other, error)),
            (_, CallError::Refused(refusal)) => Some(refusal.clone().redacted()),
            (_, CallError::Moved(_) | CallError::Internal(_)) => None,
        };
        let mut entry = failure_entry(call.borrow(), paths, refusal.as_ref());
        if error.is_retryable() {
            // The ID may be used again.
            (entry.reply, entry.client_supplied_id) = (None, false);
        }
        (refusal, entry)
    };
    calls.iter().enumerate().map(row).unzip()
}

/// Returns the entry of a call that was refused, or else failed.
fn failure_entry(call: &Call, paths: &[LogicalPath], refusal: Option<&Refusal>) -> Entry {
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
    let file = |path: &LogicalPath| RecordFile::unwritten(path.clone(), FileKind::of_path(path));
    paths.iter().take(1000).map(file).collect()
}
