//! What is read of an open file: its first bytes, its kind, all of it.

use std::io;
use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};
use rustix::fs::FileType;

use crate::WorkspaceError;
pub(crate) use crate::base_files::HEAD_BYTES;
use crate::error::check_cancelled;
use crate::guard::{Blocking, OpenFile, Opened};
use crate::stamp::DeviceStamp;

/// A longer file is not hashed where a call must not block.
pub(crate) const MAX_NON_BLOCKING_HASH_BYTES: usize = 256 * 1024;
/// How much is read at a time.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
/// How often a file is read again if it is written to while it is read.
const MAX_ATTEMPTS: u32 = 3;

/// Whether policy lets a caller read the file at `path`, judged by its name. Git must not ignore it.
pub(crate) fn is_readable(rules: &Rules, path: &LogicalPath, hard_linked: bool) -> bool {
    let kind = rules.kind_of_path(path);
    let facts = PathFacts { path, real_path: None, kind, ignored: false, hard_linked };
    model::judge_path(rules, Access::Read, &facts).is_ok()
}

/// Reads the first bytes of a file.
pub(crate) fn head_of(opened: &Opened) -> io::Result<Vec<u8>> {
    opened.file.bytes()?.chunk(0, HEAD_BYTES)
}

/// Whether the file at `path` is a secret by its content.
pub(crate) fn is_secret(rules: &Rules, path: &LogicalPath, opened: &Opened) -> io::Result<bool> {
    Ok(opened.file_type() == FileType::RegularFile && rules.is_secret_content(path, &head_of(opened)?))
}

/// As [`is_secret`], for the contents of a regular file that may have been replaced in the tree.
pub(crate) fn is_secret_file(rules: &Rules, path: &LogicalPath, file: &OpenFile) -> io::Result<bool> {
    Ok(rules.is_secret_content(path, &file.bytes()?.chunk(0, HEAD_BYTES)?))
}

/// Calls `visit` with the bytes of a file of about `size` bytes, chunk by chunk, until it returns false.
pub(crate) fn each_chunk(
    file: &OpenFile,
    size: u64,
    cancel: &AtomicBool,
    mut visit: impl FnMut(&[u8]) -> bool,
) -> Result<(), WorkspaceError> {
    let length = usize::try_from(size).unwrap_or(CHUNK_BYTES).clamp(1, CHUNK_BYTES);
    let (mut chunk, mut offset) = (vec![0; length], 0);
    loop {
        check_cancelled(cancel)?;
        let count = file.read_at(&mut chunk, offset)?;
        if count == 0 || !visit(&chunk[..count]) {
            return Ok(());
        }
        offset += count as u64;
    }
}

/// Returns the kind of the file at `path` with these bytes.
pub(crate) fn kind_of(rules: &Rules, path: &LogicalPath, bytes: &[u8]) -> FileKind {
    rules.kind_of_file(path, &bytes[..bytes.len().min(HEAD_BYTES)])
}

/// Whether a file of this kind with these bytes is not text. For some kinds the name alone does not decide.
pub(crate) fn is_binary(kind: FileKind, bytes: &[u8]) -> bool {
    match kind {
        FileKind::Binary => true,
        FileKind::SecretLike
        | FileKind::GitInternal
        | FileKind::Submodule
        | FileKind::Generated
        | FileKind::Vendored
        | FileKind::Lockfile => model::is_binary(&bytes[..bytes.len().min(HEAD_BYTES)]),
        FileKind::TextSource | FileKind::TextConfig | FileKind::TextDoc | FileKind::Directory | FileKind::Unknown => {
            false
        }
    }
}

/// Reads all bytes of `opened`, and returns them with their version; without it if the file was written to meanwhile. Returns
/// one byte more than `max_bytes` if the file has grown beyond that.
pub(crate) fn read_whole(
    opened: &Opened,
    max_bytes: u64,
    blocking: Blocking,
) -> io::Result<(Vec<u8>, Option<DeviceStamp>)> {
    let mut before = opened.stat;
    let mut bytes = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        let limit = usize::try_from(max_bytes.saturating_add(1)).unwrap_or(usize::MAX);
        let size = usize::try_from(before.st_size).unwrap_or(0).min(limit);
        if blocking == Blocking::Forbidden && opened.file.is_unchecked() && size > MAX_NON_BLOCKING_HASH_BYTES {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        bytes.clear();
        opened.file.bytes()?.append_to(&mut bytes, size, 0, blocking)?;
        let after = opened.file.stat()?;
        if DeviceStamp::of(&after) == DeviceStamp::of(&before) {
            opened.file.check_bytes(&bytes)?;
            return Ok((bytes, Some(DeviceStamp::of(&after))));
        }
        before = after;
    }
    Ok((bytes, None))
}
