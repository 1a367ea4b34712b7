//! What the file formats of a base have in common: numbers are little-endian, and lists have checksums.

use std::io::{self, Read};

use flate2::Crc;

use super::damaged;

/// The error of a list that is not what was written.
pub(super) fn damaged_list() -> io::Error {
    damaged("a list of a base is damaged")
}

/// Reads `N` bytes.
pub(super) fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged_list()),
        Err(error) => Err(error),
    }
}

/// Reads a number.
pub(super) fn number(from: &mut impl Read) -> io::Result<u32> {
    array(from).map(u32::from_le_bytes)
}

/// Reads bytes that follow their number.
pub(super) fn bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let (length, mut bytes) = (number(from)?, Vec::new());
    let read = from.take(length.into()).read_to_end(&mut bytes)?;
    if read == length as usize { Ok(bytes) } else { Err(damaged_list()) }
}

/// As [`bytes`], without a copy.
pub(super) fn slice<'a>(from: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = number(from)? as usize;
    from.split_off(..length).ok_or_else(damaged_list)
}

/// Appends a number.
pub(super) fn put_number(out: &mut Vec<u8>, count: usize) {
    // The limits of an import are far below.
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

/// Appends bytes after their number.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends the checksum of the bytes from `start` on.
pub(super) fn put_checksum(out: &mut Vec<u8>, start: usize) {
    let checksum = checksum(&out[start..]);
    out.extend_from_slice(&checksum);
}

/// Returns the bytes that [`put_checksum`] was called for.
pub(super) fn without_checksum(bytes: &[u8]) -> io::Result<&[u8]> {
    let (bytes, last) = bytes.split_last_chunk().ok_or_else(damaged_list)?;
    if checksum(bytes) == *last { Ok(bytes) } else { Err(damaged_list()) }
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}
