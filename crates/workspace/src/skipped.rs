//! What an import has skipped, as it is shown.

use model::SkippedEntry;

use crate::walk::escape;

/// The maximum length of a path in a report or message, in characters.
const MAX_SHOWN: usize = 200;
/// The maximum number of skipped entries in a report.
const MAX_SKIPPED: usize = 1_000;
/// The maximum size of their paths and reasons. Reports are stored with the run and are part of every list of runs.
const MAX_SKIPPED_BYTES: usize = 64 * 1024;

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
    pub(crate) fn add(&mut self, path: &[u8], reason: &str) {
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
pub(crate) fn shown(path: &[u8]) -> String {
    // Long enough that a credential that begins in the shown part is still recognized.
    let start = &path[..path.len().min(4 * MAX_SHOWN + 512)];
    model::excerpt(&escape(start), MAX_SHOWN)
}
