//! Brings paths to a given state regardless of what they contain, for an operator who repairs a run.

use model::{LogicalPath, StepContent};
use rustix::fs::FileType;

use super::stage::write_content;
use super::{Applied, MoveError, Replaced, move_in, move_out};
use crate::Workspace;
use crate::dir::remove_file;
use crate::guard::GuardError;

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
            match self.restore_one(path, want, &mut applied) {
                Ok(()) => {}
                Err(MoveError::Outside | MoveError::Missing) => return Ok((applied, false)),
                Err(MoveError::Io(error)) => return Err(error),
            }
        }
        applied.remove_emptied();
        Ok((applied, true))
    }

    fn restore_one(&self, path: &LogicalPath, want: &RestoredState, applied: &mut Applied) -> Result<(), MoveError> {
        let (root, tmp) = (&self.tree().root, self.tmp());
        let replaces = match root.find(path) {
            Err(GuardError::NotADirectory) if matches!(want, RestoredState::Nothing) => return Ok(()),
            found => match found?.map(|found| found.file_type()) {
                Some(FileType::RegularFile | FileType::Symlink) => true,
                // An empty folder is replaced when the file is moved in.
                None | Some(FileType::Directory) => false,
                Some(_) => return Err(MoveError::Outside),
            },
        };
        let (name, is_journalled) = match want {
            RestoredState::Nothing if replaces => return move_out(tmp, root, path, Replaced::Any, applied),
            RestoredState::Nothing => return Ok(()),
            RestoredState::File(content) => write_content(tmp, content).map_err(MoveError::Io)?,
        };
        let moved = move_in(tmp, &name, root, path, replaces.then_some(Replaced::Any), applied);
        if moved.is_err() && !is_journalled {
            remove_file(tmp, &*name)?;
        }
        moved
    }
}
