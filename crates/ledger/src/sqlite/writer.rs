//! The connection that writes. The jobs that arrive during a commit form the next group; reads go before mutations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::append_state::HeadCache;
use super::ballast::BallastFile;
use super::convert::{execute, failed, is_full};
use super::wal_checkpointer::{WalCheckpointer, abort_on_lost_sync};
use crate::backend::Statement;
use crate::{Appended, Entry, LedgerError, Result};

/// Maximum number of jobs in a group.
const MAX_GROUP: usize = 512;
/// Maximum number of mutations in a transaction while reads are frequent. Reads go between two transactions, and a mutation
/// takes as long as about ten reads.
const MAX_MUTATIONS: usize = 16;
/// Reads are frequent until so many groups in a row had none.
const FREQUENT_GROUPS: u32 = 8;
/// Up to so many mutations share a transaction with the reads that wait, because a commit of their own would take longer.
const FEW_MUTATIONS: usize = 2;

const DISK_FULL: &str = "the disk of the database is full: only reads are accepted until there is free space";

/// Something to write, with the channel for its result.
pub(crate) enum Job {
    Append {
        entries: Vec<Entry>,
        answer: oneshot::Sender<Result<Appended>>,
    },
    Transact {
        /// The run whose row or head the statements may change.
        touched: Option<RunId>,
        statements: Vec<Statement>,
        answer: oneshot::Sender<Result<u64>>,
    },
}

/// The result of a job, to be sent once its group is committed.
enum Done {
    Appended(Result<Appended>),
    Changed(Result<u64>),
}

/// Why a group was rolled back.
enum Fault {
    /// The database failed.
    Database(LedgerError),
    /// One of the jobs failed.
    Job(LedgerError),
}

pub(crate) struct Writer {
    connection: Connection,
    ballast: BallastFile,
    checkpointer: WalCheckpointer,
    jobs: mpsc::Receiver<Job>,
    /// Mutations that reads have overtaken, in order of arrival.
    deferred: VecDeque<Job>,
    newest: watch::Sender<i64>,
    /// `None` after a failure, until it is loaded again.
    heads: Option<HeadCache>,
    /// Number of groups since the last one with a read.
    groups_without_read: u32,
    /// Whether the last commit failed.
    fails: Arc<AtomicBool>,
}

impl Writer {
    /// Creates a writer for `jobs`. Returns it with a receiver of the newest position.
    pub(crate) fn new(
        connection: Connection,
        ballast: BallastFile,
        checkpointer: WalCheckpointer,
        jobs: mpsc::Receiver<Job>,
    ) -> Result<(Self, watch::Receiver<i64>)> {
        let heads = HeadCache::load(&connection)?;
        let (newest, receiver) = watch::channel(heads.position);
        let writer = Self {
            connection,
            ballast,
            checkpointer,
            jobs,
            deferred: VecDeque::new(),
            newest,
            heads: Some(heads),
            groups_without_read: FREQUENT_GROUPS,
            fails: Arc::default(),
        };
        Ok((writer, receiver))
    }

    /// Returns a flag that tells whether the last commit failed.
    pub(crate) fn fails(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.fails)
    }

    /// Commits jobs until all senders are gone. The jobs that arrive during a commit form the next group.
    pub(crate) fn run(mut self) {
        loop {
            // Deferred mutations do not wait for another job.
            let first = if self.deferred.is_empty() { self.jobs.blocking_recv() } else { None };
            if first.is_none() && self.deferred.is_empty() {
                break;
            }
            self.write_waiting(first);
        }
        self.checkpointer.end();
    }

    /// Commits `first` and the reads that wait, then mutations, and answers them.
    fn write_waiting(&mut self, first: Option<Job>) {
        let mut reads = Vec::new();
        let mut next = first.or_else(|| self.jobs.try_recv().ok());
        while let Some(job) = next {
            if job.is_slow() {
                self.deferred.push_back(job);
            } else {
                reads.push(job);
            }
            let has_space = reads.len() + self.deferred.len() < MAX_GROUP;
            next = if has_space { self.jobs.try_recv().ok() } else { None };
        }
        self.groups_without_read = if reads.is_empty() { self.groups_without_read.saturating_add(1) } else { 0 };
        if !reads.is_empty() && self.deferred.len() > FEW_MUTATIONS {
            self.write(std::mem::take(&mut reads));
        }
        let max = if self.groups_without_read < FREQUENT_GROUPS { MAX_MUTATIONS } else { MAX_GROUP };
        let mut group = reads;
        group.extend(self.deferred.drain(..self.deferred.len().min(max)));
        if !group.is_empty() {
            self.write(group);
        }
        let is_disk_full = !self.ballast.ensure();
        self.checkpointer.after_commit(&self.connection, is_disk_full);
    }

    /// Commits a group and answers it. If a job fails, the group is rolled back and its jobs are committed one by one.
    fn write(&mut self, mut group: Vec<Job>) {
        if !self.ballast.ensure() {
            group = reject_mutations(group, &LedgerError::Unavailable(DISK_FULL.into()));
        }
        if group.is_empty() {
            return;
        }
        match self.commit(&group) {
            Ok(done) => {
                self.fails.store(false, Ordering::Release);
                self.publish_position();
                group.into_iter().zip(done).for_each(|(job, done)| job.answer(done));
            }
            Err(Fault::Database(error)) if is_full(&error) && self.ballast.release() => {
                // The space of the ballast file is for the records of reads.
                let reads = reject_mutations(group, &error);
                self.write(reads);
            }
            Err(Fault::Database(error)) => {
                self.fails.store(true, Ordering::Release);
                tracing::error!(error = &error as &dyn std::error::Error, jobs = group.len(), "a commit failed");
                for job in group {
                    job.fail(error.duplicate());
                }
            }
            Err(Fault::Job(error)) => {
                let alone = group.len() == 1;
                for job in group {
                    if alone { job.fail(error.duplicate()) } else { self.write(vec![job]) }
                }
            }
        }
    }

    fn publish_position(&self) {
        let position = self.heads.as_ref().map_or(0, |heads| heads.position);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, position.max(*newest)) < position);
    }

    fn commit(&mut self, group: &[Job]) -> Result<Vec<Done>, Fault> {
        let mut heads = match self.heads.take() {
            Some(heads) => heads,
            None => HeadCache::load(&self.connection).map_err(Fault::Database)?,
        };
        match run_transaction(&self.connection, &mut heads, group) {
            Ok(done) => {
                heads.shrink();
                self.heads = Some(heads);
                Ok(done)
            }
            Err(fault) => {
                // SQLite itself rolls back after some errors, such as a full disk.
                if !self.connection.is_autocommit()
                    && let Err(error) = self.connection.execute_batch("ROLLBACK")
                {
                    tracing::error!(error = &error as &dyn std::error::Error, "a transaction could not be rolled back");
                }
                Err(fault)
            }
        }
    }
}

/// Rejects the mutations of a group and returns the rest.
fn reject_mutations(group: Vec<Job>, error: &LedgerError) -> Vec<Job> {
    let (mutations, rest): (Vec<_>, Vec<_>) = group.into_iter().partition(Job::mutates);
    for job in mutations {
        job.fail(error.duplicate());
    }
    rest
}

fn run_transaction(connection: &Connection, heads: &mut HeadCache, group: &[Job]) -> Result<Vec<Done>, Fault> {
    let database = |error| Fault::Database(failed(error));
    connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut sql| sql.execute([])).map_err(database)?;
    let mut done = Vec::with_capacity(group.len());
    for job in group {
        done.push(job.run(connection, heads).map_err(|error| match error {
            unavailable @ LedgerError::Unavailable(_) => Fault::Database(unavailable),
            error => Fault::Job(error),
        })?);
    }
    heads.store(connection).map_err(database)?;
    let mutates = group.iter().any(Job::mutates);
    if mutates {
        failpoint::hit("ledger.written");
    }
    let committed = connection.prepare_cached("COMMIT").and_then(|mut sql| sql.execute([]));
    committed.inspect_err(abort_on_lost_sync).map_err(database)?;
    if mutates {
        failpoint::hit("ledger.committed");
    }
    Ok(done)
}

impl Job {
    /// Returns whether reads should go before the job.
    fn is_slow(&self) -> bool {
        matches!(self, Self::Transact { .. }) || self.mutates()
    }

    /// Returns whether the job changes the tree of a run.
    fn mutates(&self) -> bool {
        matches!(self, Self::Append { entries, .. } if entries.iter().any(|entry| !entry.steps.is_empty()))
    }

    /// Writes the job's rows. After an error, some of them may have been written.
    fn run(&self, connection: &Connection, heads: &mut HeadCache) -> Result<Done> {
        match self {
            Self::Append { entries, .. } => match heads.append(connection, entries) {
                Err(LedgerError::NoSuchRun) => Ok(Done::Appended(Err(LedgerError::NoSuchRun))),
                appended => appended.map(|appended| Done::Appended(Ok(appended))),
            },
            Self::Transact { touched, statements, .. } => {
                if let Some(run) = touched {
                    heads.store(connection).map_err(failed)?;
                    heads.remove(run);
                }
                transact(connection, statements).map(Done::Changed)
            }
        }
    }

    fn answer(self, done: Done) {
        // A caller that was cancelled does not receive it.
        match (self, done) {
            (Self::Append { answer, .. }, Done::Appended(appended)) => drop(answer.send(appended)),
            (Self::Transact { answer, .. }, Done::Changed(changed)) => drop(answer.send(changed)),
            // Does not happen: the result of a job is of its kind.
            (Self::Append { .. }, Done::Changed(_)) | (Self::Transact { .. }, Done::Appended(_)) => {}
        }
    }

    fn fail(self, error: LedgerError) {
        match self {
            Self::Append { answer, .. } => drop(answer.send(Err(error))),
            Self::Transact { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}

fn transact(connection: &Connection, statements: &[Statement]) -> Result<Result<u64>> {
    let mut first = 0;
    for (index, statement) in statements.iter().enumerate() {
        let changed = match execute(connection, statement.sql, &statement.params).map_err(failed) {
            Ok(changed) => u64::try_from(changed).unwrap_or(0),
            // SQLite undoes a statement that fails, so the job has written nothing and the group can go on.
            Err(LedgerError::AlreadyExists) if index == 0 => return Ok(Err(LedgerError::AlreadyExists)),
            Err(error) => return Err(error),
        };
        if index == 0 {
            first = changed;
        }
        if statement.required && changed == 0 {
            break;
        }
    }
    Ok(Ok(first))
}
