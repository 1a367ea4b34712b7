//! The columns of compressed values.

use std::borrow::Cow;

use crate::Result;
use crate::entry::packed::{MAX_RECORD_BYTES, MAX_VALUE_BYTES, Packed, decompress};
use crate::statement::{Param, RowReader, damaged};

/// The text of a record that cannot be decompressed: valid JSON in a list, but not a record.
pub(crate) const UNREADABLE_RECORD: &str = "null";

/// The columns that [`record`] reads. `$table` is the alias of `audit_record` with a dot, or empty.
macro_rules! record_columns {
    ($table:literal) => {
        concat!($table, "body, ", $table, "body_bytes, ", $table, "packed")
    };
}

pub(crate) use record_columns;

/// Returns the values of the columns of a text: itself, its size, and the compressed value.
pub(crate) fn text_params<'a>(text: Param<'a>, packed: Option<Cow<'a, Packed>>) -> [Param<'a>; 3] {
    match packed {
        None => [text, Param::Null, Param::Null],
        Some(packed) => {
            let size = Param::from(packed.size as u64);
            let bytes = match packed {
                Cow::Borrowed(packed) => Cow::Borrowed(packed.bytes.as_slice()),
                Cow::Owned(packed) => Cow::Owned(packed.bytes),
            };
            [Param::text(""), size, Param::Bytes(bytes)]
        }
    }
}

/// Returns the values of the columns of bytes: themselves or the compressed value, and the size before compression.
pub(crate) fn bytes_params<'a>(bytes: &'a [u8], packed: Option<&'a Packed>) -> [Param<'a>; 2] {
    match packed {
        None => [Param::bytes(bytes), Param::Null],
        Some(packed) => [Param::bytes(&packed.bytes), Param::from(packed.size as u64)],
    }
}

/// Returns the values of the columns of content: as of [`bytes_params`], and whether the diff is needed.
pub(crate) fn content_params<'a>(bytes: &'a [u8], packed: Option<&'a Packed>) -> [Param<'a>; 3] {
    let [bytes, size] = bytes_params(bytes, packed);
    [bytes, size, packed.map(Packed::needs_diff).into()]
}

/// Reads the JSON text of a record from the [`record_columns`], which start at `first`. Returns [`UNREADABLE_RECORD`] if it cannot
/// be decompressed, so that the verification of the chain reports that record, and no other one is affected.
pub(crate) fn record(row: &dyn RowReader, first: usize) -> Result<String> {
    let text = text(row, [first, first + 1, first + 2], MAX_RECORD_BYTES)?;
    Ok(text.unwrap_or_else(|| {
        tracing::error!("a stored record cannot be decompressed");
        UNREADABLE_RECORD.to_owned()
    }))
}

/// Reads the JSON text of a record as [`record`] does; `None` if the row has none.
pub(crate) fn maybe_record(row: &dyn RowReader, first: usize) -> Result<Option<String>> {
    row.maybe_text(first)?.map(|_| record(row, first)).transpose()
}

/// Reads the body of a reply from the columns of the text, its size, and the compressed value.
pub(crate) fn reply(row: &dyn RowReader, columns: [usize; 3]) -> Result<String> {
    text(row, columns, MAX_VALUE_BYTES)?.ok_or_else(|| damaged("reply"))
}

fn text(row: &dyn RowReader, [text, size, packed]: [usize; 3], max: usize) -> Result<Option<String>> {
    let Some(size) = row.maybe_int(size)? else { return row.text(text).map(Some) };
    let bytes = row.maybe_bytes(packed)?.and_then(|packed| decompress(&packed, size, max, None));
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// Reads bytes from the columns of the value and its size. Returns `None` if they cannot be decompressed.
pub(crate) fn bytes(row: &dyn RowReader, [value, size]: [usize; 2]) -> Result<Option<Vec<u8>>> {
    let stored = row.bytes(value)?;
    Ok(match row.maybe_int(size)? {
        None => Some(stored),
        Some(size) => decompress(&stored, size, MAX_VALUE_BYTES, None),
    })
}

/// Reads content from the columns of the value, its size, and the diff that it needs and its size. Returns `None` if it cannot be
/// decompressed.
pub(crate) fn content(row: &dyn RowReader, [value, size, diff, diff_size]: [usize; 4]) -> Result<Option<Vec<u8>>> {
    let Some(size) = row.maybe_int(size)? else { return row.bytes(value).map(Some) };
    let diff = match (row.maybe_bytes(diff)?, row.maybe_int(diff_size)?) {
        (Some(stored), Some(size)) => decompress(&stored, size, MAX_VALUE_BYTES, None),
        (stored, _) => stored,
    };
    Ok(decompress(&row.bytes(value)?, size, MAX_VALUE_BYTES, diff.as_deref()))
}
