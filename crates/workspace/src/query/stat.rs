//! The metadata of one path, and the hash of a file that may be read.

use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, PathFacts, PathRejected, Refusal, Rules};

use crate::guard::{Blocking, GuardError, is_hard_linked};
use crate::query::entry::{EntryStat, EntryType};
use crate::read::hash_cache;
use crate::stamp::DeviceStamp;
use crate::{Tree, WorkspaceError};

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
            let (sha256, length) =
                hash_cache::hash_file(&opened.file, DeviceStamp::of(&opened.stat), u64::MAX, cancel)?;
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
