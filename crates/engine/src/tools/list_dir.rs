//! `list_dir`: lists a folder.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{FolderEntry, ListQuery, NotShown, WorkspaceError};

use crate::tool::AtRecord;
use crate::tool::cursor::ListedQuery;
use crate::tool::input::{any_path, bounded, max_chars, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};
use crate::tools::text;

/// The maximum depth of a listing.
pub(crate) const MAX_DEPTH: u64 = 20;
/// The maximum number of entries.
pub(crate) const MAX_ENTRIES: u64 = 10_000;

pub(crate) const TOOL: Tool = Tool {
    name: "list_dir",
    description: "Lists a folder, sorted by path. Hidden, git-ignored, generated and vendored entries are omitted by default.",
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
    /// Relative to the workspace root.
    path: String,
    /// Levels to list, at most 20.
    #[schema(minimum = 1)]
    max_depth: u64,
    /// List names that begin with `.`.
    include_hidden: bool,
    /// List ignored, generated and vendored entries.
    include_ignored: bool,
    /// At most 10,000.
    #[schema(minimum = 1)]
    max_entries: u64,
    /// List the folder as it was at this record of the run's audit; 0 is the run's start. Only files that the audit knows and
    /// their folders are listed. Not allowed with `mount`.
    #[schema(minimum = 0)]
    at_seq: Option<u64>,
    /// The maximum length of the entries as text, in characters.
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
    /// `nextCursor` of the last answer.
    cursor: Option<String>,
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
            max_chars: None,
            cursor: None,
        }
    }
}

/// The output of `list_dir`.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListDirOutput {
    /// The normalised path.
    pub(crate) path: LogicalPath,
    /// The entries, sorted by path.
    pub entries: Vec<FolderEntry>,
    /// Whether entries are omitted because the list would exceed `maxEntries`, `maxChars` or 2 MiB.
    pub truncated: bool,
    /// Why entries are omitted: `maxEntries`, `maxChars` or `maxBytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncated_reason: Option<String>,
    /// The `cursor` to continue with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
    /// If entries are omitted: the number of all entries of the listing, as far as it is known. Always counted for
    /// `text/plain`, up to 100,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_entries: Option<u64>,
    /// The entries that are left out in the folders of this listing. With `cursor`, those before it are not counted, except for
    /// `text/plain`.
    #[serde(default, skip_serializing_if = "NotShown::is_empty")]
    #[schema(required = false)]
    pub not_shown: NotShown,
    /// The `atSeq` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_seq: Option<u64>,
}

struct ListDir {
    query: ListQuery,
    at_seq: Option<u64>,
    max_chars: Option<usize>,
}

impl TryFrom<ListDirInput> for ListDir {
    type Error = Refusal;

    fn try_from(input: ListDirInput) -> Result<Self, Refusal> {
        let max_depth = bounded("maxDepth", input.max_depth, 1, MAX_DEPTH)?;
        let max_entries = bounded("maxEntries", input.max_entries, 1, MAX_ENTRIES)?;
        let mut query = ListQuery {
            path: any_path(&input.path)?,
            max_depth: u32::try_from(max_depth).unwrap_or(20),
            include_hidden: input.include_hidden,
            include_ignored: input.include_ignored,
            max_entries: usize::try_from(max_entries).unwrap_or(10_000),
            after: None,
            counts_all: false,
        };
        if let Some(cursor) = &input.cursor {
            query.after = Some(listed(&query, input.at_seq).position(cursor)?.to_owned());
        }
        Ok(Self { query, at_seq: input.at_seq, max_chars: max_chars(input.max_chars)? })
    }
}

/// The members of a query that its cursors belong to.
fn listed(query: &ListQuery, at_seq: Option<u64>) -> ListedQuery {
    let ListQuery { path, max_depth, include_hidden, include_ignored, .. } = query;
    ListedQuery::of(&("list_dir", path, max_depth, include_hidden, include_ignored, at_seq))
}

impl ReadTool for ListDir {
    fn at_record(&self) -> Option<AtRecord> {
        self.at_seq.map(|seq| AtRecord { seq, only: None })
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let query = &ListQuery { counts_all: context.counts_all, ..self.query.clone() };
        let (rules, cancel) = (context.rules, context.cancel);
        let mut listing = match context.at_record() {
            Some((snapshot, workspace)) => {
                workspace.list_snapshot(rules, &snapshot.files, query, snapshot.contents.as_ref(), cancel)?
            }
            None => context.tree.list(rules, query, cancel)?,
        };
        let path = query.path.clone();
        let is_full = listing.entries.len() == query.max_entries;
        let mut truncated_reason = listing.truncated.then_some(if is_full { "maxEntries" } else { "maxBytes" });
        let is_whole = !listing.truncated && query.after.is_none();
        let total_entries = listing.total.or_else(|| is_whole.then_some(listing.entries.len() as u64));
        if let Some(most) = self.max_chars {
            let fit = text::lists::fitting_entries(path.as_str(), &listing.entries, most);
            if fit < listing.entries.len() {
                listing.entries.truncate(fit);
                truncated_reason = Some("maxChars");
            }
        }
        let last = listing.entries.last().filter(|_| truncated_reason.is_some());
        let output = ListDirOutput {
            path: path.clone(),
            truncated: truncated_reason.is_some(),
            truncated_reason: truncated_reason.map(str::to_owned),
            next_cursor: last.map(|entry| listed(query, self.at_seq).cursor(&entry.path)),
            total_entries: total_entries.filter(|_| truncated_reason.is_some()),
            entries: listing.entries,
            not_shown: listing.not_shown,
            at_seq: self.at_seq,
        };
        Ok(ReadOutput::new(output, vec![path]))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.query.path.clone()]
    }
}
