//! The paths of a run that are known to differ from its base.

use std::collections::BTreeSet;

use model::{LogicalPath, MAX_PATH_BYTES};
use parking_lot::Mutex;
use workspace::{MAX_CHANGED_PATHS, MAX_CHANGED_PATHS_BYTES};

/// The paths of a run that may differ from its base. Unknown until a scan of the whole tree has found them.
#[derive(Debug, Default)]
pub struct ChangedPaths(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// `None` if unknown: only a scan can find them.
    paths: Option<BTreeSet<LogicalPath>>,
    /// Incremented by every change, so that the result of a concurrent scan is discarded.
    version: u64,
}

/// The version of [`ChangedPaths`] at the start of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanVersion(u64);

impl ChangedPaths {
    /// Returns the paths, if they are known.
    pub fn get(&self) -> Option<BTreeSet<LogicalPath>> {
        self.0.lock().paths.clone()
    }

    /// Starts a scan. Mutations continue during it.
    pub fn start_scan(&self) -> ScanVersion {
        ScanVersion(self.0.lock().version)
    }

    /// Stores the result of the scan that started at `version`, unless something has changed since.
    pub fn finish_scan(&self, version: ScanVersion, paths: Option<BTreeSet<LogicalPath>>) {
        let mut known = self.0.lock();
        if known.version == version.0 {
            known.paths = paths;
        }
    }

    /// Makes the paths unknown.
    pub fn clear(&self) {
        let mut known = self.0.lock();
        known.paths = None;
        known.version += 1;
    }

    /// Adds the paths of a mutation.
    pub fn add(&self, paths: &[LogicalPath]) {
        let mut known = self.0.lock();
        known.version += 1;
        if let Some(all) = &mut known.paths {
            all.extend(paths.iter().cloned());
        }
        known.paths = known.paths.take().filter(is_small);
    }
}

/// Whether the set is small enough to be stored.
fn is_small(paths: &BTreeSet<LogicalPath>) -> bool {
    // Called for every mutation, so the lengths are added up only if the count does not decide.
    let bytes = || paths.iter().map(|path| path.as_str().len()).sum::<usize>();
    paths.len() <= MAX_CHANGED_PATHS
        && (paths.len() * MAX_PATH_BYTES <= MAX_CHANGED_PATHS_BYTES || bytes() <= MAX_CHANGED_PATHS_BYTES)
}
