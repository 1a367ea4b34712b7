//! `delete_file`: deletes a file.

use std::collections::BTreeSet;

use model::{Effect, FileState, LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use workspace::{Target, Workspace, WorkspaceError};

use super::write_file::members as members_of;
use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{file_path, parse};
use crate::tool::{Mutation, PlanContext, Tool, ToolRun, ToolSchema, text};

pub(crate) const TOOL: Tool = Tool {
    name: "delete_file",
    description: "Deletes one file, if it is as you last read it. Folders are not deleted.",
    is_expensive: false,
    permissions: &[Permission::FileDelete],
    content: &[],
    input: ToolSchema::of::<DeleteFileInput>,
    output: ToolSchema::of::<DeleteFileOutput>,
    text: text::changes::change,
    run: ToolRun::Mutation(|members| {
        let input = parse::<DeleteFileInput>(members)?;
        Ok(Box::new(DeleteFile {
            path: file_path(&input.path)?,
            expected: input.expected_sha256,
            targets: Workspace::targets_of_any_size,
            output: |path, before| members_of(&DeleteFileOutput { path, old_sha256: before.sha256 }),
        }))
    }),
};

/// The input of `delete_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "path": "src/old.txt",
    "expectedSha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    "reason": "no longer used"
}))]
pub(crate) struct DeleteFileInput {
    /// The file.
    path: String,
    /// The version that the file must have. Required, except in the text view, where `seen` is the default.
    #[serde(default)]
    expected_sha256: Option<ExpectedVersion>,
}

/// The output of `delete_file`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeleteFileOutput {
    /// The normalised path.
    path: LogicalPath,
    /// Hash of the deleted file.
    old_sha256: Sha256,
}

/// Finds the present state of paths, as [`Mutation::targets`].
type FindTargets =
    fn(&Workspace, &Rules, &[LogicalPath], &BTreeSet<LogicalPath>) -> Result<Vec<Target>, WorkspaceError>;

/// A deletion, by the tool or by a file transfer.
pub(crate) struct DeleteFile {
    /// The file.
    pub(crate) path: LogicalPath,
    /// The version that the file must have.
    pub(crate) expected: Option<ExpectedVersion>,
    /// Which files can be deleted.
    pub(crate) targets: FindTargets,
    /// Returns the output for the deleted file.
    pub(crate) output: fn(LogicalPath, &FileState) -> Map<String, Value>,
}

impl Mutation for DeleteFile {
    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }

    fn expected_version(&self, _path: &LogicalPath) -> Option<Sha256> {
        self.expected.and_then(ExpectedVersion::sha256)
    }

    fn expected_versions_mut(&mut self) -> Vec<(LogicalPath, &mut ExpectedVersion)> {
        self.expected.iter_mut().map(|expected| (self.path.clone(), expected)).collect()
    }

    fn targets(
        &self,
        rules: &Rules,
        workspace: &Workspace,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        (self.targets)(workspace, rules, &self.paths(), removed)
    }

    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let before = targets.first().and_then(|target| target.before.as_ref());
        let before = before.map(|(state, _)| state.clone()).ok_or_else(|| Refusal::not_found(&self.path))?;
        expect_version(&self.path, Some(before.sha256), self.expected)?;
        let desired = DesiredFile { path: self.path.clone(), effect: Effect::Delete, after: None };
        let mut plan = ChangePlan::build(context.rules, targets, vec![desired])?;
        plan.summary = format!("deleted {}", self.path);
        plan.output = (self.output)(self.path.clone(), &before);
        Ok(plan)
    }
}
