//! What was recorded: listed, followed, checked.

use std::time::Duration;

use ledger::{LedgerError, PageSize, RecordFilter, StoredRecord};
use model::{Approval, ApprovalState, Code, LogicalPath, Outcome, Record, Refusal, RunId, ToolCallId, Verdict};
use serde::{Deserialize, Serialize};

use crate::CallError;
use crate::call_error::refusals::run_not_found;
use crate::clock::parse_time;
use crate::engine::Engine;
use crate::page::{Cursor, List, Page};

/// The longest that a call's outcome is waited for.
pub const MAX_WAIT_SECONDS: u64 = 60;

/// Between two looks at a call that waits.
const PAUSE: Duration = Duration::from_millis(20);
/// What a stream takes from the ledger at a time, and holds until its reader has taken it.
pub const STREAM_BATCH: PageSize = PageSize { rows: 500, bytes: 256 << 10 };

/// Which records to tell. Everything that is set must hold.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct Filters {
    /// Only calls of this tool.
    #[param(example = "write_file")]
    tool: Option<String>,
    /// Only calls of which policy said this.
    decision: Option<Verdict>,
    /// Only calls that ended so.
    outcome: Option<Outcome>,
    /// Only calls that read or wrote this path, or asked for it in vain.
    #[param(example = "src/main.rs")]
    path: Option<String>,
    /// Only calls at this time or later, RFC 3339.
    #[param(example = "2026-01-01T00:00:00Z")]
    since: Option<String>,
    /// Only calls before this time, RFC 3339.
    until: Option<String>,
}

/// Which run's records to tell.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct RunFilter {
    /// Only calls of this run.
    #[param(value_type = Option<RunId>, example = "issue-4711")]
    run: Option<String>,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct Wait {
    /// Wait so long for a call that waits for a person. Taken as 60 where it is more.
    #[param(minimum = 0, maximum = 60, default = 0)]
    wait_seconds: Option<u64>,
}

impl Wait {
    /// How long to wait.
    pub fn patience(self) -> Duration {
        Duration::from_secs(self.wait_seconds.unwrap_or(0).min(MAX_WAIT_SECONDS))
    }
}

impl ToolCall {
    /// The same call for a caller who may not read files.
    #[must_use]
    pub fn without_content(mut self) -> Self {
        let diff = self.approval.as_mut().map(|approval| std::mem::take(&mut approval.diff));
        self.content_withheld = diff.is_some_and(|diff| !diff.is_empty());
        self
    }

    /// Whether a person has yet to decide.
    fn is_pending(&self) -> bool {
        self.record.outcome == Outcome::Pending
            && self.approval.as_ref().is_some_and(|approval| approval.state == ApprovalState::Pending)
    }
}

/// The record of a tool call, and what became of its approval where it asked for one.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    #[serde(flatten)]
    record: Record,
    /// The approval that the call asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    /// True for a run token without `file:read`: the approval's diff is not shown, and the member is empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    content_withheld: bool,
}

impl RunFilter {
    /// The run, where one is named.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn run(&self) -> Result<Option<RunId>, Refusal> {
        let parse = |raw: &String| {
            RunId::parse(raw)
                .map_err(|error| Refusal::invalid(error.to_string(), "Name a run as GET /v1/runs lists it."))
        };
        self.run.as_ref().map(parse).transpose()
    }
}

impl Filters {
    /// The filter as the ledger takes it.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `PATH_REJECTED`.
    pub fn to_ledger(&self, run: Option<RunId>) -> Result<RecordFilter, Refusal> {
        let path = self
            .path
            .as_ref()
            .map(|raw| LogicalPath::parse(raw).map(|path| path.to_string()).map_err(|rule| Refusal::path(raw, rule)));
        Ok(RecordFilter {
            run,
            tool: self.tool.clone(),
            decision: self.decision.map(verdict_text),
            outcome: self.outcome.map(outcome_text),
            path: path.transpose()?,
            since: time("since", self.since.as_deref())?,
            until: time("until", self.until.as_deref())?,
        })
    }
}

fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Allow => "ALLOW",
        Verdict::RequireApproval => "REQUIRE_APPROVAL",
        Verdict::Deny => "DENY",
    }
    .to_owned()
}

fn outcome_text(outcome: Outcome) -> String {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Refused => "refused",
        Outcome::Pending => "pending",
        Outcome::Failed => "failed",
    }
    .to_owned()
}

fn time(name: &str, raw: Option<&str>) -> Result<Option<String>, Refusal> {
    let bad = |_| Refusal::invalid(format!("`{name}` is no RFC 3339 time"), "Write it as `2026-01-01T00:00:00Z`.");
    raw.map(parse_time).transpose().map_err(bad)
}

impl Engine {
    /// Records that pass `filter`, in order; each as the JSON text that was hashed, with its hash.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub async fn records(
        &self,
        filter: &RecordFilter,
        after: Option<Cursor>,
        limit: u32,
        list: List<'_>,
    ) -> Result<Page<String>, CallError> {
        let found = self.ledger.records(filter, after.map(Cursor::position), limit.into()).await?;
        Ok(Page::of(found.map(|record| (record.position, record.text)), list))
    }

    /// Refused unless there is, or was, such a run.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    pub async fn known_run(&self, run: &RunId) -> Result<(), CallError> {
        match self.ledger.run(run).await {
            // One whose row is damaged is known all the same, and has its audit.
            Ok(Some(_)) | Err(LedgerError::Internal(_)) => Ok(()),
            Ok(None) if self.imports.get(run).is_some() => Ok(()),
            Ok(None) => Err(run_not_found().into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The record of a call, with its approval.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    pub async fn tool_call(&self, run: &RunId, id: &ToolCallId) -> Result<ToolCall, CallError> {
        let internal = |error: serde_json::Error| CallError::Internal(Box::new(error));
        let Some(call) = self.ledger.call(run, id).await? else {
            self.known_run(run).await?;
            let hint = "The run's audit lists every call with its ID.";
            return Err(Refusal::new(Code::NotFound, "the run has no call of this ID", hint).into());
        };
        let mut record: Record = serde_json::from_str(&call.record).map_err(internal)?;
        let asked = call.reply.and_then(|reply| serde_json::from_str::<Refusal>(&reply.body).ok());
        let approval = match asked.and_then(|refusal| refusal.details.approval_id) {
            Some(id) => self.ledger.approval(&id).await?,
            None => None,
        };
        let decided = approval.as_ref().is_some_and(|approval| approval.state != ApprovalState::Pending);
        if decided
            && record.outcome == Outcome::Pending
            && let Some(call) = self.ledger.call(run, id).await?
        {
            // It was decided between the two looks, and what came of it is a later record.
            record = serde_json::from_str(&call.record).map_err(internal)?;
        }
        Ok(ToolCall { record, approval, content_withheld: false })
    }

    /// The record of a call, as soon as it is decided or `patience` is over.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    pub async fn tool_call_once_decided(
        &self,
        run: &RunId,
        id: &ToolCallId,
        patience: Duration,
    ) -> Result<ToolCall, CallError> {
        let over = tokio::time::sleep(patience);
        tokio::pin!(over);
        let mut newest = self.ledger.newest_position();
        loop {
            // Looked at before the ledger is asked: whatever is newer wakes us again.
            newest.mark_unchanged();
            let call = self.tool_call(run, id).await?;
            if patience.is_zero() || !call.is_pending() {
                return Ok(call);
            }
            tokio::select! {
                changed = newest.changed() => if changed.is_err() { return Ok(call) },
                () = &mut over => return Ok(call),
                () = self.shutdown.cancelled() => return Ok(call),
            }
            // Other runs are busy too: what they record need not be asked about one by one.
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Follows the records that pass `filter`, behind `after`.
    pub fn follow(&self, filter: RecordFilter, after: i64) -> Follow {
        Follow {
            engine: self.clone(),
            filter,
            after,
            newest: self.ledger.newest_position(),
            waiting: Vec::new().into_iter(),
        }
    }

    /// The position of the newest record.
    pub fn newest_position(&self) -> i64 {
        *self.ledger.newest_position().borrow()
    }
}

/// Records as they come. What was missed is asked for from the ledger, so that nothing is, however slow the reader.
pub struct Follow {
    engine: Engine,
    filter: RecordFilter,
    after: i64,
    newest: tokio::sync::watch::Receiver<i64>,
    waiting: std::vec::IntoIter<StoredRecord>,
}

impl Follow {
    /// The next record; `None` where the service ends.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub async fn next(&mut self) -> Result<Option<StoredRecord>, CallError> {
        loop {
            if let Some(record) = self.waiting.next() {
                self.after = record.position;
                return Ok(Some(record));
            }
            // Looked at before the ledger is asked: whatever is newer wakes us again.
            let newest = *self.newest.borrow_and_update();
            let found = self.engine.ledger.records(&self.filter, Some(self.after), STREAM_BATCH).await?;
            if !found.is_empty() {
                self.waiting = found.into_iter();
                continue;
            }
            // Nothing up to there passes the filter: it need not be looked through again.
            self.after = self.after.max(newest);
            tokio::select! {
                changed = self.newest.changed() => if changed.is_err() { return Ok(None) },
                () = self.engine.shutdown.cancelled() => return Ok(None),
            }
        }
    }
}
