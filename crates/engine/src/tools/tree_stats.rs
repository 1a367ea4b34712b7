//! `tree_stats`: how much there is, by kind and by extension.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{TreeStats, WorkspaceError};

use crate::tool::input::{any_path, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "tree_stats",
    description: "Counts files, folders, bytes and lines under a folder, by kind and by extension: a first look at an \
                  unknown tree. What git ignores is left out.",
    is_expensive: true,
    permissions: &[Permission::FileList],
    content: &[],
    input: ToolSchema::of::<TreeStatsInput>,
    output: ToolSchema::of::<TreeStatsOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(Stats::try_from(parse::<TreeStatsInput>(members)?)?))),
};

/// What `tree_stats` takes.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src"}))]
pub(crate) struct TreeStatsInput {
    /// The folder.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
}

/// What `tree_stats` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeStatsOutput {
    /// The folder, cleaned.
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
