//! Reading the folder of a run for a backup while the service uses it, and writing it again in a restore.
//!
//! A path is relative to the run's folder and consists of bytes: a tree can contain names that no tool can use.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};

use model::{RunId, Sha256};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{FOLDERS, Workspaces, run_base};
use crate::WorkspaceError;
use crate::dir::{entries, open_dir, open_under};
use crate::guard::FOLDER_MODE;
use crate::snapshot::{RebuildReport, Snapshot, StoredContents};
use crate::tree_writer::{TreeWriter, make_dir};

/// The folder of a run's tree.
const TREE: &str = "repo";
/// The folder of the files that programs beside the service keep with a run.
pub(super) const ARTIFACTS: &str = "artifacts";
/// The folder of a run's staged files.
pub(super) const STAGED: &str = "tmp";
/// The permission bits of new folders outside of a tree.
const PRIVATE: Mode = Mode::RWXU;

/// An entry of a run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    /// Its path, relative to the run's folder.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: RunEntryKind,
}

/// What an entry of a run's folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEntryKind {
    /// A regular file.
    File {
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Its target.
        target: Vec<u8>,
    },
    /// A folder.
    Folder,
}

/// The parts of a run's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPart {
    /// The run's own files: those of its tree that it has written, or that somebody else has put there.
    Tree,
    /// The files that programs beside the service keep with the run.
    Artifacts,
}

impl Workspaces {
    /// Calls `take` with every entry of a part of `run`'s folder, folders before what is in them, always in the same order. Entries that
    /// disappear meanwhile and special files are left out.
    ///
    /// # Errors
    ///
    /// If the folder is missing, the disk fails, or `take` does.
    pub fn visit_entries(
        &self,
        run: &RunId,
        part: RunPart,
        take: &mut dyn FnMut(RunEntry) -> io::Result<()>,
    ) -> io::Result<()> {
        let dir = open_dir(&self.dir, run.as_str())?;
        match part {
            RunPart::Tree => visit(&dir, TREE, take),
            RunPart::Artifacts => match visit(&dir, ARTIFACTS, take) {
                // Whoever keeps files there may also remove the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                visited => visited,
            },
        }
    }

    /// Opens a regular file of `run`'s folder for reading. No symbolic link is followed.
    ///
    /// # Errors
    ///
    /// If it does not exist ([`io::ErrorKind::NotFound`]), is no regular file, or the disk fails.
    pub fn open_file(&self, run: &RunId, path: &[u8]) -> io::Result<File> {
        let dir = open_dir(&self.dir, run.as_str())?;
        let fd = open_under(&dir, path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(File::from(fd))
    }

    /// Returns the path of a file of the tree in the run's folder.
    pub fn path_in_tree(path: &str) -> Vec<u8> {
        format!("{TREE}/{path}").into_bytes()
    }

    /// Returns the path of a staged file in the run's folder.
    pub fn path_of_staged(name: &str) -> Vec<u8> {
        format!("{STAGED}/{name}").into_bytes()
    }

    /// Creates the folder of `run`, which starts from the base called `base`, as [`BaseMaker::finish`](super::BaseMaker::finish) has
    /// returned it.
    ///
    /// # Errors
    ///
    /// If it exists or the disk fails.
    pub fn create_folder(&self, run: &RunId, base: &str) -> io::Result<()> {
        rustix::fs::mkdirat(&self.dir, run.as_str(), PRIVATE)?;
        let dir = open_dir(&self.dir, run.as_str())?;
        for folder in FOLDERS.into_iter().filter(|folder| *folder != TREE) {
            rustix::fs::mkdirat(&dir, folder, PRIVATE)?;
        }
        run_base::write(&dir, base)
    }

    /// Writes an entry of `run`'s folder, with the folders above it, and returns the hash and the size of what was read from
    /// `content`. `None` if something is at its path already, which stays. No symbolic link is followed.
    ///
    /// # Errors
    ///
    /// If the path is not a plain relative one, or the disk or `content` fails.
    pub fn write_entry(
        &self,
        run: &RunId,
        entry: &RunEntry,
        content: &mut dyn Read,
    ) -> io::Result<Option<(Sha256, u64)>> {
        let mode = if entry.path.starts_with(b"repo/") { FOLDER_MODE } else { PRIVATE };
        write_entry_in(&mut TreeWriter::new(open_dir(&self.dir, run.as_str())?, mode), entry, content)
    }

    /// Copies the artifacts from the folder of `run`, if there is one, into the folder `to`. Returns the number of entries.
    pub(super) fn copy_artifacts(&self, run: &RunId, to: &OwnedFd) -> io::Result<usize> {
        let (mut to, mut copied) = (TreeWriter::new(to.try_clone()?, PRIVATE), 0);
        let visited = self.visit_entries(run, RunPart::Artifacts, &mut |entry| {
            copied += 1;
            let mut content: Box<dyn Read> = match entry.kind {
                RunEntryKind::File { .. } => match self.open_file(run, &entry.path) {
                    // It was removed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    file => Box::new(file?),
                },
                RunEntryKind::Link { .. } | RunEntryKind::Folder => Box::new(io::empty()),
            };
            write_entry_in(&mut to, &entry, &mut content).map(drop)
        });
        match visited {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(copied),
            visited => visited.map(|()| copied),
        }
    }

    /// Writes the run's own files of `snapshot` into the folder of `run`, whose base exists and whose tree is missing.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails.
    pub fn rebuild_tree(
        &self,
        run: &RunId,
        snapshot: &Snapshot,
        contents: &dyn StoredContents,
    ) -> Result<RebuildReport, WorkspaceError> {
        let dir = open_dir(&self.dir, run.as_str()).map_err(io::Error::from)?;
        make_dir(&dir, TREE.as_bytes(), PRIVATE)?;
        let tree = open_dir(&dir, TREE).map_err(io::Error::from)?;
        Ok(snapshot.write_changed(tree, contents)?)
    }

    /// Syncs everything that was written, with everything else on the same file system.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.dir)?)
    }
}

/// Writes the artifacts of an archive into the folder `dir` of a run.
pub(super) fn unpack_artifacts(dir: &OwnedFd, content: &mut dyn Read) -> io::Result<()> {
    let mut to = TreeWriter::new(dir.try_clone()?, PRIVATE);
    for packed in tar::Archive::new(content).entries()? {
        let mut packed = packed?;
        let path = packed.path_bytes();
        let path = path.strip_suffix(b"/").unwrap_or(&path).to_vec();
        if !path.starts_with(ARTIFACTS.as_bytes()) || !matches!(path.get(ARTIFACTS.len()), None | Some(b'/')) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the archive has other files than artifacts"));
        }
        let kind = match packed.header().entry_type() {
            tar::EntryType::Regular => RunEntryKind::File { mode: packed.header().mode()? & 0o777 },
            tar::EntryType::Directory => RunEntryKind::Folder,
            tar::EntryType::Symlink => {
                RunEntryKind::Link { target: packed.link_name_bytes().unwrap_or_default().into_owned() }
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the archive has an unknown kind of entry")),
        };
        write_entry_in(&mut to, &RunEntry { path, kind }, &mut packed)?;
    }
    Ok(())
}

/// Writes an entry of a run's folder; see [`Workspaces::write_entry`].
fn write_entry_in(
    folder: &mut TreeWriter,
    RunEntry { path, kind }: &RunEntry,
    content: &mut dyn Read,
) -> io::Result<Option<(Sha256, u64)>> {
    let done = match kind {
        RunEntryKind::Folder => folder.folder(path).map(|()| None),
        RunEntryKind::Link { target } => folder.link(path, target).map(|()| None),
        RunEntryKind::File { mode } => folder.file(path, *mode, content, u64::MAX).map(Some),
    };
    match done {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        done => done,
    }
}

/// Calls `take` with every entry under the folder `top` of `dir`, and with the folder itself.
pub(crate) fn visit(dir: &OwnedFd, top: &str, take: &mut dyn FnMut(RunEntry) -> io::Result<()>) -> io::Result<()> {
    let mut folders = vec![top.as_bytes().to_vec()];
    while let Some(path) = folders.pop() {
        let folder = match open_under(dir, &*path, OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if path != top.as_bytes() => continue,
            folder => folder?,
        };
        take(RunEntry { path: path.clone(), kind: RunEntryKind::Folder })?;
        let mut names = entries(&folder, usize::MAX)?;
        names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (name, _) in names {
            let Some(RunEntry { path: name, kind }) = entry(&folder, name.to_bytes())? else { continue };
            let path = [&*path, b"/", &*name].concat();
            match kind {
                RunEntryKind::Folder => folders.push(path),
                kind => take(RunEntry { path, kind })?,
            }
        }
    }
    Ok(())
}

/// Returns the entry `name` of `folder`. `None` if it does not exist or is a special file.
fn entry(folder: &OwnedFd, name: &[u8]) -> io::Result<Option<RunEntry>> {
    let stat = match rustix::fs::statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => RunEntryKind::File { mode: stat.st_mode & 0o777 },
        FileType::Directory => RunEntryKind::Folder,
        FileType::Symlink => match rustix::fs::readlinkat(folder.as_fd(), name, Vec::new()) {
            Ok(target) => RunEntryKind::Link { target: target.into_bytes() },
            // It was replaced meanwhile.
            Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        },
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            return Ok(None);
        }
    };
    Ok(Some(RunEntry { path: name.to_vec(), kind }))
}
