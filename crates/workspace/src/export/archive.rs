//! The files of a run for its archive: also those that policy hides, because the archive replaces them.

use std::ffi::{CStr, OsStr};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use tar::{Builder, EntryType};

use crate::base::GIT_NAME;
use crate::dir::{entries, open_dir, open_under};
use crate::export::{Exactly, header};
use crate::guard::{Root, TreeFolder};
use crate::tree::Workspace;
use crate::workspaces::{RunEntry, RunEntryKind, RunPart, Workspaces, visit};

const ARTIFACTS: &CStr = c"artifacts";

/// The files of a run in its archive.
struct RunTar<'a, W: Write> {
    tar: &'a mut Builder<W>,
    cancel: &'a AtomicBool,
}

impl Workspaces {
    /// Writes the files of a run, whose tree is `workspace`, to `out` as a tar archive: `base.manifest` and `base.git/`, what the run
    /// started from; `artifacts/`, if it has files; and `repo/`, its tree. Special files are left out.
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
        let mut tar = Builder::new(out);
        let mut archive = RunTar { tar: &mut tar, cancel };
        let manifest = workspace.base().manifest_bytes()?;
        archive.file(b"base.manifest", 0o644, manifest.len() as u64, &*manifest)?;
        workspace.base().drop_other_objects()?;
        let folder = self.base_folder(run)?;
        visit(&folder, GIT_NAME, &mut |RunEntry { path, kind }| {
            let content = match kind {
                RunEntryKind::File { .. } => Some(open_under(&folder, &*path, OFlags::NONBLOCK | OFlags::NOCTTY)?),
                _ => None,
            };
            archive.entry(&[b"base.", &*path].concat(), kind, content.map(std::fs::File::from))
        })?;
        self.archive_part(run, RunPart::Artifacts, archive.tar, cancel)?;
        archive.tree(&workspace.tree().root)?;
        tar.into_inner()?.flush()
    }

    /// Appends a part of `run`'s folder to an archive; nothing of artifacts that are empty.
    ///
    /// # Errors
    ///
    /// As for [`write_archive`](Self::write_archive), and if a file disappears meanwhile.
    pub(super) fn archive_part(
        &self,
        run: &RunId,
        part: RunPart,
        tar: &mut Builder<impl Write>,
        cancel: &AtomicBool,
    ) -> io::Result<()> {
        let dir = self.open_run_folder(run)?;
        if part == RunPart::Artifacts && !has_artifacts(&dir)? {
            return Ok(());
        }
        let mut archive = RunTar { tar, cancel };
        self.visit_entries(run, part, &mut |RunEntry { path, kind }| {
            let content = match kind {
                RunEntryKind::File { .. } => Some(open_under(&dir, &*path, OFlags::NONBLOCK | OFlags::NOCTTY)?),
                _ => None,
            };
            archive.entry(&path, kind, content.map(std::fs::File::from))
        })
    }
}

impl<W: Write> RunTar<'_, W> {
    /// Appends the tree, in the order of paths.
    fn tree(&mut self, root: &Root) -> io::Result<()> {
        self.folder(b"repo")?;
        let top = root.open_root().map_err(|error| io::Error::other(format!("{error:?}")))?;
        self.contents(root, &top, b"repo")
    }

    fn contents(&mut self, root: &Root, folder: &TreeFolder, path: &[u8]) -> io::Result<()> {
        let mut names = Vec::new();
        root.each_entry(folder, &mut Vec::new(), |name, file_type| {
            self.check_cancelled()?;
            names.push((name.to_owned(), file_type));
            Ok::<(), io::Error>(())
        })?;
        names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (name, file_type) in names {
            let path = [path, b"/", name.to_bytes()].concat();
            match file_type {
                FileType::Directory => {
                    self.folder(&path)?;
                    match root.open_subfolder(folder, &name) {
                        Ok(inner) => self.contents(root, &inner, &path)?,
                        Err(error) => error.unless_disk()?,
                    }
                }
                FileType::Symlink => {
                    let Some(target) = root.read_link(folder, &name)? else { continue };
                    self.entry(&path, RunEntryKind::Link { target }, None)?;
                }
                FileType::RegularFile => match root.open_entry(folder, &name) {
                    Ok(opened) => {
                        self.regular_file(&path, opened.stat.st_mode, opened.size(), opened.file.into_reader()?)?;
                    }
                    Err(error) => error.unless_disk()?,
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &[u8], kind: RunEntryKind, content: Option<std::fs::File>) -> io::Result<()> {
        match (kind, content) {
            (RunEntryKind::Folder, _) => self.folder(path),
            (RunEntryKind::Link { target }, _) => {
                self.check_cancelled()?;
                let mut header = header(EntryType::Symlink, 0o777, 0);
                self.tar.append_link(&mut header, as_path(path), as_path(&target))
            }
            (RunEntryKind::File { mode }, Some(file)) => {
                let size = file.metadata()?.len();
                self.regular_file(path, mode, size, file)
            }
            (RunEntryKind::File { .. }, None) => Ok(()),
        }
    }

    fn regular_file(&mut self, path: &[u8], mode: u32, size: u64, from: impl io::Read) -> io::Result<()> {
        self.file(path, if mode & 0o111 == 0 { 0o644 } else { 0o755 }, size, from)
    }

    fn folder(&mut self, path: &[u8]) -> io::Result<()> {
        self.check_cancelled()?;
        let path = [path, b"/"].concat();
        self.tar.append_data(&mut header(EntryType::Directory, 0o755, 0), as_path(&path), io::empty())
    }

    fn file(&mut self, path: &[u8], mode: u32, size: u64, from: impl io::Read) -> io::Result<()> {
        self.check_cancelled()?;
        let mut bytes = Exactly { from: from.take(size), left: size };
        self.tar.append_data(&mut header(EntryType::Regular, mode, size), as_path(path), &mut bytes)
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

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
