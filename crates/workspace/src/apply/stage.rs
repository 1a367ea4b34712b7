//! Staging: new content is written to the run's `tmp/`, on the tree's file system, before anything in the tree changes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use model::{LogicalPath, Sha256, Step, StepBytes, StepContent, is_link_mode};
use rustix::fs::{Access, AtFlags, Mode};
use rustix::io::Errno;

use super::{TargetFile, TargetState, target_state};
use crate::Workspace;
use crate::dir::{create_file, fresh_name, make_dir};
use crate::guard::{FOLDER_MODE, GuardError, RemovedPaths, Root};
use crate::hashing::copy_hashed;
use crate::stamp::FileStamp;
use crate::temp_entry::TempEntry;

/// Steps whose new content is in the run's `tmp/` and not yet in the tree. Dropping it removes what was staged, except
/// files that the journal may name.
#[derive(Debug)]
pub struct StagedSteps {
    pub(super) items: Vec<StagedItem>,
    pub(super) folders: Vec<StagedFolder>,
    tmp: Arc<OwnedFd>,
}

/// One step.
#[derive(Debug)]
pub(super) struct StagedItem {
    pub(super) path: LogicalPath,
    pub(super) before: Option<Sha256>,
    /// What the target was when it was last checked.
    pub(super) target: TargetState,
    /// The file in `tmp/`; `None` if the target is removed.
    pub(super) file: Option<TempEntry>,
}

/// A new folder of the tree, created in `tmp/` with the missing folders under it, so that a full disk is noticed before the
/// steps are journalled.
#[derive(Debug)]
pub(super) struct StagedFolder {
    /// Its path in the tree.
    pub(super) path: LogicalPath,
    pub(super) entry: TempEntry,
}

impl Workspace {
    /// Writes the steps' new content to `tmp/`, creates the missing folders there and checks every target. Changes nothing in
    /// the tree. A target that still has its stamp in `stamps` is not read again.
    ///
    /// # Errors
    ///
    /// If the disk fails or is full; what was staged is removed.
    pub fn stage(&self, steps: &[Step], stamps: &BTreeMap<LogicalPath, FileStamp>) -> io::Result<StagedSteps> {
        let mut staged = StagedSteps { items: Vec::new(), folders: Vec::new(), tmp: self.tmp().clone() };
        // A step that only removes a file first writes after it was journalled: too late to find that `tmp/` is read-only.
        rustix::fs::accessat(self.tmp(), ".", Access::WRITE_OK, AtFlags::empty())?;
        let removed = steps.iter().filter(|step| step.after.is_none()).map(|step| &step.path).collect();
        for step in steps {
            let root = &self.tree().root;
            let stamp = stamps.get(&step.path).copied();
            let target = expected_target(root, &step.path, step.before, stamp, &removed)?;
            let file = step.after.as_ref().map(|content| write_content(&staged.tmp, content)).transpose()?;
            staged.items.push(StagedItem { path: step.path.clone(), before: step.before, target, file });
            // What the run itself has needs no new folder.
            if step.after.is_some() && !target.is_own() {
                staged.add_folders(root, &step.path, &removed)?;
            }
            failpoint::hit("stage.step");
        }
        Ok(staged)
    }

    /// Copies the file at `path` to `name` in `tmp/` and syncs it. Returns `false` if its hash is not `sha256`. Uses constant
    /// memory.
    ///
    /// # Errors
    ///
    /// If the disk fails; what was written is removed.
    pub fn stage_copy(&self, path: &LogicalPath, name: &str, sha256: Sha256) -> io::Result<bool> {
        let opened = match self.tree().root.open_unlinked(path) {
            Ok(opened) if opened.file_type().is_file() => opened,
            Ok(_) => return Ok(false),
            Err(error) => return error.unless_disk().map(|()| false),
        };
        let mut file = create_file(self.tmp(), name)?;
        let entry = TempEntry::file(self.tmp(), name.to_owned());
        let (copied, _) = copy_hashed(&mut opened.file.into_reader()?, &mut file, u64::MAX)?;
        fsync(&file)?;
        fsync(self.tmp())?;
        if copied == sha256 {
            entry.leave();
        }
        Ok(copied == sha256)
    }
}

impl StagedSteps {
    /// Returns the targets that were changed since the steps were planned. If there are any, the steps must not be journalled.
    pub fn changed_outside(&self) -> Vec<LogicalPath> {
        let changed = self.items.iter().filter(|item| item.target == TargetState::Other);
        changed.map(|item| item.path.clone()).collect()
    }

    /// Creates the folders above `path` that the run's own layer lacks, or will lack once the removed files are gone.
    fn add_folders(&mut self, root: &Root, path: &LogicalPath, removed: &RemovedPaths<'_>) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = path.clone();
        while let Some(folder) = at.parent() {
            match root.open_parent(&at).map(drop) {
                Err(GuardError::Missing) => {}
                Err(error) if error.is_no_folder() && root.is_free(&at, removed)? => {}
                // Anything else on the path is detected by the check of the step's target.
                Ok(()) | Err(_) => break,
            }
            missing.push(folder.clone());
            at = folder;
        }
        let Some(top) = missing.pop() else { return Ok(()) };
        let mut dir = self.folder(top)?;
        for folder in missing.into_iter().rev() {
            dir = make_dir(&dir, folder.file_name(), FOLDER_MODE)?;
        }
        Ok(())
    }

    /// Returns the staged folder for `path`.
    fn folder(&mut self, path: LogicalPath) -> io::Result<OwnedFd> {
        if let Some(known) = self.folders.iter().find(|folder| folder.path == path) {
            return Ok(known.entry.open_folder()?);
        }
        let entry = TempEntry::create_folder(&self.tmp, "folder-", FOLDER_MODE)?;
        let dir = entry.open_folder()?;
        self.folders.push(StagedFolder { path, entry });
        Ok(dir)
    }

    /// Checks every target once more.
    pub(super) fn recheck(&mut self, root: &Root) -> io::Result<()> {
        let removed = self.items.iter().filter(|item| item.file.is_none()).map(|item| &item.path).collect();
        let check = |item: &StagedItem| expected_target(root, &item.path, item.before, item.target.stamp(), &removed);
        let found: Vec<_> = self.items.iter().map(check).collect::<io::Result<_>>()?;
        for (item, target) in self.items.iter_mut().zip(found) {
            item.target = target;
        }
        Ok(())
    }
}

/// Returns what is at `path`: `Other` if it has not the hash `before`. `stamp` is one under which it is known to have had it.
fn expected_target(
    root: &Root,
    path: &LogicalPath,
    before: Option<Sha256>,
    stamp: Option<FileStamp>,
    removed: &RemovedPaths<'_>,
) -> io::Result<TargetState> {
    let found = target_state(root, path, removed)?;
    Ok(match (before, found) {
        (None, TargetState::Nothing) => found,
        (Some(_), TargetState::File(file)) if Some(file.stamp) == stamp => found,
        // The stamp may have changed without the bytes.
        (Some(before), TargetState::File(file)) => match root.hash(path)? {
            Some((sha256, stamp)) if sha256 == before => TargetState::File(TargetFile { stamp, ..file }),
            _ => TargetState::Other,
        },
        _ => TargetState::Other,
    })
}

/// Writes a step's content to `tmp/`, with its permission bits. A file that the journal names is left there.
pub(super) fn write_content(tmp: &Arc<OwnedFd>, content: &StepContent) -> io::Result<TempEntry> {
    let mode = Mode::from_raw_mode(content.mode & 0o777);
    Ok(match &content.bytes {
        StepBytes::Inline(target) if is_link_mode(content.mode) => {
            let link = TempEntry::file(tmp, fresh_name("step-"));
            rustix::fs::symlinkat(&**target, &**tmp, link.name())?;
            link
        }
        StepBytes::Inline(bytes) => {
            let (entry, mut file) = TempEntry::create_file(tmp, "step-")?;
            file.write_all(bytes)?;
            rustix::fs::fchmod(&file, mode)?;
            entry
        }
        StepBytes::Staged(name) => {
            let entry = TempEntry::file(tmp, name.clone());
            entry.leave();
            rustix::fs::fchmod(entry.open_file()?, mode)?;
            entry
        }
    })
}

/// A failed `fsync`. The written data may be lost, and a second `fsync` may report success all the same.
#[derive(Debug, thiserror::Error)]
#[error("fsync failed")]
struct FsyncFailure(#[source] io::Error);

/// Whether `error` reports a failed `fsync`, after which nothing that was written is certain.
pub fn is_fsync_failure(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<FsyncFailure>)
}

pub(super) fn fsync(what: impl AsFd) -> io::Result<()> {
    rustix::fs::fsync(what).map_err(sync_error)
}

/// Syncs the bytes of a file, and of its entry only what finds them.
pub(crate) fn fdatasync(what: impl AsFd) -> io::Result<()> {
    rustix::fs::fdatasync(what).map_err(sync_error)
}

fn sync_error(errno: Errno) -> io::Error {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::ROFS => errno.into(),
        errno => io::Error::other(FsyncFailure(errno.into())),
    }
}
