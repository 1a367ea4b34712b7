//! `find_files`: files by the pattern of their paths.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{FindQuery, FindSort, FoundFile, WorkspaceError};

use crate::tool::input::{any_path, bounded, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The most globs of one call.
pub(crate) const MAX_GLOBS: usize = 100;

/// The most files that are told.
pub(crate) const MAX_RESULTS: u64 = 10_000;

pub(crate) const TOOL: Tool = Tool {
    name: "find_files",
    description: "Finds files whose path matches one of the globs, such as `*.rs` at any depth or `src/**/*.ts`. Files \
                  that git ignores or that are generated or vendored are left out unless path lies within them.",
    is_expensive: true,
    permissions: &[Permission::FileList],
    content: &[],
    input: ToolSchema::of::<FindFilesInput>,
    output: ToolSchema::of::<FindFilesOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(FindFiles::try_from(parse::<FindFilesInput>(members)?)?))),
};

/// What `find_files` takes.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"glob": ["*.rs"], "path": "src", "sort": "modified"}))]
pub(crate) struct FindFilesInput {
    /// Globs on the path from the root of the tree. `*` stays within a name, `**` goes through folders, and a glob without
    /// `/` is for names at any depth.
    #[schema(min_items = 1, max_items = 100)]
    glob: Vec<String>,
    /// The folder to look in.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
    /// At most so many files. Taken as 10,000 where it is more.
    #[serde(default = "two_hundred")]
    #[schema(minimum = 1, maximum = 10_000, default = 200)]
    max_results: u64,
    /// The order: by path, the last written first, or the largest first.
    #[serde(default)]
    #[schema(inline)]
    sort: FindSort,
}

fn two_hundred() -> u64 {
    200
}

/// What `find_files` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FindFilesOutput {
    /// The files, in the order that was asked for.
    entries: Vec<FoundFile>,
    /// Whether files are missing because there were too many: more than `maxResults`, or than 2 MiB of them.
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
