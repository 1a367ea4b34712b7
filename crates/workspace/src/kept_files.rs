//! Replaced and removed files that an export still needs.
//!
//! An export takes as long as its client reads, and shows the tree as it was when it began. Changes do not wait for it: the files that
//! they take out of the tree stay in `tmp/` until the last export of the run has ended.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use model::LogicalPath;
use parking_lot::Mutex;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::dir::{open_file, remove_file};
use crate::stamp::FileStamp;

/// Maximum size of the files that are kept for the exports of one run. An export that needs more of them fails.
const MAX_KEPT_BYTES: u64 = 1 << 30;

/// The files of one run that were taken out of its tree during an export.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles(Mutex<KeptState>);

#[derive(Debug, Default)]
struct KeptState {
    /// Number of exports.
    pins: usize,
    /// The names in `tmp/` of the files that were at each path, in order.
    versions: HashMap<LogicalPath, Vec<String>>,
    /// Every name in `versions`.
    names: HashSet<String>,
    /// The names of those that nobody else needs.
    unneeded: Vec<String>,
    /// The size of those.
    bytes: u64,
    /// Whether more than [`MAX_KEPT_BYTES`] were to be kept. Nothing is kept then.
    is_full: bool,
}

/// Keeps the files that are taken out of a run's tree from now on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    kept: Arc<KeptFiles>,
    tmp: Arc<OwnedFd>,
}

impl KeptFiles {
    /// Notes that the file at `path` is about to be moved to `tmp/` as `name`. Called before the move, so that whoever does not find
    /// the file at its path finds it here.
    pub(super) fn note(&self, path: &LogicalPath, name: &str) {
        let mut state = self.0.lock();
        if state.pins > 0 && !state.is_full {
            state.versions.entry(path.clone()).or_default().push(name.to_owned());
            state.names.insert(name.to_owned());
        }
    }

    /// Removes the file `name` from `tmp/`, now or when no export needs it any more. A missing one is no error.
    pub(super) fn remove(&self, tmp: &OwnedFd, name: &str) -> Result<(), Errno> {
        let mut state = self.0.lock();
        if !state.names.contains(name) {
            drop(state);
            return remove_file(tmp, name);
        }
        let stat = match rustix::fs::statat(tmp, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        state.bytes = state.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
        state.unneeded.push(name.to_owned());
        if state.bytes <= MAX_KEPT_BYTES {
            return Ok(());
        }
        let unneeded = state.clear();
        state.is_full = true;
        drop(state);
        unneeded.iter().try_for_each(|name| remove_file(tmp, &**name))
    }
}

impl KeptState {
    /// Forgets every file. Returns the names of those that are to be removed.
    fn clear(&mut self) -> Vec<String> {
        let (pins, unneeded) = (self.pins, std::mem::take(&mut self.unneeded));
        *self = Self { pins, ..Self::default() };
        unneeded
    }
}

impl Pin {
    /// Creates a pin of the files in a tree with the folder `tmp`.
    pub(crate) fn new(kept: &Arc<KeptFiles>, tmp: &Arc<OwnedFd>) -> Self {
        kept.0.lock().pins += 1;
        Self { kept: Arc::clone(kept), tmp: Arc::clone(tmp) }
    }

    /// Opens the file that was at `path` and had `stamp`; `None` if it was not taken out of the tree by a change.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the file could not be kept.
    pub(crate) fn open(&self, path: &LogicalPath, stamp: FileStamp) -> io::Result<Option<File>> {
        let state = self.kept.0.lock();
        if state.is_full {
            return Err(io::Error::other("more files were changed during an export than can be kept for it"));
        }
        // Under the lock, so that none is removed meanwhile.
        for name in state.versions.get(path).into_iter().flatten() {
            match open_file(&self.tmp, &**name) {
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
        let mut state = self.kept.0.lock();
        state.pins -= 1;
        if state.pins > 0 {
            return;
        }
        let unneeded = state.clear();
        drop(state);
        for name in unneeded {
            if let Err(error) = remove_file(&self.tmp, &*name) {
                // Nothing depends on it, and the folder is emptied when the run is opened.
                tracing::warn!(%error, "a file that was kept for an export could not be removed");
            }
        }
    }
}
