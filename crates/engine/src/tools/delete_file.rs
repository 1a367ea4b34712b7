//! `delete_file`: deletes a file, or a folder with its files.

use model::{FileState, LogicalPath, Permission, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tool::change_plan::ChangePlan;
use crate::tool::expected_version::ExpectedVersion;
use crate::tool::input::{file_path, folder_path, parse};
use crate::tool::output::members as members_of;
use crate::tool::{Tool, ToolRun, ToolSchema};
use crate::tools::folder_op::FolderOp;

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
        Ok(Box::new(FolderOp::delete(path, input.expected_sha256, input.recursive, output)))
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

/// Returns the output for the folder at `path`, all of whose files the plan deletes.
pub(crate) fn deleted_folder(path: &LogicalPath, plan: &ChangePlan) -> Map<String, Value> {
    let deleted = plan.changes().filter_map(|change| {
        Some(DeletedFile {
            path: change.path.clone(),
            operation: "deleted",
            old_sha256: change.before.as_ref()?.sha256,
            insertions: change.counts.insertions,
            deletions: change.counts.deletions,
        })
    });
    members_of(&DeleteFileOutput { path: path.clone(), old_sha256: None, files: deleted.collect() })
}
