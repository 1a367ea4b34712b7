//! Compression of stored texts and bytes by zstd. Only this module knows the format.
//!
//! A compressed value is one byte that names its dictionary, followed by a zstd frame. Its size before compression is in a column
//! beside it, which is NULL for a value that is stored as it is because compression does not make it smaller. A value is compressed only up to the maximum size of its column, so that a frame of a larger one is rejected
//! before memory is allocated for it.

use std::cell::RefCell;
use std::sync::LazyLock;

use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, ResetDirective, SafeResult};

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
const RECORDS: &[u8] = include_bytes!("dictionary.zdict");

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

#[cfg(test)]
mod tests;
