//! Staging: new content is written to the run's `tmp/`, on the tree's file system, before anything in the tree changes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use model::{LogicalPath, Sha256, Step, StepBytes, StepContent, is_link_mode};
use rustix::fs::{Access, AtFlags, Mode};
use rustix::io::Errno;

use super::{Replaced, TargetState, one_of, target_state};
use crate::Workspace;
use crate::dir::{create_file, fresh_name, open_dir, open_file, remove_file};
use crate::guard::{FOLDER_MODE, GuardError, IsRemoved, Root};
use crate::hashing::copy_hashed;
use crate::kept_files::KeptFiles;
use crate::remove::remove_tree;
use crate::stamp::FileStamp;

/// Steps whose new content is in the run's `tmp/` and not yet in the tree. Dropping it removes what was staged, except
/// files that the journal may name.
#[derive(Debug)]
pub struct StagedSteps {
    pub(super) items: Vec<StagedItem>,
    pub(super) folders: Vec<StagedFolder>,
    pub(super) tmp: Arc<OwnedFd>,
    kept: Arc<KeptFiles>,
    changed: Vec<LogicalPath>,
    finished: bool,
}

/// One step.
#[derive(Debug)]
pub(super) struct StagedItem {
    pub(super) path: LogicalPath,
    pub(super) before: Option<Sha256>,
    /// The stamp under which the target had the content of `before`.
    pub(super) stamp: Option<FileStamp>,
    /// The file in `tmp/`; `None` if the target is removed.
    pub(super) file: Option<String>,
    /// Whether the journal names the file, so that it must not be removed here.
    is_journalled: bool,
}

/// A new folder of the tree, created in `tmp/` with the missing folders under it, so that a full disk is noticed before the
/// steps are journalled.
#[derive(Debug)]
pub(super) struct StagedFolder {
    /// Its path in the tree.
    pub(super) path: LogicalPath,
    /// Its name in `tmp/`.
    pub(super) name: String,
    /// Whether it was moved into the tree.
    pub(super) moved: bool,
}

impl Workspace {
    /// Writes the steps' new content to `tmp/`, creates the missing folders there and checks every target. Changes nothing in
    /// the tree. A target that still has its stamp in `stamps` is not read again.
    ///
    /// # Errors
    ///
    /// If the disk fails or is full; what was staged is removed.
    pub fn stage(&self, steps: &[Step], stamps: &BTreeMap<LogicalPath, FileStamp>) -> io::Result<StagedSteps> {
        let mut staged = StagedSteps {
            items: Vec::new(),
            folders: Vec::new(),
            tmp: self.tmp().clone(),
            kept: self.kept().clone(),
            changed: Vec::new(),
            finished: false,
        };
        // A step that only removes a file first writes after it was journalled: too late to find that `tmp/` is read-only.
        rustix::fs::accessat(self.tmp(), ".", Access::WRITE_OK, AtFlags::empty())?;
        let is_removed = one_of(|| steps.iter().filter(|step| step.after.is_none()).map(|step| &step.path));
        for step in steps {
            let root = &self.tree().root;
            let stamp = stamps.get(&step.path).copied();
            let (matches, stamp) = matches_before(root, &step.path, step.before, stamp, &is_removed)?;
            if !matches {
                staged.changed.push(step.path.clone());
            }
            staged.add(step, stamp)?;
            if step.after.is_some() {
                staged.add_folders(root, &step.path, &is_removed)?;
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
        let copied = copy_hashed(&mut opened.file.into_reader()?, &mut file, u64::MAX)
            .and_then(|(copied, _)| fsync(&file).map(|()| copied == sha256))
            .and_then(|is_same| fsync(self.tmp()).map(|()| is_same));
        if !matches!(copied, Ok(true)) {
            self.discard(name)?;
        }
        copied
    }
}

impl StagedSteps {
    /// Returns the targets that were changed since the steps were planned. If there are any, the steps must not be journalled.
    pub fn changed_outside(&self) -> &[LogicalPath] {
        &self.changed
    }

    fn add(&mut self, step: &Step, stamp: Option<FileStamp>) -> io::Result<()> {
        let (file, is_journalled) = match &step.after {
            None => (None, false),
            Some(content) => {
                let (name, is_journalled) = write_content(&self.tmp, content)?;
                (Some(name), is_journalled)
            }
        };
        self.items.push(StagedItem { path: step.path.clone(), before: step.before, stamp, file, is_journalled });
        Ok(())
    }

    /// Creates the folders above `path` that the run's own layer lacks, or will lack once the removed files are gone.
    fn add_folders(&mut self, root: &Root, path: &LogicalPath, is_removed: IsRemoved<'_>) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = path.clone();
        loop {
            match root.open_parent(&at) {
                Err(GuardError::Missing) => {}
                Err(error) if error.is_no_folder() && root.is_free(&at, is_removed)? => {}
                // Anything else on the path is detected by the check of the step's target.
                Ok(_) | Err(_) => break,
            }
            let Some(folder) = at.parent() else { break };
            missing.push(folder.clone());
            at = folder;
        }
        let Some(top) = missing.pop() else { return Ok(()) };
        let mut dir = self.folder(top)?;
        for folder in missing.into_iter().rev() {
            match rustix::fs::mkdirat(&dir, folder.file_name(), FOLDER_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            dir = open_dir(&dir, folder.file_name())?;
        }
        Ok(())
    }

    /// Returns the staged folder for `path`.
    fn folder(&mut self, path: LogicalPath) -> io::Result<OwnedFd> {
        if let Some(known) = self.folders.iter().find(|folder| folder.path == path) {
            return Ok(open_dir(&self.tmp, &*known.name)?);
        }
        let name = fresh_name("folder-");
        rustix::fs::mkdirat(&*self.tmp, &*name, FOLDER_MODE)?;
        self.folders.push(StagedFolder { path, name: name.clone(), moved: false });
        Ok(open_dir(&self.tmp, &*name)?)
    }

    /// Checks every target once more, and returns those that are not what their steps expect.
    pub(super) fn recheck(&mut self, root: &Root) -> io::Result<Vec<LogicalPath>> {
        let is_removed = one_of(|| self.items.iter().filter(|item| item.file.is_none()).map(|item| &item.path));
        let check = |item: &StagedItem| matches_before(root, &item.path, item.before, item.stamp, &is_removed);
        let found: Vec<_> = self.items.iter().map(check).collect::<io::Result<_>>()?;
        drop(is_removed);
        let mut changed = Vec::new();
        for (item, (matches, stamp)) in self.items.iter_mut().zip(found) {
            item.stamp = stamp;
            if !matches {
                changed.push(item.path.clone());
            }
        }
        Ok(changed)
    }

    /// Marks all items as moved into the tree, so that none is removed on drop.
    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for StagedSteps {
    fn drop(&mut self) {
        for folder in self.folders.iter().filter(|folder| !folder.moved) {
            if let Err(error) = remove_tree(self.tmp.as_fd(), folder.name.as_bytes()) {
                // The folder is emptied when the run is next opened.
                tracing::warn!(%error, "a staged folder could not be removed");
            }
        }
        if self.finished {
            return;
        }
        for item in self.items.iter().filter(|item| !item.is_journalled) {
            if let Some(name) = &item.file
                && let Err(error) = self.kept.remove(&self.tmp, name)
            {
                // The folder is emptied when the run is next opened.
                tracing::warn!(%error, "a staged file could not be removed");
            }
        }
    }
}

impl StagedItem {
    /// Returns what it replaces.
    pub(super) fn replaced(&self) -> Option<Replaced> {
        self.before.map(|_| Replaced::File(self.stamp))
    }
}

/// Whether the target at `path` has the hash `before`, and its stamp. `stamp` is one under which it is known to have had it.
fn matches_before(
    root: &Root,
    path: &LogicalPath,
    before: Option<Sha256>,
    stamp: Option<FileStamp>,
    is_removed: IsRemoved<'_>,
) -> io::Result<(bool, Option<FileStamp>)> {
    Ok(match (before, target_state(root, path, is_removed)?) {
        (None, found) => (found == TargetState::Nothing, None),
        (Some(_), TargetState::File(found)) if Some(found) == stamp => (true, stamp),
        // The stamp may have changed without the bytes.
        (Some(before), TargetState::File(_)) => {
            let stamp = root.hash(path)?.filter(|(sha256, _)| *sha256 == before).map(|(_, stamp)| stamp);
            (stamp.is_some(), stamp)
        }
        (Some(_), TargetState::Nothing | TargetState::Other) => (false, None),
    })
}

/// Writes a step's content to `tmp/`, with its permission bits. Returns the file's name, and whether the journal names it.
pub(super) fn write_content(tmp: &OwnedFd, content: &StepContent) -> io::Result<(String, bool)> {
    let mode = Mode::from_raw_mode(content.mode & 0o777);
    match &content.bytes {
        StepBytes::Inline(target) if is_link_mode(content.mode) => {
            let name = fresh_name("step-");
            rustix::fs::symlinkat(&**target, tmp, &*name)?;
            Ok((name, false))
        }
        StepBytes::Inline(bytes) => {
            let name = fresh_name("step-");
            let mut file = create_file(tmp, &*name)?;
            if let Err(error) = file.write_all(bytes).and_then(|()| Ok(rustix::fs::fchmod(&file, mode)?)) {
                remove_file(tmp, &*name)?;
                return Err(error);
            }
            Ok((name, false))
        }
        StepBytes::Staged(name) => {
            rustix::fs::fchmod(open_file(tmp, &**name)?, mode)?;
            Ok((name.clone(), true))
        }
    }
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
