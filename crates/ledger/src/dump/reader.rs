//! Reads the tables of a part. Nothing of it is trusted: names are those of the database, and rows have the form of its columns.

use std::io::{BufRead as _, BufReader, ErrorKind, Read};

use super::{ColumnKind, DumpColumn, END, TableColumns, TableHeader, io_failed};
use crate::{LedgerError, Result};

/// The longest line before the rows of a table, in bytes.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// The longest row, in bytes. Neither database has a longer one: SQLite stores no more by default, and PostgreSQL's `COPY` sends no more.
const MAX_ROW_BYTES: u64 = 1 << 30;
/// How much of an unknown name is shown.
const MAX_SHOWN_CHARS: usize = 64;

/// Reads a part into a database that has the tables `known`.
pub(crate) struct DumpReader<'a, R> {
    from: BufReader<R>,
    known: &'a TableColumns,
}

/// A table of a part, whose rows are being read.
pub(crate) struct DumpedTable<'a> {
    /// As the database has it.
    pub(crate) name: &'a str,
    /// The columns of the database, in the order of the part.
    pub(crate) columns: Vec<&'a DumpColumn>,
    /// The number of the last row.
    row: u64,
}

impl<'a, R: Read> DumpReader<'a, R> {
    pub(crate) fn new(from: R, known: &'a TableColumns) -> Self {
        Self { from: BufReader::with_capacity(64 << 10, from), known }
    }

    /// Returns the next table. `None` at the end.
    ///
    /// # Errors
    ///
    /// If the database has no such table, or one with other columns.
    pub(crate) fn next_table(&mut self) -> Result<Option<DumpedTable<'a>>> {
        let mut line = Vec::new();
        (&mut self.from).take(MAX_HEADER_BYTES).read_until(b'\n', &mut line).map_err(io_failed)?;
        if line.is_empty() {
            return Ok(None);
        }
        let header: TableHeader = serde_json::from_slice(&line).map_err(|error| io_failed(error.into()))?;
        let Some((name, known)) = self.known.get_key_value(&header.table) else {
            let name: String = header.table.chars().take(MAX_SHOWN_CHARS).collect();
            return Err(differ(&format!("there is no table `{}`", name.escape_debug())));
        };
        let found: Option<Vec<_>> =
            header.columns.iter().map(|name| known.iter().find(|column| column.name == *name)).collect();
        match found {
            Some(columns) if is_permutation(&columns, known) => Ok(Some(DumpedTable { name, columns, row: 0 })),
            _ => Err(differ(&format!("the table `{name}` has other columns"))),
        }
    }

    /// Reads the next row of `table` into `row`. Returns false at their end.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no row of the table.
    pub(crate) fn next_row(&mut self, table: &mut DumpedTable<'_>, row: &mut Vec<u8>) -> Result<bool> {
        row.clear();
        let mut count = [0; 2];
        self.from.read_exact(&mut count).map_err(io_failed)?;
        if count == END {
            return Ok(false);
        }
        table.row += 1;
        let values = i16::from_be_bytes(count);
        if usize::try_from(values).ok() != Some(table.columns.len()) {
            return Err(table.refuse(&format!("it has {values} values for {} columns", table.columns.len())));
        }
        row.extend(count);
        for index in 0..table.columns.len() {
            self.read_value(table, index, row)?;
        }
        Ok(true)
    }

    /// Appends the value of the column `index` to `row`.
    fn read_value(&mut self, table: &DumpedTable<'_>, index: usize, row: &mut Vec<u8>) -> Result<()> {
        let mut length = [0; 4];
        self.from.read_exact(&mut length).map_err(io_failed)?;
        row.extend(length);
        let length = match i32::from_be_bytes(length) {
            -1 => return Ok(()),
            length => u64::try_from(length).unwrap_or(u64::MAX),
        };
        let start = row.len();
        if length.saturating_add(start as u64) > MAX_ROW_BYTES {
            return Err(table.refuse(&format!("it has more than {MAX_ROW_BYTES} bytes")));
        }
        if (&mut self.from).take(length).read_to_end(row).map_err(io_failed)? as u64 != length {
            return Err(io_failed(ErrorKind::UnexpectedEof.into()));
        }
        table.check(index, &row[start..])
    }
}

impl DumpedTable<'_> {
    /// Returns the names of the columns, for SQL.
    pub(crate) fn quoted_columns(&self) -> String {
        self.columns.iter().map(|column| format!("\"{}\"", column.name)).collect::<Vec<_>>().join(", ")
    }

    /// Returns the error for the row that was read last.
    pub(crate) fn refuse(&self, why: &str) -> LedgerError {
        LedgerError::Internal(format!("row {} of the table {}: {why}", self.row, self.name).into())
    }

    /// Returns the error for the value of the column `index` in the row that was read last.
    pub(crate) fn refuse_value(&self, index: usize, why: &str) -> LedgerError {
        let column = self.columns.get(index).map_or("", |column| &column.name);
        self.refuse(&format!("the column {column}: {why}"))
    }

    fn check(&self, index: usize, value: &[u8]) -> Result<()> {
        let why = match self.columns[index].kind {
            ColumnKind::Text if std::str::from_utf8(value).is_err() => "it is not UTF-8",
            ColumnKind::Integer if value.len() != 8 => "it is not an integer of eight bytes",
            ColumnKind::Boolean if ![0_i64, 1].iter().any(|known| value == known.to_be_bytes()) => {
                "it is neither 0 nor 1"
            }
            _ => return Ok(()),
        };
        Err(self.refuse_value(index, why))
    }
}

/// Whether `found` has each column of `known` once.
fn is_permutation(found: &[&DumpColumn], known: &[DumpColumn]) -> bool {
    found.len() == known.len() && known.iter().all(|column| found.iter().any(|found| found.name == column.name))
}

fn differ(why: &str) -> LedgerError {
    LedgerError::Internal(format!("the schemas of the databases differ: {why}").into())
}

/// Returns the values of a row that was [read](DumpReader::next_row); `None` for NULL.
pub(crate) fn values(row: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = row.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let (value, after) = after.split_at(length.unwrap_or(0).min(after.len()));
        rest = after;
        Some(length.map(|_| value))
    })
}
