//! `list_dir`: lists a folder.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{Entry, ListQuery, WorkspaceError};

use crate::tool::at_record::AtRecord;
use crate::tool::input::{any_path, bounded, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The maximum depth of a listing.
pub(crate) const MAX_DEPTH: u64 = 20;
/// The maximum number of entries.
pub(crate) const MAX_ENTRIES: u64 = 10_000;

pub(crate) const TOOL: Tool = Tool {
    name: "list_dir",
    description: "Lists the files and folders in a folder, sorted by path. Entries that are hidden, ignored by git, \
                  generated or vendored are omitted unless includeHidden or includeIgnored is set. With atSeq it lists the \
                  folder as it was at an earlier record.",
    is_expensive: false,
    permissions: &[Permission::FileList],
    content: &[],
    input: ToolSchema::of::<ListDirInput>,
    output: ToolSchema::of::<ListDirOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(ListDir::try_from(parse::<ListDirInput>(members)?)?))),
};

/// The input of `list_dir`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(example = json!({"path": "src", "maxDepth": 2}))]
pub(crate) struct ListDirInput {
    /// The folder.
    path: String,
    /// The depth of the listing; 1 is the folder's own entries. Values over 20 are taken as 20.
    #[schema(minimum = 1, maximum = 20)]
    max_depth: u64,
    /// Whether to list names that begin with `.`.
    include_hidden: bool,
    /// Whether to list entries that are ignored by git, generated or vendored.
    include_ignored: bool,
    /// The maximum number of entries. Values over 10,000 are taken as 10,000.
    #[schema(minimum = 1, maximum = 10_000)]
    max_entries: u64,
    /// List the folder as it was at this record of the run's audit; 0 is the run's start. Only files that the audit knows and
    /// their folders are listed. Not allowed with `mount`.
    #[schema(minimum = 0)]
    at_seq: Option<u64>,
}

impl Default for ListDirInput {
    fn default() -> Self {
        Self {
            path: root(),
            max_depth: 2,
            include_hidden: false,
            include_ignored: false,
            max_entries: 300,
            at_seq: None,
        }
    }
}

/// The output of `list_dir`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListDirOutput {
    /// The normalised path.
    path: LogicalPath,
    /// The entries, sorted by path.
    entries: Vec<Entry>,
    /// Whether entries are omitted because the list would exceed `maxEntries` or 2 MiB.
    truncated: bool,
    /// The `atSeq` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_seq: Option<u64>,
}

struct ListDir {
    query: ListQuery,
    at_seq: Option<u64>,
}

impl TryFrom<ListDirInput> for ListDir {
    type Error = Refusal;

    fn try_from(input: ListDirInput) -> Result<Self, Refusal> {
        let max_depth = bounded("maxDepth", input.max_depth, 1, MAX_DEPTH)?;
        let max_entries = bounded("maxEntries", input.max_entries, 1, MAX_ENTRIES)?;
        let query = ListQuery {
            path: any_path(&input.path)?,
            max_depth: u32::try_from(max_depth).unwrap_or(20),
            include_hidden: input.include_hidden,
            include_ignored: input.include_ignored,
            max_entries: usize::try_from(max_entries).unwrap_or(10_000),
        };
        Ok(Self { query, at_seq: input.at_seq })
    }
}

impl ReadTool for ListDir {
    fn at_record(&self) -> Option<AtRecord> {
        self.at_seq.map(|seq| AtRecord { seq, with_modes: false, only: None })
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let (rules, query, cancel) = (context.rules, &self.query, context.cancel);
        let listing = match context.at_record() {
            Some((snapshot, workspace)) => {
                workspace.list_snapshot(rules, &snapshot.files, query, snapshot.contents.as_ref(), cancel)?
            }
            None => context.tree.list(rules, query, cancel)?,
        };
        let path = query.path.clone();
        let output = ListDirOutput {
            path: path.clone(),
            entries: listing.entries,
            truncated: listing.truncated,
            at_seq: self.at_seq,
        };
        ReadOutput::new(&output, vec![path])
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.query.path.clone()]
    }
}
