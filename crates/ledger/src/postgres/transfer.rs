//! Writing all tables of another database into an empty one, in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use model::RunId;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::sync::mpsc::{self, Receiver};

use super::connection::failed;
use super::{copy, open, positions};
use crate::sqlite::transfer::{LockedSource, SourceTables};
use crate::transfer::{ColumnType, CopiedTable, ObjectReference, TRANSFER, TransferPart, TransferTable};
use crate::{LedgerError, RestoreTarget, Result};

/// A transaction that waits while another database is read, and copies large tables.
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
const COLUMNS: &str = "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
    WHERE table_schema = current_schema() AND table_name <> 'schema_migration' ORDER BY table_name, ordinal_position";
/// The columns with a sequence of their own, and the sequence.
const IDENTITIES: &str = "SELECT table_name::text, column_name::text, \
    pg_get_serial_sequence(quote_ident(table_schema) || '.' || quote_ident(table_name), column_name) \
    FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'";
const MARK: &str = "INSERT INTO setting (name, value) VALUES ($1, $2)";
const END: &str = "DELETE FROM setting WHERE name = $1";
const REFER: &str = "INSERT INTO object_reference (object, run_no) SELECT v.object, run.run_no \
    FROM unnest($1::text[], $2::text[]) AS v (object, run_id) JOIN run ON run.run_id = v.run_id ON CONFLICT DO NOTHING";
const REFERENCES: &str = "SELECT object, run_id FROM object_reference o JOIN run ON run.run_no = o.run_no \
    WHERE state <> 'deleted' ORDER BY object, o.run_no";
/// What a stream in the binary format of `COPY` begins with: signature, flags, length of the extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
const COPY_END: &[u8] = &(-1_i16).to_be_bytes();
/// Chunks of rows that wait to be written.
const QUEUED_CHUNKS: usize = 4;

/// See [`transfer_database`](crate::transfer_database).
pub(crate) async fn copy(
    from: LockedSource,
    url: &str,
    source: &str,
    references: &[ObjectReference],
) -> Result<Vec<CopiedTable>> {
    if copy::target(url).await? != RestoreTarget::Empty {
        return Err(LedgerError::Internal("the database is not empty".into()));
    }
    let mut connection = open::connect(&open::parse(url)?).await.map_err(failed)?;
    let mut tx = connection.begin_with(BEGIN).await.map_err(failed)?;
    open::apply_migrations(&mut tx).await?;
    let tables = common_tables(from.tables()?, columns(&mut tx).await?)?;
    let (sender, parts) = mpsc::channel(QUEUED_CHUNKS);
    let (sent, written) = tokio::join!(from.send(tables.clone(), sender), write(&mut tx, &tables, parts));
    // If the write failed, the reader has ended because of it.
    let copied = written.and_then(|copied| sent.map(|()| copied))?;
    failpoint::hit("transfer.copied");
    continue_sequences(&mut tx).await?;
    sqlx::query(MARK).bind(TRANSFER).bind(source).execute(&mut *tx).await.map_err(failed)?;
    let objects: Vec<_> = references.iter().map(|reference| reference.object.as_str()).collect();
    let runs: Vec<_> = references.iter().map(|reference| reference.run.as_str()).collect();
    sqlx::query(REFER).bind(objects).bind(runs).execute(&mut *tx).await.map_err(failed)?;
    // Without statistics, the planner would scan whole tables until the server has collected them.
    sqlx::raw_sql("ANALYZE").execute(&mut *tx).await.map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(copied)
}

/// See [`object_references`](crate::object_references).
pub(crate) async fn references(url: &str) -> Result<Vec<ObjectReference>> {
    let mut connection = open::connect(&open::parse(url)?).await.map_err(failed)?;
    let rows = sqlx::query(REFERENCES).fetch_all(&mut connection).await.map_err(failed)?;
    let read = |row: &sqlx::postgres::PgRow| {
        let run: String = row.try_get(1).map_err(failed)?;
        let run = RunId::parse(&run).map_err(|error| LedgerError::Internal(Box::new(error)))?;
        Ok(ObjectReference { object: row.try_get(0).map_err(failed)?, run })
    };
    rows.iter().map(read).collect()
}

/// See [`end_transfer`](crate::end_transfer).
pub(crate) async fn end(url: &str) -> Result<()> {
    let mut connection = open::connect(&open::parse(url)?).await.map_err(failed)?;
    sqlx::query(END).bind(TRANSFER).execute(&mut connection).await.map(drop).map_err(failed)
}

async fn columns(tx: &mut PgConnection) -> Result<BTreeMap<String, Vec<(String, ColumnType)>>> {
    let mut tables = BTreeMap::<String, Vec<_>>::new();
    for row in sqlx::query(COLUMNS).fetch_all(tx).await.map_err(failed)? {
        let text = |column| row.try_get::<String, usize>(column).map_err(failed);
        let (table, column, data_type) = (text(0)?, text(1)?, text(2)?);
        let of_type = match &*data_type {
            "bigint" => ColumnType::Int,
            "boolean" => ColumnType::Bool,
            "text" => ColumnType::Text,
            "bytea" => ColumnType::Bytes,
            other => {
                return Err(LedgerError::Internal(format!("{table}.{column} has the unknown type {other}").into()));
            }
        };
        tables.entry(table).or_default().push((column, of_type));
    }
    Ok(tables)
}

/// Returns the tables in the order in which they are written, if both databases have the same.
fn common_tables(
    source: SourceTables,
    mut target: BTreeMap<String, Vec<(String, ColumnType)>>,
) -> Result<Vec<TransferTable>> {
    let differ = |what: &str| LedgerError::Internal(format!("the schemas of the databases differ: {what}").into());
    let mut tables = Vec::with_capacity(source.order.len());
    for name in source.order {
        let columns = target.remove(&name).ok_or_else(|| differ(&name))?;
        if columns.iter().map(|(column, _)| column.clone()).collect::<BTreeSet<_>>() != source.columns[&name] {
            return Err(differ(&name));
        }
        tables.push(TransferTable { name, columns });
    }
    match target.first_key_value() {
        Some((name, _)) => Err(differ(name)),
        None => Ok(tables),
    }
}

/// Writes the rows of all tables, and compares their numbers.
async fn write(
    tx: &mut PgConnection,
    tables: &[TransferTable],
    mut parts: Receiver<TransferPart>,
) -> Result<Vec<CopiedTable>> {
    let ended_early = || LedgerError::Unavailable("the source cannot be read to its end".into());
    let mut copied = Vec::with_capacity(tables.len());
    for table in tables {
        let sql = format!("COPY \"{}\" ({}) FROM STDIN (FORMAT BINARY)", table.name, table.column_names());
        let mut to = tx.copy_in_raw(&sql).await.map_err(failed)?;
        to.send(COPY_HEADER).await.map_err(failed)?;
        let rows = loop {
            match parts.recv().await {
                Some(TransferPart::Rows(rows)) => drop(to.send(rows).await.map_err(failed)?),
                Some(TransferPart::End(rows)) => break rows,
                None => return Err(ended_early()),
            }
        };
        to.send(COPY_END).await.map_err(failed)?;
        to.finish().await.map_err(failed)?;
        failpoint::hit("transfer.table");
        let count = format!("SELECT count(*) FROM \"{}\"", table.name);
        let found: i64 = one(tx, count).await?;
        if u64::try_from(found) != Ok(rows) {
            let message = format!("the table {} has {found} rows and must have {rows}", table.name);
            return Err(LedgerError::Internal(message.into()));
        }
        copied.push(CopiedTable { table: table.name.clone(), rows });
    }
    Ok(copied)
}

/// Lets every sequence continue after the highest value.
async fn continue_sequences(tx: &mut PgConnection) -> Result<()> {
    for row in sqlx::query(IDENTITIES).fetch_all(&mut *tx).await.map_err(failed)? {
        let text = |column| row.try_get::<String, usize>(column).map_err(failed);
        let (table, column, sequence) = (text(0)?, text(1)?, text(2)?);
        let sql = format!("SELECT setval('{sequence}', max(\"{column}\")) FROM \"{table}\"");
        // The value of an empty table is NULL, which leaves the sequence as it is.
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(failed)?;
    }
    positions::advance(tx).await
}

async fn one(tx: &mut PgConnection, sql: String) -> Result<i64> {
    sqlx::query(AssertSqlSafe(sql)).fetch_one(tx).await.and_then(|row| row.try_get(0)).map_err(failed)
}
