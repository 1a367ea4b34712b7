//! Which artifacts of runs this process has seen and stored.

use std::collections::HashMap;

use model::{RunId, Sha256};
use parking_lot::Mutex;

/// What the artifacts of each run looked like at the last look.
#[derive(Default)]
pub(crate) struct ArtifactStamps(pub(crate) Mutex<HashMap<RunId, Looked>>);

/// The artifacts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Changes with the artifacts.
    pub(crate) stamp: Sha256,
    /// Whether the object store has them.
    pub(crate) is_kept: bool,
}
