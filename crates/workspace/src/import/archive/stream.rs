//! The bytes of an archive: decompressed if necessary, and counted.

use std::cell::{Cell, RefCell};
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use model::Refusal;

use crate::WorkspaceError;
use crate::import::ImportLimits;

/// The compression ratio is only checked beyond this size.
const RATIO_FREE_BYTES: u64 = 64 << 20;
/// The largest window of zstd, as a power of two: 8 MiB, which every decoder must have.
const MAX_WINDOW_LOG: u32 = 23;

type PeekedArchive<'a> = Chain<Cursor<Vec<u8>>, Raw<'a>>;

/// Returns the bytes of the tar archive, decompressed if it is a tar.gz or a tar.zst.
pub(crate) fn decode<'a>(archive: &'a mut dyn Read, meter: &Rc<Meter>) -> Result<DecodedStream<'a>, WorkspaceError> {
    let mut raw = Raw { from: archive, meter: meter.clone() };
    let mut magic = Vec::new();
    (&mut raw).take(4).read_to_end(&mut magic).map_err(|error| meter.failure(error))?;
    if magic.is_empty() {
        return Err(Refusal::invalid("the archive is empty", "Send a tar, tar.gz or tar.zst.").into());
    }
    let (is_gzip, is_zstd) = (magic.starts_with(&[0x1f, 0x8b]), magic == [0x28, 0xb5, 0x2f, 0xfd]);
    let head: PeekedArchive<'a> = Cursor::new(magic).chain(raw);
    let stream: Box<dyn Read + 'a> = if is_gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 * 1024, head)))
    } else if is_zstd {
        let mut decoder = zstd::stream::read::Decoder::new(head).map_err(|error| meter.failure(error))?;
        decoder.window_log_max(MAX_WINDOW_LOG).map_err(|error| meter.failure(error))?;
        Box::new(decoder)
    } else {
        Box::new(head)
    };
    Ok(DecodedStream { from: BufReader::with_capacity(256 * 1024, stream), meter: meter.clone() })
}

/// Counts the bytes before and after decompression.
#[derive(Default)]
pub(crate) struct Meter {
    limits: ImportLimits,
    raw_bytes: Cell<u64>,
    decoded_bytes: Cell<u64>,
    /// The error of the caller's stream.
    broken: RefCell<Option<io::Error>>,
    is_over: Cell<bool>,
}

impl Meter {
    pub(crate) fn new(limits: ImportLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Counts `bytes` of decompressed data.
    fn add(&self, bytes: u64) -> io::Result<()> {
        let decoded = self.decoded_bytes.get().saturating_add(bytes);
        self.decoded_bytes.set(decoded);
        // Headers and padding are added to the size of the files.
        let most = self.limits.max_bytes.saturating_add(self.limits.max_entries.saturating_mul(2048));
        let is_swollen = decoded > RATIO_FREE_BYTES && decoded / self.limits.max_ratio > self.raw_bytes.get();
        if decoded > most || is_swollen {
            self.is_over.set(true);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(())
    }

    /// Converts a read error: the stream failed, a limit was exceeded, or the archive is damaged. The last two are [refusals](Refusal)
    /// inside the error.
    fn failure(&self, error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::Interrupted {
            return error;
        }
        if let Some(broken) = self.broken.take() {
            return broken;
        }
        if !self.is_over.get() {
            tracing::debug!(%error, "an archive was refused");
            return io::Error::other(damaged());
        }
        let refusal = Refusal::invalid(
            "the archive is too large when unpacked",
            "Import a smaller tree: omit build output, dependencies and data.",
        );
        io::Error::other(refusal.with_details(|details| {
            details.limit = Some(self.limits.max_bytes);
            details.actual = Some(self.decoded_bytes.get());
        }))
    }
}

/// The refusal of what is no archive, or only a part of one.
pub(super) fn damaged() -> Refusal {
    let message = "the archive is damaged, or is not a tar, tar.gz or tar.zst";
    Refusal::invalid(message, "Send a complete tar, tar.gz or tar.zst.")
}

/// The stream before decompression.
struct Raw<'a> {
    from: &'a mut dyn Read,
    meter: Rc<Meter>,
}

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(count) => {
                self.meter.raw_bytes.set(self.meter.raw_bytes.get() + count as u64);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.meter.broken.replace(Some(error));
                Err(kind.into())
            }
        }
    }
}

/// The stream after decompression, including headers and padding.
pub(crate) struct DecodedStream<'a> {
    from: BufReader<Box<dyn Read + 'a>>,
    meter: Rc<Meter>,
}

impl Read for DecodedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer).and_then(|count| self.meter.add(count as u64).map(|()| count));
        read.map_err(|error| self.meter.failure(error))
    }
}
