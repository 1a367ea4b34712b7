//! The visitor of a search: which files are searched, and how their matches are collected.

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};

use super::matches::{MAX_BYTES, size_of};
use super::pattern::{Pattern, SearchLimits, Stopped};
use super::scan::{ScannedFile, Scanner};
use super::{Match, SearchQuery, SearchReport};
use crate::error::{file_too_large, unsupported_binary};
use crate::guard::{GuardError, Opened, TreeFolder};
use crate::opened_file::head_of;
use crate::query::globs::QueryGlobs;
use crate::query::list::has_contents_after;
use crate::query::not_shown::{LeftOut, NotShown};
use crate::query::stat::RANGED_READ_FACTOR;
use crate::walk::{Admission, Candidate, Visitor, WalkPath};
use crate::{Tree, WorkspaceError, opened_file};

/// How many files that were not searched are named.
const MAX_SKIPPED: usize = 20;

pub(super) struct SearchVisitor<'a> {
    pub(super) tree: &'a Tree,
    pub(super) rules: &'a Rules,
    pub(super) query: &'a SearchQuery,
    pub(super) pattern: &'a Pattern,
    pub(super) globs: &'a QueryGlobs,
    pub(super) limits: SearchLimits<'a>,
}

/// A report under construction.
#[derive(Default)]
pub(super) struct ReportBuilder {
    matches: Vec<Match>,
    bytes: usize,
    files_searched: u64,
    skipped: Vec<String>,
    not_shown: NotShown,
    /// Why no more matches are added.
    truncated_reason: Option<&'static str>,
}

impl SearchVisitor<'_> {
    /// Searches one open file. Files that the search of a folder skips are refused here, since the caller has named the file.
    ///
    /// # Errors
    ///
    /// `FILE_TOO_LARGE`, `UNSUPPORTED_BINARY`.
    pub(super) fn search_file(
        &self,
        opened: &Opened,
        at: &WalkPath,
        kind: FileKind,
    ) -> Result<SearchReport, WorkspaceError> {
        let max_bytes = self.max_bytes();
        if opened.size() > max_bytes {
            return Err(file_too_large(&at.shown, max_bytes, opened.size()).into());
        }
        let head = head_of(opened)?;
        self.tree.judge_content(self.rules, Access::Search, &at.shown, opened)?;
        if opened_file::is_binary(opened_file::kind_of(self.rules, at.real(), &head), &head) {
            return Err(unsupported_binary(&at.shown).into());
        }
        let mut report = ReportBuilder::default();
        let scanned = self.worker().scan(opened, at, kind)?;
        if matches!(scanned, ScannedFile::NotText | ScannedFile::Hidden) {
            return Err(unsupported_binary(&at.shown).into());
        }
        self.collect(&mut report, scanned);
        Ok(report.finish())
    }

    /// Returns the size of the largest file that is searched.
    fn max_bytes(&self) -> u64 {
        self.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR)
    }
}

impl Visitor for SearchVisitor<'_> {
    type Worker<'a>
        = Scanner<'a>
    where
        Self: 'a;
    type Finding = ScannedFile;
    type Outcome = ReportBuilder;

    fn rules(&self) -> &Rules {
        self.rules
    }

    fn worker(&self) -> Scanner<'_> {
        let Self { rules, query, pattern, limits, .. } = *self;
        Scanner { rules, query, pattern, limits, max_bytes: self.max_bytes(), buffer: Vec::new(), cache: None }
    }

    fn is_requested(&self, path: &LogicalPath, is_folder: bool) -> bool {
        let is_after =
            self.query.after.as_ref().is_none_or(|(after, _)| {
                path >= after || is_folder && has_contents_after(path.as_str(), after.as_str())
            });
        is_after && !self.globs.is_excluded(path, is_folder)
    }

    fn admit(&self, candidate: &Candidate) -> Admission<ScannedFile> {
        let Candidate { at, kind, ignored, .. } = candidate;
        // Hard links are detected once the file is open.
        let (path, real_path) = (&at.shown, at.real.as_ref());
        let allows = |ignored: bool| {
            let facts = PathFacts { path, real_path, kind: *kind, ignored, hard_linked: false };
            model::judge_path(self.rules, Access::Search, &facts).is_ok()
        };
        if allows(*ignored) {
            Admission::Visit
        } else if *ignored && allows(false) {
            // Nothing else hides it, so that the caller may know of it.
            Admission::Report(ScannedFile::LeftOut(LeftOut::Ignored))
        } else {
            Admission::Skip
        }
    }

    fn too_long(&self) -> ScannedFile {
        ScannedFile::LeftOut(LeftOut::TooLong)
    }

    fn visit(
        &self,
        scanner: &mut Scanner<'_>,
        dir: Option<&TreeFolder>,
        candidate: Candidate,
    ) -> Result<ScannedFile, WorkspaceError> {
        let opened = match dir {
            Some(dir) => self.tree.root.open_entry(dir, &candidate.name),
            None => Err(GuardError::Missing),
        };
        match opened {
            Ok(opened) => scanner.scan(&opened, &candidate.at, candidate.kind),
            Err(error) => {
                // It was removed or replaced meanwhile.
                error.unless_disk()?;
                Ok(ScannedFile::Hidden)
            }
        }
    }

    fn interruption(&self) -> Option<ScannedFile> {
        matches!(self.limits.check(), Err(Stopped::Time)).then_some(ScannedFile::OutOfTime)
    }

    fn collect(&self, report: &mut ReportBuilder, scanned: ScannedFile) -> bool {
        match scanned {
            ScannedFile::Hidden => {}
            ScannedFile::NotText => report.not_shown.add(LeftOut::Binary),
            ScannedFile::LeftOut(reason) => report.not_shown.add(reason),
            ScannedFile::OutOfTime => report.truncated_reason = Some("maxTime"),
            ScannedFile::Skipped(note) => {
                if report.skipped.len() < MAX_SKIPPED {
                    report.skipped.push(note);
                } else {
                    report.not_shown.more_skipped += 1;
                }
            }
            ScannedFile::Searched(matches) => {
                report.files_searched += 1;
                for mut found in matches {
                    if self.query.paths_only {
                        (found.line, found.column, found.end_line) = (0, 0, None);
                    }
                    report.bytes += size_of(&found);
                    if report.matches.len() == self.query.max_matches {
                        report.truncated_reason = Some("maxMatches");
                        break;
                    }
                    if report.bytes > MAX_BYTES {
                        report.truncated_reason = Some("maxBytes");
                        break;
                    }
                    report.matches.push(found);
                }
            }
        }
        report.truncated_reason.is_some()
    }
}

impl ReportBuilder {
    pub(super) fn finish(self) -> SearchReport {
        let Self { matches, files_searched, skipped, not_shown, truncated_reason, .. } = self;
        let truncated_reason = truncated_reason.map(str::to_owned);
        SearchReport { matches, files_searched, truncated_reason, skipped, not_shown }
    }
}
