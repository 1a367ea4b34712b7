//! The walk of a listing, in path order, so that it can stop when it has enough entries.

mod count;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::io;
use std::sync::atomic::AtomicBool;

use model::{FileKind, LogicalPath, PathRejected, Rules};
use rustix::fs::FileType;

use super::entry::{UndescribedEntry, skip_missing};
use super::{ENTRY_OVERHEAD, FolderEntry, ListQuery, Listing};
use crate::error::check_cancelled;
use crate::guard::TreeFolder;
use crate::ignored::{RuleScope, is_machine_made};
use crate::query::bounded_entries::{MAX_ENTRIES_BYTES, entry_bytes};
use crate::query::not_shown::{LeftOut, NotShown};
use crate::walk::{WalkPath, escape};
use crate::{Tree, WorkspaceError};

/// How many surplus names are kept before they are dropped.
const SLACK: usize = 1024;
/// How many folders of one folder may sort before the first entry and have contents after it: each name is the beginning of
/// one name.
const MAX_EARLIER_FOLDERS: usize = 255;

/// A listing under construction.
pub(super) struct Lister<'a> {
    tree: &'a Tree,
    rules: &'a Rules,
    query: &'a ListQuery,
    cancel: &'a AtomicBool,
    entries: Vec<FolderEntry>,
    entry_bytes: usize,
    truncated: bool,
    not_shown: NotShown,
    buffer: Vec<u8>,
    filter: Filter<'a>,
    /// The rules in force in the listed folder.
    scope: RuleScope,
    depth: u32,
}

/// Which entries a listing omits.
#[derive(Clone, Copy)]
struct Filter<'a> {
    rules: &'a Rules,
    hidden: bool,
    ignored: bool,
    machine_made: bool,
}

/// Whether a name is listed.
enum JudgedName {
    Listed(ListedName),
    LeftOut(LeftOut),
    /// No answer says that it exists.
    Unnamed,
}

/// A name that will be an entry.
struct ListedName {
    name: CString,
    /// The name, escaped.
    shown: String,
    /// The path, escaped; only if `at` is `None`.
    path: String,
    /// `None` if the name is not UTF-8 or the path is too long, so that no call can name it.
    at: Option<WalkPath>,
    file_type: FileType,
    kind: FileKind,
    /// `false` if only the contents of the folder are listed, since the folder itself is not after [`ListQuery::after`].
    is_entry: bool,
}

/// A step of the walk through a folder: an entry, or the contents of a subfolder.
struct ListerItem {
    index: usize,
    is_contents: bool,
}

impl<'a> Lister<'a> {
    pub(super) fn new(
        tree: &'a Tree,
        rules: &'a Rules,
        query: &'a ListQuery,
        cancel: &'a AtomicBool,
        folder: &LogicalPath,
    ) -> Result<Self, WorkspaceError> {
        let scope = tree.scope_of(folder)?;
        let filter = Filter {
            rules,
            hidden: !query.include_hidden,
            // A folder that is requested itself shows its contents.
            ignored: !query.include_ignored && !scope.excludes_folder_itself(),
            machine_made: !query.include_ignored && !is_machine_made(rules.kind_of_dir(folder)),
        };
        Ok(Self {
            tree,
            rules,
            query,
            cancel,
            entries: Vec::new(),
            entry_bytes: 0,
            truncated: false,
            not_shown: NotShown::default(),
            buffer: Vec::new(),
            filter,
            scope,
            depth: 0,
        })
    }

    pub(super) fn finish(self, total: Option<u64>) -> Listing {
        let Self { entries, truncated, not_shown, .. } = self;
        Listing { entries, truncated, total, not_shown }
    }

    /// Lists the requested folder, which is open as `dir`.
    pub(super) fn enter(&mut self, dir: &TreeFolder, at: &WalkPath) -> Result<(), WorkspaceError> {
        let scope = self.scope.clone();
        self.folder(dir, at, &scope)
    }

    fn folder(&mut self, dir: &TreeFolder, at: &WalkPath, scope: &RuleScope) -> Result<(), WorkspaceError> {
        self.depth += 1;
        let found = self.names(dir, at, scope)?;
        let mut items: Vec<ListerItem> =
            (0..found.len()).map(|index| ListerItem { index, is_contents: false }).collect();
        if self.depth < self.query.max_depth {
            let folders = found.iter().enumerate().filter(|(_, found)| found.file_type == FileType::Directory);
            items.extend(folders.map(|(index, _)| ListerItem { index, is_contents: true }));
        }
        items.sort_unstable_by(|a, b| a.order(b, &found));
        for item in items {
            if self.truncated {
                break;
            }
            let found = &found[item.index];
            if item.is_contents {
                self.contents(dir, found, scope)?;
            } else if found.is_entry {
                self.entry(dir, found, scope)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Returns how many more entries are needed: one more than can be shown, to detect that some are missing.
    fn remaining(&self) -> usize {
        (self.query.max_entries + 1).saturating_sub(self.entries.len())
    }

    /// Returns how many of `names` in the folder `at` are needed: one more than fit.
    fn fitting(&self, names: &[ListedName], at: &WalkPath) -> usize {
        let mut bytes = self.entry_bytes;
        let fits = names.iter().take_while(|found| {
            bytes += least_bytes(at, found.name.to_bytes());
            bytes <= MAX_ENTRIES_BYTES
        });
        let earlier = names.iter().filter(|found| !found.is_entry).count();
        (fits.count() + 1).min(self.remaining() + earlier)
    }

    /// Returns the first names in path order, as many as can be shown.
    fn names(&mut self, dir: &TreeFolder, at: &WalkPath, scope: &RuleScope) -> Result<Vec<ListedName>, WorkspaceError> {
        let needed = self.remaining().min((MAX_ENTRIES_BYTES - self.entry_bytes) / least_bytes(at, b"") + 1);
        let after = self.query.after.as_deref();
        let needed = if after.is_some() { needed + MAX_EARLIER_FOLDERS } else { needed };
        let (tree, filter) = (self.tree, self.filter);
        let (mut kept, not_shown): (Vec<ListedName>, _) = (Vec::new(), &mut self.not_shown);
        tree.root.each_entry(dir, &mut self.buffer, |name, file_type| {
            check_cancelled(self.cancel)?;
            match filter.judge(tree, at, scope, name, file_type)? {
                JudgedName::Listed(mut found) => {
                    if found.is_after(after) {
                        kept.push(found);
                    }
                }
                JudgedName::LeftOut(reason) => {
                    let is_after =
                        after.is_none_or(|after| join(&at.shown, name.to_bytes()).as_slice() > after.as_bytes());
                    if is_after {
                        not_shown.add(reason);
                    }
                }
                JudgedName::Unnamed => {}
            }
            if kept.len() > needed.saturating_mul(2).saturating_add(SLACK) {
                kept.select_nth_unstable_by(needed, |a, b| a.shown.cmp(&b.shown));
                kept.truncate(needed);
            }
            Ok::<(), WorkspaceError>(())
        })?;
        kept.sort_unstable_by(|a, b| a.shown.cmp(&b.shown));
        kept.truncate(self.fitting(&kept, at));
        // Frees the memory of the names that were dropped.
        kept.shrink_to_fit();
        Ok(kept)
    }

    fn contents(&mut self, dir: &TreeFolder, found: &ListedName, scope: &RuleScope) -> Result<(), WorkspaceError> {
        let Some(at) = &found.at else { return Ok(()) };
        let inner = match self.tree.root.open_subfolder(dir, &found.name) {
            Ok(inner) => inner,
            Err(error) => return Ok(error.unless_disk()?),
        };
        let path = at.real().as_str().as_bytes();
        let scope = match &self.tree.ignored {
            Some(ignored) => ignored.enter(&self.tree.root, scope, path, &inner)?,
            None => RuleScope::default(),
        };
        match self.folder(&inner, at, &scope) {
            // The folder was replaced by a file meanwhile.
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
            done => done,
        }
    }

    fn entry(&mut self, dir: &TreeFolder, found: &ListedName, scope: &RuleScope) -> Result<(), WorkspaceError> {
        let stat = match self.tree.root.stat_entry(dir, &found.name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(()),
            Err(errno) => return skip_missing(errno),
        };
        let entry = match &found.at {
            Some(at) => {
                let is_folder = found.file_type == FileType::Directory;
                let ignored = self.tree.hides(scope, at.real().as_str().as_bytes(), is_folder)?;
                let entry = UndescribedEntry { dir, name: &found.name, at, kind: found.kind, ignored };
                entry.entry(self.tree, self.rules, &stat)?
            }
            None => FolderEntry::unnameable(found.path.clone(), &stat),
        };
        let bytes = self.entry_bytes + entry_bytes(&entry.path, ENTRY_OVERHEAD);
        if self.entries.len() == self.query.max_entries || bytes > MAX_ENTRIES_BYTES {
            self.truncated = true;
            return Ok(());
        }
        self.entry_bytes = bytes;
        let is_unopened = found.file_type == FileType::Directory && self.depth == self.query.max_depth;
        self.not_shown.unopened_folders += u64::from(is_unopened);
        self.entries.push(entry);
        Ok(())
    }
}

impl Filter<'_> {
    /// Returns the entry of `name`, or why the listing omits it.
    fn judge(
        self,
        tree: &Tree,
        at: &WalkPath,
        scope: &RuleScope,
        name: &CStr,
        file_type: FileType,
    ) -> Result<JudgedName, WorkspaceError> {
        let is_folder = file_type == FileType::Directory;
        let child = match name.to_str().map(|name| at.child(name)) {
            Ok(Err(PathRejected::GitInternal)) => return Ok(JudgedName::Unnamed),
            Ok(Ok(child)) => Some(child),
            Ok(Err(_)) | Err(_) => None,
        };
        if self.hidden && name.to_bytes().starts_with(b".") {
            return Ok(JudgedName::LeftOut(LeftOut::Hidden));
        }
        let kind = match &child {
            Some(child) if is_folder => self.rules.kind_of_dir(child.real()),
            Some(child) => self.rules.kind_of_path(child.real()),
            None => FileKind::Unknown,
        };
        if let Some(reason) = LeftOut::machine_made(kind, is_folder).filter(|_| self.machine_made) {
            return Ok(JudgedName::LeftOut(reason));
        }
        if self.ignored {
            let path = match &child {
                Some(child) => Cow::Borrowed(child.real().as_str().as_bytes()),
                None => Cow::Owned(join(at.real(), name.to_bytes())),
            };
            if tree.hides(scope, &path, is_folder)? {
                return Ok(JudgedName::LeftOut(LeftOut::Ignored));
            }
        }
        let shown = escape(name.to_bytes());
        let path = match (&child, at.shown.is_root()) {
            (Some(_), _) => String::new(),
            (None, true) => shown.clone(),
            (None, false) => format!("{}/{shown}", at.shown),
        };
        Ok(JudgedName::Listed(ListedName {
            name: name.to_owned(),
            shown,
            path,
            at: child,
            file_type,
            kind,
            is_entry: true,
        }))
    }
}

impl ListedName {
    /// Whether the entry, or anything in the folder, is after `after`. Sets [`is_entry`](Self::is_entry).
    fn is_after(&mut self, after: Option<&str>) -> bool {
        let Some(after) = after else { return true };
        let path = self.at.as_ref().map_or(self.path.as_str(), |at| at.shown.as_str());
        self.is_entry = path > after;
        self.is_entry || self.file_type == FileType::Directory && has_contents_after(path, after)
    }
}

/// Whether anything in the folder `path` may be after `after` in path order.
pub(crate) fn has_contents_after(path: &str, after: &str) -> bool {
    match after.strip_prefix(path) {
        Some(rest) => rest.as_bytes().first().is_none_or(|next| *next <= b'/'),
        None => path > after,
    }
}

impl ListerItem {
    /// Compares by path: the contents of a folder sort as if its name ended in `/`.
    fn order(&self, other: &Self, found: &[ListedName]) -> Ordering {
        let key = |item: &Self| {
            let slash: &[u8] = if item.is_contents { b"/" } else { b"" };
            found[item.index].shown.bytes().chain(slash.iter().copied())
        };
        key(self).cmp(key(other))
    }
}

/// Returns the least size of the entry of `name` in the folder `at`.
fn least_bytes(at: &WalkPath, name: &[u8]) -> usize {
    let folder = if at.shown.is_root() { 0 } else { at.shown.as_str().len() + 1 };
    folder + name.len() + ENTRY_OVERHEAD
}

fn join(folder: &LogicalPath, name: &[u8]) -> Vec<u8> {
    if folder.is_root() { name.to_vec() } else { [folder.as_str().as_bytes(), b"/", name].concat() }
}
