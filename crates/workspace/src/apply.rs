//! Steps → tree: staged beside it, renamed into it, done again after a kill.

mod redo;
mod restore;
mod stage;
mod sync;
#[cfg(test)]
mod tests;

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use model::{LogicalPath, Sha256, Step, StepBytes};
use rustix::fs::{AtFlags, FileType, RenameFlags, Stat};
use rustix::io::Errno;
use sha2::Digest as _;

use crate::Workspace;
use crate::base::manifest::Stamp;
use crate::guard::{self, Goes, GuardError, Place, Root};
use crate::import::fresh_name;

pub use redo::Replay;
pub use restore::RestoreTarget;
use stage::Folder;
pub use stage::{Staged, StagedFile, is_fsync_failure};
pub use sync::Applied;

/// How often the folder that a file goes to is made again, where other changes take it away because they have emptied it.
const MAX_RACES: u32 = 256;

/// Why steps could not be carried out after the journal had them.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Something else stands where a step expects its `before`: changed from outside. Steps up to it are done.
    #[error("the tree was changed from outside at {0:?}")]
    ChangedOutside(Vec<LogicalPath>),
    /// The disk failed.
    #[error("the file system failed")]
    Io(#[from] io::Error),
}

impl Workspace {
    /// Moves what was staged into the tree: each target is compared with its step's `before` once more, then files are taken
    /// out, and the new folders and files are renamed in by the handles of their folders. Nothing is synced.
    ///
    /// # Errors
    ///
    /// See [`ApplyError`].
    pub fn apply(&self, mut staged: Staged) -> Result<Applied, ApplyError> {
        let root = &self.tree().root;
        let changed = staged.look_again(root)?;
        if !changed.is_empty() {
            return Err(ApplyError::ChangedOutside(changed));
        }
        let mut applied = Applied::new(root.clone(), staged.tmp.clone());
        // What goes may stand where a folder or a file comes.
        for item in staged.items.iter().filter(|item| item.file.is_none()) {
            let taken = take_out(&staged.tmp, root, &item.path, Leaving::File(item.stamp), &mut applied);
            taken.map_err(|error| error.at(&item.path))?;
            failpoint::hit("apply.step");
        }
        for folder in &mut staged.folders {
            move_folder_in(&staged.tmp, root, folder)?;
            failpoint::hit("apply.folder");
        }
        for item in &staged.items {
            let Some(name) = &item.file else { continue };
            let moved = move_in(&staged.tmp, name, root, &item.path, item.leaving(), &mut applied);
            moved.map_err(|error| error.at(&item.path))?;
            failpoint::hit("apply.step");
        }
        for folder in staged.folders.iter().filter(|folder| folder.moved) {
            applied.made(&folder.path);
        }
        applied.remove_emptied();
        staged.finish();
        Ok(applied)
    }

    /// Removes everything in `tmp/` that `pending`, the steps that the journal holds, do not name. Only while the run is being
    /// opened, when no call has staged anything.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn clear_tmp(&self, pending: &[Step]) -> io::Result<()> {
        let contents = pending.iter().filter_map(|step| step.after.as_ref());
        let keep: Vec<_> = contents
            .filter_map(|content| match &content.bytes {
                StepBytes::Staged(name) => Some(name.as_str()),
                StepBytes::Inline(_) => None,
            })
            .collect();
        crate::import::remove_all_in(self.tmp(), &keep)
    }
}

/// What stands at a path, for a step to be compared with.
#[derive(Debug, PartialEq, Eq)]
enum TargetState {
    Nothing,
    /// A file of one name, under this stamp.
    File(Stamp),
    /// A link, a folder with something in it, a file of several names, or a path that leads through one: nothing that a step
    /// acts on.
    Other,
}

/// Why a rename did not happen.
enum MoveError {
    Outside,
    /// The same, where what is renamed or a folder on its way is not there.
    Missing,
    Io(io::Error),
}

impl MoveError {
    /// What comes of it for the step at `path`.
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
            // Of a folder that was to make room: something came into it, or is mounted upon it.
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
        // The service made what it wrote to, or found it readable before.
        error.unless_disk().map_or_else(Self::Io, |()| Self::Outside)
    }
}

/// What stands at `path`; what `goes` with the same steps is in nobody's way, nor are folders with nothing else in them.
fn look(root: &Root, path: &LogicalPath, goes: Goes<'_>) -> io::Result<TargetState> {
    let found = match root.place(path) {
        Ok(place) => match place.stat()? {
            None => TargetState::Nothing,
            Some(stat) if FileType::from_raw_mode(stat.st_mode).is_file() && !guard::is_hard_linked(&stat) => {
                TargetState::File(Stamp::of(&stat))
            }
            Some(_) => TargetState::Other,
        },
        Err(GuardError::Missing) => TargetState::Nothing,
        Err(error) => {
            error.unless_disk()?;
            TargetState::Other
        }
    };
    Ok(if found == TargetState::Other && root.is_vacant(path, goes)? { TargetState::Nothing } else { found })
}

/// Whether a path is one of `paths`, which are only put in order where it is asked.
fn among<'a, I: Iterator<Item = &'a LogicalPath>>(paths: impl FnOnce() -> I) -> impl Fn(&LogicalPath) -> bool {
    let paths = LazyCell::new(|| paths().collect::<BTreeSet<_>>());
    move |path| paths.contains(path)
}

/// The hash of the file at `path`, and its stamp before and after the reading; `None` where no such file can be read.
pub(crate) fn hash(root: &Root, path: &LogicalPath) -> io::Result<Option<(Sha256, Stamp)>> {
    let opened = match root.open_unlinked(path) {
        Ok(opened) => opened,
        Err(error) => {
            error.unless_disk()?;
            return Ok(None);
        }
    };
    if !opened.file_type().is_file() || opened.is_hard_linked() {
        return Ok(None);
    }
    let before = Stamp::of(&opened.stat);
    let mut file = File::from(opened.file);
    let sha256 = digest(&mut file, before.size)?;
    let after = Stamp::of(&rustix::fs::fstat(&file)?);
    Ok((before == after).then_some((sha256, after)))
}

/// The hash of what is left to read of `file`, which has about `size` bytes.
fn digest(file: &mut File, size: u64) -> io::Result<Sha256> {
    let mut sha256 = sha2::Sha256::new();
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(usize::MAX).clamp(512, 256 * 1024)];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Sha256::from_bytes(sha256.finalize().into())),
            Ok(count) => sha256.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Renames a staged folder to its place. Where there is one by now, it is left to whoever opens places beneath it.
fn move_folder_in(tmp: &OwnedFd, root: &Root, folder: &mut Folder) -> Result<(), ApplyError> {
    let place = match root.place(&folder.path) {
        Ok(place) => place,
        Err(error) => {
            // The folder above has gone, or is none any more: whoever opens the place sees.
            return Ok(error.unless_disk()?);
        }
    };
    match rustix::fs::renameat_with(tmp, &*folder.name, &place.dir, &*place.name, RenameFlags::NOREPLACE) {
        Ok(()) => folder.moved = true,
        // Of one above it that goes away just now, because another change has emptied it, the same holds as above.
        Err(Errno::EXIST | Errno::NOENT) => {}
        Err(errno) => return Err(io::Error::from(errno).into()),
    }
    Ok(())
}

/// What may come out of the tree. Another process may put something else there at any time, so that only what came out
/// tells for certain what it was.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// A file of one name; where its stamp is known, that one.
    File(Option<Stamp>),
    /// Any file, or a link.
    FileOrLink,
}

impl Leaving {
    fn is(self, stat: &Stat) -> bool {
        match (FileType::from_raw_mode(stat.st_mode), self) {
            (FileType::RegularFile | FileType::Symlink, Self::FileOrLink) => true,
            (FileType::RegularFile, Self::File(expected)) => {
                // All but the time of the last change of the inode, which a rename sets.
                let same = |known: Stamp, now: Stamp| {
                    (known.inode, known.size, known.modified_ns) == (now.inode, now.size, now.modified_ns)
                };
                !guard::is_hard_linked(stat) && expected.is_none_or(|known| same(known, Stamp::of(stat)))
            }
            _ => false,
        }
    }

    /// Whether what came out of the tree and lies in `tmp` now may.
    fn has_left(self, tmp: &OwnedFd, name: &str) -> io::Result<bool> {
        Ok(self.is(&rustix::fs::statat(tmp, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }
}

/// Renames a staged file to `path`, in exchange for what it `replaces`, or in the place of a folder with nothing in it.
fn move_in(
    tmp: &OwnedFd,
    name: &str,
    root: &Root,
    path: &LogicalPath,
    replaces: Option<Leaving>,
    applied: &mut Applied,
) -> Result<(), MoveError> {
    let made_folders = if let Some(leaving) = replaces {
        let (place, grown) = root.make_place(path)?;
        // Exchanged, and freed with the sync: a rename over a file would wait for its blocks.
        let exchange = || rustix::fs::renameat_with(tmp, name, &place.dir, &*place.name, RenameFlags::EXCHANGE);
        exchange()?;
        if !leaving.has_left(tmp, name).map_err(MoveError::Io)? {
            exchange()?;
            return Err(MoveError::Outside);
        }
        applied.took_away(name.to_owned());
        !grown.is_empty()
    } else {
        in_its_folder(root, path, |place| {
            let arrive = || rustix::fs::renameat_with(tmp, name, &place.dir, &*place.name, RenameFlags::NOREPLACE);
            match arrive() {
                Err(Errno::EXIST) if root.is_vacant(path, &|_| false).map_err(MoveError::Io)? => {
                    root.remove_vacant(place)?;
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

/// Has something `arrive` at `path`, in its folder, which is made where it is missing; whether it was. Between any two steps
/// of this another change may take that folder away, because it has emptied it: then it is made again.
fn in_its_folder(
    root: &Root,
    path: &LogicalPath,
    arrive: impl Fn(&Place) -> Result<(), MoveError>,
) -> Result<bool, MoveError> {
    let (mut made_folders, mut races) = (false, 0..MAX_RACES);
    loop {
        let arrived = root.make_place(path).map_err(MoveError::from).and_then(|(place, grown)| {
            made_folders |= !grown.is_empty();
            arrive(&place)
        });
        match arrived {
            Err(MoveError::Missing) if races.next().is_some() => made_folders = true,
            arrived => return arrived.map(|()| made_folders),
        }
    }
}

/// Takes the file at `path` out of the tree; the sync frees it. The folder it lay in stays until all steps are done.
fn take_out(
    tmp: &OwnedFd,
    root: &Root,
    path: &LogicalPath,
    leaving: Leaving,
    applied: &mut Applied,
) -> Result<(), MoveError> {
    let place = root.place(path)?;
    let name = fresh_name("gone-");
    rustix::fs::renameat_with(&place.dir, &*place.name, tmp, &*name, RenameFlags::NOREPLACE)?;
    if !leaving.has_left(tmp, &name).map_err(MoveError::Io)? {
        let put_back = |place: &Place| {
            Ok(rustix::fs::renameat_with(tmp, &*name, &place.dir, &*place.name, RenameFlags::NOREPLACE)?)
        };
        in_its_folder(root, path, put_back)?;
        return Err(MoveError::Outside);
    }
    applied.took_away(name);
    applied.removed(path);
    Ok(())
}
