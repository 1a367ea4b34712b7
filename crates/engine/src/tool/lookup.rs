//! What a mutation looks up of its run and the history before it is planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Code, LogicalPath, PathRejected, Permission, Refusal, Sha256, judge_file_count};
use workspace::FollowedPath;

use crate::CallError;
use crate::call::Call;
use crate::call_error::refusals::forbidden;
use crate::engine::Engine;
use crate::read::names::may_list;
use crate::run::open_run::OpenRun;
use crate::tool::Scope;
use crate::tool::earlier_calls::{EarlierCalls, EarlierCallsQuery, StoredContent};
use crate::tool::expected_version::ExpectedVersion;
use crate::tool::folder::MAX_FILES;

/// Answers what a call has to know of its run. The paths are not locked yet.
pub struct Lookup<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) run: &'a Arc<OpenRun>,
    pub(crate) call: &'a Call,
    /// Whether the call is one of several.
    pub(crate) is_batch: bool,
}

impl Lookup<'_> {
    /// Returns the existing path that is canonically equal to each of `paths`, where there is one.
    pub(crate) async fn canonically_equal(
        &self,
        paths: Vec<LogicalPath>,
    ) -> Result<Vec<(LogicalPath, FollowedPath)>, CallError> {
        self.engine.canonically_equal(self.run, paths).await
    }

    /// Sets the versions that the caller has seen, where the input expects them.
    pub(crate) async fn seen(&self, expected: Vec<(&LogicalPath, &mut ExpectedVersion)>) -> Result<(), CallError> {
        for (path, expected) in expected.into_iter().filter(|(_, expected)| expected.seen().is_some()) {
            expected.set_seen(self.engine.seen_version(self.run, &self.call.caller.actor, path).await?);
        }
        Ok(())
    }

    /// Returns the earlier calls, with the contents of their files before them.
    pub(crate) async fn earlier_calls(&self, query: EarlierCallsQuery) -> Result<EarlierCalls, CallError> {
        self.engine.earlier_calls(self.run, &self.call.caller.actor, query).await
    }

    /// Returns the content of a version of a file, if it may be held in memory.
    pub(crate) async fn content(&self, path: &LogicalPath, version: Sha256) -> Result<StoredContent, CallError> {
        let mut found = self.engine.contents_of(self.run, vec![(path.clone(), version)]).await?;
        Ok(found.remove(path).map_or(StoredContent::Unknown, |(_, content)| content))
    }

    /// Returns the contents that the audit has of the files, with their versions, as many as may be held in memory. Without the files that
    /// it does not have.
    pub(crate) async fn recorded_contents(
        &self,
        paths: Vec<LogicalPath>,
    ) -> Result<BTreeMap<LogicalPath, (Sha256, StoredContent)>, CallError> {
        self.engine.recorded_contents(self.run, paths).await
    }

    /// Lists the files of the folder that the call changes, sorted; `None` if there is no folder.
    pub(crate) async fn folder(&self, folder: &LogicalPath) -> Result<Option<Vec<LogicalPath>>, CallError> {
        let rules = &self.run.rules;
        if rules.is_in_submodule(folder) {
            return Err(Refusal::path(folder.as_str(), PathRejected::Submodule).into());
        }
        let (open_run, path) = (Arc::clone(self.run), folder.clone());
        let files = self.engine.blocking(move || Ok(open_run.workspace.files_under(&path, MAX_FILES)?)).await?;
        let Some(files) = files else { return Ok(None) };
        // The answer, also of a dry run, and refusals name the files of the folder.
        if !may_list(self.call) {
            return Err(forbidden(&[Permission::FileList]).into());
        }
        if rules.has_submodule_under(folder) {
            return Err(Refusal::path(folder.as_str(), PathRejected::AboveSubmodule).into());
        }
        if self.is_batch {
            // Earlier calls of the batch may change which files it has.
            let message = format!("`{folder}` is a folder, which no call of a batch can move or delete");
            return Err(Refusal::invalid(message, "Make a separate call for the folder.").at(folder).into());
        }
        if files.len() == MAX_FILES {
            let message = format!("`{folder}` has at least {MAX_FILES} files, too many for one call");
            let hint = "Move or delete the folders in it one by one.";
            return Err(Refusal::new(Code::PatchBudgetExceeded, message, hint).at(folder).into());
        }
        Ok(Some(files))
    }

    /// Checks the number of files that a folder's call changes, before anything is looked up for each.
    pub(crate) fn check_file_count(&self, scope: &Scope) -> Result<(), Refusal> {
        judge_file_count(&self.run.rules, scope.changed()).map_or(Ok(()), Err)
    }
}
