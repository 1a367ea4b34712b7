//! The connection that writes: what waits when a commit has ended is the next group, and what is quick goes first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::append::Heads;
use super::convert::{execute, failed, is_full};
use super::log::{LogKeeper, end_on_lost_sync};
use super::open::shrink;
use super::reserve::Reserve;
use crate::backend::Statement;
use crate::{AppendedAll, Entry, LedgerError, Result};

/// Jobs that are looked at together at most.
const MAX_GROUP: usize = 512;
/// Changes in one transaction at most while there are looks, which come in between two of them: a change takes as long as
/// some ten looks do.
const MAX_CHANGES: usize = 16;
/// For so many groups after a look another one is likely.
const LIKELY_LOOKS: u32 = 8;
/// So many changes go together with the looks that wait: a commit of their own would take longer.
const FEW_CHANGES: usize = 2;

/// Why nothing that changes a tree is taken.
const FULL: &str = "the disk of the database is full: only reads are taken until there is room";

/// Something to write, and who waits for it.
pub(super) enum Job {
    Append {
        entries: Vec<Entry>,
        answer: oneshot::Sender<Result<AppendedAll>>,
    },
    Transact {
        touched: Option<RunId>,
        statements: Vec<Statement>,
        answer: oneshot::Sender<Result<u64>>,
    },
    /// Writes nothing, and gives memory back.
    Rest {
        answer: oneshot::Sender<Result<()>>,
    },
}

/// What a job comes to once its group is committed.
enum Done {
    Appended(Result<AppendedAll>),
    Changed(Result<u64>),
}

/// Why a group was undone.
enum Fault {
    /// The database: nobody's job is at fault.
    Store(LedgerError),
    /// One of the jobs.
    Job(LedgerError),
}

pub(super) struct Writer {
    connection: Connection,
    reserve: Reserve,
    log_keeper: LogKeeper,
    jobs: mpsc::Receiver<Job>,
    /// Changes that looks have gone before, in the order in which they came.
    changes: VecDeque<Job>,
    newest: watch::Sender<i64>,
    /// `None` after a failure, until they are read again.
    heads: Option<Heads>,
    /// How many jobs were in the last group.
    last_group: usize,
    /// Groups since there was a look.
    since_look: u32,
    /// Whether the last commit failed.
    fails: Arc<AtomicBool>,
}

impl Writer {
    /// A writer of what `jobs` brings, and where it tells the newest position.
    pub(super) fn new(
        connection: Connection,
        reserve: Reserve,
        log_keeper: LogKeeper,
        jobs: mpsc::Receiver<Job>,
    ) -> Result<(Self, watch::Receiver<i64>)> {
        let heads = Heads::load(&connection)?;
        let (newest, told) = watch::channel(heads.position);
        Ok((
            Self {
                connection,
                reserve,
                log_keeper,
                jobs,
                changes: VecDeque::new(),
                newest,
                heads: Some(heads),
                last_group: 0,
                since_look: LIKELY_LOOKS,
                fails: Arc::default(),
            },
            told,
        ))
    }

    /// Whether the last commit failed, now and later.
    pub(super) fn fails(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.fails)
    }

    /// Whether jobs come one by one.
    pub(super) fn is_calm(&self) -> bool {
        self.last_group <= 1
    }

    /// Commits looks that wait, then changes, and answers them. Whether anything waited.
    pub(super) fn write_waiting(&mut self) -> bool {
        let (mut looks, mut rests) = (Vec::new(), Vec::new());
        let mut count = self.changes.len();
        while count < MAX_GROUP
            && let Ok(next) = self.jobs.try_recv()
        {
            count += 1;
            match next {
                rest @ Job::Rest { .. } => rests.push(rest),
                change if change.takes_long() => self.changes.push_back(change),
                look => looks.push(look),
            }
        }
        if count == 0 {
            return false;
        }
        self.last_group = count;
        self.since_look = if looks.is_empty() { self.since_look.saturating_add(1) } else { 0 };
        if !looks.is_empty() && self.changes.len() > FEW_CHANGES {
            self.write(std::mem::take(&mut looks));
        }
        let most = if self.since_look < LIKELY_LOOKS { MAX_CHANGES } else { MAX_GROUP };
        looks.extend(self.changes.drain(..self.changes.len().min(most)));
        if !looks.is_empty() {
            self.write(looks);
        }
        if !rests.is_empty() {
            self.rest(rests);
        }
        let is_short_of_room = !self.reserve.is_held();
        self.log_keeper.after_commit(&self.connection, is_short_of_room);
        true
    }

    /// Whether changes wait that looks have gone before.
    pub(super) fn has_more(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Lets nobody hand in any more, writes what waits, and ends.
    pub(super) fn end(mut self) {
        self.jobs.close();
        while self.write_waiting() {}
        self.log_keeper.end();
    }

    /// Gives back the pages and the heads that are in memory; whoever comes next reads them again.
    fn rest(&mut self, asked: Vec<Job>) {
        if let Some(heads) = &mut self.heads {
            heads.clear();
        }
        let rested = shrink(&self.connection);
        for job in asked {
            match (&rested, job) {
                (Err(error), job) => job.fail(error.again()),
                (Ok(()), Job::Rest { answer }) => drop(answer.send(Ok(()))),
                (Ok(()), Job::Append { .. } | Job::Transact { .. }) => {}
            }
        }
    }

    /// Commits a group and answers it. Where a job fails, the group is undone, and its jobs are committed one by one.
    fn write(&mut self, mut group: Vec<Job>) {
        if !self.reserve.is_held() {
            group = without_mutations(group, &LedgerError::Unavailable(FULL.into()));
        }
        if group.is_empty() {
            return;
        }
        match self.commit(&group) {
            Ok(done) => {
                self.fails.store(false, Ordering::Release);
                self.tell_newest();
                group.into_iter().zip(done).for_each(|(job, done)| job.answer(done));
            }
            Err(Fault::Store(error)) if is_full(&error) && self.reserve.release() => {
                // The room that was kept is for those who look.
                let looks = without_mutations(group, &error);
                self.write(looks);
            }
            Err(Fault::Store(error)) => {
                self.fails.store(true, Ordering::Release);
                tracing::error!(error = &error as &dyn std::error::Error, jobs = group.len(), "a commit failed");
                for job in group {
                    job.fail(error.again());
                }
            }
            Err(Fault::Job(error)) => {
                let alone = group.len() == 1;
                for job in group {
                    if alone { job.fail(error.again()) } else { self.write(vec![job]) }
                }
            }
        }
    }

    fn tell_newest(&self) {
        let position = self.heads.as_ref().map_or(0, |heads| heads.position);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, position.max(*newest)) < position);
    }

    fn commit(&mut self, group: &[Job]) -> Result<Vec<Done>, Fault> {
        let mut heads = match self.heads.take() {
            Some(heads) => heads,
            None => Heads::load(&self.connection).map_err(Fault::Store)?,
        };
        match carry_out(&self.connection, &mut heads, group) {
            Ok(done) => {
                heads.shrink();
                self.heads = Some(heads);
                Ok(done)
            }
            Err(fault) => {
                // SQLite itself undoes some failures, such as a full disk.
                if !self.connection.is_autocommit()
                    && let Err(error) = self.connection.execute_batch("ROLLBACK")
                {
                    tracing::error!(error = &error as &dyn std::error::Error, "a group could not be undone");
                }
                Err(fault)
            }
        }
    }
}

/// Refuses what changes some tree; the answer is the rest.
fn without_mutations(group: Vec<Job>, error: &LedgerError) -> Vec<Job> {
    let (mutations, rest): (Vec<_>, Vec<_>) = group.into_iter().partition(Job::mutates);
    for job in mutations {
        job.fail(error.again());
    }
    rest
}

fn carry_out(connection: &Connection, heads: &mut Heads, group: &[Job]) -> Result<Vec<Done>, Fault> {
    let store = |error| Fault::Store(failed(error));
    connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut sql| sql.execute([])).map_err(store)?;
    let mut done = Vec::with_capacity(group.len());
    for job in group {
        done.push(job.carry_out(connection, heads).map_err(|error| match error {
            unavailable @ LedgerError::Unavailable(_) => Fault::Store(unavailable),
            error => Fault::Job(error),
        })?);
    }
    heads.store(connection).map_err(store)?;
    let mutates = group.iter().any(Job::mutates);
    if mutates {
        failpoint::hit("ledger.written");
    }
    let committed = connection.prepare_cached("COMMIT").and_then(|mut sql| sql.execute([]));
    committed.inspect_err(end_on_lost_sync).map_err(store)?;
    if mutates {
        failpoint::hit("ledger.committed");
    }
    Ok(done)
}

impl Job {
    /// Whether looks had better go before it.
    fn takes_long(&self) -> bool {
        match self {
            Self::Transact { .. } => true,
            Self::Append { .. } | Self::Rest { .. } => self.mutates(),
        }
    }

    /// Whether the job changes some tree.
    fn mutates(&self) -> bool {
        matches!(self, Self::Append { entries, .. } if entries.iter().any(|entry| !entry.steps.is_empty()))
    }

    /// Writes the job's rows. An error means that part of them may have been written.
    fn carry_out(&self, connection: &Connection, heads: &mut Heads) -> Result<Done> {
        match self {
            Self::Append { entries, .. } => match heads.append_all(connection, entries) {
                Err(LedgerError::NoSuchRun) => Ok(Done::Appended(Err(LedgerError::NoSuchRun))),
                appended => appended.map(|appended| Done::Appended(Ok(appended))),
            },
            Self::Transact { touched, statements, .. } => {
                if let Some(run) = touched {
                    heads.store(connection).map_err(failed)?;
                    heads.forget(run);
                }
                transact(connection, statements).map(Done::Changed)
            }
            // Never in a group.
            Self::Rest { .. } => Ok(Done::Changed(Ok(0))),
        }
    }

    fn answer(self, done: Done) {
        // Who does not wait any more does not hear it.
        match (self, done) {
            (Self::Append { answer, .. }, Done::Appended(appended)) => drop(answer.send(appended)),
            (Self::Transact { answer, .. }, Done::Changed(changed)) => drop(answer.send(changed)),
            // A job's outcome is of its kind; who waited would hear that the writer has ended.
            (Self::Append { .. } | Self::Rest { .. }, Done::Changed(_))
            | (Self::Transact { .. } | Self::Rest { .. }, Done::Appended(_)) => {}
        }
    }

    fn fail(self, error: LedgerError) {
        match self {
            Self::Append { answer, .. } => drop(answer.send(Err(error))),
            Self::Transact { answer, .. } => drop(answer.send(Err(error))),
            Self::Rest { answer } => drop(answer.send(Err(error))),
        }
    }
}

fn transact(connection: &Connection, statements: &[Statement]) -> Result<Result<u64>> {
    let mut first = 0;
    for (index, statement) in statements.iter().enumerate() {
        let changed = match execute(connection, statement.sql, &statement.args).map_err(failed) {
            Ok(changed) => u64::try_from(changed).unwrap_or(0),
            // A statement that fails undoes itself, so that nothing of the job is there yet.
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
