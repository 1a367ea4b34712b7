//! The ledger over either database: every method but appending, written once.

mod find;

use async_trait::async_trait;
use model::{
    Approval, ApprovalId, ApprovalState, ArtifactId, ChainReport, Disk, ImportReport, LogicalPath, Record, Run, RunId,
    RunState, Sha256, Token, TokenId, ToolCallId,
};
use tokio::sync::watch;

use crate::backend::{Arg, Backend, Columns, PageColumns, Statement, to_count, to_int};
use crate::filter::{self, Driver, Range};
use crate::group::left_at;
use crate::rows::select_approval;
use crate::{
    Appended, AppendedAll, Entry, INSTANCE, JournalEntry, Ledger, LedgerError, Page, PageSize, RecordFilter, Reply,
    Result, SettledRun, StorageTotals, StoredCall, StoredRecord, StoredRun, rows, verify,
};

/// A ledger on `B`.
pub(crate) struct Store<B>(pub(crate) B);

const INSERT_RUN: &str = "INSERT INTO run (run_id, state, created_at, closed_at, expires_at, base_commit, needs_repair, \
    body, import_report, mount_paths) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const INSERT_HEAD: &str = "INSERT INTO run_head (run_no, head_seq, head_hash, mutations, denied, pending_approvals, \
    files_touched, insertions, deletions, files_deleted, bytes, disk_bytes, disk_files) \
    SELECT run_no, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13 FROM run WHERE run_id = $1";
const INSERT_TOKEN: &str = "INSERT INTO token (run_no, secret_sha256, token_id, permissions, expires_at, revoked) \
    SELECT run_no, $2, $3, $4, $5, $6 FROM run WHERE run_id = $1";
const OPEN_RUN: &str = "UPDATE run SET base_commit = $2, import_report = $3, state = 'open' \
    WHERE run_id = $1 AND state = 'preparing'";
const SET_STATE: &str = "UPDATE run SET state = CASE state WHEN 'deleted' THEN state ELSE $2 END, \
    closed_at = coalesce(closed_at, $3) WHERE run_id = $1";
const SET_DISK: &str = "UPDATE run_head SET disk_bytes = $2, disk_files = $3 \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
const FORGET_DISK: &str = "UPDATE run_head SET disk_bytes = NULL, disk_files = NULL \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
const UNCOUNTED: &str = "SELECT run_id FROM run JOIN run_head ON run_head.run_no = run.run_no \
    WHERE state <> 'deleted' AND base_commit IS NOT NULL AND disk_bytes IS NULL ORDER BY run.run_no";
const HELD: &str = "SELECT count(*), CAST(coalesce(sum(disk_bytes), 0) AS BIGINT) \
    FROM run JOIN run_head ON run_head.run_no = run.run_no WHERE state <> 'deleted'";
const SET_NEEDS_REPAIR: &str = "UPDATE run SET needs_repair = $2 WHERE run_id = $1";
const TOKEN: &str = "SELECT run_id, token_id, secret_sha256, permissions, token.expires_at, revoked FROM token \
    JOIN run ON run.run_no = token.run_no WHERE secret_sha256 = $1";
const TOKEN_HASHES: &str = "SELECT secret_sha256 FROM token WHERE secret_sha256 > $1 AND revoked = $2 \
    AND (expires_at IS NULL OR expires_at > $3) ORDER BY secret_sha256 LIMIT $4";
const REVOKE_TOKEN: &str = "UPDATE token SET revoked = $3 \
    WHERE token_id = $2 AND run_no = (SELECT run_no FROM run WHERE run_id = $1)";
const CALL: &str = "WITH earliest AS (\
      SELECT a.seq, a.tool, a.input_sha256, a.mutates, a.run_no, a.tool_call_id, a.body AS record FROM audit_record a \
      WHERE a.tool_call_id = $1 AND a.run_no = (SELECT run_no FROM run WHERE run_id = $2) ORDER BY a.seq LIMIT 1), \
    answered AS (\
      SELECT a.seq, a.body AS record, c.status, c.body FROM earliest JOIN audit_record a ON a.tool_call_id = earliest.tool_call_id \
      AND a.run_no = earliest.run_no AND a.tool = earliest.tool AND a.input_sha256 = earliest.input_sha256 \
      JOIN call_reply c ON c.position = a.position WHERE earliest.mutates ORDER BY a.seq LIMIT 1) \
    SELECT (SELECT a.body FROM audit_record a WHERE a.tool_call_id = earliest.tool_call_id AND a.run_no = earliest.run_no \
      AND a.tool = earliest.tool AND a.input_sha256 = earliest.input_sha256 ORDER BY a.seq DESC LIMIT 1), \
    coalesce(answered.seq, earliest.seq), earliest.tool, earliest.input_sha256, answered.status, answered.body, \
    coalesce(answered.record, earliest.record) \
    FROM earliest LEFT JOIN answered ON 1 = 1";
const CHANGES: &str = "SELECT position, body FROM audit_record WHERE mutates AND outcome = 'ok' \
    AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq > $2 ORDER BY seq LIMIT $3";
const RECORD: &str = "SELECT position, body FROM audit_record \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2";
const ARTIFACT: &str = "SELECT diff FROM artifact \
    WHERE artifact_id = $1 AND run_no = (SELECT run_no FROM run WHERE run_id = $2)";
macro_rules! select_steps {
    ($rest:literal) => {
        concat!(
            "SELECT run_id, seq, path, before_sha256, after_sha256, mode, staged, CASE WHEN staged IS NULL THEN ",
            "(SELECT bytes FROM content c WHERE ",
            left_at!("step.position"),
            " AND c.sha256 = step.after_sha256 LIMIT 1) END ",
            "FROM step JOIN run ON run.run_no = step.run_no ",
            $rest
        )
    };
}
/// No join, whose planner would look through all contents where it knows nothing of the tables yet.
const CONTENT: &str = concat!(
    "WITH r AS (SELECT position FROM audit_record ",
    "WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq = $2) SELECT bytes FROM content c WHERE ",
    left_at!("(SELECT position FROM r)"),
    " AND c.sha256 = $3"
);
const CHANGES_OF_PATH: &str = "SELECT r.position, r.body, r.seq FROM audit_record r \
    WHERE r.mutates AND r.outcome = 'ok' AND r.run_no = (SELECT run_no FROM run WHERE run_id = $1) AND r.seq <= $2 \
    AND EXISTS (SELECT 1 FROM record_path p WHERE p.position = r.position AND p.path = $3) \
    ORDER BY r.seq DESC LIMIT $4";
const FORGET_STEPS: &str = "DELETE FROM step WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
/// The next changes whose contents are removed in one transaction: others wait meanwhile.
const NEXT_PURGED: &str = "SELECT seq, position FROM audit_record \
    WHERE mutates AND outcome = 'ok' AND run_no = (SELECT run_no FROM run WHERE run_id = $1) AND seq > $2 \
    ORDER BY seq LIMIT 32";
const PURGE: &str = concat!("DELETE FROM content AS c WHERE ", left_at!("$1"));
const SET_PURGED: &str = "UPDATE run SET purged_seq = $2 WHERE run_id = $1";
const PURGED: &str = "SELECT purged_seq FROM run WHERE run_id = $1";
/// Records of changes that name a path, looked at in one go; all but dry runs wrote it.
const CHANGES_PAGE: usize = 8;
/// A look for each run, which no planner makes a join of. A change that was under way while its run was deleted counts too.
const UNPURGED: &str = "SELECT run_id FROM run WHERE state = 'deleted' AND purged_seq < coalesce((\
      SELECT r.seq FROM audit_record r WHERE r.mutates AND r.outcome = 'ok' AND r.run_no = run.run_no \
      ORDER BY r.seq DESC LIMIT 1), 0) ORDER BY run_no";
/// From one run that has records to the next one, by their index.
const LOST_RUNS: &str = "WITH RECURSIVE owner (run_no) AS (SELECT min(run_no) FROM audit_record \
    UNION ALL SELECT (SELECT min(a.run_no) FROM audit_record a WHERE a.run_no > owner.run_no) FROM owner \
      WHERE owner.run_no IS NOT NULL) \
    SELECT count(*) FROM owner WHERE run_no IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run WHERE run.run_no = owner.run_no)";
const DECIDE: [&str; 3] = [
    "UPDATE approval SET state = $2, decision = $3 WHERE approval_id = $1 AND state = 'pending'",
    "UPDATE run_head SET pending_approvals = pending_approvals - 1 \
        WHERE run_no = (SELECT run_no FROM approval WHERE approval_id = $1)",
    "UPDATE run SET state = 'open' WHERE state = 'awaiting_approval' \
        AND run_no = (SELECT run_no FROM approval WHERE approval_id = $1) \
        AND (SELECT pending_approvals FROM run_head WHERE run_head.run_no = run.run_no) = 0",
];
/// The pending steps of one run.
pub(crate) const STEPS_OF_RUN: &str =
    select_steps!("WHERE step.run_no = (SELECT run_no FROM run WHERE run_id = $1) ORDER BY seq, place");
const TAKE_OVER: &str = "INSERT INTO setting (name, value) VALUES ($1, $2) \
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE setting.value = $3";
const SET_SETTING: &str = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";

impl<B: Backend> Store<B> {
    /// The first row of an answer.
    async fn one<T: Send + 'static>(
        &self,
        sql: &'static str,
        args: Vec<Arg>,
        read: fn(&dyn Columns) -> Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.0.fetch(sql, args, read).await?.into_iter().next())
    }

    /// Changes a run that must be there.
    async fn change_run<const N: usize>(&self, run: &RunId, sql: &'static str, args: [Arg; N]) -> Result<()> {
        match self.0.transact(Some(run.clone()), vec![Statement::new(sql, args)]).await? {
            0 => Err(LedgerError::NoSuchRun),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl<B: Backend> Ledger for Store<B> {
    async fn create_run(&self, stored: &StoredRun, token: &Token) -> Result<()> {
        let statements = vec![insert_run(stored)?, insert_head(stored), insert_token(token)?];
        self.0.transact(None, statements).await.map(drop)
    }

    async fn open_run(&self, run: &RunId, base_commit: &str, import: &ImportReport) -> Result<bool> {
        let args = [run.as_str().into(), base_commit.into(), rows::import_report(import)?.into()];
        let disk = [run.as_str().into(), import.bytes.into(), import.files.into()];
        let statements = vec![Statement::new(OPEN_RUN, args).required(), Statement::new(SET_DISK, disk)];
        Ok(self.0.transact(Some(run.clone()), statements).await? > 0)
    }

    async fn set_disk_usage(&self, run: &RunId, disk: Option<Disk>) -> Result<()> {
        match disk {
            Some(disk) => {
                self.change_run(run, SET_DISK, [run.as_str().into(), disk.bytes.into(), disk.files.into()]).await
            }
            None => self.change_run(run, FORGET_DISK, [run.as_str().into()]).await,
        }
    }

    async fn runs_without_disk_usage(&self) -> Result<Vec<RunId>> {
        self.0.fetch(UNCOUNTED, Vec::new(), |row| rows::run_id(row, 0)).await
    }

    async fn storage_totals(&self) -> Result<StorageTotals> {
        let read = |row: &dyn Columns| Ok(StorageTotals { runs: to_count(row.int(0)?), bytes: to_count(row.int(1)?) });
        Ok(self.one(HELD, Vec::new(), read).await?.unwrap_or_default())
    }

    async fn set_run_state(&self, run: &RunId, state: RunState, closed_at: Option<&str>) -> Result<()> {
        self.change_run(run, SET_STATE, [run.as_str().into(), state.as_str().into(), closed_at.into()]).await
    }

    async fn set_needs_repair(&self, run: &RunId, needs_repair: bool) -> Result<()> {
        self.change_run(run, SET_NEEDS_REPAIR, [run.as_str().into(), needs_repair.into()]).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<StoredRun>> {
        let found = self.one(rows::RUN, vec![run.as_str().into()], rows::run).await?;
        Ok(found.map(|(_, run)| run))
    }

    async fn runs(&self, state: Option<RunState>, after: Option<i64>, size: PageSize) -> Result<Page<(i64, Run)>> {
        self.list_runs(state, after, size).await
    }

    async fn run_ids(&self, after: i64, limit: u32) -> Result<Vec<(i64, RunId)>> {
        let sql = "SELECT run_no, run_id FROM run WHERE run_no > $1 ORDER BY run_no LIMIT $2";
        let args = vec![Arg::Int(after), Arg::Int(limit.into())];
        self.0.fetch(sql, args, |row| Ok((row.int(0)?, rows::run_id(row, 1)?))).await
    }

    async fn orphaned_runs(&self) -> Result<u64> {
        let found = self.one(LOST_RUNS, Vec::new(), |row| row.int(0).map(to_count)).await?;
        Ok(found.unwrap_or(0))
    }

    async fn live_runs(&self) -> Result<Vec<RunId>> {
        let sql = "SELECT run_id FROM run WHERE state <> 'deleted' ORDER BY run_no";
        self.0.fetch(sql, Vec::new(), |row| rows::run_id(row, 0)).await
    }

    async fn expired_runs(&self, now: &str) -> Result<Vec<RunId>> {
        let sql = "SELECT run_id FROM run WHERE expires_at IS NOT NULL AND closed_at IS NULL AND expires_at <= $1 \
            ORDER BY expires_at";
        self.0.fetch(sql, vec![now.into()], |row| rows::run_id(row, 0)).await
    }

    async fn create_token(&self, token: &Token) -> Result<()> {
        match self.0.transact(None, vec![insert_token(token)?]).await? {
            0 => Err(LedgerError::NoSuchRun),
            _ => Ok(()),
        }
    }

    async fn token(&self, secret_sha256: &Sha256) -> Result<Option<Token>> {
        self.one(TOKEN, vec![secret_sha256.into()], rows::token).await
    }

    async fn token_hashes(&self, after: &Sha256, now: &str, limit: u32) -> Result<Vec<Sha256>> {
        let args = vec![after.into(), false.into(), now.into(), i64::from(limit).into()];
        self.0.fetch(TOKEN_HASHES, args, |row| rows::sha256(&row.bytes(0)?)).await
    }

    async fn revoke_token(&self, run: &RunId, token: &TokenId) -> Result<bool> {
        let args = [run.as_str().into(), token.as_str().into(), true.into()];
        Ok(self.0.transact(Some(run.clone()), vec![Statement::new(REVOKE_TOKEN, args)]).await? > 0)
    }

    async fn append(&self, entry: Entry) -> Result<Appended> {
        Ok(match self.0.append(vec![entry]).await? {
            AppendedAll::Recorded(records) => {
                let record = records.into_iter().next();
                Appended::Recorded(record.ok_or_else(|| LedgerError::Internal("an entry has no record".into()))?)
            }
            AppendedAll::Reused(_) => Appended::Reused,
            AppendedAll::Repeated(_) => Appended::Repeated,
            AppendedAll::NotPending => Appended::NotPending,
            AppendedAll::PreconditionFailed(unmet) => Appended::PreconditionFailed(unmet),
        })
    }

    async fn append_all(&self, entries: Vec<Entry>) -> Result<AppendedAll> {
        self.0.append(entries).await
    }

    async fn call(&self, run: &RunId, id: &ToolCallId) -> Result<Option<StoredCall>> {
        self.one(CALL, vec![id.as_str().into(), run.as_str().into()], read_call).await
    }

    async fn records(&self, filter: &RecordFilter, after: Option<i64>, size: PageSize) -> Result<Page<StoredRecord>> {
        let mut page = Page { items: Vec::new(), more: false };
        if filter::is_empty(filter) {
            return Ok(page);
        }
        let all = Range { low: after.map_or(0, |after| after.saturating_add(1)), high: i64::MAX };
        let driver = self.driver(filter, all).await?;
        let ranges = match driver {
            Driver::Run => vec![all],
            Driver::GatheredPath => self.ranges(filter, all).await?,
            _ => self.where_path_is(filter, self.ranges(filter, all).await?, all).await?,
        };
        for range in ranges {
            self.add_records(filter, driver, range, size, &mut page).await?;
            if page.more {
                break;
            }
        }
        Ok(page)
    }

    async fn record(&self, run: &RunId, seq: u64) -> Result<Option<StoredRecord>> {
        self.one(RECORD, vec![run.as_str().into(), seq.into()], rows::record).await
    }

    async fn changes(&self, run: &RunId, since_seq: u64, size: PageSize) -> Result<Page<StoredRecord>> {
        let args = vec![run.as_str().into(), since_seq.into(), Arg::Int(size.rows_to_ask())];
        self.0.fetch_page(CHANGES, args, rows::record, size, PageColumns::RECORDS).await
    }

    async fn last_change(&self, run: &RunId, path: &LogicalPath, at_seq: u64) -> Result<Option<StoredRecord>> {
        let mut at_seq = to_int(at_seq);
        loop {
            let args =
                vec![run.as_str().into(), at_seq.into(), path.as_str().into(), to_int(CHANGES_PAGE as u64).into()];
            let read = |row: &dyn Columns| Ok((rows::record(row)?, row.int(2)?));
            let found = self.0.fetch(CHANGES_OF_PATH, args, read).await?;
            let last_page = found.len() < CHANGES_PAGE;
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

    async fn verify(&self, run: &RunId) -> Result<ChainReport> {
        verify::chain(&self.0, run).await
    }

    async fn artifact(&self, run: &RunId, id: &ArtifactId) -> Result<Option<Vec<u8>>> {
        self.one(ARTIFACT, vec![id.as_str().into(), run.as_str().into()], |row| row.bytes(0)).await
    }

    fn newest_position(&self) -> watch::Receiver<i64> {
        self.0.newest_position()
    }

    async fn pending_journal(&self, run: Option<&RunId>) -> Result<Vec<JournalEntry>> {
        let steps = match run {
            Some(run) => self.0.fetch(STEPS_OF_RUN, vec![run.as_str().into()], rows::step).await?,
            None => self.0.fetch(select_steps!("ORDER BY step.run_no, seq, place"), Vec::new(), rows::step).await?,
        };
        Ok(rows::by_record(steps))
    }

    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        self.0.settled_run(run).await
    }

    async fn runs_with_pending_journal(&self) -> Result<Vec<RunId>> {
        let sql = "SELECT run_id FROM run WHERE run_no IN (SELECT run_no FROM step) ORDER BY run_no";
        self.0.fetch(sql, Vec::new(), |row| rows::run_id(row, 0)).await
    }

    async fn prune(&self, done: &[(RunId, u64)]) -> Result<()> {
        if done.is_empty() {
            return Ok(());
        }
        self.0.prune(done.to_vec()).await
    }

    async fn content(&self, run: &RunId, seq: u64, sha256: &Sha256) -> Result<Option<Vec<u8>>> {
        let args = vec![run.as_str().into(), seq.into(), sha256.into()];
        self.one(CONTENT, args, |row| row.bytes(0)).await
    }

    async fn purge_content(&self, run: &RunId) -> Result<()> {
        match self.run(run).await?.ok_or(LedgerError::NoSuchRun)?.run.state {
            RunState::Deleted => {}
            _ => return Err(LedgerError::Internal("what a run left is kept until the run is deleted".into())),
        }
        // A step cannot be read without what it leaves: steps go first.
        self.0.transact(None, vec![Statement::new(FORGET_STEPS, [run.as_str().into()])]).await?;
        let mut done = self.one(PURGED, vec![run.as_str().into()], |row| row.int(0)).await?.unwrap_or(0);
        loop {
            let args = vec![run.as_str().into(), done.into()];
            let next = self.0.fetch(NEXT_PURGED, args, |row| Ok((row.int(0)?, row.int(1)?))).await?;
            let Some((last, _)) = next.last() else { return Ok(()) };
            done = *last;
            let purge = |(_, position): &(i64, i64)| Statement::new(PURGE, [(*position).into()]);
            let purged = Statement::new(SET_PURGED, [run.as_str().into(), done.into()]);
            self.0.transact(None, next.iter().map(purge).chain([purged]).collect()).await?;
        }
    }

    async fn unpurged_runs(&self) -> Result<Vec<RunId>> {
        self.0.fetch(UNPURGED, Vec::new(), |row| rows::run_id(row, 0)).await
    }

    async fn approval(&self, id: &ApprovalId) -> Result<Option<Approval>> {
        let sql = select_approval!("WHERE approval_id = $1");
        Ok(self.one(sql, vec![id.as_str().into()], rows::approval).await?.map(|(_, approval)| approval))
    }

    async fn approval_input(&self, id: &ApprovalId) -> Result<Option<String>> {
        self.one("SELECT input FROM approval WHERE approval_id = $1", vec![id.as_str().into()], |row| row.text(0)).await
    }

    async fn approvals(
        &self,
        state: Option<ApprovalState>,
        run: Option<&RunId>,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<Page<(i64, Approval)>> {
        let mut args = Vec::new();
        args.extend(state.map(|state| Arg::from(state.as_str())));
        args.extend(run.map(|run| Arg::from(run.as_str())));
        let sql = match (state, run) {
            (None, None) => select_approval!("WHERE approval_no > $1 ORDER BY approval_no LIMIT $2"),
            (Some(_), None) => select_approval!("WHERE approval_no > $1 AND state = $3 ORDER BY approval_no LIMIT $2"),
            (None, Some(_)) => select_approval!(
                "WHERE approval_no > $1 AND run_no = (SELECT run_no FROM run WHERE run_id = $3) \
                ORDER BY approval_no LIMIT $2"
            ),
            (Some(_), Some(_)) => select_approval!(
                "WHERE approval_no > $1 AND (state || '') = $3 \
                AND run_no = (SELECT run_no FROM run WHERE run_id = $4) ORDER BY approval_no LIMIT $2"
            ),
        };
        let read = |row: &dyn Columns| Ok((row.int(0)?, rows::approval(row).map(|(_, approval)| approval)));
        self.list_readable("an approval", sql, after, args, read, size, PageColumns::APPROVALS).await
    }

    async fn decide_approval(
        &self,
        id: &ApprovalId,
        state: ApprovalState,
        decided_by: Option<&str>,
        note: Option<&str>,
    ) -> Result<bool> {
        let Some(approval) = self.approval(id).await? else { return Ok(false) };
        let decision = rows::approval_decision(decided_by, note)?;
        let [first, second, third] = DECIDE;
        let statements = vec![
            Statement::new(first, [id.as_str().into(), state.as_str().into(), decision.into()]).required(),
            Statement::new(second, [id.as_str().into()]),
            Statement::new(third, [id.as_str().into()]),
        ];
        Ok(self.0.transact(Some(approval.run_id), statements).await? > 0)
    }

    async fn expired_approvals(&self, now: &str, size: PageSize) -> Result<Page<Approval>> {
        let sql = "SELECT approval_no, body, state, decision, expires_at FROM approval \
            WHERE state = 'pending' AND expires_at <= $1 ORDER BY expires_at LIMIT $2";
        let args = vec![now.into(), Arg::Int(size.rows_to_ask())];
        let read = |row: &dyn Columns| Ok(rows::approval(row).map(|(_, approval)| approval));
        let page = self.0.fetch_page(sql, args, read, size, PageColumns::LAPSED).await?;
        // One that cannot be read keeps no other from its end.
        Ok(Page { more: page.more, items: page.into_iter().flatten().collect() })
    }

    async fn setting(&self, name: &str) -> Result<Option<String>> {
        self.one("SELECT value FROM setting WHERE name = $1", vec![name.into()], |row| row.text(0)).await
    }

    async fn set_setting_once(&self, name: &str, value: &str) -> Result<String> {
        self.0.transact(None, vec![Statement::new(SET_SETTING, [name.into(), value.into()])]).await?;
        let stored = self.setting(name).await?;
        stored.ok_or_else(|| LedgerError::Internal("a setting that was stored is not there".into()))
    }

    async fn take_over(&self, known: Option<&str>, instance: &str) -> Result<bool> {
        let args = [INSTANCE.into(), instance.into(), known.into()];
        let taken = self.0.transact(None, vec![Statement::new(TAKE_OVER, args)]).await? > 0;
        if taken {
            self.0.fence(instance);
        }
        Ok(taken)
    }

    async fn rest(&self) -> Result<()> {
        self.0.rest().await
    }

    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

fn insert_run(stored: &StoredRun) -> Result<Statement> {
    let run = &stored.run;
    Ok(Statement::new(
        INSERT_RUN,
        [
            run.run_id.as_str().into(),
            run.state.as_str().into(),
            run.created_at.as_str().into(),
            run.closed_at.as_deref().into(),
            run.expires_at.as_deref().into(),
            run.base_commit.as_deref().into(),
            stored.needs_repair.into(),
            rows::run_body(run)?.into(),
            rows::import_report(&run.import)?.into(),
            rows::to_json(&stored.mount_paths)?.into(),
        ],
    ))
}

fn insert_head(stored: &StoredRun) -> Statement {
    let (run, usage) = (&stored.run, &stored.usage);
    Statement::new(
        INSERT_HEAD,
        [
            run.run_id.as_str().into(),
            run.head_seq.into(),
            (&run.head_hash).into(),
            run.counts.mutations.into(),
            run.counts.denied.into(),
            run.counts.pending_approvals.into(),
            usage.files_touched.into(),
            usage.insertions.into(),
            usage.deletions.into(),
            usage.files_deleted.into(),
            usage.bytes.into(),
            run.disk.bytes.into(),
            run.disk.files.into(),
        ],
    )
}

fn insert_token(token: &Token) -> Result<Statement> {
    Ok(Statement::new(
        INSERT_TOKEN,
        [
            token.run_id.as_str().into(),
            (&token.secret_sha256).into(),
            token.token_id.as_str().into(),
            rows::to_json(&token.permissions)?.into(),
            token.expires_at.as_deref().into(),
            token.revoked.into(),
        ],
    ))
}

fn read_call(row: &dyn Columns) -> Result<StoredCall> {
    let reply = match row.maybe_int(4)? {
        None => None,
        Some(status) => Some(Reply { status: u16::try_from(status).unwrap_or(0), body: row.text(5)? }),
    };
    Ok(StoredCall {
        record: row.text(0)?,
        seq: to_count(row.int(1)?),
        hash: rows::record_hash(&row.text(6)?)?,
        tool: row.text(2)?,
        input_sha256: rows::sha256(&row.bytes(3)?)?,
        reply,
    })
}
