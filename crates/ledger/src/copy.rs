//! Consistent copies of the database while a service writes to it, for backups, and their restore.

use std::collections::BTreeMap;

use model::RunId;

use crate::statement::{RowReader, Select};
use crate::{LedgerError, Result, StoredCheckpoint};

/// The runs that have files, with the number of their newest record.
pub(crate) const RUNS: Select<CopiedRun> = Select {
    sql: "SELECT r.run_id, coalesce(h.head_seq, 0) FROM run r \
    LEFT JOIN run_head h ON h.run_no = r.run_no \
    WHERE r.state NOT IN ('preparing', 'deleted') AND r.base_commit IS NOT NULL ORDER BY r.run_no",
    read: run,
};
/// The newest checkpoint.
pub(crate) const CHECKPOINT: Select<StoredCheckpoint> =
    Select { sql: "SELECT size, position, note FROM checkpoint ORDER BY size DESC LIMIT 1", read: checkpoint };
/// All settings. They are few, and small.
pub(crate) const SETTINGS: Select<(String, String)> =
    Select { sql: "SELECT name, value FROM setting ORDER BY name", read: |row| Ok((row.text(0)?, row.text(1)?)) };
/// The value of the setting [`INSTANCE`](crate::INSTANCE).
pub(crate) const INSTANCE_NAME: Select<String> =
    Select { sql: "SELECT value FROM setting WHERE name = 'instance'", read: |row| row.text(0) };

/// What a copy of the database contains, read from the same snapshot as the copy.
#[derive(Clone, Debug, Default)]
pub struct DatabaseCopy {
    /// The runs that have files: those that are neither preparing nor deleted.
    pub runs: Vec<CopiedRun>,
    /// The newest checkpoint.
    pub checkpoint: Option<StoredCheckpoint>,
    /// The settings by their names.
    pub settings: BTreeMap<String, String>,
}

/// A run in a copy of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRun {
    /// The run.
    pub run: RunId,
    /// The number of its newest record in the copy.
    pub head_seq: u64,
}

/// A database that a copy may be restored into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreTarget {
    /// It does not exist (SQLite), or has no tables (PostgreSQL).
    Empty,
    /// It has tables.
    Used {
        /// The value of the setting [`INSTANCE`](crate::INSTANCE), if it is a database of this program.
        instance: Option<String>,
    },
}

/// An invalid ID is an error: the run would be missing from the backup.
fn run(row: &dyn RowReader) -> Result<CopiedRun> {
    let run = RunId::parse(&row.text(0)?).map_err(|error| LedgerError::Internal(Box::new(error)))?;
    Ok(CopiedRun { run, head_seq: u64::try_from(row.int(1)?).unwrap_or(0) })
}

fn checkpoint(row: &dyn RowReader) -> Result<StoredCheckpoint> {
    Ok(StoredCheckpoint { size: u64::try_from(row.int(0)?).unwrap_or(0), position: row.int(1)?, note: row.text(2)? })
}
