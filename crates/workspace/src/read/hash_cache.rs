//! A cache of the hashes of files that are read repeatedly.
//!
//! A hash is cached only if the file's stamp was settled when its bytes were read, so that a later write changes the stamp.

use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use lru::LruCache;
use model::Sha256;
use parking_lot::Mutex;
use sha2::Digest as _;

use crate::WorkspaceError;
use crate::guard::OpenFile;
use crate::opened_file::each_chunk;
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

/// Returns the hash and the length of the version `stamp` of `file`, and caches the hash. Stops reading beyond `max_bytes`.
pub(crate) fn hash_file(
    file: &OpenFile,
    stamp: DeviceStamp,
    max_bytes: u64,
    cancel: &AtomicBool,
) -> Result<(Sha256, u64), WorkspaceError> {
    if let Some(sha256) = get(&stamp) {
        return Ok((sha256, stamp.stamp.size));
    }
    file.check()?;
    let (mut hash, mut length) = (sha2::Sha256::new(), 0);
    each_chunk(file, stamp.stamp.size, cancel, |chunk| {
        hash.update(chunk);
        length += chunk.len() as u64;
        length <= max_bytes
    })?;
    let sha256 = Sha256::from_bytes(hash.finalize().into());
    let unchanged = DeviceStamp::of(&file.stat()?) == stamp;
    insert(unchanged.then_some(stamp), sha256);
    Ok((sha256, length))
}
