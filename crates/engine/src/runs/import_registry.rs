//! Runs whose source is coming in: what they are, how far they are, and whether anybody still wants them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Disk, DiskChange, Policy, Refusal, Run, RunId, RunState};
use workspace::ImportObserver;

use crate::runs::quota::Reservation;

/// A line is logged whenever so many more files are in.
const FILES_A_LOG_LINE: u64 = 5000;

/// Every stage of an import; `waiting` until it has a place.
const STAGES: [&str; 5] = ["waiting", "fetching", "writing", "committing", "done"];

/// The imports that are under way.
#[derive(Default)]
pub struct Imports(Arc<Mutex<HashMap<RunId, Arc<Import>>>>);

/// One import.
#[derive(Debug)]
pub struct Import {
    run: Run,
    stage: AtomicUsize,
    files: AtomicU64,
    bytes: AtomicU64,
    logged: AtomicU64,
    cancelled: AtomicBool,
    /// What it has brought to the disk; taken when the run has it.
    disk: Mutex<Option<Reservation>>,
}

/// The right to import a run; others find it taken until this is dropped.
pub struct Importing {
    pub import: Arc<Import>,
    table: Arc<Mutex<HashMap<RunId, Arc<Import>>>>,
}

/// Stops the import when it is dropped: whoever asked for it has gone away.
pub struct CancelOnDrop(pub Arc<Import>);

impl Imports {
    /// Begins the import of `run`, whose files are reserved with `disk`; `None` where one is under way.
    pub fn begin(&self, run: Run, disk: Reservation) -> Option<Importing> {
        let mut table = lock(&self.0);
        if table.contains_key(&run.run_id) {
            return None;
        }
        let import = Arc::new(Import {
            run,
            stage: AtomicUsize::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            disk: Mutex::new(Some(disk)),
        });
        table.insert(import.run.run_id.clone(), Arc::clone(&import));
        Some(Importing { import, table: Arc::clone(&self.0) })
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// The run that is coming in, with its progress.
    pub fn get(&self, run: &RunId) -> Option<Run> {
        lock(&self.0).get(run).map(|import| import.told())
    }

    /// Every run that is coming in, by time of creation.
    pub fn all(&self) -> Vec<Run> {
        let mut runs: Vec<_> = lock(&self.0).values().map(|import| import.told()).collect();
        runs.sort_by(|a, b| (&a.created_at, &a.run_id).cmp(&(&b.created_at, &b.run_id)));
        runs
    }
}

fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Import {
    /// The run's policy.
    pub fn policy(&self) -> &Policy {
        &self.run.policy
    }

    fn told(&self) -> Run {
        let mut run = self.run.clone();
        run.state = RunState::Preparing;
        run.import.files = self.files.load(Ordering::Relaxed);
        run.import.bytes = self.bytes.load(Ordering::Relaxed);
        STAGES[self.stage.load(Ordering::Relaxed)].clone_into(&mut run.import.progress);
        run
    }
}

impl Import {
    /// The run has what came in.
    pub fn settle(&self, disk: Disk) {
        let change = DiskChange::to(disk);
        if let Some(reservation) = lock(&self.disk).take() {
            reservation.settle(change);
        }
    }
}

impl ImportObserver for Import {
    fn progress(&self, stage: &'static str, files: u64, bytes: u64) {
        let number = STAGES.iter().position(|known| *known == stage).unwrap_or(0);
        let before = self.stage.swap(number, Ordering::Relaxed);
        self.files.store(files, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        let logged = self.logged.load(Ordering::Relaxed);
        if before != number || files >= logged + FILES_A_LOG_LINE {
            self.logged.store(files, Ordering::Relaxed);
            tracing::info!(run.id = %self.run.run_id, stage, files, bytes, "import goes on");
        }
    }

    fn check_quota(&self, files: u64, bytes: u64) -> Result<(), Refusal> {
        match &mut *lock(&self.disk) {
            Some(reservation) => reservation.resize(Disk { bytes, files }),
            None => Ok(()),
        }
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Drop for Importing {
    fn drop(&mut self) {
        lock(&self.table).remove(&self.import.run.run_id);
    }
}
