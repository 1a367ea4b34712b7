//! Compression of stored texts and bytes by zstd. Only this module knows the format.
//!
//! A compressed value is one byte that names its dictionary, followed by a zstd frame. Its size before compression is in a column
//! beside it, which is NULL for a value that is stored as it is: every value of earlier versions, and those that compression does
//! not make smaller. A value is compressed only up to the maximum size of its column, so that a frame of a larger one is rejected
//! before memory is allocated for it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, ResetDirective, SafeResult};

use crate::Result;
use crate::backend::{Param, RowReader, damaged};

/// Maximum bytes of a record that is compressed: those of a page of records.
const MAX_RECORD_BYTES: usize = 4 << 20;
/// Maximum bytes of any other value that is compressed: those of the largest file that a policy allows to write.
const MAX_VALUE_BYTES: usize = 64 << 20;
/// Minimum bytes of a value that is compressed.
const MIN_BYTES: usize = 64;
/// The compression level: the default of zstd.
const LEVEL: i32 = 3;

/// Typical records and replies. It never changes, because stored values need it: a better one is another file with another byte.
const RECORDS_1: &[u8] = include_bytes!("dictionary_1.txt");

static ENCODER_1: LazyLock<EncoderDictionary<'static>> = LazyLock::new(|| EncoderDictionary::copy(RECORDS_1, LEVEL));
static DECODER_1: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| DecoderDictionary::copy(RECORDS_1));

thread_local! {
    static ENCODER: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static DECODER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// The text of a record that cannot be decompressed: valid JSON in a list, but not a record.
pub(crate) const UNREADABLE_RECORD: &str = "null";

/// The columns that [`record`] reads. `$table` is the alias of `audit_record` with a dot, or empty.
macro_rules! record_columns {
    ($table:literal) => {
        concat!($table, "body, ", $table, "body_bytes, ", $table, "packed")
    };
}

pub(crate) use record_columns;

/// The bytes that a compressed value refers to.
#[derive(Clone, Copy, Debug)]
enum Dictionary<'a> {
    None,
    /// [`RECORDS_1`].
    Records,
    /// The diff of the same record.
    Diff(&'a [u8]),
}

/// A compressed value.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// Its size before compression.
    size: usize,
    bytes: Vec<u8>,
}

impl Packed {
    /// Compresses the JSON text of a record. `None`, here and in the other functions, if it is to be stored as it is.
    pub(crate) fn record(text: &str) -> Option<Self> {
        Self::of(text.as_bytes(), Dictionary::Records, MAX_RECORD_BYTES)
    }

    /// Compresses the body of a reply.
    pub(crate) fn reply(body: &str) -> Option<Self> {
        Self::of(body.as_bytes(), Dictionary::Records, MAX_VALUE_BYTES)
    }

    /// Compresses a diff, or content without the diff of its record.
    pub(crate) fn bytes(bytes: &[u8]) -> Option<Self> {
        Self::of(bytes, Dictionary::None, MAX_VALUE_BYTES)
    }

    /// Compresses content that most of the diff of its record repeats.
    pub(crate) fn content(bytes: &[u8], diff: &[u8]) -> Option<Self> {
        Self::of(bytes, Dictionary::Diff(diff), MAX_VALUE_BYTES)
    }

    fn of(value: &[u8], dictionary: Dictionary<'_>, max: usize) -> Option<Self> {
        if value.len() < MIN_BYTES || value.len() > max {
            return None;
        }
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(value.len()));
        compress(&mut frame, value, dictionary).ok()?;
        let mut bytes = Vec::with_capacity(frame.len() + 1);
        bytes.push(dictionary.format());
        bytes.append(&mut frame);
        (bytes.len() < value.len()).then_some(Self { size: value.len(), bytes })
    }

    /// Returns whether it can be decompressed only with the diff of its record.
    fn needs_diff(&self) -> bool {
        self.bytes.first() == Some(&Dictionary::Diff(&[]).format())
    }

    fn size(&self) -> Param<'static> {
        Param::from(self.size as u64)
    }
}

impl Dictionary<'_> {
    /// Returns the byte that precedes a frame.
    const fn format(self) -> u8 {
        match self {
            Self::None => 1,
            Self::Records => 2,
            Self::Diff(_) => 3,
        }
    }
}

/// Returns the values of the columns of a text: itself, its size, and the compressed value.
pub(crate) fn text_params<'a>(text: Param<'a>, packed: Option<Cow<'a, Packed>>) -> [Param<'a>; 3] {
    match packed {
        None => [text, Param::Null, Param::Null],
        Some(packed) => {
            let size = packed.size();
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
        Some(packed) => [Param::bytes(&packed.bytes), packed.size()],
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
    if row.maybe_int(size)?.is_none() || row.maybe_bytes(diff)?.is_none() {
        return bytes(row, [value, size]);
    }
    let Some(diff) = bytes(row, [diff, diff_size])? else { return Ok(None) };
    Ok(decompress(&row.bytes(value)?, row.int(size)?, MAX_VALUE_BYTES, Some(&diff)))
}

fn compress(frame: &mut Vec<u8>, value: &[u8], dictionary: Dictionary<'_>) -> SafeResult {
    match dictionary {
        Dictionary::None | Dictionary::Diff(_) => {
            let mut encoder = CCtx::create();
            encoder.set_parameter(CParameter::CompressionLevel(LEVEL))?;
            if let Dictionary::Diff(diff) = dictionary {
                encoder.ref_prefix(diff)?;
            }
            encoder.compress2(frame, value)
        }
        Dictionary::Records => ENCODER.with_borrow_mut(|encoder| {
            encoder.reset(ResetDirective::SessionOnly)?;
            encoder.ref_cdict(ENCODER_1.as_cdict())?;
            encoder.compress2(frame, value)
        }),
    }
}

/// Returns the value whose compressed form is `packed`. `None` if that is damaged, if the value has another size than `size`, or
/// one over `max`, or if it refers to a diff that is not given.
fn decompress(packed: &[u8], size: i64, max: usize, diff: Option<&[u8]>) -> Option<Vec<u8>> {
    const PLAIN: u8 = Dictionary::None.format();
    const RECORDS: u8 = Dictionary::Records.format();
    const DIFF: u8 = Dictionary::Diff(&[]).format();
    let (format, frame) = packed.split_first()?;
    let size = usize::try_from(size).ok().filter(|size| *size <= max)?;
    if zstd_safe::get_frame_content_size(frame).ok()?? != size as u64 {
        return None;
    }
    let mut value = Vec::with_capacity(size);
    let done = match *format {
        PLAIN => DECODER.with_borrow_mut(|decoder| decoder.decompress(&mut value, frame)),
        RECORDS => {
            DECODER.with_borrow_mut(|decoder| decoder.decompress_using_ddict(&mut value, frame, DECODER_1.as_ddict()))
        }
        DIFF => {
            let mut decoder = DCtx::create();
            decoder.ref_prefix(diff?).ok()?;
            decoder.decompress(&mut value, frame)
        }
        _ => return None,
    };
    (done.ok()? == size).then_some(value)
}

#[cfg(test)]
mod tests;
