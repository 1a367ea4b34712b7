//! Locks of approvals that several operators must give.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use model::ApprovalId;
use tokio::sync::{Mutex, MutexGuard};

/// Approvals share locks by their hash.
const LOCKS: usize = 64;

/// Locks that let one operator at a time approve a call, so that of two the second sees the first.
pub(crate) struct VoteLocks([Mutex<()>; LOCKS]);

impl Default for VoteLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl VoteLocks {
    /// Waits for other operators who approve the same call.
    pub(crate) async fn lock(&self, approval: &ApprovalId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        approval.hash(&mut hasher);
        // The remainder is less than the number of locks.
        self.0[usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0)].lock().await
    }
}
