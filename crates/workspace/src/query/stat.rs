//! The metadata of one path, and the hash of a file that may be read.

use std::ffi::CString;
use std::io;
use std::sync::atomic::AtomicBool;

use model::{Access, Code, FileKind, LogicalPath, PathFacts, PathRejected, Refusal, Rules, Sha256};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use sha2::Digest as _;

use crate::error::check_cancelled;
use crate::guard::{Blocking, GuardError, Opened, is_hard_linked};
use crate::opened_file::{head_of, kind_of};
use crate::query::list::is_redacted;
use crate::read::hash_cache;
use crate::stamp::DeviceStamp;
use crate::{EntryType, Tree, WorkspaceError};

/// How much is read at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// A ranged read accepts files up to this multiple of `maxFileBytes`. Larger files are not hashed either.
pub const RANGED_READ_FACTOR: u64 = 16;

/// What is at a path.
#[derive(Clone, Debug)]
pub struct PathStat {
    /// The path, as the caller named it.
    pub path: LogicalPath,
    /// The entry at the path; `None` if nothing exists.
    pub found: Option<EntryStat>,
    /// Whether policy would let a tool change the file, or create it if nothing exists, perhaps after approval.
    pub writable: bool,
}

/// An existing entry.
#[derive(Clone, Debug)]
pub struct EntryStat {
    /// Its type. A symbolic link is not followed.
    pub entry_type: EntryType,
    /// Its kind, if it is a file or a folder.
    pub kind: Option<FileKind>,
    /// Where a symbolic link leads to, if that may be read.
    pub target: Option<LogicalPath>,
    /// The code that reading it would be refused with; `None` if it would be read.
    pub refused: Option<Code>,
    /// Whether a read shows the keys of the secret file without their values.
    pub redacted: bool,
    /// Its size, if it is a file.
    pub size_bytes: Option<u64>,
    /// The time of the last write, RFC 3339 UTC.
    pub modified_at: String,
    /// Its permission bits.
    pub mode: u32,
    /// The hash of its bytes, if they may be read and are not too many.
    pub sha256: Option<Sha256>,
}

/// Whether a file is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhetherHashed {
    Wanted,
    Skipped,
}

/// The entry at a path, whose last name was not followed.
pub(crate) struct NameStat {
    stat: Stat,
    /// Its real path, if the path leads through a symbolic link.
    real: Option<LogicalPath>,
}

impl Tree {
    /// Describes what is at `path`. A symbolic link at its end is not followed; links on the way are.
    ///
    /// A file that policy hides is described as in a listing: it exists, without a hash, not readable. A missing file is not
    /// an error, even if policy hides its name.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`; `Cancelled` once `cancel` is set.
    pub fn stat(&self, rules: &Rules, path: &LogicalPath, cancel: &AtomicBool) -> Result<PathStat, WorkspaceError> {
        if let Some(stat) = self.stat_as(rules, path, WhetherHashed::Wanted, cancel)? {
            return Ok(stat);
        }
        if rules.is_in_submodule(path) {
            return Err(Refusal::path(path.as_str(), PathRejected::Submodule).into());
        }
        let may_create = self.may_change(rules, path, rules.kind_of_path(path), false)? && path.check_new().is_ok();
        let writable = may_create && self.can_create(path)?;
        Ok(PathStat { path: path.clone(), found: None, writable })
    }

    /// As [`stat`](Self::stat); `None` if nothing exists.
    pub(crate) fn stat_as(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        hashing: WhetherHashed,
        cancel: &AtomicBool,
    ) -> Result<Option<PathStat>, WorkspaceError> {
        let Some(name_stat) = self.name_stat(path)? else { return Ok(None) };
        let stat = &name_stat.stat;
        let entry_type = EntryType::of(FileType::from_raw_mode(stat.st_mode));
        let mut found = EntryStat {
            entry_type,
            kind: None,
            target: None,
            refused: None,
            redacted: false,
            size_bytes: None,
            modified_at: rfc3339(stat),
            mode: stat.st_mode & 0o7777,
            sha256: None,
        };
        let mut writable = false;
        match entry_type {
            EntryType::Other => found.refused = Some(Code::NotAFile),
            EntryType::Symlink => {
                found.refused = self.refusal_of_target(rules, path)?;
                found.target = self.link_target(rules, path)?;
            }
            EntryType::Directory => {
                found.kind = Some(rules.kind_of_dir(name_stat.real.as_ref().unwrap_or(path)));
                found.refused = self.refusal_of(rules, path, &name_stat, FileKind::Directory)?;
            }
            EntryType::File => {
                self.describe_file(rules, path, &name_stat, hashing, cancel, &mut found)?;
                // No mutation follows a link, and a file that a tool cannot read it cannot change.
                let open = name_stat.real.is_none() && found.refused.is_none();
                let kind = found.kind.unwrap_or(FileKind::Unknown);
                writable = open && self.may_change(rules, path, kind, is_hard_linked(stat))?;
                writable &= found.size_bytes.is_some_and(|size| size <= rules.policy().max_file_bytes);
            }
        }
        Ok(Some(PathStat { path: path.clone(), found: Some(found), writable }))
    }

    /// Whether a mutation could create a file at `path`, where nothing exists: no file and no link is on the way.
    fn can_create(&self, path: &LogicalPath) -> Result<bool, WorkspaceError> {
        match self.root.open_unlinked(path) {
            Err(GuardError::Missing) => Ok(true),
            Err(error @ GuardError::Io(_)) => Err(error.at(path)),
            Ok(_) | Err(_) => Ok(false),
        }
    }

    /// Returns the entry at `path`, without following its last name.
    pub(crate) fn name_stat(&self, path: &LogicalPath) -> Result<Option<NameStat>, WorkspaceError> {
        let parent = path.parent().unwrap_or_else(LogicalPath::root);
        let folder = match self.root.open(&parent, Blocking::Allowed) {
            Ok(folder) if folder.file_type() == FileType::Directory => folder,
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            Ok(_) | Err(_) => return Ok(None),
        };
        if path.is_root() {
            return Ok(Some(NameStat { stat: folder.stat, real: None }));
        }
        let rejected = |rule| Refusal::path(path.as_str(), rule);
        let folder_path = folder.real.clone().unwrap_or(parent);
        let real = folder.real.as_ref().map(|real| real.child(path.file_name())).transpose().map_err(rejected)?;
        let name = CString::new(path.file_name()).map_err(io::Error::from)?;
        match self.root.stat_entry(&folder.into_folder(&folder_path), &name) {
            Ok(stat) => Ok(stat.map(|stat| NameStat { stat, real })),
            Err(Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Adds the kind, size and hash of a file, as far as policy permits.
    fn describe_file(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        name_stat: &NameStat,
        hashing: WhetherHashed,
        cancel: &AtomicBool,
        found: &mut EntryStat,
    ) -> Result<(), WorkspaceError> {
        let kind = rules.kind_of_path(name_stat.real.as_ref().unwrap_or(path));
        let size = u64::try_from(name_stat.stat.st_size).unwrap_or(0);
        (found.kind, found.size_bytes) = (Some(kind), Some(size));
        found.refused = self.refusal_of(rules, path, name_stat, kind)?;
        if found.refused.is_some() {
            let real_path = name_stat.real.as_ref();
            let ignored = self.is_ignored(path, real_path, Blocking::Allowed)?;
            let facts = PathFacts { path, real_path, kind, ignored, hard_linked: is_hard_linked(&name_stat.stat) };
            found.redacted = is_redacted(rules, &facts, size);
            if found.redacted {
                // With the keys it would be the length of the values.
                found.size_bytes = None;
            }
            return Ok(());
        }
        if size > rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR) {
            found.refused = Some(Code::FileTooLarge);
            return Ok(());
        }
        let opened = match self.admit(rules, Access::Read, path, Blocking::Allowed) {
            Ok(admitted) => admitted.opened,
            Err(WorkspaceError::Refused(refusal)) => {
                found.refused = Some(refusal.code);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let head = head_of(&opened)?;
        let kind = kind_of(rules, opened.real.as_ref().unwrap_or(path), &head);
        found.kind = Some(kind);
        if kind == FileKind::SecretLike {
            found.refused = Some(Code::PolicyDeniedSecret);
            return Ok(());
        }
        if kind == FileKind::Binary || model::is_binary(&head) {
            found.refused = Some(Code::UnsupportedBinary);
        }
        if hashing == WhetherHashed::Wanted {
            let (sha256, length) = hash_file(&opened, cancel)?;
            (found.sha256, found.size_bytes) = (Some(sha256), Some(length));
        }
        Ok(())
    }

    /// Returns the code that reading `path` would be refused with, judged by its name.
    fn refusal_of(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        name_stat: &NameStat,
        kind: FileKind,
    ) -> Result<Option<Code>, WorkspaceError> {
        let real_path = name_stat.real.as_ref();
        let ignored = self.is_ignored(path, real_path, Blocking::Allowed)?;
        let facts = PathFacts { path, real_path, kind, ignored, hard_linked: is_hard_linked(&name_stat.stat) };
        Ok(model::judge_path(rules, Access::Read, &facts).err().map(|refusal| refusal.code))
    }

    /// Returns the code that reading the target of the link at `path` would be refused with.
    pub(crate) fn refusal_of_target(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<Code>, WorkspaceError> {
        let admitted = match self.root.open(path, Blocking::Allowed) {
            Ok(opened) if opened.file_type() == FileType::Directory => {
                self.judge(rules, Access::Read, path, Some(&opened), FileKind::Directory, Blocking::Allowed)
            }
            _ => self.admit(rules, Access::Read, path, Blocking::Allowed).map(drop),
        };
        match admitted {
            Ok(()) => Ok(None),
            Err(WorkspaceError::Refused(refusal)) => Ok(Some(refusal.code)),
            Err(error) => Err(error),
        }
    }

    /// Returns the path to which the symbolic links in `path` lead, if that may be read.
    pub(crate) fn link_target(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<LogicalPath>, WorkspaceError> {
        if self.refusal_of_target(rules, path)?.is_some() {
            return Ok(None);
        }
        Ok(self.root.open(path, Blocking::Allowed).ok().and_then(|opened| opened.real))
    }

    /// Whether policy would permit a mutation of `path`. Nothing in a mount can be changed.
    fn may_change(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        kind: FileKind,
        hard_linked: bool,
    ) -> Result<bool, WorkspaceError> {
        if self.ignored.is_none() {
            return Ok(false);
        }
        let ignored = self.is_ignored(path, None, Blocking::Allowed)?;
        let facts = PathFacts { path, real_path: None, kind, ignored, hard_linked };
        Ok(model::judge_path(rules, Access::Mutate, &facts).is_ok())
    }
}

/// Returns the hash and the length of a file.
fn hash_file(opened: &Opened, cancel: &AtomicBool) -> Result<(Sha256, u64), WorkspaceError> {
    let stamp = DeviceStamp::of(&opened.stat);
    if let Some(sha256) = hash_cache::get(&stamp) {
        return Ok((sha256, opened.size()));
    }
    opened.file.check()?;
    let (mut hash, mut length) = (sha2::Sha256::new(), 0);
    each_chunk(opened, cancel, |chunk| {
        hash.update(chunk);
        length += chunk.len() as u64;
    })?;
    let sha256 = Sha256::from_bytes(hash.finalize().into());
    let unchanged = DeviceStamp::of(&opened.file.stat()?) == stamp;
    hash_cache::insert(unchanged.then_some(stamp), sha256);
    Ok((sha256, length))
}

/// Calls `visit` with all bytes of a file, chunk by chunk.
pub(crate) fn each_chunk(
    opened: &Opened,
    cancel: &AtomicBool,
    mut visit: impl FnMut(&[u8]),
) -> Result<(), WorkspaceError> {
    let length = usize::try_from(opened.size()).unwrap_or(CHUNK_BYTES).clamp(1, CHUNK_BYTES);
    let (mut chunk, mut offset) = (vec![0; length], 0);
    loop {
        check_cancelled(cancel)?;
        match opened.file.read_at(&mut chunk, offset)? {
            0 => return Ok(()),
            count => {
                visit(&chunk[..count]);
                offset += count as u64;
            }
        }
    }
}

/// Returns the time of the last write.
fn rfc3339(stat: &Stat) -> String {
    let nanoseconds = i32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    // A time beyond the calendar is shown as the epoch.
    jiff::Timestamp::new(stat.st_mtime, nanoseconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
