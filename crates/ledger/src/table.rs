//! Rows to write, described once for both databases. SQLite executes a statement per row; PostgreSQL gets all rows of a table
//! in one statement, as one array per column, because each statement costs a round trip.

use std::sync::OnceLock;

use crate::backend::{Param, Statement};

/// A column, with the type of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    Int(&'static str),
    Bool(&'static str),
    Text(&'static str),
    Bytes(&'static str),
    /// `run_no`, given as the run's ID.
    RunNo,
}

/// What happens to the rows.
#[derive(Clone, Copy, Debug)]
enum Action {
    Insert,
    /// Updates the row whose first column matches.
    Update,
    /// Deletes the rows in which all columns match.
    Delete,
}

/// A table, the columns to write, and how.
#[derive(Debug)]
pub(crate) struct Table {
    name: &'static str,
    pub(crate) columns: &'static [Column],
    action: Action,
    row_sql: OnceLock<String>,
}

/// Rows for one table.
#[derive(Clone, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) table: &'static Table,
    /// The values of all rows, one row after the other.
    values: Vec<Param<'a>>,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Self::Int(name) | Self::Bool(name) | Self::Text(name) | Self::Bytes(name) => name,
            Self::RunNo => "run_no",
        }
    }

    /// PostgreSQL's type of an array of the values.
    fn array_type(self) -> &'static str {
        match self {
            Self::Int(_) => "bigint[]",
            Self::Bool(_) => "boolean[]",
            Self::Text(_) | Self::RunNo => "text[]",
            Self::Bytes(_) => "bytea[]",
        }
    }
}

impl Table {
    pub(crate) const fn insert(name: &'static str, columns: &'static [Column]) -> Self {
        Self { name, columns, action: Action::Insert, row_sql: OnceLock::new() }
    }

    pub(crate) const fn update(name: &'static str, columns: &'static [Column]) -> Self {
        Self { name, columns, action: Action::Update, row_sql: OnceLock::new() }
    }

    pub(crate) const fn delete(name: &'static str, columns: &'static [Column]) -> Self {
        Self { name, columns, action: Action::Delete, row_sql: OnceLock::new() }
    }

    /// SQLite's statement for one row, whose values are `?1`, `?2`, …
    pub(crate) fn row_sql(&'static self) -> &'static str {
        self.row_sql.get_or_init(|| {
            let value = |(number, column): (usize, &Column)| match column {
                Column::RunNo => format!("(SELECT run_no FROM run WHERE run_id = ?{number})"),
                _ => format!("?{number}"),
            };
            let values: Vec<_> = (1..).zip(self.columns).map(value).collect();
            let (name, pairs) = (self.name, self.assign(&values));
            match self.action {
                Action::Insert => format!("INSERT INTO {name} ({}) VALUES ({})", self.names(), values.join(", ")),
                Action::Update => format!("UPDATE {name} SET {} WHERE {}", pairs[1..].join(", "), pairs[0]),
                Action::Delete => format!("DELETE FROM {name} WHERE {}", pairs.join(" AND ")),
            }
        })
    }

    /// PostgreSQL's statement for any number of rows, which are one array per column, from parameter `first` on.
    pub(crate) fn array_sql(&self, first: usize) -> String {
        let array = |(number, column): (usize, &Column)| format!("${number}::{}", column.array_type());
        let arrays: Vec<_> = (first..).zip(self.columns).map(array).collect();
        let value = |column: &Column| match column {
            Column::RunNo => "run.run_no".to_owned(),
            _ => format!("v.{}", column.name()),
        };
        let values: Vec<_> = self.columns.iter().map(value).collect();
        let (name, names, arrays, pairs) = (self.name, self.names(), arrays.join(", "), self.assign(&values));
        let has_run_id = self.columns.iter().any(|column| matches!(column, Column::RunNo));
        // Outer, so that a run that does not exist violates the column's constraint.
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
        self.columns.iter().map(|column| column.name()).collect::<Vec<_>>().join(", ")
    }

    /// `column = value` for each column.
    fn assign(&self, values: &[String]) -> Vec<String> {
        self.columns.iter().zip(values).map(|(column, value)| format!("{} = {value}", column.name())).collect()
    }
}

impl<'a> Rows<'a> {
    pub(crate) fn new(table: &'static Table) -> Self {
        Self { table, values: Vec::new() }
    }

    pub(crate) fn push<const N: usize>(&mut self, row: [Param<'a>; N]) {
        debug_assert_eq!(N, self.table.columns.len(), "{}", self.table.name);
        self.values.extend(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The rows, one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[Param<'a>]> {
        self.values.chunks_exact(self.table.columns.len())
    }

    /// The values of the column at `index`, from all rows.
    pub(crate) fn column(&self, index: usize) -> impl Iterator<Item = &Param<'a>> {
        self.iter().map(move |row| &row[index])
    }
}

impl Rows<'static> {
    /// The rows as one statement each, for SQLite.
    pub(crate) fn statements(self) -> impl Iterator<Item = Statement> {
        let (sql, width) = (self.table.row_sql(), self.table.columns.len());
        let mut values = self.values.into_iter();
        std::iter::from_fn(move || {
            let params: Vec<_> = values.by_ref().take(width).collect();
            (!params.is_empty()).then_some(Statement { sql, params, required: false })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static UPDATE: Table = Table::update("t", &[Column::Int("a"), Column::Text("b"), Column::Bytes("c")]);
    static DELETE: Table = Table::delete("t", &[Column::RunNo, Column::Int("seq")]);
    static INSERT: Table = Table::insert("t", &[Column::RunNo, Column::Bool("b")]);

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
