//! What a mutation looks up of its run and the history before it is planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use model::{Code, LogicalPath, PathRejected, Permission, Refusal, Sha256, judge_file_count};
use workspace::FollowedPath;

use crate::CallError;
use crate::call::Call;
use crate::call_error::refusals::forbidden;
use crate::engine::Engine;
use crate::read::names::may_list;
use crate::run::open_run::OpenRun;
use crate::tool::earlier_calls::{EarlierCalls, EarlierCallsQuery, StoredContent};
use crate::tool::expected_version::ExpectedVersion;
use crate::tool::folder::MAX_FILES;
use crate::tool::{RunLookup, Scope};

/// The look-ups of a call.
pub(super) struct CallLookup<'a> {
    pub(super) engine: &'a Engine,
    pub(super) run: &'a Arc<OpenRun>,
    pub(super) call: &'a Call,
    /// Whether the call is one of several.
    pub(super) is_batch: bool,
}

#[async_trait]
impl RunLookup for CallLookup<'_> {
    async fn canonically_equal(&self, paths: Vec<LogicalPath>) -> Result<Vec<(LogicalPath, FollowedPath)>, CallError> {
        self.engine.canonically_equal(self.run, paths).await
    }

    async fn seen(&self, expected: Vec<(&LogicalPath, &mut ExpectedVersion)>) -> Result<(), CallError> {
        for (path, expected) in expected.into_iter().filter(|(_, expected)| expected.seen().is_some()) {
            expected.set_seen(self.engine.seen_version(self.run, &self.call.caller.actor, path).await?);
        }
        Ok(())
    }

    async fn earlier_calls(&self, query: EarlierCallsQuery) -> Result<EarlierCalls, CallError> {
        self.engine.earlier_calls(self.run, &self.call.caller.actor, query).await
    }

    async fn content(&self, path: &LogicalPath, version: Sha256) -> Result<StoredContent, CallError> {
        let mut found = self.engine.contents_of(self.run, vec![(path.clone(), version)]).await?;
        Ok(found.remove(path).map_or(StoredContent::Unknown, |(_, content)| content))
    }

    async fn recorded_contents(
        &self,
        paths: Vec<LogicalPath>,
    ) -> Result<BTreeMap<LogicalPath, (Sha256, StoredContent)>, CallError> {
        self.engine.recorded_contents(self.run, paths).await
    }

    async fn folder(&self, folder: &LogicalPath) -> Result<Option<Vec<LogicalPath>>, CallError> {
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

    fn check_file_count(&self, scope: &Scope) -> Result<(), Refusal> {
        judge_file_count(&self.run.rules, scope.changed()).map_or(Ok(()), Err)
    }
}
