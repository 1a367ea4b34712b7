//! Changes that were diffed, so that the next diff need not write them again.

use std::collections::HashMap;
use std::sync::Arc;

use model::Sha256;

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
    /// What git keeps of the mode afterwards: whether it is a link, and executable. `None` where nothing is there.
    pub(crate) mode: Option<(bool, bool)>,
    /// The text of its diff.
    pub(crate) text: Vec<u8>,
}

/// Under which stamp a file has what a part tells; nothing, where it is gone.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    ByStamp(Option<Stamp>),
    /// A later write may have left the stamp as it is, or there is no such file yet.
    ByContent,
}

/// Changes of files of one base, by what the files are now.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    by_file: HashMap<FileIndex, (Known, Arc<Part>)>,
    bytes: usize,
}

impl Parts {
    pub(super) fn get(&self, file: FileIndex, stamp: Option<Stamp>) -> Option<Arc<Part>> {
        self.by_file.get(&file).filter(|(known, _)| *known == Known::ByStamp(stamp)).map(|(_, part)| part.clone())
    }

    pub(super) fn get_by_content(&self, file: FileIndex, new: &Sha256, mode: (bool, bool)) -> Option<Arc<Part>> {
        let (_, part) = self.by_file.get(&file)?;
        (part.file.new_sha256 == Some(*new) && part.mode == Some(mode)).then(|| part.clone())
    }

    pub(super) fn keep(&mut self, file: FileIndex, stamp: Option<Stamp>, part: &Arc<Part>) {
        self.put(file, Known::ByStamp(stamp), part);
    }

    pub(super) fn keep_by_content(&mut self, file: FileIndex, part: &Arc<Part>) {
        self.put(file, Known::ByContent, part);
    }

    fn put(&mut self, file: FileIndex, known: Known, part: &Arc<Part>) {
        let is_kept = |(kept, old): &(Known, Arc<Part>)| *kept == known && Arc::ptr_eq(old, part);
        if self.by_file.get(&file).is_some_and(is_kept) || part.text.len() > MAX_PART_BYTES {
            return;
        }
        if self.bytes + part.text.len() > MAX_BYTES {
            self.by_file.clear();
            self.bytes = 0;
        }
        self.bytes += part.text.len();
        if let Some((_, old)) = self.by_file.insert(file, (known, part.clone())) {
            self.bytes -= old.text.len();
        }
    }
}
