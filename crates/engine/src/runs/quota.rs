//! What runs may hold: bytes and files of each run and of all runs together, and calls that wait for a person.
//!
//! What is held is counted in memory as it changes; the ledger keeps it with each record, so that no tree is walked for it.
//! What is about to be held is reserved first, so that calls under way at the same time do not pass a bound together.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::StorageTotals;
use model::{Code, Disk, DiskChange, Quota, Refusal, RunId};

use parking_lot::Mutex;

use crate::limits::Limits;

/// What all runs together hold.
#[derive(Debug)]
pub struct NodeQuota {
    max_runs: Option<u64>,
    max_bytes: Option<u64>,
    runs: AtomicU64,
    /// With what is reserved.
    bytes: AtomicU64,
    /// Runs that are being deleted.
    deleting: Mutex<HashSet<RunId>>,
}

/// A run that is being made and counts already; it counts no more when this is dropped.
#[derive(Debug)]
pub struct NewRunSlot(Option<Arc<NodeQuota>>);

/// The deletion of a run, of which there is one at a time.
#[derive(Debug)]
pub struct Deleting {
    node: Arc<NodeQuota>,
    run: RunId,
}

/// What one run holds.
#[derive(Debug)]
pub struct RunDisk {
    max_bytes: u64,
    max_files: u64,
    node: Arc<NodeQuota>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    held: Disk,
    reserved: Disk,
}

/// What a call or an import is about to hold; given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    disk: Arc<RunDisk>,
    size: Disk,
}

impl NodeQuota {
    /// The bounds of `limits`, and what is held at the start.
    pub fn new(limits: &Limits, held: StorageTotals) -> Arc<Self> {
        Arc::new(Self {
            max_runs: limits.max_runs,
            max_bytes: limits.max_disk_bytes,
            runs: AtomicU64::new(held.runs),
            bytes: AtomicU64::new(held.bytes),
            deleting: Mutex::default(),
        })
    }

    /// Counts one run more.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`.
    pub fn enter_run(self: &Arc<Self>) -> Result<NewRunSlot, Refusal> {
        match add(&self.runs, 1, self.max_runs) {
            Ok(()) => Ok(NewRunSlot(Some(Arc::clone(self)))),
            Err((limit, actual)) => {
                let message = format!("the service would have {actual} runs that are not deleted; it may have {limit}");
                Err(exceeded(message, "Delete runs that are not needed any more.", "maxRuns", limit, actual))
            }
        }
    }

    /// Begins to delete `run`; `None` where somebody does so already.
    pub fn begin_deletion(self: &Arc<Self>, run: &RunId) -> Option<Deleting> {
        let is_first = self.deleting.lock().insert(run.clone());
        is_first.then(|| Deleting { node: Arc::clone(self), run: run.clone() })
    }

    fn take(&self, bytes: u64) -> Result<(), Refusal> {
        add(&self.bytes, bytes, self.max_bytes).map_err(|(limit, actual)| {
            let message = format!("the files of all runs would have {actual} bytes; the service holds {limit}");
            exceeded(message, "Wait until the operator has deleted other runs.", "maxDiskBytes", limit, actual)
        })
    }

    /// Counts `more` bytes that are there, and `less` no more.
    fn shift(&self, more: u64, less: u64) {
        let shifted = |bytes: u64| bytes.saturating_add(more).saturating_sub(less);
        self.bytes.update(Ordering::AcqRel, Ordering::Acquire, shifted);
    }
}

impl NewRunSlot {
    /// The run is there, until it is deleted.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for NewRunSlot {
    fn drop(&mut self) {
        if let Some(node) = &self.0 {
            node.runs.update(Ordering::AcqRel, Ordering::Acquire, |runs| runs.saturating_sub(1));
        }
    }
}

impl Deleting {
    /// The run's files are gone, of which it had so many.
    pub fn gone(&self, disk: Disk) {
        self.node.shift(0, disk.bytes);
        self.node.runs.update(Ordering::AcqRel, Ordering::Acquire, |runs| runs.saturating_sub(1));
    }
}

impl Drop for Deleting {
    fn drop(&mut self) {
        self.node.deleting.lock().remove(&self.run);
    }
}

impl RunDisk {
    /// A run under `quota` that holds `held`, which the node counts already.
    pub fn new(node: &Arc<NodeQuota>, quota: &Quota, held: Disk) -> Arc<Self> {
        Arc::new(Self {
            max_bytes: quota.max_tree_bytes,
            max_files: quota.max_files,
            node: Arc::clone(node),
            counts: Mutex::new(Counts { held, reserved: Disk::default() }),
        })
    }

    /// A reservation of nothing yet.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { disk: Arc::clone(self), size: Disk::default() }
    }

    /// Takes over what the ledger says that the run holds.
    pub fn set_held(&self, held: Disk) {
        let mut counts = self.counts.lock();
        self.node.shift(held.bytes, counts.held.bytes);
        counts.held = held;
    }
}

impl Reservation {
    /// Reserves `size` in all, more or less than before. What shrinks is never refused.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`; what was reserved before still is.
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
            None => disk.node.shift(size.bytes, self.size.bytes),
        }
        counts.reserved.bytes = counts.reserved.bytes - self.size.bytes + size.bytes;
        counts.reserved.files = counts.reserved.files - self.size.files + size.files;
        self.size = size;
        Ok(())
    }

    /// Reserves `bytes` more.
    ///
    /// # Errors
    ///
    /// As for [`resize`](Self::resize).
    pub fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.resize(Disk { bytes: self.size.bytes.saturating_add(bytes), ..self.size })
    }

    /// What it was reserved for has taken place: the run holds so much more or less.
    pub fn settle(self, change: DiskChange) {
        let mut counts = self.disk.counts.lock();
        let before = counts.held;
        counts.held = before.after(change);
        self.disk.node.shift(counts.held.bytes, before.bytes);
        // What was reserved is given back as this is dropped.
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut counts = self.disk.counts.lock();
        counts.reserved.bytes -= self.size.bytes;
        counts.reserved.files -= self.size.files;
        self.disk.node.shift(0, self.size.bytes);
    }
}

/// The calls of a run that wait for a person.
#[derive(Debug)]
pub struct PendingApprovals {
    limit: u64,
    counts: Mutex<PendingCounts>,
}

#[derive(Debug)]
struct PendingCounts {
    /// In the ledger.
    pending: u64,
    /// On their way there.
    reserved: u64,
}

/// A call that is about to wait; it does not when this is dropped.
#[derive(Debug)]
pub struct PendingReservation<'a>(&'a PendingApprovals);

impl PendingApprovals {
    /// Of a run under `quota`, in which `pending` calls wait.
    pub fn new(quota: &Quota, pending: u64) -> Self {
        Self { limit: quota.pending_approvals, counts: Mutex::new(PendingCounts { pending, reserved: 0 }) }
    }

    /// Takes over how many the ledger says there are.
    pub fn set(&self, pending: u64) {
        self.counts.lock().pending = pending;
    }

    /// One call more.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`.
    pub fn reserve(&self) -> Result<PendingReservation<'_>, Refusal> {
        let mut counts = self.counts.lock();
        let actual = counts.pending + counts.reserved + 1;
        if actual > self.limit {
            let limit = self.limit;
            let message = format!("{actual} calls of the run would wait for a person; its quota is {limit}");
            let hint = "Go on with work that needs no approval until a person has decided over some of them.";
            return Err(exceeded(message, hint, "quota:pendingApprovals", limit, actual));
        }
        counts.reserved += 1;
        Ok(PendingReservation(self))
    }
}

impl PendingReservation<'_> {
    /// The ledger has it.
    pub fn keep(self) {
        self.0.counts.lock().pending += 1;
    }
}

impl Drop for PendingReservation<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().reserved -= 1;
    }
}

fn over_quota(what: &str, reason: &str, limit: u64, actual: u64) -> Refusal {
    let message = format!("the run would hold {actual} {what}; its quota is {limit}");
    let hint = "Delete files that are not needed, or ask the operator for a larger quota.";
    exceeded(message, hint, reason, limit, actual)
}

fn exceeded(message: String, hint: &str, reason: &str, limit: u64, actual: u64) -> Refusal {
    Refusal::new(Code::QuotaExceeded, message, hint).with_details(|details| {
        details.reasons = vec![reason.to_owned()];
        (details.limit, details.actual) = (Some(limit), Some(actual));
    })
}

/// Adds `more` to `count`, or tells the limit and what it would have been.
fn add(count: &AtomicU64, more: u64, limit: Option<u64>) -> Result<(), (u64, u64)> {
    let mut actual = 0;
    let added = count.try_update(Ordering::AcqRel, Ordering::Acquire, |now| {
        actual = now.saturating_add(more);
        (more == 0 || limit.is_none_or(|limit| actual <= limit)).then_some(actual)
    });
    added.map(drop).map_err(|_| (limit.unwrap_or(u64::MAX), actual))
}
