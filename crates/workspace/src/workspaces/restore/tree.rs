//! Writing the tree of a run from its base and its newest snapshot.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use model::{LogicalPath, Sha256};

use super::super::base_parts::{UntrackedFile, damaged, read_untracked};
use crate::base::Base;
use crate::base::manifest::{self, MODE_EXECUTABLE, MODE_LINK, ManifestRow};
use crate::byte_path::{folders_above, logical_path};
use crate::snapshot::{FileOutcome, Snapshot, SnapshotWriter, StoredContents, io_error};
use crate::stamp::FileStamp;

/// The files of a base and its folders, with their stamps.
type StampedTree = (Vec<ManifestRow>, Vec<(Vec<u8>, FileStamp)>);

/// Writes the tree of a run.
pub(crate) struct TreeWriter {
    writer: SnapshotWriter,
    /// The folders in which untracked files are.
    untracked_folders: HashSet<Vec<u8>>,
}

impl TreeWriter {
    /// Creates a writer into the empty folder `root`.
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { writer: SnapshotWriter::new(root), untracked_folders: HashSet::new() }
    }

    /// Returns the number of files and links.
    pub(super) fn files(&self) -> u64 {
        self.writer.rows().len() as u64
    }

    /// Returns the number of their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// See [`RunRestorer::add_untracked`](super::RunRestorer::add_untracked).
    pub(super) fn add_untracked(
        &mut self,
        content: &mut dyn Read,
        recorded: Sha256,
        written: &BTreeSet<LogicalPath>,
        base: &Base,
    ) -> io::Result<()> {
        let (mut rows, mut taken) = (Vec::new(), Vec::new());
        read_untracked(content, &mut |file, bytes| {
            let UntrackedFile { path, mode, size } = file;
            self.untracked_folders.extend(folders_above(&path).map(<[u8]>::to_vec));
            match logical_path(&path).filter(|path| written.contains(path) && mode != MODE_LINK) {
                Some(path) => {
                    let row = base.store(&path, mode == MODE_EXECUTABLE, bytes)?;
                    taken.push(row.clone());
                    rows.push(row);
                }
                None => rows.push(self.writer.write(&path, mode, size, None, bytes).map_err(io_error)?),
            }
            Ok(())
        })?;
        if manifest::digest(&rows) != recorded {
            return Err(damaged("the untracked files are not those that the run started with"));
        }
        if taken.is_empty() { Ok(()) } else { base.add_ignored_files(taken) }
    }

    /// Writes the files of the base that the run has not changed.
    pub(super) fn write_base(&mut self, base: &Base, rows: &[ManifestRow], snapshot: &Snapshot) -> io::Result<()> {
        let is_unchanged = |row: &&ManifestRow| {
            // No tool reaches a file that has no logical path.
            logical_path(&row.path).is_none_or(|path| !snapshot.has_written(&path))
        };
        let unchanged: Vec<_> = rows.iter().filter(is_unchanged).collect();
        self.writer.write_base(base, &unchanged, &mut must_be_written)
    }

    /// Writes the newest version of each file that the run has changed.
    pub(super) fn write_changed(&mut self, snapshot: &Snapshot, contents: &dyn StoredContents) -> io::Result<()> {
        self.writer.write_changed(snapshot, contents, &mut must_be_written)
    }

    /// Creates the folders without files that the run started with, unless it has put something else there.
    pub(super) fn make_empty_folders(
        &mut self,
        rows: &[ManifestRow],
        folders: &[Vec<u8>],
        snapshot: &Snapshot,
    ) -> io::Result<()> {
        let mut used = std::mem::take(&mut self.untracked_folders);
        let written = snapshot.written().iter().map(|path| path.as_str().as_bytes());
        let paths = rows.iter().map(|row| &row.path[..]).chain(written);
        for folder in paths.flat_map(folders_above) {
            if !used.contains(folder) {
                used.insert(folder.to_vec());
            }
        }
        let written: HashSet<_> = snapshot.written().iter().map(|path| path.as_str().as_bytes()).collect();
        for folder in folders.iter().filter(|folder| !folder.is_empty() && !used.contains(&folder[..])) {
            let is_replaced =
                written.contains(&folder[..]) || folders_above(folder).any(|above| written.contains(above));
            if !is_replaced {
                self.writer.folder(folder).map_err(io_error)?;
            }
        }
        Ok(())
    }

    /// Returns the rows and folders of the manifest, with the stamps of what is as in the base.
    pub(super) fn stamps(
        &self,
        rows: Vec<ManifestRow>,
        folders: Vec<Vec<u8>>,
        snapshot: &Snapshot,
    ) -> io::Result<StampedTree> {
        let written: HashSet<_> = snapshot.written().iter().map(|path| path.as_str().as_bytes()).collect();
        let stamps: HashMap<_, _> = self.writer.rows().iter().map(|row| (&row.path[..], row.stamp)).collect();
        let stamped = |row: ManifestRow| match stamps.get(&row.path[..]).filter(|_| !written.contains(&row.path[..])) {
            Some(stamp) => ManifestRow { stamp: *stamp, ..row },
            None => row,
        };
        let rows = rows.into_iter().map(stamped).collect();
        let changed: HashSet<_> = written.iter().copied().flat_map(folders_above).chain([&b""[..]]).collect();
        let is_written = !written.is_empty();
        let made: HashMap<_, _> = self.writer.folders()?.into_iter().collect();
        let folders = folders.into_iter().map(|folder| {
            let is_changed = is_written && changed.contains(&folder[..]);
            let stamp = made.get(&folder).filter(|_| !is_changed).copied().unwrap_or_default();
            (folder, stamp)
        });
        Ok((rows, folders.collect()))
    }
}

/// A run is restored whole, or not at all.
fn must_be_written(_path: &[u8], _mode: u32, outcome: FileOutcome) -> io::Result<()> {
    match outcome {
        FileOutcome::Written => Ok(()),
        FileOutcome::Wrong => Err(damaged("a file has other bytes than the run's records say")),
        FileOutcome::NotStored => {
            let problem = "the content of a file is neither in the ledger nor in the store";
            Err(io::Error::new(io::ErrorKind::NotFound, problem))
        }
        FileOutcome::Lost(error) => Err(error),
    }
}
