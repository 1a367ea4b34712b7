//! Calls of one run under an ID of the caller's, one at a time.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use model::ToolCallId;
use tokio::sync::Notify;

/// The IDs whose calls are under way.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<HashSet<ToolCallId>>,
    left: Notify,
}

/// The right to run the call under an ID, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    id: ToolCallId,
}

impl Claims {
    /// Waits until no other call under `id` is under way.
    pub(crate) async fn enter(&self, id: &ToolCallId) -> Claim<'_> {
        loop {
            let left = self.left.notified();
            if self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone()) {
                return Claim { claims: self, id: id.clone() };
            }
            left.await;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.claims.left.notify_waiters();
    }
}
