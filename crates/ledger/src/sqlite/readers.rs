//! A few connections that only read, opened when they are first needed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::open;
use crate::{LedgerError, Result};

/// Queries at a time.
const MAX_READERS: usize = 4;

pub(super) struct Readers {
    path: PathBuf,
    room: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            room: Arc::new(Semaphore::new(MAX_READERS)),
            idle: Arc::new(Mutex::new(Vec::new())),
        }
    }

    /// Runs `query` where blocking is allowed.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = |_| LedgerError::Unavailable("the ledger has been closed".into());
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(closed)?;
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let task = tokio::task::spawn_blocking(move || {
            // Moved in, so that a caller who goes away does not make room before the query has ended.
            let _permit = permit;
            let pooled = idle.lock().ok().and_then(|mut idle| idle.pop());
            let connection = pooled.map_or_else(|| open::reader(&path), Ok)?;
            let answer = query(&connection);
            if let Ok(mut idle) = idle.lock() {
                idle.push(connection);
            }
            answer
        });
        task.await.map_err(|error| LedgerError::Internal(Box::new(error)))?
    }

    /// Gives back what the connections that nobody uses keep in memory.
    pub(super) async fn rest(&self) -> Result<()> {
        let idle = Arc::clone(&self.idle);
        let task = tokio::task::spawn_blocking(move || {
            let mut resting = idle.lock().map(|mut idle| std::mem::take(&mut *idle)).unwrap_or_default();
            let rested = resting.iter().try_for_each(open::shrink);
            if let Ok(mut idle) = idle.lock() {
                idle.append(&mut resting);
            }
            rested
        });
        task.await.map_err(|error| LedgerError::Internal(Box::new(error)))?
    }

    /// Lets no more queries in.
    pub(super) fn close(&self) {
        self.room.close();
        if let Ok(mut idle) = self.idle.lock() {
            idle.clear();
        }
    }
}
