//! `search_text`: lines that hold a text or match an expression.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{LogicalPath, Permission, Refusal};
use serde::{Deserialize, Serialize};
use workspace::{Match, SearchMode, SearchQuery, WorkspaceError};

use crate::call_error::refusals::forbidden;

use crate::tool::input::{any_path, bounded, parse, root};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The longest query, in bytes.
pub(crate) const MAX_QUERY_BYTES: usize = 4096;
/// The most globs of either kind.
pub(crate) const MAX_GLOBS: usize = 100;

/// The most matches that are told.
pub(crate) const MAX_MATCHES: u64 = 1000;
/// The most lines of context on either side.
pub(crate) const MAX_CONTEXT_LINES: u64 = 3;
/// A search ends then, with what it has found.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(30);

pub(crate) const TOOL: Tool = Tool {
    name: "search_text",
    description: "Searches text files for a literal text or, with mode `regex`, for a regular expression, line by \
                  line, and tells the first matches in path order. Narrow with path, includeGlob and excludeGlob. Without \
                  file:read only mode `literal` is taken, and each file that holds the text is told once, by its path.",
    is_expensive: true,
    permissions: &[Permission::FileSearch],
    content: &["snippet", "before", "after"],
    input: ToolSchema::of::<SearchTextInput>,
    output: ToolSchema::of::<SearchTextOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(SearchText::try_from(parse::<SearchTextInput>(members)?)?))),
};

/// What `search_text` takes.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"query": "fn main", "includeGlob": ["**/*.rs"], "maxMatches": 20}))]
pub(crate) struct SearchTextInput {
    /// What to search for, within one line.
    query: String,
    /// How the query is read; `regex` needs the permission `file:read` too.
    #[serde(default)]
    #[schema(inline)]
    mode: SearchMode,
    /// The file or folder to search in.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
    /// Only files that match one of these.
    #[serde(default)]
    include_glob: Vec<String>,
    /// No files that match one of these.
    #[serde(default)]
    exclude_glob: Vec<String>,
    /// Whether letter case counts.
    #[serde(default = "yes")]
    #[schema(default = true)]
    case_sensitive: bool,
    /// Whether only whole words match.
    #[serde(default)]
    whole_word: bool,
    /// At most so many matching lines. Taken as 1,000 where it is more.
    #[serde(default = "one_hundred")]
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    max_matches: u64,
    /// Lines told before and after each match. Taken as 3 where it is more.
    #[serde(default)]
    #[schema(maximum = 3)]
    context_lines: u64,
}

fn yes() -> bool {
    true
}

fn one_hundred() -> u64 {
    100
}

/// What `search_text` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchTextOutput<'a> {
    /// The query.
    query: &'a str,
    /// Matching lines, in path order.
    matches: &'a [Match],
    /// How many files were looked into.
    files_searched: u64,
    /// Whether matches are missing.
    truncated: bool,
    /// Why: `maxMatches`, `maxBytes`, or `maxTime` where the search was ended after 30 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_reason: Option<&'a str>,
    /// Files that could not be searched, at most 20.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    skipped: &'a [String],
}

struct SearchText(SearchQuery);

impl TryFrom<SearchTextInput> for SearchText {
    type Error = Refusal;

    fn try_from(input: SearchTextInput) -> Result<Self, Refusal> {
        if input.query.is_empty() || input.query.len() > MAX_QUERY_BYTES {
            let message = format!("`query` has {} bytes; it takes 1 to {MAX_QUERY_BYTES}", input.query.len());
            return Err(Refusal::invalid(message, "Search for a short, telling text.").with_details(|details| {
                (details.limit, details.actual) = (Some(MAX_QUERY_BYTES as u64), Some(input.query.len() as u64));
            }));
        }
        if input.query.contains('\0') {
            return Err(Refusal::invalid("`query` holds a NUL, which no text file does", "Search for text."));
        }
        if input.include_glob.len().max(input.exclude_glob.len()) > MAX_GLOBS {
            let message = format!("at most {MAX_GLOBS} globs of a kind are taken");
            return Err(Refusal::invalid(message, "Use fewer, wider globs."));
        }
        let max_matches = bounded("maxMatches", input.max_matches, 1, MAX_MATCHES)?;
        Ok(Self(SearchQuery {
            path: any_path(&input.path)?,
            query: input.query,
            mode: input.mode,
            include_glob: input.include_glob,
            exclude_glob: input.exclude_glob,
            case_sensitive: input.case_sensitive,
            whole_word: input.whole_word,
            max_matches: usize::try_from(max_matches).unwrap_or(usize::MAX),
            context_lines: usize::try_from(input.context_lines.min(MAX_CONTEXT_LINES)).unwrap_or(usize::MAX),
            paths_only: false,
            max_time: MAX_TIME,
        }))
    }
}

impl ReadTool for SearchText {
    /// An expression halves what a line may be with every search, and so does the place of a match: who may not read searches
    /// for a text that it knows, and gets the paths of the files that hold it.
    fn restrict_to_metadata(&mut self) -> Result<(), Refusal> {
        if self.0.mode == SearchMode::Regex {
            return Err(forbidden(&[Permission::FileRead]));
        }
        self.0.paths_only = true;
        Ok(())
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let report = context.tree.search(context.rules, &self.0, context.cancel)?;
        let told: BTreeSet<&str> = report.matches.iter().map(|found| found.path.as_str()).collect();
        let mut paths_read = vec![self.0.path.clone()];
        paths_read
            .extend(told.iter().filter_map(|path| LogicalPath::parse(path).ok()).filter(|path| *path != self.0.path));
        let output = SearchTextOutput {
            query: &self.0.query,
            matches: &report.matches,
            files_searched: report.files_searched,
            truncated: report.truncated_reason.is_some(),
            truncated_reason: report.truncated_reason.as_deref(),
            skipped: &report.skipped,
        };
        ReadOutput::new(&output, paths_read)
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.0.path.clone()]
    }
}
