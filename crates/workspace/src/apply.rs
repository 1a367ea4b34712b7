//! Applying steps to the tree: new content is staged in `tmp/`, then renamed into the tree, and replayed after a crash.

mod contents;
mod replay;
mod restore;
mod stage;
mod sync;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use model::{LogicalPath, Step, StepBytes, StepContent};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::Workspace;
use crate::dir::{MAX_ATTEMPTS, fresh_name};
use crate::guard::{self, GuardError, RemovedPaths, Root};
use crate::stamp::FileStamp;
use crate::temp_entry::TempEntry;

pub use contents::{SpooledFile, StagedContents, StagedFile};
pub use replay::Replay;
pub use restore::RestoredState;
pub(crate) use stage::fdatasync;
use stage::{StagedFolder, write_content};
pub use stage::{StagedSteps, is_fsync_failure};
pub use sync::Applied;
pub(crate) use sync::sync_in_parallel;

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
        staged.recheck(&self.tree().root)?;
        let changed = staged.changed_outside();
        if !changed.is_empty() {
            return Err(ApplyError::ChangedOutside(changed));
        }
        let mut applied = Applied::new(self);
        // Removals come first: a new folder or file may take the path of a removed one.
        for item in staged.items.iter().filter(|item| item.file.is_none()) {
            let removed = applied.move_out(&item.path, Replaced::File(item.target.stamp()));
            removed.map_err(|error| failed_at(&item.path, error))?;
            failpoint::hit("apply.step");
        }
        for folder in staged.folders {
            applied.move_folder_in(&folder)?;
            failpoint::hit("apply.folder");
        }
        for item in staged.items {
            let Some(file) = item.file else { continue };
            let replaced = item.target.is_own().then_some(Replaced::File(item.target.stamp()));
            let moved = applied.move_in(file, &item.path, replaced);
            moved.map_err(|error| failed_at(&item.path, error))?;
            failpoint::hit("apply.step");
        }
        applied.remove_emptied();
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

/// Converts the error of the step at `path`. The service created what it writes to, or could read it before: anything else there is a
/// change from outside.
fn failed_at(path: &LogicalPath, error: GuardError) -> ApplyError {
    error.unless_disk().map_or_else(ApplyError::Io, |()| ApplyError::ChangedOutside(vec![path.clone()]))
}

/// Converts the error of a change in folders that could be opened: what the permission bits forbid is a fault of the disk.
fn change_error(errno: Errno) -> GuardError {
    match errno {
        Errno::ACCESS | Errno::PERM => GuardError::Io(errno.into()),
        errno => errno.into(),
    }
}

/// What exists at a step's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetState {
    Nothing,
    File(TargetFile),
    /// Anything that a step does not act on: a folder that is not empty, a file with several names, or a path that leads through
    /// a link or one of these.
    Other,
}

/// A file with one name or a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TargetFile {
    stamp: FileStamp,
    mode: u32,
    /// Whether the run's own layer has it. A new file hides one that only the base has.
    is_own: bool,
}

impl TargetState {
    fn stamp(self) -> Option<FileStamp> {
        if let Self::File(file) = self { Some(file.stamp) } else { None }
    }

    fn is_own(self) -> bool {
        matches!(self, Self::File(file) if file.is_own)
    }
}

/// Returns what exists at `path`. Removed files, and folders that contain nothing else, count as nothing.
fn target_state(root: &Root, path: &LogicalPath, removed: &RemovedPaths<'_>) -> io::Result<TargetState> {
    let found = match root.find(path) {
        Ok(None) => TargetState::Nothing,
        Ok(Some(found)) if Replaced::File(None).matches(&found.stat) => {
            let (stamp, mode) = (FileStamp::of(&found.stat), found.stat.st_mode);
            TargetState::File(TargetFile { stamp, mode, is_own: !found.is_of_base() })
        }
        Ok(Some(_)) => TargetState::Other,
        Err(error) => {
            error.unless_disk()?;
            TargetState::Other
        }
    };
    Ok(if found == TargetState::Other && root.is_free(path, removed)? { TargetState::Nothing } else { found })
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
}

impl Applied {
    /// Brings `path` to the state `wanted`, in place of what is `replaced` of the run's own files or, if nothing is wanted, of any.
    fn bring(
        &mut self,
        path: &LogicalPath,
        wanted: Option<&StepContent>,
        replaced: Option<Replaced>,
    ) -> Result<(), GuardError> {
        match (wanted, replaced) {
            (Some(content), _) => self.move_in(write_content(&self.tmp, content)?, path, replaced),
            (None, Some(replaced)) => self.move_out(path, replaced),
            (None, None) => Ok(()),
        }
    }

    /// Renames a staged folder into the tree. If a folder exists there by now, the files are moved into that one.
    fn move_folder_in(&mut self, folder: &StagedFolder) -> io::Result<()> {
        let root = Arc::clone(&self.root);
        let parent = root.open_parent(&folder.path);
        match parent.and_then(|parent| folder.entry.move_to(&parent.dir, &parent.name).map_err(change_error)) {
            Ok(()) => self.created_folder(&folder.path),
            // A folder above was removed or replaced: moving the files in detects that.
            Err(error) => error.unless_disk()?,
        }
        Ok(())
    }

    /// Renames a staged file to `path`: in exchange for the run's own file that is `replaced`, or where the run has nothing or an empty
    /// folder.
    fn move_in(&mut self, file: TempEntry, path: &LogicalPath, replaced: Option<Replaced>) -> Result<(), GuardError> {
        let mut has_created = false;
        if let Some(replaced) = replaced {
            let root = Arc::clone(&self.root);
            let (parent, _) = root.create_parent(path)?;
            let file = Arc::new(file);
            self.kept.note(path, &file);
            // Exchanged, and removed with the sync: a rename over a file would wait until its blocks are freed.
            file.exchange(&parent.dir, &parent.name).map_err(change_error)?;
            let stat = file.stat()?;
            if !replaced.matches(&stat) {
                file.exchange(&parent.dir, &parent.name).map_err(change_error)?;
                return Err(GuardError::Occupied);
            }
            self.took_out(file, &stat);
        } else {
            has_created = self.arrive(&file, path)?;
        }
        self.wrote(path, has_created);
        Ok(())
    }

    /// Renames `file` to `path`, where nothing or an empty folder is. Returns whether folders were created.
    fn arrive(&self, file: &TempEntry, path: &LogicalPath) -> Result<bool, GuardError> {
        let mut has_created = false;
        for _ in 1..MAX_ATTEMPTS {
            let (parent, created) = self.root.create_parent(path)?;
            has_created |= created;
            match file.move_to(&parent.dir, &parent.name).map_err(change_error) {
                Err(GuardError::Occupied) if self.root.is_free(path, &RemovedPaths::new())? => {
                    Root::remove_empty_tree(&parent).map_err(change_error)?;
                    failpoint::hit("apply.emptied");
                }
                // A program beside the service has removed the folder.
                Err(GuardError::Missing) => {}
                arrived => return arrived.map(|()| has_created),
            }
        }
        Err(GuardError::Occupied)
    }

    /// Removes the file at `path` from the tree: hides the base's, and moves the run's own to `tmp/`, from which it is removed with the
    /// sync. Its folder stays until all steps are done.
    fn move_out(&mut self, path: &LogicalPath, replaced: Replaced) -> Result<(), GuardError> {
        // Before the run's own file is gone, since that of the base would show in its place.
        let of_base = self.root.hide(path)?;
        match self.move_own_out(path, replaced) {
            Ok(()) => {}
            Err(GuardError::Missing) if of_base.is_some_and(|stat| replaced.matches(&stat)) => {}
            Err(error) => {
                if of_base.is_some() {
                    self.root.show(path);
                }
                return Err(error);
            }
        }
        self.removed(path);
        Ok(())
    }

    fn move_own_out(&mut self, path: &LogicalPath, replaced: Replaced) -> Result<(), GuardError> {
        let root = Arc::clone(&self.root);
        let parent = root.open_parent(path)?;
        let file = Arc::new(TempEntry::file(&self.tmp, fresh_name("gone-")));
        self.kept.note(path, &file);
        file.take(&parent.dir, &parent.name).map_err(change_error)?;
        drop(parent);
        let stat = file.stat()?;
        if !replaced.matches(&stat) {
            // Somebody else's file, which stays in `tmp/` if it cannot be put back.
            file.leave();
            self.arrive(&file, path)?;
            return Err(GuardError::Occupied);
        }
        self.took_out(file, &stat);
        Ok(())
    }
}
