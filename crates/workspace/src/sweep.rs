//! A walk over all that lies beneath a folder, in no particular order, with no more than one folder open at a time.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;

use model::{Access, FileKind, LogicalPath, PathRejected, Rules};
use rustix::fs::{AtFlags, FileType, Stat};

use crate::guard::{GuardFault, Wait};
use crate::ignored::Scope;
use crate::walk::{Whereabouts, each_entry, escape};
use crate::{Fault, Tree};

/// What a sweep passes over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passes {
    /// What git ignores, unless the folder asked for is ignored itself.
    pub(crate) ignored: bool,
    /// What is generated or vendored, unless the folder asked for is.
    pub(crate) made: bool,
}

/// Something that a sweep came by.
pub(crate) struct Seen<'a> {
    /// Where it is; `None` where its name is not UTF-8 or the path too long.
    pub(crate) at: Option<&'a Whereabouts>,
    /// Its name, escaped.
    pub(crate) name: &'a str,
    /// What it is.
    pub(crate) stat: &'a Stat,
    /// The folder that it lies in.
    pub(crate) dir: BorrowedFd<'a>,
    /// Its name in that folder.
    pub(crate) raw_name: &'a CStr,
    /// Whether git ignores it; only asked where ignored files are not passed over.
    pub(crate) ignored: bool,
}

/// A sweep under way.
struct Sweep<'a> {
    tree: &'a Tree,
    cancel: &'a AtomicBool,
    passes: Passes,
    /// Folders still to be entered, each with the rules in force in the folder above it.
    pending: Vec<(Whereabouts, Scope)>,
}

impl Tree {
    /// Tells `tell` everything beneath the folder at `path`, but `.git`.
    ///
    /// # Errors
    ///
    /// As [`Tree::list`], and whatever `tell` fails with.
    pub(crate) fn sweep(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        passes: Passes,
        cancel: &AtomicBool,
        mut tell: impl FnMut(&Seen<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let opened = self.open_folder(rules, Access::Read, path)?;
        let at = Whereabouts { shown: path.clone(), real: opened.real };
        let scope = match &self.ignored {
            Some(ignored) => ignored.scope_of(&self.root, at.real(), Wait::Allowed)?,
            None => Scope::default(),
        };
        let passes = Passes {
            ignored: passes.ignored && !scope.excludes_folder_itself(),
            made: passes.made && !is_made(FileKind::of_dir(at.real())),
        };
        let mut sweep = Sweep { tree: self, cancel, passes, pending: Vec::new() };
        sweep.folder(opened.file.as_fd(), &at, &scope, &mut tell)?;
        while let Some((at, above)) = sweep.pending.pop() {
            let opened = match self.root.open_unlinked(at.real()) {
                Ok(opened) if opened.file_type() == FileType::Directory => opened,
                Err(GuardFault::Io(error)) => return Err(error.into()),
                // It was a folder a moment ago.
                Ok(_) | Err(_) => continue,
            };
            let scope = match &self.ignored {
                Some(ignored) => {
                    ignored.enter(&self.root, &above, at.real().as_str().as_bytes(), opened.file.as_fd())?
                }
                None => Scope::default(),
            };
            sweep.folder(opened.file.as_fd(), &at, &scope, &mut tell)?;
        }
        Ok(())
    }
}

impl Sweep<'_> {
    fn folder(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &Whereabouts,
        scope: &Scope,
        tell: &mut impl FnMut(&Seen<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut names: Vec<(CString, FileType)> = Vec::new();
        each_entry(dir, &mut Vec::new(), self.cancel, |name, file_type| {
            names.push((name.to_owned(), file_type));
            Ok(())
        })?;
        for (raw_name, file_type) in names {
            let is_folder = file_type == FileType::Directory;
            let place = match raw_name.to_str().map(|name| at.child(name)) {
                Ok(Err(PathRejected::GitInternal)) => continue,
                Ok(place) => place.ok(),
                Err(_) => None,
            };
            let ignored = self.is_ignored(place.as_ref(), scope, is_folder)?;
            if self.passes_over(place.as_ref(), ignored, is_folder) {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(dir, &raw_name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let name = escape(&raw_name);
            tell(&Seen { at: place.as_ref(), name: &name, stat: &stat, dir, raw_name: &raw_name, ignored })?;
            if let (true, Some(place)) = (is_folder, place) {
                self.pending.push((place, scope.clone()));
            }
        }
        Ok(())
    }

    fn is_ignored(&self, place: Option<&Whereabouts>, scope: &Scope, is_folder: bool) -> Result<bool, Fault> {
        match (&self.tree.ignored, place) {
            (None, _) => Ok(false),
            (Some(ignored), Some(place)) => Ok(ignored.hides(scope, place.real().as_str().as_bytes(), is_folder)?),
            // Nothing can be asked about it, so it counts as what the folder is.
            (Some(_), None) => Ok(scope.excludes_folder_itself()),
        }
    }

    fn passes_over(&self, place: Option<&Whereabouts>, ignored: bool, is_folder: bool) -> bool {
        if self.passes.ignored && ignored {
            return true;
        }
        self.passes.made
            && place.is_some_and(|place| {
                is_made(if is_folder { FileKind::of_dir(place.real()) } else { FileKind::of_path(place.real()) })
            })
    }
}

/// Whether tools make such files.
fn is_made(kind: FileKind) -> bool {
    matches!(kind, FileKind::Generated | FileKind::Vendored)
}
