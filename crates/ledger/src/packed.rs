//! Compressed values: their format, the columns that store them, and entries whose large values are compressed.
//!
//! Only this module knows the format. A compressed value is one byte that names its dictionary, followed by a zstd frame. Its size
//! before compression is in a column beside it, which is NULL for a value that is stored as it is because compression does not make
//! it smaller. A value is compressed only up to the maximum size of its column, so that a frame of a larger one is rejected before
//! memory is allocated for it. Entries are compressed before they are queued for a commit.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::LazyLock;

use model::{RUN_TOKEN_ACTOR, Sha256, Step, StepBytes, StepContent};
use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, ResetDirective, SafeResult};

use crate::statement::{Param, RowReader, damaged};
use crate::{Entry, LedgerError, Result};

/// Maximum bytes of a record that is compressed: those of a page of records.
pub(crate) const MAX_RECORD_BYTES: usize = 4 << 20;
/// Maximum bytes of any other value that is compressed: those of the largest file that a policy allows to write.
pub(crate) const MAX_VALUE_BYTES: usize = 64 << 20;
/// Minimum bytes of a value that is compressed.
const MIN_BYTES: usize = 64;
/// The compression level. Zstd's default, 3, makes source files 3 % and diffs 7 % smaller, for twice the instructions: 17 % of those of a patch.
const LEVEL: i32 = 1;

/// Typical records and replies after the entropy tables of such records, so that a frame needs none of its own: `ZDICT_finalizeDictionary`
/// made it of 767 records of reads, searches and changes. It never changes, because stored values need it: a better one is another file
/// with another byte.
const RECORDS: &[u8] = include_bytes!("packed/dictionary.zdict");

static ENCODER: LazyLock<EncoderDictionary<'static>> = LazyLock::new(|| EncoderDictionary::copy(RECORDS, LEVEL));
static DECODER: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| DecoderDictionary::copy(RECORDS));

/// What loads as more than bytes, if a dictionary begins with it.
const DICTIONARY_START: [u8; 4] = zstd_safe::zstd_sys::ZSTD_MAGIC_DICTIONARY.to_le_bytes();
/// Maximum bytes of a value, with its diff, that the encoder of the thread compresses, because that keeps its memory.
const MAX_KEPT_ENCODER_BYTES: usize = 64 << 10;

thread_local! {
    static KEPT_ENCODER: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static KEPT_DECODER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// The bytes that a compressed value refers to.
#[derive(Clone, Copy, Debug)]
enum Dictionary<'a> {
    None,
    /// [`RECORDS`].
    Records,
    /// The diff of the same record.
    Diff(&'a [u8]),
}

/// A compressed value.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// Its size before compression.
    pub(crate) size: usize,
    pub(crate) bytes: Vec<u8>,
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
    pub(crate) fn needs_diff(&self) -> bool {
        self.bytes.first() == Some(&Dictionary::Diff(&[]).format())
    }
}

impl Dictionary<'_> {
    /// Returns the byte that precedes a frame.
    const fn format(self) -> u8 {
        match self {
            Self::None => 1,
            Self::Diff(_) => 3,
            Self::Records => 4,
        }
    }
}

fn compress(frame: &mut Vec<u8>, value: &[u8], dictionary: Dictionary<'_>) -> SafeResult {
    match dictionary {
        Dictionary::Records => with_kept_encoder(|encoder| {
            encoder.ref_cdict(ENCODER.as_cdict())?;
            encoder.compress2(frame, value)
        }),
        Dictionary::None if value.len() <= MAX_KEPT_ENCODER_BYTES => with_kept_encoder(|encoder| {
            encoder.set_parameter(CParameter::CompressionLevel(LEVEL))?;
            encoder.compress2(frame, value)
        }),
        Dictionary::Diff(diff)
            if value.len() + diff.len() <= MAX_KEPT_ENCODER_BYTES && !diff.starts_with(&DICTIONARY_START) =>
        {
            // The diff does not live as long as the encoder, which does not keep it here. Loading it would make a dictionary to keep.
            with_kept_encoder(|encoder| encoder.compress_using_dict(frame, value, diff, LEVEL))
        }
        Dictionary::None | Dictionary::Diff(_) => {
            let mut encoder = CCtx::create();
            encoder.set_parameter(CParameter::CompressionLevel(LEVEL))?;
            if let Dictionary::Diff(diff) = dictionary {
                encoder.ref_prefix(diff)?;
            }
            encoder.compress2(frame, value)
        }
    }
}

/// Compresses with the encoder of the thread, which has no parameters and no dictionary.
fn with_kept_encoder(compress: impl FnOnce(&mut CCtx<'static>) -> SafeResult) -> SafeResult {
    KEPT_ENCODER.with_borrow_mut(|encoder| {
        encoder.reset(ResetDirective::SessionAndParameters)?;
        compress(encoder)
    })
}

/// Returns the value whose compressed form is `packed`. `None` if that is damaged, if the value has another size than `size`, or
/// one over `max`, or if it refers to a diff that is not given.
pub(crate) fn decompress(packed: &[u8], size: i64, max: usize, diff: Option<&[u8]>) -> Option<Vec<u8>> {
    const PLAIN: u8 = Dictionary::None.format();
    const OF_RECORDS: u8 = Dictionary::Records.format();
    const DIFF: u8 = Dictionary::Diff(&[]).format();
    let (format, frame) = packed.split_first()?;
    let size = usize::try_from(size).ok().filter(|size| *size <= max)?;
    if zstd_safe::get_frame_content_size(frame).ok()?? != size as u64 {
        return None;
    }
    let mut value = Vec::with_capacity(size);
    let mut with = |dictionary: &DecoderDictionary<'static>| {
        KEPT_DECODER.with_borrow_mut(|decoder| decoder.decompress_using_ddict(&mut value, frame, dictionary.as_ddict()))
    };
    let done = match *format {
        PLAIN => KEPT_DECODER.with_borrow_mut(|decoder| decoder.decompress(&mut value, frame)),
        OF_RECORDS => with(&DECODER),
        DIFF => {
            let mut decoder = DCtx::create();
            decoder.ref_prefix(diff?).ok()?;
            decoder.decompress(&mut value, frame)
        }
        _ => return None,
    };
    (done.ok()? == size).then_some(value)
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

/// Maximum bytes that are compressed without a thread for blocking work.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Maximum total bytes of the diffs that are read to decompress the contents of one record, each with the whole diff.
const MAX_DICTIONARY_BYTES: usize = 4 << 20;

/// What the row of a record takes at least, with its columns.
const LEAST_RECORD_BYTES: u64 = 256;

/// An entry, and the compressed forms of those of its values that are stored compressed.
#[derive(Clone, Debug)]
pub(crate) struct PreparedEntry {
    entry: Entry,
    pub(crate) packed_reply: Option<Packed>,
    pub(crate) packed_diff: Option<Packed>,
    /// One for each of the [`inline_contents`].
    pub(crate) packed_contents: Vec<Option<Packed>>,
    pub(crate) packed_upload: Option<Packed>,
}

impl PreparedEntry {
    /// Whether the quota of the run's history applies: a call of a run token, which neither changes the run itself nor decides an
    /// approval.
    pub(crate) fn has_history_quota(&self) -> bool {
        self.draft.actor.starts_with(RUN_TOKEN_ACTOR) && self.run_change.is_none() && self.approval_decision.is_none()
    }

    /// Returns about how many bytes its rows take at least. The size of the record is known only once it is chained.
    pub(crate) fn least_bytes(&self) -> u64 {
        let packed = |packed: Option<&Packed>, size: usize| packed.map_or(size, |packed| packed.bytes.len());
        let contents = inline_contents(&self.steps).into_iter().zip(&self.packed_contents);
        let bytes = self.reply.as_ref().map_or(0, |reply| packed(self.packed_reply.as_ref(), reply.body.len()))
            + self.artifact.as_ref().map_or(0, |artifact| packed(self.packed_diff.as_ref(), artifact.diff.len()))
            + self.upload.as_ref().map_or(0, |upload| packed(self.packed_upload.as_ref(), upload.bytes.len()))
            + self
                .approval
                .as_ref()
                .map_or(0, |(approval, input)| approval.diff.as_ref().map_or(0, String::len) + input.len())
            + contents.map(|((_, bytes), content)| packed(content.as_ref(), bytes.len())).sum::<usize>();
        bytes as u64 + LEAST_RECORD_BYTES
    }
}

impl Deref for PreparedEntry {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl From<Entry> for PreparedEntry {
    fn from(entry: Entry) -> Self {
        Self {
            packed_reply: entry.reply.as_ref().and_then(|reply| Packed::reply(&reply.body)),
            packed_diff: entry.artifact.as_ref().and_then(|artifact| Packed::bytes(&artifact.diff)),
            packed_contents: pack_contents(&entry),
            packed_upload: entry.upload.as_ref().and_then(|upload| Packed::bytes(&upload.bytes)),
            entry,
        }
    }
}

/// Compresses the contents. The diff of a new or replaced file contains most of its content, so that almost nothing is stored
/// twice.
fn pack_contents(entry: &Entry) -> Vec<Option<Packed>> {
    let contents = inline_contents(&entry.steps);
    let diff = entry.artifact.as_ref().map_or(&[][..], |artifact| &artifact.diff);
    let reads_few = contents.len().saturating_mul(diff.len()) <= MAX_DICTIONARY_BYTES;
    let pack = |bytes: &[u8]| {
        if reads_few && diff.len() >= bytes.len() / 2 { Packed::content(bytes, diff) } else { Packed::bytes(bytes) }
    };
    contents.into_iter().map(|(_, bytes)| pack(bytes)).collect()
}

/// Returns the number of bytes of diffs, contents and uploads.
pub(crate) fn value_bytes(entry: &Entry) -> usize {
    let contents = inline_contents(&entry.steps);
    entry.artifact.as_ref().map_or(0, |artifact| artifact.diff.len())
        + entry.upload.as_ref().map_or(0, |upload| upload.bytes.len())
        + contents.iter().map(|(_, content)| content.len()).sum::<usize>()
}

/// Compresses the values of `entries`.
pub(crate) async fn prepare(entries: Vec<Entry>) -> Result<Vec<PreparedEntry>> {
    let prepare = |entries: Vec<Entry>| entries.into_iter().map(PreparedEntry::from).collect();
    if entries.iter().map(value_bytes).sum::<usize>() <= MAX_INLINE_BYTES {
        return Ok(prepare(entries));
    }
    let prepared = tokio::task::spawn_blocking(move || prepare(entries)).await;
    prepared.map_err(|error| LedgerError::Internal(Box::new(error)))
}

/// Returns the inline contents of the steps, without duplicates.
pub(crate) fn inline_contents<'a>(steps: &'a [Step]) -> Vec<(&'a Sha256, &'a [u8])> {
    let mut seen = HashSet::new();
    let inline = |after: &'a StepContent| match &after.bytes {
        StepBytes::Inline(bytes) => Some((&after.sha256, bytes.as_slice())),
        StepBytes::Staged(_) => None,
    };
    steps.iter().filter_map(|step| inline(step.after.as_ref()?)).filter(|(sha256, _)| seen.insert(*sha256)).collect()
}

#[cfg(test)]
mod tests;
