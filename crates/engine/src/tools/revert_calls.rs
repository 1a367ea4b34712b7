//! `revert_calls`: earlier mutations are undone, newest first, as one new change.

mod undone;

use std::collections::BTreeSet;

use model::{Code, LogicalPath, Permission, Refusal, Rules, ToolCallId};
use serde::{Deserialize, Serialize};
use workspace::{Target, Workspace, WorkspaceError};

use self::undone::Undone;
use super::write_file::members;
use crate::tool::PathConflict;
use crate::tool::change_plan::ChangePlan;
use crate::tool::earlier_calls::{EarlierCalls, EarlierCallsQuery, changed_paths};
use crate::tool::input::parse;
use crate::tool::{Mutation, PlanContext, Tool, ToolRun, ToolSchema};

/// The most calls that are named at once.
pub(crate) const MAX_CALLS: usize = 100;
/// Of files with more bytes none are looked at: that they go or come is told, and how large they are.
const MAX_SHOWN_BYTES: u64 = 1 << 20;

pub(crate) const TOOL: Tool = Tool {
    name: "revert_calls",
    description: "Undoes earlier mutations of this run, newest first, all or nothing: those named by toolCallIds, or \
                  every one after the record toSeq. Files of any kind come back byte for byte. Refused where a file has \
                  changed since, or where what stood there was too large to be kept.",
    is_expensive: false,
    permissions: &[Permission::FilePatchApply],
    content: &[],
    input: ToolSchema::of::<RevertCallsInput>,
    output: ToolSchema::of::<RevertCallsOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(RevertCalls::try_from(parse::<RevertCallsInput>(members)?)?))),
};

/// What `revert_calls` takes: one of the two.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"toolCallIds": ["tc_7"], "reason": "it broke the build"}))]
pub(crate) struct RevertCallsInput {
    /// The calls.
    #[serde(default)]
    #[schema(max_items = 100)]
    tool_call_ids: Vec<String>,
    /// Undo every mutation whose record comes after this one; 0 undoes them all.
    #[serde(default)]
    to_seq: Option<u64>,
}

/// What `revert_calls` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevertCallsOutput {
    /// The calls that were undone, newest first.
    reverted: Vec<ToolCallId>,
    /// Every path that changes.
    files_touched: Vec<LogicalPath>,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
}

struct RevertCalls {
    wanted: EarlierCallsQuery,
    /// The calls, newest first, and what stood in their files before them.
    earlier: EarlierCalls,
}

impl TryFrom<RevertCallsInput> for RevertCalls {
    type Error = Refusal;

    fn try_from(input: RevertCallsInput) -> Result<Self, Refusal> {
        let wanted = match (input.tool_call_ids, input.to_seq) {
            (ids, None) if (1..=MAX_CALLS).contains(&ids.len()) => {
                let ids = ids.iter().map(|raw| ToolCallId::parse(raw));
                let ids = ids.collect::<Result<_, _>>().map_err(|error| {
                    Refusal::invalid(error.to_string(), "Name calls by the toolCallId of their answers.")
                })?;
                EarlierCallsQuery::Calls(ids)
            }
            (ids, Some(seq)) if ids.is_empty() => EarlierCallsQuery::After(seq),
            (ids, None) => {
                let message = format!("`toolCallIds` has {} entries; it takes 1 to {MAX_CALLS}", ids.len());
                return Err(Refusal::invalid(message, "Name the calls to undo, or give toSeq."));
            }
            (_, Some(_)) => {
                let hint = "Name the calls to undo, or give the record to go back to.";
                return Err(Refusal::invalid("`toolCallIds` and `toSeq` exclude each other", hint));
            }
        };
        Ok(Self { wanted, earlier: EarlierCalls { calls: Vec::new(), files: Vec::new() } })
    }
}

impl Mutation for RevertCalls {
    fn earlier_calls(&self) -> Option<EarlierCallsQuery> {
        Some(self.wanted.clone())
    }

    fn take_earlier_calls(&mut self, mut earlier: EarlierCalls) -> Result<(), Refusal> {
        let calls = &mut earlier.calls;
        calls.sort_by_key(|call| std::cmp::Reverse(call.seq));
        let named: &[ToolCallId] = match &self.wanted {
            EarlierCallsQuery::Calls(ids) => ids,
            EarlierCallsQuery::After(_) => &[],
        };
        if let Some(id) = named.iter().find(|id| !calls.iter().any(|call| call.tool_call_id == **id)) {
            return Err(nothing_to_undo(format!("no call `{id}` has changed a file")));
        }
        if calls.is_empty() {
            return Err(nothing_to_undo("there is nothing to undo: no such call has changed a file".to_owned()));
        }
        self.earlier = earlier;
        Ok(())
    }

    fn paths(&self) -> Vec<LogicalPath> {
        let files = self.earlier.calls.iter().flat_map(|call| &call.files);
        let paths: BTreeSet<_> = files.map(|file| file.path.clone()).collect();
        paths.into_iter().collect()
    }

    fn removed_paths(&self) -> Vec<LogicalPath> {
        // Which of them go only the plan tells.
        self.paths()
    }

    fn targets(
        &self,
        rules: &Rules,
        workspace: &Workspace,
        go: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let max_bytes = rules.policy().max_file_bytes.max(MAX_SHOWN_BYTES);
        workspace.targets_of_any_kind(rules, &self.paths(), go, max_bytes)
    }

    fn changed_paths(&self) -> Vec<LogicalPath> {
        changed_paths(self.earlier.calls.iter().rev())
    }

    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let mut tree = Undone::of(&targets, &self.earlier.files);
        for call in &self.earlier.calls {
            tree.undo(call)?;
        }
        let desired = tree.desired(context.rules, &targets)?;
        let mut plan = ChangePlan::build_any_kind(context.rules, targets, desired);
        let counts = plan.changes.counts();
        let reverted: Vec<_> = self.earlier.calls.iter().map(|call| call.tool_call_id.clone()).collect();
        plan.summary = format!("undid {} calls (+{} -{})", reverted.len(), counts.insertions, counts.deletions);
        plan.output = members(&RevertCallsOutput {
            reverted,
            files_touched: plan.changes.changes.iter().map(|change| change.path.clone()).collect(),
            insertions: counts.insertions,
            deletions: counts.deletions,
        });
        Ok(plan)
    }

    fn path_conflict(&self, crossing: PathConflict) -> Refusal {
        let PathConflict { above, under } = crossing;
        let message = format!("`{under}` cannot be a file again, since `{above}` would be one too");
        let hint =
            "Undo the calls by which the other one came or went too, or leave out those that bring this one back.";
        Refusal::new(Code::RevertConflict, message, hint).at(&under)
    }
}

fn nothing_to_undo(message: String) -> Refusal {
    Refusal::new(Code::NotFound, message, "Look at the run's audit for calls whose pathsWritten is not empty.")
}
