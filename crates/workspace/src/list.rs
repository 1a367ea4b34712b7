//! Listings: what is in a folder, to a depth, sorted and bounded.

use std::sync::atomic::AtomicBool;

use model::{FileKind, LogicalPath, Rules};
use serde::{Deserialize, Serialize};

use crate::{Fault, Tree};

/// What to list. Every number is within its bounds already.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// The folder.
    pub path: LogicalPath,
    /// How deep: 1 is the folder's own entries.
    pub max_depth: u32,
    /// Whether names that begin with `.` are shown.
    pub include_hidden: bool,
    /// Whether what git ignores, what is generated and what is vendored is shown.
    pub include_ignored: bool,
    /// At most so many entries.
    pub max_entries: usize,
}

/// What was found.
#[derive(Debug)]
pub struct Listing {
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// Whether entries are missing.
    pub truncated: bool,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its path from the root of the tree; bytes that are no UTF-8 are written `\xNN`.
    pub path: String,
    /// What it is.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Its kind, where it is a file or a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Its size, where it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether read_file would tell its content.
    pub readable: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an entry is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum EntryType {
    File,
    Directory,
    Symlink,
    Other,
}

impl Tree {
    /// Lists a folder.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_DIRECTORY`; `Cancelled` once
    /// `cancel` is set.
    pub fn list(&self, _rules: &Rules, _query: &ListQuery, _cancel: &AtomicBool) -> Result<Listing, Fault> {
        unimplemented!()
    }
}
