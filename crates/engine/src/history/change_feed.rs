//! What has changed in a run, from its audit.

use std::collections::BTreeMap;

use ledger::PageSize;
use model::{FileKind, LogicalPath, Record, Refusal, RunId, Sha256, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::audit::STREAM_BATCH;
use crate::call::CallContext;
use crate::engine::{Caller, Engine};
use crate::page::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::tools::drift::{DRIFT, ExpectedFiles, change_name};
use crate::{CallError, reconcile};

/// Where to begin, and how much to tell.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct Since {
    /// Only changes whose record comes after this one; the `nextSince` of an earlier answer.
    #[param(default = 0)]
    since: Option<u64>,
    /// At most so many changes. Taken as 1,000 where it is more. An answer also ends when its records have 4 MiB.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// Some changes of a run, in order.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeList {
    /// The changes, in the order of their records.
    items: Vec<RunChange>,
    /// Give it as `since` for what comes next, now or later.
    next_since: u64,
    /// Whether there are more already.
    more: bool,
}

/// One call that has changed files.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunChange {
    /// Its record.
    pub seq: u64,
    /// The call.
    tool_call_id: ToolCallId,
    /// Its tool.
    #[schema(example = "write_file")]
    tool: String,
    /// When.
    #[schema(format = DateTime)]
    timestamp: String,
    /// Every path that changed.
    files: Vec<ChangedFile>,
}

/// One path that changed.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    /// The path.
    path: LogicalPath,
    /// `created`, `modified` or `deleted`.
    change: &'static str,
    /// Its kind.
    kind: FileKind,
    /// Its hash before; missing where there was no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_sha256: Option<Sha256>,
    /// Its hash after; missing where it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_sha256: Option<Sha256>,
}

impl Since {
    /// Where to begin, and the limit.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn check(&self) -> Result<(Option<u64>, u32), Refusal> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
        if limit == 0 {
            return Err(Refusal::invalid("`limit` is 0", "Give 1 to 1,000, or leave it out for 100."));
        }
        // No record has such a number, and no database such an integer.
        let since = self.since.map(|since| since.min(i64::MAX as u64));
        Ok((since, limit))
    }
}

impl RunChange {
    /// What `record` has changed; `None` for a dry run.
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

impl Engine {
    /// What has changed in `run` since the record `since`.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    pub async fn changes(&self, run: &RunId, since: u64, limit: u32) -> Result<ChangeList, CallError> {
        self.known_run(run).await?;
        self.changes_of_known(run, since, limit.into()).await
    }

    async fn changes_of_known(&self, run: &RunId, since: u64, size: PageSize) -> Result<ChangeList, CallError> {
        let found = self.ledger.changes(run, since, size).await?;
        let more = found.more;
        let (mut items, mut next_since) = (Vec::with_capacity(found.len()), since);
        for stored in found {
            let record: Record =
                serde_json::from_str(&stored.text).map_err(|error| CallError::Internal(Box::new(error)))?;
            next_since = record.seq;
            items.extend(RunChange::of(record));
        }
        Ok(ChangeList { items, next_since, more })
    }

    /// What differs from what the ledger says, as JSON text.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `RUN_CLOSED`.
    pub async fn drift(&self, run: &RunId, caller: Caller) -> Result<String, CallError> {
        let (call, members) = CallContext::of(run, caller, &DRIFT, Map::new());
        let (open_run, _) = self.admit(&call, members).await?;
        // What is written while the files are looked at would be told as drift.
        let _alone = match reconcile::lock_consistent(self, &open_run).await {
            Ok(alone) => alone,
            Err(error) => return Err(self.record_error(&call, &[], error).await),
        };
        let expected = ExpectedFiles { written: self.last_written(run).await? };
        Ok(self.read(call, &open_run, Box::new(expected)).await?.0.output)
    }

    /// The hash that every path which `run` has written should have.
    async fn last_written(&self, run: &RunId) -> Result<BTreeMap<LogicalPath, Option<Sha256>>, CallError> {
        let (mut written, mut since) = (BTreeMap::new(), 0);
        loop {
            let found = self.changes_of_known(run, since, MAX_LIMIT.into()).await?;
            let files = found.items.into_iter().flat_map(|change| change.files);
            written.extend(files.map(|file| (file.path, file.new_sha256)));
            since = found.next_since;
            if !found.more {
                return Ok(written);
            }
        }
    }

    /// Follows what changes in `run` behind the record `since`.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    pub async fn follow_changes(&self, run: RunId, since: u64) -> Result<ChangeStream, CallError> {
        self.known_run(&run).await?;
        let newest = self.ledger.newest_position();
        Ok(ChangeStream { engine: self.clone(), run, since, newest, waiting: Vec::new().into_iter() })
    }
}

/// Changes as they come.
pub struct ChangeStream {
    engine: Engine,
    run: RunId,
    since: u64,
    newest: tokio::sync::watch::Receiver<i64>,
    waiting: std::vec::IntoIter<RunChange>,
}

impl ChangeStream {
    /// The next change; `None` where the service ends.
    ///
    /// # Errors
    ///
    /// Where the ledger fails.
    pub async fn next(&mut self) -> Result<Option<RunChange>, CallError> {
        loop {
            if let Some(change) = self.waiting.next() {
                return Ok(Some(change));
            }
            // Looked at before the ledger is asked: whatever is newer wakes us again.
            self.newest.mark_unchanged();
            let found = self.engine.changes_of_known(&self.run, self.since, STREAM_BATCH).await?;
            let goes_on = found.next_since > self.since;
            self.since = found.next_since;
            self.waiting = found.items.into_iter();
            if goes_on {
                continue;
            }
            tokio::select! {
                changed = self.newest.changed() => if changed.is_err() { return Ok(None) },
                () = self.engine.shutdown.cancelled() => return Ok(None),
            }
        }
    }
}
