//! Least-recently-used caches that are bounded in bytes.

use std::hash::Hash;
use std::sync::Arc;

use lru::LruCache;
use model::Sha256;
use parking_lot::Mutex;

use super::file_change::FileChange;
use crate::base_files::BaseFiles;
use crate::base_files::manifest::FileIndex;
use crate::stamp::FileStamp;

/// What an entry counts besides its own bytes.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// A least-recently-used cache whose values have a size in bytes.
pub(super) struct ByteLru<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    bytes: usize,
    max_bytes: usize,
    max_entries: usize,
}

impl<K: Hash + Eq, V> ByteLru<K, V> {
    fn new(max_bytes: usize, max_entries: usize) -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0, max_bytes, max_entries }
    }

    fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Inserts a value and evicts the least recently used ones beyond the bounds, but never the new one.
    fn insert(&mut self, key: K, value: V, bytes: usize) {
        let bytes = bytes + ENTRY_OVERHEAD_BYTES;
        self.bytes += bytes;
        if let Some((_, replaced)) = self.entries.put(key, (value, bytes)) {
            self.bytes -= replaced;
        }
        while (self.bytes > self.max_bytes || self.entries.len() > self.max_entries) && self.entries.len() > 1 {
            let Some((_, (_, evicted))) = self.entries.pop_lru() else { break };
            self.bytes -= evicted;
        }
    }
}

/// The bases that were used last, so that the next call of the same run need not load them again.
pub(crate) struct BaseLru(Mutex<ByteLru<usize, Arc<BaseFiles>>>);

impl Default for BaseLru {
    fn default() -> Self {
        // Each base may hold a few megabytes of cached files and diffs besides.
        Self(Mutex::new(ByteLru::new(32 << 20, 16)))
    }
}

impl BaseLru {
    /// Marks `loaded` as the last used, and evicts the least recently used ones beyond the bounds.
    pub(super) fn touch(&self, loaded: &Arc<BaseFiles>) {
        let (mut cache, key) = (self.0.lock(), Arc::as_ptr(loaded).addr());
        if cache.get(&key).is_none() {
            cache.insert(key, Arc::clone(loaded), loaded.weight);
        }
    }
}

/// How the current version of a cached file is identified.
#[derive(Debug, PartialEq, Eq)]
enum CachedVersion {
    /// By its stamp; `None` for a deleted file.
    Stamp(Option<FileStamp>),
    /// By its hash alone: its stamp is not settled.
    Content,
}

/// A file of a base, as one open tree has changed it: policies differ in what a diff may show.
type FileOfBase = (u64, FileIndex);

/// Changes of files that were diffed, so that the next diff need not compute them again.
pub(crate) struct DiffCache(Mutex<ByteLru<FileOfBase, (CachedVersion, Arc<FileChange>)>>);

impl Default for DiffCache {
    fn default() -> Self {
        Self(Mutex::new(ByteLru::new(32 << 20, usize::MAX)))
    }
}

impl DiffCache {
    /// Changes with more text are not cached.
    const MAX_TEXT_BYTES: usize = 256 << 10;

    /// Returns the change to the version with `stamp` (`None` for a deleted file).
    pub(crate) fn get(&self, file: FileOfBase, stamp: Option<FileStamp>) -> Option<Arc<FileChange>> {
        let mut cache = self.0.lock();
        let (version, change) = cache.get(&file)?;
        (*version == CachedVersion::Stamp(stamp)).then(|| Arc::clone(change))
    }

    /// Returns the change to this content and mode.
    pub(crate) fn get_by_content(&self, file: FileOfBase, new: &Sha256, mode: u32) -> Option<Arc<FileChange>> {
        let mut cache = self.0.lock();
        let (_, change) = cache.get(&file)?;
        (change.file.new_sha256 == Some(*new) && change.mode == Some(mode)).then(|| Arc::clone(change))
    }

    /// Caches a change for the next diff: by the stamp of the current version, if that is settled.
    pub(crate) fn insert(&self, file: FileOfBase, stamp: Option<FileStamp>, change: &Arc<FileChange>) {
        let is_known = stamp.is_none_or(|stamp| stamp.is_settled());
        let version = if is_known { CachedVersion::Stamp(stamp) } else { CachedVersion::Content };
        if change.text.len() <= Self::MAX_TEXT_BYTES {
            self.0.lock().insert(file, (version, Arc::clone(change)), change.text.len());
        }
    }
}
