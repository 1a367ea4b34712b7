//! The bounds of what an import holds in memory.

use model::{Code, Refusal};

use super::ImportLimits;
use crate::WorkspaceError;

/// Counts the entries that a source names, whether or not they are written. Names are held in memory until the import ends.
pub(super) struct EntryQuota {
    limits: ImportLimits,
    entries: u64,
    name_bytes: u64,
}

impl EntryQuota {
    pub(super) fn new(limits: ImportLimits) -> Self {
        Self { limits, entries: 0, name_bytes: 0 }
    }

    /// Returns the number of entries so far.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Counts one entry.
    pub(super) fn count(&mut self, name: &[u8]) -> Result<(), WorkspaceError> {
        self.entries += 1;
        self.name_bytes += name.len() as u64;
        if self.entries > self.limits.max_entries {
            return Err(too_large("entries", self.limits.max_entries));
        }
        if self.name_bytes > self.limits.max_name_bytes {
            return Err(too_large("bytes of names", self.limits.max_name_bytes));
        }
        Ok(())
    }
}

/// The refusal of a source that exceeds a limit.
pub(super) fn too_large(what: &str, limit: u64) -> WorkspaceError {
    Refusal::new(
        Code::InvalidRequest,
        format!("the source has more than {limit} {what}"),
        "Import a smaller tree: omit build output, dependencies and data.",
    )
    .with_details(|details| details.limit = Some(limit))
    .into()
}
