//! What a run has changed since an earlier record, which a change that was made outside of the service is compared with.

use std::collections::BTreeMap;

use model::{LogicalPath, Sha256};

use crate::tool::earlier_calls::StoredContent;

/// The changes of a run after a record.
#[derive(Debug, Default)]
pub struct ChangedSince {
    /// The record.
    pub seq: u64,
    /// The versions that the change replaces, where it says so; `None` for no file. Where a later record has made that version, only what was
    /// changed after it counts: a folder may have newer versions of some files than the record that it is at.
    pub bases: BTreeMap<LogicalPath, Option<Sha256>>,
    /// Whether the contents at that record are needed.
    pub with_contents: bool,
    /// The files that have changed, of those that the call names.
    pub files: BTreeMap<LogicalPath, FileSince>,
}

/// A file that has changed.
#[derive(Debug)]
pub struct FileSince {
    /// Hash of its content at the record; `None` if there was no file.
    pub before: Option<Sha256>,
    /// The newest record that has changed it.
    pub last_seq: u64,
    /// Its content at the record, if it is needed.
    pub base: Option<StoredContent>,
}
