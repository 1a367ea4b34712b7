//! The baselines: comparable work without the service.

pub(crate) mod commits;
pub(crate) mod files;
pub(crate) mod plain;
pub(crate) mod programs;

use std::time::Duration;

use crate::compare::Subject;
use crate::load::run_on_threads;
use crate::sample::Sample;

/// The most threads for any number of callers: more do not make a disk faster.
const MAX_THREADS: usize = 16;

/// The function that a thread calls repeatedly.
pub(crate) type Call = Box<dyn FnMut() -> anyhow::Result<()> + Send>;

/// A baseline that runs on threads of this process.
pub(crate) struct ThreadLoop<'a> {
    /// Its name in the report.
    pub(crate) name: String,
    /// How often a call counts in the rate.
    pub(crate) weight: u32,
    /// The most threads.
    pub(crate) max_threads: usize,
    /// Creates the function of a thread, given its index.
    pub(crate) worker: Box<dyn Fn(usize) -> anyhow::Result<Call> + Sync + 'a>,
}

impl<'a> ThreadLoop<'a> {
    /// Creates a baseline with the threads of `worker`.
    pub(crate) fn new(
        name: impl Into<String>,
        worker: impl Fn(usize) -> anyhow::Result<Call> + Sync + 'a,
    ) -> ThreadLoop<'a> {
        Self { name: name.into(), weight: 1, max_threads: MAX_THREADS, worker: Box::new(worker) }
    }
}

impl Subject for ThreadLoop<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample> {
        let sample = run_on_threads(concurrency.min(self.max_threads), time, &self.worker)?;
        Ok(Sample { weight: self.weight, ..sample })
    }
}
