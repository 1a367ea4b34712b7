//! Paths brought to a state whatever stands there: for an operator who repairs a run.

use model::{LogicalPath, StepContent};
use rustix::fs::FileType;

use super::stage::{put, remove};
use super::{Applied, Leaving, MoveError, move_in, take_out};
use crate::Workspace;
use crate::guard::GuardError;
use crate::import::fresh_name;

/// What shall stand at a path.
#[derive(Clone, Debug)]
pub enum RestoreTarget {
    /// Nothing.
    Nothing,
    /// A file.
    File(StepContent),
    /// A symbolic link that leads there.
    Link(Vec<u8>),
}

impl Workspace {
    /// Brings each path to what it shall be, files, links and folders with nothing in them that stand there replaced; syncs
    /// nothing. Those where nothing shall be come first. False where something is in the way that is none of these, such as a
    /// folder with something in it: then that path and those behind it are as they were.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn restore(&self, wanted: &[(LogicalPath, RestoreTarget)]) -> std::io::Result<(Applied, bool)> {
        let mut applied = Applied::new(self.tree().root.clone(), self.tmp().clone());
        // What goes may be what another is above, or lies beneath.
        let (go, come): (Vec<_>, Vec<_>) = wanted.iter().partition(|(_, want)| matches!(want, RestoreTarget::Nothing));
        for (path, want) in go.into_iter().chain(come) {
            match self.restore_one(path, want, &mut applied) {
                Ok(()) => {}
                Err(MoveError::Outside | MoveError::Missing) => return Ok((applied, false)),
                Err(MoveError::Io(error)) => return Err(error),
            }
        }
        applied.remove_emptied();
        Ok((applied, true))
    }

    fn restore_one(&self, path: &LogicalPath, want: &RestoreTarget, applied: &mut Applied) -> Result<(), MoveError> {
        let (root, tmp) = (&self.tree().root, self.tmp());
        let replaces = match root.place(path) {
            Err(GuardError::Missing | GuardError::NotADirectory) if matches!(want, RestoreTarget::Nothing) => {
                return Ok(());
            }
            Err(GuardError::Missing) => false,
            place => match place?.stat().map_err(MoveError::Io)? {
                None => false,
                Some(stat) => match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile | FileType::Symlink => true,
                    // Whether it makes room shows when the file comes.
                    FileType::Directory => false,
                    _ => return Err(MoveError::Outside),
                },
            },
        };
        let (name, journalled) = match want {
            RestoreTarget::Nothing if replaces => return take_out(tmp, root, path, Leaving::FileOrLink, applied),
            RestoreTarget::Nothing => return Ok(()),
            RestoreTarget::File(content) => put(tmp, content).map_err(MoveError::Io)?,
            RestoreTarget::Link(target) => {
                let name = fresh_name("link-");
                rustix::fs::symlinkat(&**target, tmp, &*name)?;
                (name, false)
            }
        };
        let moved = move_in(tmp, &name, root, path, replaces.then_some(Leaving::FileOrLink), applied);
        if moved.is_err() && !journalled {
            remove(tmp, &name).map_err(MoveError::Io)?;
        }
        moved
    }
}
