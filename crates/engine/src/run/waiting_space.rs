//! The disk space of large contents of calls that wait for approval.

use std::collections::HashMap;
use std::sync::Arc;

use model::{ApprovalId, Disk};
use parking_lot::Mutex;

use crate::run::quota::{Reservation, RunDisk};

/// The disk space of a run's waiting contents, which are in its quota.
#[derive(Debug, Default)]
pub struct WaitingSpace(Mutex<HashMap<ApprovalId, Reservation>>);

impl WaitingSpace {
    /// Counts those that were found on the disk.
    pub(crate) fn of(disk: &Arc<RunDisk>, found: Vec<(ApprovalId, u64)>) -> Self {
        let reserved = found.into_iter().map(|(id, bytes)| (id, disk.reservation_of(Disk { bytes, files: 0 })));
        Self(Mutex::new(reserved.collect()))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Holds the space of the content of an approval.
    pub(crate) fn hold(&self, approval: ApprovalId, reservation: Reservation) {
        // A replaced one is released outside of the lock.
        let _replaced = self.0.lock().insert(approval, reservation);
    }

    /// Returns the space of the content of an approval, which is held no more.
    pub(crate) fn take(&self, approval: &ApprovalId) -> Option<Reservation> {
        self.0.lock().remove(approval)
    }
}
