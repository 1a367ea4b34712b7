//! A database file as parts at rest: read from one moment, and written into a new file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row};
use tokio::task::block_in_place;

use super::connection::{self, failed, fetch, select, unavailable, with_suffix};
use crate::dump::{
    self, ColumnKind, DatabaseLoad, DatabaseSnapshot, Dialect, DumpColumn, DumpPart, DumpReader, RowCounts,
    SnapshotContents, TABLES, TableColumns, begin_row, put, values,
};
use crate::migrate::{self, Migration};
use crate::{LedgerError, Result};

/// The tables, without SQLite's own and the list of applied migrations, which belongs to each database.
const NAMES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
    AND name <> 'schema_migration'";
const COLUMNS: &str = "SELECT name, type FROM pragma_table_info($1) ORDER BY cid";
/// The indexes that can be made again once the rows are there, which is faster.
const INDEXES: &str = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL";

/// A database as of one moment.
pub(crate) struct SqliteSnapshot {
    connection: Connection,
    contents: SnapshotContents,
    columns: TableColumns,
    written: RowCounts,
}

/// A new database that is being written.
pub(crate) struct SqliteLoad {
    connection: Connection,
    path: PathBuf,
    columns: TableColumns,
    indexes: Vec<(String, String)>,
    loaded: RowCounts,
}

/// Fails if the database at `path` has another schema than this program. Blocks.
pub(crate) fn check(path: &Path) -> Result<()> {
    check_schema(&connection::reader(path)?)
}

fn check_schema(connection: &Connection) -> Result<()> {
    let applied = select(connection, &migrate::LIST)?;
    if migrate::missing(migrate::SQLITE, &applied)?.is_empty() {
        return Ok(());
    }
    Err(LedgerError::Internal(migrate::OLDER.into()))
}

impl SqliteSnapshot {
    /// Begins a read transaction, which in write-ahead mode stops no commit. The log cannot be reset until it ends. Blocks.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let connection = connection::reader(path)?;
        connection.execute_batch("BEGIN").map_err(failed)?;
        check_schema(&connection)?;
        let contents = SnapshotContents {
            runs: select(&connection, &dump::RUNS)?,
            checkpoint: select(&connection, &dump::CHECKPOINT)?.pop(),
            settings: select(&connection, &dump::SETTINGS)?.into_iter().collect(),
        };
        let columns = columns(&connection)?;
        dump::check_tables(&columns)?;
        Ok(Self { connection, contents, written: dump::no_rows(&columns), columns })
    }

    /// Writes a part. Blocks.
    fn write_part(&mut self, part: DumpPart<'_>, to: &mut dyn Write) -> Result<()> {
        for table in TABLES {
            let columns = &self.columns[table.name];
            let Some(sql) = table.select(part, columns, Dialect::Sqlite) else { continue };
            let mut statement = self.connection.prepare(&sql).map_err(failed)?;
            let (mut rows, mut bytes, mut count) = (statement.raw_query(), Vec::new(), 0);
            while let Some(row) = rows.next().map_err(failed)? {
                if count == 0 {
                    table.begin(columns, to)?;
                }
                encode(row, columns.len(), &mut bytes)?;
                to.write_all(&bytes).map_err(dump::io_failed)?;
                count += 1;
            }
            if count > 0 {
                dump::end_table(to)?;
            }
            *self.written.entry(table.name.to_owned()).or_default() += count;
        }
        Ok(())
    }
}

#[async_trait]
impl DatabaseSnapshot for SqliteSnapshot {
    fn contents(&self) -> &SnapshotContents {
        &self.contents
    }

    async fn write(&mut self, part: DumpPart<'_>, to: &mut (dyn Write + Send)) -> Result<()> {
        block_in_place(|| self.write_part(part, to))
    }

    async fn finish(self: Box<Self>) -> Result<SnapshotContents> {
        block_in_place(|| dump::check_counts(&self.written, &counts(&self.connection, &self.columns)?))?;
        Ok(self.contents)
    }
}

/// Replaces `bytes` by a row.
fn encode(row: &Row<'_>, columns: usize, bytes: &mut Vec<u8>) -> Result<()> {
    bytes.clear();
    begin_row(columns, bytes);
    for index in 0..columns {
        match row.get_ref(index).map_err(failed)? {
            ValueRef::Null => put(None, bytes)?,
            ValueRef::Integer(value) => put(Some(&value.to_be_bytes()), bytes)?,
            ValueRef::Text(value) | ValueRef::Blob(value) => put(Some(value), bytes)?,
            ValueRef::Real(_) => return Err(LedgerError::Internal("a value has the type of no column".into())),
        }
    }
    Ok(())
}

impl SqliteLoad {
    /// Creates the file at `path` with the schema after `migrations`. What an interrupted load has left there is replaced. Blocks.
    pub(crate) fn begin(path: &Path, migrations: &'static [Migration]) -> Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder_of(path)).map_err(unavailable)?;
        for suffix in ["-wal", "-shm"] {
            match std::fs::remove_file(with_suffix(path, suffix)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unavailable(error)),
                _ => {}
            }
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(unavailable)?;
        let mut connection = Connection::open(path).map_err(failed)?;
        // The caller begins again if it is interrupted, and the file is synced at the end.
        for (pragma, value) in [("journal_mode", "off"), ("synchronous", "off"), ("cache_size", "-64000")] {
            connection.pragma_update(None, pragma, value).map_err(failed)?;
        }
        connection::migrate(&mut connection, migrations)?;
        let columns = columns(&connection)?;
        let indexes = fetch(&connection, INDEXES, &[], |row| Ok((row.text(0)?, row.text(1)?)))?;
        for (name, _) in &indexes {
            connection.execute_batch(&format!("DROP INDEX \"{name}\"")).map_err(failed)?;
        }
        connection.execute_batch("BEGIN").map_err(failed)?;
        Ok(Self { connection, path: path.to_owned(), loaded: dump::no_rows(&columns), columns, indexes })
    }

    fn read_part(&mut self, from: &mut dyn Read) -> Result<()> {
        let (mut from, mut row) = (DumpReader::new(from, &self.columns), Vec::new());
        while let Some(mut table) = from.next_table()? {
            let places: Vec<_> = (1..=table.columns.len()).map(|number| format!("?{number}")).collect();
            let (name, columns, places) = (table.name, table.quoted_columns(), places.join(", "));
            let sql = format!("INSERT INTO \"{name}\" ({columns}) VALUES ({places})");
            let mut insert = self.connection.prepare_cached(&sql).map_err(failed)?;
            let loaded = self.loaded.entry(name.to_owned()).or_default();
            while from.next_row(&mut table, &mut row)? {
                for (index, (value, column)) in values(&row).zip(&table.columns).enumerate() {
                    let value = value.map_or(Ok(ValueRef::Null), |value| decode(value, column.kind))?;
                    insert.raw_bind_parameter(index + 1, ToSqlOutput::Borrowed(value)).map_err(failed)?;
                }
                insert.raw_execute().map_err(failed)?;
                *loaded += 1;
            }
        }
        Ok(())
    }

    /// Makes the indexes, and syncs the file.
    fn complete(self) -> Result<RowCounts> {
        dump::check_counts(&self.loaded, &counts(&self.connection, &self.columns)?)?;
        for (_, sql) in &self.indexes {
            self.connection.execute_batch(sql).map_err(failed)?;
        }
        self.connection.execute_batch("COMMIT").map_err(failed)?;
        self.connection.close().map_err(|(_, error)| failed(error))?;
        let synced = File::open(&self.path).and_then(|file| file.sync_all());
        synced.and_then(|()| File::open(folder_of(&self.path))?.sync_all()).map_err(unavailable)?;
        Ok(self.loaded)
    }
}

#[async_trait]
impl DatabaseLoad for SqliteLoad {
    async fn read(&mut self, from: &mut (dyn Read + Send)) -> Result<()> {
        block_in_place(|| self.read_part(from))
    }

    async fn finish(self: Box<Self>) -> Result<RowCounts> {
        block_in_place(|| self.complete())
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a value of a column.
fn decode(value: &[u8], kind: ColumnKind) -> Result<ValueRef<'_>> {
    Ok(match kind {
        ColumnKind::Text => ValueRef::Text(value),
        ColumnKind::Bytes => ValueRef::Blob(value),
        ColumnKind::Integer | ColumnKind::Boolean => {
            let wrong = |error: std::array::TryFromSliceError| LedgerError::Internal(Box::new(error));
            ValueRef::Integer(i64::from_be_bytes(value.try_into().map_err(wrong)?))
        }
    })
}

/// Returns the columns of each table.
fn columns(connection: &Connection) -> Result<TableColumns> {
    let mut columns = TableColumns::new();
    for name in fetch(connection, NAMES, &[], |row| row.text(0))? {
        let read =
            fetch(connection, COLUMNS, &[name.as_str().into()], |row| DumpColumn::new(row.text(0)?, &row.text(1)?))?;
        columns.insert(name, read);
    }
    Ok(columns)
}

/// Counts the rows of each table.
fn counts(connection: &Connection, columns: &TableColumns) -> Result<RowCounts> {
    let count = |name: &String| {
        let rows = fetch(connection, &format!("SELECT count(*) FROM \"{name}\""), &[], |row| row.int(0))?;
        Ok((name.clone(), rows.first().map_or(0, |count| u64::try_from(*count).unwrap_or(0))))
    };
    columns.keys().map(count).collect()
}

#[cfg(test)]
mod tests {
    use model::{RunId, Sha256};

    use super::*;
    use crate::CopiedRun;
    use crate::dump::tests::{NAME, NEWER, load_older};

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_of_an_older_schema_are_loaded_into_its_tables_and_migrated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        load_older(Box::new(SqliteLoad::begin(&path, &NEWER[..1]).unwrap())).await;
        let mut loaded = Connection::open(&path).unwrap();
        connection::migrate(&mut loaded, NEWER).unwrap();
        let name: String = loaded.query_row(NAME, [], |row| row.get(0)).unwrap();
        assert_eq!(name, "desk");
    }

    #[test]
    fn no_part_sorts_the_rows_of_records_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        SqliteLoad::begin(&path, migrate::SQLITE).unwrap().complete().unwrap();
        let connection = connection::reader(&path).unwrap();
        let run = CopiedRun { run: RunId::parse("r").unwrap(), head_seq: 1, head_hash: Sha256::ZERO, run_no: 1 };
        let columns = columns(&connection).unwrap();
        let large = ["audit_record", "record_path", "call_reply", "artifact", "upload", "content"];
        for table in TABLES.iter().filter(|table| large.contains(&table.name)) {
            for part in [DumpPart::Run(&run), DumpPart::Service] {
                let sql = format!(
                    "EXPLAIN QUERY PLAN {}",
                    table.select(part, &columns[table.name], Dialect::Sqlite).unwrap()
                );
                let steps = fetch(&connection, &sql, &[], |row| row.text(3)).unwrap();
                assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
            }
        }
    }
}
