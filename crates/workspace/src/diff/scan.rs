//! Finding files that may differ from the base: what the run's own layer has, and what the run has removed.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;

use model::{LINK_MODE, LogicalPath, git_mode, is_link_mode};
use rustix::fs::{FileType, Stat};

use super::is_in;
use crate::base_files::manifest::{BaseManifest, FileIndex};
use crate::dir::each_entry;
use crate::error::check_cancelled;
use crate::guard::{self, Blocking, FoundEntry, GuardError, Root};
use crate::ignored::{Ignored, RuleScope};
use crate::stamp::FileStamp;
use crate::{Workspace, WorkspaceError};

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
struct Scan<'a> {
    root: &'a Root,
    ignored: &'a Ignored,
    manifest: &'a BaseManifest,
    cancel: &'a AtomicBool,
    /// The file or link at each path that the base has or that is not ignored, if there is one.
    found: BTreeMap<LogicalPath, Option<PresentFile>>,
    /// The folders to enter, each with the rules in force in its parent.
    folders: Vec<(LogicalPath, RuleScope)>,
}

/// Returns every file at or under `area` that may differ from the base, except ignored ones, in path order.
pub(super) fn scan(
    workspace: &Workspace,
    manifest: &BaseManifest,
    area: &LogicalPath,
    cancel: &AtomicBool,
) -> Result<Vec<DiffCandidate>, WorkspaceError> {
    let root = &workspace.tree().root;
    let Some(ignored) = &workspace.tree().ignored else { return Ok(Vec::new()) };
    let mut scan = Scan { root, ignored, manifest, cancel, found: BTreeMap::new(), folders: Vec::new() };
    scan.begin(area)?;
    while let Some((path, above)) = scan.folders.pop() {
        check_cancelled(cancel)?;
        scan.enter(&path, &above)?;
    }
    for removed in root.hidden().into_iter().filter(|removed| is_in(removed, area)) {
        // The run may have written another file there since, which was found above.
        scan.found.entry(removed).or_insert(None);
    }
    let candidates = scan.found.into_iter().map(|(path, now)| {
        let base = manifest.get(path.as_str().as_bytes());
        DiffCandidate { path, base, now }
    });
    let counts = |candidate: &DiffCandidate| match candidate.base {
        // A file that git ignores belongs in a diff once the run has written it.
        Some(base) => !manifest.is_ignored(base) || ignored.has_written(&candidate.path),
        None => candidate.now.is_some(),
    };
    Ok(candidates.filter(counts).collect())
}

/// As [`scan`], for the files at `paths`, which the run has written.
pub(super) fn look_at<'a>(
    workspace: &Workspace,
    manifest: &BaseManifest,
    paths: impl Iterator<Item = &'a LogicalPath>,
    cancel: &AtomicBool,
) -> Result<Vec<DiffCandidate>, WorkspaceError> {
    let mut candidates = Vec::new();
    for path in paths {
        check_cancelled(cancel)?;
        let now = match workspace.tree().root.find(path) {
            Ok(Some(found)) if found.is_of_base() => continue,
            Ok(found) => found.and_then(|found| PresentFile::of(&found.stat)),
            // A file or a link is in place of its folder, or it cannot be read.
            Err(error) => error.unless_disk().map(|()| None)?,
        };
        let base = manifest.get(path.as_str().as_bytes());
        if base.is_some() || now.is_some() {
            candidates.push(DiffCandidate { path: path.clone(), base, now });
        }
    }
    Ok(candidates)
}

impl Scan<'_> {
    fn begin(&mut self, area: &LogicalPath) -> Result<(), WorkspaceError> {
        let Some(parent) = area.parent() else {
            self.folders.push((area.clone(), RuleScope::default()));
            return Ok(());
        };
        match self.root.find(area) {
            Ok(Some(found)) if found.is_of_base() => {}
            Ok(Some(FoundEntry { stat, .. })) => {
                let scope = self.ignored.scope_of(self.root, &parent, Blocking::Allowed)?;
                self.add(area.clone(), &stat, &scope)?;
            }
            Ok(None) | Err(GuardError::NotADirectory) => self.add_missing(area),
            Err(error) => return Err(error.at(area)),
        }
        Ok(())
    }

    /// Looks at the entries of one folder of the run's own layer.
    fn enter(&mut self, path: &LogicalPath, above: &RuleScope) -> Result<(), WorkspaceError> {
        let folder = match self.root.open_unlinked(path) {
            Ok(opened) if opened.file_type().is_dir() => opened.into_folder(path),
            Ok(_) => return Ok(()),
            // It was removed or is not readable.
            Err(error) => return Ok(error.unless_disk()?),
        };
        let Some(own) = Root::own_part(&folder) else { return Ok(()) };
        let mut names = Vec::new();
        each_entry(own.as_fd(), &mut Vec::new(), |name, _| {
            check_cancelled(self.cancel)?;
            names.push(name.to_owned());
            Ok::<(), WorkspaceError>(())
        })?;
        let scope = self.ignored.enter(self.root, above, path.as_str().as_bytes(), &folder)?;
        for name in names {
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else { continue };
            if let Some(stat) = self.root.stat_entry(&folder, &name)? {
                self.add(path, &stat, &scope)?;
            }
        }
        Ok(())
    }

    /// Adds what the run's own layer has at `path`, in a folder with the rules `scope`.
    fn add(&mut self, path: LogicalPath, stat: &Stat, scope: &RuleScope) -> Result<(), WorkspaceError> {
        let (raw, is_folder) = (path.as_str().as_bytes(), FileType::from_raw_mode(stat.st_mode).is_dir());
        if is_folder {
            if !self.ignored.hides(scope, raw, true)? {
                self.folders.push((path.clone(), scope.clone()));
            }
        } else {
            self.add_missing(&path);
        }
        let is_in_base = self.manifest.get(raw).is_some();
        if is_in_base || !is_folder && !self.ignored.hides(scope, raw, false)? {
            self.found.insert(path, PresentFile::of(stat));
        }
        Ok(())
    }

    /// Adds the base's files at and under `path`, where nothing is, or nothing but another file at `path` itself.
    fn add_missing(&mut self, path: &LogicalPath) {
        let raw = path.as_str().as_bytes();
        if self.manifest.get(raw).is_some() {
            self.found.insert(path.clone(), None);
        }
        self.found.extend(self.manifest.logical_files(raw).into_iter().map(|(path, _)| (path, None)));
    }
}

impl PresentFile {
    /// Returns the file or link that `stat` describes; `None` for anything else.
    pub(super) fn of(stat: &Stat) -> Option<Self> {
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
