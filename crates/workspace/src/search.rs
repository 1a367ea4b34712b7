//! Text search with ripgrep's own crates, in process.

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

use crate::globs::Globs;
use crate::guard::{Blocking, GuardError};
use crate::survey::{WalkRoot, survey};
use crate::walk::WalkPath;
use crate::{Tree, WorkspaceError};
use pattern::{Pattern, Until};
use visitor::{Gathered, SearchVisitor};

/// How a query is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchMode {
    /// As the text itself.
    #[default]
    Literal,
    /// As a regular expression of the `regex` crate.
    Regex,
}

/// What to search for. Every number is within its bounds already.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the contract's row of search_text says what each means")]
pub struct SearchQuery {
    pub query: String,
    pub mode: SearchMode,
    pub path: LogicalPath,
    pub include_glob: Vec<String>,
    pub exclude_glob: Vec<String>,
    pub case_sensitive: bool,
    pub whole_word: bool,
    pub max_matches: usize,
    pub context_lines: usize,
    /// Whether only the first match of a file is told, and not where in the file it is.
    pub paths_only: bool,
    pub max_time: Duration,
}

/// What was found.
#[derive(Debug)]
pub struct SearchReport {
    /// In path order, then by line.
    pub matches: Vec<Match>,
    /// How many files were looked into.
    pub files_searched: u64,
    /// Why matches are missing, if some are: `maxMatches`, `maxBytes`, `maxTime`.
    pub truncated_reason: Option<String>,
    /// Files that were not searched, at most 20, each with the reason, for a warning.
    pub skipped: Vec<String>,
}

/// One matching line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The file.
    pub path: String,
    /// The line, from 1. Missing for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "is_untold")]
    pub line: u64,
    /// The first match's character in the line, from 1. Missing for a caller without `file:read`.
    #[serde(default, skip_serializing_if = "is_untold")]
    pub column: u64,
    /// The line, cut to 400 characters around the match.
    pub snippet: String,
    /// Lines before it.
    pub before: Vec<String>,
    /// Lines after it.
    pub after: Vec<String>,
    /// The file's kind.
    pub kind: FileKind,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_untold(place: &u64) -> bool {
    *place == 0
}

impl Tree {
    /// Searches every readable text file under a path; the same query on the same tree gives the same answer.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a bad expression or glob; `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`,
    /// `NOT_FOUND`, `FILE_TOO_LARGE`, `UNSUPPORTED_BINARY` for the path; `Cancelled` once `cancel` is set.
    pub fn search(
        &self,
        rules: &Rules,
        query: &SearchQuery,
        cancel: &AtomicBool,
    ) -> Result<SearchReport, WorkspaceError> {
        let pattern = Pattern::compile(query)?;
        let globs = Globs::compile(&query.include_glob, &query.exclude_glob)?;
        let until = Until { deadline: Instant::now() + query.max_time, cancel };
        let visitor = SearchVisitor { tree: self, rules, query, pattern: &pattern, globs: &globs, until };
        let path = &query.path;
        match self.root.open(path, Blocking::Allowed) {
            Ok(opened) if opened.file_type() == FileType::Directory => {
                self.judge(rules, Access::Search, path, Some(&opened), FileKind::Directory, Blocking::Allowed)?;
                let root = WalkRoot::of(self, opened, path)?;
                Ok(survey(self, &visitor, root, Gathered::default(), cancel)?.into_report())
            }
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => Err(error.at(path)),
            // A file, or nothing: policy is asked before either is told.
            _ => {
                let admitted = self.admit(rules, Access::Search, path, Blocking::Allowed)?;
                let at = WalkPath { shown: path.clone(), real: admitted.opened.real.clone() };
                visitor.file(&admitted.opened, &at, admitted.kind)
            }
        }
    }
}
