//! Hashes of files in a tree, and of bytes that are copied.

use std::fs::File;
use std::io::{self, Read, Write};

use model::{LogicalPath, PathRejected, Sha256};
use sha2::Digest as _;

use crate::guard::{GuardError, Root};
use crate::stamp::FileStamp;

/// Returns the hash and the stamp of the file at `path`, of a symbolic link that of its target. `None` if there is neither, or the file
/// changed meanwhile.
pub(crate) fn hash(root: &Root, path: &LogicalPath) -> io::Result<Option<(Sha256, FileStamp)>> {
    let opened = match root.open_unlinked(path) {
        Ok(opened) => opened,
        Err(GuardError::Rejected(PathRejected::LinkInMutation)) => {
            let link = root.find_link(path)?;
            return Ok(link.map(|link| (Sha256::of(&link.target), FileStamp::of(&link.stat))));
        }
        Err(error) => {
            error.unless_disk()?;
            return Ok(None);
        }
    };
    if !opened.file_type().is_file() || opened.is_hard_linked() {
        return Ok(None);
    }
    let before = FileStamp::of(&opened.stat);
    let mut file = File::from(opened.file);
    let (sha256, _) = copy_hashed(&mut file, &mut io::sink(), before.size)?;
    let after = FileStamp::of(&rustix::fs::fstat(&file)?);
    Ok((before == after).then_some((sha256, after)))
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
