//! A run's files made anew beside the run, and the run's tree compared with what the ledger says.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Sha256};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use sha2::Digest as _;

use crate::base::OpenBlobs;
use crate::guard::{GuardError, Root, open_ambient_folder};
use crate::past::of_git;
use crate::{Base, ContentLocation, ContentStore, Snapshot, SnapshotFile, Workspace, WorkspaceError};

/// So many files are made while git is attached once.
const BATCH: usize = 2000;
/// What is read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// What was made.
#[derive(Debug, Default)]
pub struct RebuildReport {
    /// Files whose bytes have the hash that they should have.
    pub files: u64,
    /// Symbolic links, which lead where they led; nothing follows them.
    pub links: u64,
    /// Files whose bytes have another hash.
    pub wrong: Vec<LogicalPath>,
    /// Files that were not made: the ledger does not have their bytes.
    pub not_kept: Vec<LogicalPath>,
    /// Files that were not made: the base does not have their bytes any more.
    pub lost: Vec<LogicalPath>,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Nothing.
    Nothing,
    /// A file.
    File {
        /// Hash of its bytes.
        sha256: Sha256,
        /// Whether anyone may execute it.
        executable: bool,
    },
    /// A symbolic link.
    Link {
        /// Hash of where it leads.
        sha256: Sha256,
    },
    /// A folder. What lies in it stands at paths of its own.
    Folder,
    /// Something special, or something stands in the way there.
    Other,
}

/// A path at which something else stands than the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The path.
    pub path: LogicalPath,
    /// What the ledger says.
    pub expected: EntryState,
    /// What is there.
    pub found: EntryState,
}

impl Base {
    /// Makes the past files in `to`, a folder that is empty or is made, from the base and the ledger alone.
    ///
    /// # Errors
    ///
    /// Where the disk or the ledger fails; [`io::ErrorKind::DirectoryNotEmpty`] where something is in `to`.
    pub fn rebuild(
        &self,
        past: &Snapshot,
        to: &Path,
        contents: &dyn ContentStore,
    ) -> Result<RebuildReport, WorkspaceError> {
        let root = Root::of_run(empty_folder(to)?);
        let never = AtomicBool::new(false);
        let loaded = self.load()?;
        let mut rebuilt = RebuildReport::default();
        // Links come last, so that no file is ever written through one.
        let (links, files): (Vec<_>, Vec<_>) = past.files().iter().partition(|(_, file)| file.is_link);
        for batch in files.chunks(BATCH).chain(links.chunks(BATCH)) {
            let mut error = None;
            let made = self.blobs().with(&never, |blobs| {
                for (path, file) in batch {
                    let oid = loaded.manifest.get(path.as_str().as_bytes()).map(|at| loaded.manifest.oid(at));
                    if let Err(found) = make(&root, path, file, (blobs, oid), contents, &mut rebuilt) {
                        error = Some(found);
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                }
                Ok(())
            });
            if let Some(error) = error {
                return Err(error);
            }
            made.map_err(of_git)?;
        }
        Ok(rebuilt)
    }
}

impl Workspace {
    /// Every path at which the tree differs from `past`; what git ignores is looked at only where the run has written it.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn find_drift(&self, past: &Snapshot) -> Result<Vec<Drift>, WorkspaceError> {
        let mut paths: BTreeSet<LogicalPath> = past.files().keys().chain(past.written()).cloned().collect();
        paths.extend(self.touched_paths(&AtomicBool::new(false))?);
        let mut differences = Vec::new();
        for path in paths {
            let expected = past.files().get(&path).map_or(EntryState::Nothing, EntryState::of);
            let found = self.standing(&path)?;
            let is_no_file = matches!(found, EntryState::Nothing | EntryState::Folder | EntryState::Other);
            if expected != found && !(expected == EntryState::Nothing && is_no_file) {
                differences.push(Drift { path, expected, found });
            }
        }
        Ok(differences)
    }

    /// What stands at `path` now.
    fn standing(&self, path: &LogicalPath) -> Result<EntryState, WorkspaceError> {
        let root = &self.tree().root;
        let place = match root.place(path) {
            Ok(place) => place,
            Err(GuardError::Missing | GuardError::NotADirectory) => return Ok(EntryState::Nothing),
            Err(GuardError::Io(error)) => return Err(error.into()),
            Err(GuardError::Rejected(_) | GuardError::Special | GuardError::Unreadable) => {
                return Ok(EntryState::Other);
            }
        };
        let Some(stat) = place.stat()? else { return Ok(EntryState::Nothing) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&place.dir, &*place.name, Vec::new())?;
                Ok(EntryState::Link { sha256: Sha256::of(target.as_bytes()) })
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let file = rustix::fs::openat(&place.dir, &*place.name, flags, Mode::empty())?;
                let sha256 = copy(&mut File::from(file), &mut io::sink())?;
                Ok(EntryState::File { sha256, executable: stat.st_mode & 0o111 != 0 })
            }
            FileType::Directory => Ok(EntryState::Folder),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(EntryState::Other),
        }
    }
}

impl EntryState {
    fn of(file: &SnapshotFile) -> Self {
        if file.is_link {
            Self::Link { sha256: file.sha256 }
        } else {
            Self::File { sha256: file.sha256, executable: file.mode & 0o111 != 0 }
        }
    }

    /// The hash of what stands there, where it is a file or a link.
    pub fn sha256(self) -> Option<Sha256> {
        match self {
            Self::File { sha256, .. } | Self::Link { sha256 } => Some(sha256),
            Self::Nothing | Self::Folder | Self::Other => None,
        }
    }
}

/// Opens the folder `to`, which has nothing in it; makes it where it is missing.
fn empty_folder(to: &Path) -> io::Result<OwnedFd> {
    match std::fs::create_dir(to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let dir = open_ambient_folder(to)?;
    for entry in rustix::fs::Dir::read_from(&dir)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
    }
    Ok(dir)
}

/// Makes one file or link.
fn make(
    root: &Root,
    path: &LogicalPath,
    file: &SnapshotFile,
    (blobs, oid): (&mut OpenBlobs, Option<&[u8; 20]>),
    contents: &dyn ContentStore,
    rebuilt: &mut RebuildReport,
) -> Result<(), WorkspaceError> {
    let mut kept = None;
    if let ContentLocation::Ledger { seq, .. } = file.location {
        kept = contents.content(seq, &file.sha256)?;
        if kept.is_none() {
            rebuilt.not_kept.push(path.clone());
            return Ok(());
        }
    }
    let (place, _) = root.make_place(path).map_err(|error| error.at(path))?;
    let lacking = || io::Error::from(io::ErrorKind::InvalidData);
    let made = if file.is_link {
        let target = kept.map_or_else(|| blobs.get(oid.ok_or_else(lacking)?), Ok);
        target.and_then(|target| {
            rustix::fs::symlinkat(&*target, &place.dir, &*place.name)?;
            Ok(Sha256::of(&target))
        })
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&place.dir, &*place.name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut out = File::from(fd);
        let copied = match kept {
            Some(bytes) => copy(&mut &*bytes, &mut out),
            None => oid.ok_or_else(lacking).and_then(|oid| {
                let mut sha256 = Sha256::ZERO;
                blobs.read(oid, &mut |mut from, _| {
                    sha256 = copy(&mut from, &mut out)?;
                    Ok(())
                })?;
                Ok(sha256)
            }),
        };
        rustix::fs::fchmod(&out, Mode::from_raw_mode(file.mode & 0o777))?;
        copied
    };
    let sha256 = match made {
        Ok(sha256) => sha256,
        // What the base says of a blob that it does not have; others of its files may be there.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            if !file.is_link {
                rustix::fs::unlinkat(&place.dir, &*place.name, AtFlags::empty())?;
            }
            rebuilt.lost.push(path.clone());
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    match (sha256 == file.sha256, file.is_link) {
        (false, _) => rebuilt.wrong.push(path.clone()),
        (true, true) => rebuilt.links += 1,
        (true, false) => rebuilt.files += 1,
    }
    Ok(())
}

/// Copies all of `from`, and gives its hash.
fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<Sha256> {
    let (mut sha256, mut piece) = (sha2::Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(Sha256::from_bytes(sha256.finalize().into())),
            Ok(count) => {
                sha256.update(&piece[..count]);
                to.write_all(&piece[..count])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
