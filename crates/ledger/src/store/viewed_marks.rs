//! Which versions of files reviewers have viewed. Nothing is decided by them, so that they are no records.

use async_trait::async_trait;
use model::{LogicalPath, RunId, Sha256, ViewedMark};

use super::Store;
use crate::backend::Backend;
use crate::statement::{PageColumns, Param, Select, Statement, damaged};
use crate::{LedgerError, PageSize, Result};

/// The most marks of an operator. Beyond that, its oldest ones are deleted.
pub const MAX_VIEWED_MARKS: u32 = 5000;
/// The most marks of a list: the newest ones.
const MAX_LISTED: PageSize = PageSize { rows: 3000, bytes: 1 << 20 };

/// Sets the mark of the operator `$1` in the run `$2`.
const SET: &str = "INSERT INTO viewed_mark (operator, run_no, path_sha256, path, version, viewed_at) \
    SELECT $1, run_no, $3, $4, $5, $6 FROM run WHERE run_id = $2 AND state <> 'deleted' \
    ON CONFLICT (run_no, operator, path_sha256) DO UPDATE SET version = excluded.version, viewed_at = excluded.viewed_at";
const UNSET: &str = "DELETE FROM viewed_mark WHERE operator = $1 AND path_sha256 = $3 \
    AND run_no = (SELECT run_no FROM run WHERE run_id = $2)";
/// Deletes what the operator has beyond its newest `$2` marks.
const TRIM: &str = "DELETE FROM viewed_mark WHERE operator = $1 AND mark_no <= \
    (SELECT mark_no FROM viewed_mark WHERE operator = $1 ORDER BY mark_no DESC LIMIT 1 OFFSET $2)";
/// Deletes the marks of all operators in a run.
pub(crate) const DELETE_OF_RUN: &str =
    "DELETE FROM viewed_mark WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";
const LIST: Select<ViewedMark> = Select {
    sql: "SELECT path, version, viewed_at, mark_no FROM viewed_mark \
        WHERE run_no = (SELECT run_no FROM run WHERE run_id = $2) AND operator = $1 ORDER BY mark_no DESC LIMIT $3",
    read: |row| {
        let path = LogicalPath::parse(&row.text(0)?).map_err(|_| damaged("viewed path"))?;
        Ok(ViewedMark { path, version: row.text(1)?, viewed_at: row.text(2)? })
    },
};

/// The part of the ledger that has the marks of reviewers. Every method is one transaction.
#[async_trait]
pub trait ViewedMarks: Send + Sync {
    /// Returns the newest marks of `operator` in a run, the newest first.
    async fn viewed_marks(&self, operator: &str, run: &RunId) -> Result<Vec<ViewedMark>>;
    /// Sets a mark, which replaces that of the same path. Marks of the operator beyond [`MAX_VIEWED_MARKS`] go, the oldest first.
    ///
    /// # Errors
    ///
    /// `NoSuchRun`, also if the run is deleted.
    async fn set_viewed_mark(&self, operator: &str, run: &RunId, mark: &ViewedMark) -> Result<()>;
    /// Removes a mark, if there is one.
    async fn remove_viewed_mark(&self, operator: &str, run: &RunId, path: &LogicalPath) -> Result<()>;
}

fn hash_of(path: &LogicalPath) -> Param<'static> {
    Param::from(&Sha256::of(path.as_str().as_bytes()))
}

#[async_trait]
impl<B: Backend> ViewedMarks for Store<B> {
    async fn viewed_marks(&self, operator: &str, run: &RunId) -> Result<Vec<ViewedMark>> {
        let params = vec![operator.into(), run.as_str().into(), Param::Int(MAX_LISTED.query_limit())];
        let columns = PageColumns::ascending("mark_no", &["path"]).in_direction(true);
        Ok(self.0.fetch_page(LIST.sql, params, LIST.read, MAX_LISTED, columns).await?.items)
    }

    async fn set_viewed_mark(&self, operator: &str, run: &RunId, mark: &ViewedMark) -> Result<()> {
        let ViewedMark { path, version, viewed_at } = mark;
        let set = [
            operator.into(),
            run.as_str().into(),
            hash_of(path),
            path.as_str().into(),
            version.as_str().into(),
            viewed_at.as_str().into(),
        ];
        let trim = Statement::new(TRIM, [operator.into(), i64::from(MAX_VIEWED_MARKS).into()]);
        match self.0.transact(None, vec![Statement::new(SET, set), trim]).await? {
            0 => Err(LedgerError::NoSuchRun),
            _ => Ok(()),
        }
    }

    async fn remove_viewed_mark(&self, operator: &str, run: &RunId, path: &LogicalPath) -> Result<()> {
        let unset = Statement::new(UNSET, [operator.into(), run.as_str().into(), hash_of(path)]);
        self.0.transact(None, vec![unset]).await.map(drop)
    }
}
