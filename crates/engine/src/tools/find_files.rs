//! `find_files`: finds files by their paths.

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{FindPosition, FindQuery, FindSort, FoundFile, NotShown, WorkspaceError};

use crate::tool::cursor::{ListedQuery, bad_cursor};
use crate::tool::input::{any_path, bounded, max_chars, mistaken_globs, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};
use crate::tools::text;

/// The maximum number of globs.
pub(crate) const MAX_GLOBS: usize = 100;

/// The maximum number of returned files.
pub(crate) const MAX_RESULTS: u64 = 10_000;

pub(crate) const TOOL: Tool = Tool {
    name: "find_files",
    description: "Finds files whose path matches one of the globs. Git-ignored, generated and vendored files are \
                  omitted unless path or a glob names their folder.",
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
    /// `*` matches within a name, `**` across folders. A glob without `/` matches names at any depth.
    #[schema(min_items = 1, max_items = 100)]
    glob: Vec<String>,
    /// The folder to search.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
    /// At most 10,000.
    #[serde(default = "two_hundred")]
    #[schema(minimum = 1, default = 200)]
    max_results: u64,
    /// By path, newest first or largest first.
    #[serde(default)]
    #[schema(inline)]
    sort: FindSort,
    /// The maximum length of the entries as text, in characters.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
    /// `nextCursor` of the last answer.
    #[serde(default)]
    cursor: Option<String>,
}

fn two_hundred() -> u64 {
    200
}

/// The output of `find_files`.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindFilesOutput {
    /// The files, in the order of `sort`.
    pub entries: Vec<FoundFile>,
    /// Whether files are omitted because the list would exceed `maxResults`, `maxChars` or 2 MiB.
    pub truncated: bool,
    /// Why files are omitted: `maxResults`, `maxChars` or `maxBytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncated_reason: Option<String>,
    /// The `cursor` to continue with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
    /// If files are omitted: the number of all matching files, as far as it is known. Always counted for `text/plain`, up to
    /// 100,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_entries: Option<u64>,
    /// The entries that were left out, as far as the search went.
    #[serde(default, skip_serializing_if = "NotShown::is_empty")]
    #[schema(required = false)]
    pub not_shown: NotShown,
    /// If no file is found: the globs that match no path, and their correct spelling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub notes: Vec<String>,
}

struct FindFiles {
    query: FindQuery,
    max_chars: Option<usize>,
}

impl TryFrom<FindFilesInput> for FindFiles {
    type Error = Refusal;

    fn try_from(input: FindFilesInput) -> Result<Self, Refusal> {
        if !(1..=MAX_GLOBS).contains(&input.glob.len()) {
            let message = format!("`glob` has {} entries; it takes 1 to {MAX_GLOBS}", input.glob.len());
            return Err(Refusal::invalid(message, "Give globs such as `*.rs` or `src/**`; `**` finds every file."));
        }
        let max_results = bounded("maxResults", input.max_results, 1, MAX_RESULTS)?;
        let mut query = FindQuery {
            path: any_path(&input.path)?,
            globs: input.glob,
            max_results: usize::try_from(max_results).unwrap_or(10_000),
            sort: input.sort,
            after: None,
            counts_all: false,
        };
        if let Some(cursor) = &input.cursor {
            query.after = Some(position_of(listed(&query).position(cursor)?)?);
        }
        Ok(Self { query, max_chars: max_chars(input.max_chars)? })
    }
}

/// The members of a query that its cursors belong to.
fn listed(query: &FindQuery) -> ListedQuery {
    ListedQuery::of(&("find_files", &query.path, &query.globs, query.sort))
}

fn cursor_of(query: &FindQuery, FindPosition { rank, path }: &FindPosition) -> String {
    listed(query).cursor(&format!("{}:{}:{path}", rank.0, rank.1))
}

fn position_of(text: &str) -> Result<FindPosition, Refusal> {
    let mut parts = text.splitn(3, ':');
    let position = (|| {
        let rank = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(FindPosition { rank, path: LogicalPath::parse(parts.next()?).ok()? })
    })();
    position.ok_or_else(bad_cursor)
}

impl ReadTool for FindFiles {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let query = &FindQuery { counts_all: context.counts_all, ..self.query.clone() };
        let mut found = context.tree.find(context.rules, query, context.cancel)?;
        let is_full = found.entries.len() == query.max_results;
        let mut truncated_reason = found.truncated.then_some(if is_full { "maxResults" } else { "maxBytes" });
        let is_whole = !found.truncated && query.after.is_none();
        let total_entries = found.total.or_else(|| is_whole.then_some(found.entries.len() as u64));
        if let Some(most) = self.max_chars {
            let fit = text::lists::fitting_files(&found.entries, most);
            if fit < found.entries.len() {
                found.entries.truncate(fit);
                truncated_reason = Some("maxChars");
            }
        }
        let is_empty = found.entries.is_empty() && query.after.is_none();
        let notes = if is_empty { mistaken_globs(context.rules, &query.globs) } else { Vec::new() };
        let last = found.entries.len().checked_sub(1).and_then(|last| found.positions.get(last));
        let output = FindFilesOutput {
            truncated: truncated_reason.is_some(),
            truncated_reason: truncated_reason.map(str::to_owned),
            next_cursor: last.filter(|_| truncated_reason.is_some()).map(|last| cursor_of(query, last)),
            total_entries: total_entries.filter(|_| truncated_reason.is_some()),
            entries: found.entries,
            not_shown: found.not_shown,
            notes,
        };
        Ok(ReadOutput::new(output, vec![query.path.clone()]))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.query.path.clone()]
    }
}
