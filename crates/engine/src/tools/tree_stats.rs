//! `tree_stats`: counts the files of a folder by kind and extension.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{TreeStats, WorkspaceError};

use crate::tool::input::{any_path, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "tree_stats",
    description: "Counts files, folders, bytes and lines under a folder, by kind and by extension. Use it first in an \
                  unknown tree. Files that git ignores are omitted.",
    is_expensive: true,
    permissions: &[Permission::FileList],
    content: &[],
    input: ToolSchema::of::<TreeStatsInput>,
    output: ToolSchema::of::<TreeStatsOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(Stats::try_from(parse::<TreeStatsInput>(members)?)?))),
};

/// The input of `tree_stats`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src"}))]
pub(crate) struct TreeStatsInput {
    /// The folder.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
}

/// The output of `tree_stats`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeStatsOutput {
    /// The normalised path.
    path: LogicalPath,
    #[serde(flatten)]
    #[schema(inline)]
    stats: TreeStats,
}

struct Stats(LogicalPath);

impl TryFrom<TreeStatsInput> for Stats {
    type Error = Refusal;

    fn try_from(input: TreeStatsInput) -> Result<Self, Refusal> {
        Ok(Self(any_path(&input.path)?))
    }
}

impl ReadTool for Stats {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let stats = context.tree.stats(context.rules, &self.0, context.cancel)?;
        ReadOutput::new(&TreeStatsOutput { path: self.0.clone(), stats }, vec![self.0.clone()])
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.0.clone()]
    }
}
