//! What a mutation looks up of its run and the history before it is planned.

use std::collections::BTreeMap;

use async_trait::async_trait;
use model::{LogicalPath, Refusal, Sha256};
use workspace::FollowedPath;

use crate::CallError;
use crate::tool::Scope;
use crate::tool::earlier_calls::{EarlierCalls, EarlierCallsQuery, StoredContent};
use crate::tool::expected_version::ExpectedVersion;

/// Answers what a call has to know of its run. The paths are not locked yet.
#[async_trait]
pub trait RunLookup: Sync {
    /// Returns the existing path that is canonically equal to each of `paths`, where there is one.
    async fn canonically_equal(&self, paths: Vec<LogicalPath>) -> Result<Vec<(LogicalPath, FollowedPath)>, CallError>;

    /// Sets the versions that the caller has seen, where the input expects them.
    async fn seen(&self, expected: Vec<(&LogicalPath, &mut ExpectedVersion)>) -> Result<(), CallError>;

    /// Returns the earlier calls, with the contents of their files before them.
    async fn earlier_calls(&self, query: EarlierCallsQuery) -> Result<EarlierCalls, CallError>;

    /// Returns the content of a version of a file, if it may be held in memory.
    async fn content(&self, path: &LogicalPath, version: Sha256) -> Result<StoredContent, CallError>;

    /// Returns the contents that the audit has of the files, with their versions, as many as may be held in memory. Without the files that
    /// it does not have.
    async fn recorded_contents(
        &self,
        paths: Vec<LogicalPath>,
    ) -> Result<BTreeMap<LogicalPath, (Sha256, StoredContent)>, CallError>;

    /// Lists the files of the folder that the call changes, sorted; `None` if there is no folder.
    async fn folder(&self, folder: &LogicalPath) -> Result<Option<Vec<LogicalPath>>, CallError>;

    /// Checks the number of files that a folder's call changes, before anything is looked up for each.
    fn check_file_count(&self, scope: &Scope) -> Result<(), Refusal>;
}
