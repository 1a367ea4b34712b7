//! `tree_stats`: counts the files of a folder by kind and extension.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{TreeStats, WorkspaceError};

use crate::tool::input::{any_path, max_chars, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};
use crate::tools::text;

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
    /// Relative to the workspace root.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
    /// The maximum length of the output as text, in characters. The last extensions are omitted if it is exceeded.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
}

/// The output of `tree_stats`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeStatsOutput {
    /// The normalised path.
    pub(crate) path: LogicalPath,
    /// Whether extensions are omitted because of `maxChars`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    #[serde(flatten)]
    #[schema(inline)]
    pub(crate) stats: TreeStats,
}

struct Stats {
    path: LogicalPath,
    max_chars: Option<usize>,
}

impl TryFrom<TreeStatsInput> for Stats {
    type Error = Refusal;

    fn try_from(input: TreeStatsInput) -> Result<Self, Refusal> {
        Ok(Self { path: any_path(&input.path)?, max_chars: max_chars(input.max_chars)? })
    }
}

impl ReadTool for Stats {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let path = self.path.clone();
        let mut stats = context.tree.stats(context.rules, &path, context.cancel)?;
        let truncated = self.max_chars.is_some_and(|most| text::metadata::fit_stats(path.as_str(), &mut stats, most));
        Ok(ReadOutput::new(TreeStatsOutput { path: path.clone(), truncated, stats }, vec![path]))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }
}
