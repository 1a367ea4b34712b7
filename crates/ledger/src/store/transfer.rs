//! The transfer of an SQLite database into an empty PostgreSQL database.
//!
//! The tables and their columns are those of the two schemas, so that none is forgotten. The schema, all rows and the setting
//! [`TRANSFER`] become visible in one transaction. The caller removes the setting once the runs' files are where the new database needs
//! them; until then no service starts with it.

use std::path::Path;

use model::RunId;

use crate::{Result, postgres, sqlite};

/// The setting of a database whose transfer has not finished. Its value names the database that it comes from.
pub const TRANSFER: &str = "transfer";

/// Rows that were copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedTable {
    /// The name of the table.
    pub table: String,
    /// The number of its rows in both databases.
    pub rows: u64,
}

/// An object that a run needs from the object store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectReference {
    /// The name of a content, or what the names of a base's parts begin with.
    pub object: String,
    /// The run.
    pub run: RunId,
}

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Int,
    Bool,
    Text,
    Bytes,
}

/// A table of both databases.
#[derive(Clone, Debug)]
pub(crate) struct TransferTable {
    pub(crate) name: String,
    /// The columns, in an order that both sides use.
    pub(crate) columns: Vec<(String, ColumnType)>,
}

/// A part of the stream of rows: tables one after the other, each with its rows and then their number.
pub(crate) enum TransferPart {
    /// Rows in the binary format of `COPY`.
    Rows(Vec<u8>),
    /// The number of rows of the table, which has no more.
    End(u64),
}

impl TransferTable {
    /// Returns the names of the columns, separated by commas.
    pub(crate) fn column_names(&self) -> String {
        self.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    }
}

/// Copies the SQLite database at `from`, which no process may have open, into the empty PostgreSQL database at `to`, and adds
/// `references`. All or nothing. The setting [`TRANSFER`] gets the value `source`. Returns the tables with the numbers of their rows,
/// which were compared.
///
/// # Errors
///
/// If a database has another schema than this program, if `from` is in use or cannot be read, if `to` is not empty or cannot be written,
/// or if a value cannot be stored there.
pub async fn transfer_database(
    from: &Path,
    to: &str,
    source: &str,
    references: &[ObjectReference],
) -> Result<Vec<CopiedTable>> {
    let source_database = sqlite::transfer::Source::open(from).await?;
    postgres::transfer::copy(source_database, to, source, references).await
}

/// Returns what the runs of the PostgreSQL database at `url` that are not deleted need from the object store, by object.
///
/// # Errors
///
/// If it cannot be read.
pub async fn object_references(url: &str) -> Result<Vec<ObjectReference>> {
    postgres::transfer::references(url).await
}

/// Removes the setting [`TRANSFER`] of the PostgreSQL database at `url`: services may start with it.
///
/// # Errors
///
/// If it cannot be written.
pub async fn end_transfer(url: &str) -> Result<()> {
    postgres::transfer::end(url).await
}
