//! Applying steps to the tree: new content is staged in `tmp/`, then renamed into the tree, and replayed after a crash.

mod contents;
mod replay;
mod restore;
mod stage;
mod sync;
#[cfg(test)]
mod tests;

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use model::{LogicalPath, Step, StepBytes};
use rustix::fs::{AtFlags, FileType, RenameFlags, Stat};
use rustix::io::Errno;

use crate::Workspace;
use crate::dir::fresh_name;
use crate::guard::{self, GuardError, IsRemoved, ParentHandle, Root};
use crate::stamp::FileStamp;

pub use contents::{SpooledFile, StagedContents, StagedFile};
pub use replay::Replay;
pub use restore::RestoredState;
use stage::StagedFolder;
pub(crate) use stage::fdatasync;
pub use stage::{StagedSteps, is_fsync_failure};
pub use sync::Applied;
pub(crate) use sync::sync_in_parallel;

/// How often a file's parent folder is created again, if other changes keep removing it because they have emptied it.
const MAX_ATTEMPTS: u32 = 256;

/// Why steps could not be applied after they were journalled.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// These targets are not what the steps expect: they were changed from outside. The steps before them are applied.
    #[error("the tree was changed from outside at {0:?}")]
    ChangedOutside(Vec<LogicalPath>),
    /// The disk failed.
    #[error("file system error")]
    Io(#[from] io::Error),
}

impl Workspace {
    /// Moves what was staged into the tree. Each target is compared with its step's `before` once more; then files are removed,
    /// and new folders and files are renamed in through the handles of their folders. Nothing is synced.
    ///
    /// # Errors
    ///
    /// See [`ApplyError`].
    pub fn apply(&self, mut staged: StagedSteps) -> Result<Applied, ApplyError> {
        let root = &self.tree().root;
        let changed = staged.recheck(root)?;
        if !changed.is_empty() {
            return Err(ApplyError::ChangedOutside(changed));
        }
        let mut applied = Applied::new(self);
        // Removals come first: a new folder or file may take the path of a removed one.
        for item in staged.items.iter().filter(|item| item.file.is_none()) {
            let removed = move_out(&staged.tmp, root, &item.path, Replaced::File(item.stamp), &mut applied);
            removed.map_err(|error| error.at(&item.path))?;
            failpoint::hit("apply.step");
        }
        for folder in &mut staged.folders {
            move_folder_in(&staged.tmp, root, folder)?;
            failpoint::hit("apply.folder");
        }
        for item in &staged.items {
            let Some(name) = &item.file else { continue };
            let moved = move_in(&staged.tmp, name, root, &item.path, item.replaced(), &mut applied);
            moved.map_err(|error| error.at(&item.path))?;
            failpoint::hit("apply.step");
        }
        for folder in staged.folders.iter().filter(|folder| folder.moved) {
            applied.created_folder(&folder.path);
        }
        applied.remove_emptied();
        staged.finish();
        Ok(applied)
    }

    /// Removes everything in `tmp/` that the steps in `pending`, those in the journal, do not name. Must only be called while
    /// the run is being opened, when no call has staged anything.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn clear_tmp(&self, pending: &[Step]) -> io::Result<()> {
        let contents = pending.iter().filter_map(|step| step.after.as_ref());
        let keep: Vec<_> = contents
            .filter_map(|content| match &content.bytes {
                StepBytes::Staged(name) => Some(name.as_str()),
                StepBytes::Inline(_) => None,
            })
            .collect();
        crate::remove::remove_all_in(self.tmp(), &keep)
    }
}

/// What exists at a step's target.
#[derive(Debug, PartialEq, Eq)]
enum TargetState {
    Nothing,
    /// A file with one name or a symbolic link, under this stamp.
    File(FileStamp),
    /// Anything that a step does not act on: a folder that is not empty, a file with several names, or a path that leads through
    /// a link or one of these.
    Other,
}

/// Why a rename failed.
enum MoveError {
    /// The target was changed from outside.
    Outside,
    /// As `Outside`: the file to be renamed, or a folder on its path, does not exist.
    Missing,
    Io(io::Error),
}

impl MoveError {
    /// Converts it to the error of the step at `path`.
    fn at(self, path: &LogicalPath) -> ApplyError {
        match self {
            Self::Outside | Self::Missing => ApplyError::ChangedOutside(vec![path.clone()]),
            Self::Io(error) => ApplyError::Io(error),
        }
    }
}

impl From<Errno> for MoveError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::EXIST
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::LOOP
            | Errno::XDEV
            // A folder that should be empty is not any more, or something is mounted on it.
            | Errno::NOTEMPTY
            | Errno::BUSY => Self::Outside,
            errno => Self::Io(errno.into()),
        }
    }
}

impl From<GuardError> for MoveError {
    fn from(error: GuardError) -> Self {
        if matches!(error, GuardError::Missing) {
            return Self::Missing;
        }
        // The service created what it writes to, or could read it before.
        error.unless_disk().map_or_else(Self::Io, |()| Self::Outside)
    }
}

/// Returns what exists at `path`. Removed files, and folders that contain nothing else, count as nothing.
fn target_state(root: &Root, path: &LogicalPath, is_removed: IsRemoved<'_>) -> io::Result<TargetState> {
    let found = match root.find(path) {
        Ok(None) => TargetState::Nothing,
        Ok(Some(found)) if Replaced::File(None).matches(&found.stat) => TargetState::File(FileStamp::of(&found.stat)),
        Ok(Some(_)) => TargetState::Other,
        Err(error) => {
            error.unless_disk()?;
            TargetState::Other
        }
    };
    Ok(if found == TargetState::Other && root.is_free(path, is_removed)? { TargetState::Nothing } else { found })
}

/// Returns a predicate that is true for the paths in `paths`. It builds the set when it is first called.
fn one_of<'a, I: Iterator<Item = &'a LogicalPath>>(paths: impl FnOnce() -> I) -> impl Fn(&LogicalPath) -> bool {
    let paths = LazyCell::new(|| paths().collect::<BTreeSet<_>>());
    move |path| paths.contains(path)
}

/// Renames a staged folder into the tree. If a folder exists there by now, the files are moved into that one.
fn move_folder_in(tmp: &OwnedFd, root: &Root, folder: &mut StagedFolder) -> Result<(), ApplyError> {
    let parent = match root.open_parent(&folder.path) {
        Ok(parent) => parent,
        // The folder above was removed or replaced: moving the files in detects that.
        Err(error) => return Ok(error.unless_disk()?),
    };
    match rustix::fs::renameat_with(tmp, &*folder.name, &parent.dir, &*parent.name, RenameFlags::NOREPLACE) {
        Ok(()) => folder.moved = true,
        // As above, for a parent folder that another change is just removing because it has emptied it.
        Err(Errno::EXIST | Errno::NOENT) => {}
        Err(errno) => return Err(io::Error::from(errno).into()),
    }
    Ok(())
}

/// What a step may take out of the tree. Another process may replace the file at any time, so the check is made on what
/// was taken out.
#[derive(Clone, Copy, Debug)]
enum Replaced {
    /// A file with one name or a symbolic link, with this stamp if it is known.
    File(Option<FileStamp>),
    /// Any file or link.
    Any,
}

impl Replaced {
    fn matches(self, stat: &Stat) -> bool {
        match (FileType::from_raw_mode(stat.st_mode), self) {
            (FileType::RegularFile | FileType::Symlink, Self::Any) => true,
            (FileType::RegularFile | FileType::Symlink, Self::File(expected)) => {
                let found = FileStamp::of(stat);
                !guard::is_hard_linked(stat) && expected.is_none_or(|known| known.has_same_content(&found))
            }
            _ => false,
        }
    }

    /// Whether the run's own layer has what the step replaces. If only the base has it, the new file hides it.
    fn is_own(self, root: &Root, path: &LogicalPath) -> Result<bool, MoveError> {
        let found = root.find(path)?;
        Ok(!found.is_some_and(|found| found.is_of_base() && self.matches(&found.stat)))
    }

    /// Whether the file `name`, which was taken out of the tree and is in `tmp` now, is what the step expects.
    fn is_in(self, tmp: &OwnedFd, name: &str) -> io::Result<bool> {
        Ok(self.matches(&rustix::fs::statat(tmp, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }
}

/// Renames a staged file to `path`: in exchange for the `replaced` file, over the base's, or in place of an empty folder.
fn move_in(
    tmp: &OwnedFd,
    name: &str,
    root: &Root,
    path: &LogicalPath,
    replaced: Option<Replaced>,
    applied: &mut Applied,
) -> Result<(), MoveError> {
    let replaces_own = replaced.map(|replaced| replaced.is_own(root, path)).transpose()?.unwrap_or(false);
    let made_folders = if let Some(replaced) = replaced.filter(|_| replaces_own) {
        let (parent, changed) = root.create_parent(path)?;
        applied.about_to_take_out(path, name);
        // Exchanged, and removed with the sync: a rename over a file would wait until its blocks are freed.
        let exchange = || rustix::fs::renameat_with(tmp, name, &parent.dir, &*parent.name, RenameFlags::EXCHANGE);
        exchange()?;
        if !replaced.is_in(tmp, name).map_err(MoveError::Io)? {
            exchange()?;
            return Err(MoveError::Outside);
        }
        applied.took_out(name.to_owned());
        !changed.is_empty()
    } else {
        with_parent(root, path, |parent| {
            let arrive = || rustix::fs::renameat_with(tmp, name, &parent.dir, &*parent.name, RenameFlags::NOREPLACE);
            match arrive() {
                Err(Errno::EXIST) if root.is_free(path, &|_| false).map_err(MoveError::Io)? => {
                    Root::remove_empty_tree(parent)?;
                    failpoint::hit("apply.emptied");
                    Ok(arrive()?)
                }
                arrived => Ok(arrived?),
            }
        })?
    };
    applied.wrote(path, made_folders);
    Ok(())
}

/// Calls `arrive` with the parent folder of `path`, which is created if it is missing; returns whether folders were created.
/// Another change may remove the folder at any moment because it has emptied it: then it is created again.
fn with_parent(
    root: &Root,
    path: &LogicalPath,
    arrive: impl Fn(&ParentHandle) -> Result<(), MoveError>,
) -> Result<bool, MoveError> {
    let (mut made_folders, mut attempts) = (false, 0..MAX_ATTEMPTS);
    loop {
        let arrived = root.create_parent(path).map_err(MoveError::from).and_then(|(parent, changed)| {
            made_folders |= !changed.is_empty();
            arrive(&parent)
        });
        match arrived {
            Err(MoveError::Missing) if attempts.next().is_some() => made_folders = true,
            arrived => return arrived.map(|()| made_folders),
        }
    }
}

/// Removes the file at `path` from the tree: hides the base's, and moves the run's own to `tmp`, from which it is removed with the
/// sync. Its folder stays until all steps are done.
fn move_out(
    tmp: &OwnedFd,
    root: &Root,
    path: &LogicalPath,
    replaced: Replaced,
    applied: &mut Applied,
) -> Result<(), MoveError> {
    let of_base = root.base_file(path).map_err(MoveError::Io)?;
    // Before the run's own file is gone, since that of the base would show in its place.
    let is_hidden = root.hide(path).map_err(MoveError::Io)?;
    match move_own_out(tmp, root, path, replaced, applied) {
        Ok(()) => {}
        Err(MoveError::Missing) if of_base.is_some_and(|stat| replaced.matches(&stat)) => {}
        Err(error) => {
            if is_hidden {
                root.show(path);
            }
            return Err(error);
        }
    }
    applied.removed(path);
    Ok(())
}

fn move_own_out(
    tmp: &OwnedFd,
    root: &Root,
    path: &LogicalPath,
    replaced: Replaced,
    applied: &mut Applied,
) -> Result<(), MoveError> {
    let parent = root.open_parent(path)?;
    let name = fresh_name("gone-");
    applied.about_to_take_out(path, &name);
    rustix::fs::renameat_with(&parent.dir, &*parent.name, tmp, &*name, RenameFlags::NOREPLACE)?;
    if !replaced.is_in(tmp, &name).map_err(MoveError::Io)? {
        with_parent(root, path, |parent| {
            Ok(rustix::fs::renameat_with(tmp, &*name, &parent.dir, &*parent.name, RenameFlags::NOREPLACE)?)
        })?;
        return Err(MoveError::Outside);
    }
    applied.took_out(name);
    Ok(())
}
