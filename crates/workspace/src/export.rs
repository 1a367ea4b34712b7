//! Exports of a run: its tree or what has changed in it as an archive, and its changes as git writes them.

mod archive;
mod artifacts;
mod git;
mod packer;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;
use model::{Access, FileKind, LogicalPath, PathFacts, PathRejected, Rules, WHITEOUT, link_stays_inside};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::base_files::{BaseEntry, BaseFiles};
use crate::error::{check_cancelled, file_too_large};
use crate::guard::{Blocking, FoundEntry, GuardError, OpenFile, Opened, Root, TreeFolder, is_hard_linked};
use crate::ignored::RuleScope;
use crate::kept_files::Pin;
use crate::opened_file::{is_readable, is_secret_file};
use crate::stamp::FileStamp;
use crate::{Workspace, WorkspaceError};

pub use artifacts::ArtifactBundle;
pub use git::{Bundle, GitExport};
use packer::Packer;
pub use packer::{EntryTime, EntryTimes, PackedFile, pack_layer};

/// The most paths that are kept of what an export leaves out.
const MAX_LEFT_OUT: usize = 100;

impl Workspace {
    /// Begins an export of the tree as it is now. Left out are files that policy hides or git ignores, special files, and symbolic
    /// links to paths outside the tree. Changes that are applied later do not affect the export: it keeps the files that they replace.
    ///
    /// # Errors
    ///
    /// If the disk fails, or a file is larger than the policy's `maxTransferBytes`; `Cancelled`.
    pub fn begin_export(self: &Arc<Self>, rules: &Rules, cancel: &AtomicBool) -> Result<TreeExport, WorkspaceError> {
        let mut export = TreeExport::new(self);
        let root = ExportEntry { path: LogicalPath::root(), kind: ExportEntryKind::Folder };
        let mut pending = vec![(root, RuleScope::default())];
        while let Some((entry, above)) = pending.pop() {
            check_cancelled(cancel)?;
            let is_folder = matches!(entry.kind, ExportEntryKind::Folder);
            if is_folder {
                pending.append(&mut export.list_folder(rules, &entry.path, &above)?);
            }
            // The folder itself is left out like its files, which are read nevertheless: policy may permit one of them.
            if !is_folder || is_shown_folder(rules, &entry.path) {
                export.entries.push(entry);
            }
        }
        Ok(export)
    }

    /// Begins an export of the files at `paths` as they are now, in path order: those that exist, and the names of those that do not.
    /// The same is left out as from an export of the tree, and changes that are applied later do not affect it either.
    ///
    /// # Errors
    ///
    /// As for [`begin_export`](Self::begin_export).
    pub fn begin_layer<'a>(
        self: &Arc<Self>,
        rules: &Rules,
        paths: impl IntoIterator<Item = &'a LogicalPath>,
        cancel: &AtomicBool,
    ) -> Result<TreeExport, WorkspaceError> {
        let mut export = TreeExport::new(self);
        for path in paths {
            check_cancelled(cancel)?;
            let names_whiteout = path.components().any(|name| name.starts_with(WHITEOUT));
            if names_whiteout
                || !is_readable(rules, path, false)
                || self.tree().is_ignored(path, None, Blocking::Allowed)?
            {
                export.left_out.add(Some(path));
                continue;
            }
            let found = match self.tree().root.find(path) {
                // The files of a folder are at paths of their own.
                Ok(found) => found.filter(|found| !found.file_type().is_dir()),
                // Its folder is a file or a link now.
                Err(GuardError::NotADirectory | GuardError::Rejected(PathRejected::LinkInMutation)) => None,
                Err(error) => {
                    error.unless_disk()?;
                    export.left_out.add(Some(path));
                    continue;
                }
            };
            match found {
                Some(found) => match export.kind_of(rules, path, &found)? {
                    Some(kind) => export.entries.push(ExportEntry { path: path.clone(), kind }),
                    None => export.left_out.add(Some(path)),
                },
                None => export.deleted.push(path.clone()),
            }
        }
        Ok(export)
    }
}

/// An export of the tree, or of what has changed in it, as it was when the export began.
pub struct TreeExport {
    workspace: Arc<Workspace>,
    /// In path order.
    deleted: Vec<LogicalPath>,
    /// In path order.
    entries: Vec<ExportEntry>,
    left_out: LeftOutFiles,
    pin: Pin,
}

/// What an export leaves out.
#[derive(Clone, Debug, Default)]
pub struct LeftOutFiles {
    /// The number of entries, without those that git ignores.
    pub count: u64,
    /// The first paths.
    pub paths: Vec<LogicalPath>,
}

impl LeftOutFiles {
    /// Adds an entry, with its path if a call can name it.
    fn add(&mut self, path: Option<&LogicalPath>) {
        self.count += 1;
        if self.paths.len() < MAX_LEFT_OUT {
            self.paths.extend(path.cloned());
        }
    }
}

/// An entry of an export.
struct ExportEntry {
    path: LogicalPath,
    kind: ExportEntryKind,
}

enum ExportEntryKind {
    Folder,
    File {
        stamp: FileStamp,
        is_executable: bool,
        /// The file of the base that it is; `None` if the run has it itself.
        base: Option<(Arc<BaseFiles>, BaseEntry)>,
    },
    /// A link with its target.
    Link(String),
}

impl TreeExport {
    fn new(workspace: &Arc<Workspace>) -> Self {
        // Before the first file is listed.
        let pin = Pin::new(workspace.kept());
        let workspace = Arc::clone(workspace);
        Self { workspace, deleted: Vec::new(), entries: Vec::new(), left_out: LeftOutFiles::default(), pin }
    }

    /// Returns the entries of the folder at `path` in reverse order, each with the rules in force in that folder. `above` are the rules
    /// in force in its parent.
    fn list_folder(
        &mut self,
        rules: &Rules,
        path: &LogicalPath,
        above: &RuleScope,
    ) -> Result<Vec<(ExportEntry, RuleScope)>, WorkspaceError> {
        let workspace = Arc::clone(&self.workspace);
        let (tree, mut listed) = (workspace.tree(), Vec::new());
        let Some(ignored) = &tree.ignored else { return Ok(listed) };
        let folder = match open(&workspace, path)? {
            Some(opened) if opened.file_type().is_dir() => opened.into_folder(path),
            _ => return Ok(listed),
        };
        let scope = ignored.enter(&tree.root, above, path.as_str().as_bytes(), &folder)?;
        for (name, file_type) in sorted_entries(&tree.root, &folder)? {
            // No tool can name entries whose names are not UTF-8 or are Git-internal.
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else {
                self.left_out.add(None);
                continue;
            };
            let is_folder = file_type.is_dir();
            if tree.hides(&scope, path.as_str().as_bytes(), is_folder)? {
                continue;
            }
            let kind = if is_folder {
                Some(ExportEntryKind::Folder)
            } else if is_readable(rules, &path, false) {
                let found = tree.root.look(&folder, &name).map_err(GuardError::from);
                // Without one, it was removed since its folder was read.
                let found = found.map(Some).or_else(|error| error.unless_disk().map(|()| None))?;
                found.map(|found| self.kind_of(rules, &path, &found)).transpose()?.flatten()
            } else {
                None
            };
            match kind {
                Some(kind) => listed.push((ExportEntry { path, kind }, scope.clone())),
                None => self.left_out.add(Some(&path)),
            }
        }
        listed.reverse();
        Ok(listed)
    }

    /// Returns how the file or link that was found at `path` is exported; `None` if it is left out.
    fn kind_of(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        found: &FoundEntry,
    ) -> Result<Option<ExportEntryKind>, WorkspaceError> {
        match found.file_type() {
            FileType::Symlink => {
                let link = found.link().or_else(|error| error.unless_disk().map(|()| None))?;
                let target = link.and_then(|link| String::from_utf8(link.target).ok());
                // Where a `..` after a name leads depends on what the name is.
                let target = target.filter(|target| {
                    link_stays_inside(path.as_str().as_bytes(), target.as_bytes())
                        || self.workspace.tree().root.open(path, Blocking::Allowed).is_ok()
                });
                Ok(target.map(ExportEntryKind::Link))
            }
            // A file with several names may be an alias of one that policy hides.
            FileType::RegularFile if !is_hard_linked(&found.stat) => {
                let (stamp, most) = (FileStamp::of(&found.stat), rules.policy().max_transfer_bytes);
                if stamp.size > most {
                    return Err(file_too_large(path, most, stamp.size).into());
                }
                let is_executable = found.stat.st_mode & 0o111 != 0;
                Ok(Some(ExportEntryKind::File { stamp, is_executable, base: found.in_base() }))
            }
            _ => Ok(None),
        }
    }

    /// The entries that policy hides by their names, that are special, or that have names which no call can use. After
    /// [`leave_out_secrets`](Self::leave_out_secrets), also those that policy hides by their content.
    pub fn left_out(&self) -> &LeftOutFiles {
        &self.left_out
    }

    /// Leaves out the files that policy hides by their content or that cannot be read, so that it is known before the export is
    /// written which they are.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn leave_out_secrets(&mut self, rules: &Rules) -> Result<(), WorkspaceError> {
        for entry in std::mem::take(&mut self.entries) {
            let is_left_out = match &entry.kind {
                ExportEntryKind::File { stamp, base, .. } => {
                    match self.open_file(&entry.path, *stamp, base.as_ref())? {
                        Some((file, _)) => is_secret_file(rules, &entry.path, &file)?,
                        None => true,
                    }
                }
                ExportEntryKind::Folder | ExportEntryKind::Link(_) => false,
            };
            if is_left_out {
                self.left_out.add(Some(&entry.path));
            } else {
                self.entries.push(entry);
            }
        }
        Ok(())
    }

    /// Writes the export as tar.gz to `out`, in path order, without the files that `rules` hide by their content.
    ///
    /// The same tree at the same record gives the same bytes: the archive has no owners, and its times are those of the records.
    ///
    /// # Errors
    ///
    /// If the disk or `out` fails, a file becomes shorter while it is written, or changes replace more files meanwhile than can be
    /// kept. The archive is truncated then.
    pub fn write(&self, rules: &Rules, times: &EntryTimes, out: &mut dyn Write) -> Result<(), WorkspaceError> {
        let gzip = self.write_tar(rules, times, GzEncoder::new(out, Compression::fast()))?;
        gzip.finish()?.flush()?;
        Ok(())
    }

    /// Writes the export as tar to `out`, in the form of a layer of an OCI image: for each deleted file an empty one with the prefix
    /// `.wh.`, and then the files.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn write_layer(&self, rules: &Rules, times: &EntryTimes, out: &mut dyn Write) -> Result<(), WorkspaceError> {
        Ok(self.write_tar(rules, times, out)?.flush()?)
    }

    fn write_tar<W: Write>(&self, rules: &Rules, times: &EntryTimes, out: W) -> Result<W, WorkspaceError> {
        let mut packer = Packer::new(out);
        for path in &self.deleted {
            packer.whiteout(path, times.of(path))?;
        }
        for ExportEntry { path, kind } in &self.entries {
            let (name, time) = (path.as_str().as_bytes(), times.of(path));
            match kind {
                ExportEntryKind::Folder => packer.folder(name, times.created)?,
                ExportEntryKind::Link(target) => packer.link(name, target.as_bytes(), time)?,
                ExportEntryKind::File { stamp, is_executable, base } => {
                    // Again, since it may have been changed from outside.
                    let Some((file, size)) = self.open_file(path, *stamp, base.as_ref())? else { continue };
                    if !is_secret_file(rules, path, &file)? {
                        let mode = if *is_executable { 0o755 } else { 0o644 };
                        packer.file(name, mode, size, file.into_reader()?, time)?;
                    }
                }
            }
        }
        Ok(packer.finish()?)
    }

    /// Opens the file that was at `path` when the export began, and returns its size. `None` if it was removed since, but by no change.
    fn open_file(
        &self,
        path: &LogicalPath,
        stamp: FileStamp,
        base: Option<&(Arc<BaseFiles>, BaseEntry)>,
    ) -> io::Result<Option<(OpenFile, u64)>> {
        if let Some((files, entry)) = base {
            return Ok(Some((OpenFile::Base(Arc::clone(files), *entry), stamp.size)));
        }
        let present = open(&self.workspace, path)?;
        if !present.as_ref().is_some_and(|opened| FileStamp::of(&opened.stat).has_same_content(&stamp))
            && let Some(kept) = self.pin.open(path, stamp)?
        {
            return Ok(Some((kept.into(), stamp.size)));
        }
        // One with another stamp was changed from outside.
        let present = present.filter(|opened| opened.file_type().is_file() && !opened.is_hard_linked());
        Ok(present.map(|opened| {
            let size = opened.size();
            (opened.file, size)
        }))
    }
}

fn is_shown_folder(rules: &Rules, path: &LogicalPath) -> bool {
    let facts = PathFacts { path, real_path: None, kind: FileKind::Directory, ignored: false, hard_linked: false };
    !path.is_root() && model::judge_path(rules, Access::Read, &facts).is_ok()
}

/// Opens what is at `path`; `None` if it was removed or replaced since its folder was read.
fn open(workspace: &Workspace, path: &LogicalPath) -> io::Result<Option<Opened>> {
    match workspace.tree().root.open_unlinked(path) {
        Ok(opened) => Ok(Some(opened)),
        Err(error) => error.unless_disk().map(|()| None),
    }
}

/// Returns the entries of a folder of a tree, sorted by name.
fn sorted_entries(root: &Root, folder: &TreeFolder) -> io::Result<Vec<(CString, FileType)>> {
    let mut entries = Vec::new();
    root.each_entry(folder, &mut Vec::new(), |name, file_type| {
        entries.push((name.to_owned(), file_type));
        Ok::<(), Errno>(())
    })?;
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}
