//! A cache of the hashes of files that are read repeatedly.
//!
//! A hash is cached only if the file's stamp was settled when its bytes were read, so that a later write changes the stamp.

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use lru::LruCache;
use model::Sha256;
use parking_lot::Mutex;

use crate::stamp::DeviceStamp;

/// How many hashes are cached for all runs together: about half a megabyte.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

static CACHE: LazyLock<Mutex<LruCache<DeviceStamp, Sha256>>> = LazyLock::new(|| Mutex::new(LruCache::new(CAPACITY)));

/// Returns the cached hash of the version `stamp`.
pub(crate) fn get(stamp: &DeviceStamp) -> Option<Sha256> {
    CACHE.lock().get(stamp).copied()
}

/// Caches the hash of the version `stamp`, which the file had both before and after its bytes were read.
pub(crate) fn insert(stamp: Option<DeviceStamp>, sha256: Sha256) {
    if let Some(stamp) = stamp.filter(|stamp| stamp.stamp.is_settled()) {
        CACHE.lock().put(stamp, sha256);
    }
}

/// Returns the hash of `bytes`, which are those of the version `stamp`, and caches it.
pub(crate) fn hash(bytes: &[u8], stamp: Option<DeviceStamp>) -> Sha256 {
    stamp.as_ref().and_then(get).unwrap_or_else(|| {
        let sha256 = Sha256::of(bytes);
        insert(stamp, sha256);
        sha256
    })
}
