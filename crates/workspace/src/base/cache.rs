//! Least-recently-used caches that are bounded in bytes.

use std::hash::Hash;
use std::sync::Arc;

use lru::LruCache;
use model::Sha256;
use parking_lot::Mutex;

use super::LoadedBase;
use super::file_change::FileChange;
use super::manifest::FileIndex;
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

    fn remove(&mut self, key: &K) {
        if let Some((_, removed)) = self.entries.pop(key) {
            self.bytes -= removed;
        }
    }
}

/// The bases that were used last, so that the next call of the same run need not load them again.
pub(crate) struct BaseLru(Mutex<ByteLru<usize, Arc<LoadedBase>>>);

impl Default for BaseLru {
    fn default() -> Self {
        // Each base may hold a few megabytes of cached files and diffs besides.
        Self(Mutex::new(ByteLru::new(32 << 20, 16)))
    }
}

impl BaseLru {
    /// Marks `loaded` as the last used, and evicts the least recently used ones beyond the bounds.
    pub(super) fn touch(&self, loaded: &Arc<LoadedBase>) {
        let (mut cache, key) = (self.0.lock(), Arc::as_ptr(loaded).addr());
        if cache.get(&key).is_none() {
            cache.insert(key, Arc::clone(loaded), loaded.weight());
        }
    }

    /// Drops `loaded`, which is out of date.
    pub(super) fn remove(&self, loaded: &Arc<LoadedBase>) {
        self.0.lock().remove(&Arc::as_ptr(loaded).addr());
    }
}

/// Bytes of base files, so that the next diff need not ask git for them.
pub(super) struct BlobCache(ByteLru<FileIndex, Arc<Vec<u8>>>);

impl Default for BlobCache {
    fn default() -> Self {
        Self(ByteLru::new(2 << 20, usize::MAX))
    }
}

impl BlobCache {
    /// Larger files are not cached.
    const MAX_FILE_BYTES: usize = 256 << 10;

    pub(super) fn get(&mut self, file: FileIndex) -> Option<Arc<Vec<u8>>> {
        self.0.get(&file).cloned()
    }

    pub(super) fn insert(&mut self, file: FileIndex, bytes: &[u8]) {
        if bytes.len() <= Self::MAX_FILE_BYTES && self.0.get(&file).is_none() {
            self.0.insert(file, Arc::new(bytes.to_vec()), bytes.len());
        }
    }
}

/// How the current version of a cached file is identified.
#[derive(Debug, PartialEq, Eq)]
enum CachedVersion {
    /// By its stamp; `None` for a deleted file.
    Stamp(Option<FileStamp>),
    /// By its hash alone: its stamp is not settled, or the change is planned only.
    Content,
}

/// Changes of one base's files that were diffed, so that the next diff need not compute them again.
pub(super) struct DiffCache(ByteLru<FileIndex, (CachedVersion, Arc<FileChange>)>);

impl Default for DiffCache {
    fn default() -> Self {
        Self(ByteLru::new(2 << 20, usize::MAX))
    }
}

impl DiffCache {
    /// Changes with more text are not cached.
    const MAX_TEXT_BYTES: usize = 256 << 10;

    /// Returns the change to the version with `stamp` (`None` for a deleted file).
    pub(super) fn get(&mut self, file: FileIndex, stamp: Option<FileStamp>) -> Option<Arc<FileChange>> {
        let (version, change) = self.0.get(&file)?;
        (*version == CachedVersion::Stamp(stamp)).then(|| Arc::clone(change))
    }

    /// Returns the change to this content and mode.
    pub(super) fn get_by_content(
        &mut self,
        file: FileIndex,
        new: &Sha256,
        mode: (bool, bool),
    ) -> Option<Arc<FileChange>> {
        let (_, change) = self.0.get(&file)?;
        (change.file.new_sha256 == Some(*new) && change.mode == Some(mode)).then(|| Arc::clone(change))
    }

    pub(super) fn insert(&mut self, file: FileIndex, stamp: Option<FileStamp>, change: &Arc<FileChange>) {
        self.put(file, CachedVersion::Stamp(stamp), change);
    }

    pub(super) fn insert_by_content(&mut self, file: FileIndex, change: &Arc<FileChange>) {
        self.put(file, CachedVersion::Content, change);
    }

    fn put(&mut self, file: FileIndex, version: CachedVersion, change: &Arc<FileChange>) {
        let is_cached =
            |(cached, old): &(CachedVersion, Arc<FileChange>)| *cached == version && Arc::ptr_eq(old, change);
        if change.text.len() <= Self::MAX_TEXT_BYTES && !self.0.get(&file).is_some_and(is_cached) {
            self.0.insert(file, (version, Arc::clone(change)), change.text.len());
        }
    }
}
