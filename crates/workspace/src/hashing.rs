//! The hash of bytes that are copied.

use std::io::{self, Read, Write};

use model::Sha256;
use sha2::Digest as _;

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
