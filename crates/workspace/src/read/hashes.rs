//! Hashes of files that are read again and again.
//!
//! A hash stands for a version of a file: device, inode, size and both times. It is kept only where the times had
//! passed for a second when the bytes were hashed, so that a later write cannot leave them as they were.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lru::LruCache;
use model::Sha256;

use crate::guard::Stamp;

/// So many hashes are kept, of all runs together: about half a megabyte.
const MAX_KEPT: usize = 4096;

static KEPT: LazyLock<Mutex<LruCache<Stamp, Sha256>>> = LazyLock::new(|| Mutex::new(LruCache::unbounded()));

/// The hash of the version `stamp`, if it is kept.
pub(crate) fn known(stamp: &Stamp) -> Option<Sha256> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).get(stamp).copied()
}

/// Keeps the hash of the version `stamp`, which the file had before and after its bytes were read, where it can be
/// trusted later.
pub(crate) fn keep(stamp: Option<Stamp>, sha256: Sha256) {
    if let Some(stamp) = stamp.filter(is_settled) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.put(stamp, sha256);
        if kept.len() > MAX_KEPT {
            kept.pop_lru();
        }
    }
}

/// Whether the last write is more than a second ago.
#[expect(clippy::disallowed_methods, reason = "it is compared with what the file system's clock has written")]
fn is_settled(stamp: &Stamp) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Whole seconds are cut off on both sides: a difference of two is more than one second.
    i64::try_from(now).is_ok_and(|now| now - stamp.seconds() >= 2)
}
