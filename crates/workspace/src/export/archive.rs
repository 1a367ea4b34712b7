//! The files of a run for its archive: also those that policy hides, because the archive replaces them.

use std::ffi::{CStr, OsStr};
use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use rustix::fs::FileType;
use rustix::io::Errno;
use tar::{Builder, EntryType};

use crate::dir::{entries, open_dir, open_file};
use crate::export::{Exactly, header};
use crate::workspaces::Workspaces;

/// The files and the folders of a run that are archived, in this order. The others are temporary or a cache.
const FILES: [&CStr; 2] = [c"base.manifest", c"base.late"];
const FOLDERS: [&CStr; 2] = [c"base.git", c"repo"];
/// A folder that is archived before them, unless it is empty.
pub(super) const ARTIFACTS: &CStr = c"artifacts";

impl Workspaces {
    /// Writes the files of a run to `out` as a tar archive: `base.manifest`, `base.late` if there is one, and `base.git/`,
    /// what the run started from, and `repo/`, its tree; before these `artifacts/`, if it has files. Special files are left out.
    ///
    /// The same files give the same bytes: the archive has no owners and times, and its order is that of the names.
    ///
    /// # Errors
    ///
    /// If the disk or `out` fails, or once `cancel` is set. The archive is truncated then.
    pub fn write_archive(&self, run: &RunId, out: &mut dyn Write, cancel: &AtomicBool) -> io::Result<()> {
        let dir = self.open_run_folder(run)?;
        let mut archive = Archive { tar: Builder::new(out), cancel };
        for file in FILES {
            match archive.file(dir.as_fd(), file, file.to_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && file != FILES[0] => {}
                written => written?,
            }
        }
        if has_entries(&dir, ARTIFACTS)? {
            archive.folder(dir.as_fd(), ARTIFACTS, ARTIFACTS.to_bytes())?;
        }
        for folder in FOLDERS {
            archive.folder(dir.as_fd(), folder, folder.to_bytes())?;
        }
        archive.tar.into_inner()?.flush()
    }
}

pub(super) fn has_entries(dir: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match open_dir(dir, name) {
        Ok(folder) => Ok(!entries(&folder, 1)?.is_empty()),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) struct Archive<'a, W: Write> {
    pub(super) tar: Builder<W>,
    pub(super) cancel: &'a AtomicBool,
}

impl<W: Write> Archive<'_, W> {
    /// Writes the folder `name` of `parent`, which is `path` in the archive, with everything in it. Keeps one handle open for
    /// each level.
    pub(super) fn folder(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> io::Result<()> {
        let dir = open_dir(parent, name)?;
        let own = [path, b"/"].concat();
        self.tar.append_data(&mut header(EntryType::Directory, 0o755, 0), as_path(&own), io::empty())?;
        let mut inner = entries(&dir, usize::MAX)?;
        inner.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (name, file_type) in inner {
            let path = [&own, name.to_bytes()].concat();
            match file_type {
                FileType::Directory => self.folder(dir.as_fd(), &name, &path)?,
                FileType::RegularFile => self.file(dir.as_fd(), &name, &path)?,
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&dir, &name, Vec::new())?;
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    self.tar.append_link(&mut header, as_path(&path), as_path(target.as_bytes()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> io::Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(io::Error::other("the archive is cancelled"));
        }
        let file = open_file(dir, name)?;
        let stat = rustix::fs::fstat(file.as_fd())?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mode = if stat.st_mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let mut bytes = Exactly { from: file.take(size), left: size };
        self.tar.append_data(&mut header(EntryType::Regular, mode, size), as_path(path), &mut bytes)
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
