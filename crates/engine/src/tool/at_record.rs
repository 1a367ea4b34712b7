//! Reading a run's files at an earlier record.

use model::LogicalPath;
use workspace::{Snapshot, StoredContents};

/// The earlier record that a read asks for.
#[derive(Clone, Debug)]
pub struct AtRecord {
    /// The number of the record.
    pub seq: u64,
    /// Whether the output shows file modes.
    pub with_modes: bool,
    /// The only path that is read; `None` for all.
    pub only: Option<LogicalPath>,
}

/// A run's files at an earlier record.
pub struct SnapshotView {
    /// The files.
    pub files: Snapshot,
    /// Their contents.
    pub contents: Box<dyn StoredContents + Send + Sync>,
}
