//! One folder of a survey: what in it is looked at, in order of path.

use std::cmp::Ordering;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicBool;

use model::FileKind;
use rustix::fs::FileType;

use super::Visitor;
use crate::ignored::{GITIGNORE_NAME, Scope};
use crate::walk::{WalkPath, each_entry};
use crate::{Tree, WorkspaceError};

/// A file that a survey comes by, as far as its name tells.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Where it is.
    pub(crate) at: WalkPath,
    /// Its name in its folder.
    pub(crate) name: CString,
    /// Its kind; `Directory` for a folder that is asked about before it is entered.
    pub(crate) kind: FileKind,
    /// Whether git ignores it and does not track it.
    pub(crate) ignored: bool,
}

/// Something in a folder.
pub(super) enum Item {
    /// A file.
    File(Candidate),
    /// All that lies in a folder.
    Inside(CString, WalkPath),
}

/// How a folder is come by.
pub(super) enum Entering {
    /// It was asked for: the rules in force in it are these.
    Asked(Scope),
    /// From the folder above, in which these rules are in force.
    From(Scope),
}

/// Reads folders one after another with the same buffers.
pub(super) struct Reader<'a, S> {
    tree: &'a Tree,
    survey: &'a S,
    cancel: &'a AtomicBool,
    raw: Vec<u8>,
    names: Vec<(CString, FileType)>,
}

impl<'a, S: Visitor> Reader<'a, S> {
    pub(super) fn new(tree: &'a Tree, survey: &'a S, cancel: &'a AtomicBool) -> Self {
        Self { tree, survey, cancel, raw: Vec::new(), names: Vec::new() }
    }

    /// What in `folder`, open as `dir`, is looked at, and the rules in force in it.
    pub(super) fn read(
        &mut self,
        dir: &OwnedFd,
        folder: &WalkPath,
        scope: Entering,
    ) -> Result<(Scope, Vec<Item>), WorkspaceError> {
        // Gathered before they are looked at, since a `.gitignore` among them decides over the others.
        let has_rules = self.gather(dir)?;
        let scope = match (scope, &self.tree.ignored) {
            (Entering::Asked(scope), _) => scope,
            (Entering::From(_), None) => Scope::default(),
            (Entering::From(above), Some(ignored)) => {
                let path = folder.real().as_str().as_bytes();
                if has_rules {
                    ignored.enter(&self.tree.root, &above, path, dir.as_fd())?
                } else {
                    ignored.enter_without_rules(&above, path)?
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

    /// What `name` in `folder` is to the survey, unless it is left out.
    fn admit(
        &self,
        folder: &WalkPath,
        scope: &Scope,
        name: CString,
        file_type: FileType,
    ) -> Result<Option<Item>, WorkspaceError> {
        // A name that is not UTF-8 cannot be told, nor one in git's own.
        let Ok(text) = name.to_str() else { return Ok(None) };
        let Ok(at) = folder.child(text) else { return Ok(None) };
        let is_folder = file_type == FileType::Directory;
        if !self.survey.is_asked_for(&at.shown, is_folder) {
            return Ok(None);
        }
        let ignored = match &self.tree.ignored {
            Some(ignored) => ignored.hides(scope, at.real().as_str().as_bytes(), is_folder)?,
            None => false,
        };
        let kind = if is_folder { FileKind::Directory } else { self.survey.rules().kind_of_path(at.real()) };
        let candidate = Candidate { at, name, kind, ignored };
        if !self.survey.admits(&candidate) {
            return Ok(None);
        }
        Ok(Some(if is_folder { Item::Inside(candidate.name, candidate.at) } else { Item::File(candidate) }))
    }

    /// Gathers folders and what the survey takes; whether a `.gitignore` is among them.
    fn gather(&mut self, dir: &OwnedFd) -> Result<bool, WorkspaceError> {
        self.names.clear();
        let (names, survey, mut has_rules) = (&mut self.names, self.survey, false);
        let gathered = each_entry(dir.as_fd(), &mut self.raw, self.cancel, |name, file_type| {
            has_rules |= name.to_bytes() == GITIGNORE_NAME.as_bytes();
            if file_type == FileType::Directory || survey.takes(file_type) {
                names.push((name.to_owned(), file_type));
            }
            Ok(())
        });
        match gathered {
            // What was a folder is none any more.
            Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => {}
            gathered => gathered?,
        }
        Ok(has_rules)
    }
}

impl Item {
    /// By path: what lies in a folder comes as if its name ended in `/`.
    fn order(&self, other: &Self) -> Ordering {
        fn key(item: &Item) -> (&[u8], Option<u8>) {
            match item {
                Item::File(candidate) => (candidate.name.to_bytes(), None),
                Item::Inside(name, _) => (name.to_bytes(), Some(b'/')),
            }
        }
        let ((one, after_one), (two, after_two)) = (key(self), key(other));
        let common = one.len().min(two.len());
        // Most names differ early: whole slices are compared before the one byte that may follow.
        one[..common].cmp(&two[..common]).then_with(|| {
            let next = |name: &[u8], after: Option<u8>| name.get(common).copied().or(after);
            next(one, after_one).cmp(&next(two, after_two))
        })
    }
}
