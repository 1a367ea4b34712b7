//! Reading one folder of a walk: which of its entries are visited, in path order.

use std::cmp::Ordering;
use std::ffi::CString;
use std::io;
use std::sync::atomic::AtomicBool;

use model::FileKind;
use rustix::fs::FileType;

use super::{Admission, Visitor, WalkPath};
use crate::error::check_cancelled;
use crate::guard::TreeFolder;
use crate::ignored::{GITIGNORE_NAME, RuleScope};
use crate::{Tree, WorkspaceError};

/// A file that a walk may visit, described by its name.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) at: WalkPath,
    /// Its name in its folder.
    pub(crate) name: CString,
    /// Its kind; `Directory` for a folder that may be entered.
    pub(crate) kind: FileKind,
    /// Whether git ignores it and does not track it.
    pub(crate) ignored: bool,
}

/// An item of a folder's path order.
pub(super) enum Item<T> {
    /// A file.
    File(Candidate),
    /// The contents of a subfolder.
    Contents(CString, WalkPath),
    /// An entry that is left out, by its name.
    Reported(CString, T),
}

/// The rules in force in a folder, and its items in path order.
type Contents<V> = (RuleScope, Vec<Item<<V as Visitor>::Finding>>);

/// The ignore rules of a folder that is to be read.
pub(super) enum FolderScope {
    /// The rules in force in the folder itself.
    Own(RuleScope),
    /// The rules in force in its parent.
    Parent(RuleScope),
}

/// Reads folders one after another with the same buffers.
pub(super) struct FolderReader<'a, V> {
    tree: &'a Tree,
    visitor: &'a V,
    cancel: &'a AtomicBool,
    raw: Vec<u8>,
    names: Vec<(CString, FileType)>,
}

impl<'a, V: Visitor> FolderReader<'a, V> {
    pub(super) fn new(tree: &'a Tree, visitor: &'a V, cancel: &'a AtomicBool) -> Self {
        Self { tree, visitor, cancel, raw: Vec::new(), names: Vec::new() }
    }
    /// Returns the items of `folder`, which is open as `dir`, and the rules in force in it.
    pub(super) fn read(
        &mut self,
        dir: &TreeFolder,
        folder: &WalkPath,
        scope: FolderScope,
    ) -> Result<Contents<V>, WorkspaceError> {
        // All names are read before any is judged, since a `.gitignore` among them applies to the others.
        let has_gitignore = self.read_names(dir)?;
        let scope = match (scope, &self.tree.ignored) {
            (FolderScope::Own(scope), _) => scope,
            (FolderScope::Parent(_), None) => RuleScope::default(),
            (FolderScope::Parent(above), Some(ignored)) => {
                let path = folder.real().as_str().as_bytes();
                if has_gitignore {
                    ignored.enter(&self.tree.root, &above, path, dir)?
                } else {
                    ignored.enter_without_gitignore(&above, path)?
                }
            }
        };
        let mut names = std::mem::take(&mut self.names);
        let mut items = Vec::with_capacity(names.len());
        for (name, file_type) in names.drain(..) {
            items.extend(self.admit(folder, &scope, name, file_type)?);
        }
        self.names = names;
        items.sort_unstable_by(Item::order);
        Ok((scope, items))
    }

    /// Returns the item for `name` in `folder`, unless it is left out.
    fn admit(
        &self,
        folder: &WalkPath,
        scope: &RuleScope,
        name: CString,
        file_type: FileType,
    ) -> Result<Option<Item<V::Finding>>, WorkspaceError> {
        // A name that is not UTF-8 or is Git-internal cannot be shown.
        let Ok(text) = name.to_str() else { return Ok(None) };
        let Ok(at) = folder.child(text) else { return Ok(None) };
        let is_folder = file_type == FileType::Directory;
        if !self.visitor.is_requested(&at.shown, is_folder) {
            return Ok(None);
        }
        let ignored = self.tree.hides(scope, at.real().as_str().as_bytes(), is_folder)?;
        let kind = if is_folder { FileKind::Directory } else { self.visitor.rules().kind_of_path(at.real()) };
        let candidate = Candidate { at, name, kind, ignored };
        Ok(match self.visitor.admit(&candidate) {
            Admission::Skip => None,
            Admission::Report(finding) => Some(Item::Reported(candidate.name, finding)),
            Admission::Visit if is_folder => Some(Item::Contents(candidate.name, candidate.at)),
            Admission::Visit => Some(Item::File(candidate)),
        })
    }

    /// Reads the names of folders and of files that the visitor wants. Returns whether there is a `.gitignore`.
    fn read_names(&mut self, dir: &TreeFolder) -> Result<bool, WorkspaceError> {
        self.names.clear();
        let (names, visitor, mut has_gitignore) = (&mut self.names, self.visitor, false);
        let read = self.tree.root.each_entry(dir, &mut self.raw, |name, file_type| {
            check_cancelled(self.cancel)?;
            has_gitignore |= name.to_bytes() == GITIGNORE_NAME.as_bytes();
            if file_type == FileType::Directory || visitor.wants_type(file_type) {
                names.push((name.to_owned(), file_type));
            }
            Ok(())
        });
        match read {
            // The folder was replaced by a file meanwhile.
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => {}
            read => read?,
        }
        Ok(has_gitignore)
    }
}

impl<T> Item<T> {
    /// Compares by path: the contents of a folder sort as if its name ended in `/`.
    fn order(&self, other: &Self) -> Ordering {
        fn key<T>(item: &Item<T>) -> (&[u8], Option<u8>) {
            match item {
                Item::File(candidate) => (candidate.name.to_bytes(), None),
                Item::Reported(name, _) => (name.to_bytes(), None),
                Item::Contents(name, _) => (name.to_bytes(), Some(b'/')),
            }
        }
        let ((one, after_one), (two, after_two)) = (key(self), key(other));
        let common = one.len().min(two.len());
        // Most names differ early, so whole slices are compared before the one byte that may follow.
        one[..common].cmp(&two[..common]).then_with(|| {
            let next = |name: &[u8], after: Option<u8>| name.get(common).copied().or(after);
            next(one, after_one).cmp(&next(two, after_two))
        })
    }
}
