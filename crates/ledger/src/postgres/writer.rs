//! The task that writes. The jobs that arrive during a commit form the next group.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::address::PostgresAddress;
use super::append_state::GroupState;
use super::connection::{bind, failed, is_conflict, write_rows};
use super::fence::{EnterMode, FencedTx, WriterFence};
use super::settled_position::SettledPosition;
use super::{execute_checked, open, positions};
use crate::chain;
use crate::commit_queue::{SYNC_DELAY, count_commit};
use crate::entry_rows::{EntryRows, head_rows};
use crate::packed::{PreparedEntry, value_bytes};
use crate::statement::Statement;
use crate::{Appended, Entry, LedgerError, Result};

/// Maximum number of jobs in a group.
const MAX_GROUP: usize = 512;
/// Maximum bytes of contents and diffs in a transaction, because the server rejects statements of more than 1 GiB.
const MAX_GROUP_BYTES: usize = 64 * 1024 * 1024;
/// Timeout of a transaction. The server's own timeouts are shorter.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of attempts of a transaction that conflicts with others.
pub(crate) const MAX_ATTEMPTS: usize = 5;
/// Initial and maximum delay between attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Flushes the log: the commit waits for its own record and for all before it. Writes to no table.
const FLUSH: &str = "SELECT pg_logical_emit_message(true, 'workspaced', '')";

/// Entries to append, all or none, with the sender for the result.
pub(crate) struct PostgresJob {
    /// The statements that create the entries' run, if it is new.
    pub(crate) creation: Vec<Statement>,
    pub(crate) entries: Vec<PreparedEntry>,
    pub(crate) result: oneshot::Sender<Result<Appended>>,
}

pub(crate) struct PostgresWriter {
    address: Arc<PostgresAddress>,
    /// `None` after a failure that leaves the state of the connection unknown.
    connection: Option<PgConnection>,
    fence: Arc<WriterFence>,
    /// The earliest time of the next attempt to connect, and the delay after it.
    retry: (Instant, Duration),
    jobs: mpsc::Receiver<PostgresJob>,
    settled: Arc<SettledPosition>,
    /// When to flush the log for a commit of reads, which did not.
    flush_at: Option<Instant>,
}

/// What a group has committed.
struct CommittedGroup {
    results: Vec<Result<Appended>>,
    /// The position of its last record; 0 if it has none.
    position: i64,
    /// The settled position after the commit, if it is known.
    settled: Option<i64>,
}

impl PostgresWriter {
    pub(crate) fn new(
        address: Arc<PostgresAddress>,
        connection: PgConnection,
        fence: Arc<WriterFence>,
        jobs: mpsc::Receiver<PostgresJob>,
        settled: Arc<SettledPosition>,
    ) -> Self {
        Self {
            address,
            connection: Some(connection),
            fence,
            retry: (Instant::now(), BACKOFF.0),
            jobs,
            settled,
            flush_at: None,
        }
    }

    /// Commits jobs until the queue is closed.
    pub(crate) async fn run(mut self) {
        while let Some(group) = self.next_group().await {
            let (mut reads, mut others): (Vec<_>, Vec<_>) = group.into_iter().partition(PostgresJob::only_reads);
            for jobs in [&mut reads, &mut others] {
                while !jobs.is_empty() {
                    let rest = jobs.split_off(count_that_fits(jobs));
                    self.write(std::mem::replace(jobs, rest)).await;
                }
            }
        }
        self.flush().await;
        if let Some(connection) = self.connection {
            // If this fails, the server closes the connection.
            drop(connection.close().await);
        }
    }

    /// Waits for the next jobs, and flushes the log when it is due. Returns `None` after the last ones.
    async fn next_group(&mut self) -> Option<Vec<PostgresJob>> {
        let mut group = Vec::new();
        loop {
            // A queue that is never empty would hold the flush back.
            if self.flush_at.is_some_and(|at| at <= Instant::now()) {
                self.flush().await;
            }
            let received = match self.flush_at {
                Some(at) => tokio::time::timeout_at(at, self.jobs.recv_many(&mut group, MAX_GROUP)).await,
                None => Ok(self.jobs.recv_many(&mut group, MAX_GROUP).await),
            };
            match received {
                Ok(0) => return None,
                Ok(_) => return Some(group),
                // The flush is due.
                Err(_) => {}
            }
        }
    }

    /// Flushes the log, if commits of reads were not flushed yet.
    async fn flush(&mut self) {
        if self.flush_at.is_none() {
            return;
        }
        // Of a failed attempt: the next one.
        self.flush_at = Some(Instant::now() + SYNC_DELAY);
        let Ok(mut connection) = self.connect().await else { return };
        match tokio::time::timeout(TIMEOUT, sqlx::raw_sql(FLUSH).execute(&mut connection)).await {
            Ok(Ok(_)) => (self.connection, self.flush_at) = (Some(connection), None),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the log could not be flushed for records of reads"
                );
            }
            Err(_) => tracing::warn!("the database does not respond: the log was not flushed for records of reads"),
        }
    }

    /// Commits a group and sends the results. If a job fails, the group is rolled back and its jobs are committed one by one.
    async fn write(&mut self, group: Vec<PostgresJob>) {
        let mut committed = self.commit(&group).await;
        for _ in 1..MAX_ATTEMPTS {
            match committed {
                Err(error) if is_conflict(&error) => committed = self.commit(&group).await,
                _ => break,
            }
        }
        match committed {
            Ok(done) => group.into_iter().zip(done).for_each(|(job, done)| drop(job.result.send(done))),
            Err(
                LedgerError::AlreadyExists
                | LedgerError::CreationRejected(_)
                | LedgerError::ObjectNotReserved(_)
                | LedgerError::NoSuchOperator
                | LedgerError::Internal(_),
            ) if group.len() > 1 => {
                for job in group {
                    Box::pin(self.write(vec![job])).await;
                }
            }
            Err(error) => {
                if !is_rejection(&error) {
                    tracing::error!(error = &error as &dyn std::error::Error, jobs = group.len(), "a commit failed");
                }
                for job in group {
                    drop(job.result.send(Err(error.duplicate())));
                }
            }
        }
    }

    async fn commit(&mut self, group: &[PostgresJob]) -> Result<Vec<Result<Appended>>> {
        let mut connection = self.connect().await?;
        let started = Instant::now();
        match tokio::time::timeout(TIMEOUT, run_transaction(&mut connection, &self.fence, group)).await {
            Ok(Ok(CommittedGroup { results, position, settled })) => {
                count_commit(group.len(), started.elapsed());
                self.connection = Some(connection);
                if group.iter().all(PostgresJob::only_reads) {
                    self.flush_at.get_or_insert(Instant::now() + SYNC_DELAY);
                }
                self.settled.after_commit(settled, position);
                Ok(results)
            }
            Ok(Err(error)) => {
                // Only a response of the server guarantees that nothing was committed.
                let is_known = !matches!(error, LedgerError::Unavailable(_) | LedgerError::InDoubt(_));
                if is_known || is_conflict(&error) {
                    let rolled_back = sqlx::raw_sql("ROLLBACK").execute(&mut connection);
                    if let Ok(Ok(_)) = tokio::time::timeout(TIMEOUT, rolled_back).await {
                        self.connection = Some(connection);
                    }
                }
                Err(error)
            }
            // The COMMIT may have been sent.
            Err(_) => Err(LedgerError::InDoubt("the database does not respond".into())),
        }
    }

    async fn connect(&mut self) -> Result<PgConnection> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let (earliest, delay) = self.retry;
        if Instant::now() < earliest {
            return Err(LedgerError::Unavailable("the database could not be reached; it is retried shortly".into()));
        }
        let connected = self.address.connect().await;
        let delay = if connected.is_ok() { BACKOFF.0 } else { (delay * 2).min(BACKOFF.1) };
        self.retry = (Instant::now() + delay, delay);
        let mut connection = connected?;
        let prepared = async {
            // The address may have moved to a copy of the database, which need not have the sequence.
            open::complete_sequence(&mut connection).await?;
            positions::prepare(&mut connection).await
        };
        let prepared = tokio::time::timeout(TIMEOUT, prepared).await;
        prepared.unwrap_or_else(|_| Err(LedgerError::Unavailable("the database does not respond".into())))?;
        Ok(connection)
    }
}

impl PostgresJob {
    /// Returns whether the job only appends records of reads.
    fn only_reads(&self) -> bool {
        self.creation.is_empty() && self.entries.iter().all(|entry| entry.only_reads)
    }
}

/// Returns how many of the first jobs fit into one transaction; at least one.
fn count_that_fits(jobs: &[PostgresJob]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&PostgresJob| {
        bytes += job.entries.iter().map(|entry| value_bytes(entry)).sum::<usize>();
        bytes <= MAX_GROUP_BYTES
    };
    jobs.iter().take_while(fits).count().max(1)
}

/// Commits a group.
async fn run_transaction(
    connection: &mut PgConnection,
    fence: &WriterFence,
    group: &[PostgresJob],
) -> Result<CommittedGroup> {
    let mut fenced = fence.enter(connection, EnterMode::Begin).await?;
    for statement in group.iter().flat_map(|job| &job.creation) {
        let query = bind(sqlx::query(statement.sql), statement.params.clone());
        query.execute(fenced.connection()).await.map_err(failed)?;
    }
    let entries: Vec<&Entry> = group.iter().flat_map(|job| &job.entries).map(Deref::deref).collect();
    let mut state = GroupState::read(&mut fenced, fence, &entries).await?;
    let mut rows = EntryRows::new();
    let mut results = Vec::with_capacity(group.len());
    for job in group {
        let appended = chain::append(&mut state, &job.entries, &mut rows);
        if matches!(appended, Ok(Appended::Recorded(_))) {
            state.add(&job.entries);
        }
        results.push(match appended {
            Err(error @ (LedgerError::NoSuchRun | LedgerError::RunMoved(_))) => Err(error),
            // The run is written already, so the transaction must be rolled back.
            Ok(Appended::PreconditionFailed(failed)) if !job.creation.is_empty() => {
                return Err(LedgerError::CreationRejected(failed));
            }
            appended => Ok(appended?),
        });
    }
    write(&mut fenced, &state, &rows).await?;
    let mutates = entries.iter().any(|entry| !entry.steps.is_empty());
    if mutates {
        failpoint::hit("ledger.written");
    }
    let only_reads = group.iter().all(PostgresJob::only_reads);
    let settled = commit(fenced.connection(), only_reads).await?;
    if !only_reads {
        // A crash of the server may lose the last reads.
        fence.acknowledge(state.position, state.heads.iter().filter(|(_, head)| head.changed));
    }
    if mutates {
        failpoint::hit("ledger.committed");
    }
    Ok(CommittedGroup { results, position: state.position, settled })
}

/// Commits the transaction; one of reads does not wait for the disk. Returns the settled position after it, if the server has
/// responded with it.
async fn commit(connection: &mut PgConnection, only_reads: bool) -> Result<Option<i64>> {
    let commit = if only_reads { positions::COMMIT_READS } else { positions::COMMIT };
    let mut responses = sqlx::raw_sql(commit).fetch_many(connection);
    let until_committed = if only_reads { 2 } else { 1 };
    for _ in 0..until_committed {
        // The group may be durable, regardless of the error, and must not be written again.
        responses.try_next().await.map_err(|error| LedgerError::InDoubt(Box::new(error)))?;
    }
    let mut settled = None;
    while let Ok(Some(response)) = responses.try_next().await {
        settled = response.right().and_then(|row| row.try_get(0).ok()).or(settled);
    }
    Ok(settled)
}

/// Writes the rows of a group, most of them in one statement.
async fn write(fenced: &mut FencedTx<'_>, state: &GroupState, rows: &EntryRows<'_>) -> Result<()> {
    if rows.records.is_empty() {
        return Ok(());
    }
    let [heads, states] = head_rows(state.heads.values());
    let EntryRows { records, paths, replies, artifacts, contents, newest, steps, .. } = rows;
    let EntryRows { approvals, decisions, votes, uploads, .. } = rows;
    let connection = fenced.connection();
    // Only two forms of the statement, so that the server plans each once.
    if [replies, artifacts, contents, newest, steps].iter().all(|rows| rows.is_empty()) {
        write_rows(connection, &[paths, &heads, records]).await.map_err(failed)?;
    } else {
        let all = [paths, &heads, replies, artifacts, contents, newest, steps, records];
        write_rows(connection, &all).await.map_err(failed)?;
    }
    for rows in [approvals, decisions, votes, uploads, &states] {
        if !rows.is_empty() {
            write_rows(connection, &[rows]).await.map_err(failed)?;
        }
    }
    // After the heads: every transaction locks the head of a run before its other rows.
    for statement in &rows.changes {
        execute_checked(connection, statement).await?;
    }
    Ok(())
}

/// Whether the error says something of the job, not of the database.
fn is_rejection(error: &LedgerError) -> bool {
    matches!(
        error,
        LedgerError::AlreadyExists
            | LedgerError::CreationRejected(_)
            | LedgerError::ObjectNotReserved(_)
            | LedgerError::NoSuchOperator
    )
}
