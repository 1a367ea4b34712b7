//! New bytes beside the tree, on its file system, before anything of it moves.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use model::{LogicalPath, Sha256, Step, StepBytes, StepContent};
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::Digest as _;

use super::{Leaving, TargetState, among, hash, look};
use crate::Workspace;
use crate::base::manifest::Stamp;
use crate::guard::{FOLDER_MODE, Goes, GuardError, Root};
use crate::import::{fresh_name, open_folder, remove_tree};
use crate::tree::FileStamp;

/// Steps whose new bytes lie in the run's `tmp/`, written but not yet in the tree. What is dropped unapplied is removed,
/// but for files that were staged for the journal before.
#[derive(Debug)]
pub struct Staged {
    pub(super) items: Vec<Item>,
    pub(super) folders: Vec<Folder>,
    pub(super) tmp: Arc<OwnedFd>,
    changed: Vec<LogicalPath>,
    finished: bool,
}

/// One step.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) path: LogicalPath,
    pub(super) before: Option<Sha256>,
    /// The stamp under which the target had the bytes of `before`.
    pub(super) stamp: Option<Stamp>,
    /// The file in `tmp/`; `None` where the target goes.
    pub(super) file: Option<String>,
    /// Whether the journal knows the file by its name, so that it is not ours to remove.
    journalled: bool,
}

/// A folder that the tree lacks, made beside it with the missing ones beneath, so that a disk without room for it is
/// noticed before the journal has the step.
#[derive(Debug)]
pub(super) struct Folder {
    /// Where it goes.
    pub(super) path: LogicalPath,
    /// Its name in `tmp/`.
    pub(super) name: String,
    /// Whether it is in the tree.
    pub(super) moved: bool,
}

/// A large file that was staged and synced before the journal names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    /// Its name in the run's `tmp/`, for [`StepBytes::Staged`].
    pub name: String,
    /// Hash of its bytes.
    pub sha256: Sha256,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its first bytes, at most 8 KiB, to tell its kind from.
    pub head: Vec<u8>,
}

impl Workspace {
    /// Writes the steps' new bytes to `tmp/`, makes the folders there that the tree lacks, looks at every target once more,
    /// makes no change to the tree, and fails where the disk is full. A target that still is the version in `seen` need not
    /// be read again.
    ///
    /// # Errors
    ///
    /// Where the disk fails; what was staged is removed.
    pub fn stage(&self, steps: &[Step], seen: &BTreeMap<LogicalPath, FileStamp>) -> io::Result<Staged> {
        let mut staged = Staged {
            items: Vec::new(),
            folders: Vec::new(),
            tmp: self.tmp().clone(),
            changed: Vec::new(),
            finished: false,
        };
        // A file that only goes away is first written to when the journal has it: too late to learn that nothing can be.
        rustix::fs::accessat(self.tmp(), ".", Access::WRITE_OK, AtFlags::empty())?;
        let goes = among(|| steps.iter().filter(|step| step.after.is_none()).map(|step| &step.path));
        for step in steps {
            let root = &self.tree().root;
            let stamp = seen.get(&step.path).map(|seen| seen.0);
            let (stands, stamp) = stands(root, &step.path, step.before, stamp, &goes)?;
            if !stands {
                staged.changed.push(step.path.clone());
            }
            staged.add(step, stamp)?;
            if step.before.is_none() && step.after.is_some() {
                staged.add_folders(root, &step.path, &goes)?;
            }
            failpoint::hit("stage.step");
        }
        Ok(staged)
    }

    /// Writes and syncs a file of any size to `tmp/`, for a step that the journal only names. Flat in memory.
    ///
    /// # Errors
    ///
    /// Where the disk or `from` fails, or `from` has more than `max_bytes` ([`io::ErrorKind::FileTooLarge`]); what was
    /// written is removed.
    pub fn stage_file(&self, from: &mut dyn Read, max_bytes: u64) -> io::Result<StagedFile> {
        self.stage_file_as(Self::new_staged_name(), from, max_bytes)
    }

    /// A name for a large file in `tmp/` that nothing there has.
    pub fn new_staged_name() -> String {
        fresh_name("large-")
    }

    /// Copies the file at `path` to `name` in `tmp/`, synced, where it has the hash `sha256`; false where it has not. Flat in
    /// memory.
    ///
    /// # Errors
    ///
    /// Where the disk fails; what was written is removed.
    pub fn stage_copy(&self, path: &LogicalPath, name: &str, sha256: Sha256) -> io::Result<bool> {
        let opened = match self.tree().root.open_unlinked(path) {
            Ok(opened) if opened.file_type().is_file() => opened,
            Ok(_) => return Ok(false),
            Err(error) => return error.unless_disk().map(|()| false),
        };
        let copied = self.stage_file_as(name.to_owned(), &mut File::from(opened.file), u64::MAX)?;
        let same = copied.sha256 == sha256;
        if !same {
            self.discard(name)?;
        }
        Ok(same)
    }

    fn stage_file_as(&self, name: String, from: &mut dyn Read, max_bytes: u64) -> io::Result<StagedFile> {
        let mut file = create(self.tmp(), &name)?;
        let written = copy(from, &mut file, max_bytes)
            .and_then(|written| sync(&file).map(|()| written))
            .and_then(|written| sync(self.tmp()).map(|()| written));
        match written {
            Ok((sha256, size_bytes, head)) => Ok(StagedFile { name, sha256, size_bytes, head }),
            Err(error) => {
                self.discard(&name)?;
                Err(error)
            }
        }
    }

    /// Removes a file that [`stage_file`](Self::stage_file) made and no journal names; one that is gone is no error.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn discard(&self, name: &str) -> io::Result<()> {
        remove(self.tmp(), name)
    }
}

impl Staged {
    /// Targets that are not as their steps expect: changed since they were planned for. Such steps must not be journalled.
    pub fn changed_outside(&self) -> &[LogicalPath] {
        &self.changed
    }

    fn add(&mut self, step: &Step, stamp: Option<Stamp>) -> io::Result<()> {
        let (file, journalled) = match &step.after {
            None => (None, false),
            Some(content) => {
                let (name, journalled) = put(&self.tmp, content)?;
                (Some(name), journalled)
            }
        };
        self.items.push(Item { path: step.path.clone(), before: step.before, stamp, file, journalled });
        Ok(())
    }

    /// Makes the folders above `path` that the tree lacks, or will lack.
    fn add_folders(&mut self, root: &Root, path: &LogicalPath, goes: Goes<'_>) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = path.clone();
        loop {
            match root.place(&at) {
                Err(GuardError::Missing) => {}
                Err(GuardError::NotADirectory) if root.is_vacant(&at, goes)? => {}
                // Whatever else is on the way is for the look at the step's target to tell.
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
            dir = open_folder(&dir, folder.file_name())?;
        }
        Ok(())
    }

    /// The staged folder that goes to `path`.
    fn folder(&mut self, path: LogicalPath) -> io::Result<OwnedFd> {
        if let Some(known) = self.folders.iter().find(|folder| folder.path == path) {
            return open_folder(&self.tmp, &known.name);
        }
        let name = fresh_name("folder-");
        rustix::fs::mkdirat(&*self.tmp, &*name, FOLDER_MODE)?;
        self.folders.push(Folder { path, name: name.clone(), moved: false });
        open_folder(&self.tmp, &name)
    }

    /// Looks at every target once more, and gives those that are not what their steps expect.
    pub(super) fn look_again(&mut self, root: &Root) -> io::Result<Vec<LogicalPath>> {
        let goes = among(|| self.items.iter().filter(|item| item.file.is_none()).map(|item| &item.path));
        let look = |item: &Item| stands(root, &item.path, item.before, item.stamp, &goes);
        let found: Vec<_> = self.items.iter().map(look).collect::<io::Result<_>>()?;
        drop(goes);
        let mut changed = Vec::new();
        for (item, (stands, stamp)) in self.items.iter_mut().zip(found) {
            item.stamp = stamp;
            if !stands {
                changed.push(item.path.clone());
            }
        }
        Ok(changed)
    }

    /// Nothing is left to remove.
    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for folder in self.folders.iter().filter(|folder| !folder.moved) {
            if let Err(error) = remove_tree(self.tmp.as_fd(), folder.name.as_bytes()) {
                // The next start empties the folder.
                tracing::warn!(%error, "a staged folder could not be removed");
            }
        }
        if self.finished {
            return;
        }
        for item in self.items.iter().filter(|item| !item.journalled) {
            if let Some(name) = &item.file
                && let Err(error) = remove(&self.tmp, name)
            {
                // The next start empties the folder.
                tracing::warn!(%error, "a staged file could not be removed");
            }
        }
    }
}

impl Item {
    /// What it replaces.
    pub(super) fn leaving(&self) -> Option<Leaving> {
        self.before.map(|_| Leaving::File(self.stamp))
    }
}

/// Whether what stands at `path` has the hash `before`, and under which stamp; `stamp` is one under which it had. What `goes`
/// stands nowhere.
fn stands(
    root: &Root,
    path: &LogicalPath,
    before: Option<Sha256>,
    stamp: Option<Stamp>,
    goes: Goes<'_>,
) -> io::Result<(bool, Option<Stamp>)> {
    Ok(match (before, look(root, path, goes)?) {
        (None, found) => (found == TargetState::Nothing, None),
        (Some(_), TargetState::File(found)) if Some(found) == stamp => (true, stamp),
        // Another stamp need not be other bytes.
        (Some(before), TargetState::File(_)) => {
            let stamp = hash(root, path)?.filter(|(sha256, _)| *sha256 == before).map(|(_, stamp)| stamp);
            (stamp.is_some(), stamp)
        }
        (Some(_), TargetState::Nothing | TargetState::Other) => (false, None),
    })
}

/// Puts a step's bytes into `tmp/`, with the mode bits they shall have. Also says whether the journal knows the name.
pub(super) fn put(tmp: &OwnedFd, content: &StepContent) -> io::Result<(String, bool)> {
    let mode = Mode::from_raw_mode(content.mode & 0o777);
    match &content.bytes {
        StepBytes::Inline(bytes) => {
            let name = fresh_name("step-");
            let mut file = create(tmp, &name)?;
            if let Err(error) = file.write_all(bytes).and_then(|()| Ok(rustix::fs::fchmod(&file, mode)?)) {
                remove(tmp, &name)?;
                return Err(error);
            }
            Ok((name, false))
        }
        StepBytes::Staged(name) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(tmp, &**name, flags, Mode::empty())?;
            rustix::fs::fchmod(fd, mode)?;
            Ok((name.clone(), true))
        }
    }
}

/// A sync that failed for good: what was to be written may be gone, and a second try may be told otherwise.
#[derive(Debug, thiserror::Error)]
#[error("a sync failed")]
struct FsyncFailure(#[source] io::Error);

/// Whether `error` says that a sync has failed, after which nothing that was written is certain.
pub fn is_fsync_failure(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<FsyncFailure>)
}

fn sync(what: impl AsFd) -> io::Result<()> {
    rustix::fs::fsync(what).map_err(|errno| match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::ROFS => errno.into(),
        errno => io::Error::other(FsyncFailure(errno.into())),
    })
}

fn create(tmp: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(tmp, name, flags, Mode::RUSR | Mode::WUSR)?))
}

pub(super) fn remove(tmp: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(tmp, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn copy(from: &mut dyn Read, to: &mut File, max_bytes: u64) -> io::Result<(Sha256, u64, Vec<u8>)> {
    const HEAD_BYTES: usize = 8 * 1024;
    let mut sha256 = sha2::Sha256::new();
    let (mut size, mut head, mut buffer) = (0_u64, Vec::new(), vec![0; 256 * 1024]);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((Sha256::from_bytes(sha256.finalize().into()), size, head)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = &buffer[..count];
        size += count as u64;
        if size > max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        head.extend_from_slice(&bytes[..count.min(HEAD_BYTES - head.len())]);
        sha256.update(bytes);
        to.write_all(bytes)?;
    }
}
