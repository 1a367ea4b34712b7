//! The steps of a walk: its folders are read one after another, and their entries come in path order.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};
use std::vec;

use model::{FileKind, PathRejected};
use rustix::fs::FileType;

use super::{Admission, Candidate, FolderSource, Visitor, WalkPath, WalkRoot, escape};
use crate::WorkspaceError;
use crate::base_files::GITIGNORE_NAME;
use crate::error::check_cancelled;
use crate::ignored::RuleScope;

/// How many entries are visited as one task.
const BATCH: usize = 16;
/// Under this depth folders are opened from the root each time, since handles are scarce.
const MAX_OPEN_DEPTH: usize = 64;

/// What a walk has come to.
pub(super) enum WalkStep<F, T> {
    /// An entry to visit in a folder; `None` if that does not exist any more.
    Visit(Option<Arc<F>>, Candidate),
    /// The result of an entry that is not visited.
    Found(T),
}

/// The next entries in path order.
pub(super) struct WalkBatch<S: FolderSource, V: Visitor<S::Folder>> {
    pub(super) number: usize,
    pub(super) steps: Vec<WalkStep<S::Folder, V::Finding>>,
}

/// A walk that advances from entry to entry.
pub(super) struct Walker<'a, S: FolderSource, V: Visitor<S::Folder>> {
    source: &'a S,
    visitor: &'a V,
    cancel: &'a AtomicBool,
    /// The folder of the next entry, and those above it.
    levels: Vec<Level<S::Folder, V::Finding>>,
    /// The number of batches so far.
    batches: usize,
    buffer: Vec<u8>,
}

/// A folder that was read.
struct Level<F, T> {
    /// `None` if it is opened again whenever it is needed.
    dir: Option<Arc<F>>,
    at: WalkPath,
    scope: RuleScope,
    /// The items that remain, in path order.
    items: vec::IntoIter<Item<T>>,
}

/// An item of a folder's path order. It has no path, since a folder may have many entries and a long path.
struct Item<T> {
    name: CString,
    is_nameable: bool,
    file_type: FileType,
    kind: FileKind,
    ignored: bool,
    part: ItemPart<T>,
}

enum ItemPart<T> {
    /// The entry itself.
    Entry,
    /// The contents of the folder.
    Contents,
    /// The result of an entry that is left out.
    Report(T),
}

impl<'a, S: FolderSource, V: Visitor<S::Folder>> Walker<'a, S, V> {
    /// Starts a walk, and reads the folder at which it starts.
    pub(super) fn new(
        source: &'a S,
        visitor: &'a V,
        root: WalkRoot<S::Folder>,
        cancel: &'a AtomicBool,
    ) -> Result<Self, WorkspaceError> {
        let mut walker = Self { source, visitor, cancel, levels: Vec::new(), batches: 0, buffer: Vec::new() };
        let (names, _) = walker.names(&root.dir)?;
        walker.add_level(root, names)?;
        Ok(walker)
    }

    /// Returns the next batch; `None` at the end, or once `stopped` is set.
    pub(super) fn next_batch(&mut self, stopped: &AtomicBool) -> Result<Option<WalkBatch<S, V>>, WorkspaceError> {
        let mut steps = Vec::new();
        while steps.len() < BATCH && !stopped.load(atomic::Ordering::Relaxed) {
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else { break };
            let Some(item) = level.items.next() else {
                self.levels.pop();
                continue;
            };
            match item.part {
                ItemPart::Report(finding) => steps.push(WalkStep::Found(finding)),
                ItemPart::Contents => self.enter(&item.name)?,
                ItemPart::Entry => {
                    let Ok(at) = level.child(&item.name) else { continue };
                    let Item { name, is_nameable, file_type, kind, ignored, .. } = item;
                    let candidate = Candidate { at, name, is_nameable, file_type, kind, ignored, depth };
                    steps.push(WalkStep::Visit(level.open(self.source)?, candidate));
                }
            }
        }
        if steps.is_empty() {
            return Ok(None);
        }
        self.batches += 1;
        Ok(Some(WalkBatch { number: self.batches, steps }))
    }

    /// Reads the folder `name` of the last level.
    fn enter(&mut self, name: &CStr) -> Result<(), WorkspaceError> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        let (Ok(at), Some(parent)) = (level.child(name), level.open(self.source)?) else { return Ok(()) };
        // The visitor may want less than when the folder above was read.
        if !self.visitor.is_requested(&at.shown, true) {
            return Ok(());
        }
        let above = level.scope.clone();
        let Some(dir) = self.source.open(Some((&parent, name)), at.real())? else { return Ok(()) };
        // All names are read before any is judged, since a `.gitignore` among them applies to the others.
        let (names, has_gitignore) = self.names(&dir)?;
        let scope = self.source.scope(&above, &dir, at.real(), has_gitignore)?;
        self.add_level(WalkRoot { dir, at, scope }, names)
    }

    /// Returns the names of folders and of entries that the visitor wants, and whether there is a `.gitignore`.
    fn names(&mut self, dir: &S::Folder) -> Result<(Vec<(CString, FileType)>, bool), WorkspaceError> {
        let (mut names, mut has_gitignore) = (Vec::new(), false);
        self.source.each_entry(dir, &mut self.buffer, &mut |name, file_type| {
            check_cancelled(self.cancel)?;
            has_gitignore |= name.to_bytes() == GITIGNORE_NAME.as_bytes();
            if file_type == FileType::Directory || self.visitor.wants_type(file_type) {
                names.push((name.to_owned(), file_type));
            }
            Ok(())
        })?;
        Ok((names, has_gitignore))
    }

    /// Adds the folder of the next entries, which has these names.
    fn add_level(
        &mut self,
        folder: WalkRoot<S::Folder>,
        names: Vec<(CString, FileType)>,
    ) -> Result<(), WorkspaceError> {
        let WalkRoot { dir, at, scope } = folder;
        let is_deep = at.shown.components().count() > MAX_OPEN_DEPTH;
        let dir = Some(Arc::new(dir)).filter(|_| !is_deep);
        let mut level = Level { dir, at, scope, items: Vec::new().into_iter() };
        let mut items = Vec::with_capacity(names.len());
        for (name, file_type) in names {
            check_cancelled(self.cancel)?;
            if let Some(finding) = self.visitor.interruption() {
                // The first of the folder, and the last of the walk.
                let (kind, part) = (FileKind::Unknown, ItemPart::Report(finding));
                items = vec![Item { name, is_nameable: true, file_type, kind, ignored: false, part }];
                break;
            }
            let at = match level.child(&name) {
                Ok(at) => at,
                Err(PathRejected::TooLong) => {
                    let (kind, part) = (FileKind::Unknown, ItemPart::Report(self.visitor.too_long()));
                    items.push(Item { name, is_nameable: false, file_type, kind, ignored: false, part });
                    continue;
                }
                // A name that is Git-internal cannot be shown.
                Err(_) => continue,
            };
            if let Some(candidate) = self.candidate(&level, at, name, file_type)? {
                self.add_items(candidate, &mut items);
            }
        }
        items.sort_unstable_by(Item::order);
        level.items = items.into_iter();
        self.levels.push(level);
        Ok(())
    }

    /// Returns the entry `name` of `level`, which is `at`, unless the caller's filters or its name exclude it.
    fn candidate(
        &self,
        level: &Level<S::Folder, V::Finding>,
        at: WalkPath,
        name: CString,
        file_type: FileType,
    ) -> Result<Option<Candidate>, WorkspaceError> {
        let is_nameable = name.to_str().is_ok();
        if !is_nameable && !V::WANTS_UNNAMEABLE {
            return Ok(None);
        }
        let is_folder = file_type == FileType::Directory;
        if !self.visitor.is_requested(&at.shown, is_folder) {
            return Ok(None);
        }
        let path = if is_nameable {
            Cow::Borrowed(at.real().as_str().as_bytes())
        } else {
            Cow::Owned(level.at.raw_child(name.to_bytes()))
        };
        let ignored = self.source.tree().hides(&level.scope, &path, is_folder)?;
        let kind = match (is_folder, is_nameable) {
            (true, _) => FileKind::Directory,
            (false, true) => self.visitor.rules().kind_of_path(at.real()),
            (false, false) => FileKind::Unknown,
        };
        let depth = self.levels.len() + 1;
        drop(path);
        Ok(Some(Candidate { at, name, is_nameable, file_type, kind, ignored, depth }))
    }

    /// Adds the items of an entry, unless the visitor leaves it out.
    fn add_items(&self, candidate: Candidate, items: &mut Vec<Item<V::Finding>>) {
        let admission = self.visitor.admit(&candidate);
        let Candidate { name, is_nameable, file_type, kind, ignored, .. } = candidate;
        let is_folder = file_type == FileType::Directory;
        let mut add = |name, part| items.push(Item { name, is_nameable, file_type, kind, ignored, part });
        match admission {
            Admission::Skip => {}
            Admission::Report(finding) => add(name, ItemPart::Report(finding)),
            Admission::Visit if is_folder && is_nameable => add(name, ItemPart::Contents),
            Admission::Visit if is_folder => {}
            Admission::Visit => add(name, ItemPart::Entry),
            Admission::VisitEntry { enters } => {
                if enters && is_folder && is_nameable {
                    add(name.clone(), ItemPart::Contents);
                }
                add(name, ItemPart::Entry);
            }
        }
    }
}

impl<F, T> Level<F, T> {
    /// Returns the path of the entry `name`, as answers show it.
    fn child(&self, name: &CStr) -> Result<WalkPath, PathRejected> {
        match name.to_str() {
            Ok(name) => self.at.child(name),
            Err(_) => self.at.child(&escape(name.to_bytes())),
        }
    }

    /// Returns the open folder; `None` if it does not exist any more.
    fn open<S: FolderSource<Folder = F>>(&self, source: &S) -> Result<Option<Arc<F>>, WorkspaceError> {
        match &self.dir {
            Some(dir) => Ok(Some(Arc::clone(dir))),
            None => Ok(source.open(None, self.at.real())?.map(Arc::new)),
        }
    }
}

impl<T> Item<T> {
    /// Compares by path: the contents of a folder sort as if its name ended in `/`.
    fn order(&self, other: &Self) -> Ordering {
        let (one, two) = (self.shown_name(), other.shown_name());
        let common = one.len().min(two.len());
        // Most names differ early, so whole slices are compared before the one byte that may follow.
        one[..common].cmp(&two[..common]).then_with(|| {
            let next = |name: &[u8], item: &Self| {
                let slash = matches!(item.part, ItemPart::Contents).then_some(b'/');
                name.get(common).copied().or(slash)
            };
            next(&one, self).cmp(&next(&two, other))
        })
    }

    fn shown_name(&self) -> Cow<'_, [u8]> {
        let name = self.name.to_bytes();
        if self.is_nameable { Cow::Borrowed(name) } else { Cow::Owned(escape(name).into_bytes()) }
    }
}
