//! Whole files, read through the guard and the judge.

pub(crate) mod hashes;
#[cfg(test)]
mod tests;

use std::io::{self, IoSliceMut};

use model::{Access, FileKind, LogicalPath, PathFacts, Refusal, Rules, Sha256};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};

use crate::error::{file_too_large, not_a_file, unsupported_binary};
use crate::guard::{Blocking, GuardError, Opened, Stamp};
use crate::{Tree, WorkspaceError};

/// So many first bytes tell a file's kind.
pub(crate) const HEAD_BYTES: usize = 8 * 1024;
/// How often a file that is written to while it is read is read again.
const TORN_READS: u32 = 3;
/// The largest file that is hashed where nothing may block.
const MAX_PROMPT_HASH_BYTES: usize = 256 * 1024;

/// A file that was read.
#[derive(Debug)]
pub struct FileContent {
    /// As the caller named it.
    pub path: LogicalPath,
    /// Where it led, if a symbolic link was on the way.
    pub real_path: Option<LogicalPath>,
    /// Its kind.
    pub kind: FileKind,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Hash of `bytes`.
    pub sha256: Sha256,
    /// Its permission bits.
    pub mode: u32,
}

/// A regular file that guard and judge have let pass.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) opened: Opened,
    /// Its kind as far as its name tells.
    pub(crate) kind: FileKind,
}

impl Tree {
    /// Reads the text file at `path`, at most `max_bytes` of it.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_FILE`, `FILE_TOO_LARGE`,
    /// `UNSUPPORTED_BINARY`, the first that applies.
    pub fn read(&self, rules: &Rules, path: &LogicalPath, max_bytes: u64) -> Result<FileContent, WorkspaceError> {
        self.read_as(rules, path, max_bytes, Blocking::Allowed)
    }

    /// As [`read`](Self::read), but never waits for a disk, so that it may run where nothing may block: `None` where the
    /// answer is not all in memory, or would take long to hash.
    pub fn try_read(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Option<Result<FileContent, WorkspaceError>> {
        match self.read_as(rules, path, max_bytes, Blocking::Never) {
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            done => Some(done),
        }
    }

    fn read_as(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
        wait: Blocking,
    ) -> Result<FileContent, WorkspaceError> {
        let Admitted { opened, kind: by_name } = self.admit(rules, Access::Read, path, wait)?;
        if opened.size() > max_bytes {
            return Err(file_too_large(path, max_bytes, opened.size()).into());
        }
        let (bytes, stamp) = read_whole(&opened, max_bytes, wait)?;
        if bytes.len() as u64 > max_bytes {
            return Err(file_too_large(path, max_bytes, bytes.len() as u64).into());
        }
        let kind = kind_of(rules, opened.real.as_ref().unwrap_or(path), &bytes);
        if kind != by_name {
            self.judge(rules, Access::Read, path, Some(&opened), kind, wait)?;
        }
        if is_binary(kind, &bytes) || model::detect_encoding(&bytes).is_none() {
            return Err(unsupported_binary(path).into());
        }
        let sha256 = match stamp.as_ref().and_then(hashes::known) {
            Some(sha256) => sha256,
            None if wait == Blocking::Never && bytes.len() > MAX_PROMPT_HASH_BYTES => return Err(Errno::AGAIN.into()),
            None => {
                let sha256 = Sha256::of(&bytes);
                hashes::keep(stamp, sha256);
                sha256
            }
        };
        let mode = opened.stat.st_mode & 0o7777;
        Ok(FileContent { path: path.clone(), real_path: opened.real, kind, bytes, sha256, mode })
    }

    /// Opens the regular file at `path` and judges it: policy comes before existence.
    pub(crate) fn admit(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        wait: Blocking,
    ) -> Result<Admitted, WorkspaceError> {
        let found = match self.root.open(path, wait) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            found => found,
        };
        let opened = found.as_ref().ok();
        let kind = rules.kind_of_path(opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path));
        self.judge(rules, access, path, opened, kind, wait)?;
        let opened = found.map_err(|error| match error {
            GuardError::NotADirectory => Refusal::not_found(path).into(),
            error => error.at(path),
        })?;
        match opened.file_type() {
            FileType::RegularFile => Ok(Admitted { opened, kind }),
            _ => Err(not_a_file(path).into()),
        }
    }

    /// Asks policy about `path`, and about where it leads.
    pub(crate) fn judge(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        opened: Option<&Opened>,
        kind: FileKind,
        wait: Blocking,
    ) -> Result<(), WorkspaceError> {
        let real_path = opened.and_then(|opened| opened.real.as_ref());
        let facts = PathFacts {
            path,
            real_path,
            kind,
            ignored: self.is_ignored(path, real_path, wait)?,
            hard_linked: opened.is_some_and(Opened::is_hard_linked),
        };
        Ok(model::judge_path(rules, access, &facts)?)
    }

    /// Whether git ignores what is at `path` and does not track it.
    pub(crate) fn is_ignored(
        &self,
        path: &LogicalPath,
        real_path: Option<&LogicalPath>,
        wait: Blocking,
    ) -> io::Result<bool> {
        let Some(ignored) = &self.ignored else { return Ok(false) };
        let Some(real_path) = real_path else { return ignored.holds_file(&self.root, path, wait) };
        // By its own name a link, or what lies behind one, is hidden unless the link itself is tracked.
        let by_own_name = ignored.holds_file(&self.root, path, wait)? && !ignored.tracks_on_the_way(path, wait)?;
        Ok(by_own_name || ignored.holds_file(&self.root, real_path, wait)?)
    }
}

/// The kind of the file at `path` with these bytes.
pub(crate) fn kind_of(rules: &Rules, path: &LogicalPath, bytes: &[u8]) -> FileKind {
    rules.kind_of_file(path, &bytes[..bytes.len().min(HEAD_BYTES)])
}

/// Whether a file of that kind with these bytes is no text. Names of some kinds say nothing of it.
pub(crate) fn is_binary(kind: FileKind, bytes: &[u8]) -> bool {
    match kind {
        FileKind::Binary => true,
        FileKind::SecretLike
        | FileKind::GitInternal
        | FileKind::Generated
        | FileKind::Vendored
        | FileKind::Lockfile => model::is_binary(&bytes[..bytes.len().min(HEAD_BYTES)]),
        FileKind::TextSource | FileKind::TextConfig | FileKind::TextDoc | FileKind::Directory | FileKind::Unknown => {
            false
        }
    }
}

/// All bytes of `opened`, and the version they are; no version where it was written to meanwhile. A byte more than
/// `max_bytes` where it has grown beyond that.
pub(crate) fn read_whole(opened: &Opened, max_bytes: u64, wait: Blocking) -> io::Result<(Vec<u8>, Option<Stamp>)> {
    let mut before = opened.stat;
    let mut bytes = Vec::new();
    for _ in 0..TORN_READS {
        let limit = usize::try_from(max_bytes.saturating_add(1)).unwrap_or(usize::MAX);
        let size = usize::try_from(before.st_size).unwrap_or(0).min(limit);
        bytes = match wait {
            Blocking::Allowed => read_bytes(opened, size)?,
            Blocking::Never => read_cached_bytes(opened, size)?,
        };
        let after = rustix::fs::fstat(&opened.file)?;
        if Stamp::of(&after) == Stamp::of(&before) {
            return Ok((bytes, Some(Stamp::of(&after))));
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

/// As [`read_bytes`], from the kernel's memory alone.
fn read_cached_bytes(opened: &Opened, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut done = 0;
    while done < size {
        let part = &mut [IoSliceMut::new(&mut bytes[done..])];
        match rustix::io::preadv2(&opened.file, part, done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // Some file systems cannot tell; they count as slow.
            Err(Errno::OPNOTSUPP) => return Err(Errno::AGAIN.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
