//! The implementation of the ledger on both databases. Only appends are implemented by the backends.

pub(crate) mod keyed_answers;
mod lists;
pub(crate) mod nodes;
pub(crate) mod objects;
mod sql;
pub(crate) mod stats;
pub(crate) mod webhooks;

use async_trait::async_trait;
use model::{
    Approval, ApprovalId, ArtifactId, ChainReport, Disk, Fork, LogicalPath, OperatorName, OperatorToken, Record,
    RecordStats, Run, RunId, RunSort, RunState, Sha256, Token, ToolCallId, WebhookMessage,
};
use shared_pool::SharedPool;
use tokio::sync::watch;

use self::lists::LedgerList;
use crate::backend::node_sql::LOCK_OWNED;
use crate::backend::{Backend, PROBE};
use crate::entry_rows::fan_out_if_unmarked;
use crate::insert::{create_service_chain, insert_head, insert_run, insert_token};
use crate::newest_versions::{self, NEWEST_VERSIONS};
use crate::packed::prepare;
use crate::rows::{self, RUN, STEPS, STEPS_OF_RUN, select_approval, select_run};
use crate::statement::{Check, PageColumns, Param, Rows, Select, Statement, tables, to_int};
use crate::{
    Appended, ApprovalFilter, ClosedRunKey, ConnectionCounts, EachRecord, Entry, Epoch, Fence, INSTANCE, JournalEntry,
    JournalledRun, Ledger, LedgerError, LedgerPage, NewestVersion, PageSize, RecordData, RecordFilter, Result,
    RunFilter, SettledRun, StatsFilter, StorageTotals, StoredCall, StoredRecord, StoredRun, Summary, verify,
};

/// A ledger on the database `B`.
pub(crate) struct Store<B>(pub(crate) B);

tables! {
    PRUNED: Delete step (run_no RunId, seq Int);
}

/// Records per query when searching for the last change of a path. All except dry runs wrote it, so the first often matches.
const CHANGES_PER_QUERY: usize = 8;

impl<B: Backend> Store<B> {
    /// Returns the rows of a query.
    pub(crate) async fn all<T: Send + 'static>(
        &self,
        select: Select<T>,
        params: Vec<Param<'static>>,
    ) -> Result<Vec<T>> {
        self.0.fetch(select.sql, params, select.read).await
    }

    /// Returns the first row of a query.
    pub(crate) async fn one<T: Send + 'static>(
        &self,
        select: Select<T>,
        params: Vec<Param<'static>>,
    ) -> Result<Option<T>> {
        Ok(self.all(select, params).await?.into_iter().next())
    }

    /// Returns the statement that fails if this process is a node and does not own `run`.
    fn lock_owned(&self, run: &RunId) -> Option<Statement> {
        let node = self.0.node()?;
        let params = [run.as_str().into(), node.node_id.as_str().into(), node.incarnation.into()];
        Some(Statement { check: Some(Check::Owns(run.clone())), ..Statement::new(LOCK_OWNED, params) })
    }

    /// Updates a run, which must exist.
    async fn update_run<const N: usize>(
        &self,
        run: &RunId,
        sql: &'static str,
        params: [Param<'static>; N],
    ) -> Result<()> {
        let statements = self.lock_owned(run).into_iter().chain([Statement::new(sql, params)]);
        match self.0.transact(Some(run.clone()), statements.collect()).await? {
            0 => Err(LedgerError::NoSuchRun),
            _ => Ok(()),
        }
    }

    /// Deletes the archived records of a run with everything that belongs to them.
    async fn delete_archived(&self, run: &RunId) -> Result<()> {
        let approvals = Statement::new(sql::DELETE_ARCHIVED_APPROVALS, [run.as_str().into()]);
        self.0.transact(None, vec![approvals]).await?;
        loop {
            let next = self.all(sql::NEXT_ARCHIVED, vec![run.as_str().into()]).await?;
            if next.is_empty() {
                let left = Statement::new(sql::SET_ARCHIVED_HISTORY, [run.as_str().into()]);
                return self.0.transact(Some(run.clone()), vec![left]).await.map(drop);
            }
            let delete =
                |position: i64| sql::DELETE_ARCHIVED.into_iter().map(move |sql| Statement::new(sql, [position.into()]));
            self.0.transact(None, next.into_iter().flat_map(delete).collect()).await?;
            failpoint::hit("removal.purging");
        }
    }
}

#[async_trait]
impl<B: Backend> Ledger for Store<B> {
    async fn create_run(&self, stored: &StoredRun, token: &Token, entries: Vec<Entry>) -> Result<Vec<Record>> {
        let node = self.0.node();
        let epoch = node.map(|_| Epoch::FIRST);
        let of_node = |entry: Entry| if entry.is_of_any_owner { entry } else { Entry { epoch, ..entry } };
        let entries = entries.into_iter().map(of_node).collect();
        let creation = vec![insert_run(stored)?, insert_head(stored, node), insert_token(token)?];
        match self.0.append(creation, prepare(entries).await?).await? {
            Appended::Recorded(records) => Ok(records.into()),
            other => Err(LedgerError::Internal(format!("the first records of a run were rejected: {other:?}").into())),
        }
    }

    async fn set_disk_usage(&self, run: &RunId, disk: Disk) -> Result<()> {
        self.update_run(run, sql::SET_DISK_USAGE, [run.as_str().into(), disk.bytes.into(), disk.files.into()]).await
    }

    async fn storage_totals(&self) -> Result<StorageTotals> {
        Ok(self.one(sql::STORAGE_TOTALS, Vec::new()).await?.unwrap_or_default())
    }

    async fn summary(&self) -> Result<Summary> {
        let runs = self.all(sql::RUN_STATES, Vec::new()).await?;
        let pending = self.one(sql::PENDING_APPROVALS, Vec::new()).await?;
        Ok(Summary { runs, pending_approvals: pending.unwrap_or(0) })
    }

    fn page_queries(&self) -> &SharedPool {
        self.0.page_queries()
    }

    fn connections(&self) -> ConnectionCounts {
        self.0.connections()
    }

    async fn set_needs_repair(&self, run: &RunId, needs_repair: bool, now: &str) -> Result<()> {
        let lock = Statement::new(sql::LOCK_RUN, [run.as_str().into()]);
        let message = needs_repair.then(|| fan_out_if_unmarked(&WebhookMessage::run_needs_repair(run, now)));
        let set = Statement::new(sql::SET_NEEDS_REPAIR, [run.as_str().into(), needs_repair.into()]);
        let statements = self.lock_owned(run).into_iter().chain([lock]).chain(message).chain([set]);
        match self.0.transact(Some(run.clone()), statements.collect()).await? {
            0 => Err(LedgerError::NoSuchRun),
            _ => Ok(()),
        }
    }

    async fn run(&self, run: &RunId) -> Result<Option<StoredRun>> {
        let found = self.one(RUN, vec![run.as_str().into()]).await?;
        Ok(found.map(|(_, run)| run))
    }

    async fn runs(&self, filter: &RunFilter, after: Option<i64>, size: PageSize) -> Result<LedgerPage<(i64, Run)>> {
        if filter.without_deleted && filter.state == Some(RunState::Deleted) {
            // Every row would be read, and none would match.
            return Ok(LedgerPage { items: Vec::new(), more: false, resume: None });
        }
        let (select, position) = ordered_runs(filter.sort);
        let text = match filter.sort {
            Some(RunSort::Repository) => Some("repository"),
            Some(RunSort::Agent) => Some("agent"),
            _ => None,
        };
        let list = LedgerList {
            what: "run",
            select,
            condition: match filter.state {
                Some(_) => " AND run_id <> '_service' AND state = $3",
                None if filter.without_deleted => " AND run_id <> '_service' AND state <> 'deleted'",
                None => " AND run_id <> '_service'",
            },
            more_params: filter.state.map(|state| Param::from(state.as_str())).into_iter().collect(),
            read: |row| Ok((row.int(0)?, rows::run(row).map(|(_, stored)| stored.run))),
            columns: PageColumns { text_order: text, ..PageColumns::RUNS },
            position,
            text,
            newest_first: filter.newest_first,
            scans: filter.scans(),
        };
        self.list_readable(list, after, size, |run| filter.matches(run)).await
    }

    async fn forks(&self, run: &RunId, limit: u32) -> Result<Vec<Fork>> {
        self.all(rows::FORKS, vec![run.as_str().into(), Param::Int(limit.into())]).await
    }

    async fn run_ids(&self, after: i64, limit: u32) -> Result<Vec<(i64, RunId)>> {
        let params = vec![Param::Int(after), Param::Int(limit.into())];
        self.all(sql::RUN_IDS, params).await
    }

    async fn orphaned_runs(&self) -> Result<u64> {
        let found = self.one(sql::ORPHANED_RUNS, Vec::new()).await?;
        Ok(found.unwrap_or(0))
    }

    async fn live_runs(&self) -> Result<Vec<RunId>> {
        self.all(sql::LIVE_RUNS, Vec::new()).await
    }

    async fn expired_runs(&self, now: &str) -> Result<Vec<RunId>> {
        self.all(sql::EXPIRED_RUNS, vec![now.into()]).await
    }

    async fn tokens(&self, secrets_sha256: &[Sha256]) -> Result<Vec<Token>> {
        let Some(last) = secrets_sha256.last() else { return Ok(Vec::new()) };
        // A power of two, so that there are few statements to prepare.
        let count = secrets_sha256.len().next_power_of_two();
        let placeholders = (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ");
        let hashes = secrets_sha256.iter().chain(std::iter::repeat(last)).take(count);
        self.0.fetch(format!("{} ({placeholders})", rows::TOKENS), hashes.map(Param::from).collect(), rows::token).await
    }

    async fn token_hashes(&self, after: &Sha256, now: &str, limit: u32) -> Result<Vec<Sha256>> {
        let params = vec![after.into(), false.into(), now.into(), i64::from(limit).into()];
        self.all(sql::TOKEN_HASHES, params).await
    }

    async fn change_operator(&self, entry: Entry) -> Result<bool> {
        let creation = create_service_chain(&entry.draft.timestamp).into();
        match self.0.append(creation, prepare(vec![entry]).await?).await {
            Ok(Appended::Recorded(_)) => Ok(true),
            Ok(other) => Err(LedgerError::Internal(
                format!("the record of a change of operators was rejected: {other:?}").into(),
            )),
            Err(LedgerError::NoSuchOperator) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn operators(&self, after: i64, limit: u32) -> Result<Vec<(i64, OperatorToken)>> {
        let params = vec![Param::Int(after), Param::Int(limit.into())];
        self.all(rows::OPERATORS, params).await
    }

    async fn operator(&self, name: &OperatorName) -> Result<Option<OperatorToken>> {
        let found = self.one(rows::OPERATOR, vec![name.as_str().into()]).await?;
        Ok(found.map(|(_, operator)| operator))
    }

    async fn settle_operators(&self) -> Result<()> {
        // It waits for every other transaction.
        self.0.transact_alone(Vec::new()).await.map(drop)
    }

    async fn append(&self, entries: Vec<Entry>) -> Result<Appended> {
        self.0.append(Vec::new(), prepare(entries).await?).await
    }

    async fn call(&self, run: &RunId, id: &ToolCallId) -> Result<Option<StoredCall>> {
        self.one(rows::CALL, vec![id.as_str().into(), run.as_str().into()]).await
    }

    async fn records(
        &self,
        filter: &RecordFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<StoredRecord>> {
        self.search_records(filter, after, size).await
    }

    async fn record_stats(&self, filter: &StatsFilter) -> Result<RecordStats> {
        self.count_records(filter).await
    }

    async fn record(&self, run: &RunId, seq: u64) -> Result<Option<StoredRecord>> {
        self.one(sql::RECORD, vec![run.as_str().into(), seq.into()]).await
    }

    async fn changes(&self, run: &RunId, since_seq: u64, size: PageSize) -> Result<LedgerPage<StoredRecord>> {
        let params = vec![run.as_str().into(), since_seq.into(), Param::Int(size.query_limit())];
        self.0.fetch_page(sql::CHANGES.sql, params, sql::CHANGES.read, size, PageColumns::RECORDS).await
    }

    async fn last_change(&self, run: &RunId, path: &LogicalPath, at_seq: u64) -> Result<Option<StoredRecord>> {
        let mut at_seq = to_int(at_seq);
        loop {
            let params =
                vec![run.as_str().into(), at_seq.into(), path.as_str().into(), to_int(CHANGES_PER_QUERY as u64).into()];
            let found = self.all(sql::CHANGES_OF_PATH, params).await?;
            let last_page = found.len() < CHANGES_PER_QUERY;
            for (stored, seq) in found {
                let record: Record = rows::json(&stored.text, "record")?;
                if record.paths_written.contains(path) {
                    return Ok(Some(stored));
                }
                at_seq = seq - 1;
            }
            if last_page {
                return Ok(None);
            }
        }
    }

    async fn verify_each(&self, run: &RunId, each: &mut EachRecord<'_>) -> Result<ChainReport> {
        verify::chain(&self.0, run, each).await
    }

    async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Option<Vec<u8>>> {
        self.one(sql::ARTIFACT, vec![id.as_str().into(), run.as_str().into()]).await
    }

    async fn upload(&self, run: &RunId, sha256: &Sha256) -> Result<Option<Vec<u8>>> {
        self.one(sql::UPLOAD, vec![run.as_str().into(), sha256.into()]).await
    }

    fn newest_position(&self) -> watch::Receiver<i64> {
        self.0.newest_position()
    }

    async fn pending_journal(&self, run: Option<&RunId>) -> Result<Vec<JournalEntry>> {
        let steps = match run {
            Some(run) => self.all(STEPS_OF_RUN, vec![run.as_str().into()]).await?,
            None => self.all(STEPS, Vec::new()).await?,
        };
        Ok(rows::journal(steps))
    }

    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        self.0.settled_run(run).await
    }

    async fn runs_with_pending_journal(&self) -> Result<Vec<RunId>> {
        self.all(sql::RUNS_WITH_STEPS, Vec::new()).await
    }

    async fn journalled(&self, runs: &[RunId]) -> Result<Vec<JournalledRun>> {
        let (node_id, incarnation) = self.0.node().map_or(("", 0), |node| (node.node_id.as_str(), node.incarnation));
        let list = serde_json::to_string(runs).map_err(|error| LedgerError::Internal(error.into()))?;
        let params = vec![node_id.into(), incarnation.into(), list.as_str().into()];
        let mut runs: Vec<JournalledRun> = Vec::new();
        for found in self.all(B::NODE_SQL.journalled, params).await? {
            match runs.last_mut().filter(|last| last.run == found.run) {
                Some(last) => last.seqs.extend(found.seqs),
                None => runs.push(found),
            }
        }
        Ok(runs)
    }

    async fn prune(&self, done: &[(RunId, u64)]) -> Result<()> {
        for batch in done.chunks(B::PRUNE_BATCH) {
            if let Some(node) = self.0.node() {
                self.0.prune_owned(node, batch).await?;
                continue;
            }
            let mut pruned = Rows::new(&PRUNED);
            for (run, seq) in batch {
                pruned.push([run.as_str().into(), (*seq).into()]);
            }
            self.0.write(None, vec![pruned]).await?;
        }
        Ok(())
    }

    async fn content(&self, run: &RunId, seq: u64, sha256: &Sha256) -> Result<Option<Vec<u8>>> {
        let params = vec![run.as_str().into(), seq.into(), sha256.into()];
        self.one(sql::CONTENT, params).await
    }

    async fn newest_versions(&self, run: &RunId) -> Result<Vec<NewestVersion>> {
        self.all(NEWEST_VERSIONS, vec![run.as_str().into()]).await
    }

    async fn stored_contents(&self, run: &RunId) -> Result<Vec<(u64, Sha256)>> {
        self.all(sql::STORED_CONTENTS, vec![run.as_str().into()]).await
    }

    async fn purge_content(&self, run: &RunId) -> Result<()> {
        match self.run(run).await?.ok_or(LedgerError::NoSuchRun)?.run.state {
            RunState::Deleted => {}
            _ => {
                return Err(LedgerError::Internal(
                    "the contents of a run can be purged only after the run is deleted".into(),
                ));
            }
        }
        // A step cannot be read without its content, so steps are deleted first.
        let steps = Statement::new(sql::DELETE_STEPS, [run.as_str().into()]);
        let lock = Statement::new(sql::LOCK_HEAD, [run.as_str().into()]);
        let of_objects = [
            sql::GIVE_BACK_OBJECTS,
            sql::DELETE_OBJECT_REFERENCES,
            sql::DELETE_OBJECT_PATHS,
            newest_versions::DELETE_OF_RUN,
        ];
        let of_objects = of_objects.map(|sql| Statement::new(sql, [run.as_str().into()]));
        self.0.transact(Some(run.clone()), [lock, steps].into_iter().chain(of_objects).collect()).await?;
        self.delete_archived(run).await?;
        let mut done = self.one(sql::PURGED, vec![run.as_str().into()]).await?.unwrap_or(0);
        loop {
            let params = vec![run.as_str().into(), done.into()];
            let next = self.all(sql::NEXT_PURGED, params).await?;
            let Some((last, _)) = next.last() else { return Ok(()) };
            done = *last;
            let purge = |(_, position): &(i64, i64)| {
                let give_back = Statement::new(sql::GIVE_BACK_CONTENT, [run.as_str().into(), (*position).into()]);
                [give_back, Statement::new(sql::PURGE, [(*position).into()])]
            };
            let purged = Statement::new(sql::SET_PURGED, [run.as_str().into(), done.into()]);
            self.0.transact(Some(run.clone()), next.iter().flat_map(purge).chain([purged]).collect()).await?;
        }
    }

    async fn closed_runs(&self, until: &str, after: Option<&ClosedRunKey>, limit: u32) -> Result<Vec<ClosedRunKey>> {
        let (closed_at, run_no) = after.map_or(("", 0), |after| (&after.closed_at, after.run_no));
        let params = vec![until.into(), closed_at.into(), run_no.into(), Param::Int(limit.into())];
        self.all(sql::CLOSED_BEFORE, params).await
    }

    async fn record_data(&self, run: &RunId, seq: u64) -> Result<Vec<RecordData>> {
        self.all(rows::RECORD_DATA, vec![run.as_str().into(), seq.into()]).await
    }

    async fn is_object_referenced(&self, object: &str) -> Result<bool> {
        let found = self.one(sql::OBJECT_REFERENCE, vec![object.to_owned().into()]).await?;
        Ok(found.is_some())
    }

    async fn can_delete_archived(&self) -> Result<bool> {
        self.0.can_delete_archived().await
    }

    async fn unpurged_runs(&self) -> Result<Vec<RunId>> {
        self.all(sql::UNPURGED, Vec::new()).await
    }

    async fn approval(&self, id: &ApprovalId) -> Result<Option<Approval>> {
        Ok(self.one(rows::APPROVAL, vec![id.as_str().into()]).await?.map(|(_, approval)| approval))
    }

    async fn approval_input(&self, id: &ApprovalId) -> Result<Option<String>> {
        self.one(sql::APPROVAL_INPUT, vec![id.as_str().into()]).await
    }

    async fn approvals(
        &self,
        filter: &ApprovalFilter,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<(i64, Approval)>> {
        let state = filter.state.map(|state| Param::from(state.as_str()));
        let run = filter.run.as_ref().map(|run| Param::from(run.as_str()));
        let condition = match (&state, &run) {
            (None, None) => "",
            (Some(_), None) => " AND state = $3",
            (None, Some(_)) => " AND run_no = (SELECT run_no FROM run WHERE run_id = $3)",
            (Some(_), Some(_)) => " AND (state || '') = $3 AND run_no = (SELECT run_no FROM run WHERE run_id = $4)",
        };
        let list = LedgerList {
            what: "approval",
            select: select_approval!(""),
            condition,
            more_params: state.into_iter().chain(run).collect(),
            read: |row| Ok((row.int(0)?, rows::approval(row).map(|(_, approval)| approval))),
            columns: PageColumns::APPROVALS,
            position: "approval_no",
            text: None,
            newest_first: filter.newest_first,
            scans: filter.scans(),
        };
        self.list_readable(list, after, size, |approval| filter.matches(approval)).await
    }

    async fn expired_approvals(&self, now: &str, size: PageSize) -> Result<LedgerPage<Approval>> {
        let params = vec![now.into(), Param::Int(size.query_limit())];
        let Select { sql, read } = rows::EXPIRED_APPROVALS;
        let page = self.0.fetch_page(sql, params, read, size, PageColumns::EXPIRED_APPROVALS).await?;
        // An unreadable approval must not prevent others from expiring.
        Ok(LedgerPage { more: page.more, resume: None, items: page.into_iter().flatten().collect() })
    }

    async fn setting(&self, name: &str) -> Result<Option<String>> {
        self.one(sql::SETTING, vec![name.into()]).await
    }

    async fn set_setting_once(&self, name: &str, value: &str) -> Result<String> {
        self.0.transact(None, vec![Statement::new(sql::SET_SETTING, [name.into(), value.into()])]).await?;
        let stored = self.setting(name).await?;
        stored.ok_or_else(|| LedgerError::Internal("a setting is missing after it was stored".into()))
    }

    async fn take_over(&self, known: Option<&str>, instance: &str) -> Result<bool> {
        let params = [INSTANCE.into(), instance.into(), known.into()];
        if self.0.transact_alone(vec![Statement::new(B::NODE_SQL.take_over, params)]).await? > 0 {
            self.0.fence(instance);
            return Ok(true);
        }
        match self.one(B::NODE_SQL.live_nodes, Vec::new()).await? {
            Some(0) | None => Ok(false),
            Some(_) => Err(LedgerError::Fenced(Fence::HasNodes)),
        }
    }

    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }

    async fn probe(&self) -> Result<()> {
        self.0.transact(None, vec![Statement::new(PROBE, [])]).await.map(drop)
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// Returns the query of a list of runs, and the expression of a run's position in it. That of an order by a number has the number
/// above the lowest 24 bits, which have the run, so that a page continues after exactly one run.
fn ordered_runs(sort: Option<RunSort>) -> (&'static str, &'static str) {
    macro_rules! ordered {
        ($number:literal) => {
            (select_run!($number, ""), $number)
        };
    }
    match sort {
        None | Some(RunSort::Created | RunSort::Repository | RunSort::Agent) => ordered!("run.run_no"),
        // The records of an archived run are gone.
        Some(RunSort::Activity) => ordered!(
            "(coalesce((SELECT a.position FROM audit_record a WHERE a.run_no = run.run_no AND a.seq = head_seq), 0) * 16777216 + run.run_no)"
        ),
        Some(RunSort::Changes) => ordered!("(CAST(insertions + deletions AS BIGINT) * 16777216 + run.run_no)"),
        Some(RunSort::Waiting) => ordered!("(CAST(pending_approvals AS BIGINT) * 16777216 + run.run_no)"),
    }
}
