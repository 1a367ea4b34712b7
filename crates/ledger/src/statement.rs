//! Statements in the common dialect of both databases, their parameters, and the rows that they return.

use std::borrow::Cow;

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
    /// Whether the last row of that order comes first.
    pub(crate) descending: bool,
    /// The columns whose texts count towards the bytes of the page.
    pub(crate) texts: &'static [&'static str],
    /// The columns with the sizes of compressed texts, which count as well.
    pub(crate) sizes: &'static [&'static str],
}

impl PageColumns {
    /// For records, as `position` and the [`record_columns`](crate::rows::packed::record_columns).
    pub(crate) const RECORDS: Self = Self { sizes: &["body_bytes"], ..Self::ascending("position", &["body"]) };
    /// For runs.
    pub(crate) const RUNS: Self = Self::ascending("run_no", &["body", "import_report", "mount_paths", "labels"]);
    /// For approvals.
    pub(crate) const APPROVALS: Self = Self::ascending("approval_no", &["body"]);
    /// For approvals in order of expiry.
    pub(crate) const EXPIRED_APPROVALS: Self = Self::ascending("expires_at", &["body"]);

    pub(crate) const fn ascending(order: &'static str, texts: &'static [&'static str]) -> Self {
        Self { order, descending: false, texts, sizes: &[] }
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
