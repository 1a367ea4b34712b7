//! What a run has changed since an earlier record, which a change that was made outside of the service is compared with.

use std::collections::BTreeMap;

use model::{LogicalPath, RunId, Sha256};
use serde::{Deserialize, Serialize};

use crate::tool::earlier_calls::StoredContent;

/// The part of a fork's history that is merged.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedFork {
    /// The fork.
    pub run_id: RunId,
    /// The last record whose changes are merged.
    pub seq: u64,
    /// The record of the fork whose state both runs have in common.
    pub base_seq: u64,
}

/// The changes of a run after a record.
#[derive(Debug, Default)]
pub struct ChangedSince {
    /// The record.
    pub seq: u64,
    /// The versions that the change replaces, where it says so; `None` for no file. Where a later record has made that version, only what was
    /// changed after it counts: a folder may have newer versions of some files than the record that it is at.
    pub bases: BTreeMap<LogicalPath, Option<Sha256>>,
    /// The fork that is merged. What is compared with the present files is its state at [`base_seq`](MergedFork::base_seq) then.
    pub fork: Option<MergedFork>,
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
