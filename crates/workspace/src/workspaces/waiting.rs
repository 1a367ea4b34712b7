//! The folder `waiting/` of a run: large contents of calls that wait for a person's approval, each under the ID of its approval.
//!
//! A file is there before the ledger has its approval, and is removed after the ledger has the decision. One without a pending approval is
//! removed when the run is opened.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use model::{ApprovalId, RunId};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use super::Workspaces;
use super::run_copy::STAGED;
use crate::dir::{entries, open_dir, remove_file};

/// The folder. It is made with the first file.
pub(super) const WAITING: &str = "waiting";

impl Workspaces {
    /// Moves a staged file of `run`, which is synced, to `waiting/`, and syncs that.
    ///
    /// # Errors
    ///
    /// If the disk fails. The file is then in one of both folders.
    pub fn keep_waiting(&self, run: &RunId, staged: &str, approval: &ApprovalId) -> io::Result<()> {
        let dir = self.open_run_folder(run)?;
        let waiting = match rustix::fs::mkdirat(&dir, WAITING, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => open_dir(&dir, WAITING)?,
            Err(errno) => return Err(errno.into()),
        };
        rustix::fs::renameat(open_dir(&dir, STAGED)?, staged, &waiting, approval.as_str())?;
        for folder in [&waiting, &dir] {
            rustix::fs::fsync(folder)?;
        }
        Ok(())
    }

    /// Returns the waiting files of `run` with their sizes, of which there may be none.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn waiting(&self, run: &RunId) -> io::Result<Vec<(ApprovalId, u64)>> {
        let Some(waiting) = self.open_waiting_folder(run)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (name, kind) in entries(&waiting, usize::MAX)? {
            let id = name.to_str().ok().and_then(|name| ApprovalId::parse(name).ok());
            let Some(id) = id.filter(|_| kind == FileType::RegularFile) else { continue };
            let stat = rustix::fs::statat(&waiting, id.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
            found.push((id, u64::try_from(stat.st_size).unwrap_or(0)));
        }
        Ok(found)
    }

    /// Opens a waiting file of `run`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn open_waiting(&self, run: &RunId, approval: &ApprovalId) -> io::Result<Option<File>> {
        match self.open_file(run, format!("{WAITING}/{approval}").as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    /// Removes a waiting file of `run`. A missing one is no error.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn remove_waiting(&self, run: &RunId, approval: &ApprovalId) -> io::Result<()> {
        let Some(waiting) = self.open_waiting_folder(run)? else { return Ok(()) };
        Ok(remove_file(&waiting, approval.as_str())?)
    }

    fn open_waiting_folder(&self, run: &RunId) -> io::Result<Option<OwnedFd>> {
        let found = self.open_run_folder(run).and_then(|dir| Ok(open_dir(&dir, WAITING)?));
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }
}
