//! What an operator finds in a tree in place of what the ledger says.

use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::AtomicBool;

use model::{Access, LogicalPath, PathFacts, Rules, Sha256};
use rustix::fs::{Mode, OFlags};

use super::{ContentStore, Snapshot, SnapshotFile};
use crate::{Drift, EntryState, Workspace, WorkspaceError};

/// What stands at a path in place of what should.
#[derive(Debug)]
pub struct DriftEntry {
    /// The path.
    pub path: LogicalPath,
    /// What the ledger says.
    pub old: EntryState,
    /// What is there.
    pub new: EntryState,
    /// The bytes that are there, or where a link leads; `None` where nothing is, or where they are too many to be kept.
    pub bytes: Option<Vec<u8>>,
    /// The diff between the two, without a line of what policy hides.
    pub diff: Vec<u8>,
}

impl Workspace {
    /// The bytes of a past file; of a link, where it led. `None` where they were too many to be kept.
    ///
    /// Policy has not been asked: whoever shows them judges them first.
    ///
    /// # Errors
    ///
    /// Where the disk or the ledger fails.
    pub fn snapshot_content(
        &self,
        path: &LogicalPath,
        file: &SnapshotFile,
        contents: &dyn ContentStore,
    ) -> Result<Option<Vec<u8>>, WorkspaceError> {
        self.snapshot_bytes(path, file, contents, &AtomicBool::new(false))
    }

    /// Looks at what was found at a difference; its bytes are told up to `max_bytes`.
    ///
    /// # Errors
    ///
    /// Where the disk or the ledger fails, or something else is there by now.
    pub fn inspect_drift(
        &self,
        rules: &Rules,
        past: &Snapshot,
        difference: Drift,
        contents: &dyn ContentStore,
        max_bytes: u64,
    ) -> Result<DriftEntry, WorkspaceError> {
        let Drift { path, expected: old, found: new } = difference;
        let bytes = match new {
            EntryState::Nothing | EntryState::Folder | EntryState::Other => None,
            EntryState::Link { .. } => Some(self.link_target(&path)?),
            EntryState::File { .. } => self.bytes_at(&path, max_bytes)?,
        };
        if bytes.as_ref().is_some_and(|bytes| Some(Sha256::of(bytes)) != new.sha256()) {
            return Err(std::io::Error::other("a file changed while it was looked at").into());
        }
        let facts = PathFacts {
            path: &path,
            real_path: None,
            kind: rules.kind_of_path(&path),
            ignored: false,
            hard_linked: false,
        };
        let shown = model::judge_path(rules, Access::Read, &facts).is_ok();
        let diff = self.difference_diff(past, &path, (new, bytes.as_deref()), shown, contents)?;
        Ok(DriftEntry { path, old, new, bytes, diff })
    }

    fn link_target(&self, path: &LogicalPath) -> Result<Vec<u8>, WorkspaceError> {
        let place = self.tree().root.place(path).map_err(|error| error.at(path))?;
        Ok(rustix::fs::readlinkat(&place.dir, &*place.name, Vec::new())?.into_bytes())
    }

    fn bytes_at(&self, path: &LogicalPath, max_bytes: u64) -> Result<Option<Vec<u8>>, WorkspaceError> {
        let place = self.tree().root.place(path).map_err(|error| error.at(path))?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat(&place.dir, &*place.name, flags, Mode::empty())?);
        let mut bytes = Vec::new();
        file.take(max_bytes + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= max_bytes))
    }
}
