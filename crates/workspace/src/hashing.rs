//! The bytes of a file as a stream, and the hash of bytes that are copied.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use model::Sha256;
use sha2::Digest as _;

/// Reads a part of a file, independently of the file's own position.
pub(crate) struct RangeReader<'a> {
    file: &'a File,
    range: Range<u64>,
}

impl<'a> RangeReader<'a> {
    pub(crate) fn new(file: &'a File, range: Range<u64>) -> Self {
        Self { file, range }
    }
}

impl Read for RangeReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.range.end.saturating_sub(self.range.start);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.range.start)?;
        self.range.start += count as u64;
        Ok(count)
    }
}

/// Copies `from` to `to` until its end, and returns the hash and the number of the bytes. `expected_size` only determines the
/// size of the buffer.
pub(crate) fn copy_hashed(from: &mut dyn Read, to: &mut dyn Write, expected_size: u64) -> io::Result<(Sha256, u64)> {
    let buffer_bytes = usize::try_from(expected_size).unwrap_or(usize::MAX).clamp(512, 256 * 1024);
    let (mut sha256, mut size, mut buffer) = (sha2::Sha256::new(), 0, vec![0; buffer_bytes]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((Sha256::from_bytes(sha256.finalize().into()), size)),
            Ok(count) => {
                size += count as u64;
                sha256.update(&buffer[..count]);
                to.write_all(&buffer[..count])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
