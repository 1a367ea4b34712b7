//! Folders that a start finds: what was left half made is removed, and what the ledger does not know is set aside.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use model::RunId;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{STAGING, TRASH, Workspaces, fresh_name, open_folder, remove};
use crate::guard;

/// The file in a run's folder for as long as the ledger need not have the run.
const UNFINISHED: &str = ".unfinished";
/// The folder, in the data folder, of what the ledger does not know.
const LOST: &str = "lost+found";

/// A run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    /// The run.
    pub run: RunId,
    /// Whether nobody has confirmed yet that the ledger has the run: see [`Workspaces::confirm`].
    pub is_unfinished: bool,
}

/// Marks the folder `dir` as one of a run that the ledger need not have.
pub(super) fn mark(dir: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, UNFINISHED, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(())
}

impl Workspaces {
    /// Notes that the ledger has `run`, whose folder an import has made. Until then a start takes the folder for what a killed
    /// import has left.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn confirm(&self, run: &RunId) -> io::Result<()> {
        let dir = open_folder(&self.dir, run.as_str())?;
        match rustix::fs::unlinkat(&dir, UNFINISHED, AtFlags::empty()) {
            Ok(()) => Ok(rustix::fs::fsync(&dir)?),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The folders of runs.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
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
    /// Where the disk fails.
    pub fn is_unfinished(&self, run: &RunId) -> io::Result<bool> {
        let dir = match open_folder(&self.dir, run.as_str()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            dir => dir?,
        };
        match rustix::fs::statat(&dir, UNFINISHED, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Moves `run`'s folder to `lost+found/` in the data folder, and gives its name there.
    ///
    /// # Errors
    ///
    /// Where the disk fails, or `lost+found/` is on another one; the folder stays where it is then.
    pub fn set_aside(&self, run: &RunId) -> io::Result<String> {
        let data_dir = guard::open_ambient_folder(self.data_dir())?;
        match rustix::fs::mkdirat(&data_dir, LOST, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let lost = open_folder(&data_dir, LOST)?;
        let mut name = run.as_str().to_owned();
        let set_aside =
            |name: &str| rustix::fs::renameat_with(&self.dir, run.as_str(), &lost, name, RenameFlags::NOREPLACE);
        match set_aside(&name) {
            Err(Errno::EXIST) => {
                name = fresh_name(&format!("{run}."));
                set_aside(&name)?;
            }
            done => done?,
        }
        for dir in [&lost, &self.dir, &data_dir] {
            rustix::fs::fsync(dir)?;
        }
        Ok(name)
    }

    /// The names in `lost+found/` of folders that were set aside.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn lost(&self) -> io::Result<Vec<String>> {
        let lost = match open_folder(&guard::open_ambient_folder(self.data_dir())?, LOST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            lost => lost?,
        };
        let mut names = folder_names(&lost)?;
        // A file system may keep a folder of that name for itself, with names of its own in it.
        names.retain(|name| name.split('.').next().is_some_and(|run| RunId::parse(run).is_ok()));
        names.sort_unstable();
        Ok(names)
    }

    /// Removes the staging folders and the half removed ones that killed processes have left; how many. What goes on in this
    /// process at the same time is left alone.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn sweep(&self) -> io::Result<u64> {
        let mut removed = 0;
        for name in folder_names(&self.dir)? {
            if (name.starts_with(STAGING) || name.starts_with(TRASH)) && !name.contains(&self.tag) {
                remove::tree(self.dir.as_fd(), name.as_bytes())?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// The names of the folders in `dir`, as far as they are text.
fn folder_names(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_folder = match entry.file_type() {
            FileType::Unknown => rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir()),
            found => found.is_dir(),
        };
        if is_folder && !matches!(name, "." | "..") {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
