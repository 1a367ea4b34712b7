//! Brings paths to a given state regardless of what they contain, for an operator who repairs a run.

use model::{LogicalPath, StepContent};
use rustix::fs::FileType;

use super::{Applied, Replaced};
use crate::Workspace;
use crate::guard::{FoundEntry, GuardError};

/// The state that a path is brought to.
#[derive(Clone, Debug)]
pub enum RestoredState {
    /// Nothing.
    Nothing,
    /// A file or a symbolic link.
    File(StepContent),
}

impl Workspace {
    /// Brings each path to its wanted state. Replaces files, links and empty folders; syncs nothing. Paths at which nothing is
    /// wanted come first. Returns `false` if something else is in the way, such as a folder that is not empty: then that path
    /// and those after it are unchanged.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn restore(&self, wanted: &[(LogicalPath, RestoredState)]) -> std::io::Result<(Applied, bool)> {
        let mut applied = Applied::new(self);
        // A removed path may be above or under another one.
        let (removed, created): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|(_, want)| matches!(want, RestoredState::Nothing));
        for (path, want) in removed.into_iter().chain(created) {
            if let Err(error) = self.restore_one(path, want, &mut applied) {
                error.unless_disk()?;
                return Ok((applied, false));
            }
        }
        applied.remove_emptied();
        Ok((applied, true))
    }

    fn restore_one(&self, path: &LogicalPath, want: &RestoredState, applied: &mut Applied) -> Result<(), GuardError> {
        let wanted = match want {
            RestoredState::Nothing => None,
            RestoredState::File(content) => Some(content),
        };
        let found = match self.tree().root.find(path) {
            Err(GuardError::NotADirectory) if wanted.is_none() => return Ok(()),
            found => found?,
        };
        let replaced = match found.as_ref().map(FoundEntry::file_type) {
            Some(FileType::RegularFile | FileType::Symlink) => {
                found.filter(|found| wanted.is_none() || !found.is_of_base())
            }
            // An empty folder is replaced when the file is moved in.
            None | Some(FileType::Directory) => None,
            Some(_) => return Err(GuardError::Occupied),
        };
        applied.bring(path, wanted, replaced.map(|_| Replaced::Any))
    }
}
