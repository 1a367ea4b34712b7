//! Connections that read, opened on demand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::open;
use crate::{ConnectionCounts, LedgerError, Result};

/// Maximum number of concurrent queries.
pub(crate) const MAX_READERS: usize = 8;

pub(crate) struct ReadPool {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl ReadPool {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), permits: Arc::new(Semaphore::new(MAX_READERS)), idle: Arc::default() }
    }

    /// Runs `query` on a thread for blocking work.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = |_| LedgerError::Unavailable("the ledger is closed".into());
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let task = tokio::task::spawn_blocking(move || {
            // Held by the thread, because the query continues if the caller is cancelled.
            let _permit = permit;
            let pooled = idle.lock().pop();
            let connection = pooled.map_or_else(|| open::reader(&path), Ok)?;
            let result = query(&connection);
            idle.lock().push(connection);
            result
        });
        task.await.map_err(|error| LedgerError::Internal(Box::new(error)))?
    }

    /// Returns the number of queries and of idle connections.
    pub(crate) fn connections(&self) -> ConnectionCounts {
        let used = MAX_READERS.saturating_sub(self.permits.available_permits());
        ConnectionCounts { max: MAX_READERS, used, idle: self.idle.lock().len() }
    }

    /// Rejects further queries.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
    }
}
