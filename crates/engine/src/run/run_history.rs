//! What the calls of an open run have added to the database and to the object store.

use std::sync::atomic::{AtomicU64, Ordering};

use ledger::{HistoryExcess, HistoryQuota};
use model::Run;

/// The history of an open run, as of the last record that this process has appended or read.
#[derive(Debug)]
pub struct RunHistory {
    quota: HistoryQuota,
    bytes: AtomicU64,
    records: AtomicU64,
}

impl RunHistory {
    /// Creates the history of a run as the ledger has it.
    pub fn new(run: &Run) -> Self {
        let (bytes, records) = (run.disk.history_bytes.into(), run.head_seq.into());
        Self { quota: HistoryQuota::of(&run.policy.quota), bytes, records }
    }

    /// Sets the history of the run as the ledger has it.
    pub fn set(&self, bytes: u64, records: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.records.store(records, Ordering::Relaxed);
    }

    /// Returns the bound that so many more records and bytes exceed, with or without the reserve.
    pub fn exceeded(&self, more_records: usize, more_bytes: u64, reserve: bool) -> Option<HistoryExcess> {
        let bytes = self.bytes.load(Ordering::Relaxed).saturating_add(more_bytes);
        let records = self.records.load(Ordering::Relaxed) + more_records as u64;
        self.quota.exceeded(bytes, records, reserve)
    }
}
