//! The walk behind a listing: entries come in the order of their paths, so that it can stop when it has enough.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;

use model::{FileKind, LogicalPath, PathRejected, Rules};
use rustix::fs::{AtFlags, FileType};

use super::entry::{Described, passing};
use super::{BESIDE_PATH, Entry, ListQuery, Listing};
use crate::first::{MAX_ENTRIES_BYTES, entry_bytes};
use crate::guard::Blocking;
use crate::ignored::Scope;
use crate::walk::{WalkPath, each_entry, escape};
use crate::{Tree, WorkspaceError};

/// Names that are kept beyond those that can be shown, before they are thinned out.
const SLACK: usize = 1024;

/// A listing in the making.
pub(super) struct Lister<'a> {
    tree: &'a Tree,
    rules: &'a Rules,
    query: &'a ListQuery,
    cancel: &'a AtomicBool,
    entries: Vec<Entry>,
    entry_bytes: usize,
    truncated: bool,
    buffer: Vec<u8>,
    filter: Filter<'a>,
    /// Rules in force in the folder above the listed one.
    scope: Scope,
    depth: u32,
}

/// What is left out of a listing.
#[derive(Clone, Copy)]
struct Filter<'a> {
    rules: &'a Rules,
    hidden: bool,
    ignored: bool,
    made: bool,
}

/// A name that will be an entry.
struct Found {
    name: CString,
    /// The name, escaped.
    shown: String,
    /// The path, escaped; only where `at` is `None`.
    path: String,
    /// `None` where the name is not UTF-8 or the path too long: nothing can be asked about it.
    at: Option<WalkPath>,
    file_type: FileType,
    kind: FileKind,
}

/// What comes next in a folder, in the order of paths: an entry, or all that lies in one.
struct Item {
    index: usize,
    inside: bool,
}

impl<'a> Lister<'a> {
    pub(super) fn new(
        tree: &'a Tree,
        rules: &'a Rules,
        query: &'a ListQuery,
        cancel: &'a AtomicBool,
        folder: &LogicalPath,
    ) -> Result<Self, WorkspaceError> {
        let scope = match &tree.ignored {
            Some(ignored) => ignored.scope_of(&tree.root, folder, Blocking::Allowed)?,
            None => Scope::default(),
        };
        let named_ignored = scope.excludes_folder_itself();
        let named_made = is_made(rules.kind_of_dir(folder));
        let filter = Filter {
            rules,
            hidden: !query.include_hidden,
            ignored: !query.include_ignored && !named_ignored,
            made: !query.include_ignored && !named_made,
        };
        Ok(Self {
            tree,
            rules,
            query,
            cancel,
            entries: Vec::new(),
            entry_bytes: 0,
            truncated: false,
            buffer: Vec::new(),
            filter,
            scope,
            depth: 0,
        })
    }

    pub(super) fn finish(self) -> Listing {
        Listing { entries: self.entries, truncated: self.truncated }
    }

    /// Lists the listed folder itself, which is open as `dir`.
    pub(super) fn enter(&mut self, dir: &OwnedFd, at: &WalkPath) -> Result<(), WorkspaceError> {
        let scope = self.scope.clone();
        self.folder(dir, at, &scope)
    }

    fn folder(&mut self, dir: &OwnedFd, at: &WalkPath, scope: &Scope) -> Result<(), WorkspaceError> {
        self.depth += 1;
        let found = self.names(dir, at, scope)?;
        let mut items: Vec<Item> = (0..found.len()).map(|index| Item { index, inside: false }).collect();
        if self.depth < self.query.max_depth {
            let folders = found.iter().enumerate().filter(|(_, found)| found.file_type == FileType::Directory);
            items.extend(folders.map(|(index, _)| Item { index, inside: true }));
        }
        items.sort_unstable_by(|a, b| a.order(b, &found));
        for item in items {
            if self.truncated {
                break;
            }
            let found = &found[item.index];
            if item.inside { self.inside(dir, found, scope)? } else { self.entry(dir, found, scope)? }
        }
        self.depth -= 1;
        Ok(())
    }

    /// How many entries are wanted still; one more than are shown, which tells whether some are missing.
    fn room(&self) -> usize {
        (self.query.max_entries + 1).saturating_sub(self.entries.len())
    }

    /// How many of `names` in the folder `at` are wanted still: one more than fit.
    fn fitting(&self, names: &[Found], at: &WalkPath) -> usize {
        let mut bytes = self.entry_bytes;
        let fits = names.iter().take_while(|found| {
            bytes += least_bytes(at, found.name.to_bytes());
            bytes <= MAX_ENTRIES_BYTES
        });
        (fits.count() + 1).min(self.room())
    }

    /// The first names in the order of paths, and no more than can be shown.
    fn names(&mut self, dir: &OwnedFd, at: &WalkPath, scope: &Scope) -> Result<Vec<Found>, WorkspaceError> {
        let room = self.room().min((MAX_ENTRIES_BYTES - self.entry_bytes) / least_bytes(at, b"") + 1);
        let (tree, filter) = (self.tree, self.filter);
        let mut kept: Vec<Found> = Vec::new();
        each_entry(dir.as_fd(), &mut self.buffer, self.cancel, |name, file_type| {
            if let Some(found) = filter.keep(tree, at, scope, name, file_type)? {
                kept.push(found);
            }
            if kept.len() > room.saturating_mul(2).saturating_add(SLACK) {
                kept.select_nth_unstable_by(room, |a, b| a.shown.cmp(&b.shown));
                kept.truncate(room);
            }
            Ok(())
        })?;
        kept.sort_unstable_by(|a, b| a.shown.cmp(&b.shown));
        kept.truncate(self.fitting(&kept, at));
        // Those that are dropped had their room.
        kept.shrink_to_fit();
        Ok(kept)
    }

    fn inside(&mut self, dir: &OwnedFd, found: &Found, scope: &Scope) -> Result<(), WorkspaceError> {
        let Some(at) = &found.at else { return Ok(()) };
        let inner = match self.tree.root.open_entry(dir.as_fd(), &found.name) {
            Ok(inner) => inner,
            Err(errno) => return passing(errno),
        };
        let path = at.real().as_str().as_bytes();
        let scope = match &self.tree.ignored {
            Some(ignored) => ignored.enter(&self.tree.root, scope, path, inner.as_fd())?,
            None => Scope::default(),
        };
        match self.folder(&inner, at, &scope) {
            // What was a folder is none any more.
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
            done => done,
        }
    }

    fn entry(&mut self, dir: &OwnedFd, found: &Found, scope: &Scope) -> Result<(), WorkspaceError> {
        let stat = match rustix::fs::statat(dir, &found.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return passing(errno),
        };
        let entry = match &found.at {
            Some(at) => {
                let is_folder = found.file_type == FileType::Directory;
                let ignored = match &self.tree.ignored {
                    Some(ignored) => ignored.hides(scope, at.real().as_str().as_bytes(), is_folder)?,
                    None => false,
                };
                let place = Described { dir: dir.as_fd(), name: &found.name, at, kind: found.kind, ignored };
                place.entry(self.tree, self.rules, &stat)?
            }
            None => Entry::unnameable(found.path.clone(), &stat),
        };
        let bytes = self.entry_bytes + entry_bytes(&entry.path, BESIDE_PATH);
        if self.entries.len() == self.query.max_entries || bytes > MAX_ENTRIES_BYTES {
            self.truncated = true;
            return Ok(());
        }
        self.entry_bytes = bytes;
        self.entries.push(entry);
        Ok(())
    }
}

impl Filter<'_> {
    /// The entry that `name` will be, unless it is left out.
    fn keep(
        self,
        tree: &Tree,
        at: &WalkPath,
        scope: &Scope,
        name: &CStr,
        file_type: FileType,
    ) -> Result<Option<Found>, WorkspaceError> {
        if self.hidden && name.to_bytes().starts_with(b".") {
            return Ok(None);
        }
        let is_folder = file_type == FileType::Directory;
        let place = match name.to_str().map(|name| at.child(name)) {
            Ok(Err(PathRejected::GitInternal)) => return Ok(None),
            Ok(Ok(place)) => Some(place),
            Ok(Err(_)) | Err(_) => None,
        };
        let kind = match &place {
            Some(place) if is_folder => self.rules.kind_of_dir(place.real()),
            Some(place) => self.rules.kind_of_path(place.real()),
            None => FileKind::Unknown,
        };
        if self.made && is_made(kind) {
            return Ok(None);
        }
        if let (true, Some(ignored)) = (self.ignored, &tree.ignored) {
            let path = match &place {
                Some(place) => Cow::Borrowed(place.real().as_str().as_bytes()),
                None => Cow::Owned(join(at.real(), name.to_bytes())),
            };
            if ignored.hides(scope, &path, is_folder)? {
                return Ok(None);
            }
        }
        let shown = escape(name);
        let path = match (&place, at.shown.is_root()) {
            (Some(_), _) => String::new(),
            (None, true) => shown.clone(),
            (None, false) => format!("{}/{shown}", at.shown),
        };
        Ok(Some(Found { name: name.to_owned(), shown, path, at: place, file_type, kind }))
    }
}

impl Item {
    /// By path: what lies in a folder comes as if its name ended in `/`.
    fn order(&self, other: &Self, found: &[Found]) -> Ordering {
        let key = |item: &Self| {
            let slash: &[u8] = if item.inside { b"/" } else { b"" };
            found[item.index].shown.bytes().chain(slash.iter().copied())
        };
        key(self).cmp(key(other))
    }
}

/// How many bytes the entry of `name` in the folder `at` takes at least.
fn least_bytes(at: &WalkPath, name: &[u8]) -> usize {
    let folder = if at.shown.is_root() { 0 } else { at.shown.as_str().len() + 1 };
    folder + name.len() + BESIDE_PATH
}

/// Whether tools make such files, so that listings leave them out unless asked.
pub(crate) fn is_made(kind: FileKind) -> bool {
    matches!(kind, FileKind::Generated | FileKind::Vendored)
}

fn join(folder: &LogicalPath, name: &[u8]) -> Vec<u8> {
    if folder.is_root() { name.to_vec() } else { [folder.as_str().as_bytes(), b"/", name].concat() }
}
