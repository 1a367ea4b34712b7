//! The folders that a start finds: partial imports and removals are deleted, and runs that the ledger does not know are moved
//! to `lost+found/`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use model::RunId;
use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use super::{STAGING, TRASH, Workspaces};
use crate::dir::{create_file, entries, fresh_name, open_dir};
use crate::guard;
use crate::remove::remove_tree;

/// The file that marks a run's folder until the ledger is known to have the run.
const UNFINISHED: &str = ".unfinished";
/// The folder, in the data folder, for runs that the ledger does not know.
const LOST: &str = "lost+found";

/// A run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    /// The run.
    pub run: RunId,
    /// Whether the run was not [confirmed](Workspaces::confirm) yet.
    pub is_unfinished: bool,
}

/// Whether the folder `dir` is marked as one of a run that the ledger may not have.
pub(super) fn has_unfinished(dir: &OwnedFd) -> io::Result<bool> {
    match rustix::fs::statat(dir, UNFINISHED, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Marks the folder `dir` as one of a run that the ledger may not have.
pub(super) fn mark_unfinished(dir: &OwnedFd) -> io::Result<()> {
    create_file(dir, UNFINISHED)?;
    Ok(())
}

impl Workspaces {
    /// Notes that the ledger has `run`, whose folder was imported. Until then a start takes the folder for a partial import.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn confirm(&self, run: &RunId) -> io::Result<()> {
        let dir = open_dir(&self.dir, run.as_str())?;
        match rustix::fs::unlinkat(&dir, UNFINISHED, AtFlags::empty()) {
            Ok(()) => Ok(rustix::fs::fsync(&dir)?),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the folder of `run`.
    pub(crate) fn open_run_folder(&self, run: &RunId) -> io::Result<OwnedFd> {
        Ok(open_dir(&self.dir, run.as_str())?)
    }

    /// Returns the folders of runs.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn folders(&self) -> io::Result<Vec<RunFolder>> {
        let mut folders = Vec::new();
        for name in folder_names(&self.dir)? {
            let Ok(run) = RunId::parse(&name) else { continue };
            let is_unfinished = self.is_unfinished(&run)?;
            folders.push(RunFolder { run, is_unfinished });
        }
        Ok(folders)
    }

    /// Whether `run` has a folder that was not [confirmed](Self::confirm).
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn is_unfinished(&self, run: &RunId) -> io::Result<bool> {
        let dir = match open_dir(&self.dir, run.as_str()) {
            Err(Errno::NOENT) => return Ok(false),
            dir => dir?,
        };
        has_unfinished(&dir)
    }

    /// Moves `run`'s folder to `lost+found/` in the data folder, and returns its name there.
    ///
    /// # Errors
    ///
    /// If the disk fails, or `lost+found/` is on another file system. The folder is not moved then.
    pub fn set_aside(&self, run: &RunId) -> io::Result<String> {
        let name = self.move_to_lost(run.as_str(), run)?.1;
        self.notes.remove(run);
        Ok(name)
    }

    /// Moves the folder `from` to `lost+found/`, durably, under the name of `run` or one that begins with it. Returns the handle of
    /// `lost+found/` and the name.
    pub(super) fn move_to_lost(&self, from: &str, run: &RunId) -> io::Result<(OwnedFd, String)> {
        let data_dir = guard::open_ambient_folder(&self.data_dir)?;
        match rustix::fs::mkdirat(&data_dir, LOST, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let lost = open_dir(&data_dir, LOST)?;
        let mut name = run.as_str().to_owned();
        let move_to = |name: &str| rustix::fs::renameat_with(&self.dir, from, &lost, name, RenameFlags::NOREPLACE);
        match move_to(&name) {
            Err(Errno::EXIST) => {
                name = fresh_name(&format!("{run}."));
                move_to(&name)?;
            }
            done => done?,
        }
        for dir in [&lost, &self.dir, &data_dir] {
            rustix::fs::fsync(dir)?;
        }
        Ok((lost, name))
    }

    /// Opens `lost+found/`, if there is one.
    pub(super) fn open_lost(&self) -> io::Result<Option<OwnedFd>> {
        match open_dir(guard::open_ambient_folder(&self.data_dir)?, LOST) {
            Err(Errno::NOENT) => Ok(None),
            lost => Ok(Some(lost?)),
        }
    }

    /// Returns the names of the folders in `lost+found/` that were moved there.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn lost(&self) -> io::Result<Vec<String>> {
        let Some(lost) = self.open_lost()? else { return Ok(Vec::new()) };
        let mut names = folder_names(&lost)?;
        // The file system itself may use a folder of that name.
        names.retain(|name| name.split('.').next().is_some_and(|run| RunId::parse(run).is_ok()));
        names.sort_unstable();
        Ok(names)
    }

    /// Removes what earlier processes have left of imports and removals, of runs and of bases, and returns how many folders there were.
    /// Runs of this process are left alone; it must not have begun a base.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn sweep(&self) -> io::Result<u64> {
        let mut removed = self.bases.remove_unfinished()?;
        for name in folder_names(&self.dir)? {
            if (name.starts_with(STAGING) || name.starts_with(TRASH)) && !name.contains(&self.tag) {
                remove_tree(self.dir.as_fd(), name.as_bytes())?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Returns the names of the folders in `dir` that are UTF-8.
fn folder_names(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let folders = entries(dir, usize::MAX)?.into_iter().filter(|(_, file_type)| file_type.is_dir());
    Ok(folders.filter_map(|(name, _)| name.into_string().ok()).collect())
}
