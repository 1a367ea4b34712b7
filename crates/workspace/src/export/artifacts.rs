//! The artifacts of a run as one object, for the machine that takes the run over.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::sync::atomic::AtomicBool;

use model::{RunId, Sha256};
use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::Digest as _;

use super::archive::{RunPacker, has_artifacts};
use super::packer::Packer;
use crate::dir::{create_file, fresh_name, open_dir, open_under, remove_file};
use crate::stamp::FileStamp;
use crate::workspaces::{RunEntryKind, RunPart, Workspaces};

/// The artifacts of a run as a tar archive. The same files give the same bytes.
pub struct ArtifactBundle {
    /// The hash of the archive.
    pub sha256: Sha256,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The archive, a file without a name.
    pub content: File,
}

impl Workspaces {
    /// Returns a hash that changes with each change of the artifacts of `run`, without reading their content; `None` if there are none.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn artifacts_stamp(&self, run: &RunId) -> io::Result<Option<Sha256>> {
        let dir = match self.open_run_folder(run) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            dir => dir?,
        };
        if !has_artifacts(&dir)? {
            return Ok(None);
        }
        let mut stamp = sha2::Sha256::new();
        self.visit_entries(run, RunPart::Artifacts, &mut |entry| {
            let version = match &entry.kind {
                RunEntryKind::File { .. } => match open_under(&dir, &*entry.path, OFlags::PATH) {
                    // It was removed or replaced in the meantime. The next look sees that.
                    Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => None,
                    file => Some(FileStamp::of(&rustix::fs::fstat(file?)?)),
                },
                RunEntryKind::Folder | RunEntryKind::Link { .. } => None,
            };
            stamp.update(format!("{entry:?} {version:?}\n"));
            Ok(())
        })?;
        Ok(Some(Sha256::from_bytes(stamp.finalize().into())))
    }

    /// Archives the artifacts of `run`.
    ///
    /// # Errors
    ///
    /// If the disk fails, a file changes meanwhile, or the archive would be larger than `max_bytes` ([`io::ErrorKind::FileTooLarge`]).
    pub fn bundle_artifacts(&self, run: &RunId, max_bytes: u64) -> io::Result<ArtifactBundle> {
        let dir = self.open_run_folder(run)?;
        let (tmp, name) = (open_dir(&dir, "tmp")?, fresh_name("artifacts-"));
        let file = create_file(&tmp, &*name)?;
        remove_file(&tmp, &*name)?;
        let out = Hashed { to: BufWriter::new(file), sha256: sha2::Sha256::new(), left: max_bytes };
        let mut archive = RunPacker { packer: Packer::new(out), cancel: &AtomicBool::new(false) };
        archive.artifacts(&dir)?;
        let Hashed { to, sha256, left } = archive.packer.finish()?;
        let mut content = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        content.rewind()?;
        Ok(ArtifactBundle {
            sha256: Sha256::from_bytes(sha256.finalize().into()),
            size_bytes: max_bytes - left,
            content,
        })
    }
}

/// Hashes and counts what is written.
struct Hashed {
    to: BufWriter<File>,
    sha256: sha2::Sha256,
    left: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        let written = self.to.write(bytes)?;
        self.sha256.update(&bytes[..written]);
        self.left = left + (bytes.len() - written) as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
