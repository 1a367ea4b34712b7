//! `move_file`: moves a file, or a folder with its files, to another path.

use model::{Change, Effect, LogicalPath, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tool::change_plan::ChangePlan;
use crate::tool::expected_version::ExpectedVersion;
use crate::tool::input::{check_new, file_path, folder_path, new_file_path, parse};
use crate::tool::output::members;
use crate::tool::{Tool, ToolRun, ToolSchema};
use crate::tools::folder_op::FolderOp;

pub(crate) const TOOL: Tool = Tool {
    name: "move_file",
    description: "Moves or renames one file, if it is as you last read it, or with recursive a folder; the new path must not exist.",
    is_expensive: false,
    permissions: &[Permission::FileMove],
    content: &[],
    input: ToolSchema::of::<MoveFileInput>,
    output: ToolSchema::of::<MoveFileOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(FolderOp::try_from(parse::<MoveFileInput>(members)?)?))),
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
    /// Relative to the workspace root.
    from: String,
    /// The new path. Missing folders are created.
    to: String,
    /// Move a folder.
    #[serde(default)]
    recursive: bool,
    /// The version that the file must have. Required for a file, except in the text view, where `seen` is the default.
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
    /// Hash of the file. Missing for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
    /// The moved files of a folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    files: Vec<MovedFile>,
}

/// A file of a moved folder.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MovedFile {
    /// The old path.
    from: LogicalPath,
    /// The new path.
    path: LogicalPath,
    /// Always `renamed`.
    operation: &'static str,
    /// Hash of the file.
    sha256: Sha256,
    /// Always 0.
    insertions: u64,
    /// Always 0.
    deletions: u64,
}

impl TryFrom<MoveFileInput> for FolderOp {
    type Error = Refusal;

    fn try_from(input: MoveFileInput) -> Result<Self, Refusal> {
        let (from, to) = if input.recursive {
            (folder_path(&input.from)?, folder_path(&input.to)?)
        } else {
            (file_path(&input.from)?, new_file_path(&input.to)?)
        };
        check_new(&to)?;
        if from == to {
            return Err(Refusal::invalid("`from` and `to` are the same path", "Give another path in `to`.").at(&to));
        }
        Ok(Self::new_move(from, to, input.expected_sha256, input.recursive))
    }
}

/// Returns the output for a moved file, which has the hash `sha256`, or for a moved folder.
pub(crate) fn moved(
    from: &LogicalPath,
    to: &LogicalPath,
    sha256: Option<Sha256>,
    plan: &ChangePlan,
) -> Map<String, Value> {
    let files = if sha256.is_some() { Vec::new() } else { plan.changes().filter_map(MovedFile::of).collect() };
    members(&MoveFileOutput { from: from.clone(), to: to.clone(), sha256, files })
}

impl MovedFile {
    /// The file that a change has received.
    fn of(change: &Change) -> Option<Self> {
        let Effect::MoveTo { from } = &change.effect else { return None };
        let sha256 = change.after.as_ref()?.sha256;
        Some(Self {
            from: from.clone(),
            path: change.path.clone(),
            operation: "renamed",
            sha256,
            insertions: 0,
            deletions: 0,
        })
    }
}
