//! Replaced and removed files that an export still needs.
//!
//! An export takes as long as its client reads, and shows the tree as it was when it began. Changes do not wait for it: the files that
//! they take out of the tree stay in `tmp/` until the last export of the run has ended.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use model::LogicalPath;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::stamp::FileStamp;
use crate::temp_entry::TempEntry;

/// Maximum size of the files that are kept for the exports of one run. An export that needs more of them fails.
const MAX_KEPT_BYTES: u64 = 1 << 30;

/// The files of one run that were taken out of its tree during an export.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles(Mutex<KeptState>);

#[derive(Debug, Default)]
struct KeptState {
    /// Number of exports.
    pins: usize,
    /// The files that were at each path, in order.
    versions: HashMap<LogicalPath, Vec<Arc<TempEntry>>>,
    /// The size of those that were taken out.
    bytes: u64,
    /// Whether more than [`MAX_KEPT_BYTES`] were to be kept. Nothing is kept then.
    is_full: bool,
}

/// Keeps the files that are taken out of a run's tree from now on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pin(Arc<KeptFiles>);

impl KeptFiles {
    /// Notes that the file at `path` is about to be moved to `tmp/` as `taken`. Called before the move, so that an export that does not
    /// find the file at its path finds it here.
    pub(super) fn note(&self, path: &LogicalPath, taken: &Arc<TempEntry>) {
        let mut state = self.0.lock();
        if state.pins > 0 && !state.is_full {
            state.versions.entry(path.clone()).or_default().push(Arc::clone(taken));
        }
    }

    /// Counts a file of `bytes` that was taken out.
    pub(super) fn count(&self, bytes: u64) {
        let mut state = self.0.lock();
        if state.pins == 0 || state.is_full {
            return;
        }
        state.bytes = state.bytes.saturating_add(bytes);
        if state.bytes > MAX_KEPT_BYTES {
            state.is_full = true;
            let versions = std::mem::take(&mut state.versions);
            drop(state);
            drop(versions);
        }
    }

    /// Whether an export may need the file `name` of `tmp/`. It is then removed when none needs it any more.
    pub(super) fn remove_later(&self, name: &str) -> bool {
        let state = self.0.lock();
        let kept = state.versions.values().flatten().find(|kept| kept.name() == name);
        kept.inspect(|kept| kept.own()).is_some()
    }
}

impl Pin {
    /// Creates a pin of the files in a tree.
    pub(crate) fn new(kept: &Arc<KeptFiles>) -> Self {
        kept.0.lock().pins += 1;
        Self(Arc::clone(kept))
    }

    /// Opens the file that was at `path` and had `stamp`; `None` if it was not taken out of the tree by a change.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file could not be kept.
    pub(crate) fn open(&self, path: &LogicalPath, stamp: FileStamp) -> io::Result<Option<File>> {
        let state = self.0.0.lock();
        if state.is_full {
            return Err(io::Error::other("more files were changed during an export than can be kept for it"));
        }
        for kept in state.versions.get(path).into_iter().flatten() {
            match kept.open_file() {
                Ok(file) if FileStamp::of(&rustix::fs::fstat(&file)?).has_same_content(&stamp) => {
                    return Ok(Some(file));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.pins -= 1;
        if state.pins == 0 {
            let ended = std::mem::take(&mut *state);
            drop(state);
            // Removes the files that nothing else needs.
            drop(ended);
        }
    }
}
