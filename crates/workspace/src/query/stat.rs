//! The metadata of one path, and the hash of a file that may be read.

use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, PathFacts, PathRejected, Refusal, Rules, Sha256};
use sha2::Digest as _;

use crate::error::check_cancelled;
use crate::guard::{Blocking, GuardError, Opened, is_hard_linked};
use crate::query::entry::{EntryStat, EntryType};
use crate::read::hash_cache;
use crate::stamp::DeviceStamp;
use crate::{Tree, WorkspaceError};

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
        let Some((dir, entry, stat)) = self.entry_at(rules, path)? else {
            if rules.is_in_submodule(path) {
                return Err(Refusal::path(path.as_str(), PathRejected::Submodule).into());
            }
            let may_create = self.may_change(rules, path, rules.kind_of_path(path), false)? && path.check_new().is_ok();
            let writable = may_create && self.can_create(path)?;
            return Ok(PathStat { path: path.clone(), found: None, writable });
        };
        let (mut found, opened) = self.describe(rules, &dir, &entry, &stat, true)?;
        if let Some(opened) = opened {
            let (sha256, length) = hash_file(&opened, cancel)?;
            (found.sha256, found.size_bytes) = (Some(sha256), Some(length));
        }
        let mut writable = false;
        match found.entry_type {
            EntryType::Symlink => found.target = self.link_target(rules, path)?,
            // No mutation follows a link, and a file that a tool cannot read it cannot change.
            EntryType::File if entry.at.real.is_none() && found.refused.is_none() => {
                let kind = found.kind.unwrap_or(FileKind::Unknown);
                writable = found.size_bytes.is_some_and(|size| size <= rules.policy().max_file_bytes)
                    && self.may_change(rules, path, kind, is_hard_linked(&stat))?;
            }
            EntryType::File | EntryType::Directory | EntryType::Other => {}
        }
        Ok(PathStat { path: path.clone(), found: Some(found), writable })
    }

    /// Whether a mutation could create a file at `path`, where nothing exists: no file and no link is on the way.
    fn can_create(&self, path: &LogicalPath) -> Result<bool, WorkspaceError> {
        match self.root.open_unlinked(path) {
            Err(GuardError::Missing) => Ok(true),
            Err(error @ GuardError::Io(_)) => Err(error.at(path)),
            Ok(_) | Err(_) => Ok(false),
        }
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
