//! The bounds of what an import holds in memory, and of its report.

use model::{Code, Refusal, SkippedEntry};

use super::{ImportError, ImportLimits};
use crate::walk::escape;

/// The maximum length of a path in a report or message, in characters.
const MAX_SHOWN: usize = 200;
/// The maximum number of skipped entries in a report.
const MAX_SKIPPED: usize = 1_000;
/// The maximum size of their paths and reasons. Reports are stored with the run and are part of every list of runs.
const MAX_SKIPPED_BYTES: usize = 64 * 1024;

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
    pub(super) fn count(&mut self, name: &[u8]) -> Result<(), ImportError> {
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

/// The entries that an import has skipped, bounded in number and in bytes.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct SkippedReport {
    pub(crate) entries: Vec<SkippedEntry>,
    #[serde(skip)]
    bytes: usize,
    /// How many more were skipped.
    pub(crate) more: u64,
}

impl SkippedReport {
    pub(super) fn add(&mut self, path: &[u8], reason: &str) {
        if self.entries.len() < MAX_SKIPPED && self.more == 0 {
            let path = shown(path);
            self.bytes += path.len() + reason.len();
            if self.bytes <= MAX_SKIPPED_BYTES {
                self.entries.push(SkippedEntry { path, reason: reason.to_owned() });
                return;
            }
        }
        self.more += 1;
    }
}

/// Returns a path of a source as text: bytes that are not UTF-8 are written `\xNN`, a long path is cut, and credentials are
/// removed.
pub(super) fn shown(path: &[u8]) -> String {
    // Long enough that a credential that begins in the shown part is still recognized.
    let start = &path[..path.len().min(4 * MAX_SHOWN + 512)];
    model::excerpt(&escape(start), MAX_SHOWN)
}

/// The refusal of a source that exceeds a limit.
pub(super) fn too_large(what: &str, limit: u64) -> ImportError {
    Refusal::new(
        Code::InvalidRequest,
        format!("the source has more than {limit} {what}"),
        "Import a smaller tree: omit build output, dependencies and data.",
    )
    .with_details(|details| details.limit = Some(limit))
    .into()
}
