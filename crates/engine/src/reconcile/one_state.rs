//! Reads of several files that show one state of the tree.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::{CallError, reconcile};

/// Number of attempts without a lock.
const MAX_ATTEMPTS: u32 = 4;
/// A read that has taken longer is not attempted again without a lock: it would most likely be disturbed again.
const MAX_UNLOCKED: Duration = Duration::from_millis(200);
/// The wait for a change that is being applied, which takes less than a millisecond per file.
const PAUSE: Duration = Duration::from_micros(300);

/// The result of the attempts without a lock: that of the read, or the read itself if changes have disturbed every attempt.
type Attempted<T, R> = Result<Result<T, CallError>, R>;

impl Engine {
    /// Runs `read`, which may block and looks at several files of the run's tree, so that all of them are as they were at one record.
    ///
    /// `read` is called again if a change was applied during it. After a few attempts the run is locked, in order of arrival with
    /// its mutations, so that neither readers nor writers wait for ever.
    ///
    /// The caller must hold no lock of the run.
    ///
    /// # Errors
    ///
    /// As for `read`; if a recorded change is partially applied and cannot be completed now.
    pub(crate) async fn read_one_state<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        read: impl FnMut() -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let tried = Arc::clone(run);
        let read = match self.blocking(move || Ok(attempt(&tried, read))).await? {
            Ok(done) => return done,
            Err(read) => read,
        };
        let _locked = reconcile::lock_consistent(self, run).await?;
        self.blocking(read).await
    }
}

fn attempt<T, R: FnMut() -> Result<T, CallError>>(run: &OpenRun, mut read: R) -> Attempted<T, R> {
    let started = Instant::now();
    for _ in 0..MAX_ATTEMPTS {
        // The tree of a dirty run may lack a part of a change.
        let Some(version) = run.tree_states.version_at_record().filter(|_| !run.accounting.is_dirty()) else {
            #[expect(clippy::disallowed_methods, reason = "on a thread that may block")]
            std::thread::sleep(PAUSE);
            continue;
        };
        let done = read();
        if run.tree_states.is_unchanged(version) {
            return Ok(done);
        }
        if started.elapsed() > MAX_UNLOCKED {
            break;
        }
    }
    Err(read)
}
