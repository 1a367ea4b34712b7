//! The cache of runs that are open in this process.

pub(crate) mod fetches;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ledger::Epoch;
use lru::LruCache;
use model::{Rules, RunId};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use crate::run::open_run::OpenRun;

/// The entry of a run. Empty while the first call opens the run.
pub(crate) type OpenRunCell = Arc<OpenRunSlot>;

/// The value of an [`OpenRunCell`].
#[derive(Default)]
pub(crate) struct OpenRunSlot {
    run: OnceLock<Arc<OpenRun>>,
    /// Held by the task that opens the run. It outlives the caller for whom the task began, so that no second task clears the
    /// temporary files of a run that the first one has opened meanwhile.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl OpenRunSlot {
    /// Returns the run, if it is open.
    pub(crate) fn get(&self) -> Option<&Arc<OpenRun>> {
        self.run.get()
    }

    /// Waits until no other task opens the run.
    pub(crate) async fn lock_opening(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.opening).lock_owned().await
    }

    /// Stores the run that the holder of the lock has opened.
    pub(crate) fn fill(&self, run: Arc<OpenRun>) {
        // Only the holder of the lock stores a run, and only into an empty slot.
        let _ = self.run.set(run);
    }
}

/// The open runs, most recently used first. Runs in use stay open, so that there may be more than `capacity`.
pub(crate) struct OpenRuns {
    capacity: usize,
    cells: Mutex<LruCache<RunId, OpenRunCell>>,
    /// The runs that were lost to another node while calls used them, each with what is cancelled when the last such call has ended.
    lost: Mutex<HashMap<RunId, CancellationToken>>,
}

impl OpenRuns {
    /// Creates an empty cache.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, cells: Mutex::new(LruCache::unbounded()), lost: Mutex::default() }
    }

    /// Returns the number of open runs.
    pub(crate) fn len(&self) -> usize {
        self.cells.lock().len()
    }

    /// Returns the open runs whose tree may lack recorded changes.
    pub(crate) fn dirty(&self) -> Vec<Arc<OpenRun>> {
        let cells = self.cells.lock();
        let open = cells.iter().filter_map(|(_, cell)| cell.get());
        open.filter(|run| run.accounting.is_dirty()).cloned().collect()
    }

    /// Returns the rules of every open run.
    pub(crate) fn rules(&self) -> Vec<Arc<Rules>> {
        let cells = self.cells.lock();
        cells.iter().filter_map(|(_, cell)| cell.get()).map(|run| Arc::clone(&run.rules)).collect()
    }

    /// Returns the run, if it is open.
    pub(crate) fn get(&self, run: &RunId) -> Option<Arc<OpenRun>> {
        self.cells.lock().get(run).and_then(|cell| cell.get().cloned())
    }

    /// Returns the entry of the run. The first caller fills it.
    pub(crate) fn cell(&self, run: &RunId) -> OpenRunCell {
        let mut cells = self.cells.lock();
        if let Some(cell) = cells.get(run) {
            return Arc::clone(cell);
        }
        let cell = OpenRunCell::default();
        cells.put(run.clone(), Arc::clone(&cell));
        self.evict(&mut cells);
        cell
    }

    /// Evicts the least recently used runs. A run in use stays, even over the capacity: two copies of a run would not see each
    /// other's mutations.
    fn evict(&self, cells: &mut LruCache<RunId, OpenRunCell>) {
        for _ in 0..cells.len().min(64) {
            if cells.len() <= self.capacity {
                return;
            }
            let Some((run, cell)) = cells.pop_lru() else { return };
            // Clones are made from this table, under its lock, or from another clone, so a count of one cannot grow here.
            let is_unused = |run: &Arc<OpenRun>| Arc::strong_count(run) == 1;
            let is_idle = Arc::strong_count(&cell) == 1 && cell.get().is_none_or(is_unused);
            if !is_idle {
                cells.put(run, cell);
            }
        }
    }

    /// Removes the run.
    pub(crate) fn remove(&self, run: &RunId) {
        self.cells.lock().pop(run);
    }

    /// Removes a run that this node does not own any more under `epoch`. One that was opened since, under a later epoch, stays.
    pub(crate) fn lose(&self, run: &RunId, epoch: Epoch) {
        let mut cells = self.cells.lock();
        let is_lost = |open: &Arc<OpenRun>| open.epoch.is_some_and(|held| held <= epoch);
        let Some(open) = cells.get(run).and_then(|cell| cell.get()).filter(|open| is_lost(open)) else { return };
        let mut lost = self.lost.lock();
        lost.retain(|_, ended| !ended.is_cancelled());
        lost.insert(run.clone(), open.ended.clone());
        cells.pop(run);
    }

    /// Waits until no call uses the run as it was opened before it was lost. Such a call cannot commit, but it can still write to the
    /// files.
    pub(crate) async fn until_lost_calls_end(&self, run: &RunId) {
        let ended = self.lost.lock().get(run).cloned();
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }

    /// Removes the runs that no call uses, and returns them with their epochs. Later calls open them again.
    pub(crate) fn remove_idle(&self) -> Vec<(RunId, Epoch)> {
        let mut cells = self.cells.lock();
        let epoch_if_idle = |cell: &OpenRunCell| {
            let open = cell.get().filter(|open| Arc::strong_count(cell) == 1 && Arc::strong_count(open) == 1)?;
            open.epoch
        };
        let idle: Vec<_> = cells.iter().filter_map(|(run, cell)| Some((run.clone(), epoch_if_idle(cell)?))).collect();
        for (run, _) in &idle {
            cells.pop(run);
        }
        idle
    }

    /// Returns the runs that are open or being opened.
    pub(crate) fn ids(&self) -> Vec<RunId> {
        self.cells.lock().iter().map(|(run, _)| run.clone()).collect()
    }

    /// Removes an entry that could not be filled, unless another caller waits for it.
    pub(crate) fn remove_unfilled(&self, run: &RunId, cell: &OpenRunCell) {
        let mut cells = self.cells.lock();
        if cell.get().is_none() && Arc::strong_count(cell) <= 2 {
            cells.pop(run);
        }
    }
}
