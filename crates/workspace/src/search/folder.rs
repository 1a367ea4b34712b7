//! One folder of a search: what in it may be looked into, in order of path.

use std::cmp::Ordering;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, PathFacts, Rules};
use rustix::fs::FileType;

use super::globs::Globs;
use crate::ignored::{RULES_NAME, Scope};
use crate::walk::{Whereabouts, each_entry};
use crate::{Fault, Tree};

/// A file that may be searched, as far as its name tells.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) at: Whereabouts,
    pub(super) kind: FileKind,
}

/// Something in a folder.
pub(super) enum Item {
    /// A file.
    File(CString, Candidate),
    /// All that lies in a folder.
    Inside(CString, Whereabouts),
}

/// Reads folders one after another with the same buffers.
pub(super) struct Reader<'a> {
    pub(super) tree: &'a Tree,
    pub(super) rules: &'a Rules,
    pub(super) globs: &'a Globs,
    pub(super) cancel: &'a AtomicBool,
    raw: Vec<u8>,
    names: Vec<(CString, FileType)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(tree: &'a Tree, rules: &'a Rules, globs: &'a Globs, cancel: &'a AtomicBool) -> Self {
        Self { tree, rules, globs, cancel, raw: Vec::new(), names: Vec::new() }
    }

    /// What in `folder`, open as `dir`, may be searched, and the rules in force in it.
    pub(super) fn read(
        &mut self,
        dir: &OwnedFd,
        folder: &Whereabouts,
        scope: Entering,
    ) -> Result<(Scope, Vec<Item>), Fault> {
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

    /// What `name` in `folder` is to the search, unless it is left out.
    fn admit(
        &self,
        folder: &Whereabouts,
        scope: &Scope,
        name: CString,
        file_type: FileType,
    ) -> Result<Option<Item>, Fault> {
        // A name that is not UTF-8 cannot be told, nor one in git's own.
        let Ok(text) = name.to_str() else { return Ok(None) };
        let Ok(at) = folder.child(text) else { return Ok(None) };
        let is_folder = file_type == FileType::Directory;
        if self.globs.leave_out(&at.shown, is_folder) {
            return Ok(None);
        }
        let ignored = match &self.tree.ignored {
            Some(ignored) => ignored.hides(scope, at.real().as_str().as_bytes(), is_folder)?,
            None => false,
        };
        let kind = if is_folder { FileKind::Directory } else { FileKind::of_path(at.real()) };
        // Further names are looked for once the file is open.
        let facts = PathFacts { path: &at.shown, real_path: at.real.as_ref(), kind, ignored, hard_linked: false };
        if model::judge_path(self.rules, Access::Search, &facts).is_err() {
            return Ok(None);
        }
        Ok(Some(if is_folder { Item::Inside(name, at) } else { Item::File(name, Candidate { at, kind }) }))
    }

    /// Gathers files and folders, and leaves links and special files out; whether a `.gitignore` is among them.
    fn gather(&mut self, dir: &OwnedFd) -> Result<bool, Fault> {
        self.names.clear();
        let (names, mut has_rules) = (&mut self.names, false);
        let gathered = each_entry(dir.as_fd(), &mut self.raw, self.cancel, |name, file_type| {
            has_rules |= name.to_bytes() == RULES_NAME.as_bytes();
            if matches!(file_type, FileType::RegularFile | FileType::Directory) {
                names.push((name.to_owned(), file_type));
            }
            Ok(())
        });
        match gathered {
            // What was a folder is none any more.
            Err(Fault::Io(error)) if error.kind() == std::io::ErrorKind::NotADirectory => {}
            gathered => gathered?,
        }
        Ok(has_rules)
    }
}

/// How a folder is come by.
pub(super) enum Entering {
    /// It was asked for: the rules in force in it are these.
    Asked(Scope),
    /// From the folder above, in which these rules are in force.
    From(Scope),
}

impl Item {
    /// By path: what lies in a folder comes as if its name ended in `/`.
    fn order(&self, other: &Self) -> Ordering {
        fn key(item: &Item) -> (&[u8], bool) {
            match item {
                Item::File(name, _) => (name.to_bytes(), false),
                Item::Inside(name, _) => (name.to_bytes(), true),
            }
        }
        let ((one, one_inside), (two, two_inside)) = (key(self), key(other));
        let common = one.len().min(two.len());
        one[..common].cmp(&two[..common]).then_with(|| {
            let next = |name: &[u8], inside: bool| name.get(common).copied().or(inside.then_some(b'/'));
            next(one, one_inside).cmp(&next(two, two_inside))
        })
    }
}
