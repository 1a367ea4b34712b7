//! The newest settled position that this process knows, and the task that keeps it up to date.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sqlx::postgres::PgPool;
use tokio::sync::{Notify, watch};

use super::address::PostgresAddress;
use super::connection::failed;
use super::fence::{BEGIN, EnterMode, WriterFence};
use super::positions;
use super::writer::TIMEOUT;
use crate::{LedgerError, Result};

/// Minimum and maximum delay between two queries for commits of other processes.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// The newest settled position that this process knows. It never decreases.
pub(crate) struct SettledPosition {
    newest: watch::Sender<i64>,
    /// The last position that this process committed.
    own: AtomicI64,
    /// Wakes the task after a commit of this process whose position is not settled yet, or which completes a zone.
    committed: Notify,
}

impl SettledPosition {
    /// Creates it with the position at which the database was opened. Also returns the receiver of the ledger itself.
    pub(crate) fn new(position: i64) -> (Arc<Self>, watch::Receiver<i64>) {
        let (newest, receiver) = watch::channel(position);
        (Arc::new(Self { newest, own: AtomicI64::new(position), committed: Notify::new() }), receiver)
    }

    /// Publishes the settled position after this process has committed `position`. `None` if it is not known.
    pub(crate) fn after_commit(&self, settled: Option<i64>, position: i64) {
        let before = *self.newest.borrow();
        let settled = settled.unwrap_or(before);
        self.own.fetch_max(position, Ordering::Relaxed);
        self.publish(settled);
        if settled < position || positions::first_unsealed(before) < positions::first_unsealed(settled) {
            self.committed.notify_one();
        }
    }

    /// Returns whether the position has grown.
    fn publish(&self, settled: i64) -> bool {
        self.newest.send_if_modified(|newest| std::mem::replace(newest, settled.max(*newest)) < settled)
    }

    /// Queries the position repeatedly, while the last commit of this process is not settled or a caller waits for a newer position.
    /// Ends when it is aborted.
    pub(crate) async fn watch(self: Arc<Self>, address: Arc<PostgresAddress>, pool: PgPool, fence: Arc<WriterFence>) {
        let (mut delay, mut sealed) = (POLL_INTERVAL.1, 0);
        loop {
            let has_committed = tokio::time::timeout(delay, self.committed.notified()).await.is_ok();
            if !has_committed && !self.is_awaited() {
                continue;
            }
            let refreshed = tokio::time::timeout(TIMEOUT, self.refresh(&address, &pool, &fence, &mut sealed)).await;
            let has_grown = refreshed.unwrap_or_else(|_| Err(LedgerError::Unavailable("no response".into())));
            let has_grown = has_grown.unwrap_or_else(|error| {
                // The next commit reports what is wrong with the database.
                tracing::debug!(error = &error as &dyn std::error::Error, "the settled position is not known");
                false
            });
            delay = if has_committed || has_grown { POLL_INTERVAL.0 } else { (delay * 2).min(POLL_INTERVAL.1) };
        }
    }

    fn is_awaited(&self) -> bool {
        // One receiver is that of the ledger itself.
        self.newest.receiver_count() > 1 || *self.newest.borrow() < self.own.load(Ordering::Relaxed)
    }

    /// Queries the settled position, and returns whether it has grown. Also seals the zones that are complete; `sealed` is the position
    /// up to which they are.
    async fn refresh(
        &self,
        address: &PostgresAddress,
        pool: &PgPool,
        fence: &WriterFence,
        sealed: &mut i64,
    ) -> Result<bool> {
        let mut connection = address.acquire(pool).await?;
        let settled = positions::settled(&mut connection).await?;
        let has_grown = self.publish(settled);
        if *sealed < positions::first_unsealed(settled) {
            let mut tx = connection.begin(BEGIN).await?;
            let mut fenced = fence.enter(&mut tx, EnterMode::Shared).await?;
            positions::seal_zones(&mut fenced, settled).await?;
            tx.commit().await.map_err(failed)?;
            *sealed = positions::first_unsealed(settled);
        }
        Ok(has_grown)
    }
}
