//! Rebuilding the files of a snapshot in another folder.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Sha256};
use rustix::fs::Mode;

use super::{ContentLocation, Snapshot, SnapshotFile, StoredContents};
use crate::base::OpenBlobs;
use crate::dir::{create_file, entries, remove_file};
use crate::guard::{Root, open_ambient_folder};
use crate::hashing::copy_hashed;
use crate::{Base, WorkspaceError};

/// How many files are written per git process.
const BATCH: usize = 2000;

/// The result of a rebuild.
#[derive(Debug, Default)]
pub struct RebuildReport {
    /// The number of files with the expected hash.
    pub files: u64,
    /// The number of symbolic links.
    pub links: u64,
    /// Files with another hash than expected.
    pub wrong: Vec<LogicalPath>,
    /// Files that were not written, because the ledger does not store their bytes.
    pub not_kept: Vec<LogicalPath>,
    /// Files that were not written, because their bytes are missing from the base.
    pub lost: Vec<LogicalPath>,
}

impl Base {
    /// Writes the files of a snapshot to `to`, a folder that is empty or is created, from the base and the ledger alone.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails; [`io::ErrorKind::DirectoryNotEmpty`] if `to` is not empty.
    pub fn rebuild(
        &self,
        snapshot: &Snapshot,
        to: &Path,
        contents: &dyn StoredContents,
    ) -> Result<RebuildReport, WorkspaceError> {
        let root = Root::of_run(empty_folder(to)?);
        let never = AtomicBool::new(false);
        let loaded = self.load()?;
        let mut report = RebuildReport::default();
        // Links come last, so that no file is written through one.
        let (links, files): (Vec<_>, Vec<_>) = snapshot.files().iter().partition(|(_, file)| file.is_link);
        for batch in files.chunks(BATCH).chain(links.chunks(BATCH)) {
            let mut error = None;
            let written = self.blobs().with(&never, |blobs| {
                for (path, file) in batch {
                    let oid = loaded.manifest.get(path.as_str().as_bytes()).map(|at| loaded.manifest.oid(at));
                    if let Err(found) = write(&root, path, file, (blobs, oid), contents, &mut report) {
                        error = Some(found);
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                }
                Ok(())
            });
            if let Some(error) = error {
                return Err(error);
            }
            written?;
        }
        Ok(report)
    }
}

/// Opens the folder `to`, which must be empty. Creates it if it is missing.
fn empty_folder(to: &Path) -> io::Result<OwnedFd> {
    match std::fs::create_dir(to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let dir = open_ambient_folder(to)?;
    if !entries(&dir, 0)?.is_empty() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    Ok(dir)
}

/// Writes one file or link, and adds it to the report.
fn write(
    root: &Root,
    path: &LogicalPath,
    file: &SnapshotFile,
    (blobs, oid): (&mut OpenBlobs, Option<&[u8; 20]>),
    contents: &dyn StoredContents,
    report: &mut RebuildReport,
) -> Result<(), WorkspaceError> {
    let (mut stored, mut large) = (None, None);
    if let ContentLocation::Ledger { seq, .. } = file.location {
        stored = contents.content(seq, &file.sha256)?;
        if stored.is_none() && !file.is_link {
            large = contents.large(&file.sha256)?;
        }
        if stored.is_none() && large.is_none() {
            report.not_kept.push(path.clone());
            return Ok(());
        }
    }
    let (parent, _) = root.create_parent(path).map_err(|error| error.at(path))?;
    let missing = || io::Error::from(io::ErrorKind::InvalidData);
    let written = if file.is_link {
        let target = stored.map_or_else(|| blobs.get(oid.ok_or_else(missing)?), Ok);
        target.and_then(|target| {
            rustix::fs::symlinkat(&*target, &parent.dir, &*parent.name)?;
            Ok(Sha256::of(&target))
        })
    } else {
        let mut out = create_file(&parent.dir, &*parent.name)?;
        let copied = match (stored, large) {
            (Some(bytes), _) => copy_hashed(&mut &*bytes, &mut out, bytes.len() as u64),
            (None, Some((size, mut bytes))) => copy_hashed(&mut bytes, &mut out, size),
            (None, None) => oid.ok_or_else(missing).and_then(|oid| {
                let mut copied = (Sha256::ZERO, 0);
                blobs.read(oid, &mut |mut from, size| {
                    copied = copy_hashed(&mut from, &mut out, size)?;
                    Ok(())
                })?;
                Ok(copied)
            }),
        };
        rustix::fs::fchmod(&out, Mode::from_raw_mode(file.mode & 0o777))?;
        copied.map(|(sha256, _)| sha256)
    };
    let sha256 = match written {
        Ok(sha256) => sha256,
        // The base lacks the blob; others may exist.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            if !file.is_link {
                remove_file(&parent.dir, &*parent.name)?;
            }
            report.lost.push(path.clone());
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    match (sha256 == file.sha256, file.is_link) {
        (false, _) => report.wrong.push(path.clone()),
        (true, true) => report.links += 1,
        (true, false) => report.files += 1,
    }
    Ok(())
}
