//! Reading whole files, through the guard and the policy.

pub(crate) mod hash_cache;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use model::{Access, FileKind, LogicalPath, PathFacts, Refusal, Rules, Sha256};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};

use crate::error::{file_too_large, not_a_file, unsupported_binary};
use crate::guard::{Blocking, GuardError, Opened};
use crate::stamp::DeviceStamp;
use crate::{Tree, WorkspaceError};

/// How many first bytes a file's kind is detected from.
pub(crate) const HEAD_BYTES: usize = 8 * 1024;
/// How often a file is read again if it is written to while it is read.
const MAX_ATTEMPTS: u32 = 3;
/// The largest file that is hashed where nothing may block.
const MAX_NON_BLOCKING_HASH_BYTES: usize = 256 * 1024;

/// A file that was read.
#[derive(Debug)]
pub struct FileContent {
    /// Its path, as the caller named it.
    pub path: LogicalPath,
    /// Its real path, if the path leads through a symbolic link.
    pub real_path: Option<LogicalPath>,
    /// Its kind.
    pub kind: FileKind,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// The hash of `bytes`.
    pub sha256: Sha256,
    /// Its permission bits.
    pub mode: u32,
}

/// A regular file that guard and policy have admitted.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) opened: Opened,
    /// Its kind, detected from its name.
    pub(crate) kind: FileKind,
}
impl Tree {
    /// Reads the text file at `path`, if it has at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_FILE`, `FILE_TOO_LARGE`,
    /// `UNSUPPORTED_BINARY`, the first that applies.
    pub fn read(&self, rules: &Rules, path: &LogicalPath, max_bytes: u64) -> Result<FileContent, WorkspaceError> {
        self.read_as(rules, path, max_bytes, Blocking::Allowed)
    }

    /// As [`read`](Self::read), but never waits for the disk, so that it may run where nothing may block. `None` if the file is
    /// not in memory, or would take long to hash.
    pub fn try_read(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Option<Result<FileContent, WorkspaceError>> {
        match self.read_as(rules, path, max_bytes, Blocking::Forbidden) {
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            done => Some(done),
        }
    }

    fn read_as(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
        blocking: Blocking,
    ) -> Result<FileContent, WorkspaceError> {
        let Admitted { opened, kind: by_name } = self.admit(rules, Access::Read, path, blocking)?;
        if opened.size() > max_bytes {
            return Err(file_too_large(path, max_bytes, opened.size()).into());
        }
        let (bytes, stamp) = read_whole(&opened, max_bytes, blocking)?;
        if bytes.len() as u64 > max_bytes {
            return Err(file_too_large(path, max_bytes, bytes.len() as u64).into());
        }
        let kind = kind_of(rules, opened.real.as_ref().unwrap_or(path), &bytes);
        if kind != by_name {
            self.judge(rules, Access::Read, path, Some(&opened), kind, blocking)?;
        }
        if is_binary(kind, &bytes) || model::detect_encoding(&bytes).is_none() {
            return Err(unsupported_binary(path).into());
        }
        let is_long = blocking == Blocking::Forbidden && bytes.len() > MAX_NON_BLOCKING_HASH_BYTES;
        let sha256 = match stamp.as_ref().and_then(hash_cache::get) {
            Some(sha256) => sha256,
            None if is_long => return Err(Errno::AGAIN.into()),
            None => hash_cache::hash(&bytes, stamp),
        };
        let mode = opened.stat.st_mode & 0o7777;
        Ok(FileContent { path: path.clone(), real_path: opened.real, kind, bytes, sha256, mode })
    }

    /// Returns the keys of the secret file of settings at `path` without their values. `None` if policy does not permit that, or
    /// the file is not a file of settings of at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn read_redacted(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        max_bytes: u64,
    ) -> Result<Option<String>, WorkspaceError> {
        let opened = match self.root.open(path, Blocking::Allowed) {
            Ok(opened) if opened.file_type() == FileType::RegularFile => opened,
            Err(error @ GuardError::Io(_)) => return Err(error.at(path)),
            Ok(_) | Err(_) => return Ok(None),
        };
        let real_path = opened.real.as_ref();
        let facts = PathFacts {
            path,
            real_path,
            kind: rules.kind_of_path(real_path.unwrap_or(path)),
            ignored: self.is_ignored(path, real_path, Blocking::Allowed)?,
            hard_linked: opened.is_hard_linked(),
        };
        if !model::may_read_redacted(rules, &facts) || opened.size() > max_bytes {
            return Ok(None);
        }
        let (bytes, _) = read_whole(&opened, max_bytes, Blocking::Allowed)?;
        let is_whole = bytes.len() as u64 <= max_bytes;
        Ok(is_whole.then(|| model::redact_settings(real_path.unwrap_or(path), &bytes)).flatten())
    }

    /// Opens the regular file at `path`. Policy is checked before existence.
    pub(crate) fn admit(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        blocking: Blocking,
    ) -> Result<Admitted, WorkspaceError> {
        let found = match self.root.open(path, blocking) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            found => found,
        };
        let opened = found.as_ref().ok();
        let kind = rules.kind_of_path(opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path));
        self.judge(rules, access, path, opened, kind, blocking)?;
        let opened = found.map_err(|error| match error {
            GuardError::NotADirectory => Refusal::not_found(path).into(),
            error => error.at(path),
        })?;
        match opened.file_type() {
            FileType::RegularFile => Ok(Admitted { opened, kind }),
            _ => Err(not_a_file(path).into()),
        }
    }

    /// Checks the policy for `path`, and for its real path.
    pub(crate) fn judge(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        opened: Option<&Opened>,
        kind: FileKind,
        blocking: Blocking,
    ) -> Result<(), WorkspaceError> {
        let real_path = opened.and_then(|opened| opened.real.as_ref());
        let facts = PathFacts {
            path,
            real_path,
            kind,
            ignored: self.is_ignored(path, real_path, blocking)?,
            hard_linked: opened.is_some_and(Opened::is_hard_linked),
        };
        Ok(model::judge_path(rules, access, &facts)?)
    }

    /// Checks the policy for the content of a regular file: a private key is a secret under any name.
    pub(crate) fn judge_content(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        opened: &Opened,
    ) -> Result<(), WorkspaceError> {
        if is_secret(rules, opened.real.as_ref().unwrap_or(path), opened)? {
            self.judge(rules, access, path, Some(opened), FileKind::SecretLike, Blocking::Allowed)?;
        }
        Ok(())
    }

    /// Whether git ignores the file at `path` and does not track it.
    pub(crate) fn is_ignored(
        &self,
        path: &LogicalPath,
        real_path: Option<&LogicalPath>,
        blocking: Blocking,
    ) -> io::Result<bool> {
        let Some(ignored) = &self.ignored else { return Ok(false) };
        let Some(real_path) = real_path else { return ignored.is_file_ignored(&self.root, path, blocking) };
        // A link, or a file that is reached through one, is hidden by its own name unless the link itself is tracked.
        let by_own_name =
            ignored.is_file_ignored(&self.root, path, blocking)? && !ignored.tracks_above(path, blocking)?;
        Ok(by_own_name || ignored.is_file_ignored(&self.root, real_path, blocking)?)
    }
}

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
