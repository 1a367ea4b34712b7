//! The parts of the base of a run that was imported long ago, for a store outside of this machine.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, RunId, Sha256};
use rustix::fs::OFlags;

use super::base_parts::{BasePart, list_of_files, rows_of, unnamed_file, write_header};
use super::{RecordedBase, RunEntry, RunEntryKind, RunPart, Workspaces};
use crate::base::Base;
use crate::base::manifest::{self, BaseManifest, MODE_EXECUTABLE, MODE_FILE, MODE_LINK, ManifestRow};
use crate::byte_path::logical_path;
use crate::dir::{open_dir, open_under};
use crate::git::GitError;
use crate::hashing::copy_hashed;
use crate::snapshot::Snapshot;
use crate::stamp::FileStamp;

impl Workspaces {
    /// Returns what `run` started from, and the parts of its base, from the folder of the run, which nobody may use meanwhile. Of the
    /// files that git ignores, those that the run has not written are as they are in its tree now, and the others are as they were
    /// before the run has changed them. `snapshot` has the files of the run's newest record.
    ///
    /// The tree of another history than that of `snapshot` may have files of that history. `drift` are the paths at which it differs from
    /// `snapshot`: they are left out, and ignored files are as they were before either history has changed them.
    ///
    /// # Errors
    ///
    /// If the folder is missing or damaged, or the disk or git fails.
    pub fn existing_base(
        &self,
        run: &RunId,
        snapshot: &Snapshot,
        drift: Option<&BTreeSet<LogicalPath>>,
    ) -> io::Result<(RecordedBase, Vec<BasePart>)> {
        let dir = open_dir(&self.dir, run.as_str())?;
        let (head, manifest) = manifest::read(&list_of_files(&dir)?, 0)?;
        let manifest_sha256 = manifest::digest(&rows_of(&manifest).0);
        let base = self.base(run)?;
        let is_written = |row: &ManifestRow| logical_path(&row.path).is_some_and(|path| snapshot.has_written(&path));
        let taken = base.ignored_files()?.into_iter().filter(|row| drift.is_some() || is_written(row));
        let taken: Vec<_> = taken.collect();
        let mut in_tree = self.untracked_in_tree(run, &manifest, snapshot)?;
        if let Some(drift) = drift {
            let is_taken: HashSet<&[u8]> = taken.iter().map(|row| &row.path[..]).collect();
            in_tree.retain(|(path, _)| {
                !is_taken.contains(&path[..]) && !logical_path(path).is_some_and(|path| drift.contains(&path))
            });
        }
        let (untracked, untracked_sha256) = if in_tree.is_empty() && taken.is_empty() {
            (None, None)
        } else {
            let (file, rows) = write_untracked(&dir, &base, in_tree, taken)?;
            (Some(file), Some(manifest::digest(&rows)))
        };
        let recorded = RecordedBase { commit: head.commit, manifest_sha256, untracked_sha256 };
        Ok((recorded, self.parts_in(run, &dir, untracked)?))
    }

    /// Returns the files and links of the tree, with their paths in it, that neither the base nor a record knows.
    fn untracked_in_tree(
        &self,
        run: &RunId,
        manifest: &BaseManifest,
        snapshot: &Snapshot,
    ) -> io::Result<Vec<(Vec<u8>, RunEntryKind)>> {
        let mut found = Vec::new();
        self.visit_entries(run, RunPart::Tree, &mut |RunEntry { path, kind }| {
            let Some(path) = path.strip_prefix(b"repo/") else { return Ok(()) };
            let is_known = |path: LogicalPath| snapshot.files().contains_key(&path) || snapshot.has_written(&path);
            if kind != RunEntryKind::Folder && manifest.get(path).is_none() && !logical_path(path).is_some_and(is_known)
            {
                found.push((path.to_vec(), kind));
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Writes the files `in_tree` and those that the base has taken in to a file without a name. Returns it with the rows of all.
fn write_untracked(
    dir: &OwnedFd,
    base: &Base,
    in_tree: Vec<(Vec<u8>, RunEntryKind)>,
    taken: Vec<ManifestRow>,
) -> io::Result<(File, Vec<ManifestRow>)> {
    let root = open_dir(dir, "repo")?;
    let mut to = BufWriter::with_capacity(1 << 20, unnamed_file(dir)?);
    let mut rows = Vec::with_capacity(in_tree.len() + taken.len());
    for (path, kind) in in_tree {
        let (mode, size, sha256) = match kind {
            RunEntryKind::Link { target } => {
                write_header(&mut to, &path, MODE_LINK, target.len() as u64)?;
                to.write_all(&target)?;
                (MODE_LINK, target.len() as u64, Sha256::of(&target))
            }
            RunEntryKind::Folder => continue,
            RunEntryKind::File { mode } => {
                let mode = if mode & 0o111 == 0 { MODE_FILE } else { MODE_EXECUTABLE };
                let mut file = File::from(open_under(root.as_fd(), &path[..], OFlags::empty())?);
                let size = file.metadata()?.len();
                write_header(&mut to, &path, mode, size)?;
                let (sha256, copied) = copy_hashed(&mut file, &mut to, size)?;
                if copied != size {
                    return Err(io::Error::other("a file changed while it was read"));
                }
                (mode, size, sha256)
            }
        };
        let stamp = FileStamp { size, ..FileStamp::default() };
        rows.push(ManifestRow { path, mode, oid: [0; 20], sha256: *sha256.as_bytes(), stamp });
    }
    write_taken(base, &taken, &mut to)?;
    rows.extend(taken);
    let mut file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok((file, rows))
}

/// Writes the files that the base has taken in.
fn write_taken(base: &Base, taken: &[ManifestRow], to: &mut BufWriter<File>) -> io::Result<()> {
    if taken.is_empty() {
        return Ok(());
    }
    let written = base.blobs().with(&AtomicBool::new(false), |blobs| {
        for row in taken {
            blobs.read(&row.oid, &mut |bytes, size| {
                write_header(to, &row.path, row.mode, size)?;
                let (sha256, _) = copy_hashed(bytes, to, size)?;
                if sha256.as_bytes() == &row.sha256 {
                    return Ok(());
                }
                Err(io::Error::new(io::ErrorKind::InvalidData, "a file of the base has other bytes than it must have"))
            })?;
        }
        Ok(())
    });
    written.map_err(|error| match error {
        GitError::Io(error) => error,
        error => io::Error::other(error),
    })
}
