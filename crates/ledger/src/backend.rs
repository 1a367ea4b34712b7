//! What the two databases have in common, so that all but appending is written once.

use std::future::Future;

use model::RunId;
use tokio::sync::watch;

use crate::{AppendedAll, Entry, LedgerError, NewCheckpoint, Page, PageSize, Result, SettledRun};

/// A value for a statement's `$1`, `$2` …
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Int(i64),
    Flag(bool),
    Text(String),
    MaybeText(Option<String>),
    Bytes(Vec<u8>),
}

/// A statement that both databases understand, with its values.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) sql: &'static str,
    pub(crate) args: Vec<Arg>,
    /// Whether the transaction ends without a change where this statement changes nothing.
    pub(crate) required: bool,
}

/// A row of an answer, read by the place of its columns.
pub(crate) trait Columns {
    fn int(&self, column: usize) -> Result<i64>;
    fn flag(&self, column: usize) -> Result<bool>;
    fn text(&self, column: usize) -> Result<String>;
    fn maybe_text(&self, column: usize) -> Result<Option<String>>;
    fn bytes(&self, column: usize) -> Result<Vec<u8>>;
    fn maybe_bytes(&self, column: usize) -> Result<Option<Vec<u8>>>;
    fn maybe_int(&self, column: usize) -> Result<Option<i64>>;
}

/// The columns of a list, by the names that its query gives them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageColumns {
    /// What the rows are in the order of.
    pub(crate) order: &'static str,
    /// The texts that make a row large.
    pub(crate) texts: &'static [&'static str],
}

impl PageColumns {
    /// Those of `position, body`.
    pub(crate) const RECORDS: Self = Self { order: "position", texts: &["body"] };
    /// Those of a run.
    pub(crate) const RUNS: Self = Self { order: "run_no", texts: &["body", "import_report", "mount_paths"] };
    /// Those of an approval.
    pub(crate) const APPROVALS: Self = Self { order: "approval_no", texts: &["body"] };
    /// Those of an approval, by the end of its time.
    pub(crate) const LAPSED: Self = Self { order: "expires_at", texts: &["body"] };
}

/// One database.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Appends all or none, in a group with whatever else waits.
    fn append(&self, entries: Vec<Entry>) -> impl Future<Output = Result<AppendedAll>> + Send;

    /// Rows of one consistent state.
    fn fetch<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        args: Vec<Arg>,
        read: fn(&dyn Columns) -> Result<T>,
    ) -> impl Future<Output = Result<Vec<T>>> + Send;

    /// The first rows of one consistent state, until a page of `size` is full. `sql` asks for one row more than that.
    fn fetch_page<T: Send + 'static>(
        &self,
        sql: impl Into<String> + Send,
        args: Vec<Arg>,
        read: fn(&dyn Columns) -> Result<T>,
        size: PageSize,
        columns: PageColumns,
    ) -> impl Future<Output = Result<Page<T>>> + Send;

    /// Carries `statements` out in one transaction and tells how many rows the first one changed. `touched` is the run whose
    /// head they may change.
    fn transact(&self, touched: Option<RunId>, statements: Vec<Statement>) -> impl Future<Output = Result<u64>> + Send;

    /// See [`Ledger::settled_run`](crate::Ledger::settled_run).
    fn settled_run(&self, run: &RunId) -> impl Future<Output = Result<Option<SettledRun>>> + Send;

    /// From here on commits are refused where the database has another instance's name than `instance`.
    fn fence(&self, instance: &str);

    /// Forgets the steps of these records.
    fn prune(&self, done: Vec<(RunId, u64)>) -> impl Future<Output = Result<()>> + Send;

    /// Appends a checkpoint with its leaves.
    fn append_checkpoint(&self, round: NewCheckpoint) -> impl Future<Output = Result<()>> + Send;

    /// The position of the newest record.
    fn newest_position(&self) -> watch::Receiver<i64>;

    /// Whether the store answers, and takes what is committed as far as that is known.
    fn ping(&self) -> impl Future<Output = Result<()>> + Send;

    /// Gives back memory that is held for speed alone.
    fn rest(&self) -> impl Future<Output = Result<()>> + Send;

    /// Lets what was handed in become durable, then ends.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

impl Statement {
    pub(crate) fn new<const N: usize>(sql: &'static str, args: [Arg; N]) -> Self {
        Self { sql, args: args.into(), required: false }
    }

    /// The same, but nothing is changed where this statement changes nothing.
    pub(crate) fn required(self) -> Self {
        Self { required: true, ..self }
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self::Int(to_int(value))
    }
}

impl From<bool> for Arg {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<&str> for Arg {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Arg {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Option<String>> for Arg {
    fn from(value: Option<String>) -> Self {
        Self::MaybeText(value)
    }
}

impl From<Option<&str>> for Arg {
    fn from(value: Option<&str>) -> Self {
        Self::MaybeText(value.map(str::to_owned))
    }
}

impl From<&model::Sha256> for Arg {
    fn from(value: &model::Sha256) -> Self {
        Self::Bytes(value.as_bytes().to_vec())
    }
}

/// A count as databases keep it; they know no unsigned numbers.
pub(crate) fn to_int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count as a database kept it.
pub(crate) fn to_count(int: i64) -> u64 {
    u64::try_from(int).unwrap_or(0)
}

/// A stored value that this program cannot have written.
pub(crate) fn damaged(what: &str) -> LedgerError {
    LedgerError::Internal(format!("a stored {what} cannot be read").into())
}
