//! The files of a run for its archive: also those that policy hides, because the archive replaces them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::packer::{EntryTime, Packer};
use crate::base::{Base, GIT_NAME};
use crate::dir::{entries, open_dir, open_under};
use crate::export::sorted_entries;
use crate::guard::{Root, TreeFolder};
use crate::tree::Workspace;
use crate::workspaces::{RunEntry, RunEntryKind, Workspaces, visit};

const ARTIFACTS: &str = "artifacts";
/// The time of every entry.
const NO_TIME: EntryTime = EntryTime(0);

/// Packs the files of a run.
pub(super) struct RunPacker<'a, W: Write> {
    pub(super) packer: Packer<W>,
    pub(super) cancel: &'a AtomicBool,
}

impl Workspaces {
    /// Writes the files of a run, whose tree is `workspace`, to `out` as a tar archive: `base.manifest`, the list of what the run started
    /// from, with `base.git/`, its repository, or `base/`, its files, if it does not come from git; `artifacts/`, if it has files; and
    /// `repo/`, its tree. Special files are left out.
    ///
    /// The same files give the same bytes: the archive has no owners and times, and its order is that of the names.
    ///
    /// # Errors
    ///
    /// If the disk or `out` fails, or once `cancel` is set. The archive is truncated then.
    pub fn write_archive(
        &self,
        run: &RunId,
        workspace: &Workspace,
        out: &mut dyn Write,
        cancel: &AtomicBool,
    ) -> io::Result<()> {
        let mut archive = RunPacker { packer: Packer::new(out), cancel };
        let manifest = workspace.base().manifest_bytes()?;
        archive.packer.file(b"base.manifest", 0o644, manifest.len() as u64, &*manifest, NO_TIME)?;
        if workspace.base().is_from_git() {
            workspace.base().drop_other_objects()?;
            archive.folder(&self.base_folder(run)?, GIT_NAME, b"base.")?;
        } else {
            archive.base(workspace.base())?;
        }
        archive.artifacts(&self.open_run_folder(run)?)?;
        let root = &workspace.tree().root;
        let top = root.open_root().map_err(|error| io::Error::other(format!("{error:?}")))?;
        archive.packer.folder(b"repo", NO_TIME)?;
        archive.tree(root, &top, b"repo")?;
        archive.packer.finish()?.flush()
    }
}

impl<W: Write> RunPacker<'_, W> {
    /// Appends the artifacts of the run with the folder `dir`; nothing if there are none.
    pub(super) fn artifacts(&mut self, dir: &OwnedFd) -> io::Result<()> {
        if has_artifacts(dir)? { self.folder(dir, ARTIFACTS, b"") } else { Ok(()) }
    }

    /// Appends the files of a base.
    fn base(&mut self, base: &Base) -> io::Result<()> {
        let files = base.load()?;
        for (file, row) in files.manifest.rows() {
            self.check_cancelled()?;
            let name = [b"base/", &*row.path].concat();
            files.check(file)?;
            if files.is_link(file) {
                self.packer.link(&name, &files.bytes(file)?, NO_TIME)?;
            } else {
                self.packer.file(&name, row.mode, row.size, files.unchecked(file), NO_TIME)?;
            }
        }
        Ok(())
    }

    /// Appends the folder `top` of `dir` with everything in it. The names of the entries begin with `prefix`.
    fn folder(&mut self, dir: &OwnedFd, top: &str, prefix: &[u8]) -> io::Result<()> {
        visit(dir, top, &mut |RunEntry { path, kind }| {
            self.check_cancelled()?;
            let name = [prefix, &*path].concat();
            match kind {
                RunEntryKind::Folder => self.packer.folder(&name, NO_TIME),
                RunEntryKind::Link { target } => self.packer.link(&name, &target, NO_TIME),
                RunEntryKind::File { mode } => {
                    let file = File::from(open_under(dir, &*path, OFlags::NONBLOCK | OFlags::NOCTTY)?);
                    self.packer.file(&name, mode, file.metadata()?.len(), file, NO_TIME)
                }
            }
        })
    }

    /// Appends what is in a folder of a tree, in the order of names.
    fn tree(&mut self, root: &Root, folder: &TreeFolder, path: &[u8]) -> io::Result<()> {
        for (name, file_type) in sorted_entries(root, folder)? {
            self.check_cancelled()?;
            let path = [path, b"/", name.to_bytes()].concat();
            match file_type {
                FileType::Directory => {
                    self.packer.folder(&path, NO_TIME)?;
                    match root.open_subfolder(folder, &name) {
                        Ok(inner) => self.tree(root, &inner, &path)?,
                        Err(error) => error.unless_disk()?,
                    }
                }
                FileType::Symlink => {
                    if let Some(target) = root.read_link(folder, &name)? {
                        self.packer.link(&path, &target, NO_TIME)?;
                    }
                }
                FileType::RegularFile => match root.open_entry(folder, &name) {
                    Ok(opened) => {
                        let (mode, size) = (opened.stat.st_mode, opened.size());
                        self.packer.file(&path, mode, size, opened.file.into_reader()?, NO_TIME)?;
                    }
                    Err(error) => error.unless_disk()?,
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn check_cancelled(&self) -> io::Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(io::Error::other("the archive is cancelled")) } else { Ok(()) }
    }
}

/// Whether there are artifacts in the folder `dir` of a run.
pub(super) fn has_artifacts(dir: &OwnedFd) -> io::Result<bool> {
    match open_dir(dir, ARTIFACTS) {
        Ok(folder) => Ok(!entries(&folder, 1)?.is_empty()),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
