//! A search as a survey: what is searched, and what of it is told.

use std::os::fd::BorrowedFd;

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};

use super::pattern::{Bounded, Pattern, Until};
use super::scan::{Scanned, Scanner};
use super::{Match, SearchQuery, SearchReport};
use crate::error::{file_too_large, unsupported_binary};
use crate::globs::Globs;
use crate::guard::{GuardError, Opened};
use crate::stat::{RANGED_READ_FACTOR, head_of};
use crate::survey::{Candidate, Visitor};
use crate::walk::WalkPath;
use crate::{Tree, WorkspaceError, read};

/// Matches stop at so many bytes of text, and the answer stays below about twice as much as JSON.
const MAX_BYTES: usize = 256 * 1024;
/// So many files are named that were not searched.
const MAX_SKIPPED: usize = 20;

/// What a search works with.
pub(super) struct SearchVisitor<'a> {
    pub(super) tree: &'a Tree,
    pub(super) rules: &'a Rules,
    pub(super) query: &'a SearchQuery,
    pub(super) pattern: &'a Pattern,
    pub(super) globs: &'a Globs,
    pub(super) until: Until<'a>,
}

/// The answer in the making.
#[derive(Default)]
pub(super) struct Gathered {
    matches: Vec<Match>,
    bytes: usize,
    files_searched: u64,
    skipped: Vec<String>,
    /// Why no more is taken.
    cut: Option<&'static str>,
}

impl SearchVisitor<'_> {
    /// Searches the one file that is open. What a folder's search leaves out is refused here: the caller has asked for it.
    ///
    /// # Errors
    ///
    /// `FILE_TOO_LARGE`, `UNSUPPORTED_BINARY`.
    pub(super) fn file(&self, opened: &Opened, at: &WalkPath, kind: FileKind) -> Result<SearchReport, WorkspaceError> {
        let max_bytes = self.max_bytes();
        if opened.size() > max_bytes {
            return Err(file_too_large(&at.shown, max_bytes, opened.size()).into());
        }
        let head = head_of(opened)?;
        if read::is_binary(read::kind_of(self.rules, at.real(), &head), &head) {
            return Err(unsupported_binary(&at.shown).into());
        }
        let mut gathered = Gathered::default();
        let scanned = self.worker().scan(opened, at, kind)?;
        if matches!(scanned, Scanned::Passed) {
            return Err(unsupported_binary(&at.shown).into());
        }
        self.take(&mut gathered, scanned);
        Ok(gathered.into_report())
    }

    /// The largest file that is searched.
    fn max_bytes(&self) -> u64 {
        self.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR)
    }
}

impl Visitor for SearchVisitor<'_> {
    type Worker<'a>
        = Scanner<'a>
    where
        Self: 'a;
    type Finding = Scanned;
    type Outcome = Gathered;

    fn rules(&self) -> &Rules {
        self.rules
    }

    fn worker(&self) -> Scanner<'_> {
        // One more than is shown tells whether some are missing.
        let max_matches = if self.query.paths_only { 1 } else { self.query.max_matches + 1 };
        let pattern = Bounded::new(self.pattern, self.until);
        Scanner::new(self.rules, pattern, self.query.context_lines, max_matches, self.max_bytes())
    }

    fn is_asked_for(&self, path: &LogicalPath, is_folder: bool) -> bool {
        !self.globs.leave_out(path, is_folder)
    }

    fn admits(&self, candidate: &Candidate) -> bool {
        let Candidate { at, kind, ignored, .. } = candidate;
        // Further names are looked for once the file is open.
        let (path, real_path) = (&at.shown, at.real.as_ref());
        let facts = PathFacts { path, real_path, kind: *kind, ignored: *ignored, hard_linked: false };
        model::judge_path(self.rules, Access::Search, &facts).is_ok()
    }

    fn look(
        &self,
        scanner: &mut Scanner<'_>,
        dir: Option<BorrowedFd<'_>>,
        candidate: Candidate,
    ) -> Result<Scanned, WorkspaceError> {
        let opened = match dir {
            Some(dir) => self.tree.root.open_entry(dir, &candidate.name).map_err(GuardError::from),
            None => Err(GuardError::Missing),
        };
        match opened.and_then(Opened::of) {
            Ok(opened) => scanner.scan(&opened, &candidate.at, candidate.kind),
            Err(error) => {
                // It was a file a moment ago.
                error.unless_disk()?;
                Ok(Scanned::Passed)
            }
        }
    }

    fn take(&self, gathered: &mut Gathered, scanned: Scanned) -> bool {
        match scanned {
            Scanned::Passed => {}
            Scanned::OutOfTime => {
                gathered.cut = Some("maxTime");
                return true;
            }
            Scanned::Skipped(note) => {
                if gathered.skipped.len() < MAX_SKIPPED {
                    gathered.skipped.push(note);
                }
            }
            Scanned::Searched(matches) => {
                gathered.files_searched += 1;
                for mut found in matches {
                    if self.query.paths_only {
                        (found.line, found.column) = (0, 0);
                    }
                    gathered.bytes += size_of(&found);
                    if gathered.matches.len() == self.query.max_matches {
                        gathered.cut = Some("maxMatches");
                        return true;
                    }
                    if gathered.bytes > MAX_BYTES {
                        gathered.cut = Some("maxBytes");
                        return true;
                    }
                    gathered.matches.push(found);
                }
            }
        }
        false
    }
}

impl Gathered {
    pub(super) fn into_report(self) -> SearchReport {
        let Self { matches, files_searched, skipped, cut, .. } = self;
        SearchReport { matches, files_searched, truncated_reason: cut.map(str::to_owned), skipped }
    }
}

/// About the bytes that a match takes in an answer.
fn size_of(found: &Match) -> usize {
    let lines = found.before.iter().chain(&found.after).map(|line| line.len() + 4);
    found.path.len() + found.snippet.len() + lines.sum::<usize>() + 100
}
