//! Changes that were diffed, so that the next diff need not write them again.

use std::collections::HashMap;
use std::sync::Arc;

use super::manifest::{FileIndex, Stamp};
use crate::DiffFile;

/// How much text is kept for one base.
const MAX_BYTES: usize = 2 << 20;
/// Longer texts are not kept.
const MAX_PART_BYTES: usize = 256 << 10;

/// One file's change.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) file: DiffFile,
    /// Sizes before and after.
    pub(crate) bytes: (u64, u64),
    /// The text of its diff.
    pub(crate) text: Vec<u8>,
}

/// Changes of files of one base, by what the files are now.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    by_file: HashMap<FileIndex, (Option<Stamp>, Arc<Part>)>,
    bytes: usize,
}

impl Parts {
    pub(super) fn get(&self, file: FileIndex, stamp: Option<Stamp>) -> Option<Arc<Part>> {
        self.by_file.get(&file).filter(|(kept, _)| *kept == stamp).map(|(_, part)| part.clone())
    }

    pub(super) fn keep(&mut self, file: FileIndex, stamp: Option<Stamp>, part: &Arc<Part>) {
        if self.by_file.get(&file).is_some_and(|(kept, _)| *kept == stamp) || part.text.len() > MAX_PART_BYTES {
            return;
        }
        if self.bytes + part.text.len() > MAX_BYTES {
            self.by_file.clear();
            self.bytes = 0;
        }
        self.bytes += part.text.len();
        if let Some((_, old)) = self.by_file.insert(file, (stamp, part.clone())) {
            self.bytes -= old.text.len();
        }
    }
}
