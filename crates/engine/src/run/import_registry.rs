//! The registry of imports in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use model::{Disk, DiskChange, ImportReport, Policy, Refusal, Run, RunId, RunState, Source};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use workspace::ImportObserver;

use crate::run::keyed::{Keyed, KeyedGuard};
use crate::run::quota::Reservation;

/// Number of files between two log lines of progress.
const FILES_PER_LOG_LINE: u64 = 5000;

/// The stages of an import; `waiting` until it has a permit.
const STAGES: [&str; 5] = ["waiting", "fetching", "writing", "committing", "done"];

/// The imports in progress.
#[derive(Default)]
pub(crate) struct ImportRegistry(Keyed<RunId, Arc<Import>>);

/// An import in progress.
#[derive(Debug)]
pub(crate) struct Import {
    run: Run,
    stage: AtomicUsize,
    files: AtomicU64,
    bytes: AtomicU64,
    logged: AtomicU64,
    cancelled: CancellationToken,
    is_stored: AtomicBool,
    /// The disk space of the files so far; `None` once the run accounts for it.
    disk: Mutex<Option<Reservation>>,
}

/// The only import of its run, until this is dropped.
pub(crate) struct ImportGuard {
    pub(crate) import: Arc<Import>,
    _guard: KeyedGuard<RunId, Arc<Import>>,
}

/// Cancels the import on drop, when the caller has disconnected.
pub(crate) struct CancelImportOnDrop(pub(crate) Arc<Import>);

impl ImportRegistry {
    /// Begins the import of `run`, whose disk space is reserved with `disk`; `None` if one is in progress.
    pub(crate) fn begin(&self, run: Run, disk: Reservation) -> Option<ImportGuard> {
        let import = Arc::new(Import {
            run,
            stage: AtomicUsize::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            cancelled: CancellationToken::new(),
            is_stored: AtomicBool::new(false),
            disk: Mutex::new(Some(disk)),
        });
        let guard = self.0.add(import.run.run_id.clone(), Arc::clone(&import)).ok()?;
        Some(ImportGuard { import, _guard: guard })
    }

    /// Returns the number of imports in progress.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the runs whose import is in progress.
    pub(crate) fn ids(&self) -> Vec<RunId> {
        self.0.values().iter().map(|import| import.run.run_id.clone()).collect()
    }

    /// Returns the run whose import is in progress, with its progress.
    pub(crate) fn get(&self, run: &RunId) -> Option<Run> {
        self.0.get(run).map(|import| import.run())
    }

    /// Cancels the import of `run`, if one is in progress.
    pub(crate) fn cancel(&self, run: &RunId) {
        if let Some(import) = self.0.get(run) {
            import.cancelled.cancel();
        }
    }

    /// Cancels every import, because the service stops.
    pub(crate) fn cancel_all(&self) {
        self.0.values().iter().for_each(|import| import.cancelled.cancel());
    }

    /// Returns the runs whose import is in progress and that the ledger does not have yet, by time of creation.
    pub(crate) fn unstored(&self) -> Vec<Run> {
        let imports = self.0.values();
        let unstored = imports.iter().filter(|import| !import.is_stored.load(Ordering::Relaxed));
        let mut runs: Vec<_> = unstored.map(|import| import.run()).collect();
        runs.sort_by(|a, b| (&a.created_at, &a.run_id).cmp(&(&b.created_at, &b.run_id)));
        runs
    }
}

impl Import {
    /// Notes that the ledger has the run.
    pub(crate) fn note_stored(&self) {
        self.is_stored.store(true, Ordering::Relaxed);
    }

    /// Returns the policy of the run.
    pub(crate) fn policy(&self) -> &Policy {
        &self.run.policy
    }

    /// Returns when the import is cancelled.
    pub(crate) async fn until_cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Returns the report of the import so far.
    pub(crate) fn report(&self) -> ImportReport {
        self.run().import
    }

    fn run(&self) -> Run {
        let mut run = self.run.clone();
        run.state = RunState::Preparing;
        run.import.files = self.files.load(Ordering::Relaxed);
        run.import.bytes = self.bytes.load(Ordering::Relaxed);
        STAGES[self.stage.load(Ordering::Relaxed)].clone_into(&mut run.import.progress);
        run
    }

    /// Moves the reserved disk space to the run, which now has the files.
    pub(crate) fn settle(&self, disk: Disk) {
        let change = DiskChange::to(disk);
        if let Some(reservation) = self.disk.lock().take() {
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
        if before != number || files >= logged + FILES_PER_LOG_LINE {
            self.logged.store(files, Ordering::Relaxed);
            if matches!(self.run.source, Source::Empty {}) {
                tracing::debug!(run.id = %self.run.run_id, stage, files, bytes, "import in progress");
            } else {
                tracing::info!(run.id = %self.run.run_id, stage, files, bytes, "import in progress");
            }
        }
    }

    fn check_quota(&self, files: u64, bytes: u64) -> Result<(), Refusal> {
        match &mut *self.disk.lock() {
            Some(reservation) => reservation.resize(Disk { bytes, files }),
            None => Ok(()),
        }
    }

    fn cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

impl Drop for CancelImportOnDrop {
    fn drop(&mut self) {
        self.0.cancelled.cancel();
    }
}
