//! The files of a run for its archive: also those that policy hides, because the archive replaces them.

use std::ffi::{CStr, OsStr};
use std::io::{self, Read as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tar::{Builder, EntryType};

use crate::base::MANIFEST_NAME;
use crate::dir::{entries, open_dir, open_under};
use crate::export::{Exactly, header};
use crate::import::SOURCE_NAME;
use crate::workspaces::{RunEntry, RunEntryKind, RunPart, Workspaces};

const ARTIFACTS: &CStr = c"artifacts";

impl Workspaces {
    /// Writes the files of a run to `out` as a tar archive: `base.manifest`, `base.late` if there is one, and `base.git/`,
    /// what the run started from; `artifacts/`, if it has files; and `repo/`, its tree. Special files are left out.
    ///
    /// The same files give the same bytes: the archive has no owners and times, and its order is that of the names.
    ///
    /// # Errors
    ///
    /// If the manifest of the base is missing, the disk or `out` fails, or once `cancel` is set. The archive is truncated then.
    pub fn write_archive(&self, run: &RunId, out: &mut dyn Write, cancel: &AtomicBool) -> io::Result<()> {
        let mut tar = Builder::new(out);
        for part in [RunPart::Base, RunPart::Artifacts, RunPart::Tree] {
            self.archive_part(run, part, &mut tar, cancel)?;
        }
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
        let mut has_manifest = false;
        self.visit_entries(run, part, &mut |RunEntry { path, kind }| {
            has_manifest |= path == MANIFEST_NAME.as_bytes();
            if cancel.load(Ordering::Relaxed) {
                return Err(io::Error::other("the archive is cancelled"));
            }
            match kind {
                // It is about this machine: other runs copy the base by it.
                RunEntryKind::File { .. } if path == SOURCE_NAME.as_bytes() => Ok(()),
                RunEntryKind::Folder => {
                    let path = [&*path, b"/"].concat();
                    tar.append_data(&mut header(EntryType::Directory, 0o755, 0), as_path(&path), io::empty())
                }
                RunEntryKind::Link { target } => {
                    tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), as_path(&path), as_path(&target))
                }
                RunEntryKind::File { mode } => {
                    let file = std::fs::File::from(open_under(&dir, &*path, OFlags::NONBLOCK | OFlags::NOCTTY)?);
                    let size = file.metadata()?.len();
                    let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
                    let mut bytes = Exactly { from: file.take(size), left: size };
                    tar.append_data(&mut header(EntryType::Regular, mode, size), as_path(&path), &mut bytes)
                }
            }
        })?;
        if part == RunPart::Base && !has_manifest {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("`{MANIFEST_NAME}` is missing")));
        }
        Ok(())
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
