//! Quotas: bytes and files of each run and of all runs together, and calls that wait for approval.
//!
//! Usage is counted in memory. The ledger stores it with each record, so that no tree has to be walked. It is reserved before
//! it is taken, so that concurrent calls do not exceed a quota together.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::{HistoryExcess, HistoryQuota, StorageTotals};
use model::{Code, Disk, DiskChange, Quota, Refusal, Run, RunId};
use parking_lot::Mutex;

use crate::limits::Limits;

/// What refusals may still add to the database once the limit of the disk space of all runs is reached.
const REFUSAL_RESERVE_BYTES: u64 = 16 << 20;

/// The number of runs, and the disk space of all runs.
#[derive(Debug)]
pub struct NodeQuota {
    max_runs: Option<u64>,
    max_bytes: Option<u64>,
    runs: AtomicU64,
    /// Those of `runs` that are being created.
    creating: AtomicU64,
    /// Includes reservations.
    bytes: AtomicU64,
    /// Those of `bytes` that are reserved.
    reserved_bytes: AtomicU64,
    /// What the history of all runs takes in the database and in the object store.
    history: AtomicU64,
    /// Runs that are being deleted.
    deleting: Mutex<HashSet<RunId>>,
    /// Runs whose deletion has begun, and which are still counted.
    counted: Mutex<HashSet<RunId>>,
}

/// The count of a run that is being created. Released on drop, unless it is kept.
#[derive(Debug)]
pub struct NewRunSlot(Option<Arc<NodeQuota>>);

/// The deletion of a run, one at a time.
#[derive(Debug)]
pub struct RunDeletion {
    node: Arc<NodeQuota>,
    run: RunId,
}

/// The disk space of one run.
#[derive(Debug)]
pub struct RunDisk {
    max_bytes: u64,
    max_files: u64,
    node: Arc<NodeQuota>,
    counts: Mutex<QuotaCounts>,
}

#[derive(Debug, Default)]
struct QuotaCounts {
    held: Disk,
    reserved: Disk,
}

/// Disk space that a call or an import is about to take. Released on drop.
#[derive(Debug)]
pub struct Reservation {
    disk: Arc<RunDisk>,
    size: Disk,
}

impl NodeQuota {
    /// Creates the quota of `limits`, with what runs hold at the start.
    pub fn new(limits: &Limits, held: StorageTotals) -> Arc<Self> {
        Arc::new(Self {
            max_runs: limits.max_runs,
            max_bytes: limits.max_disk_bytes,
            runs: AtomicU64::new(held.runs),
            creating: AtomicU64::new(0),
            bytes: AtomicU64::new(held.bytes),
            reserved_bytes: AtomicU64::new(0),
            history: AtomicU64::new(held.history_bytes),
            deleting: Mutex::default(),
            counted: Mutex::default(),
        })
    }

    /// Counts another run.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`.
    pub fn add_run(self: &Arc<Self>) -> Result<NewRunSlot, Refusal> {
        match add(&self.runs, 1, self.max_runs) {
            Ok(()) => {
                self.creating.fetch_add(1, Ordering::AcqRel);
                Ok(NewRunSlot(Some(Arc::clone(self))))
            }
            Err((limit, actual)) => {
                let message =
                    format!("the service would have {actual} runs that are not deleted; the limit is {limit}");
                Err(exceeded(message, "Delete runs that are no longer needed.", "maxRuns", limit, actual))
            }
        }
    }

    /// Sets what all runs hold, as the ledger has it: other nodes create, change and delete runs too. What is settled at the same time may
    /// be counted twice, or not at all, until the next time.
    pub fn set_held(&self, held: &StorageTotals) {
        self.runs.store(held.runs + self.creating.load(Ordering::Acquire), Ordering::Release);
        self.bytes.store(held.bytes + self.reserved_bytes.load(Ordering::Acquire), Ordering::Release);
        self.set_history(held.history_bytes);
    }

    /// Sets what the history of all runs takes, as the ledger has it.
    pub fn set_history(&self, bytes: u64) {
        self.history.store(bytes, Ordering::Release);
    }

    /// Adds to what the history of all runs takes.
    pub fn add_history(&self, bytes: u64) {
        self.history.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Returns what the history of all runs takes.
    pub fn history_bytes(&self) -> u64 {
        self.history.load(Ordering::Acquire)
    }

    /// Returns the limit, and what there would be, if there is no room for another record and `more` bytes.
    pub fn full(&self, more: u64) -> Option<(u64, u64)> {
        let limit = self.max_bytes?;
        let actual = self.bytes().saturating_add(self.history_bytes()).saturating_add(more);
        (actual > limit || more == 0 && actual == limit).then_some((limit, actual))
    }

    /// As [`full`](Self::full), if there is no room for the record of a refusal either.
    pub fn reserve_used(&self) -> Option<(u64, u64)> {
        let (limit, actual) = self.full(0)?;
        (actual - limit > REFUSAL_RESERVE_BYTES).then_some((limit, actual))
    }

    /// Returns the bytes of all runs, with reservations.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Begins the deletion of `run`; `None` if one is in progress.
    pub fn begin_deletion(self: &Arc<Self>, run: &RunId) -> Option<RunDeletion> {
        let is_first = self.deleting.lock().insert(run.clone());
        is_first.then(|| RunDeletion { node: Arc::clone(self), run: run.clone() })
    }

    fn take(&self, bytes: u64) -> Result<(), Refusal> {
        let history = self.history_bytes();
        let max_bytes = self.max_bytes.map(|max| max.saturating_sub(history));
        add(&self.bytes, bytes, max_bytes)
            .map_err(|(limit, actual)| max_disk_bytes_exceeded(self.max_bytes.unwrap_or(limit), actual + history))?;
        self.reserved_bytes.fetch_add(bytes, Ordering::AcqRel);
        Ok(())
    }

    /// Releases bytes that were reserved.
    fn release(&self, bytes: u64) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.adjust(0, bytes);
    }

    /// Adds `more` bytes and subtracts `less`, without a check.
    fn adjust(&self, more: u64, less: u64) {
        let adjusted = |bytes: u64| bytes.saturating_add(more).saturating_sub(less);
        self.bytes.update(Ordering::AcqRel, Ordering::Acquire, adjusted);
    }
}

impl NewRunSlot {
    /// Keeps the count: the run exists until it is deleted.
    pub fn keep(mut self) {
        if let Some(node) = self.0.take() {
            node.creating.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for NewRunSlot {
    fn drop(&mut self) {
        if let Some(node) = &self.0 {
            node.creating.fetch_sub(1, Ordering::AcqRel);
            node.runs.update(Ordering::AcqRel, Ordering::Acquire, |runs| runs.saturating_sub(1));
        }
    }
}

impl RunDeletion {
    /// States that the run is still counted. If this deletion is interrupted, a later one releases it.
    pub fn begin_release(&self) {
        self.node.counted.lock().insert(self.run.clone());
    }

    /// Releases the count and the disk space of the run, whose files are removed, unless they are released already.
    pub fn release(&self, disk: Disk) {
        if self.node.counted.lock().remove(&self.run) {
            self.node.adjust(0, disk.bytes);
            self.node.runs.update(Ordering::AcqRel, Ordering::Acquire, |runs| runs.saturating_sub(1));
        }
    }
}

impl Drop for RunDeletion {
    fn drop(&mut self) {
        self.node.deleting.lock().remove(&self.run);
    }
}

impl RunDisk {
    /// Creates the accounting of a run under `quota` that holds `held`. The node has counted that already.
    pub fn new(node: &Arc<NodeQuota>, quota: &Quota, held: Disk) -> Arc<Self> {
        Arc::new(Self {
            max_bytes: quota.max_tree_bytes,
            max_files: quota.max_files,
            node: Arc::clone(node),
            counts: Mutex::new(QuotaCounts { held, reserved: Disk::default() }),
        })
    }

    /// Returns an empty reservation.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { disk: Arc::clone(self), size: Disk::default() }
    }

    /// Sets what the run holds, as the ledger has it.
    pub fn set_held(&self, held: Disk) {
        let mut counts = self.counts.lock();
        self.node.adjust(held.bytes, counts.held.bytes);
        counts.held = held;
    }
}

impl Reservation {
    /// Changes the reservation to `size`. A smaller size is never refused.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`; the reservation is then unchanged.
    pub fn resize(&mut self, size: Disk) -> Result<(), Refusal> {
        let disk = &*self.disk;
        let mut counts = disk.counts.lock();
        let bytes = (counts.held.bytes + counts.reserved.bytes - self.size.bytes).saturating_add(size.bytes);
        let files = (counts.held.files + counts.reserved.files - self.size.files).saturating_add(size.files);
        if size.bytes > self.size.bytes && bytes > disk.max_bytes {
            return Err(over_quota("bytes", "quota:maxTreeBytes", disk.max_bytes, bytes));
        }
        if size.files > self.size.files && files > disk.max_files {
            return Err(over_quota("files", "quota:maxFiles", disk.max_files, files));
        }
        match size.bytes.checked_sub(self.size.bytes) {
            Some(more) => disk.node.take(more)?,
            None => disk.node.release(self.size.bytes - size.bytes),
        }
        counts.reserved.bytes = counts.reserved.bytes - self.size.bytes + size.bytes;
        counts.reserved.files = counts.reserved.files - self.size.files + size.files;
        self.size = size;
        Ok(())
    }

    /// Enlarges the reservation by `bytes`.
    ///
    /// # Errors
    ///
    /// As for [`resize`](Self::resize).
    pub fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.resize(Disk { bytes: self.size.bytes.saturating_add(bytes), ..self.size })
    }

    /// Applies `change` to the run, and releases the reservation.
    pub fn settle(self, change: DiskChange) {
        let mut counts = self.disk.counts.lock();
        let before = counts.held;
        counts.held = before.after(change);
        self.disk.node.adjust(counts.held.bytes, before.bytes);
        // The drop of `self` releases the reservation.
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut counts = self.disk.counts.lock();
        counts.reserved.bytes -= self.size.bytes;
        counts.reserved.files -= self.size.files;
        self.disk.node.release(self.size.bytes);
    }
}

/// The number of calls of a run that wait for approval.
#[derive(Debug)]
pub struct PendingApprovals {
    limit: u64,
    counts: Mutex<PendingCounts>,
}

#[derive(Debug)]
struct PendingCounts {
    /// In the ledger.
    pending: u64,
    /// Not in the ledger yet.
    reserved: u64,
}

/// The count of a call that is about to wait for approval. Released on drop, unless it is kept.
#[derive(Debug)]
pub struct PendingReservation<'a>(&'a PendingApprovals);

impl PendingApprovals {
    /// Creates the count of a run under `quota`, in which `pending` calls wait.
    pub fn new(quota: &Quota, pending: u64) -> Self {
        Self { limit: quota.pending_approvals, counts: Mutex::new(PendingCounts { pending, reserved: 0 }) }
    }

    /// Sets the number of pending approvals, as the ledger has it.
    pub fn set(&self, pending: u64) {
        self.counts.lock().pending = pending;
    }

    /// Counts another call.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`.
    pub fn reserve(&self) -> Result<PendingReservation<'_>, Refusal> {
        let mut counts = self.counts.lock();
        let actual = counts.pending + counts.reserved + 1;
        if actual > self.limit {
            let limit = self.limit;
            let message = format!("{actual} calls of the run would wait for approval; the quota is {limit}");
            let hint = "Continue with work that needs no approval until some of them are decided.";
            return Err(exceeded(message, hint, "quota:pendingApprovals", limit, actual));
        }
        counts.reserved += 1;
        Ok(PendingReservation(self))
    }
}

impl PendingReservation<'_> {
    /// Keeps the count: the ledger has the approval.
    pub fn keep(self) {
        self.0.counts.lock().pending += 1;
    }
}

impl Drop for PendingReservation<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().reserved -= 1;
    }
}

/// The refusal of a call or an import for which the files and the history of all runs leave no room.
pub(crate) fn max_disk_bytes_exceeded(limit: u64, actual: u64) -> Refusal {
    let message = format!("the files and the history of all runs would have {actual} bytes; the limit is {limit}");
    exceeded(message, "Wait until the operator has deleted or archived other runs.", "maxDiskBytes", limit, actual)
}

fn over_quota(what: &str, reason: &str, limit: u64, actual: u64) -> Refusal {
    let message = format!("the run would have {actual} {what}; the quota is {limit}");
    let hint = "Delete files that are no longer needed, or ask the operator for a larger quota.";
    exceeded(message, hint, reason, limit, actual)
}

fn exceeded(message: String, hint: &str, reason: &str, limit: u64, actual: u64) -> Refusal {
    Refusal::new(Code::QuotaExceeded, message, hint).with_details(|details| {
        details.reasons = vec![reason.to_owned()];
        (details.limit, details.actual) = (Some(limit), Some(actual));
    })
}

/// Adds `more` to `count`. If that exceeds `limit`, returns the limit and the sum.
fn add(count: &AtomicU64, more: u64, limit: Option<u64>) -> Result<(), (u64, u64)> {
    let mut actual = 0;
    let added = count.try_update(Ordering::AcqRel, Ordering::Acquire, |now| {
        actual = now.saturating_add(more);
        (more == 0 || limit.is_none_or(|limit| actual <= limit)).then_some(actual)
    });
    added.map(drop).map_err(|_| (limit.unwrap_or(u64::MAX), actual))
}

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
