//! Steps → tree: staged beside it, renamed into it, done again after a kill.

use std::io;

use model::{LogicalPath, Step};

use crate::Workspace;

/// Steps whose new bytes lie in the run's `tmp/`, written but not yet in the tree.
#[derive(Debug)]
pub struct Staged {}

/// Steps that are in the tree, with what has to be synced before the journal may forget them.
#[derive(Debug)]
pub struct Applied {}

/// Why steps could not be carried out after the journal had them.
#[derive(Debug, thiserror::Error)]
pub enum ApplyFault {
    /// Something else stands where a step expects its `before`: changed from outside. Steps up to it are done.
    #[error("the tree was changed from outside at {0:?}")]
    ChangedOutside(Vec<LogicalPath>),
    /// The disk failed.
    #[error("the file system failed")]
    Io(#[from] io::Error),
}

/// What doing steps again after a kill came to.
#[derive(Debug)]
pub enum Redo {
    /// Every target is as the steps want it.
    Done(Applied),
    /// These targets are neither as before nor as after; nothing was touched.
    ChangedOutside(Vec<LogicalPath>),
}

impl Workspace {
    /// Writes the steps' new bytes to `tmp/`, makes no change to the tree, and fails where the disk is full.
    ///
    /// # Errors
    ///
    /// Where the disk fails; what was staged is removed.
    pub fn stage(&self, _steps: &[Step]) -> io::Result<Staged> {
        unimplemented!()
    }

    /// Moves what was staged into the tree: missing folders are made, each target is compared with its step's `before`
    /// once more, then renamed by the handle of its folder. Nothing is synced.
    ///
    /// # Errors
    ///
    /// See [`ApplyFault`].
    pub fn apply(&self, _staged: Staged) -> Result<Applied, ApplyFault> {
        unimplemented!()
    }

    /// Carries out steps that a killed process may have begun: where every target is as before or as after, all become
    /// as after.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn redo(&self, _steps: &[Step]) -> io::Result<Redo> {
        unimplemented!()
    }

    /// Empties `tmp/`. Only at start-up, when no step is under way.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn clear_tmp(&self) -> io::Result<()> {
        unimplemented!()
    }
}

impl Applied {
    /// Syncs every file and folder that was touched; afterwards a power cut cannot undo the steps.
    ///
    /// # Errors
    ///
    /// Where the disk fails. A failed sync is never tried again: the process has to end and recover.
    pub fn sync(self) -> io::Result<()> {
        unimplemented!()
    }
}
