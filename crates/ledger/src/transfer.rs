//! The transfer of an SQLite database into an empty PostgreSQL database.
//!
//! The tables and their columns are those of the two schemas, so that none is forgotten. The schema, all rows and the setting
//! [`TRANSFER`] become visible in one transaction. The caller removes the setting once the runs' files are where the new database needs
//! them; until then no service starts with it.

use model::RunId;

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
