//! The bytes of an archive: decompressed if necessary, and counted.

use std::cell::{Cell, RefCell};
use std::io::{self, BufReader, Cursor, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use model::Refusal;

use crate::WorkspaceError;
use crate::import::ImportLimits;

/// The compression ratio is only checked beyond this size.
const RATIO_FREE_BYTES: u64 = 64 << 20;
/// The largest window of zstd, as a power of two: 8 MiB, which every decoder must have.
const MAX_WINDOW_LOG: u32 = 23;

/// Returns the bytes of the tar archive, decompressed if it is a tar.gz or a tar.zst.
pub(crate) fn decode(archive: &mut dyn Read, limits: ImportLimits) -> Result<DecodedStream<'_>, WorkspaceError> {
    let state = Rc::new(RawState::default());
    let mut raw = Raw { from: archive, state: state.clone() };
    let mut magic = Vec::new();
    (&mut raw).take(4).read_to_end(&mut magic).map_err(|error| state.failure(error))?;
    if magic.is_empty() {
        return Err(Refusal::invalid("the archive is empty", "Send a tar, tar.gz or tar.zst.").into());
    }
    let (is_gzip, is_zstd) = (magic.starts_with(&[0x1f, 0x8b]), magic == [0x28, 0xb5, 0x2f, 0xfd]);
    let head = Cursor::new(magic).chain(raw);
    let stream: Box<dyn Read + '_> = if is_gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 * 1024, head)))
    } else if is_zstd {
        let mut decoder = zstd::stream::read::Decoder::new(head).map_err(|error| state.failure(error))?;
        decoder.window_log_max(MAX_WINDOW_LOG).map_err(|error| state.failure(error))?;
        Box::new(decoder)
    } else {
        Box::new(head)
    };
    Ok(DecodedStream { from: BufReader::with_capacity(256 * 1024, stream), state, limits, bytes: 0 })
}

/// What is known of the stream before decompression.
#[derive(Default)]
struct RawState {
    bytes: Cell<u64>,
    /// The error of the caller's stream.
    broken: RefCell<Option<io::Error>>,
}

impl RawState {
    /// Converts a read error: the stream failed, or the archive is damaged, which is a [refusal](Refusal) inside the error.
    fn failure(&self, error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::Interrupted {
            return error;
        }
        self.broken.take().unwrap_or_else(|| {
            tracing::debug!(%error, "an archive was refused");
            io::Error::other(damaged())
        })
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
    state: Rc<RawState>,
}

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(count) => {
                self.state.bytes.set(self.state.bytes.get() + count as u64);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.state.broken.replace(Some(error));
                Err(kind.into())
            }
        }
    }
}

/// The stream after decompression, including headers and padding.
pub(crate) struct DecodedStream<'a> {
    from: BufReader<Box<dyn Read + 'a>>,
    state: Rc<RawState>,
    limits: ImportLimits,
    bytes: u64,
}

impl Read for DecodedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer).map_err(|error| self.state.failure(error))?;
        self.bytes = self.bytes.saturating_add(count as u64);
        // Headers and padding are added to the size of the files.
        let most = self.limits.max_bytes.saturating_add(self.limits.max_entries.saturating_mul(2048));
        let exceeds_ratio =
            self.bytes > RATIO_FREE_BYTES && self.bytes / self.limits.max_ratio > self.state.bytes.get();
        if self.bytes <= most && !exceeds_ratio {
            return Ok(count);
        }
        let refusal = Refusal::invalid(
            "the archive is too large when unpacked",
            "Import a smaller tree: omit build output, dependencies and data.",
        );
        Err(io::Error::other(refusal.with_details(|details| {
            details.limit = Some(self.limits.max_bytes);
            details.actual = Some(self.bytes);
        })))
    }
}
