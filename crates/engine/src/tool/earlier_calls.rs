//! Earlier calls of a run, which a plan that undoes them needs.

use std::collections::BTreeMap;

use model::{LogicalPath, RecordFile, Sha256, ToolCallId};

/// The earlier calls that a plan needs.
#[derive(Clone, Debug)]
pub enum EarlierCallsQuery {
    /// The mutations with these IDs.
    Calls(Vec<ToolCallId>),
    /// Every mutation with a record after this one.
    After(u64),
    /// So many of the caller's own last mutations.
    Last(usize),
    /// The last of the caller's own mutations that the caller has not undone.
    LastEdit,
}

/// An earlier call that changed files: the parts of its record and diff that undoing it needs.
#[derive(Debug)]
pub struct EarlierCall {
    /// The number of its record.
    pub seq: u64,
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// The files that it changed.
    pub files: Vec<RecordFile>,
    /// Whether it is a change set.
    pub is_of_command: bool,
    /// Its diff. Empty if no file has to be restored from it.
    pub diff: Vec<u8>,
}

/// Earlier calls, and the contents of their files before them.
#[derive(Debug)]
pub struct EarlierCalls {
    /// The calls, oldest first.
    pub calls: Vec<EarlierCall>,
    /// Each file that existed before the first of the calls that changed it.
    pub files: Vec<EarlierFile>,
}

/// A file before some calls.
#[derive(Debug)]
pub struct EarlierFile {
    /// Its path.
    pub path: LogicalPath,
    /// The hash of its content.
    pub sha256: Sha256,
    /// Its content, as far as it is stored.
    pub content: StoredContent,
}

/// An earlier content of a file.
#[derive(Debug)]
pub enum StoredContent {
    /// The bytes.
    Bytes(Vec<u8>),
    /// It is too large to be stored or restored.
    TooLarge,
    /// Neither the ledger nor the base has it: it was changed from outside.
    Unknown,
}

/// Returns the paths whose contents before the first of `calls` and after the last differ: what undoing all of them
/// changes. The calls are in order.
pub(crate) fn changed_paths<'a>(calls: impl IntoIterator<Item = &'a EarlierCall>) -> Vec<LogicalPath> {
    let mut versions = BTreeMap::new();
    for file in calls.into_iter().flat_map(|call| &call.files) {
        versions.entry(&file.path).or_insert((file.old_sha256, None)).1 = file.new_sha256;
    }
    versions.into_iter().filter(|(_, (before, after))| before != after).map(|(path, _)| path.clone()).collect()
}
