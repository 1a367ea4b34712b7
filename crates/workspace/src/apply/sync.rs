//! Syncing what the steps touched, so that it survives a power failure.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::LogicalPath;
use parking_lot::Mutex;
use rustix::fs::Stat;

use crate::Workspace;
use crate::guard::Root;
use crate::kept_files::KeptFiles;
use crate::stamp::FileStamp;
use crate::temp_entry::TempEntry;

/// How many syncs run at once: the disk combines them.
const THREADS: usize = 4;

/// Steps that were applied to the tree, with the files and folders that must be synced before the journal may drop the steps.
/// Stores paths and not handles, since a thousand of these may wait. The sync covers the file that is at a path by then, which a
/// later step may have written.
#[derive(Debug)]
pub struct Applied {
    pub(super) root: Arc<Root>,
    pub(super) tmp: Arc<OwnedFd>,
    pub(super) kept: Arc<KeptFiles>,
    files: BTreeSet<LogicalPath>,
    folders: BTreeSet<LogicalPath>,
    /// Folders that an entry was removed from, and that may be empty now.
    shrunk: BTreeSet<LogicalPath>,
    /// Replaced and removed files, now in `tmp/`. Freeing the blocks of a file can take milliseconds, so it is done when this is
    /// dropped and not while a caller waits.
    replaced: Vec<Arc<TempEntry>>,
}

impl Applied {
    pub(super) fn new(workspace: &Workspace) -> Self {
        Self {
            root: Arc::clone(&workspace.tree().root),
            tmp: Arc::clone(workspace.tmp()),
            kept: Arc::clone(workspace.kept()),
            files: BTreeSet::new(),
            folders: BTreeSet::new(),
            shrunk: BTreeSet::new(),
            replaced: Vec::new(),
        }
    }

    /// Notes that a file was written to `path`, and whether folders above it were created.
    pub(super) fn wrote(&mut self, path: &LogicalPath, has_created_folders: bool) {
        self.files.insert(path.clone());
        self.folders.extend(path.parent());
        if has_created_folders {
            self.created_folder(path);
        }
    }

    /// Notes that a folder was created at `path`; its files are noted separately.
    pub(super) fn created_folder(&mut self, path: &LogicalPath) {
        let mut above = path.parent();
        while let Some(folder) = above {
            above = folder.parent();
            self.folders.insert(folder);
        }
    }

    /// Notes that the file or folder at `path` was removed.
    pub(super) fn removed(&mut self, path: &LogicalPath) {
        self.folders.extend(path.parent());
        self.shrunk.extend(path.parent().filter(|folder| !folder.is_root()));
    }

    /// Removes the folders that the steps have emptied, as git does, and folders above that contain nothing else. Folders count
    /// toward no quota, so none may remain without a file: the number of folders that mutations create is then bounded by the
    /// number of files times the maximum depth. Must only be called once all steps are applied; after a crash the replay does it.
    pub(super) fn remove_emptied(&mut self) {
        // The last path is the deepest: a folder sorts before its subfolders.
        while let Some(folder) = self.shrunk.pop_last() {
            if self.root.remove_empty(&folder) {
                self.removed(&folder);
            }
        }
    }

    /// Notes that a replaced or removed file, with the metadata `stat`, is in `tmp/` as `file`.
    pub(super) fn took_out(&mut self, file: Arc<TempEntry>, stat: &Stat) {
        // A content that the journal names has left its name to what it replaced.
        file.own();
        self.kept.count(FileStamp::of(stat).size);
        self.replaced.push(file);
    }

    /// Syncs every file and folder that was touched. Afterwards the steps survive a power failure.
    ///
    /// # Errors
    ///
    /// If the disk fails. A failed sync must not be retried: the process has to end and recover.
    pub fn sync(self) -> io::Result<()> {
        Self::sync_all(&[self])
    }

    /// Syncs several at once: what more than one of them touched is synced once, and several syncs run in parallel.
    ///
    /// # Errors
    ///
    /// As for [`sync`](Self::sync); some may be synced then.
    pub fn sync_all(applied: &[Self]) -> io::Result<()> {
        // Files before folders, so that no name survives a power failure without its bytes.
        let files = jobs(applied, |one| &one.files);
        let folders = jobs(applied, |one| &one.folders);
        sync_in_parallel(&files, sync)?;
        sync_in_parallel(&folders, sync)
    }
}

/// A file or folder to sync.
type SyncJob<'a> = (&'a Root, &'a LogicalPath);

fn jobs<'a>(applied: &'a [Applied], of: impl Fn(&'a Applied) -> &'a BTreeSet<LogicalPath>) -> Vec<SyncJob<'a>> {
    let mut seen = BTreeSet::new();
    let all = applied.iter().flat_map(|one| of(one).iter().map(|path| (&*one.root, path)));
    all.filter(|(root, path)| seen.insert((std::ptr::from_ref(*root), *path))).collect()
}

/// Calls `sync` for every item, on several threads. Returns the first error after all threads have ended.
pub(crate) fn sync_in_parallel<T: Sync>(items: &[T], sync: impl Fn(&T) -> io::Result<()> + Sync) -> io::Result<()> {
    if let [item] = items {
        return sync(item);
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = sync(item) {
                        failed.lock().get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

fn sync((root, path): &SyncJob<'_>) -> io::Result<()> {
    match root.open_own(path) {
        Ok(file) => Ok(rustix::fs::fsync(file)?),
        // A link, which has no bytes but those of its folder; a folder of the base; or removed or replaced by a later step, which has
        // its own entries to sync.
        Err(error) => error.unless_disk(),
    }
}
