//! A database at rest: the rows of its tables, in parts that either database writes and either reads.
//!
//! A part has the rows of one run, or all other rows. It is a sequence of tables, each a line of JSON with the names of the table and its
//! columns, its rows as PostgreSQL's binary `COPY` has them, and that format's end. A Boolean is the integer 0 or 1, as in SQLite.
//! Together, the parts of a [`DatabaseSnapshot`] have each row exactly once, also those that belong to no run.

mod reader;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use async_trait::async_trait;
use model::{RunId, Sha256};
use serde::{Deserialize, Serialize};

pub(crate) use self::reader::{DumpReader, DumpedTable, values};

use crate::statement::{RowReader, Select};
use crate::{LedgerError, Result, StoredCheckpoint, rows};

/// The runs `r` that have a part of their own.
macro_rules! has_part {
    () => {
        "r.state NOT IN ('preparing', 'deleted') AND r.base_commit IS NOT NULL"
    };
}

/// The runs that have files, with the number of their newest record.
pub(crate) const RUNS: Select<CopiedRun> = Select {
    sql: concat!(
        "SELECT r.run_id, r.run_no, coalesce(h.head_seq, 0), h.head_hash FROM run r LEFT JOIN run_head h ON h.run_no = r.run_no WHERE ",
        has_part!(),
        " ORDER BY r.run_no"
    ),
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

/// The rows of a record, in the order of an index: a sort would hold a whole run in memory.
const OF_RECORD: Owner = Owner::Via { parent: "audit_record", on: "t.position = p.position", order: "p.seq" };
/// As [`OF_RECORD`]. The range has an index, and the equality lets PostgreSQL compare large tables as a whole.
const OF_CONTENT: Owner = Owner::Via {
    parent: "audit_record",
    on: "t.content_no >= (p.position << 20) AND t.content_no < ((p.position + 1) << 20) AND p.position = t.content_no >> 20",
    order: "p.seq",
};
const OF_APPROVAL: Owner =
    Owner::Via { parent: "approval", on: "t.approval_id = p.approval_id", order: "p.approval_no" };

/// The tables, each after those of its part that it refers to. The part of the service is read last, since leaves refer to runs.
pub(crate) const TABLES: [DumpTable; 28] = [
    table("setting", Owner::Service, "name"),
    table("node", Owner::Service, "node_id"),
    table("node_role", Owner::Service, "role"),
    table("operator_token", Owner::Service, "operator_no"),
    table("keyed_answer", Owner::Service, "operator, key_sha256"),
    table("checkpoint_node", Owner::Service, "place"),
    table("checkpoint", Owner::Service, "size"),
    table("audit_zone", Owner::Service, "zone"),
    table("webhook", Owner::Service, "name"),
    table("webhook_subscription", Owner::Service, "event_type, webhook"),
    table("webhook_delivery", Owner::Service, "delivery_no"),
    table("stored_object", Owner::Service, "object"),
    table("run", Owner::Run, "run_no"),
    table("run_head", Owner::Run, "run_no"),
    table("token", Owner::Run, "token_id"),
    table("audit_record", Owner::Run, "position"),
    table("record_path", OF_RECORD, "position, path"),
    table("call_reply", OF_RECORD, "position"),
    table("artifact", OF_RECORD, "position"),
    table("upload", OF_RECORD, "position"),
    table("content", OF_CONTENT, "content_no"),
    table("newest_version", Owner::Run, "path_sha256"),
    table("step", Owner::Run, "seq, place"),
    table("approval", Owner::Run, "approval_no"),
    table("approval_vote", OF_APPROVAL, "vote_no"),
    table("checkpoint_leaf", Owner::Service, "leaf_no"),
    table("object_reference", Owner::Run, "object"),
    table("object_path", Owner::Run, "path_sha256"),
];

/// A table, and whose its rows are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpTable {
    pub(crate) name: &'static str,
    owner: Owner,
    /// The columns that order the rows of a part, so that the same rows give the same bytes.
    order: &'static str,
}

/// Whose the rows `t` of a table are.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// No run's.
    Service,
    /// Those of the run in `run_no`.
    Run,
    /// Those of the run in `run_no` of the row `p` of the table `parent`, by the condition `on`. `order` is that of these rows in a run.
    Via { parent: &'static str, on: &'static str, order: &'static str },
}

const fn table(name: &'static str, owner: Owner, order: &'static str) -> DumpTable {
    DumpTable { name, owner, order }
}

/// A database as of one moment, from which its parts are written.
#[async_trait]
pub trait DatabaseSnapshot: Send {
    /// Returns what the snapshot contains.
    fn contents(&self) -> &SnapshotContents;
    /// Writes the rows of `part`. The same rows give the same bytes.
    ///
    /// # Errors
    ///
    /// If the database cannot be read, or `to` not be written.
    async fn write(&mut self, part: DumpPart<'_>, to: &mut (dyn Write + Send)) -> Result<()>;
    /// Ends the snapshot once all parts are written.
    ///
    /// # Errors
    ///
    /// If the database cannot be read, or a row is in no part.
    async fn finish(self: Box<Self>) -> Result<SnapshotContents>;
}

/// An empty database into which parts are read. All or nothing: until it has [finished](Self::finish), PostgreSQL has nothing of it, and
/// an SQLite file is replaced by the next load.
#[async_trait]
pub trait DatabaseLoad: Send {
    /// Reads a part.
    ///
    /// # Errors
    ///
    /// If `from` cannot be read or is no part, or the database cannot be written.
    async fn read(&mut self, from: &mut (dyn Read + Send)) -> Result<()>;
    /// Completes the database once all parts are read. Returns the numbers of rows by tables, which were compared.
    ///
    /// # Errors
    ///
    /// If the database cannot be written.
    async fn finish(self: Box<Self>) -> Result<BTreeMap<String, u64>>;
}

/// A part of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpPart<'a> {
    /// The rows of a run.
    Run(&'a CopiedRun),
    /// The rows that belong to none of the [runs](SnapshotContents::runs).
    Service,
}

/// What a snapshot of a database contains.
#[derive(Clone, Debug, Default)]
pub struct SnapshotContents {
    /// The runs that have files: those that are neither preparing nor deleted.
    pub runs: Vec<CopiedRun>,
    /// The newest checkpoint.
    pub checkpoint: Option<StoredCheckpoint>,
    /// The settings by their names.
    pub settings: BTreeMap<String, String>,
}

/// A run in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRun {
    /// The run.
    pub run: RunId,
    /// The number of its newest record in the snapshot.
    pub head_seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
    pub(crate) run_no: i64,
}

/// A database that a snapshot may be loaded into.
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

/// The numbers of rows by tables.
pub(crate) type RowCounts = BTreeMap<String, u64>;

/// The columns of the tables of a database, in the order of each table.
pub(crate) type TableColumns = BTreeMap<String, Vec<DumpColumn>>;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DumpColumn {
    pub(crate) name: String,
    pub(crate) kind: ColumnKind,
}

/// The values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Integer,
    /// Only PostgreSQL has it.
    Boolean,
    Text,
    Bytes,
}

/// The database that a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// The line before the rows of a table.
#[derive(Debug, Serialize, Deserialize)]
struct TableHeader {
    table: String,
    columns: Vec<String>,
}

/// What the rows of a table end with.
const END: [u8; 2] = (-1_i16).to_be_bytes();

impl DumpColumn {
    /// Returns the column `name`, whose type either database calls `of_type`.
    pub(crate) fn new(name: String, of_type: &str) -> Result<Self> {
        let kind = match of_type.to_ascii_lowercase().as_str() {
            "integer" | "bigint" => ColumnKind::Integer,
            "boolean" => ColumnKind::Boolean,
            "text" => ColumnKind::Text,
            "blob" | "bytea" => ColumnKind::Bytes,
            _ => return Err(LedgerError::Internal(format!("the column {name} has the unknown type {of_type}").into())),
        };
        Ok(Self { name, kind })
    }

    /// Returns the expression of the column of `t` whose values are as in a part.
    fn value(&self) -> String {
        let cast = if self.kind == ColumnKind::Boolean { "::int::bigint" } else { "" };
        format!("t.\"{}\"{cast}", self.name)
    }
}

impl DumpTable {
    /// Returns the query of the rows of `part`, which have `columns`. `None` if the part has none.
    pub(crate) fn select(self, part: DumpPart<'_>, columns: &[DumpColumn], dialect: Dialect) -> Option<String> {
        let Self { name, owner, order } = self;
        let of_others = "WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.run_no = t.run_no AND";
        let is_text = |name: &str| columns.iter().any(|column| column.name == name && column.kind == ColumnKind::Text);
        // The order of a locale would give other bytes than that of SQLite.
        let term = |column: &str| match dialect {
            Dialect::Postgres if is_text(column) => format!("t.{column} COLLATE \"C\""),
            Dialect::Postgres | Dialect::Sqlite => format!("t.{column}"),
        };
        let mut order = order.split(", ").map(term).collect::<Vec<_>>().join(", ");
        let rows = match (owner, part) {
            (Owner::Service, DumpPart::Run(_)) => return None,
            (Owner::Service, DumpPart::Service) => String::new(),
            (Owner::Run, DumpPart::Run(run)) => {
                // Within a run, positions grow with `seq`, which has the index.
                order = order.replace("position", "seq");
                format!("WHERE t.run_no = {}", run.run_no)
            }
            (Owner::Run, DumpPart::Service) => format!("{of_others} {})", has_part!()),
            (Owner::Via { parent, on, order: of_parent }, DumpPart::Run(run)) => {
                order = format!("{of_parent}, {order}");
                format!("JOIN {parent} p ON {on} WHERE p.run_no = {}", run.run_no)
            }
            (Owner::Via { parent, on, .. }, DumpPart::Service) => format!(
                "WHERE NOT EXISTS (SELECT 1 FROM {parent} p JOIN run r ON r.run_no = p.run_no WHERE {on} AND {})",
                has_part!()
            ),
        };
        let values = columns.iter().map(DumpColumn::value).collect::<Vec<_>>().join(", ");
        Some(format!("SELECT {values} FROM \"{name}\" t {rows} ORDER BY {order}"))
    }

    /// Writes the line before the rows of the table.
    pub(crate) fn begin(self, columns: &[DumpColumn], to: &mut dyn Write) -> Result<()> {
        let columns = columns.iter().map(|column| column.name.clone()).collect();
        let header = TableHeader { table: self.name.to_owned(), columns };
        let line = serde_json::to_string(&header).map_err(|error| LedgerError::Internal(Box::new(error)))?;
        writeln!(to, "{line}").map_err(io_failed)
    }
}

/// Writes what the rows of a table end with.
pub(crate) fn end_table(to: &mut dyn Write) -> Result<()> {
    to.write_all(&END).map_err(io_failed)
}

/// Fails unless `TABLES` has every table of a database with this program's schema. A load has the tables of its rows' schema instead.
pub(crate) fn check_tables(found: &TableColumns) -> Result<()> {
    let is_same = TABLES.len() == found.len() && TABLES.iter().all(|table| found.contains_key(table.name));
    if is_same { Ok(()) } else { Err(LedgerError::Internal("the database has other tables than this program".into())) }
}

/// Returns the number 0 for each table.
pub(crate) fn no_rows(columns: &TableColumns) -> RowCounts {
    columns.keys().map(|table| (table.clone(), 0)).collect()
}

/// Fails unless the database has the numbers of rows that were `counted`.
pub(crate) fn check_counts(counted: &RowCounts, found: &RowCounts) -> Result<()> {
    let Some((table, expected)) = counted.iter().find(|(table, rows)| found.get(*table) != Some(rows)) else {
        return Ok(());
    };
    let rows = found.get(table).copied().unwrap_or(0);
    Err(LedgerError::Internal(format!("the table {table} has {rows} rows and must have {expected}").into()))
}

/// Converts the error of what a part is written to or read from.
pub(crate) fn io_failed(error: io::Error) -> LedgerError {
    LedgerError::Unavailable(Box::new(error))
}

/// Appends the number of a row's values to `row`.
pub(crate) fn begin_row(columns: usize, row: &mut Vec<u8>) {
    row.extend(i16::try_from(columns).unwrap_or(i16::MAX).to_be_bytes());
}

/// Appends a value to `row`; `None` for NULL.
pub(crate) fn put(value: Option<&[u8]>, row: &mut Vec<u8>) -> Result<()> {
    let length = match value {
        None => -1,
        Some(bytes) => i32::try_from(bytes.len()).map_err(|error| LedgerError::Internal(Box::new(error)))?,
    };
    row.extend(length.to_be_bytes());
    row.extend(value.unwrap_or_default());
    Ok(())
}

/// An invalid ID is an error: the run would be missing.
fn run(row: &dyn RowReader) -> Result<CopiedRun> {
    let run = RunId::parse(&row.text(0)?).map_err(|error| LedgerError::Internal(Box::new(error)))?;
    let head_hash = row.maybe_bytes(3)?.map_or(Ok(Sha256::ZERO), |hash| rows::sha256(&hash))?;
    Ok(CopiedRun { run, run_no: row.int(1)?, head_seq: u64::try_from(row.int(2)?).unwrap_or(0), head_hash })
}

fn checkpoint(row: &dyn RowReader) -> Result<StoredCheckpoint> {
    Ok(StoredCheckpoint { size: u64::try_from(row.int(0)?).unwrap_or(0), position: row.int(1)?, note: row.text(2)? })
}
