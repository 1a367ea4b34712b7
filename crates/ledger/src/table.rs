//! Rows to write, declared once for both databases. SQLite executes a statement per row. PostgreSQL receives all rows of a table in
//! one statement, as one array per column, because each statement costs a round trip.

use std::sync::OnceLock;

use crate::statement::{Param, Statement};

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
        $(static $table: $crate::table::Table = $crate::table::Table::new(
            $crate::table::Action::$action,
            stringify!($name),
            &[$($crate::table::Column {
                name: stringify!($column),
                value_type: $crate::table::ValueType::$type,
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

    /// Returns the size of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
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
