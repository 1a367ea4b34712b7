//! Changes from outside, as plans and records have them.

use model::{FileState, LogicalPath, RecordFile, Step};
use serde::{Deserialize, Serialize};

use crate::run::known_versions::KnownFile;

/// A path at which the tree has another version than the run's story.
#[derive(Clone, Debug)]
pub struct OutsideChange {
    /// The path.
    pub path: LogicalPath,
    /// The file that the newest record, or else the base, has.
    pub known: Option<KnownFile>,
    /// The file in the tree.
    pub found: Option<FileState>,
}

/// The members of a record about changes from outside, and what makes them durable.
#[derive(Debug, Default)]
pub struct RecordedOutside {
    /// The files.
    pub files: Vec<RecordFile>,
    /// The diff from the known versions to those that were found.
    pub diff: Vec<u8>,
    /// The steps that would have made the changes, so that the ledger stores the contents.
    pub steps: Vec<Step>,
}

/// Which side of a run's drift becomes its present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Accept {
    /// The files as they are: the changes from outside are recorded, and nothing is written.
    Tree,
    /// The files as the audit has them: the changes from outside are recorded first, then the files are restored.
    Ledger,
}
