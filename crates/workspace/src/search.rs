//! Text search with ripgrep's own crates, in process.

use std::sync::atomic::AtomicBool;

use model::{FileKind, LogicalPath, Rules};
use serde::{Deserialize, Serialize};

use crate::{Fault, Tree};

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
}

/// What was found.
#[derive(Debug)]
pub struct SearchReport {
    /// In path order, then by line.
    pub matches: Vec<Match>,
    /// How many files were looked into.
    pub files_searched: u64,
    /// Why matches are missing, if some are: `maxMatches`, `maxBytes`.
    pub truncated_reason: Option<String>,
    /// Files too large or unreadable, at most 20, for a warning.
    pub skipped: Vec<String>,
}

/// One matching line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// The first match's character in the line, from 1.
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

impl Tree {
    /// Searches every readable text file under a path; the same query on the same tree gives the same answer.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for a bad expression or glob; `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`,
    /// `NOT_FOUND` for the path; `Cancelled` once `cancel` is set.
    pub fn search(&self, _rules: &Rules, _query: &SearchQuery, _cancel: &AtomicBool) -> Result<SearchReport, Fault> {
        unimplemented!()
    }
}
