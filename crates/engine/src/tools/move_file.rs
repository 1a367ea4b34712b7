//! `move_file`: moves a file to another path.

use std::collections::BTreeSet;

use model::{Effect, LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{Target, Workspace, WorkspaceError};

use super::write_file::{already_exists, members};
use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{file_path, new_file_path, parse};
use crate::tool::{Mutation, PlanContext, Tool, ToolRun, ToolSchema, text};

pub(crate) const TOOL: Tool = Tool {
    name: "move_file",
    description: "Moves or renames one file, if it is as you last read it; the new path must not exist.",
    is_expensive: false,
    permissions: &[Permission::FileMove],
    content: &[],
    input: ToolSchema::of::<MoveFileInput>,
    output: ToolSchema::of::<MoveFileOutput>,
    text: text::changes::change,
    run: ToolRun::Mutation(|members| Ok(Box::new(MoveFile::try_from(parse::<MoveFileInput>(members)?)?))),
};

/// The input of `move_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "from": "src/a.txt",
    "to": "src/b.txt",
    "expectedSha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    "reason": "a better name"
}))]
pub(crate) struct MoveFileInput {
    /// The present path.
    from: String,
    /// The new path. Missing folders are created.
    to: String,
    /// The version that the file must have. Required, except in the text view, where `seen` is the default.
    #[serde(default)]
    expected_sha256: Option<ExpectedVersion>,
}

/// The output of `move_file`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MoveFileOutput {
    /// The normalised old path.
    from: LogicalPath,
    /// The normalised new path.
    to: LogicalPath,
    /// Hash of the file.
    sha256: Sha256,
}

struct MoveFile {
    from: LogicalPath,
    to: LogicalPath,
    expected: Option<ExpectedVersion>,
}

impl TryFrom<MoveFileInput> for MoveFile {
    type Error = Refusal;

    fn try_from(input: MoveFileInput) -> Result<Self, Refusal> {
        let (from, to) = (file_path(&input.from)?, new_file_path(&input.to)?);
        if from == to {
            return Err(Refusal::invalid("`from` and `to` are the same file", "Give another path in `to`.").at(&to));
        }
        Ok(Self { from, to, expected: input.expected_sha256 })
    }
}

impl Mutation for MoveFile {
    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.from.clone(), self.to.clone()]
    }

    fn removed_paths(&self) -> Vec<LogicalPath> {
        vec![self.from.clone()]
    }

    fn expected_version(&self, path: &LogicalPath) -> Option<Sha256> {
        self.expected.filter(|_| *path == self.from)?.sha256()
    }

    fn expected_versions_mut(&mut self) -> Vec<(LogicalPath, &mut ExpectedVersion)> {
        self.expected.iter_mut().map(|expected| (self.from.clone(), expected)).collect()
    }

    fn targets(
        &self,
        rules: &Rules,
        workspace: &Workspace,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        workspace.targets_of_any_size(rules, &self.paths(), removed)
    }

    fn if_exists(&self, path: &LogicalPath) -> Option<Refusal> {
        let hint = "Choose another path in `to`. Or delete the file there first, if it is no longer needed.";
        (*path == self.to).then(|| Refusal { hint: hint.to_owned(), ..already_exists(path) })
    }

    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let before = |path: &LogicalPath| targets.iter().find(|target| target.path == *path)?.before.as_ref();
        let (state, bytes) = before(&self.from).ok_or_else(|| Refusal::not_found(&self.from))?;
        if before(&self.to).is_some()
            && let Some(refusal) = self.if_exists(&self.to)
        {
            return Err(refusal);
        }
        expect_version(&self.from, Some(state.sha256), self.expected)?;
        let sha256 = state.sha256;
        let mut plan = if state.size_bytes > context.rules.policy().max_file_bytes {
            ChangePlan::from_large_move(context.rules, targets, &self.from, &self.to, Workspace::new_staged_name())
        } else {
            let after = Some((bytes.clone(), state.mode));
            let move_from = Effect::MoveFrom { to: self.to.clone() };
            let move_to = Effect::MoveTo { from: self.from.clone() };
            let desired = vec![
                DesiredFile { path: self.from.clone(), effect: move_from, after: None },
                DesiredFile { path: self.to.clone(), effect: move_to, after },
            ];
            ChangePlan::build(context.rules, targets, desired)?
        };
        plan.summary = format!("moved {} to {}", self.from, self.to);
        plan.output = members(&MoveFileOutput { from: self.from.clone(), to: self.to.clone(), sha256 });
        Ok(plan)
    }
}
