//! Writing the tree of a run from its base and its newest snapshot.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use model::{LogicalPath, Refusal, Sha256};

use super::super::base_parts::{UntrackedFile, damaged, read_untracked};
use crate::WorkspaceError;
use crate::base::Base;
use crate::base::manifest::{self, MODE_EXECUTABLE, MODE_LINK, ManifestRow};
use crate::byte_path::split;
use crate::git::{Bounds, GitError};
use crate::import::{ImportError, ImportLimits, ImportObserver, ImportWriter, WriteError};
use crate::snapshot::{ContentLocation, Snapshot, SnapshotFile, StoredContents};
use crate::stamp::FileStamp;

/// How many files are written per git process.
const BATCH: usize = 2000;
/// The time limit of one git process.
const BATCH_SECONDS: u64 = 120;
/// The largest link that is written. The kernel's limit is 4 KiB.
const MAX_TARGET_BYTES: u64 = 64 << 10;

/// The files of a base and its folders, with their stamps.
type StampedTree = (Vec<ManifestRow>, Vec<(Vec<u8>, FileStamp)>);

/// Writes the tree of a run.
pub(crate) struct TreeWriter {
    writer: ImportWriter<'static>,
    /// The folders in which untracked files are.
    untracked_folders: HashSet<Vec<u8>>,
    files: u64,
}

/// Nobody waits for single files, and the quota of the run was checked when they were written.
struct Unobserved;

impl ImportObserver for Unobserved {
    fn progress(&self, _stage: &'static str, _files: u64, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }

    fn check_quota(&self, _files: u64, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }
}

impl TreeWriter {
    /// Creates a writer into the empty folder `root`.
    pub(super) fn new(root: OwnedFd) -> Self {
        let limits = ImportLimits {
            max_entries: u64::MAX,
            max_name_bytes: u64::MAX,
            max_bytes: u64::MAX,
            max_depth: usize::MAX,
            max_ratio: u64::MAX,
        };
        Self { writer: ImportWriter::new(root, limits, &Unobserved), untracked_folders: HashSet::new(), files: 0 }
    }

    /// Returns the number of files and links.
    pub(super) fn files(&self) -> u64 {
        self.files
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
            let logical = std::str::from_utf8(&path).ok().and_then(|path| LogicalPath::parse(path).ok());
            self.untracked_folders.extend(folders_of(&path).map(<[u8]>::to_vec));
            match logical.filter(|path| written.contains(path) && mode != MODE_LINK) {
                Some(path) => {
                    let row = base.store(&path, mode == MODE_EXECUTABLE, bytes)?;
                    taken.push(row.clone());
                    rows.push(row);
                }
                None => rows.push(self.write(&path, mode, size, None, bytes)?),
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
            let path = std::str::from_utf8(&row.path).ok().and_then(|path| LogicalPath::parse(path).ok());
            path.is_none_or(|path| !snapshot.has_written(&path))
        };
        let unchanged: Vec<_> = rows.iter().filter(is_unchanged).collect();
        for batch in unchanged.chunks(BATCH) {
            let bounds = Bounds::seconds(BATCH_SECONDS);
            let written = base.blobs().each(
                &bounds,
                batch,
                |row| &row.oid,
                |row, bytes, size| {
                    let written = self.write(&row.path, row.mode, size, Some(row.oid), bytes)?;
                    same_hash(Sha256::from_bytes(row.sha256), &written)
                },
            );
            written.map_err(|error| match error {
                GitError::Io(error) => error,
                error => io::Error::new(io::ErrorKind::InvalidData, error),
            })?;
        }
        Ok(())
    }

    /// Writes the newest version of each file that the run has changed.
    pub(super) fn write_changed(
        &mut self,
        snapshot: &Snapshot,
        contents: &dyn StoredContents,
    ) -> Result<(), WorkspaceError> {
        for (path, file) in snapshot.files() {
            let ContentLocation::Ledger { seq, .. } = file.location else { continue };
            self.write_file(path, file, seq, contents)?;
        }
        Ok(())
    }

    fn write_file(
        &mut self,
        path: &LogicalPath,
        file: &SnapshotFile,
        seq: u64,
        contents: &dyn StoredContents,
    ) -> io::Result<()> {
        let mode = if file.is_link { MODE_LINK } else { 0o100_000 | file.mode };
        let path = path.as_str().as_bytes();
        let written = if let Some(bytes) = contents.content(seq, &file.sha256)? {
            self.write(path, mode, bytes.len() as u64, None, &mut &bytes[..])?
        } else {
            let missing = || {
                let problem = "the content of a file is neither in the ledger nor in the store";
                io::Error::new(io::ErrorKind::NotFound, problem)
            };
            let (size, mut bytes) = contents.large(&file.sha256)?.ok_or_else(missing)?;
            self.write(path, mode, size, None, &mut bytes)?
        };
        same_hash(file.sha256, &written)
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
        for folder in paths.flat_map(folders_of) {
            if !used.contains(folder) {
                used.insert(folder.to_vec());
            }
        }
        let written: HashSet<_> = snapshot.written().iter().map(|path| path.as_str().as_bytes()).collect();
        for folder in folders.iter().filter(|folder| !folder.is_empty() && !used.contains(&folder[..])) {
            let is_replaced = written.contains(&folder[..]) || folders_of(folder).any(|above| written.contains(above));
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
        let stamps: HashMap<_, _> = self.writer.all_rows().iter().map(|row| (&row.path[..], row.stamp)).collect();
        let stamped = |row: ManifestRow| match stamps.get(&row.path[..]).filter(|_| !written.contains(&row.path[..])) {
            Some(stamp) => ManifestRow { stamp: *stamp, ..row },
            None => row,
        };
        let rows = rows.into_iter().map(stamped).collect();
        let changed: HashSet<_> = written.iter().copied().flat_map(folders_of).chain([&b""[..]]).collect();
        let is_written = !written.is_empty();
        let made: HashMap<_, _> = self.writer.folders()?.into_iter().collect();
        let folders = folders.into_iter().map(|folder| {
            let is_changed = is_written && changed.contains(&folder[..]);
            let stamp = made.get(&folder).filter(|_| !is_changed).copied().unwrap_or_default();
            (folder, stamp)
        });
        Ok((rows, folders.collect()))
    }

    fn write(
        &mut self,
        path: &[u8],
        mode: u32,
        size: u64,
        oid: Option<[u8; 20]>,
        bytes: &mut dyn Read,
    ) -> io::Result<ManifestRow> {
        self.files += 1;
        if mode == MODE_LINK {
            let mut target = Vec::new();
            bytes.take(MAX_TARGET_BYTES).read_to_end(&mut target)?;
            self.writer.link(path, &target).map_err(io_error)?;
        } else {
            let is_executable = mode & 0o111 != 0;
            self.writer.file(path, is_executable, size, oid, bytes).map_err(io_error)?;
        }
        self.writer.all_rows().last().cloned().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn same_hash(expected: Sha256, written: &ManifestRow) -> io::Result<()> {
    if Sha256::from_bytes(written.sha256) == expected {
        Ok(())
    } else {
        Err(damaged("a file has other bytes than the run's records say"))
    }
}

/// Returns the folders above `path`, without the root.
fn folders_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = split(rest).0;
        (!rest.is_empty()).then_some(rest)
    })
}

fn io_error(error: WriteError) -> io::Error {
    match error {
        WriteError::Source(error) | WriteError::Fatal(ImportError::Io(error)) => error,
        WriteError::Unsupported(reason) => io::Error::new(io::ErrorKind::InvalidData, reason),
        WriteError::Fatal(error) => io::Error::other(error),
    }
}
