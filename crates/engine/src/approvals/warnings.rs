//! What the history of a run says against a change that waits for a person.

use std::collections::HashMap;
use std::sync::Arc;

use ledger::{ApprovalFilter, RecordFilter};
use model::{
    Approval, ApprovalFile, ApprovalState, ApprovalWarning, LogicalPath, RunId, Sha256, WarningCode, is_part_of_other,
    is_test_command,
};
use serde_json::{Map, Value};

use crate::CallError;
use crate::call::Call;
use crate::engine::Engine;
use crate::run::decisions::quoted;
use crate::run::open_run::OpenRun;
use crate::tools::apply_changeset::APPLY_CHANGESET;

/// The newest denied changes of a run that are compared.
const MAX_DENIED: u32 = 100;
/// The newest commands of a run among which a test is looked for.
const MAX_COMMANDS: u32 = 50;
/// The most files of one approval, and of one page of approvals, whose versions are looked up in the ledger.
const MAX_FILES: usize = 20;
const MAX_LOOKUPS: usize = 200;
/// The most warnings about files that have changed.
const MAX_STALE: usize = 10;
/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl Engine {
    /// Returns what the run's history says against a change of files: that it was denied before, and what its tests say.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn history_warnings(
        &self,
        run: &OpenRun,
        approval: &Approval,
        call: &Call,
    ) -> Result<Vec<ApprovalWarning>, CallError> {
        let mut found: Vec<_> = self.denied_before(run, approval).await?.into_iter().collect();
        found.extend(self.test_warning(&approval.run_id, call).await?);
        Ok(found)
    }

    async fn denied_before(&self, run: &OpenRun, approval: &Approval) -> Result<Option<ApprovalWarning>, CallError> {
        let Some(diff) = approval.diff.clone().filter(|_| run.decisions.has_denied()) else { return Ok(None) };
        let (state, run) = (Some(ApprovalState::Denied), Some(approval.run_id.clone()));
        let filter = ApprovalFilter { state, run, newest_first: true, ..ApprovalFilter::default() };
        let denied = self.ledger.approvals(&filter, None, MAX_DENIED.into()).await?;
        let find = move || {
            let contains =
                |denied: &Approval| denied.diff.as_deref().is_some_and(|other| is_part_of_other(&diff, other));
            Ok(denied.into_iter().map(|(_, denied)| denied).find(contains))
        };
        Ok(self.blocking(find).await?.map(|denied| {
            let who = denied.on_behalf_of.or(denied.decided_by).unwrap_or_else(|| "a person".to_owned());
            let said = denied.note.as_deref().map(|note| format!(": {}", quoted(note))).unwrap_or_default();
            let text =
                format!("{who} has denied this change, a part of it, or one that contains it, in this run{said}");
            let approval_id = Some(denied.approval_id);
            ApprovalWarning { approval_id, note: denied.note, ..ApprovalWarning::new(WarningCode::DeniedBefore, text) }
        }))
    }

    /// Only the command that made a change set can have tested it: nothing else runs on a change that waits.
    async fn test_warning(&self, run: &RunId, call: &Call) -> Result<Option<ApprovalWarning>, CallError> {
        let command = call.event.as_ref().and_then(|event| event.draft.input.as_ref());
        if let Some(command) = command.filter(|_| call.tool.name == APPLY_CHANGESET.name)
            && is_test_command(&line_of(command))
        {
            let exit = command.get("data").and_then(|data| data.get("exitCode")).and_then(Value::as_i64);
            let how = exit.map_or_else(|| "without an exit code".to_owned(), |code| format!("with exit code {code}"));
            let text = format!("The tests that ran with this change failed: the command ended {how}.");
            return Ok((exit != Some(0)).then(|| ApprovalWarning::new(WarningCode::TestsFailed, text)));
        }
        let text = "The run has tests, and none of them ran with this change.";
        Ok(self.has_tests(run).await?.then(|| ApprovalWarning::new(WarningCode::TestsNotOnThisTree, text)))
    }

    async fn has_tests(&self, run: &RunId) -> Result<bool, CallError> {
        let records = async |tool: &str, count: u32| {
            let (run, tool) = (Some(run.clone()), Some(tool.to_owned()));
            let filter = RecordFilter { run, tool, newest_first: true, ..RecordFilter::default() };
            self.ledger.records(&filter, None, count.into()).await
        };
        if !records("event.test", 1).await?.is_empty() {
            return Ok(true);
        }
        let commands = records("event.command", MAX_COMMANDS).await?;
        let is_test = |text: &str| {
            let record = serde_json::from_str::<Value>(text).ok();
            record
                .is_some_and(|record| record["input"].as_object().is_some_and(|input| is_test_command(&line_of(input))))
        };
        Ok(commands.iter().any(|stored| is_test(&stored.text)))
    }

    /// Adds to pending approvals of a page which of their files have changed since the request, as far as the ledger knows.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn add_stale_warnings(&self, approvals: &mut [Approval]) -> Result<(), CallError> {
        let mut runs: HashMap<RunId, Option<Arc<OpenRun>>> = HashMap::new();
        let mut lookups = 0;
        for approval in approvals.iter_mut().filter(|approval| approval.state == ApprovalState::Pending) {
            let run = runs.entry(approval.run_id.clone()).or_insert_with(|| self.runs.get(&approval.run_id)).clone();
            let mut stale = Vec::new();
            for file in first_versions(&approval.files).take(MAX_FILES) {
                let present = match &run {
                    Some(run) => run.known.written_sha256(&file.path),
                    None if lookups < MAX_LOOKUPS => {
                        lookups += 1;
                        self.recorded_version(&approval.run_id, &file.path).await?
                    }
                    None => None,
                };
                // What nobody has written still is as it was.
                if present.is_some_and(|present| present != file.old_sha256) {
                    stale.push(file.path.clone());
                }
            }
            add_stale(approval, &stale, "");
        }
        Ok(())
    }

    /// Returns the version that the newest change of a path left, `Some(None)` if that removed it.
    async fn recorded_version(&self, run: &RunId, path: &LogicalPath) -> Result<Option<Option<Sha256>>, CallError> {
        let Some(stored) = self.ledger.last_change(run, path, NEWEST).await? else { return Ok(None) };
        let record = content_history(&stored.text)?;
        Ok(record.files.into_iter().rfind(|file| file.path == *path).map(|file| file.new_sha256))
    }
}

fn content_history(text: &str) -> Result<model::Record, CallError> {
    serde_json::from_str(text).map_err(|error| CallError::Internal(Box::new(error)))
}

/// The files of an approval, each with the version that its first change expects: of a batch, several calls may change one file.
pub(crate) fn first_versions(files: &[ApprovalFile]) -> impl Iterator<Item = &ApprovalFile> {
    let is_first =
        |(index, file): &(usize, &ApprovalFile)| !files[..*index].iter().any(|other| other.path == file.path);
    files.iter().enumerate().filter(is_first).map(|(_, file)| file)
}

/// Warns that files have changed. `then` says what follows from it.
pub(crate) fn add_stale(approval: &mut Approval, stale: &[LogicalPath], then: &str) {
    let text = format!("The file has changed since the request{then}.");
    let warn = |path: &LogicalPath| ApprovalWarning::new(WarningCode::Stale, text.as_str()).at(path);
    approval.warnings.extend(stale.iter().take(MAX_STALE).map(warn));
    model::sort_warnings(&mut approval.warnings);
}

/// Returns the line of a command from the input of its event.
fn line_of(event: &Map<String, Value>) -> String {
    let data = event.get("data");
    let member = |name: &str| data.and_then(|data| data.get(name));
    match (member("command").and_then(Value::as_str), member("argv").and_then(Value::as_array)) {
        (Some(line), _) => line.to_owned(),
        (None, Some(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        (None, None) => event.get("summary").and_then(Value::as_str).unwrap_or_default().to_owned(),
    }
}
