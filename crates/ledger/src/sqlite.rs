//! SQLite: one writer, a few readers beside it, and a thread that copies the log back.
//!
//! Who hands in while nobody writes, writes: to change to another thread and back takes as long as half a commit. What has
//! come together meanwhile is committed as groups by a thread of its own.
//!
//! The log is written ahead and synced with every commit. A sync that fails leaves unknown what the disk holds, and a second
//! try may be told a lie, so the process ends there and recovers at its next start.

mod append;
mod convert;
mod log;
mod open;
mod readers;
mod reserve;
mod turns;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use tokio::sync::{mpsc, oneshot, watch};

use self::convert::is_full;
use self::log::LogKeeper;
use self::readers::Readers;
use self::reserve::Reserve;
use self::turns::Turns;
use self::writer::{Job, Writer};
use crate::backend::{Arg, Backend, Columns, PageColumns, Statement};
use crate::store::STEPS_OF_RUN;
use crate::{AppendedAll, Entry, LedgerError, NewCheckpoint, Page, PageSize, Result, SettledRun, rows};

/// Jobs that may wait for the writer; who comes later waits to hand in.
const MAX_WAITING: usize = 1024;
/// Records whose steps are forgotten in one job: others wait meanwhile, and nobody waits for this.
const FORGOTTEN_TOGETHER: usize = 64;
const FORGET: &str = "DELETE FROM step WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1) \
    AND seq IN (SELECT value FROM json_each($2))";

/// Changes something, so that there is something to commit.
const PROBE: &str = "INSERT INTO setting (name, value) VALUES ('probe', '0') \
    ON CONFLICT (name) DO UPDATE SET value = CASE value WHEN '0' THEN '1' ELSE '0' END";

/// A ledger in one file, with the only process that uses it.
pub(crate) struct Sqlite {
    turns: Turns,
    readers: Readers,
    newest: watch::Receiver<i64>,
    /// Whether the last commit failed.
    fails: Arc<AtomicBool>,
}

impl Sqlite {
    /// Opens or makes the database at `path`, with its folder. Blocks.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let lock = open::lock(path)?;
        let opened = match open::up_to_date(path) {
            Err(error) if is_full(&error) && reserve::give_up(path) => open::up_to_date(path),
            opened => opened,
        };
        let (jobs, receiver) = mpsc::channel(MAX_WAITING);
        let (writer, newest) = Writer::new(opened?, Reserve::new(path), LogKeeper::start(path)?, receiver)?;
        let fails = writer.fails();
        Ok(Self { turns: Turns::start(writer, jobs, lock)?, readers: Readers::new(path), newest, fails })
    }

    async fn hand_in<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job + Send) -> Result<T> {
        let ended = || LedgerError::Unavailable("the ledger has been closed".into());
        let (answer, answered) = oneshot::channel();
        self.turns.take(job(answer)).await.map_err(|_| ended())?;
        // It may have been written before the writer ended.
        answered.await.map_err(|_| LedgerError::InDoubt("the ledger's writer has ended".into()))?
    }
}

impl Backend for Sqlite {
    async fn append(&self, entries: Vec<Entry>) -> Result<AppendedAll> {
        self.hand_in(|answer| Job::Append { entries, answer }).await
    }

    async fn fetch<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        args: Vec<Arg>,
        read: fn(&dyn Columns) -> Result<T>,
    ) -> Result<Vec<T>> {
        let sql = sql.into();
        self.readers.with(move |connection| convert::fetch(connection, &sql, &args, read)).await
    }

    async fn fetch_page<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        args: Vec<Arg>,
        read: fn(&dyn Columns) -> Result<T>,
        size: PageSize,
        _columns: PageColumns,
    ) -> Result<Page<T>> {
        let sql = sql.into();
        self.readers.with(move |connection| convert::fetch_page(connection, &sql, &args, read, size)).await
    }

    async fn transact(&self, touched: Option<RunId>, statements: Vec<Statement>) -> Result<u64> {
        self.hand_in(|answer| Job::Transact { touched, statements, answer }).await
    }

    /// Nothing has to be waited for: the outcome of each commit is known to this process, which is the only one that has the
    /// file open, before anybody is answered.
    async fn settled_run(&self, run: &RunId) -> Result<Option<SettledRun>> {
        let Some((_, stored)) = self.fetch(rows::RUN, vec![run.as_str().into()], rows::run).await?.pop() else {
            return Ok(None);
        };
        let steps = self.fetch(STEPS_OF_RUN, vec![run.as_str().into()], rows::step).await?;
        Ok(Some(SettledRun { stored, journal: rows::by_record(steps) }))
    }

    fn fence(&self, _instance: &str) {
        // The lock on the file keeps other processes from it.
    }

    async fn prune(&self, done: Vec<(RunId, u64)>) -> Result<()> {
        for some in done.chunks(FORGOTTEN_TOGETHER) {
            let mut runs = BTreeMap::<_, Vec<_>>::new();
            for (run, seq) in some {
                runs.entry(run.as_str()).or_default().push(*seq);
            }
            let of_run =
                |(run, seqs): (&str, Vec<u64>)| Ok(Statement::new(FORGET, [run.into(), rows::to_json(&seqs)?.into()]));
            self.transact(None, runs.into_iter().map(of_run).collect::<Result<_>>()?).await?;
        }
        Ok(())
    }

    async fn append_checkpoint(&self, round: NewCheckpoint) -> Result<()> {
        self.transact(None, round.statements()).await.map(drop)
    }

    fn newest_position(&self) -> watch::Receiver<i64> {
        self.newest.clone()
    }

    async fn ping(&self) -> Result<()> {
        self.fetch("SELECT 1", Vec::new(), |_| Ok(())).await?;
        if self.fails.load(Ordering::Acquire) {
            // Whether commits go through again is shown by one.
            self.transact(None, vec![Statement::new(PROBE, [])]).await?;
        }
        Ok(())
    }

    async fn rest(&self) -> Result<()> {
        self.readers.rest().await?;
        self.hand_in(|answer| Job::Rest { answer }).await
    }

    async fn close(&self) {
        self.readers.close();
        self.turns.end().await;
    }
}
