//! The registry of runs whose files are being fetched from the object store.

use std::collections::HashMap;
use std::sync::Arc;

use model::RunId;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::CallError;

/// How fetching the files of a run has ended.
pub(crate) type Fetched = Result<(), Arc<CallError>>;

type Fetches = Arc<Mutex<HashMap<RunId, watch::Receiver<Option<Fetched>>>>>;

/// The runs whose files are being fetched.
#[derive(Default)]
pub(crate) struct RunFetches(Fetches);

/// The only fetch of a run, until this is dropped.
pub(crate) struct Fetch {
    run: RunId,
    all: Fetches,
    outcome: watch::Sender<Option<Fetched>>,
}

impl RunFetches {
    /// Returns the outcome of the fetch of `run`, which is `None` until it has ended, and the fetch itself if this call has begun it.
    pub(crate) fn begin(&self, run: &RunId) -> (watch::Receiver<Option<Fetched>>, Option<Fetch>) {
        let mut all = self.0.lock();
        if let Some(outcome) = all.get(run) {
            return (outcome.clone(), None);
        }
        let (outcome, receiver) = watch::channel(None);
        all.insert(run.clone(), receiver.clone());
        (receiver, Some(Fetch { run: run.clone(), all: Arc::clone(&self.0), outcome }))
    }

    /// Whether the files of `run` are being fetched.
    pub(crate) fn is_fetching(&self, run: &RunId) -> bool {
        self.0.lock().contains_key(run)
    }
}

impl Fetch {
    /// Gives the outcome to every caller that waits. A later call begins another one.
    pub(crate) fn end(self, outcome: Fetched) {
        self.all.lock().remove(&self.run);
        // Nobody may be waiting any more.
        let _ = self.outcome.send(Some(outcome));
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // After an end it may be that of another fetch.
        if all.get(&self.run).is_some_and(|receiver| receiver.same_channel(&self.outcome.subscribe())) {
            all.remove(&self.run);
        }
    }
}
