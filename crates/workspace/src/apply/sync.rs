//! What makes steps outlast a power cut: every file and every folder that was touched, synced.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use model::LogicalPath;

use super::stage::remove;
use crate::guard::Root;

/// How many syncs are under way at once: the disk takes several in one go.
const THREADS: usize = 4;

/// Steps that are in the tree, with what has to be synced before the journal may forget them.
///
/// Holds paths, not handles: a thousand of them may wait. What lies at a path by the time of the sync is synced, which
/// then is what a later step put there.
#[derive(Debug)]
pub struct Applied {
    root: Arc<Root>,
    tmp: Arc<OwnedFd>,
    files: BTreeSet<LogicalPath>,
    folders: BTreeSet<LogicalPath>,
    /// Folders that something went out of, and that may have nothing in them now.
    left: BTreeSet<LogicalPath>,
    /// What stood at the paths before, in `tmp/` now. To free a file's blocks can take milliseconds: not on a caller's time,
    /// but where this is dropped.
    replaced: Vec<String>,
}

impl Applied {
    pub(super) fn new(root: Arc<Root>, tmp: Arc<OwnedFd>) -> Self {
        Self {
            root,
            tmp,
            files: BTreeSet::new(),
            folders: BTreeSet::new(),
            left: BTreeSet::new(),
            replaced: Vec::new(),
        }
    }

    /// A file came to `path`, and folders above it where `made_folders`.
    pub(super) fn wrote(&mut self, path: &LogicalPath, made_folders: bool) {
        self.files.insert(path.clone());
        self.folders.extend(path.parent());
        if made_folders {
            let mut above = path.parent();
            while let Some(folder) = above {
                above = folder.parent();
                self.folders.insert(folder);
            }
        }
    }

    /// A folder came to `path`; what lies in it is told by itself.
    pub(super) fn made(&mut self, path: &LogicalPath) {
        let mut above = path.parent();
        while let Some(folder) = above {
            above = folder.parent();
            self.folders.insert(folder);
        }
    }

    /// The file or folder at `path` went.
    pub(super) fn removed(&mut self, path: &LogicalPath) {
        self.folders.extend(path.parent());
        self.left.extend(path.parent().filter(|folder| !folder.is_root()));
    }

    /// Removes the folders that the steps have emptied, as git does, and those above them that hold nothing else: folders
    /// count toward no quota, and so none may stay without a file. What a run's mutations make is so bounded by its files
    /// times the depth of a path. Only for steps that are all done: a kill in between leaves the rest to whoever does them again.
    pub(super) fn remove_emptied(&mut self) {
        // The last is the deepest: a path is behind those above it.
        while let Some(folder) = self.left.pop_last() {
            if self.root.remove_empty(&folder) {
                self.removed(&folder);
            }
        }
    }

    /// What stood at a path lies in `tmp/` under `name`.
    pub(super) fn took_away(&mut self, name: String) {
        self.replaced.push(name);
    }

    /// Syncs every file and folder that was touched; afterwards a power cut cannot undo the steps.
    ///
    /// # Errors
    ///
    /// Where the disk fails. A failed sync is never tried again: the process has to end and recover.
    pub fn sync(self) -> io::Result<()> {
        Self::sync_all(&[self])
    }

    /// Syncs many at once: what several of them touched only once, and several at a time.
    ///
    /// # Errors
    ///
    /// As for [`sync`](Self::sync); some may be synced then.
    pub fn sync_all(applied: &[Self]) -> io::Result<()> {
        // Files before folders, so that no name outlasts a cut without its bytes.
        let files = jobs(applied, |one| &one.files);
        let folders = jobs(applied, |one| &one.folders);
        run(&files)?;
        run(&folders)
    }
}

impl Drop for Applied {
    /// Frees what was replaced: where nothing was synced, the journal still holds the steps.
    fn drop(&mut self) {
        for name in &self.replaced {
            if let Err(error) = remove(&self.tmp, name) {
                // Nothing depends on it, and the next start empties the folder.
                tracing::warn!(%error, "a replaced file could not be freed");
            }
        }
    }
}

/// One thing to sync.
type Job<'a> = (&'a Root, &'a LogicalPath);

fn jobs<'a>(applied: &'a [Applied], of: impl Fn(&'a Applied) -> &'a BTreeSet<LogicalPath>) -> Vec<Job<'a>> {
    let mut seen = BTreeSet::new();
    let all = applied.iter().flat_map(|one| of(one).iter().map(|path| (&*one.root, path)));
    all.filter(|(root, path)| seen.insert((std::ptr::from_ref(*root), *path))).collect()
}

fn run(jobs: &[Job<'_>]) -> io::Result<()> {
    if let [job] = jobs {
        return sync(*job);
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(jobs.len()) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = sync(*job) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn sync((root, path): Job<'_>) -> io::Result<()> {
    match root.open_unlinked(path) {
        Ok(opened) => Ok(rustix::fs::fsync(&opened.file)?),
        // Whatever a later step put there instead, or nothing: that step has its own folder to sync.
        Err(error) => error.unless_disk(),
    }
}
