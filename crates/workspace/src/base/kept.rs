//! Bytes of base files that were read or seen, so that the next diff need not ask git for them.

use std::collections::HashMap;
use std::sync::Arc;

use super::manifest::FileIndex;

/// How many bytes are kept for one base.
const MAX_BYTES: usize = 2 << 20;
/// Longer files are not kept.
const MAX_FILE_BYTES: usize = 256 << 10;

/// Base files in memory.
#[derive(Debug, Default)]
pub(crate) struct BlobCache {
    files: HashMap<FileIndex, Arc<Vec<u8>>>,
    bytes: usize,
}

impl BlobCache {
    pub(super) fn get(&self, file: FileIndex) -> Option<Arc<Vec<u8>>> {
        self.files.get(&file).cloned()
    }

    pub(super) fn keep(&mut self, file: FileIndex, bytes: &[u8]) {
        if bytes.len() > MAX_FILE_BYTES || self.files.contains_key(&file) {
            return;
        }
        if self.bytes + bytes.len() > MAX_BYTES {
            self.files.clear();
            self.bytes = 0;
        }
        self.bytes += bytes.len();
        self.files.insert(file, Arc::new(bytes.to_vec()));
    }
}
