//! Describing one entry: what it is, and whether it can be read.

use std::ffi::CStr;

use model::{Access, Code, FileKind, PathFacts, Rules};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::{EntryType, FolderEntry};
use crate::guard::{GuardError, TreeFolder, is_hard_linked};
use crate::opened_file::HEAD_BYTES;
use crate::query::stat::RANGED_READ_FACTOR;
use crate::walk::WalkPath;
use crate::{Tree, WorkspaceError};

/// An entry to be described.
pub(crate) struct UndescribedEntry<'a> {
    pub(crate) dir: &'a TreeFolder,
    pub(crate) name: &'a CStr,
    pub(crate) at: &'a WalkPath,
    /// Its kind, detected from its name.
    pub(crate) kind: FileKind,
    pub(crate) ignored: bool,
}

impl UndescribedEntry<'_> {
    /// Describes the entry, whose metadata is `stat`.
    pub(crate) fn entry(&self, tree: &Tree, rules: &Rules, stat: &Stat) -> Result<FolderEntry, WorkspaceError> {
        let entry_type = EntryType::of(FileType::from_raw_mode(stat.st_mode));
        let (kind, refused) = match entry_type {
            EntryType::Other => (None, Some(Code::NotAFile)),
            EntryType::Symlink => (None, tree.refusal_of_target(rules, &self.at.shown)?),
            EntryType::Directory => (Some(self.kind), self.judge(rules, FileKind::Directory, stat)),
            EntryType::File => {
                let (kind, refused) = self.file(tree, rules, stat)?;
                (Some(kind), refused)
            }
        };
        let redacted = entry_type == EntryType::File && self.is_redacted(rules, stat);
        Ok(FolderEntry {
            path: self.at.shown.as_str().to_owned(),
            entry_type,
            kind,
            // With the keys it would be the length of the values.
            size_bytes: size_of(entry_type, stat).filter(|_| !redacted),
            readable: refused.is_none(),
            redacted,
            reason: refused.map(|code| code.as_str().to_owned()),
        })
    }

    /// Returns the kind of a file, and the code that reading it would be refused with.
    fn file(&self, tree: &Tree, rules: &Rules, stat: &Stat) -> Result<(FileKind, Option<Code>), WorkspaceError> {
        if let Some(code) = self.judge(rules, self.kind, stat) {
            return Ok((self.kind, Some(code)));
        }
        let max_bytes = rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR);
        if u64::try_from(stat.st_size).unwrap_or(0) > max_bytes {
            return Ok((self.kind, Some(Code::FileTooLarge)));
        }
        let kind = match self.kind {
            FileKind::Unknown => self.sniff(tree, rules)?,
            known => known,
        };
        let refused = match kind {
            FileKind::SecretLike => Some(Code::PolicyDeniedSecret),
            FileKind::Binary => Some(Code::UnsupportedBinary),
            _ => None,
        };
        Ok((kind, refused))
    }

    /// Whether a read shows the keys of the secret file without their values.
    fn is_redacted(&self, rules: &Rules, stat: &Stat) -> bool {
        is_redacted(rules, &self.facts(self.kind, stat), size_of(EntryType::File, stat).unwrap_or(0))
    }

    fn facts(&self, kind: FileKind, stat: &Stat) -> PathFacts<'_> {
        let (path, real_path) = (&self.at.shown, self.at.real.as_ref());
        PathFacts { path, real_path, kind, ignored: self.ignored, hard_linked: is_hard_linked(stat) }
    }

    fn judge(&self, rules: &Rules, kind: FileKind, stat: &Stat) -> Option<Code> {
        model::judge_path(rules, Access::Read, &self.facts(kind, stat)).err().map(|refusal| refusal.code)
    }

    /// Detects the kind from the first bytes.
    fn sniff(&self, tree: &Tree, rules: &Rules) -> Result<FileKind, WorkspaceError> {
        let file = match tree.root.open_entry(self.dir, self.name) {
            Ok(file) => file.file,
            Err(error) => return Ok(error.unless_disk().map(|()| FileKind::Unknown)?),
        };
        let mut head = [0; HEAD_BYTES];
        // A read error is reported when the file is read.
        let length = file.read_at(&mut head, 0).unwrap_or(0);
        Ok(rules.kind_of_file(self.at.real(), &head[..length]))
    }
}

impl FolderEntry {
    /// Describes an entry that no call can name: its name is not UTF-8, or its path is too long.
    pub(super) fn unnameable(path: String, stat: &Stat) -> Self {
        let entry_type = EntryType::of(FileType::from_raw_mode(stat.st_mode));
        Self {
            path,
            entry_type,
            kind: None,
            size_bytes: size_of(entry_type, stat),
            readable: false,
            redacted: false,
            reason: Some(Code::PathRejected.as_str().to_owned()),
        }
    }
}

/// Whether a read of the secret file would show its keys without their values, judged by its name and its size.
pub(crate) fn is_redacted(rules: &Rules, facts: &PathFacts<'_>, size_bytes: u64) -> bool {
    model::may_read_redacted(rules, facts)
        && model::is_settings_file(facts.real_path.unwrap_or(facts.path))
        && size_bytes <= rules.policy().max_file_bytes
}

fn size_of(entry_type: EntryType, stat: &Stat) -> Option<u64> {
    (entry_type == EntryType::File).then(|| u64::try_from(stat.st_size).unwrap_or(0))
}

/// Returns `Ok` for an error that means that an entry was removed or replaced meanwhile, so that it is skipped.
pub(crate) fn skip_missing(errno: Errno) -> Result<(), WorkspaceError> {
    Ok(GuardError::from(errno).unless_disk()?)
}
