//! The registry of runs whose files are being fetched from the object store.

use std::sync::Arc;

use model::RunId;
use tokio::sync::watch;

use crate::CallError;
use crate::run::keyed::{Keyed, KeyedGuard};

/// How fetching the files of a run has ended.
pub(crate) type Fetched = Result<(), Arc<CallError>>;

/// The runs whose files are being fetched, each with its outcome.
#[derive(Default)]
pub(crate) struct RunFetches(Keyed<RunId, watch::Receiver<Option<Fetched>>>);

/// The only fetch of a run, until this is dropped.
pub(crate) struct Fetch {
    guard: KeyedGuard<RunId, watch::Receiver<Option<Fetched>>>,
    outcome: watch::Sender<Option<Fetched>>,
}

impl RunFetches {
    /// Returns the outcome of the fetch of `run`, which is `None` until it has ended, and the fetch itself if this call has begun it.
    pub(crate) fn begin(&self, run: &RunId) -> (watch::Receiver<Option<Fetched>>, Option<Fetch>) {
        let (outcome, receiver) = watch::channel(None);
        match self.0.add(run.clone(), receiver.clone()) {
            Ok(guard) => (receiver, Some(Fetch { guard, outcome })),
            Err(begun) => (begun, None),
        }
    }

    /// Whether the files of `run` are being fetched.
    pub(crate) fn is_fetching(&self, run: &RunId) -> bool {
        self.0.get(run).is_some()
    }
}

impl Fetch {
    /// Gives the outcome to every caller that waits. A later call begins another one.
    pub(crate) fn end(self, outcome: Fetched) {
        drop(self.guard);
        // Nobody may be waiting any more.
        let _ = self.outcome.send(Some(outcome));
    }
}
