//! Finding files that may differ from the base: what the run's own layer has, and what the run has removed.

use std::ffi::CString;
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;

use model::{LINK_MODE, LogicalPath, git_mode, is_link_mode};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::base_files::BaseFiles;
use crate::base_files::manifest::FileIndex;
use crate::dir::each_entry;
use crate::error::check_cancelled;
use crate::guard::{self, Blocking, FoundEntry, GuardError, Root};
use crate::ignored::{Ignored, RuleScope};
use crate::stamp::FileStamp;
use crate::{Tree, Workspace, WorkspaceError};

/// What to compare.
pub(super) enum Area {
    Folder(LogicalPath),
    File(LogicalPath),
}

/// A file that may differ from the base.
pub(crate) struct DiffCandidate {
    pub(crate) path: LogicalPath,
    /// The base's file at the path.
    pub(super) base: Option<FileIndex>,
    /// What is in the tree now.
    pub(crate) now: Option<PresentFile>,
}

/// A file or link in the tree.
pub(crate) struct PresentFile {
    pub(super) stamp: FileStamp,
    /// Its permission bits, or [`LINK_MODE`].
    pub(super) mode: u32,
    pub(super) hard_linked: bool,
}

/// A walk over the run's own layer.
pub(super) struct Scan<'a> {
    workspace: &'a Workspace,
    tree: &'a Tree,
    ignored: &'a Ignored,
    loaded: &'a BaseFiles,
    cancel: &'a AtomicBool,
}

impl<'a> Scan<'a> {
    /// Returns every file in `area` that may differ from the base, except ignored ones, in no particular order.
    pub(super) fn run(
        workspace: &'a Workspace,
        loaded: &'a BaseFiles,
        area: &Area,
        cancel: &'a AtomicBool,
    ) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let Some(scan) = Self::new(workspace, loaded, cancel) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        match area {
            Area::File(path) => found.extend(scan.file(path)?),
            Area::Folder(path) => scan.folder(path, &mut found)?,
        }
        found.retain(|candidate| scan.counts(candidate));
        Ok(found)
    }

    /// Returns those of `paths` that may differ from the base.
    pub(super) fn run_files<'p>(
        workspace: &'a Workspace,
        loaded: &'a BaseFiles,
        paths: impl IntoIterator<Item = &'p LogicalPath>,
        cancel: &'a AtomicBool,
    ) -> Result<Vec<DiffCandidate>, WorkspaceError> {
        let Some(scan) = Self::new(workspace, loaded, cancel) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for path in paths {
            check_cancelled(cancel)?;
            found.extend(scan.file(path)?.filter(|candidate| scan.counts(candidate)));
        }
        Ok(found)
    }

    fn new(workspace: &'a Workspace, loaded: &'a BaseFiles, cancel: &'a AtomicBool) -> Option<Self> {
        let tree = workspace.tree();
        Some(Self { workspace, tree, ignored: tree.ignored.as_ref()?, loaded, cancel })
    }

    /// Whether the candidate belongs in a diff. A file that git ignores does once the run has written it.
    fn counts(&self, candidate: &DiffCandidate) -> bool {
        let is_ignored = candidate.base.is_some_and(|file| self.loaded.manifest.is_ignored(file));
        !is_ignored || self.ignored.has_written(&candidate.path)
    }

    fn file(&self, path: &LogicalPath) -> Result<Option<DiffCandidate>, WorkspaceError> {
        let base = self.loaded.manifest.get(path.as_str().as_bytes());
        let found = match self.tree.root.find(path) {
            Ok(found) => found,
            Err(GuardError::NotADirectory) => None,
            Err(error) => return Err(error.at(path)),
        };
        if found.as_ref().is_some_and(FoundEntry::is_of_base) {
            return Ok(None);
        }
        if base.is_none() && self.ignored.is_file_ignored(&self.tree.root, path, Blocking::Allowed)? {
            return Ok(None);
        }
        Ok(self.candidate(path.clone(), base, found.and_then(|found| PresentFile::of(&found.stat))))
    }

    fn folder(&self, path: &LogicalPath, found: &mut Vec<DiffCandidate>) -> Result<(), WorkspaceError> {
        let scope = match path.parent() {
            None => RuleScope::default(),
            Some(parent) => self.ignored.scope_of(&self.tree.root, &parent, Blocking::Allowed)?,
        };
        let mut folders = vec![(path.clone(), scope)];
        while let Some((path, scope)) = folders.pop() {
            check_cancelled(self.cancel)?;
            self.enter(&path, &scope, &mut folders, found)?;
        }
        let area = Area::Folder(path.clone());
        for removed in self.tree.root.hidden().into_iter().filter(|removed| area.contains(removed)) {
            let is_gone = match self.tree.root.find(&removed) {
                // The run may have written another file there since, which is found above.
                Ok(found) => found.is_none_or(|found| PresentFile::of(&found.stat).is_none()),
                Err(error) => error.unless_disk().map(|()| true)?,
            };
            if is_gone {
                let base = self.loaded.manifest.get(removed.as_str().as_bytes());
                found.extend(self.candidate(removed, base, None));
            }
        }
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        found.dedup_by(|a, b| a.path == b.path);
        Ok(())
    }

    /// Looks at the entries of one folder of the run's own layer. Adds its subfolders to `folders`.
    fn enter(
        &self,
        path: &LogicalPath,
        above: &RuleScope,
        folders: &mut Vec<(LogicalPath, RuleScope)>,
        found: &mut Vec<DiffCandidate>,
    ) -> Result<(), WorkspaceError> {
        let opened = match self.tree.root.open_unlinked(path) {
            Ok(opened) if opened.file_type().is_dir() => opened.into_folder(path),
            Ok(_) => return Ok(()),
            // It was removed or is not readable.
            Err(error) => return Ok(error.unless_disk()?),
        };
        let Some(own) = Root::own_part(&opened) else { return Ok(()) };
        let mut names: Vec<(CString, FileType)> = Vec::new();
        each_entry(own.as_fd(), &mut Vec::new(), |name, file_type| {
            check_cancelled(self.cancel)?;
            names.push((name.to_owned(), file_type));
            Ok::<(), WorkspaceError>(())
        })?;
        let scope = self.ignored.enter(&self.tree.root, above, path.as_str().as_bytes(), &opened)?;
        let manifest = &self.loaded.manifest;
        for (name, file_type) in names {
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else { continue };
            let raw = path.as_str().as_bytes();
            let base = manifest.get(raw);
            if file_type.is_dir() {
                // A folder in place of the base's file.
                found.extend(self.candidate(path.clone(), base, None));
                if !self.ignored.hides(&scope, raw, true)? {
                    folders.push((path, scope.clone()));
                }
                continue;
            }
            self.add_replaced_folder(&path, found);
            let stat = match rustix::fs::statat(own, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if base.is_none() && self.ignored.hides(&scope, raw, false)? {
                continue;
            }
            found.extend(self.candidate(path, base, PresentFile::of(&stat)));
        }
        Ok(())
    }

    /// Adds the base's files under `path`, at which the run's own layer has a file.
    fn add_replaced_folder(&self, path: &LogicalPath, found: &mut Vec<DiffCandidate>) {
        let manifest = &self.loaded.manifest;
        if manifest.folder(path.as_str().as_bytes()).is_none() {
            return;
        }
        let replaced = path.as_str().as_bytes();
        let is_inside =
            |folder: &[u8]| folder.strip_prefix(replaced).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
        for (folder, files) in manifest.folders().filter(|(folder, _)| is_inside(folder)) {
            for file in files.map(FileIndex) {
                let path = manifest.logical_path(folder, file);
                found.extend(path.map(|path| DiffCandidate { path, base: Some(file), now: None }));
            }
        }
    }

    fn candidate(&self, path: LogicalPath, base: Option<FileIndex>, now: Option<PresentFile>) -> Option<DiffCandidate> {
        let same = match (base, &now) {
            (Some(file), Some(now)) => {
                now.git_mode() == self.loaded.manifest.mode(file) && self.workspace.is_same(file, &now.stamp)
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        (!same).then_some(DiffCandidate { path, base, now })
    }
}

impl PresentFile {
    /// Returns the file or link that `stat` describes; `None` for anything else.
    pub(super) fn of(stat: &rustix::fs::Stat) -> Option<Self> {
        let mode = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => stat.st_mode & 0o7777,
            FileType::Symlink => LINK_MODE,
            _ => return None,
        };
        let hard_linked = guard::is_hard_linked(stat);
        Some(Self { stamp: FileStamp::of(stat), mode, hard_linked })
    }

    pub(crate) fn is_link(&self) -> bool {
        is_link_mode(self.mode)
    }

    pub(crate) fn git_mode(&self) -> u32 {
        git_mode(self.mode)
    }
}
