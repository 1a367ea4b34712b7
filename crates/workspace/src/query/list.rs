//! Listing a folder to a depth, sorted and bounded.

mod entry;
mod lister;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, PathRejected, Refusal, Rules};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::error::not_a_directory;
use crate::guard::{Blocking, GuardError, Opened};
use crate::query::not_shown::NotShown;
use crate::walk::WalkPath;
use crate::{Tree, WorkspaceError};
pub(crate) use entry::{is_redacted, skip_missing};
use lister::Lister;
pub(crate) use lister::has_contents_after;

/// A query. Every number is within its bounds already.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// The folder.
    pub path: LogicalPath,
    /// The depth: 1 lists only the folder's own entries.
    pub max_depth: u32,
    /// Whether names that begin with `.` are shown.
    pub include_hidden: bool,
    /// Whether ignored, generated and vendored files are shown.
    pub include_ignored: bool,
    /// The maximum number of entries.
    pub max_entries: usize,
    /// List only entries after this path, in path order.
    pub after: Option<String>,
    /// Whether to count all entries if some are missing.
    pub counts_all: bool,
}

/// The largest number of entries that a list counts.
pub(crate) const MAX_COUNTED: u64 = 100_000;

/// The JSON size of an entry besides its path.
pub(crate) const ENTRY_OVERHEAD: usize = 128;

/// The entries that were found.
#[derive(Debug)]
pub struct Listing {
    /// The first entries by path, limited by `max_entries` and by the size of an answer.
    pub entries: Vec<FolderEntry>,
    /// Whether entries are missing at the end.
    pub truncated: bool,
    /// The number of all entries, those before [`ListQuery::after`] included. `None` if it was not requested, if nothing is
    /// missing, or if there are more than 100,000.
    pub total: Option<u64>,
    /// The entries that the listing leaves out in the folders that it has read, those before [`ListQuery::after`] not included unless
    /// all entries were counted.
    pub not_shown: NotShown,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Entry)]
pub struct FolderEntry {
    /// Its path from the root of the tree; bytes that are not UTF-8 are written `\xNN`.
    pub path: String,
    /// Its type.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Its kind, if it is a file or a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Its size, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether `read_file` would return its content.
    pub readable: bool,
    /// True for a secret file of settings of which `read_file` shows the keys without their values, because the policy says
    /// `REDACT`. It is not readable otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// If not, the code that reading it would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum EntryType {
    File,
    Directory,
    Symlink,
    Other,
}

impl EntryType {
    pub(crate) fn of(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Self::Other,
        }
    }
}

impl Tree {
    /// Lists a folder. `.git` is never listed; an entry that cannot be read is listed with the reason.
    ///
    /// A generated, vendored or ignored folder shows its contents if it is requested itself.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_DIRECTORY`; `Cancelled` once
    /// `cancel` is set.
    pub fn list(&self, rules: &Rules, query: &ListQuery, cancel: &AtomicBool) -> Result<Listing, WorkspaceError> {
        let opened = self.open_folder(rules, Access::Read, &query.path)?;
        let at = WalkPath { shown: query.path.clone(), real: opened.real.clone() };
        let mut lister = Lister::new(self, rules, query, cancel, at.real())?;
        let folder = opened.into_folder(at.real());
        lister.enter(&folder, &at)?;
        let total = if lister.counts_all() { lister.count(&folder, &at)? } else { None };
        Ok(lister.finish(total))
    }

    /// Opens the folder at `path`. Policy does not apply to a folder itself, unless it is in a submodule; for any other entry it is
    /// checked first.
    pub(crate) fn open_folder(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
    ) -> Result<Opened, WorkspaceError> {
        let found = match self.root.open(path, Blocking::Allowed) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            Ok(opened) if opened.file_type() == FileType::Directory => {
                return if rules.is_in_submodule(opened.real.as_ref().unwrap_or(path)) {
                    Err(Refusal::path(path.as_str(), PathRejected::Submodule).into())
                } else {
                    Ok(opened)
                };
            }
            found => found,
        };
        let opened = found.as_ref().ok();
        let kind = rules.kind_of_path(opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path));
        self.judge(rules, access, path, opened, kind, Blocking::Allowed)?;
        Err(match found {
            Ok(_) | Err(GuardError::Special) => not_a_directory(path).into(),
            Err(GuardError::NotADirectory) => Refusal::not_found(path).into(),
            Err(error) => error.at(path),
        })
    }
}
