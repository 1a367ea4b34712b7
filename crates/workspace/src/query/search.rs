//! Text search, with ripgrep's regex engine.

mod matches;
mod pattern;
mod scan;
mod snippet;
#[cfg(test)]
mod tests;
mod visitor;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use model::{Access, FileKind, LogicalPath, Rules};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::guard::{Blocking, GuardError};
use crate::query::globs::QueryGlobs;
use crate::query::not_shown::NotShown;
use crate::walk::{WalkPath, WalkRoot, walk};
use crate::{Tree, WorkspaceError};
use pattern::{Pattern, SearchLimits};
use visitor::{ReportBuilder, SearchVisitor};

/// How a query is interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchMode {
    /// As literal text.
    #[default]
    Literal,
    /// As a regular expression in the syntax of the `regex` crate.
    Regex,
}

/// A query. Every number is within its bounds already.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the input of search_text documents each field")]
#[expect(clippy::struct_excessive_bools, reason = "the options are independent")]
pub struct SearchQuery {
    pub query: String,
    pub mode: SearchMode,
    pub path: LogicalPath,
    pub include_glob: Vec<String>,
    pub exclude_glob: Vec<String>,
    pub file_type: Option<String>,
    pub case_sensitive: bool,
    pub whole_word: bool,
    pub multiline: bool,
    pub max_matches: usize,
    pub context_lines: usize,
    /// Whether to return only the first match of a file, without its position.
    pub paths_only: bool,
    /// Whether to return only the first match of a file.
    pub one_per_file: bool,
    /// Return only matches after this line of this file.
    pub after: Option<(LogicalPath, u64)>,
    pub max_time: Duration,
}

/// The result of a search.
#[derive(Debug)]
pub struct SearchReport {
    /// Sorted by path, then by line.
    pub matches: Vec<Match>,
    /// The number of files that were searched.
    pub files_searched: u64,
    /// Why matches are missing, if some are: `maxMatches`, `maxBytes`, `maxTime`.
    pub truncated_reason: Option<String>,
    /// Files that were not searched, at most 20, each with the reason.
    pub skipped: Vec<String>,
    /// The other entries that were not searched, as far as the search went.
    pub not_shown: NotShown,
}

/// A matching line, or the lines of a match that spans several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The file's path.
    pub path: String,
    /// The line, from 1. Missing for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub line: u64,
    /// The last line, if the match spans several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_line: Option<u64>,
    /// The first match's character in the line, from 1. Missing for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub column: u64,
    /// The line, cut to 400 characters around the match. Of several lines those in the first 4,096 bytes; then its last line is `…`.
    pub snippet: String,
    /// The lines before it.
    pub before: Vec<String>,
    /// The lines after it.
    pub after: Vec<String>,
    /// The file's kind.
    pub kind: FileKind,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_unknown(position: &u64) -> bool {
    *position == 0
}

impl Tree {
    /// Searches every readable text file under a path. The same query on the same tree returns the same result.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an invalid expression or glob; `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`,
    /// `NOT_FOUND`, `FILE_TOO_LARGE`, `UNSUPPORTED_BINARY` for the path; `Cancelled` once `cancel` is set.
    pub fn search(
        &self,
        rules: &Rules,
        query: &SearchQuery,
        cancel: &AtomicBool,
    ) -> Result<SearchReport, WorkspaceError> {
        let pattern = Pattern::compile(query)?;
        let globs = QueryGlobs::compile(&query.path, &query.include_glob, &query.exclude_glob)?;
        let globs = globs.of_type(query.file_type.as_deref())?;
        let limits = SearchLimits { deadline: Instant::now() + query.max_time, cancel };
        let visitor = SearchVisitor { tree: self, rules, query, pattern: &pattern, globs: &globs, limits };
        let path = &query.path;
        match self.root.open(path, Blocking::Allowed) {
            Ok(opened) if opened.file_type() == FileType::Directory => {
                self.judge(rules, Access::Search, path, Some(&opened), FileKind::Directory, Blocking::Allowed)?;
                let root = WalkRoot::of(self, opened, path)?;
                Ok(walk(self, &visitor, root, ReportBuilder::default(), cancel)?.finish())
            }
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => Err(error.at(path)),
            // A file, or nothing: policy is checked before the caller learns which.
            _ => {
                let admitted = self.admit(rules, Access::Search, path, Blocking::Allowed)?;
                let at = WalkPath { shown: path.clone(), real: admitted.opened.real.clone() };
                visitor.search_file(&admitted.opened, &at, admitted.kind)
            }
        }
    }
}
