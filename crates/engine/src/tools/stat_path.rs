//! `stat_path`: what is at a path, without its content.

use model::{FileKind, LogicalPath, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{EntryType, PathStat, WorkspaceError};

use crate::tool::input::{any_path, file_path, parse};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "stat_path",
    description: "Tells what is at a path: whether it exists, its type, kind, size, time, permission bits, whether it \
                  may be read and written, and the hash of a file. A missing path is no error.",
    is_expensive: false,
    permissions: &[Permission::FileList],
    content: &[],
    input: ToolSchema::of::<StatPathInput>,
    output: ToolSchema::of::<StatPathOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(StatPath::try_from(parse::<StatPathInput>(members)?)?))),
};

/// What `stat_path` takes.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src/main.rs"}))]
pub(crate) struct StatPathInput {
    /// The path.
    path: String,
}

/// What `stat_path` answers. Where nothing is there, there is no more than `path`, `exists`, `readable` and `writable`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatPathOutput {
    /// The path, cleaned.
    path: LogicalPath,
    /// Whether anything is there.
    exists: bool,
    /// What it is; a symbolic link is told as itself.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    entry_type: Option<EntryType>,
    /// Its kind, where it is a file or a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<FileKind>,
    /// Whether `read_file` would tell its content or, for a folder, `list_dir`.
    readable: bool,
    /// Why not: the code that reading it would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether a tool could change it, or make it where nothing is there; a person may have to agree.
    writable: bool,
    /// Its size, where it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    /// When it was last written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    modified_at: Option<String>,
    /// Its permission bits, octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "0644")]
    mode: Option<String>,
    /// Hash of a file's bytes, where they may be read or, for a binary file, sent by the files plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
}

impl From<PathStat> for StatPathOutput {
    fn from(stat: PathStat) -> Self {
        let found = stat.found.as_ref();
        Self {
            exists: found.is_some(),
            entry_type: found.map(|found| found.entry_type),
            kind: found.and_then(|found| found.kind),
            readable: found.is_some_and(|found| found.refused.is_none()),
            reason: found.and_then(|found| found.refused).map(|code| code.as_str().to_owned()),
            writable: stat.writable,
            size_bytes: found.and_then(|found| found.size_bytes),
            modified_at: found.map(|found| found.modified_at.clone()),
            mode: found.map(|found| format!("{:04o}", found.mode)),
            sha256: found.and_then(|found| found.sha256),
            path: stat.path,
        }
    }
}

struct StatPath {
    path: LogicalPath,
    /// What is wrong with the path where it turns out to be a file's.
    as_file: Result<LogicalPath, Refusal>,
}

impl TryFrom<StatPathInput> for StatPath {
    type Error = Refusal;

    fn try_from(input: StatPathInput) -> Result<Self, Refusal> {
        Ok(Self { path: any_path(&input.path)?, as_file: file_path(&input.path) })
    }
}

impl ReadTool for StatPath {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let stat = context.tree.stat(context.rules, &self.path, context.cancel)?;
        let found = stat.found.as_ref();
        if let (Some(EntryType::File), Err(refusal)) = (found.map(|found| found.entry_type), &self.as_file) {
            return Err(WorkspaceError::Refused(refusal.clone()));
        }
        let version = found.and_then(|found| found.kind.zip(found.sha256));
        let told = ReadOutput::new(&StatPathOutput::from(stat), vec![self.path.clone()])?;
        Ok(match version {
            Some((kind, version)) => told.with_file(&self.path, kind, version),
            None => told,
        })
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }
}
