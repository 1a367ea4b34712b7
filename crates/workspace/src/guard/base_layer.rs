//! The lower layer of a run's tree: its base, as far as the run has not removed it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use model::LogicalPath;
use parking_lot::RwLock;
use rustix::fs::Stat;
use rustix::io::Errno;

use super::Blocking;
use crate::base_files::manifest::{BaseManifest, FolderIndex};
use crate::base_files::{BaseEntry, BaseFiles};
use crate::byte_path::{folders_above, join, logical_path, split};

/// What a run started from, as a layer of its tree. Nobody changes it.
pub(crate) trait LowerLayer: fmt::Debug + Send + Sync {
    /// Returns its files, loaded from the disk if they are not in memory.
    fn files(&self) -> io::Result<Arc<BaseFiles>>;

    /// Returns its files if they are in memory, without waiting for anything.
    fn files_in_memory(&self) -> Option<Arc<BaseFiles>>;
}

pub(super) struct BaseLayer {
    base: Arc<dyn LowerLayer>,
    removed: RwLock<Removed>,
}

/// A folder of a base.
#[derive(Clone, Debug)]
pub(super) struct BaseFolder {
    pub(super) files: Arc<BaseFiles>,
    pub(super) index: FolderIndex,
}

impl BaseFolder {
    pub(super) fn of((files, entry): (Arc<BaseFiles>, BaseEntry)) -> Option<Self> {
        let BaseEntry::Folder(index) = entry else { return None };
        Some(Self { files, index })
    }
}

/// What a run has removed of its base.
#[derive(Default)]
struct Removed {
    files: HashSet<Vec<u8>>,
    /// The number of removed files under each folder.
    under: HashMap<Vec<u8>, u64>,
    /// The folders without any file that is left. As in git, they are gone.
    folders: HashSet<Vec<u8>>,
}

/// Whether a folder above `path` is a file in the base. Looks from the root down to the first name that is no folder, because paths
/// can have a thousand names.
fn leads_through_file(manifest: &BaseManifest, path: &[u8]) -> bool {
    let Some(mut folder) = manifest.folder(b"") else { return false };
    for name in split(path).0.split(|byte| *byte == b'/') {
        let Some(inner) = manifest.folder_in(folder, name) else {
            return manifest.find(manifest.files_in(folder), name).is_some();
        };
        folder = inner;
    }
    false
}

impl BaseLayer {
    pub(super) fn new(base: Arc<dyn LowerLayer>) -> Self {
        Self { base, removed: RwLock::default() }
    }

    /// Returns what is at `path`, unless the run has removed it. `LOOP` if something on the path is no folder in the base: whether
    /// that is shown depends on the run's own layer.
    pub(super) fn find(&self, path: &[u8], blocking: Blocking) -> Result<(Arc<BaseFiles>, BaseEntry), Errno> {
        let files = self.files(blocking)?;
        let path = if path == b"." { b"" } else { path };
        if let Some(entry) = files.entry(path).filter(|entry| self.is_shown(path, *entry)) {
            return Ok((files, entry));
        }
        Err(if leads_through_file(&files.manifest, path) { Errno::LOOP } else { Errno::NOENT })
    }

    /// Returns the entry `name` of `folder`, whose path is `path`, if it is shown.
    pub(super) fn entry_in(&self, folder: &BaseFolder, path: &str, name: &[u8]) -> Option<BaseEntry> {
        let manifest = &folder.files.manifest;
        let file = manifest.find(manifest.files_in(folder.index), name).map(BaseEntry::File);
        let entry = file.or_else(|| manifest.folder_in(folder.index, name).map(BaseEntry::Folder))?;
        self.shows_entry(path, name, entry).then_some(entry)
    }

    /// Whether the entry `name` of the folder at `folder`, which is empty for the root, is shown.
    pub(super) fn shows_entry(&self, folder: &str, name: &[u8], entry: BaseEntry) -> bool {
        if self.removed.read().files.is_empty() {
            return true;
        }
        self.is_shown(&join(folder.as_bytes(), name), entry)
    }

    fn is_shown(&self, path: &[u8], entry: BaseEntry) -> bool {
        let removed = self.removed.read();
        match entry {
            _ if removed.files.is_empty() => true,
            BaseEntry::File(_) => !removed.files.contains(path),
            BaseEntry::Folder(_) => !removed.folders.contains(path),
        }
    }

    fn files(&self, blocking: Blocking) -> Result<Arc<BaseFiles>, Errno> {
        if blocking == Blocking::Forbidden {
            return self.base.files_in_memory().ok_or(Errno::AGAIN);
        }
        self.base.files().map_err(|error| {
            tracing::warn!(%error, "the base of a run cannot be read");
            // What the guard says of an error that no system call has returned.
            error.raw_os_error().map_or(Errno::UCLEAN, Errno::from_raw_os_error)
        })
    }

    /// Hides the file at `path`. Returns its metadata if the base has one that was shown.
    pub(super) fn hide(&self, path: &str) -> io::Result<Option<Stat>> {
        let files = self.base.files()?;
        let path = path.as_bytes();
        let Some(file) = files.manifest.get(path) else { return Ok(None) };
        let mut removed = self.removed.write();
        if !removed.files.insert(path.to_vec()) {
            return Ok(None);
        }
        for folder in folders_above(path) {
            let under = removed.under.entry(folder.to_vec()).or_default();
            *under += 1;
            if *under == files.manifest.files_under(folder) {
                removed.folders.insert(folder.to_vec());
            }
        }
        Ok(Some(files.stat(BaseEntry::File(file))))
    }

    /// Shows the file at `path` again.
    pub(super) fn show(&self, path: &str) {
        let mut removed = self.removed.write();
        if !removed.files.remove(path.as_bytes()) {
            return;
        }
        for folder in folders_above(path.as_bytes()) {
            if let Some(under) = removed.under.get_mut(folder) {
                *under -= 1;
            }
            removed.folders.remove(folder);
        }
    }

    /// Returns every file that is hidden.
    pub(super) fn hidden(&self) -> Vec<LogicalPath> {
        let removed = self.removed.read();
        removed.files.iter().filter_map(|path| logical_path(path)).collect()
    }
}
