//! Reading to the end, and the hash of bytes that are copied.

use std::io::{self, Read, Write};

use model::Sha256;
use sha2::Digest as _;

/// Copies `from` to `to` until its end, and returns the hash and the number of the bytes. `expected_size` only determines the
/// size of the buffer.
pub(crate) fn copy_hashed(from: &mut dyn Read, to: &mut dyn Write, expected_size: u64) -> io::Result<(Sha256, u64)> {
    let buffer_bytes = usize::try_from(expected_size).unwrap_or(usize::MAX).clamp(512, 256 * 1024);
    let mut sha256 = sha2::Sha256::new();
    let size = each_chunk(from, &mut vec![0; buffer_bytes], |chunk, _| {
        sha256.update(chunk);
        to.write_all(chunk)
    })?;
    Ok((Sha256::from_bytes(sha256.finalize().into()), size))
}

/// Calls `take` with each part of `from`, and the number of bytes up to its end. Returns their number.
pub(crate) fn each_chunk<E: From<io::Error>>(
    from: &mut dyn Read,
    buffer: &mut [u8],
    mut take: impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<u64, E> {
    let mut bytes = 0;
    loop {
        match from.read(buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => {
                bytes += count as u64;
                take(&buffer[..count], bytes)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
