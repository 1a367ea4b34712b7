//! A database as parts at rest: read from one snapshot, and written into an empty database in one transaction.

use std::io::{Read, Write};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use tokio::task::block_in_place;

use super::connection::failed;
use super::open;
use crate::dump::{
    self, ColumnKind, DatabaseLoad, DatabaseSnapshot, Dialect, DumpColumn, DumpPart, DumpReader, DumpedTable,
    RestoreTarget, RowCounts, SnapshotContents, TABLES, TableColumns, begin_row, put, values,
};
use crate::migrate::Migration;
use crate::statement::{RowReader, Select};
use crate::{LedgerError, Result};

/// Begins the transaction that reads.
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; \
    SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
/// Begins the transaction that writes, which waits while a part is read, and writes large tables.
const BEGIN_WRITE: &str = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
const COLUMNS: &str = "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
    WHERE table_schema = current_schema() AND table_name <> 'schema_migration' ORDER BY table_name, ordinal_position";
/// Counts the tables, views and sequences of a database.
const RELATIONS: &str = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%' AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')";
const HAS_SETTINGS: &str = "SELECT to_regclass('setting') IS NOT NULL";
/// The columns with a sequence of their own, and the sequence.
const IDENTITIES: &str = "SELECT table_name::text, column_name::text, \
    pg_get_serial_sequence(quote_ident(table_schema) || '.' || quote_ident(table_name), column_name) \
    FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'";
/// What a stream in the binary format of `COPY` begins with: signature, flags, length of the extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
const COPY_END: &[u8] = &(-1_i16).to_be_bytes();
/// How many bytes of rows are sent at a time, apart from the last row.
const CHUNK_BYTES: usize = 1 << 20;

/// A database as of one moment.
pub(crate) struct PostgresSnapshot {
    connection: PgConnection,
    contents: SnapshotContents,
    columns: TableColumns,
    written: RowCounts,
}

/// A database that is being written.
pub(crate) struct PostgresLoad {
    connection: PgConnection,
    columns: TableColumns,
    loaded: RowCounts,
}

impl PostgresSnapshot {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let mut connection = connect(url).await?;
        open::check_schema(&mut connection).await?;
        sqlx::raw_sql(BEGIN_READ).execute(&mut connection).await.map_err(failed)?;
        let contents = SnapshotContents {
            runs: fetch(&mut connection, dump::RUNS).await?,
            checkpoint: fetch(&mut connection, dump::CHECKPOINT).await?.pop(),
            settings: fetch(&mut connection, dump::SETTINGS).await?.into_iter().collect(),
        };
        let columns = columns(&mut connection).await?;
        dump::check_tables(&columns)?;
        Ok(Self { connection, contents, written: dump::no_rows(&columns), columns })
    }
}

#[async_trait]
impl DatabaseSnapshot for PostgresSnapshot {
    fn contents(&self) -> &SnapshotContents {
        &self.contents
    }

    async fn write(&mut self, part: DumpPart<'_>, to: &mut (dyn Write + Send)) -> Result<()> {
        // Rows are written in chunks, because each switch to blocking work costs more than a row.
        let mut chunk = Vec::new();
        for table in TABLES {
            let columns = &self.columns[table.name];
            let Some(select) = table.select(part, columns, Dialect::Postgres) else { continue };
            let sql = format!("COPY ({select}) TO STDOUT (FORMAT BINARY)");
            let mut rows = self.connection.copy_out_raw(&sql).await.map_err(failed)?;
            let mut count = 0;
            // Each message has one row; the first also has the header, and the last has the end alone.
            while let Some(message) = rows.try_next().await.map_err(failed)? {
                let row = message.strip_prefix(COPY_HEADER).unwrap_or(&message);
                if row.is_empty() || row == COPY_END {
                    continue;
                }
                if count == 0 {
                    table.begin(columns, &mut chunk)?;
                }
                chunk.extend_from_slice(row);
                count += 1;
                if chunk.len() >= CHUNK_BYTES {
                    block_in_place(|| to.write_all(&chunk)).map_err(dump::io_failed)?;
                    chunk.clear();
                }
            }
            if count > 0 {
                dump::end_table(&mut chunk)?;
            }
            *self.written.entry(table.name.to_owned()).or_default() += count;
        }
        block_in_place(|| to.write_all(&chunk)).map_err(dump::io_failed)
    }

    async fn finish(mut self: Box<Self>) -> Result<SnapshotContents> {
        dump::check_counts(&self.written, &counts(&mut self.connection, &self.columns).await?)?;
        Ok(self.contents)
    }
}

impl PostgresLoad {
    pub(crate) async fn begin(url: &str, migrations: &'static [Migration]) -> Result<Self> {
        if target(url).await? != RestoreTarget::Empty {
            return Err(LedgerError::Internal("the database is not empty".into()));
        }
        let mut connection = connect(url).await?;
        sqlx::raw_sql(BEGIN_WRITE).execute(&mut connection).await.map_err(failed)?;
        open::apply_migrations(&mut connection, migrations).await?;
        let columns = columns(&mut connection).await?;
        Ok(Self { connection, loaded: dump::no_rows(&columns), columns })
    }
}

#[async_trait]
impl DatabaseLoad for PostgresLoad {
    async fn read(&mut self, from: &mut (dyn Read + Send)) -> Result<()> {
        let mut from = DumpReader::new(from, &self.columns);
        while let Some(mut table) = block_in_place(|| from.next_table())? {
            let sql = format!("COPY \"{}\" ({}) FROM STDIN (FORMAT BINARY)", table.name, table.quoted_columns());
            let mut to = self.connection.copy_in_raw(&sql).await.map_err(failed)?;
            to.send(COPY_HEADER).await.map_err(failed)?;
            let loaded = self.loaded.entry(table.name.to_owned()).or_default();
            let mut has_more = true;
            while has_more {
                let mut chunk = Vec::new();
                let rows;
                (rows, has_more) = block_in_place(|| next_rows(&mut from, &mut table, &mut chunk))?;
                to.send(chunk).await.map_err(failed)?;
                *loaded += rows;
            }
            to.send(COPY_END).await.map_err(failed)?;
            to.finish().await.map_err(failed)?;
            failpoint::hit("load.table");
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<RowCounts> {
        failpoint::hit("load.complete");
        let tx = &mut self.connection;
        dump::check_counts(&self.loaded, &counts(tx, &self.columns).await?)?;
        continue_sequences(tx).await?;
        // Without statistics, the planner would scan whole tables until the server has collected them.
        sqlx::raw_sql("ANALYZE; COMMIT").execute(&mut *tx).await.map_err(failed)?;
        Ok(self.loaded)
    }
}

/// Appends the next rows of `table` to `chunk`, with Booleans as PostgreSQL has them. Returns their number, and whether there are more.
fn next_rows<R: Read>(
    from: &mut DumpReader<'_, R>,
    table: &mut DumpedTable<'_>,
    chunk: &mut Vec<u8>,
) -> Result<(u64, bool)> {
    let (mut row, mut count) = (Vec::new(), 0);
    while chunk.len() < CHUNK_BYTES {
        if !from.next_row(table, &mut row)? {
            return Ok((count, false));
        }
        count += 1;
        begin_row(table.columns.len(), chunk);
        for (index, value) in values(&row).enumerate() {
            let value = match (table.columns[index].kind, value) {
                // The last byte of the integer.
                (ColumnKind::Boolean, Some(value)) => value.last().map(std::slice::from_ref),
                (ColumnKind::Text, Some(text)) if text.contains(&0) => {
                    let why = "it has a NUL character, which SQLite can store and PostgreSQL cannot";
                    return Err(table.refuse_value(index, why));
                }
                (_, value) => value,
            };
            put(value, chunk)?;
        }
    }
    Ok((count, true))
}

/// Returns host, port and name of the database at `url`.
pub(crate) fn address(url: &str) -> Result<String> {
    let options = open::parse(url)?;
    let host = options.get_socket().map_or_else(|| options.get_host().into(), |socket| socket.to_string_lossy());
    let name = options.get_database().unwrap_or(options.get_username());
    Ok(format!("{host}:{}/{name}", options.get_port()))
}

/// Returns whether the database at `url` has tables.
pub(crate) async fn target(url: &str) -> Result<RestoreTarget> {
    let mut connection = connect(url).await?;
    let count: i64 = one(&mut connection, RELATIONS.to_owned()).await?;
    if count == 0 {
        return Ok(RestoreTarget::Empty);
    }
    let instance = if one(&mut connection, HAS_SETTINGS.to_owned()).await? {
        fetch(&mut connection, dump::INSTANCE_NAME).await?.pop()
    } else {
        None
    };
    Ok(RestoreTarget::Used { instance })
}

async fn connect(url: &str) -> Result<PgConnection> {
    open::connect(&open::parse(url)?).await.map_err(failed)
}

async fn fetch<T>(connection: &mut PgConnection, select: Select<T>) -> Result<Vec<T>> {
    let rows = sqlx::query(select.sql).fetch_all(connection).await.map_err(failed)?;
    rows.iter().map(|row| (select.read)(row)).collect()
}

async fn one<T>(connection: &mut PgConnection, sql: String) -> Result<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await.and_then(|row| row.try_get(0)).map_err(failed)
}

/// Returns the columns of each table.
async fn columns(connection: &mut PgConnection) -> Result<TableColumns> {
    let mut columns = TableColumns::new();
    for row in sqlx::query(COLUMNS).fetch_all(connection).await.map_err(failed)? {
        columns.entry(row.text(0)?).or_default().push(DumpColumn::new(row.text(1)?, &row.text(2)?)?);
    }
    Ok(columns)
}

/// Counts the rows of each table.
async fn counts(connection: &mut PgConnection, columns: &TableColumns) -> Result<RowCounts> {
    let mut counts = RowCounts::new();
    for table in columns.keys() {
        let count: i64 = one(connection, format!("SELECT count(*) FROM \"{table}\"")).await?;
        counts.insert(table.clone(), u64::try_from(count).unwrap_or(0));
    }
    Ok(counts)
}

/// Lets every sequence of a column continue after the highest value. Opening the ledger does so for the sequence of positions.
async fn continue_sequences(tx: &mut PgConnection) -> Result<()> {
    for row in sqlx::query(IDENTITIES).fetch_all(&mut *tx).await.map_err(failed)? {
        let (table, column, sequence) = (row.text(0)?, row.text(1)?, row.text(2)?);
        let sql = format!("SELECT setval('{sequence}', max(\"{column}\")) FROM \"{table}\"");
        // The value of an empty table is NULL, which leaves the sequence as it is.
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::Connection as _;

    use super::*;
    use crate::dump::tests::{NAME, NEWER, load_older};

    #[tokio::test(flavor = "multi_thread")]
    #[expect(clippy::disallowed_methods, reason = "the test command passes the URL of PostgreSQL")]
    async fn rows_of_an_older_schema_are_loaded_into_its_tables_and_migrated() {
        let admin = std::env::var("WORKSPACED_TEST_POSTGRES_URL").unwrap();
        let mut server = connect(&admin).await.unwrap();
        let database = format!("older_{}", std::process::id());
        let create = format!("CREATE DATABASE {database}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut server).await.unwrap();
        let (address, options) = admin.split_once('?').unwrap_or((&admin, ""));
        let url = format!("{}/{database}?{options}", address.rsplit_once('/').unwrap().0);
        load_older(Box::new(PostgresLoad::begin(&url, &NEWER[..1]).await.unwrap())).await;
        let mut loaded = connect(&url).await.unwrap();
        let mut tx = loaded.begin().await.unwrap();
        open::apply_migrations(&mut tx, NEWER).await.unwrap();
        let name: String = one(&mut tx, NAME.to_owned()).await.unwrap();
        assert_eq!(name, "desk");
        drop(tx);
        let drop = format!("DROP DATABASE {database} WITH (FORCE)");
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut server).await.unwrap();
    }

    #[test]
    fn an_address_names_the_database_and_no_user() {
        let table = [
            ("postgres:///db?host=/tmp/x&user=postgres", "/tmp/x:5432/db"),
            ("postgres://me:s%40cret@db.example:5433/db", "db.example:5433/db"),
            ("postgres://other@db.example:5433/db?sslmode=require", "db.example:5433/db"),
            ("postgresql://me@db.example", "db.example:5432/me"),
        ];
        for (url, want) in table {
            assert_eq!(address(url).unwrap(), want);
        }
    }
}
