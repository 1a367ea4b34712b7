//! Statements in the common dialect of both databases, their parameters, the rows that they return, and the rows that they write.
//!
//! Rows to write are declared once for both databases. SQLite executes a statement per row. PostgreSQL receives all rows of a table
//! in one statement, as one array per column, because each statement costs a round trip.

use std::borrow::Cow;
use std::sync::OnceLock;

use model::RunId;

use crate::Result;
use crate::error::LedgerError;

/// A value of a statement or of a row.
#[derive(Clone, Debug)]
pub(crate) enum Param<'a> {
    Null,
    Int(i64),
    Bool(bool),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

/// A statement in the common dialect of both databases, with the parameters `$1`, `$2`, …
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) sql: &'static str,
    pub(crate) params: Vec<Param<'static>>,
    /// What the statement checks by changing a row. If it changes none, the transaction fails.
    pub(crate) check: Option<Check>,
}

/// A condition that holds if a statement changes a row.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// This process owns the run.
    Owns(RunId),
    /// The object is reserved.
    IsReserved(String),
    /// The webhook is at the position that was read.
    IsAtPosition,
    /// The operator is valid.
    IsOperator,
}

impl Check {
    /// Returns the error for a condition that does not hold.
    pub(crate) fn failed(&self) -> LedgerError {
        match self {
            Self::Owns(run) => LedgerError::RunMoved(run.clone()),
            Self::IsReserved(object) => LedgerError::ObjectNotReserved(object.clone()),
            Self::IsAtPosition => LedgerError::PositionMoved,
            Self::IsOperator => LedgerError::NoSuchOperator,
        }
    }
}

/// A query in the common dialect of both databases, with the reader of its rows, which knows the columns by their places in it.
pub(crate) struct Select<T> {
    pub(crate) sql: &'static str,
    pub(crate) read: fn(&dyn RowReader) -> Result<T>,
}

/// A row of a result. Columns are numbered from 0.
pub(crate) trait RowReader {
    fn int(&self, column: usize) -> Result<i64>;
    fn maybe_int(&self, column: usize) -> Result<Option<i64>>;
    fn bool(&self, column: usize) -> Result<bool>;
    fn text(&self, column: usize) -> Result<String>;
    fn maybe_text(&self, column: usize) -> Result<Option<String>>;
    fn bytes(&self, column: usize) -> Result<Vec<u8>>;
    fn maybe_bytes(&self, column: usize) -> Result<Option<Vec<u8>>>;
}

/// Implements [`RowReader`] for the row type of a driver by its generic getter. `$failed` converts the driver's error.
macro_rules! impl_row_reader {
    ($row:ty, $get:ident, $failed:path) => {
        impl_row_reader!($row, $get, $failed, int: i64, maybe_int: Option<i64>, bool: bool, text: String,
            maybe_text: Option<String>, bytes: Vec<u8>, maybe_bytes: Option<Vec<u8>>);
    };
    ($row:ty, $get:ident, $failed:path, $($method:ident: $value:ty),+) => {
        impl RowReader for $row {
            $(fn $method(&self, column: usize) -> Result<$value> {
                self.$get(column).map_err($failed)
            })+
        }
    };
}

pub(crate) use impl_row_reader;

/// The result columns by which a page of a query is limited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageColumns {
    /// The column that the rows are ordered by.
    pub(crate) order: &'static str,
    /// A column by which they are ordered before.
    pub(crate) text_order: Option<&'static str>,
    /// Whether the last row of that order comes first.
    pub(crate) descending: bool,
    /// The columns whose texts count towards the bytes of the page.
    pub(crate) texts: &'static [&'static str],
    /// The columns with the sizes of compressed texts, which count as well.
    pub(crate) sizes: &'static [&'static str],
}

impl PageColumns {
    /// For records, as `position` and the [`record_columns`](crate::packed::record_columns).
    pub(crate) const RECORDS: Self = Self { sizes: &["body_bytes"], ..Self::ascending("position", &["body"]) };
    /// For runs.
    pub(crate) const RUNS: Self = Self::ascending("run_no", &["body", "import_report", "mount_paths", "labels"]);
    /// For approvals.
    pub(crate) const APPROVALS: Self = Self::ascending("approval_no", &["body"]);
    /// For approvals in order of expiry.
    pub(crate) const EXPIRED_APPROVALS: Self = Self::ascending("expires_at", &["body"]);

    pub(crate) const fn ascending(order: &'static str, texts: &'static [&'static str]) -> Self {
        Self { order, text_order: None, descending: false, texts, sizes: &[] }
    }

    /// Returns the same columns for the other direction, if `descending`.
    pub(crate) fn in_direction(self, descending: bool) -> Self {
        Self { descending, ..self }
    }
}

impl Statement {
    pub(crate) fn new<const N: usize>(sql: &'static str, params: [Param<'static>; N]) -> Self {
        Self { sql, params: params.into(), check: None }
    }
}

impl<'a> Param<'a> {
    /// Borrows a text. The `From` conversions copy it.
    pub(crate) fn text(value: &'a str) -> Self {
        Self::Text(Cow::Borrowed(value))
    }

    /// Returns the size of the value.
    pub(crate) fn bytes_stored(&self) -> u64 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 8,
            Self::Text(text) => text.len() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Borrows bytes.
    pub(crate) fn bytes(value: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(value))
    }
}

/// Converts parameters to the elements of an array. A value whose type is not that of its column is a bug and becomes NULL, which
/// the column's constraint rejects.
impl Param<'_> {
    pub(crate) fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }

    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(value) = self { Some(value) } else { None }
    }
}

macro_rules! impl_from {
    ($($from:ty, $value:ident => $param:expr;)+) => {
        $(impl From<$from> for Param<'_> {
            fn from($value: $from) -> Self {
                $param
            }
        })+
    };
}

impl_from! {
    i64, value => Self::Int(value);
    u64, value => Self::Int(to_int(value));
    bool, value => Self::Bool(value);
    &str, value => Self::Text(Cow::Owned(value.to_owned()));
    String, value => Self::Text(Cow::Owned(value));
    &model::Sha256, value => Self::Bytes(Cow::Owned(value.as_bytes().to_vec()));
}

impl<'a, T: Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, T::into)
    }
}

/// Converts a count to a signed integer, which databases store.
pub(crate) fn to_int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts a stored integer to a count.
pub(crate) fn to_count(int: i64) -> u64 {
    u64::try_from(int).unwrap_or(0)
}

/// Returns the error for an invalid stored value.
pub(crate) fn damaged(what: &str) -> LedgerError {
    LedgerError::Internal(format!("a stored {what} cannot be read").into())
}

/// A column and the type of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) value_type: ValueType,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    Int,
    Bool,
    Text,
    Bytes,
    /// The ID of a run. Its number is stored.
    RunId,
}

/// What to do with the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Insert,
    /// Inserts the row, or updates the one whose first two columns match, which are the key.
    Replace,
    /// Updates the row whose first column matches.
    Update,
    /// Deletes the rows in which all columns match.
    Delete,
}

/// A table, the columns to write, and what to do with the rows.
#[derive(Debug)]
pub(crate) struct Table {
    name: &'static str,
    pub(crate) columns: &'static [Column],
    action: Action,
    row_sql: OnceLock<String>,
}

/// Declares tables, each by its action, its name and its columns.
macro_rules! tables {
    ($($table:ident: $action:ident $name:ident ($($column:ident $type:ident),+);)+) => {
        $(static $table: $crate::statement::Table = $crate::statement::Table::new(
            $crate::statement::Action::$action,
            stringify!($name),
            &[$($crate::statement::Column {
                name: stringify!($column),
                value_type: $crate::statement::ValueType::$type,
            }),+],
        );)+
    };
}

pub(crate) use tables;

/// Rows for one table.
#[derive(Clone, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) table: &'static Table,
    /// The values of all rows, one row after the other.
    values: Vec<Param<'a>>,
    /// The sizes of the values.
    bytes: u64,
}

impl ValueType {
    /// Returns the PostgreSQL type of an array of the values.
    fn array_type(self) -> &'static str {
        match self {
            Self::Int => "bigint[]",
            Self::Bool => "boolean[]",
            Self::Text | Self::RunId => "text[]",
            Self::Bytes => "bytea[]",
        }
    }
}

impl Table {
    pub(crate) const fn new(action: Action, name: &'static str, columns: &'static [Column]) -> Self {
        Self { name, columns, action, row_sql: OnceLock::new() }
    }

    /// Returns the SQLite statement for one row, whose values are `?1`, `?2`, …
    pub(crate) fn row_sql(&'static self) -> &'static str {
        self.row_sql.get_or_init(|| {
            let value = |(number, column): (usize, &Column)| match column.value_type {
                ValueType::RunId => format!("(SELECT run_no FROM run WHERE run_id = ?{number})"),
                _ => format!("?{number}"),
            };
            let values: Vec<_> = (1..).zip(self.columns).map(value).collect();
            let (name, pairs) = (self.name, self.pairs(&values));
            match self.action {
                Action::Insert => format!("INSERT INTO {name} ({}) VALUES ({})", self.names(), values.join(", ")),
                Action::Replace => {
                    format!(
                        "INSERT INTO {name} ({}) VALUES ({}) {}",
                        self.names(),
                        values.join(", "),
                        self.on_conflict()
                    )
                }
                Action::Update => format!("UPDATE {name} SET {} WHERE {}", pairs[1..].join(", "), pairs[0]),
                Action::Delete => format!("DELETE FROM {name} WHERE {}", pairs.join(" AND ")),
            }
        })
    }

    /// Returns the PostgreSQL statement for any number of rows. They are one array per column, from parameter `first` on.
    pub(crate) fn array_sql(&self, first: usize) -> String {
        let array = |(number, column): (usize, &Column)| format!("${number}::{}", column.value_type.array_type());
        let arrays: Vec<_> = (first..).zip(self.columns).map(array).collect();
        let value = |column: &Column| match column.value_type {
            ValueType::RunId => "run.run_no".to_owned(),
            _ => format!("v.{}", column.name),
        };
        let values: Vec<_> = self.columns.iter().map(value).collect();
        let (name, names, arrays, pairs) = (self.name, self.names(), arrays.join(", "), self.pairs(&values));
        let has_run_id = self.columns.iter().any(|column| column.value_type == ValueType::RunId);
        // An outer join, so that an unknown run violates the column's constraint.
        let join = if has_run_id { " LEFT JOIN run ON run.run_id = v.run_no" } else { "" };
        match self.action {
            Action::Insert => format!(
                "INSERT INTO {name} ({names}) SELECT {} FROM unnest({arrays}) WITH ORDINALITY AS v ({names}, ordinal){join} \
                 ORDER BY ordinal",
                values.join(", ")
            ),
            Action::Replace => format!(
                "INSERT INTO {name} ({names}) SELECT {} FROM unnest({arrays}) AS v ({names}){join} {}",
                values.join(", "),
                self.on_conflict()
            ),
            Action::Update => format!(
                "UPDATE {name} SET {} FROM unnest({arrays}) AS v ({names}){join} WHERE {name}.{}",
                pairs[1..].join(", "),
                pairs[0]
            ),
            Action::Delete => format!(
                "DELETE FROM {name} USING unnest({arrays}) AS v ({names}){join} WHERE {name}.{}",
                pairs.join(&format!(" AND {name}."))
            ),
        }
    }

    /// Returns what becomes of a row whose key, the first two columns, is in the table.
    fn on_conflict(&self) -> String {
        let (key, others) = self.columns.split_at(2.min(self.columns.len()));
        let key: Vec<_> = key.iter().map(|column| column.name).collect();
        let set: Vec<_> = others.iter().map(|column| format!("{0} = excluded.{0}", column.name)).collect();
        format!("ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), set.join(", "))
    }

    fn names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns `column = value` for each column.
    fn pairs(&self, values: &[String]) -> Vec<String> {
        self.columns.iter().zip(values).map(|(column, value)| format!("{} = {value}", column.name)).collect()
    }
}

impl<'a> Rows<'a> {
    pub(crate) fn new(table: &'static Table) -> Self {
        Self { table, values: Vec::new(), bytes: 0 }
    }

    pub(crate) fn push<const N: usize>(&mut self, row: [Param<'a>; N]) {
        debug_assert_eq!(N, self.table.columns.len(), "{}", self.table.name);
        self.bytes += row.iter().map(Param::bytes_stored).sum::<u64>();
        self.values.extend(row);
    }

    /// Sets the row that was pushed as number `index`.
    pub(crate) fn set<const N: usize>(&mut self, index: usize, row: [Param<'a>; N]) {
        for (value, new) in self.values.iter_mut().skip(index * N).zip(row) {
            *value = new;
        }
    }

    /// Returns the size of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.table.columns.len()
    }

    /// Returns the rows.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[Param<'a>]> {
        self.values.chunks_exact(self.table.columns.len())
    }

    /// Returns the values of the column at `index`.
    pub(crate) fn column(&self, index: usize) -> impl Iterator<Item = &Param<'a>> {
        self.iter().map(move |row| &row[index])
    }
}

impl Rows<'static> {
    /// Returns one statement per row, for SQLite.
    pub(crate) fn statements(self) -> impl Iterator<Item = Statement> {
        let (sql, width) = (self.table.row_sql(), self.table.columns.len());
        let mut values = self.values.into_iter();
        std::iter::from_fn(move || {
            let params: Vec<_> = values.by_ref().take(width).collect();
            (!params.is_empty()).then_some(Statement { sql, params, check: None })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    tables! {
        UPDATE: Update t (a Int, b Text, c Bytes);
        DELETE: Delete t (run_no RunId, seq Int);
        INSERT: Insert t (run_no RunId, b Bool);
    }

    #[test]
    fn one_row_is_written_by_numbered_parameters() {
        assert_eq!(UPDATE.row_sql(), "UPDATE t SET b = ?2, c = ?3 WHERE a = ?1");
        let run = "(SELECT run_no FROM run WHERE run_id = ?1)";
        assert_eq!(DELETE.row_sql(), format!("DELETE FROM t WHERE run_no = {run} AND seq = ?2"));
        assert_eq!(INSERT.row_sql(), format!("INSERT INTO t (run_no, b) VALUES ({run}, ?2)"));
    }

    #[test]
    fn many_rows_are_written_by_arrays() {
        assert_eq!(
            UPDATE.array_sql(4),
            "UPDATE t SET b = v.b, c = v.c FROM unnest($4::bigint[], $5::text[], $6::bytea[]) AS v (a, b, c) WHERE t.a = v.a"
        );
        assert_eq!(
            DELETE.array_sql(1),
            "DELETE FROM t USING unnest($1::text[], $2::bigint[]) AS v (run_no, seq) LEFT JOIN run ON run.run_id = v.run_no \
             WHERE t.run_no = run.run_no AND t.seq = v.seq"
        );
        assert_eq!(
            INSERT.array_sql(1),
            "INSERT INTO t (run_no, b) SELECT run.run_no, v.b FROM unnest($1::text[], $2::boolean[]) \
             WITH ORDINALITY AS v (run_no, b, ordinal) LEFT JOIN run ON run.run_id = v.run_no ORDER BY ordinal"
        );
    }

    #[test]
    fn rows_are_read_by_row_and_by_column() {
        let mut rows = Rows::new(&INSERT);
        rows.push(["r1".into(), true.into()]);
        rows.push(["r2".into(), false.into()]);
        let bools: Vec<_> = rows.column(1).map(|value| matches!(value, Param::Bool(true))).collect();
        assert_eq!((rows.iter().count(), bools), (2, vec![true, false]));
        assert_eq!(rows.statements().map(|statement| statement.params.len()).collect::<Vec<_>>(), [2, 2]);
    }
}
