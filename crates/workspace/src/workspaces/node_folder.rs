//! The folders of runs on one of several nodes. Such a folder has the files of its run only if no other node has opened them since: the
//! file `.owner` in it says under which epoch this node did.
//!
//! The file is durable before anything under the folder may change under that epoch, and epochs grow with every owner. The ledger knows
//! the epochs since which no owner has opened the files. If the one in the file is among them, no other node can have changed the run in
//! between. Otherwise the folder is made again, and replaced only then.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use model::RunId;
use rustix::io::Errno;

use super::Workspaces;
use super::run_folders::has_unfinished;
use crate::dir::{create_file, fresh_name, open_dir, open_file, remove_file};

/// The file in the folder of a run.
const OWNER: &str = ".owner";
/// The maximum size of the file: an epoch, and the name of the owner.
const MAX_BYTES: u64 = 1024;

/// The note of a folder that is not current under any epoch.
const NOBODY: (u64, String) = (0, String::new());

/// Whether the folder of a run on this machine has the files of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderState {
    /// There is none.
    Missing,
    /// Another node may have changed the run since.
    Outdated,
    /// The folder was not [confirmed](Workspaces::confirm): it may be of another import under the same ID.
    Unfinished,
    /// It has them, once the journal is applied.
    Current,
}

impl Workspaces {
    /// Sets the name of this node among those that share a database. Folders that were used under another name count as outdated.
    #[must_use]
    pub fn with_owner(self, owner: String) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// Returns the state of the folder of `run`, whose files nobody has changed since `epochs`, and which this node owns under the last of
    /// these. A folder that is current stays so under this epoch, which is noted in it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn own_folder(&self, run: &RunId, epochs: &RangeInclusive<u64>) -> io::Result<FolderState> {
        let dir = match open_dir(&self.dir, run.as_str()) {
            Err(Errno::NOENT) => return Ok(FolderState::Missing),
            dir => dir?,
        };
        if has_unfinished(&dir)? {
            return Ok(FolderState::Unfinished);
        }
        let noted = read(&dir)?;
        if noted.as_ref() == Some(&(*epochs.end(), self.owner().to_owned())) {
            return Ok(FolderState::Current);
        }
        if !self.is_current(&dir, epochs)? {
            return Ok(FolderState::Outdated);
        }
        write(&dir, *epochs.end(), self.owner())?;
        Ok(FolderState::Current)
    }

    /// Whether the folder of `run` has its files, which nobody has changed since `epochs`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn has_files_of(&self, run: &RunId, epochs: &RangeInclusive<u64>) -> io::Result<bool> {
        match open_dir(&self.dir, run.as_str()) {
            Err(Errno::NOENT) => Ok(false),
            dir => self.is_current(&dir?, epochs),
        }
    }

    fn is_current(&self, dir: &OwnedFd, epochs: &RangeInclusive<u64>) -> io::Result<bool> {
        Ok(is_among(read(dir)?.as_ref(), self.owner(), epochs) && !has_unfinished(dir)?)
    }

    /// Returns the epoch in the folder of `run`, if a node has used it. For a service that is the only one.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn noted_epoch(&self, run: &RunId) -> io::Result<Option<u64>> {
        match open_dir(&self.dir, run.as_str()) {
            Err(Errno::NOENT) => Ok(None),
            dir => Ok(read(&dir?)?.map(|(epoch, _)| epoch)),
        }
    }

    /// Notes that the ledger has `run`, whose folder was imported and which this node has owned under `epoch` when it was stored.
    ///
    /// # Errors
    ///
    /// If the disk fails: the folder counts as outdated then.
    pub fn confirm_owned(&self, run: &RunId, epoch: u64) -> io::Result<()> {
        let dir = open_dir(&self.dir, run.as_str())?;
        if read(&dir)?.is_none() {
            write(&dir, epoch, self.owner())?;
        }
        self.confirm(run)
    }

    /// Notes in `dir`, which becomes the folder of a run, that this node owns the run under `epoch`.
    pub(super) fn note_owner(&self, dir: &OwnedFd, epoch: u64) -> io::Result<()> {
        write(dir, epoch, self.owner())
    }

    fn owner(&self) -> &str {
        self.owner.as_deref().unwrap_or_default()
    }
}

/// Whether the epoch of a note of `owner` is among `epochs`. A folder without a note was used by a service that was the only one, before
/// any node has owned the run.
fn is_among(noted: Option<&(u64, String)>, owner: &str, epochs: &RangeInclusive<u64>) -> bool {
    match noted {
        None => epochs.contains(&0),
        Some((noted, name)) => epochs.contains(noted) && name == owner,
    }
}

/// Reads the note; `None` if there is none. One that cannot be understood is of nobody.
fn read(dir: &OwnedFd) -> io::Result<Option<(u64, String)>> {
    let file = match open_file(dir, OWNER) {
        Err(Errno::NOENT) => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    match file.take(MAX_BYTES).read_to_string(&mut text) {
        Err(error) if error.kind() != ErrorKind::InvalidData => return Err(error),
        _ => {}
    }
    let parsed = text.strip_suffix('\n').and_then(|text| text.split_once('\n'));
    let parsed = parsed.and_then(|(epoch, owner)| Some((epoch.parse().ok()?, owner.to_owned())));
    Ok(Some(parsed.unwrap_or(NOBODY)))
}

/// Writes the note, durably.
fn write(dir: &OwnedFd, epoch: u64, owner: &str) -> io::Result<()> {
    let name = fresh_name(".owner-");
    let written = (|| {
        let mut file = create_file(dir, &*name)?;
        file.write_all(format!("{epoch}\n{owner}\n").as_bytes())?;
        file.sync_all()?;
        Ok(rustix::fs::renameat(dir, &*name, dir, OWNER)?)
    })();
    failpoint::hit("restore.noted");
    if written.is_err() {
        // The next attempt has another name, and a folder that is made again does not have this one.
        let _ = remove_file(dir, &*name);
    }
    written.and_then(|()| Ok(rustix::fs::fsync(dir)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_current_if_nobody_has_opened_the_files_since() {
        let noted = |epoch| Some((epoch, "a".to_owned()));
        let is = |noted: Option<(u64, String)>, epochs| is_among(noted.as_ref(), "a", &epochs);
        assert!(is(noted(7), 7..=8) && is(noted(8), 7..=8) && is(None, 0..=2));
        assert!(!is(noted(6), 7..=8) && !is(None, 1..=1));
        // The database was restored from an older state.
        assert!(!is(noted(9), 7..=8));
        assert!(!is(Some((7, "b".to_owned())), 7..=8) && !is(Some((0, String::new())), 0..=1));
    }
}
