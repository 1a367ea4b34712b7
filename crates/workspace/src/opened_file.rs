//! What is read of an open file: its first bytes, its kind, all of it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};

use crate::guard::{Blocking, Opened};
use crate::stamp::DeviceStamp;

/// How many first bytes a file's kind is detected from.
pub(crate) const HEAD_BYTES: usize = 8 * 1024;
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
    head(&opened.file)
}

fn head(file: impl AsFd) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    rustix::io::pread(file, rustix::buffer::spare_capacity(&mut head), 0)?;
    head.truncate(HEAD_BYTES);
    Ok(head)
}

/// Whether the file at `path` is a secret by its content.
pub(crate) fn is_secret(rules: &Rules, path: &LogicalPath, opened: &Opened) -> io::Result<bool> {
    Ok(opened.file_type() == FileType::RegularFile && rules.is_secret_content(path, &head_of(opened)?))
}

/// As [`is_secret`], for the contents of a regular file that may have been replaced in the tree.
pub(crate) fn is_secret_file(rules: &Rules, path: &LogicalPath, file: &File) -> io::Result<bool> {
    Ok(rules.is_secret_content(path, &head(file)?))
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
        bytes = match blocking {
            Blocking::Allowed => read_bytes(opened, size)?,
            Blocking::Forbidden => read_cached_bytes(opened, size)?,
        };
        let after = rustix::fs::fstat(&opened.file)?;
        if DeviceStamp::of(&after) == DeviceStamp::of(&before) {
            return Ok((bytes, Some(DeviceStamp::of(&after))));
        }
        before = after;
    }
    Ok((bytes, None))
}

fn read_bytes(opened: &Opened, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let offset = bytes.len() as u64;
        match rustix::io::pread(&opened.file, rustix::buffer::spare_capacity(&mut bytes), offset) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    bytes.truncate(size);
    Ok(bytes)
}

/// As [`read_bytes`], but only from the page cache.
fn read_cached_bytes(opened: &Opened, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut done = 0;
    while done < size {
        let part = &mut [IoSliceMut::new(&mut bytes[done..])];
        match rustix::io::preadv2(&opened.file, part, done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // Some file systems do not support this; they count as slow.
            Err(Errno::OPNOTSUPP) => return Err(Errno::AGAIN.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
