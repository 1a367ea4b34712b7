//! `find_files`: finds files by their paths.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{FindQuery, FindSort, FoundFile, WorkspaceError};

use crate::tool::input::{any_path, bounded, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The maximum number of globs.
pub(crate) const MAX_GLOBS: usize = 100;

/// The maximum number of returned files.
pub(crate) const MAX_RESULTS: u64 = 10_000;

pub(crate) const TOOL: Tool = Tool {
    name: "find_files",
    description: "Finds files whose path matches one of the globs, such as `*.rs` at any depth or `src/**/*.ts`. Files \
                  that are ignored by git, generated or vendored are omitted unless path is inside them.",
    is_expensive: true,
    permissions: &[Permission::FileList],
    content: &[],
    input: ToolSchema::of::<FindFilesInput>,
    output: ToolSchema::of::<FindFilesOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(FindFiles::try_from(parse::<FindFilesInput>(members)?)?))),
};

/// The input of `find_files`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"glob": ["*.rs"], "path": "src", "sort": "modified"}))]
pub(crate) struct FindFilesInput {
    /// Globs, matched against the path from the root of the tree. `*` matches within a name, `**` across folders. A glob
    /// without `/` matches names at any depth.
    #[schema(min_items = 1, max_items = 100)]
    glob: Vec<String>,
    /// The folder to search.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
    /// The maximum number of files. Values over 10,000 are taken as 10,000.
    #[serde(default = "two_hundred")]
    #[schema(minimum = 1, maximum = 10_000, default = 200)]
    max_results: u64,
    /// The order: by path, most recently modified first, or largest first.
    #[serde(default)]
    #[schema(inline)]
    sort: FindSort,
}

fn two_hundred() -> u64 {
    200
}

/// The output of `find_files`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FindFilesOutput {
    /// The files, in the order of `sort`.
    entries: Vec<FoundFile>,
    /// Whether files are omitted because the list would exceed `maxResults` or 2 MiB.
    truncated: bool,
}

struct FindFiles(FindQuery);

impl TryFrom<FindFilesInput> for FindFiles {
    type Error = Refusal;

    fn try_from(input: FindFilesInput) -> Result<Self, Refusal> {
        if !(1..=MAX_GLOBS).contains(&input.glob.len()) {
            let message = format!("`glob` has {} entries; it takes 1 to {MAX_GLOBS}", input.glob.len());
            return Err(Refusal::invalid(message, "Give globs such as `*.rs` or `src/**`; `**` finds every file."));
        }
        let max_results = bounded("maxResults", input.max_results, 1, MAX_RESULTS)?;
        Ok(Self(FindQuery {
            path: any_path(&input.path)?,
            globs: input.glob,
            max_results: usize::try_from(max_results).unwrap_or(10_000),
            sort: input.sort,
        }))
    }
}

impl ReadTool for FindFiles {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let found = context.tree.find(context.rules, &self.0, context.cancel)?;
        let output = FindFilesOutput { entries: found.entries, truncated: found.truncated };
        ReadOutput::new(&output, vec![self.0.path.clone()])
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.0.path.clone()]
    }
}
