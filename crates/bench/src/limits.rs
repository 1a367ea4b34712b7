//! The limits: what the machine does without the service.

pub(crate) mod commits;
pub(crate) mod files;
pub(crate) mod plain;
pub(crate) mod programs;

use std::time::Duration;

use crate::compare::Subject;
use crate::load::on_threads;
use crate::sample::Sample;

/// How many threads stand in for more callers than that: more do not make a disk quicker.
const MOST_THREADS: usize = 16;

/// What a thread calls again and again.
pub(crate) type Call = Box<dyn FnMut() -> anyhow::Result<()> + Send>;

/// A limit that threads of this process reach.
pub(crate) struct OnThreads<'a> {
    /// What it is called in the table.
    pub(crate) name: String,
    /// What one call counts as.
    pub(crate) weight: u32,
    /// How many threads at most; a smaller concurrency takes fewer.
    pub(crate) most: usize,
    /// Makes the calls of one thread.
    pub(crate) worker: Box<dyn Fn(usize) -> anyhow::Result<Call> + Sync + 'a>,
}

impl<'a> OnThreads<'a> {
    /// A limit whose threads are made by `worker`.
    pub(crate) fn new(
        name: impl Into<String>,
        worker: impl Fn(usize) -> anyhow::Result<Call> + Sync + 'a,
    ) -> OnThreads<'a> {
        Self { name: name.into(), weight: 1, most: MOST_THREADS, worker: Box::new(worker) }
    }
}

impl Subject for OnThreads<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample> {
        let sample = on_threads(concurrency.min(self.most), time, &self.worker)?;
        Ok(Sample { weight: self.weight, ..sample })
    }
}
