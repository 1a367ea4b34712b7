//! `stat_path`: returns the metadata of a path.

use model::{FileKind, LogicalPath, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{EntryType, PathStat, WorkspaceError};

use crate::tool::input::{any_path, file_path, max_chars, parse};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "stat_path",
    description: "Returns whether a path exists, its type, kind, size, modification time, permission bits and sha256, and \
                  whether it may be read and written.",
    is_expensive: false,
    permissions: &[Permission::FileList],
    content: &[],
    input: ToolSchema::of::<StatPathInput>,
    output: ToolSchema::of::<StatPathOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(StatPath::try_from(parse::<StatPathInput>(members)?)?))),
};

/// The input of `stat_path`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src/main.rs"}))]
pub(crate) struct StatPathInput {
    /// Relative to the workspace root.
    path: String,
    /// As in other tools. The output is never cut.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
}

/// The output of `stat_path`. For a missing path it has only `path`, `exists`, `readable` and `writable`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
pub(crate) struct StatPathOutput {
    /// The normalised path.
    pub(crate) path: LogicalPath,
    /// Whether the path exists.
    pub(crate) exists: bool,
    /// The type. Symbolic links are not followed.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) entry_type: Option<EntryType>,
    /// The kind, of a file or folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<FileKind>,
    /// Where a symbolic link leads to, if that may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<LogicalPath>,
    /// Whether `read_file`, or `list_dir` for a folder, would return its content.
    pub(crate) readable: bool,
    /// If it is not readable: the error code with which a read would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// True for a secret file of settings of which `read_file` shows the keys without their values, because the policy says
    /// `REDACT`. It is not readable otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
    /// Whether a tool could change the path, or create it if it is missing. The change may need an approval.
    pub(crate) writable: bool,
    /// The size of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes: Option<u64>,
    /// The time of the last modification.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) modified_at: Option<String>,
    /// The permission bits, in octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "0644")]
    pub(crate) mode: Option<String>,
    /// Hash of a file's bytes, if the caller may read them or, for a binary file, download them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<Sha256>,
}

impl From<PathStat> for StatPathOutput {
    fn from(stat: PathStat) -> Self {
        let found = stat.found.as_ref();
        Self {
            exists: found.is_some(),
            entry_type: found.map(|found| found.entry_type),
            kind: found.and_then(|found| found.kind),
            target: found.and_then(|found| found.target.clone()),
            readable: found.is_some_and(|found| found.refused.is_none()),
            reason: found.and_then(|found| found.refused).map(|code| code.as_str().to_owned()),
            redacted: found.is_some_and(|found| found.redacted),
            writable: stat.writable,
            size_bytes: found.and_then(|found| found.size_bytes),
            modified_at: found.map(|found| found.modified_at.to_string()),
            mode: found.map(|found| format!("{:04o}", found.mode)),
            sha256: found.and_then(|found| found.sha256),
            path: stat.path,
        }
    }
}

struct StatPath {
    path: LogicalPath,
    /// The path parsed as a file's, or the refusal to return if it is one.
    as_file: Result<LogicalPath, Refusal>,
}

impl TryFrom<StatPathInput> for StatPath {
    type Error = Refusal;

    fn try_from(input: StatPathInput) -> Result<Self, Refusal> {
        max_chars(input.max_chars)?;
        Ok(Self { path: any_path(&input.path)?, as_file: file_path(&input.path) })
    }
}

impl ReadTool for StatPath {
    fn needs_one_state(&self) -> bool {
        false
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let stat = context.tree.stat(context.rules, &self.path, context.cancel)?;
        let found = stat.found.as_ref();
        if let (Some(EntryType::File), Err(refusal)) = (found.map(|found| found.entry_type), &self.as_file) {
            return Err(WorkspaceError::Refused(refusal.clone()));
        }
        let version = found.and_then(|found| found.kind.zip(found.sha256));
        let output = ReadOutput::new(StatPathOutput::from(stat), vec![self.path.clone()]);
        Ok(match version {
            Some((kind, version)) => output.with_file(&self.path, kind, version),
            None => output,
        })
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }
}
