//! Reading all tables of a database for a transfer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use tokio::sync::mpsc::Sender;

use super::connection::{failed, fetch};
use super::{connection, copy};
use crate::transfer::{ColumnType, TransferPart, TransferTable};
use crate::{LedgerError, Result};

/// The tables, without SQLite's own and the list of applied migrations, which belongs to each database.
const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
    AND name <> 'schema_migration' ORDER BY name";
const COLUMNS: &str = "SELECT name FROM pragma_table_info($1)";
/// The tables that a table refers to.
const REFERENCED: &str = "SELECT DISTINCT \"table\" FROM pragma_foreign_key_list($1)";
/// How many bytes of rows are sent at a time, apart from the last row.
const CHUNK_BYTES: usize = 1 << 20;

/// A database to transfer, locked until it is dropped, as of one moment.
pub(crate) struct LockedSource {
    connection: Connection,
    #[expect(dead_code, reason = "held for its drop")]
    lock: File,
}

/// The tables of a database, each after those that it refers to.
pub(crate) struct SourceTables {
    /// The names in the order in which they can be written.
    pub(crate) order: Vec<String>,
    pub(crate) columns: BTreeMap<String, BTreeSet<String>>,
}

impl LockedSource {
    /// Locks and opens the database at `path`.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        blocking(move || {
            let lock = connection::lock(&path)?;
            copy::check(&path)?;
            let connection = connection::reader(&path)?;
            connection.execute_batch("BEGIN").map_err(failed)?;
            Ok(Self { connection, lock })
        })
        .await
    }

    /// Returns the tables. Blocks for a moment.
    pub(crate) fn tables(&self) -> Result<SourceTables> {
        let names = fetch(&self.connection, TABLES, &[], |row| row.text(0))?;
        let (mut columns, mut referenced) = (BTreeMap::new(), BTreeMap::new());
        for name in &names {
            let of = |sql| fetch(&self.connection, sql, &[name.as_str().into()], |row| row.text(0));
            columns.insert(name.clone(), of(COLUMNS)?.into_iter().collect());
            referenced.insert(name.clone(), of(REFERENCED)?);
        }
        let (mut order, mut rest) = (Vec::new(), names);
        while !rest.is_empty() {
            let is_ready = |name: &mut String| {
                referenced[name.as_str()].iter().all(|other| other == name || order.contains(other))
            };
            let ready: Vec<String> = rest.extract_if(.., is_ready).collect();
            if ready.is_empty() {
                return Err(LedgerError::Internal(format!("the tables {rest:?} refer to each other").into()));
            }
            order.extend(ready);
        }
        Ok(SourceTables { order, columns })
    }

    /// Sends the rows of `tables`, in that order. Ends early if nobody receives them any more.
    pub(crate) async fn send(self, tables: Vec<TransferTable>, to: Sender<TransferPart>) -> Result<()> {
        blocking(move || tables.iter().try_for_each(|table| self.send_table(table, &to))).await
    }

    fn send_table(&self, table: &TransferTable, to: &Sender<TransferPart>) -> Result<()> {
        let send = |part| to.blocking_send(part).map_err(|_| LedgerError::Unavailable("the transfer has ended".into()));
        let sql = format!("SELECT {} FROM \"{}\"", table.column_names(), table.name);
        let mut statement = self.connection.prepare(&sql).map_err(failed)?;
        let mut rows = statement.raw_query();
        let (mut chunk, mut count) = (Vec::new(), 0);
        while let Some(row) = rows.next().map_err(failed)? {
            encode(table, row, &mut chunk)?;
            count += 1;
            if chunk.len() >= CHUNK_BYTES {
                send(TransferPart::Rows(std::mem::take(&mut chunk)))?;
            }
        }
        send(TransferPart::Rows(chunk))?;
        send(TransferPart::End(count))
    }
}

/// Appends a row in the binary format of `COPY`: the number of columns, and the length and bytes of each value.
fn encode(table: &TransferTable, row: &Row<'_>, to: &mut Vec<u8>) -> Result<()> {
    let columns = i16::try_from(table.columns.len()).unwrap_or(i16::MAX);
    to.extend_from_slice(&columns.to_be_bytes());
    for (index, (column, of_type)) in table.columns.iter().enumerate() {
        let unfit = |why: &str| LedgerError::Internal(format!("a value of {}.{column} {why}", table.name).into());
        let mut put = |bytes: &[u8]| {
            let length = i32::try_from(bytes.len()).map_err(|_| unfit("is too large"))?;
            to.extend_from_slice(&length.to_be_bytes());
            to.extend_from_slice(bytes);
            Ok(())
        };
        match (row.get_ref(index).map_err(failed)?, of_type) {
            (ValueRef::Null, _) => to.extend_from_slice(&(-1_i32).to_be_bytes()),
            (ValueRef::Integer(value), ColumnType::Int) => put(&value.to_be_bytes())?,
            (ValueRef::Integer(value @ (0 | 1)), ColumnType::Bool) => put(&[u8::from(value == 1)])?,
            (ValueRef::Text(text), ColumnType::Text) if text.contains(&0) => {
                return Err(unfit("contains a NUL, which PostgreSQL does not store in a text"));
            }
            (ValueRef::Text(text), ColumnType::Text) => put(text)?,
            (ValueRef::Blob(bytes), ColumnType::Bytes) => put(bytes)?,
            _ => return Err(unfit("has another type than its column")),
        }
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| LedgerError::Internal(Box::new(error)))?
}
