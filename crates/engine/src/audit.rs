//! Queries and streams of audit records.

mod compare;
mod content;
mod report;
mod stats;
mod story;

use async_recursion::async_recursion as boxed;
use std::sync::Arc;
use std::time::Duration;

use ledger::{PageSize, StoredRecord};
use model::{Approval, ApprovalState, By, Code, LogicalPath, Outcome, Record, Refusal, RunId, ToolCallId, Verdict};
use serde::{Deserialize, Serialize};

use crate::CallError;
use crate::clock::just_after;
use crate::engine::Engine;
use crate::page::conditions::{
    CreatedQuery, LabelQuery, OrderQuery, check_actor, check_path_prefix, check_path_suffix, recorded_actor, time,
};
use crate::page::{Cursor, ListKey, Page};

pub use crate::history::{content_history, snapshot};
pub use compare::{CompareQuery, RunComparison};
pub use content::{has_event_data, without_event_data};
pub use ledger::RecordFilter;
pub use report::{ReportVerification, RunReport};
pub use stats::{AuditStats, StatsQuery};
pub use story::find_break;

/// The maximum time to wait for the decision about a call, in seconds.
pub const MAX_WAIT_SECONDS: u64 = 60;

/// The minimum time between two lookups of a call that waits.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// What a stream reads from the ledger at a time and holds until its client has received it.
pub const STREAM_BATCH: PageSize = PageSize { rows: 500, bytes: 256 << 10 };

/// A filter of audit records. A record must match every member that is given.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct Filters {
    /// Only calls of this tool.
    #[param(example = "write_file")]
    tool: Option<String>,
    /// Only calls with this decision of the policy.
    decision: Option<Verdict>,
    /// Only calls with this outcome.
    outcome: Option<Outcome>,
    /// Only calls that read or wrote this path, or requested it and were refused.
    #[param(example = "src/main.rs")]
    path: Option<String>,
    /// Only calls at or after this time, RFC 3339.
    #[param(example = "2026-01-01T00:00:00Z")]
    since: Option<String>,
    /// Only calls before this time, RFC 3339.
    until: Option<String>,
    /// Only calls that read, wrote or requested a path that begins with this text, such as `src/`.
    #[param(example = "src/")]
    path_prefix: Option<String>,
    /// Only calls that read, wrote or requested a path that ends with this text, such as `refunds.py` or `.lock`; with `/` before it, a
    /// file of exactly that name in any folder.
    #[param(example = "/main.rs")]
    path_suffix: Option<String>,
    /// Only calls of this caller: `operator:NAME`, `run-token:TOKEN_ID`, `service`, or `nobody` for changes from outside.
    #[param(example = "operator:ada")]
    actor: Option<String>,
    /// Only calls by the agent, by operators, or by the service. Default: all.
    by: Option<By>,
    /// Only calls that were refused with this code.
    code: Option<Code>,
}

/// A filter by run.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct FilterByRun {
    /// Only calls of this run; with `_service`, only changes of operators, which are records of a chain of the service.
    #[param(value_type = Option<String>, pattern = "^([A-Za-z0-9][A-Za-z0-9_-]{0,63}|_service)$", example = "issue-4711")]
    run: Option<String>,
}

/// Where a list of one run's records begins.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct StartQuery {
    /// The `seq` of the record that the list begins with, in either order. A later page follows its `cursor` instead.
    #[param(minimum = 0, example = 1)]
    from_seq: Option<u64>,
}

impl StartQuery {
    /// Returns the number of the record, if it is given.
    pub fn from_seq(self) -> Option<u64> {
        self.from_seq
    }
}

/// How long to wait for a decision.
#[derive(Clone, Copy, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// If the call waits for approval, wait at most this long for the decision. Values over 60 are taken as 60.
    #[param(minimum = 0, default = 0)]
    wait_seconds: Option<u64>,
}

impl WaitQuery {
    /// Returns the time to wait.
    pub fn timeout(self) -> Duration {
        Duration::from_secs(self.wait_seconds.unwrap_or(0).min(MAX_WAIT_SECONDS))
    }
}

impl ToolCall {
    /// Returns the call without the diff of its approval and the data of an event, for a caller without `file:read`.
    #[must_use]
    pub fn without_content(mut self) -> Self {
        let diff = self.approval.as_mut().and_then(|approval| approval.diff.replace(String::new()));
        self.content_withheld = diff.is_some_and(|diff| !diff.is_empty());
        self.content_withheld |= content::withhold(&mut self.record);
        self
    }

    /// Whether the call waits for a decision.
    fn is_pending(&self) -> bool {
        self.record.outcome == Outcome::Pending
            && self.approval.as_ref().is_some_and(|approval| approval.state == ApprovalState::Pending)
    }
}

/// The record of a tool call, and its approval if it required one.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    #[serde(flatten)]
    record: Record,
    /// The approval that the call required.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    /// What became of a call that waited for approval: `approved (record N)`, `denied: NOTE`, `expired` or `failed: CODE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "approved (record 7)")]
    resolution: Option<String>,
    /// True for a run token without `file:read`: the approval's diff is withheld, and the member is empty; or the data of an
    /// event is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    content_withheld: bool,
}

impl FilterByRun {
    /// Returns the run, if the filter has one.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn run(&self) -> Result<Option<RunId>, Refusal> {
        let parse = |raw: &String| {
            RunId::parse_recorded(raw)
                .map_err(|error| Refusal::invalid(error.to_string(), "Give a run ID that GET /v1/runs lists."))
        };
        self.run.as_ref().map(parse).transpose()
    }
}

impl Filters {
    /// Returns the filter for the ledger.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `PATH_REJECTED`.
    pub fn to_ledger(
        &self,
        run: Option<RunId>,
        created: &CreatedQuery,
        labels: &LabelQuery,
        order: OrderQuery,
    ) -> Result<RecordFilter, Refusal> {
        let path = self
            .path
            .as_ref()
            .map(|raw| LogicalPath::parse(raw).map(|path| path.to_string()).map_err(|rule| Refusal::path(raw, rule)));
        self.path_prefix.as_deref().map_or(Ok(()), check_path_prefix)?;
        self.path_suffix.as_deref().map_or(Ok(()), check_path_suffix)?;
        self.actor.as_deref().map_or(Ok(()), check_actor)?;
        let (after, before) = created.times()?;
        let since = time("since", self.since.as_deref())?.into_iter().chain(after.as_deref().map(just_after));
        let until = time("until", self.until.as_deref())?.into_iter().chain(before);
        Ok(RecordFilter {
            run,
            tool: self.tool.clone(),
            decision: self.decision.map(verdict_text),
            outcome: self.outcome.map(outcome_text),
            path: path.transpose()?,
            since: since.max(),
            until: until.min(),
            path_prefix: self.path_prefix.clone(),
            path_suffix: self.path_suffix.clone(),
            actor: self.actor.as_deref().map(recorded_actor),
            by: self.by,
            code: self.code.map(|code| code.as_str().to_owned()),
            labels: labels.check()?,
            newest_first: order.is_newest_first(),
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

/// What the records say: lists, streams, the report of a run, its verification.
pub struct Audit {
    engine: Arc<Engine>,
}

impl Audit {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Checks that the run exists or has existed, and that its audit is not in an archive.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run is archived.
    #[boxed]
    pub async fn known_run(&self, run: &RunId) -> Result<(), CallError> {
        self.engine.known_run(run).await
    }

    /// Checks that the audit of the run that a list is about, if it is about one, is not in an archive. The run need not exist.
    ///
    /// # Errors
    ///
    /// `RUN_CLOSED` if the run is archived.
    #[boxed]
    pub async fn check_not_archived(&self, run: Option<&RunId>) -> Result<(), CallError> {
        self.engine.check_not_archived(run).await
    }

    /// Returns a page of the records that match `filter`, in order. Each is the JSON text that was hashed, with its hash.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn records(
        &self,
        filter: &RecordFilter,
        after: Option<Cursor>,
        limit: u32,
        list: &ListKey,
    ) -> Result<Page<String>, CallError> {
        let found = self.engine.ledger.records(filter, after.map(Cursor::position), limit.into()).await?;
        Ok(Page::of(found.map(|record| (record.position, record.text)), list))
    }

    /// Returns the cursor of the list of the run's records that begins with record `seq`. A list in order that begins after
    /// the last record is empty; the newest first, it begins with the newest.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn cursor_at(&self, run: &RunId, seq: u64, newest_first: bool) -> Result<Cursor, CallError> {
        let seq = seq.max(1);
        let found = self.engine.ledger.record_range(run, seq, seq, 1.into()).await?;
        Ok(Cursor::after(match found.into_iter().next() {
            Some(record) if newest_first => record.position.saturating_add(1),
            Some(record) => record.position.saturating_sub(1),
            None => i64::MAX,
        }))
    }

    /// Returns the record of a call, with its approval.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    #[boxed]
    pub async fn tool_call(&self, run: &RunId, id: &ToolCallId) -> Result<ToolCall, CallError> {
        let Some(call) = self.engine.ledger.call(run, id).await? else {
            self.engine.known_run(run).await?;
            let message = format!("the run has no call `{id}`");
            return Err(Refusal::new(Code::NotFound, message, "Find the call's ID in the run's audit.").into());
        };
        let mut record = content_history::parse(&call.record)?;
        let refusal = call.reply.and_then(|reply| serde_json::from_str::<Refusal>(&reply.body).ok());
        let approval = match refusal.and_then(|refusal| refusal.details.approval_id) {
            Some(id) => self.engine.ledger.approval(&id).await?,
            None => None,
        };
        let decided = approval.as_ref().is_some_and(|approval| approval.state != ApprovalState::Pending);
        if decided
            && record.outcome == Outcome::Pending
            && let Some(call) = self.engine.ledger.call(run, id).await?
        {
            // The call was decided between the two lookups. Its outcome is a later record.
            record = content_history::parse(&call.record)?;
        }
        let resolution = approval.as_ref().and_then(|approval| approval.resolution.clone());
        Ok(ToolCall { record, approval, resolution, content_withheld: false })
    }

    /// Returns the record of a call once it is decided, or after `timeout`.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    #[boxed]
    pub async fn tool_call_once_decided(
        &self,
        run: &RunId,
        id: &ToolCallId,
        timeout: Duration,
    ) -> Result<ToolCall, CallError> {
        let deadline = tokio::time::sleep(timeout);
        tokio::pin!(deadline);
        let mut newest = self.engine.ledger.newest_position();
        loop {
            // Before the query, so that a record that is added during it ends the wait below.
            newest.mark_unchanged();
            let call = self.tool_call(run, id).await?;
            if timeout.is_zero() || !call.is_pending() {
                return Ok(call);
            }
            tokio::select! {
                changed = newest.changed() => if changed.is_err() { return Ok(call) },
                () = &mut deadline => return Ok(call),
                () = self.engine.shutdown.cancelled() => return Ok(call),
            }
            // Records of other runs end the wait too. Not each of them needs a lookup.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns a stream of the records that match `filter`, after the position `after`.
    pub fn follow_records(&self, filter: RecordFilter, after: i64) -> RecordStream {
        RecordStream {
            engine: Arc::clone(&self.engine),
            filter,
            after,
            until: None,
            newest: self.engine.ledger.newest_position(),
            batch: Vec::new().into_iter(),
        }
    }

    /// Returns the records that match `filter` up to the newest one there is now, as a stream that ends.
    pub fn records_so_far(&self, filter: RecordFilter) -> RecordStream {
        RecordStream { until: Some(self.newest_position()), ..self.follow_records(filter, 0) }
    }

    /// Returns the position of the newest record.
    pub fn newest_position(&self) -> i64 {
        *self.engine.ledger.newest_position().borrow()
    }
}

/// A stream of records. It reads from the ledger, so a slow client misses none.
pub struct RecordStream {
    engine: Arc<Engine>,
    filter: RecordFilter,
    after: i64,
    /// The position of the last record; `None` for a stream that waits for more.
    until: Option<i64>,
    newest: tokio::sync::watch::Receiver<i64>,
    batch: std::vec::IntoIter<StoredRecord>,
}

impl RecordStream {
    /// Waits for the next record; `None` when the service shuts down, or after the last one.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<StoredRecord>, CallError> {
        loop {
            if let Some(record) = self.batch.next() {
                if self.until.is_some_and(|until| record.position > until) {
                    return Ok(None);
                }
                self.after = record.position;
                return Ok(Some(record));
            }
            // Before the query, so that a record that is added during it ends the wait below.
            let newest = *self.newest.borrow_and_update();
            let found = self.engine.ledger.records(&self.filter, Some(self.after), STREAM_BATCH).await?;
            if found.more && found.is_empty() {
                // The search continues after a bounded number of records that do not match.
                self.after = found.resume.unwrap_or(self.after);
                continue;
            }
            if !found.is_empty() {
                self.batch = found.into_iter();
                continue;
            }
            if self.until.is_some() {
                return Ok(None);
            }
            // No record up to here matches the filter, so the next query starts after it.
            self.after = self.after.max(newest);
            tokio::select! {
                changed = self.newest.changed() => if changed.is_err() { return Ok(None) },
                () = self.engine.shutdown.cancelled() => return Ok(None),
            }
        }
    }
}
