//! The connection that writes. Jobs that arrive during a commit form the next groups: that of the reads, which does not sync the log, and
//! then that of the other jobs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use model::RunId;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::append_state::HeadCache;
use super::ballast::{BallastFile, DISK_FULL};
use super::connection::{execute, failed};
use super::log_sync::LogSync;
use super::wal_checkpointer::{WalCheckpointer, abort_on_failed_sync};
use crate::commit_queue::count_commit;
use crate::packed::PreparedEntry;
use crate::statement::Statement;
use crate::{Appended, LedgerError, Node, Result};

/// Maximum number of jobs in a group.
const MAX_GROUP: usize = 512;
/// Maximum number of other jobs in a transaction while reads are frequent, because the reads wait for it.
const MAX_JOBS_BETWEEN_READS: usize = 16;
/// Reads are frequent until this number of consecutive groups had none.
const MAX_GROUPS_WITHOUT_READ: u32 = 8;

/// A unit of work, with the sender for its result.
pub(crate) enum SqliteJob {
    Append {
        /// The statements that create the entries' run, if it is new.
        creation: Vec<Statement>,
        entries: Vec<PreparedEntry>,
        result: oneshot::Sender<Result<Appended>>,
    },
    Transact {
        /// The run whose row or head the statements may change.
        touched: Option<RunId>,
        statements: Vec<Statement>,
        result: oneshot::Sender<Result<u64>>,
    },
}

/// The result of a job, to be sent when its group is committed.
enum JobResult {
    Appended(Result<Appended>),
    Transacted(Result<u64>),
}

/// Why a group was rolled back.
enum Fault {
    /// The database failed.
    Database(LedgerError),
    /// One of the jobs failed.
    Job(LedgerError),
}

pub(crate) struct SqliteWriter {
    connection: Connection,
    ballast: BallastFile,
    checkpointer: WalCheckpointer,
    log_sync: LogSync,
    /// Whether a commit of `connection` syncs the log.
    syncs: bool,
    jobs: mpsc::Receiver<SqliteJob>,
    /// Jobs that are not reads, in order of arrival.
    deferred: VecDeque<SqliteJob>,
    newest: watch::Sender<i64>,
    /// `None` after a failed transaction, until they are loaded again.
    heads: Option<HeadCache>,
    /// Number of consecutive groups without a read.
    groups_without_read: u32,
    refuses_changes: Arc<AtomicBool>,
    /// The node that this process is.
    node: Arc<OnceLock<Node>>,
}

impl SqliteWriter {
    /// Creates a writer for `jobs`. Returns it with a receiver of the newest position.
    pub(crate) fn new(
        connection: Connection,
        ballast: BallastFile,
        checkpointer: WalCheckpointer,
        log_sync: LogSync,
        jobs: mpsc::Receiver<SqliteJob>,
        node: Arc<OnceLock<Node>>,
    ) -> Result<(Self, watch::Receiver<i64>)> {
        let heads = HeadCache::load(&connection)?;
        let refuses_changes = Arc::new(AtomicBool::new(!ballast.exists()));
        let (newest, receiver) = watch::channel(heads.position);
        let writer = Self {
            connection,
            ballast,
            checkpointer,
            log_sync,
            syncs: true,
            jobs,
            deferred: VecDeque::new(),
            newest,
            heads: Some(heads),
            groups_without_read: MAX_GROUPS_WITHOUT_READ,
            refuses_changes,
            node,
        };
        Ok((writer, receiver))
    }

    /// Returns a shared flag: whether changes are refused, because the last commit failed or the disk is full.
    pub(crate) fn refuses_changes(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.refuses_changes)
    }

    /// Commits jobs until the queue is closed.
    pub(crate) fn run(mut self) {
        loop {
            // Deferred jobs do not wait for further jobs.
            let first = if self.deferred.is_empty() { self.jobs.blocking_recv() } else { None };
            if first.is_none() && self.deferred.is_empty() {
                break;
            }
            self.write_queued(first);
        }
        self.checkpointer.end();
        self.log_sync.end();
    }

    /// Commits `first` and the queued reads, then deferred jobs, and sends their results.
    fn write_queued(&mut self, first: Option<SqliteJob>) {
        let mut reads = Vec::new();
        let mut next = first.or_else(|| self.jobs.try_recv().ok());
        while let Some(job) = next {
            if job.only_reads() {
                reads.push(job);
            } else {
                self.deferred.push_back(job);
            }
            let has_capacity = reads.len() + self.deferred.len() < MAX_GROUP;
            next = if has_capacity { self.jobs.try_recv().ok() } else { None };
        }
        self.groups_without_read = if reads.is_empty() { self.groups_without_read.saturating_add(1) } else { 0 };
        let max = if self.groups_without_read < MAX_GROUPS_WITHOUT_READ { MAX_JOBS_BETWEEN_READS } else { MAX_GROUP };
        let others = self.deferred.drain(..self.deferred.len().min(max)).collect();
        self.write(reads);
        self.write(others);
        let is_disk_full = !self.ballast.ensure();
        self.checkpointer.after_commit(&self.connection, is_disk_full);
    }

    /// Commits a group and sends the results. If a job fails, the group is rolled back and its jobs are committed one by one.
    fn write(&mut self, mut group: Vec<SqliteJob>) {
        if !self.ballast.ensure() {
            self.refuses_changes.store(true, Ordering::Release);
            group = reject_mutations(group, &LedgerError::database_full(DISK_FULL));
        }
        if group.is_empty() {
            return;
        }
        match self.commit(&group) {
            Ok(results) => {
                self.refuses_changes.store(!self.ballast.exists(), Ordering::Release);
                self.publish_position();
                group.into_iter().zip(results).for_each(|(job, result)| job.complete(result));
            }
            Err(Fault::Database(error)) if error.is_disk_full() && self.ballast.release() => {
                // The space of the ballast file is reserved for the records of reads.
                let reads = reject_mutations(group, &error);
                self.write(reads);
            }
            Err(Fault::Database(error)) => {
                self.refuses_changes.store(true, Ordering::Release);
                tracing::error!(error = &error as &dyn std::error::Error, jobs = group.len(), "a commit failed");
                for job in group {
                    job.fail(error.duplicate());
                }
            }
            Err(Fault::Job(error)) => {
                let is_alone = group.len() == 1;
                for job in group {
                    if is_alone { job.fail(error.duplicate()) } else { self.write(vec![job]) }
                }
            }
        }
    }

    fn publish_position(&self) {
        let position = self.heads.as_ref().map_or(0, |heads| heads.position);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, position.max(*newest)) < position);
    }

    fn commit(&mut self, group: &[SqliteJob]) -> Result<Vec<JobResult>, Fault> {
        let mut heads = match self.heads.take() {
            Some(heads) => heads,
            None => HeadCache::load(&self.connection).map_err(Fault::Database)?,
        };
        let started = Instant::now();
        let syncs = !group.iter().all(SqliteJob::only_reads);
        self.set_syncs(syncs).map_err(Fault::Database)?;
        match run_transaction(&self.connection, &mut heads, self.node.get(), group) {
            Ok(results) => {
                count_commit(group.len(), started.elapsed());
                self.log_sync.after_commit(syncs);
                heads.shrink();
                self.heads = Some(heads);
                Ok(results)
            }
            Err(fault) => {
                // SQLite has already rolled back after some errors, such as a full disk.
                if !self.connection.is_autocommit()
                    && let Err(error) = self.connection.execute_batch("ROLLBACK")
                {
                    tracing::error!(error = &error as &dyn std::error::Error, "failed to roll back a transaction");
                }
                Err(fault)
            }
        }
    }
}

impl SqliteWriter {
    /// Sets whether commits of the connection sync the log. `NORMAL` leaves out that sync alone: one before a checkpoint remains.
    fn set_syncs(&mut self, syncs: bool) -> Result<()> {
        if self.syncs != syncs {
            let level = if syncs { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.connection.execute_batch(level).map_err(failed)?;
            self.syncs = syncs;
        }
        Ok(())
    }
}

/// Rejects the mutations of a group and returns the rest.
fn reject_mutations(group: Vec<SqliteJob>, error: &LedgerError) -> Vec<SqliteJob> {
    let (mutations, rest): (Vec<_>, Vec<_>) = group.into_iter().partition(SqliteJob::mutates);
    for job in mutations {
        job.fail(error.duplicate());
    }
    rest
}

fn run_transaction(
    connection: &Connection,
    heads: &mut HeadCache,
    node: Option<&Node>,
    group: &[SqliteJob],
) -> Result<Vec<JobResult>, Fault> {
    let database = |error| Fault::Database(failed(error));
    connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut sql| sql.execute([])).map_err(database)?;
    let mut results = Vec::with_capacity(group.len());
    for job in group {
        results.push(job.run(connection, heads, node).map_err(|error| match error {
            unavailable @ LedgerError::Unavailable(_) => Fault::Database(unavailable),
            error => Fault::Job(error),
        })?);
    }
    heads.store(connection).map_err(database)?;
    let mutates = group.iter().any(SqliteJob::mutates);
    if mutates {
        failpoint::hit("ledger.written");
    }
    let committed = connection.prepare_cached("COMMIT").and_then(|mut sql| sql.execute([]));
    committed.inspect_err(abort_on_failed_sync).map_err(database)?;
    if mutates {
        failpoint::hit("ledger.committed");
    }
    Ok(results)
}

impl SqliteJob {
    /// Returns whether the job only appends records of reads.
    fn only_reads(&self) -> bool {
        match self {
            Self::Transact { .. } => false,
            Self::Append { creation, entries, .. } => {
                creation.is_empty() && entries.iter().all(|entry| entry.only_reads)
            }
        }
    }

    /// Returns whether the job changes the tree of a run.
    fn mutates(&self) -> bool {
        matches!(self, Self::Append { entries, .. } if entries.iter().any(|entry| !entry.steps.is_empty()))
    }

    /// Writes the job's rows. After an error, some of them may have been written.
    fn run(&self, connection: &Connection, heads: &mut HeadCache, node: Option<&Node>) -> Result<JobResult> {
        match self {
            Self::Append { creation, entries, .. } => {
                if let Err(error) = transact(connection, creation)? {
                    return Ok(JobResult::Appended(Err(error)));
                }
                match heads.append(connection, node, entries) {
                    Err(error @ (LedgerError::NoSuchRun | LedgerError::RunMoved(_))) => {
                        Ok(JobResult::Appended(Err(error)))
                    }
                    // The run is written already, so the transaction must be rolled back.
                    Ok(Appended::PreconditionFailed(failed)) if !creation.is_empty() => {
                        Err(LedgerError::CreationRejected(failed))
                    }
                    appended => appended.map(|appended| JobResult::Appended(Ok(appended))),
                }
            }
            Self::Transact { touched, statements, .. } => {
                if let Some(run) = touched {
                    heads.store(connection).map_err(failed)?;
                    heads.remove(run);
                }
                transact(connection, statements).map(JobResult::Transacted)
            }
        }
    }

    fn complete(self, done: JobResult) {
        // Sending fails if the caller was cancelled.
        match (self, done) {
            (Self::Append { result, .. }, JobResult::Appended(appended)) => drop(result.send(appended)),
            (Self::Transact { result, .. }, JobResult::Transacted(changed)) => drop(result.send(changed)),
            // Unreachable: `run` returns the result of the job's kind.
            (Self::Append { .. }, JobResult::Transacted(_)) | (Self::Transact { .. }, JobResult::Appended(_)) => {}
        }
    }

    fn fail(self, error: LedgerError) {
        match self {
            Self::Append { result, .. } => drop(result.send(Err(error))),
            Self::Transact { result, .. } => drop(result.send(Err(error))),
        }
    }
}

fn transact(connection: &Connection, statements: &[Statement]) -> Result<Result<u64>> {
    let mut first = None;
    for (index, statement) in statements.iter().enumerate() {
        let changed = match execute(connection, statement.sql, &statement.params).map_err(failed) {
            Ok(changed) => u64::try_from(changed).unwrap_or(0),
            // SQLite undoes a failed statement, so the job has written nothing and the group can continue.
            Err(LedgerError::AlreadyExists) if index == 0 => return Ok(Err(LedgerError::AlreadyExists)),
            Err(error) => return Err(error),
        };
        match &statement.check {
            // Such a statement comes first, so the job has written nothing.
            Some(check) if changed == 0 => return Ok(Err(check.failed())),
            Some(_) => {}
            None => drop(first.get_or_insert(changed)),
        }
    }
    Ok(Ok(first.unwrap_or(0)))
}
