//! The changes of a run, from its audit.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::BoxFuture;
use ledger::PageSize;
use model::{EvidenceFact, FileKind, LogicalPath, Record, Refusal, RunId, Sha256, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::Instrument as _;

use crate::audit::STREAM_BATCH;
use crate::call::record::RecordedError;
use crate::call::{Answer, Call, Failed};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::history::content_history;
use crate::page::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::run::open_run::OpenRun;
use crate::tool::input::parse;
use crate::tools::drift::{DRIFT, ExpectedFiles, change_name};
use crate::tools::settle_drift::{SETTLE, SettleDrift, SettleInput};
use crate::transaction::Operation;
use crate::{CallError, reconcile};

/// The position in the feed, and the number of changes.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Only changes whose record comes after this one: the `nextSince` of an earlier response.
    #[param(default = 0)]
    since: Option<u64>,
    /// The maximum number of changes. Values over 1,000 are taken as 1,000. A response also ends when its records have 4 MiB.
    #[param(minimum = 1, default = 100)]
    limit: Option<u32>,
}

/// A page of a run's changes.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeList {
    /// The changes, in the order of their records.
    items: Vec<RunChange>,
    /// The `since` of the next request.
    next_since: u64,
    /// Whether more changes exist already.
    more: bool,
}

/// A call that has changed files.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunChange {
    /// The number of its record.
    pub seq: u64,
    /// The ID of the call.
    tool_call_id: ToolCallId,
    /// Its tool.
    #[schema(example = "write_file")]
    tool: String,
    /// The time of the call, RFC 3339.
    #[schema(format = DateTime)]
    timestamp: String,
    /// Every path that changed.
    files: Vec<ChangedFile>,
}

/// A path that changed.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangedFile {
    /// The path.
    path: LogicalPath,
    /// `created`, `modified` or `deleted`.
    change: &'static str,
    /// The kind of the file.
    kind: FileKind,
    /// Hash before the change. Omitted if the file did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_sha256: Option<Sha256>,
    /// Hash after the change. Omitted if the file was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_sha256: Option<Sha256>,
}

impl ChangesQuery {
    /// Returns the position and the limit.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn check(&self) -> Result<(Option<u64>, u32), Refusal> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
        if limit == 0 {
            return Err(Refusal::invalid("`limit` is 0", "Give 1 to 1,000, or omit it for 100."));
        }
        // Larger numbers fit into no integer column, and no record has one.
        let since = self.since.map(|since| since.min(i64::MAX as u64));
        Ok((since, limit))
    }
}

impl RunChange {
    /// Returns the change of `record`; `None` if it changed nothing.
    fn of(record: Record) -> Option<Self> {
        if record.paths_written.is_empty() {
            return None;
        }
        let files = record.files.into_iter().map(|file| ChangedFile {
            change: change_name(file.old_sha256, file.new_sha256),
            path: file.path,
            kind: file.kind,
            old_sha256: file.old_sha256,
            new_sha256: file.new_sha256,
        });
        Some(Self {
            seq: record.seq,
            tool_call_id: record.tool_call_id,
            tool: record.tool,
            timestamp: record.timestamp,
            files: files.collect(),
        })
    }
}

impl Calls {
    /// Returns the changes of `run` after the record `since`.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    #[boxed]
    pub async fn changes(&self, run: &RunId, since: u64, limit: u32) -> Result<ChangeList, CallError> {
        self.engine.known_run(run).await?;
        self.changes_page(run, since, limit.into()).await
    }

    async fn changes_page(&self, run: &RunId, since: u64, size: PageSize) -> Result<ChangeList, CallError> {
        let found = self.engine.ledger.changes(run, since, size).await?;
        let more = found.more;
        let (mut items, mut next_since) = (Vec::with_capacity(found.len()), since);
        for stored in found {
            let record = content_history::parse(&stored.text)?;
            next_since = record.seq;
            items.extend(RunChange::of(record));
        }
        Ok(ChangeList { items, next_since, more })
    }

    /// Compares the files of `run` with its audit. Returns the differences as JSON text.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `RUN_CLOSED`.
    #[boxed]
    pub async fn drift(&self, run: &RunId, caller: Caller) -> Result<Vec<u8>, RecordedError> {
        let (call, members) = Call::of(run, caller, &DRIFT, Map::new());
        let (open_run, _) = self.admit(&call, members).await?;
        // The whole run stays locked, since a file that is written during the comparison would look like drift.
        let _guard = match reconcile::lock_consistent(&self.engine, &open_run).await {
            Ok(guard) => guard,
            Err(error) => return Err(self.engine.record_error(&call, &[], error).await),
        };
        let expected = ExpectedFiles { written: open_run.known.written() };
        let call = call.opened(&open_run, EvidenceFact::Missing);
        let (read, _) = self.engine.read(call, &open_run, Box::new(expected)).await?;
        let mut json = Vec::new();
        read.output.write_json(&mut json);
        Ok(json)
    }

    /// Settles files of `run` that differ from its audit: those of the request, or all.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    #[boxed]
    pub async fn settle_drift(
        &self,
        run: &RunId,
        caller: Caller,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, Failed> {
        let (call, members) = match members {
            Ok(members) => Call::of(run, caller, &SETTLE, members),
            Err(refusal) => (Call::new(run, caller, &SETTLE), Err(refusal)),
        };
        let (tool_call_id, span) = (call.tool_call_id.clone(), call.span());
        let settled = async {
            let (open_run, members) = self.admit(&call, members).await?;
            let operation = match self.settlement(&open_run, members).await {
                Ok(operation) => Ok(operation),
                Err(CallError::Refused(refusal)) => Err(refusal),
                Err(error) => return Err(self.engine.record_error(&call, &[], error).await),
            };
            // A settlement is judged without evidence.
            self.execute_one(call.opened(&open_run, EvidenceFact::Missing), open_run, operation).await
        };
        settled.instrument(span).await.map_err(|error| Failed { tool_call_id, error })
    }

    /// Parses a settlement, and finds its paths if it names none.
    async fn settlement(&self, run: &Arc<OpenRun>, members: Map<String, Value>) -> Result<Operation, CallError> {
        let input: SettleInput = parse(members)?;
        if input.paths.is_some() {
            return Ok(Operation::Mutation(Box::new(SettleDrift::try_from(input)?)));
        }
        let guard = reconcile::lock_consistent(&self.engine, run).await?;
        let expected = ExpectedFiles { written: run.known.written() };
        let _permit = self.engine.read_permit(true).await;
        let open_run = Arc::clone(run);
        let find = move || {
            let mut paths = BTreeSet::new();
            let mut add = |path, _| {
                paths.insert(path);
            };
            expected.compare(&open_run.workspace, &open_run.rules, &AtomicBool::new(false), &mut add)?;
            Ok(paths.into_iter().collect())
        };
        let paths = self.engine.blocking(find).await?;
        // The call locks its paths itself, and compares them again.
        drop(guard);
        Ok(Operation::Mutation(Box::new(SettleDrift::of_all(input.accept, paths))))
    }

    /// Returns a stream of the changes of `run` after the record `since`.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    pub fn follow_changes(self: &Arc<Self>, run: RunId, since: u64) -> BoxFuture<'_, Result<ChangeStream, CallError>> {
        Box::pin(async move {
            self.engine.known_run(&run).await?;
            let newest = self.engine.ledger.newest_position();
            Ok(ChangeStream { calls: Arc::clone(self), run, since, newest, batch: Vec::new().into_iter() })
        })
    }
}

/// A stream of changes.
pub struct ChangeStream {
    calls: Arc<Calls>,
    run: RunId,
    since: u64,
    newest: tokio::sync::watch::Receiver<i64>,
    batch: std::vec::IntoIter<RunChange>,
}

impl ChangeStream {
    /// Waits for the next change; `None` when the service shuts down.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<RunChange>, CallError> {
        loop {
            if let Some(change) = self.batch.next() {
                return Ok(Some(change));
            }
            // Before the query, so that a change that is recorded during it ends the wait below.
            self.newest.mark_unchanged();
            let found = self.calls.changes_page(&self.run, self.since, STREAM_BATCH).await?;
            let has_advanced = found.next_since > self.since;
            self.since = found.next_since;
            self.batch = found.items.into_iter();
            if has_advanced {
                continue;
            }
            tokio::select! {
                changed = self.newest.changed() => if changed.is_err() { return Ok(None) },
                () = self.calls.engine.shutdown.cancelled() => return Ok(None),
            }
        }
    }
}
