//! `revert_calls`: undoes earlier mutations as one new change.

mod reverted_files;

use std::collections::BTreeSet;

use async_trait::async_trait;
use model::{Change, Code, GitMode, LineCounts, LogicalPath, Permission, Refusal, Rules, ToolCallId};
use serde::{Deserialize, Serialize};
use workspace::{Target, Workspace, WorkspaceError};

use self::reverted_files::RevertedFiles;
use crate::CallError;
use crate::tool::change_plan::ChangePlan;
use crate::tool::earlier_calls::{EarlierCalls, EarlierCallsQuery, changed_paths};
use crate::tool::input::{file_path, parse};
use crate::tool::output::members;
use crate::tool::text::notes::counted;
use crate::tool::{Mutation, PlanContext, RunLookup, Scope, Tool, ToolRun, ToolSchema};

/// The maximum number of `toolCallIds`.
pub(crate) const MAX_CALLS: usize = 100;
/// The largest present file whose bytes are read for the diff, unless the policy allows larger text files.
const MIN_READ_LIMIT: u64 = 1 << 20;

pub(crate) const TOOL: Tool = Tool {
    name: "revert_calls",
    description: "Undoes your last changes atomically, newest first. Refused if a file has changed since, or its earlier content was \
                  too large to be stored.",
    is_expensive: false,
    permissions: &[Permission::FilePatchApply],
    content: &[],
    input: ToolSchema::of::<RevertCallsInput>,
    output: ToolSchema::of::<RevertCallsOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(RevertCalls::try_from(parse::<RevertCallsInput>(members)?)?))),
};

/// The input of `revert_calls`: one of `last`, `toolCallIds` and `toSeq`; without any, the last change is undone.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"toolCallIds": ["tc_7"], "reason": "it broke the build"}))]
pub(crate) struct RevertCallsInput {
    /// The calls to undo.
    #[serde(default)]
    #[schema(max_items = 100)]
    tool_call_ids: Option<Vec<String>>,
    /// Undo every mutation after this record; 0 undoes all.
    #[serde(default)]
    to_seq: Option<u64>,
    /// Undo this many of your own last changes.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    last: Option<u64>,
    /// Undo nothing unless the calls have changed this file. With one last change: that which is not undone yet.
    #[serde(default)]
    of_path: Option<String>,
}

/// The output of `revert_calls`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevertCallsOutput {
    /// The undone calls, newest first.
    reverted: Vec<ToolCallId>,
    /// Every changed path.
    files_touched: Vec<LogicalPath>,
    /// The changes, sorted by path.
    files: Vec<RestoredFile>,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
}

/// One file that undoing changed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoredFile {
    /// The path.
    path: LogicalPath,
    /// `created`, `modified` or `deleted`.
    operation: &'static str,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
}

impl From<&Change> for RestoredFile {
    fn from(change: &Change) -> Self {
        let operation = match (&change.before, &change.after) {
            (None, _) => "created",
            (Some(_), Some(_)) => "modified",
            (Some(_), None) => "deleted",
        };
        let LineCounts { insertions, deletions } = change.counts;
        Self { path: change.path.clone(), operation, insertions, deletions }
    }
}

struct RevertCalls {
    query: EarlierCallsQuery,
    /// A file that the calls must have changed.
    of_path: Option<LogicalPath>,
    /// The calls, newest first, and the earlier contents of their files.
    earlier: EarlierCalls,
}

impl TryFrom<RevertCallsInput> for RevertCalls {
    type Error = Refusal;

    fn try_from(input: RevertCallsInput) -> Result<Self, Refusal> {
        // Beside another member, an empty list is none; alone it names no call, and is no wish to undo the last one.
        let ids = input.tool_call_ids.filter(|ids| !ids.is_empty() || input.to_seq.or(input.last).is_none());
        let query = match (ids, input.to_seq, input.last) {
            (None, None, None) => EarlierCallsQuery::Last(1),
            (None, None, Some(last)) => match usize::try_from(last) {
                Ok(last) if (1..=MAX_CALLS).contains(&last) => EarlierCallsQuery::Last(last),
                _ => {
                    let message = format!("`last` is {last}; it takes 1 to {MAX_CALLS}");
                    return Err(Refusal::invalid(message, "Give the number of your own last changes to undo."));
                }
            },
            (Some(ids), None, None) if (1..=MAX_CALLS).contains(&ids.len()) => {
                let ids = ids.iter().map(|raw| ToolCallId::parse(raw));
                let ids = ids.collect::<Result<_, _>>().map_err(|error| {
                    Refusal::invalid(error.to_string(), "Give the `toolCallId` of each call's response.")
                })?;
                EarlierCallsQuery::Calls(ids)
            }
            (None, Some(seq), None) => EarlierCallsQuery::After(seq),
            (Some(ids), None, None) => {
                let message = format!("`toolCallIds` has {} entries; it takes 1 to {MAX_CALLS}", ids.len());
                return Err(Refusal::invalid(message, "Give 1 to 100 calls to undo, or give `last` or `toSeq`."));
            }
            (_, _, _) => {
                let hint =
                    "Give the number of your last changes to undo, the calls to undo, or the record to return to.";
                return Err(Refusal::invalid("`last`, `toolCallIds` and `toSeq` exclude each other", hint));
            }
        };
        let of_path = input.of_path.map(|raw| file_path(&raw)).transpose()?;
        // Who names the file steps back in its history: a second undo does not undo the first.
        let query = match query {
            EarlierCallsQuery::Last(1) if of_path.is_some() => EarlierCallsQuery::LastEdit,
            query => query,
        };
        Ok(Self { query, of_path, earlier: EarlierCalls { calls: Vec::new(), files: Vec::new() } })
    }
}

impl RevertCalls {
    /// Takes the calls that were found, which are to be undone.
    fn take(&mut self, mut earlier: EarlierCalls) -> Result<(), Refusal> {
        let calls = &mut earlier.calls;
        calls.sort_by_key(|call| std::cmp::Reverse(call.seq));
        let named: &[ToolCallId] = match &self.query {
            EarlierCallsQuery::Calls(ids) => ids,
            EarlierCallsQuery::After(_) | EarlierCallsQuery::Last(_) | EarlierCallsQuery::LastEdit => &[],
        };
        if let Some(id) = named.iter().find(|id| !calls.iter().any(|call| call.tool_call_id == **id)) {
            return Err(nothing_to_undo(format!("no call `{id}` of this run has changed a file")));
        }
        if calls.is_empty() {
            let message = match self.query {
                EarlierCallsQuery::Last(_) | EarlierCallsQuery::LastEdit => {
                    "nothing to undo: no call of this token has changed a file"
                }
                EarlierCallsQuery::After(_) | EarlierCallsQuery::Calls(_) => {
                    "nothing to undo: no call after `toSeq` has changed a file"
                }
            };
            return Err(nothing_to_undo(message.to_owned()));
        }
        if let Some(path) = &self.of_path
            && !calls.iter().any(|call| call.files.iter().any(|file| file.path == *path))
        {
            let message = format!("nothing to undo: the last change of this token is not of `{path}`");
            return Err(nothing_to_undo(message).at(path));
        }
        self.earlier = earlier;
        Ok(())
    }
}

#[async_trait]
impl Mutation for RevertCalls {
    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        Ok(self.take(lookup.earlier_calls(self.query.clone()).await?)?)
    }

    fn scope(&self) -> Scope {
        let files = self.earlier.calls.iter().flat_map(|call| &call.files);
        let paths: BTreeSet<_> = files.map(|file| file.path.clone()).collect();
        let paths: Vec<_> = paths.into_iter().collect();
        let changed = Some(changed_paths(self.earlier.calls.iter().rev()));
        // What was one change set is undone as a whole, and may have thousands of paths.
        let is_of_command = self.earlier.calls.iter().any(|call| call.is_of_command);
        // Which files are removed is known only once the change is planned.
        Scope { changed, removed: paths.clone(), is_of_command, is_exclusive: is_of_command, ..Scope::of(paths) }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let max_bytes = rules.policy().max_file_bytes.max(MIN_READ_LIMIT);
        let files = self.earlier.calls.iter().flat_map(|call| &call.files);
        let links = files.filter(|file| [file.mode, file.old_mode].contains(&Some(GitMode::Link)));
        // Something else that is a link now was made one from outside.
        let links: BTreeSet<_> = links.map(|file| &file.path).collect();
        workspace.targets_of_any_kind(rules, &scope.paths, removed, max_bytes, |path| links.contains(path))
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let mut files = RevertedFiles::new(&targets, &self.earlier.files);
        for call in &self.earlier.calls {
            files.undo(call)?;
        }
        let desired = files.desired(context.rules, &targets)?;
        let mut plan = ChangePlan::build_any_kind(context.rules, targets, desired, Vec::new());
        plan.is_restoration = true;
        let counts = plan.counts();
        let reverted: Vec<_> = self.earlier.calls.iter().map(|call| call.tool_call_id.clone()).collect();
        let undone = counted(reverted.len() as u64, "call", "calls");
        plan.summary = format!("undid {undone} (+{} -{})", counts.insertions, counts.deletions);
        plan.output = members(&RevertCallsOutput {
            reverted,
            files_touched: plan.paths(),
            files: plan.changes().map(RestoredFile::from).collect(),
            insertions: counts.insertions,
            deletions: counts.deletions,
        });
        Ok(plan)
    }
}

fn nothing_to_undo(message: String) -> Refusal {
    let hint = "diff_workspace shows what the run has changed since its start.";
    Refusal::new(Code::NotFound, message, hint)
}
