//! What is at one path: metadata, and the hash of what may be read.

use std::sync::atomic::{AtomicBool, Ordering};

use model::{Access, Code, FileKind, LogicalPath, PathFacts, Refusal, Rules, Sha256};
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use sha2::Digest as _;

use crate::guard::{Blocking, GuardError, Opened, Stamp, is_hard_linked};
use crate::read::{hashes, kind_of};
use crate::{EntryType, Tree, WorkspaceError};

/// So many first bytes tell a file's kind.
const HEAD_BYTES: usize = 8 * 1024;
/// What is read at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// A ranged read takes files up to so many times `maxFileBytes`; larger ones are not hashed either.
pub const RANGED_READ_FACTOR: u64 = 16;

/// What is at a path.
#[derive(Clone, Debug)]
pub struct PathStat {
    /// As the caller named it.
    pub path: LogicalPath,
    /// What is there; `None` where nothing is.
    pub found: Option<Found>,
    /// Whether policy would let a tool change it, or make it where nothing is; with a person's consent, maybe.
    pub writable: bool,
}

/// Something that is there.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it is; a symbolic link is told as itself.
    pub entry_type: EntryType,
    /// Its kind, where it is a file or a folder.
    pub kind: Option<FileKind>,
    /// The code that reading it would be refused with; `None` where it would be read.
    pub refused: Option<Code>,
    /// Its size, where it is a file.
    pub size_bytes: Option<u64>,
    /// When it was last written, RFC 3339 UTC.
    pub modified_at: String,
    /// Its permission bits.
    pub mode: u32,
    /// Hash of its bytes, where they may be told and are not too many.
    pub sha256: Option<Sha256>,
}

/// Whether the bytes are looked at as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashing {
    Wanted,
    Spared,
}

/// What stands at a name, without following it.
struct NameStat {
    stat: Stat,
    /// Where it is, if a symbolic link was on the way.
    real: Option<LogicalPath>,
}

impl Tree {
    /// Tells what is at `path`. A symbolic link at its end is told as itself, links on the way are followed.
    ///
    /// What policy keeps closed is told as a listing tells it: that it is there, without a hash, not readable. What is not
    /// there is no error, whatever its name.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`; `Cancelled` once `cancel` is set.
    pub fn stat(&self, rules: &Rules, path: &LogicalPath, cancel: &AtomicBool) -> Result<PathStat, WorkspaceError> {
        if let Some(stat) = self.stat_as(rules, path, Hashing::Wanted, cancel)? {
            return Ok(stat);
        }
        let may = self.may_change(rules, path, rules.kind_of_path(path), false)? && path.check_new().is_ok();
        let writable = may && self.has_way_to(path)?;
        Ok(PathStat { path: path.clone(), found: None, writable })
    }

    /// As [`stat`](Self::stat); `None` where nothing is there.
    pub(crate) fn stat_as(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        hashing: Hashing,
        cancel: &AtomicBool,
    ) -> Result<Option<PathStat>, WorkspaceError> {
        let Some(name_stat) = self.name_stat(path)? else { return Ok(None) };
        let stat = &name_stat.stat;
        let entry_type = EntryType::of(FileType::from_raw_mode(stat.st_mode));
        let mut found = Found {
            entry_type,
            kind: None,
            refused: None,
            size_bytes: None,
            modified_at: rfc3339(stat),
            mode: stat.st_mode & 0o7777,
            sha256: None,
        };
        let mut writable = false;
        match entry_type {
            EntryType::Other => found.refused = Some(Code::NotAFile),
            EntryType::Symlink => found.refused = self.refusal_behind(rules, path)?,
            EntryType::Directory => {
                found.kind = Some(rules.kind_of_dir(name_stat.real.as_ref().unwrap_or(path)));
                found.refused = self.refusal_of(rules, path, &name_stat, FileKind::Directory)?;
            }
            EntryType::File => {
                self.look_into(rules, path, &name_stat, hashing, cancel, &mut found)?;
                // No mutation follows a link, and what a tool cannot read it cannot write.
                let open = name_stat.real.is_none() && found.refused.is_none();
                let kind = found.kind.unwrap_or(FileKind::Unknown);
                writable = open && self.may_change(rules, path, kind, is_hard_linked(stat))?;
                writable &= found.size_bytes.is_some_and(|size| size <= rules.policy().max_file_bytes);
            }
        }
        Ok(Some(PathStat { path: path.clone(), found: Some(found), writable }))
    }

    /// Whether a mutation could make a file at `path`, where nothing is: no file and no link is on the way.
    fn has_way_to(&self, path: &LogicalPath) -> Result<bool, WorkspaceError> {
        match self.root.open_unlinked(path) {
            Err(GuardError::Missing) => Ok(true),
            Err(error @ GuardError::Io(_)) => Err(error.at(path)),
            Ok(_) | Err(_) => Ok(false),
        }
    }

    /// What stands at `path`, its last name not followed.
    fn name_stat(&self, path: &LogicalPath) -> Result<Option<NameStat>, WorkspaceError> {
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
        let real = folder.real.map(|real| real.child(path.file_name())).transpose().map_err(rejected)?;
        match rustix::fs::statat(&folder.file, path.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(NameStat { stat, real })),
            Err(Errno::NOENT | Errno::NAMETOOLONG | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Kind, size and hash of a file, as far as policy lets them be told.
    fn look_into(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        name_stat: &NameStat,
        hashing: Hashing,
        cancel: &AtomicBool,
        found: &mut Found,
    ) -> Result<(), WorkspaceError> {
        let kind = rules.kind_of_path(name_stat.real.as_ref().unwrap_or(path));
        let size = u64::try_from(name_stat.stat.st_size).unwrap_or(0);
        (found.kind, found.size_bytes) = (Some(kind), Some(size));
        found.refused = self.refusal_of(rules, path, name_stat, kind)?;
        if found.refused.is_some() {
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
        if kind == FileKind::Binary || model::is_binary(&head) {
            found.refused = Some(Code::UnsupportedBinary);
        }
        if hashing == Hashing::Wanted {
            let (sha256, length) = hash_of(&opened, cancel)?;
            (found.sha256, found.size_bytes) = (Some(sha256), Some(length));
        }
        Ok(())
    }

    /// What reading at `path` would be refused with, as far as its name tells.
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

    /// What reading through the link at `path` would be refused with.
    pub(crate) fn refusal_behind(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<Code>, WorkspaceError> {
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

    /// Whether policy would let a mutation of `path` pass; nothing in a mount is ever changed.
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

/// The first bytes of `opened`.
pub(crate) fn head_of(opened: &Opened) -> Result<Vec<u8>, WorkspaceError> {
    let mut head = vec![0; HEAD_BYTES];
    let length = rustix::io::pread(&opened.file, &mut head, 0)?;
    head.truncate(length);
    Ok(head)
}

/// Hash and length of all that `opened` holds.
fn hash_of(opened: &Opened, cancel: &AtomicBool) -> Result<(Sha256, u64), WorkspaceError> {
    let stamp = Stamp::of(&opened.stat);
    if let Some(sha256) = hashes::known(&stamp) {
        return Ok((sha256, opened.size()));
    }
    let (mut hash, mut length) = (sha2::Sha256::new(), 0);
    each_piece(opened, cancel, |piece| {
        hash.update(piece);
        length += piece.len() as u64;
    })?;
    let sha256 = Sha256::from_bytes(hash.finalize().into());
    let unchanged = Stamp::of(&rustix::fs::fstat(&opened.file)?) == stamp;
    hashes::keep(unchanged.then_some(stamp), sha256);
    Ok((sha256, length))
}

/// Tells `tell` all that `opened` holds, piece by piece.
pub(crate) fn each_piece(
    opened: &Opened,
    cancel: &AtomicBool,
    mut tell: impl FnMut(&[u8]),
) -> Result<(), WorkspaceError> {
    let length = usize::try_from(opened.size()).unwrap_or(PIECE_BYTES).clamp(1, PIECE_BYTES);
    let (mut piece, mut offset) = (vec![0; length], 0);
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(WorkspaceError::Cancelled);
        }
        match rustix::io::pread(&opened.file, &mut piece, offset) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                tell(&piece[..count]);
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// When the file that `stat` is of was last written.
fn rfc3339(stat: &Stat) -> String {
    let nanoseconds = i32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    // A time that no calendar holds is told as the epoch.
    jiff::Timestamp::new(stat.st_mtime, nanoseconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
