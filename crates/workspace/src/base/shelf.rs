//! Which bases stay in memory: the last used, up to a weight.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::Loaded;

/// How much memory idle bases may take together.
const MAX_BYTES: usize = 32 << 20;

/// How many bases stay at most: each may hold a few megabytes of files and diffs besides.
const MAX_BASES: usize = 16;

/// The bases that were used last, so that the next call of the same run need not load them again.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<VecDeque<Arc<Loaded>>>);

impl Shelf {
    /// Drops `loaded`, which is out of date.
    pub(crate) fn remove(&self, loaded: &Arc<Loaded>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, loaded));
    }

    /// Keeps `loaded` as the last used, and drops the oldest beyond the bound. One that is larger alone is kept until the
    /// next.
    pub(crate) fn keep(&self, loaded: &Arc<Loaded>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.back().is_some_and(|last| Arc::ptr_eq(last, loaded)) {
            return;
        }
        kept.retain(|other| !Arc::ptr_eq(other, loaded));
        kept.push_back(loaded.clone());
        let mut weight: usize = kept.iter().map(|one| one.weight()).sum();
        while (weight > MAX_BYTES || kept.len() > MAX_BASES) && kept.len() > 1 {
            let Some(oldest) = kept.pop_front() else { break };
            weight -= oldest.weight();
        }
    }
}
