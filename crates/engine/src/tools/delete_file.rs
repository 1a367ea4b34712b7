//! `delete_file`: deletes a file, or a folder with its files.

use std::collections::BTreeSet;

use model::{Effect, FileState, LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use workspace::{Target, Workspace, WorkspaceError};

use super::write_file::members as members_of;
use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::folder::{Folder, targets_or_folder_hint};
use crate::tool::input::{file_path, folder_path, parse};
use crate::tool::text::notes::counted;
use crate::tool::{Mutation, Need, Obtained, PlanContext, Scope, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "delete_file",
    description: "Deletes one file, if it is as you last read it, or with recursive a folder.",
    is_expensive: false,
    permissions: &[Permission::FileDelete],
    content: &[],
    input: ToolSchema::of::<DeleteFileInput>,
    output: ToolSchema::of::<DeleteFileOutput>,
    run: ToolRun::Mutation(|members| {
        let input = parse::<DeleteFileInput>(members)?;
        let path = if input.recursive { folder_path(&input.path)? } else { file_path(&input.path)? };
        let output = |path, before: &FileState| {
            members_of(&DeleteFileOutput { path, old_sha256: Some(before.sha256), files: Vec::new() })
        };
        let expected = input.expected_sha256;
        Ok(Box::new(DeleteFile { path, expected, may_be_folder: input.recursive, folder: None, output }))
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
    /// Relative to the workspace root.
    path: String,
    /// Delete a folder.
    #[serde(default)]
    recursive: bool,
    /// The version that the file must have. Required for a file, except in the text view, where `seen` is the default.
    #[serde(default)]
    expected_sha256: Option<ExpectedVersion>,
}

/// The output of `delete_file`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeleteFileOutput {
    /// The normalised path.
    path: LogicalPath,
    /// Hash of the deleted file. Missing for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_sha256: Option<Sha256>,
    /// The deleted files of a folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    files: Vec<DeletedFile>,
}

/// A file of a deleted folder.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeletedFile {
    /// The path.
    path: LogicalPath,
    /// Always `deleted`.
    operation: &'static str,
    /// Hash of the file.
    old_sha256: Sha256,
    /// Always 0.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
}

/// A deletion, by the tool or by a file transfer.
pub(crate) struct DeleteFile {
    /// The file or folder.
    pub(crate) path: LogicalPath,
    /// The version that the file must have.
    pub(crate) expected: Option<ExpectedVersion>,
    /// Whether it may be a folder, which is not known yet.
    pub(crate) may_be_folder: bool,
    /// The folder, if it is one.
    pub(crate) folder: Option<Folder>,
    /// Returns the output for the deleted file.
    pub(crate) output: fn(LogicalPath, &FileState) -> Map<String, Value>,
}

impl Mutation for DeleteFile {
    fn need(&self) -> Option<Need> {
        self.may_be_folder.then(|| Need::Folder(self.path.clone()))
    }

    fn prepare(&mut self, found: Obtained) -> Result<(), Refusal> {
        if let Obtained::Folder(files) = found {
            self.may_be_folder = false;
            self.folder = files.map(|files| Folder::new(&self.path, files, self.expected)).transpose()?;
        }
        Ok(())
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        match &mut self.folder {
            Some(folder) => folder.expected_versions(),
            None => self.expected.iter_mut().map(|expected| (&self.path, expected)).collect(),
        }
    }

    fn scope(&self) -> Scope {
        Scope::of(self.folder.as_ref().map_or_else(|| vec![self.path.clone()], |folder| folder.files().to_vec()))
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        if let Some(folder) = &self.folder {
            folder.check(workspace)?;
        }
        targets_or_folder_hint(workspace, rules, &scope.paths, removed, "delete")
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let deletion = |path: &LogicalPath| DesiredFile { path: path.clone(), effect: Effect::Delete, after: None };
        let Some(folder) = &self.folder else {
            let before = targets.first().and_then(|target| target.before.as_ref());
            let before = before.map(|(state, _)| state.clone()).ok_or_else(|| Refusal::not_found(&self.path))?;
            expect_version(&self.path, Some(before.sha256), self.expected)?;
            let mut plan = ChangePlan::build_any_kind(context.rules, targets, vec![deletion(&self.path)], Vec::new());
            plan.summary = format!("deleted {}", self.path);
            plan.output = (self.output)(self.path.clone(), &before);
            return Ok(plan);
        };
        folder.check_versions(&targets)?;
        let desired = folder.files().iter().map(deletion).collect();
        let mut plan = ChangePlan::build_any_kind(context.rules, targets, desired, Vec::new());
        let deleted = plan.changes().filter_map(|change| {
            Some(DeletedFile {
                path: change.path.clone(),
                operation: "deleted",
                old_sha256: change.before.as_ref()?.sha256,
                insertions: change.counts.insertions,
                deletions: change.counts.deletions,
            })
        });
        let files: Vec<_> = deleted.collect();
        let count = counted(files.len() as u64, "file", "files");
        plan.summary = format!("deleted {}/ with {count}", self.path);
        plan.output = members_of(&DeleteFileOutput { path: self.path.clone(), old_sha256: None, files });
        Ok(plan)
    }
}
