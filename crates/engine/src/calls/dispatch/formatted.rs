//! Calls in the format of a provider. The engine knows only the name of the format, which the record has; who calls maps the input and
//! renders the answer.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Permission, Refusal, RunId, ToolCallId};
use serde::Deserialize;
use serde_json::{Map, Value};
use workspace::{EntryType, FindQuery, FindSort};

use super::expect_seen;
use crate::CallError;
use crate::call::record::RecordedError;
use crate::call::{Answer, Call, Failed, View};
use crate::call_error::refusals::forbidden;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::history::snapshot::diff_at;
use crate::tool::Tool;
use crate::tool::input::any_path;
use crate::tools::apply_changeset::is_readable;

impl Failed {
    /// Returns the failure of a recorded call whose answer could not be rendered.
    pub fn of_answer(tool_call_id: ToolCallId, error: CallError) -> Self {
        Self { tool_call_id, error: RecordedError::left_out(error) }
    }
}

/// What the answer of a change of one file says of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditedFile {
    path: LogicalPath,
    #[serde(default)]
    artifact_uris: Vec<String>,
}

impl Calls {
    /// Executes and records a call of `tool` that was made in `format`, or refuses its input. A change expects the version that the caller
    /// has seen.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    #[boxed]
    pub async fn call_in_format(
        &self,
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        format: &str,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, Failed> {
        let (call, mut members) = match members {
            Ok(members) => Call::of(run, caller, tool, members),
            Err(refusal) => (Call::new(run, caller, tool), Err(refusal)),
        };
        expect_seen(&call, &mut members);
        let call = call.in_format(format);
        self.call_in_view(View::Text, (call, members)).await
    }

    /// Returns the diff of a change of one file, whose answer is given as JSON text; `None` if policy does not let the file be read.
    ///
    /// # Errors
    ///
    /// If the answer is not that of a change, or the ledger fails.
    #[boxed]
    pub async fn change_of(&self, run: &RunId, answer: &str) -> Result<Option<Vec<u8>>, CallError> {
        let changed: EditedFile = serde_json::from_str(answer).map_err(|error| CallError::Internal(Box::new(error)))?;
        let open_run = self.engine.open(run).await?;
        if !is_readable(&open_run.rules, &changed.path) {
            return Ok(None);
        }
        diff_at(self.engine.ledger.as_ref(), run, &changed.artifact_uris).await.map(Some)
    }

    /// Returns the paths of the readable files that match `globs`, at most `most`, and whether more may; `None` if the run cannot be
    /// opened or the disk fails, as a call of it then says.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN` for a caller who may not list files; `INVALID_REQUEST` for a glob in a wrong form.
    #[boxed]
    pub async fn readable_files(
        &self,
        run: &RunId,
        caller: &Caller,
        globs: Vec<String>,
        most: usize,
    ) -> Result<Option<(Vec<String>, bool)>, Refusal> {
        if !caller.permissions.contains(&Permission::FileList) {
            return Err(forbidden(&[Permission::FileList]));
        }
        let Ok(run) = self.engine.open(run).await else { return Ok(None) };
        let query = FindQuery {
            globs,
            path: LogicalPath::root(),
            max_results: most,
            sort: FindSort::Path,
            after: None,
            counts_all: false,
        };
        let find = move || Ok(run.workspace.tree().find(&run.rules, &query, &AtomicBool::new(false))?);
        let found = match Box::pin(self.engine.blocking(find)).await {
            Ok(found) => found,
            Err(CallError::Refused(refusal)) => return Err(refusal),
            Err(CallError::Moved(_) | CallError::Internal(_)) => return Ok(None),
        };
        let files = found.entries.iter().filter(|entry| entry.readable && entry.entry_type == EntryType::File);
        Ok(Some((files.map(|entry| entry.path.to_string()).collect(), found.truncated)))
    }

    /// Whether there is a folder at `path`. False for a caller who may not list one, except the root, and if it is not known: the call
    /// itself then says why.
    #[boxed]
    pub async fn is_folder(&self, run: &RunId, caller: &Caller, path: &str) -> bool {
        let Ok(path) = any_path(path) else { return false };
        if path.is_root() {
            return true;
        }
        if !caller.permissions.contains(&Permission::FileList) {
            return false;
        }
        let Ok(run) = self.engine.open(run).await else { return false };
        if let Some(is_folder) = run.workspace.tree().is_folder(&path, false) {
            return is_folder;
        }
        let run = Arc::clone(&run);
        let look = self.engine.blocking(move || Ok(run.workspace.tree().is_folder(&path, true)));
        matches!(Box::pin(look).await, Ok(Some(true)))
    }
}
