//! `delete_file`: deletes a file.

use std::collections::BTreeSet;

use model::{Effect, LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{Target, Workspace, WorkspaceError};

use super::write_file::{expect_version, members};
use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::input::{file_path, parse};
use crate::tool::{Mutation, PlanContext, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "delete_file",
    description: "Deletes one file. Give the sha256 that read_file returned as expectedSha256. Folders are not deleted.",
    is_expensive: false,
    permissions: &[Permission::FileDelete],
    content: &[],
    input: ToolSchema::of::<DeleteFileInput>,
    output: ToolSchema::of::<DeleteFileOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(DeleteFile::try_from(parse::<DeleteFileInput>(members)?)?))),
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
    /// The sha256 that the file must have.
    #[serde(default)]
    expected_sha256: Option<Sha256>,
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

struct DeleteFile {
    path: LogicalPath,
    expected: Option<Sha256>,
}

impl TryFrom<DeleteFileInput> for DeleteFile {
    type Error = Refusal;

    fn try_from(input: DeleteFileInput) -> Result<Self, Refusal> {
        Ok(Self { path: file_path(&input.path)?, expected: input.expected_sha256 })
    }
}

impl Mutation for DeleteFile {
    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }

    fn expected_version(&self, _path: &LogicalPath) -> Option<Sha256> {
        self.expected
    }

    fn targets(
        &self,
        rules: &Rules,
        workspace: &Workspace,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        workspace.targets_of_any_size(rules, &self.paths(), removed)
    }

    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let before = targets.first().and_then(|target| target.before.as_ref()).map(|(state, _)| state.sha256);
        let old_sha256 = before.ok_or_else(|| Refusal::not_found(&self.path))?;
        expect_version(&self.path, before, self.expected)?;
        let desired = DesiredFile { path: self.path.clone(), effect: Effect::Delete, after: None };
        let mut plan = ChangePlan::build(context.rules, targets, vec![desired])?;
        plan.summary = format!("deleted {}", self.path);
        plan.output = members(&DeleteFileOutput { path: self.path.clone(), old_sha256 });
        Ok(plan)
    }
}
