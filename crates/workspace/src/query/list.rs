//! Listing a folder to a depth, sorted and bounded.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use model::{Access, FileKind, LogicalPath, PathRejected, Refusal, Rules};
use parking_lot::Mutex;
use rustix::fs::FileType;

use crate::error::not_a_directory;
use crate::guard::{Blocking, GuardError, Opened};
use crate::query::bounded_entries::{MAX_ENTRIES_BYTES, entry_bytes};
use crate::query::entry::FolderEntry;
use crate::query::not_shown::{LeftOut, NotShown};
use crate::walk::{Admission, Candidate, FolderSource, Visitor, WalkRoot, walk};
use crate::{Tree, WorkspaceError};

/// A query. Every number is within its bounds already.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// The folder.
    pub path: LogicalPath,
    /// The depth: 1 lists only the folder's own entries.
    pub max_depth: u32,
    /// Whether names that begin with `.` are shown.
    pub include_hidden: bool,
    /// Whether ignored, generated and vendored files are shown.
    pub include_ignored: bool,
    /// The maximum number of entries.
    pub max_entries: usize,
    /// List only entries after this path, in path order.
    pub after: Option<String>,
    /// Whether to count all entries if some are missing.
    pub counts_all: bool,
}

/// The largest number of entries that a list counts.
pub(crate) const MAX_COUNTED: u64 = 100_000;

/// The JSON size of an entry besides its path.
const ENTRY_OVERHEAD: usize = 128;

/// The entries that were found.
#[derive(Debug)]
pub struct Listing {
    /// The first entries by path, limited by `max_entries` and by the size of an answer.
    pub entries: Vec<FolderEntry>,
    /// Whether entries are missing at the end.
    pub truncated: bool,
    /// The number of all entries, those before [`ListQuery::after`] included. `None` if it was not requested, if nothing is
    /// missing, or if there are more than 100,000.
    pub total: Option<u64>,
    /// The entries that the listing leaves out in the folders that it has read, those before [`ListQuery::after`] not included unless
    /// all entries were counted.
    pub not_shown: NotShown,
}

/// Describes an entry of a folder; `None` if it does not exist any more.
type Describe<'a, F> = dyn Fn(&F, &Candidate) -> Result<Option<FolderEntry>, WorkspaceError> + Sync + 'a;

/// The visitor of a listing.
struct Lister<'a, F> {
    describe: &'a Describe<'a, F>,
    rules: &'a Rules,
    query: &'a ListQuery,
    skips_ignored: bool,
    skips_machine_made: bool,
    /// The entries that are left out in the folders that were read.
    not_shown: Mutex<NotShown>,
    /// Whether no more entries are described.
    is_full: AtomicBool,
    /// Whether entries are counted that are not described.
    is_counting: AtomicBool,
}

/// An entry that the walk has come to.
struct ListedEntry {
    /// Its description, unless it is only counted.
    entry: Option<FolderEntry>,
    /// Whether it is a folder whose contents are too deep.
    is_unopened: bool,
}

/// A listing under construction.
#[derive(Default)]
struct ListPage {
    entries: Vec<FolderEntry>,
    bytes: usize,
    truncated: bool,
    /// The number of all entries so far.
    total: u64,
    unopened_folders: u64,
}

impl Tree {
    /// Lists a folder. `.git` is never listed; an entry that cannot be read is listed with the reason.
    ///
    /// A generated, vendored or ignored folder shows its contents if it is requested itself.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_FOUND`, `NOT_A_DIRECTORY`; `Cancelled` once
    /// `cancel` is set.
    pub fn list(&self, rules: &Rules, query: &ListQuery, cancel: &AtomicBool) -> Result<Listing, WorkspaceError> {
        let root = WalkRoot::of(self, self.open_folder(rules, Access::Read, &query.path)?, &query.path)?;
        list(self, rules, query, root, &|folder, candidate| self.list_entry(rules, folder, candidate), cancel)
    }

    /// Opens the folder at `path`. Policy does not apply to a folder itself, unless it is in a submodule; for any other entry it is
    /// checked first.
    pub(crate) fn open_folder(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
    ) -> Result<Opened, WorkspaceError> {
        let found = match self.root.open(path, Blocking::Allowed) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            Ok(opened) if opened.file_type() == FileType::Directory => {
                return if rules.is_in_submodule(opened.real.as_ref().unwrap_or(path)) {
                    Err(Refusal::path(path.as_str(), PathRejected::Submodule).into())
                } else {
                    Ok(opened)
                };
            }
            found => found,
        };
        let opened = found.as_ref().ok();
        let kind = rules.kind_of_path(opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path));
        self.judge(rules, access, path, opened, kind, Blocking::Allowed)?;
        Err(match found {
            Ok(_) | Err(GuardError::Special) => not_a_directory(path).into(),
            Err(GuardError::NotADirectory) => Refusal::not_found(path).into(),
            Err(error) => error.at(path),
        })
    }
}

/// Lists the folder `root` of `source`.
pub(crate) fn list<S: FolderSource>(
    source: &S,
    rules: &Rules,
    query: &ListQuery,
    root: WalkRoot<S::Folder>,
    describe: &Describe<'_, S::Folder>,
    cancel: &AtomicBool,
) -> Result<Listing, WorkspaceError> {
    let lister = Lister {
        describe,
        rules,
        query,
        // A folder that is requested itself shows its contents.
        skips_ignored: !query.include_ignored && !root.is_ignored(),
        skips_machine_made: !query.include_ignored && !root.is_machine_made(rules),
        not_shown: Mutex::default(),
        is_full: AtomicBool::new(false),
        is_counting: AtomicBool::new(query.counts_all),
    };
    let page = walk(source, &lister, root, ListPage::default(), cancel)?;
    let ListPage { entries, truncated, total, unopened_folders, .. } = page;
    let is_total = query.counts_all && (truncated || query.after.is_some()) && total <= MAX_COUNTED;
    let not_shown = NotShown { unopened_folders, ..lister.not_shown.into_inner() };
    Ok(Listing { entries, truncated, total: is_total.then_some(total), not_shown })
}

impl<F> Lister<'_, F> {
    fn is_after(&self, path: &LogicalPath) -> bool {
        self.query.after.as_deref().is_none_or(|after| path.as_str() > after)
    }

    /// Returns why the entry is left out; `None` if it is not.
    fn left_out(&self, candidate: &Candidate) -> Option<LeftOut> {
        if !self.query.include_hidden && candidate.name.to_bytes().starts_with(b".") {
            return Some(LeftOut::Hidden);
        }
        let machine_made = self.skips_machine_made.then(|| LeftOut::machine_made(self.rules, candidate));
        machine_made.flatten().or_else(|| (self.skips_ignored && candidate.ignored).then_some(LeftOut::Ignored))
    }
}

impl<F: Sync> Visitor<F> for Lister<'_, F> {
    const WANTS_UNNAMEABLE: bool = true;

    type Worker<'a>
        = ()
    where
        Self: 'a;
    type Finding = Option<ListedEntry>;
    type Outcome = ListPage;

    fn rules(&self) -> &Rules {
        self.rules
    }

    fn worker(&self) {}

    fn threads(&self) -> usize {
        1
    }

    fn wants_type(&self, _file_type: FileType) -> bool {
        true
    }

    fn is_requested(&self, path: &LogicalPath, is_folder: bool) -> bool {
        let is_before =
            |after: &str| path.as_str() <= after && !(is_folder && has_contents_after(path.as_str(), after));
        self.is_counting.load(Ordering::Relaxed) || !self.query.after.as_deref().is_some_and(is_before)
    }

    fn admit(&self, candidate: &Candidate) -> Admission<Option<ListedEntry>> {
        let is_counted = self.is_counting.load(Ordering::Relaxed) || self.is_after(&candidate.at.shown);
        let enters = candidate.depth < self.query.max_depth as usize;
        match self.left_out(candidate) {
            Some(reason) => {
                if is_counted {
                    self.not_shown.lock().add(reason);
                }
                Admission::Skip
            }
            None if is_counted => Admission::VisitEntry { enters },
            // Only the contents of the folder are after the position.
            None if enters => Admission::Visit,
            None => Admission::Skip,
        }
    }

    fn too_long(&self) -> Option<ListedEntry> {
        self.not_shown.lock().add(LeftOut::TooLong);
        None
    }

    fn visit(&self, (): &mut (), dir: Option<&F>, candidate: Candidate) -> Result<Option<ListedEntry>, WorkspaceError> {
        let is_unopened = candidate.kind == FileKind::Directory && candidate.depth >= self.query.max_depth as usize;
        if self.is_full.load(Ordering::Relaxed) || !self.is_after(&candidate.at.shown) {
            return Ok(Some(ListedEntry { entry: None, is_unopened }));
        }
        let Some(dir) = dir else { return Ok(None) };
        let entry = (self.describe)(dir, &candidate)?;
        Ok(entry.map(|entry| ListedEntry { entry: Some(entry), is_unopened }))
    }

    fn collect(&self, page: &mut ListPage, finding: Option<ListedEntry>) -> bool {
        let Some(ListedEntry { entry, is_unopened }) = finding else { return false };
        page.total += 1;
        let mut is_shown = false;
        if let Some(entry) = entry.filter(|_| !page.truncated) {
            let bytes = page.bytes + entry_bytes(&entry.path, ENTRY_OVERHEAD);
            if page.entries.len() == self.query.max_entries || bytes > MAX_ENTRIES_BYTES {
                page.truncated = true;
                self.is_full.store(true, Ordering::Relaxed);
            } else {
                page.bytes = bytes;
                page.entries.push(entry);
                is_shown = true;
            }
        }
        page.unopened_folders += u64::from(is_unopened && (is_shown || self.query.counts_all));
        if page.total > MAX_COUNTED {
            self.is_counting.store(false, Ordering::Relaxed);
        }
        page.truncated && !self.is_counting.load(Ordering::Relaxed)
    }
}

/// Whether anything in the folder `path` may be after `after` in path order.
pub(crate) fn has_contents_after(path: &str, after: &str) -> bool {
    match after.strip_prefix(path) {
        Some(rest) => rest.as_bytes().first().is_none_or(|next| *next <= b'/'),
        None => path > after,
    }
}
