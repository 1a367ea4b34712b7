//! `search_text`: finds lines with a text or a match of a regular expression.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use model::{LogicalPath, Permission, Refusal, Rules};
use serde::{Deserialize, Serialize};
use workspace::{Match, NotShown, SearchMode, SearchQuery, SearchReport, WorkspaceError};

use crate::call_error::refusals::forbidden;
use crate::tool::cursor::{ListedQuery, bad_cursor};
use crate::tool::input::{any_path, bounded, max_chars, mistaken_globs, parse, root};
use crate::tool::output::{ReadOutput, is_zero};
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};
use crate::tools::text;

/// The maximum length of the query, in bytes.
pub(crate) const MAX_QUERY_BYTES: usize = 4096;
/// The maximum number of include globs, and of exclude globs.
pub(crate) const MAX_GLOBS: usize = 100;

/// The maximum number of returned matches.
pub(crate) const MAX_MATCHES: u64 = 1000;
/// The maximum number of context lines before and after a match.
pub(crate) const MAX_CONTEXT_LINES: u64 = 3;
/// The time after which a search ends and returns the matches found so far.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(30);

/// The maximum number of globs that a note names.
const MAX_SHOWN_GLOBS: usize = 3;

pub(crate) const TOOL: Tool = Tool {
    name: "search_text",
    description: "Searches text files line by line for a literal text or, with mode `regex`, a regular expression. \
                  Returns the first matches in path order.",
    is_expensive: true,
    permissions: &[Permission::FileSearch],
    content: &["snippet", "before", "after"],
    input: ToolSchema::of::<SearchTextInput>,
    output: ToolSchema::of::<SearchTextOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(SearchText::try_from(parse::<SearchTextInput>(members)?)?))),
};

/// The input of `search_text`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the options are independent")]
#[schema(example = json!({"query": "fn main", "includeGlob": ["**/*.rs"], "maxMatches": 20}))]
pub(crate) struct SearchTextInput {
    /// The text or expression to search for.
    query: String,
    /// `regex` needs the permission `file:read`.
    #[serde(default)]
    #[schema(inline)]
    mode: SearchMode,
    /// The file or folder to search.
    #[serde(default = "root")]
    #[schema(default = ".")]
    path: String,
    /// Search only files that match any.
    #[serde(default)]
    include_glob: Vec<String>,
    /// Skip files that match any.
    #[serde(default)]
    exclude_glob: Vec<String>,
    /// Search only files of this type, as ripgrep names it: `rust`, `ts`, `py` and others.
    #[serde(default)]
    file_type: Option<String>,
    /// Match case.
    #[serde(default = "yes")]
    #[schema(default = true)]
    case_sensitive: bool,
    /// Match whole words only.
    #[serde(default)]
    whole_word: bool,
    /// Let a match span lines, and `.` match line endings.
    #[serde(default)]
    multiline: bool,
    /// At most 1,000.
    #[serde(default = "one_hundred")]
    #[schema(minimum = 1, default = 100)]
    max_matches: u64,
    /// Lines around each match, at most 3.
    #[serde(default)]
    context_lines: u64,
    /// Return only the first match of each file.
    #[serde(default)]
    one_per_file: bool,
    /// Matches to skip.
    #[serde(default)]
    skip: u64,
    /// The maximum length of the matches as text, in characters.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
    /// `nextCursor` of the last answer.
    #[serde(default)]
    cursor: Option<String>,
}

fn yes() -> bool {
    true
}

fn one_hundred() -> u64 {
    100
}

/// The output of `search_text`.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchTextOutput {
    /// The query.
    pub(crate) query: String,
    /// The matching lines, in path order. Without `file:read`, each matching file once, by its path.
    pub matches: Vec<Match>,
    /// Number of searched files.
    pub(crate) files_searched: u64,
    /// Whether matches are omitted.
    pub(crate) truncated: bool,
    /// The number of matches that `skip` has left out. Omitted if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub matches_skipped: u64,
    /// Why matches are omitted: `maxMatches`, `maxChars`, `maxBytes`, or `maxTime` if the search was ended after 30 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_reason: Option<String>,
    /// The `cursor` to continue with, if there are matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
    /// The files that could not be searched, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The other entries that were not searched, as far as the search went.
    #[serde(default, skip_serializing_if = "NotShown::is_empty")]
    #[schema(required = false)]
    pub not_shown: NotShown,
    /// If there is no match: what may be the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub notes: Vec<String>,
}

struct SearchText {
    query: SearchQuery,
    /// Matches to skip.
    skip: u64,
    max_chars: Option<usize>,
}

impl TryFrom<SearchTextInput> for SearchText {
    type Error = Refusal;

    fn try_from(input: SearchTextInput) -> Result<Self, Refusal> {
        if input.query.is_empty() || input.query.len() > MAX_QUERY_BYTES {
            let message = format!("`query` has {} bytes; it takes 1 to {MAX_QUERY_BYTES}", input.query.len());
            let hint = if input.query.is_empty() {
                "Give a text that the lines contain. find_files lists files by their names."
            } else {
                "Search for a shorter, specific text."
            };
            return Err(Refusal::invalid(message, hint).with_details(|details| {
                (details.limit, details.actual) = (Some(MAX_QUERY_BYTES as u64), Some(input.query.len() as u64));
            }));
        }
        if input.query.contains('\0') {
            return Err(Refusal::invalid(
                "`query` has a NUL, which occurs in no text file",
                "Remove the NUL from `query`.",
            ));
        }
        if input.include_glob.len().max(input.exclude_glob.len()) > MAX_GLOBS {
            let message = format!("`includeGlob` and `excludeGlob` take at most {MAX_GLOBS} globs each");
            return Err(Refusal::invalid(message, "Use fewer, wider globs."));
        }
        let max_matches = bounded("maxMatches", input.max_matches, 1, MAX_MATCHES)?;
        let mut query = SearchQuery {
            path: any_path(&input.path)?,
            query: input.query,
            mode: input.mode,
            include_glob: input.include_glob,
            exclude_glob: input.exclude_glob,
            file_type: input.file_type,
            case_sensitive: input.case_sensitive,
            whole_word: input.whole_word,
            multiline: input.multiline,
            max_matches: usize::try_from(max_matches).unwrap_or(usize::MAX),
            context_lines: usize::try_from(input.context_lines.min(MAX_CONTEXT_LINES)).unwrap_or(usize::MAX),
            paths_only: false,
            one_per_file: input.one_per_file,
            after: None,
            max_time: MAX_TIME,
        };
        if let Some(cursor) = &input.cursor {
            query.after = Some(position_of(listed(&query).position(cursor)?)?);
        }
        Ok(Self { query, skip: input.skip, max_chars: max_chars(input.max_chars)? })
    }
}

/// The members of a query that its cursors belong to.
fn listed(searched: &SearchQuery) -> ListedQuery {
    let SearchQuery { query, mode, path, include_glob, exclude_glob, file_type, .. } = searched;
    let words = (searched.case_sensitive, searched.whole_word, searched.multiline, searched.one_per_file);
    ListedQuery::of(&("search_text", query, mode, path, include_glob, exclude_glob, file_type, words))
}

fn cursor_of(query: &SearchQuery, last: &Match) -> String {
    listed(query).cursor(&format!("{}:{}", line_after(query, last), last.path))
}

/// Returns the line after which a search continues.
fn line_after(query: &SearchQuery, last: &Match) -> u64 {
    // Where in the file the match is must not be disclosed: a search for paths continues with the next file.
    if query.paths_only || query.one_per_file { u64::MAX } else { last.line }
}

fn position_of(text: &str) -> Result<(LogicalPath, u64), Refusal> {
    let position =
        text.split_once(':').and_then(|(line, path)| Some((LogicalPath::parse(path).ok()?, line.parse().ok()?)));
    position.ok_or_else(bad_cursor)
}

impl SearchText {
    /// Searches, and leaves out the first matches. Returns how many were left out.
    fn search(&self, context: &ReadContext<'_>) -> Result<(SearchReport, u64), WorkspaceError> {
        let started = Instant::now();
        let mut query = Cow::Borrowed(&self.query);
        if self.skip > 0 {
            query.to_mut().max_matches = usize::try_from(MAX_MATCHES).unwrap_or(usize::MAX);
        }
        let mut skipped = 0;
        loop {
            let mut report = context.tree.search(context.rules, &query, context.cancel)?;
            let most = usize::try_from(self.skip - skipped).unwrap_or(usize::MAX);
            let is_cut = matches!(report.truncated_reason.as_deref(), Some("maxMatches" | "maxBytes"));
            let next = report.matches.last().map(|last| (last.path.clone(), line_after(&self.query, last)));
            if let (true, Some((path, line))) = (is_cut && report.matches.len() <= most, next) {
                skipped += report.matches.len() as u64;
                let query = query.to_mut();
                query.after = Some((LogicalPath::parse(&path).map_err(|rule| Refusal::path(&path, rule))?, line));
                query.max_time = MAX_TIME.saturating_sub(started.elapsed());
                continue;
            }
            let last = report.matches.len().min(most);
            skipped += report.matches.drain(..last).count() as u64;
            if report.matches.len() > self.query.max_matches {
                report.matches.truncate(self.query.max_matches);
                report.truncated_reason = Some("maxMatches".to_owned());
            }
            return Ok((report, skipped));
        }
    }
}

/// Returns what may be the reason that nothing was found.
fn notes(rules: &Rules, query: &SearchQuery, report: &SearchReport) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.matches.is_empty() || report.truncated_reason.is_some() || query.after.is_some() {
        return notes;
    }
    if report.files_searched == 0 {
        // A file that is left out may have matched.
        let no_path = (report.not_shown.is_empty() && !query.include_glob.is_empty() && query.file_type.is_none())
            .then(|| {
                let shown: Vec<_> = query.include_glob.iter().take(MAX_SHOWN_GLOBS).map(String::as_str).collect();
                let more = if query.include_glob.len() > MAX_SHOWN_GLOBS { " or the others" } else { "" };
                format!(": no path matches {}{more}", shown.join(", "))
            });
        notes.push(format!("0 files searched{}", no_path.unwrap_or_default()));
    }
    notes.extend(mistaken_globs(rules, &query.include_glob));
    match query.mode {
        // Without the permission for expressions, the caller cannot use one.
        SearchMode::Literal if !query.paths_only && looks_like_expression(&query.query) => {
            notes.push("searched as literal text; mode=regex for expressions".to_owned());
        }
        SearchMode::Regex if query.query.contains("\\|") => {
            notes.push("in mode=regex, \\| is a literal bar; write | for alternatives".to_owned());
        }
        SearchMode::Literal | SearchMode::Regex => {}
    }
    notes
}

/// Whether a text is probably meant as a regular expression.
fn looks_like_expression(text: &str) -> bool {
    const SIGNS: [&str; 14] =
        [".*", ".+", ".?", "\\b", "\\w", "\\s", "\\d", "\\|", "\\(", "\\.", "\\[", "[^", "(?", "-z]"];
    let is_word = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace() && c != '|');
    let has_alternatives = text
        .match_indices('|')
        .any(|(at, bar)| is_word(text[..at].chars().next_back()) && is_word(text[at + bar.len()..].chars().next()));
    let is_anchored = text.len() > 1 && (text.starts_with('^') || text.ends_with('$'));
    is_anchored || has_alternatives || SIGNS.iter().any(|sign| text.contains(sign))
}

impl ReadTool for SearchText {
    /// Refuses regular expressions and restricts the output to paths: expressions and positions of matches would let a caller
    /// without `file:read` find out content that it does not know.
    fn restrict_to_metadata(&mut self) -> Result<(), Refusal> {
        if self.query.mode == SearchMode::Regex {
            return Err(forbidden(&[Permission::FileRead]));
        }
        self.query.paths_only = true;
        if let Some((_, line)) = &mut self.query.after {
            // A line would show whether a file has more matches.
            *line = u64::MAX;
        }
        Ok(())
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let query = &self.query;
        let (mut report, matches_skipped) = self.search(context)?;
        if let Some(most) = self.max_chars {
            let fit = text::search::fitting_matches(&report.matches, most);
            if fit < report.matches.len() {
                report.matches.truncate(fit);
                report.truncated_reason = Some("maxChars".to_owned());
            }
        }
        let matched: BTreeSet<&str> = report.matches.iter().map(|found| found.path.as_str()).collect();
        let mut paths_read = vec![query.path.clone()];
        paths_read
            .extend(matched.iter().filter_map(|path| LogicalPath::parse(path).ok()).filter(|path| *path != query.path));
        let is_cut = report.truncated_reason.is_some();
        let output = SearchTextOutput {
            query: query.query.clone(),
            notes: notes(context.rules, query, &report),
            next_cursor: report.matches.last().filter(|_| is_cut).map(|last| cursor_of(query, last)),
            matches: report.matches,
            files_searched: report.files_searched,
            truncated: is_cut,
            matches_skipped,
            truncated_reason: report.truncated_reason,
            skipped: report.skipped,
            not_shown: report.not_shown,
        };
        Ok(ReadOutput::new(output, paths_read))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.query.path.clone()]
    }
}
