//! Resolves a logical path to a handle under its tree's root. The only code that opens files of a tree by path.
//!
//! The kernel resolves each path in one step (`openat2`), so nothing can change between a check and its use. Reads may
//! follow symbolic links that stay inside the root, and learn the real path; mutations follow none.

mod empty_dirs;
mod self_test;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, io};

use model::{LogicalPath, PathRejected};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::dir::MAX_ATTEMPTS;

pub(crate) use empty_dirs::IsRemoved;
pub(crate) use self_test::self_test;

/// The flags of every open: the handle closes on `exec`, a FIFO does not block, a terminal does not take over.
const OPEN_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// The permission bits of new folders.
pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// The root folder of a tree, under which every path is resolved.
pub(crate) struct Root {
    dir: OwnedFd,
    resolve: ResolveFlags,
}

/// A file or folder that was opened under a root.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Its handle, for reading.
    pub(crate) file: OwnedFd,
    /// Its metadata, taken from the handle.
    pub(crate) stat: Stat,
    /// Its real path, if the path led through a symbolic link.
    pub(crate) real: Option<LogicalPath>,
}

/// A symbolic link that was opened under a root, and not followed.
#[derive(Debug)]
pub(crate) struct OpenedLink {
    /// The path that it leads to, as its text says.
    pub(crate) target: Vec<u8>,
    /// Its metadata, taken from the handle.
    pub(crate) stat: Stat,
}

/// Whether a call may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// It may wait.
    Allowed,
    /// It must not: it fails with `WouldBlock` instead.
    Forbidden,
}

/// The folder of an entry, reached without a symbolic link, and the entry's name: what a mutation acts on.
#[derive(Debug)]
pub(crate) struct ParentHandle {
    /// The folder's handle; it can be synced.
    pub(crate) dir: OwnedFd,
    /// The entry's name in the folder. The entry need not exist.
    pub(crate) name: String,
}

/// Why a path could not be opened.
#[derive(Debug)]
pub(crate) enum GuardError {
    /// The path violates a rule, whether or not it exists.
    Rejected(PathRejected),
    /// Nothing exists at the path, or a link on it is dangling or circular.
    Missing,
    /// A component of the path that should be a folder is not one.
    NotADirectory,
    /// A socket, or a device without a driver, which cannot be opened.
    Special,
    /// The permission bits do not let the service read it.
    Unreadable,
    /// The disk failed.
    Io(io::Error),
}

/// Opens a folder by its physical path. Used for the roots only.
///
/// # Errors
///
/// If it is not a folder or cannot be opened.
pub(crate) fn open_ambient_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OPEN_FLAGS, Mode::empty())?)
}

impl Root {
    /// Returns the root of a run's tree. File systems mounted inside it are refused: the service mounts none.
    pub(crate) fn of_run(dir: OwnedFd) -> Self {
        Self { dir, resolve: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV }
    }

    /// Returns the root of a read-only mount, which may span several file systems.
    pub(crate) fn of_mount(dir: OwnedFd) -> Self {
        Self { dir, resolve: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS }
    }

    /// Returns the root folder's own handle.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens `path` for reading. Symbolic links are followed as long as they stay under the root.
    pub(crate) fn open(&self, path: &LogicalPath, blocking: Blocking) -> Result<Opened, GuardError> {
        let extra = match blocking {
            Blocking::Allowed => ResolveFlags::empty(),
            Blocking::Forbidden => ResolveFlags::CACHED,
        };
        match self.resolve(path.as_str(), OFlags::RDONLY, extra | ResolveFlags::NO_SYMLINKS) {
            // The path leads through a link. Only then is the real path looked up, so that plain paths do not pay for it.
            Err(Errno::LOOP) => {}
            done => return Opened::new(done?, None),
        }
        let mut attempts = 0..MAX_ATTEMPTS;
        loop {
            let opened = Opened::new(self.resolve(path.as_str(), OFlags::RDONLY, extra)?, None)?;
            match self.name_of(&opened) {
                // The file may have been replaced after it was opened, so that its name says nothing about the path.
                Err(GuardError::Missing | GuardError::Rejected(PathRejected::LinkOut)) if attempts.next().is_some() => {
                }
                real => {
                    let real = real?;
                    return Ok(Opened { real: (real != *path).then_some(real), ..opened });
                }
            }
        }
    }

    /// Returns the metadata at `raw`, a clean path from inside the service. `None` if nothing exists there or the path leads
    /// through a symbolic link.
    pub(crate) fn probe(&self, raw: &str, blocking: Blocking) -> io::Result<Option<Stat>> {
        let extra = match blocking {
            Blocking::Allowed => ResolveFlags::NO_SYMLINKS,
            Blocking::Forbidden => ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED,
        };
        match self.resolve(raw, OFlags::PATH, extra) {
            Ok(file) => Ok(Some(rustix::fs::fstat(&file)?)),
            Err(Errno::AGAIN) => Err(Errno::AGAIN.into()),
            Err(errno) => match GuardError::from(errno) {
                GuardError::Io(error) => Err(error),
                _ => Ok(None),
            },
        }
    }

    /// Opens the entry `name` of `dir`, a folder opened under this root. A symbolic link is refused.
    pub(crate) fn open_entry(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        open_under(dir, name, OFlags::RDONLY | OPEN_FLAGS, self.resolve | ResolveFlags::NO_SYMLINKS)
    }

    /// Opens `path` for reading, as a mutation needs it: a path through a symbolic link is refused.
    pub(crate) fn open_unlinked(&self, path: &LogicalPath) -> Result<Opened, GuardError> {
        let file =
            self.resolve(path.as_str(), OFlags::RDONLY, ResolveFlags::NO_SYMLINKS).map_err(GuardError::in_mutation)?;
        Opened::new(file, None)
    }

    /// Returns the symbolic link at `path`; `None` if something else is there. A path through another link is refused.
    pub(crate) fn link(&self, path: &LogicalPath) -> Result<Option<OpenedLink>, GuardError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let link = self.resolve(path.as_str(), flags, ResolveFlags::NO_SYMLINKS).map_err(GuardError::in_mutation)?;
        let stat = rustix::fs::fstat(&link)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(None);
        }
        // The empty name means the link itself, whatever has taken its place meanwhile.
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?.into_bytes();
        Ok(Some(OpenedLink { target, stat }))
    }

    /// As [`link`](Self::link); `None` also if nothing can be found at `path`.
    pub(crate) fn find_link(&self, path: &LogicalPath) -> io::Result<Option<OpenedLink>> {
        self.link(path).or_else(|error| error.unless_disk().map(|()| None))
    }

    /// Opens the parent folder of `path` for a mutation. The folder must exist.
    pub(crate) fn open_parent(&self, path: &LogicalPath) -> Result<ParentHandle, GuardError> {
        let parent = path.parent().ok_or(GuardError::Special)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.resolve(parent.as_str(), flags, ResolveFlags::NO_SYMLINKS).map_err(GuardError::in_mutation)?;
        Ok(ParentHandle { dir, name: path.file_name().to_owned() })
    }

    /// As [`open_parent`](Self::open_parent), and creates missing folders. Also returns a handle of every folder that got a new
    /// entry, for the caller to sync.
    pub(crate) fn create_parent(&self, path: &LogicalPath) -> Result<(ParentHandle, Vec<OwnedFd>), GuardError> {
        match self.open_parent(path) {
            Err(GuardError::Missing) => {}
            done => return done.map(|parent| (parent, Vec::new())),
        }
        let parent = path.parent().ok_or(GuardError::Special)?;
        let mut dir = self.enter(self.dir(), ".").map_err(GuardError::in_mutation)?;
        let mut changed = Vec::new();
        for name in parent.components() {
            let next = match self.enter(dir.as_fd(), name) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&dir, name, FOLDER_MODE) {
                        Ok(()) => changed.push(dir.try_clone().map_err(GuardError::Io)?),
                        Err(Errno::EXIST) => {}
                        Err(errno) => return Err(GuardError::in_mutation(errno)),
                    }
                    self.enter(dir.as_fd(), name)
                }
                done => done,
            };
            dir = next.map_err(GuardError::in_mutation)?;
        }
        Ok((ParentHandle { dir, name: path.file_name().to_owned() }, changed))
    }

    fn enter(&self, dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OPEN_FLAGS;
        open_under(dir, name, flags, self.resolve | ResolveFlags::NO_SYMLINKS)
    }

    fn resolve(&self, path: &str, flags: OFlags, extra: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | if flags.contains(OFlags::PATH) { OFlags::CLOEXEC } else { OPEN_FLAGS };
        open_under(self.dir(), path, flags, self.resolve | extra)
    }

    /// Returns the path at which the kernel knows `opened` now.
    fn name_of(&self, opened: &Opened) -> Result<LogicalPath, GuardError> {
        if opened.stat.st_nlink == 0 {
            return Err(GuardError::Missing);
        }
        // Read each time: the root itself may have been moved since.
        let root = kernel_name(self.dir())?;
        let name = kernel_name(opened.file.as_fd())?;
        let outside = GuardError::Rejected(PathRejected::LinkOut);
        let Some(inside) = name.strip_prefix(root.strip_suffix(b"/").unwrap_or(&root)) else { return Err(outside) };
        let inside = match inside {
            [] => return Ok(LogicalPath::root()),
            [b'/', rest @ ..] => rest,
            _ => return Err(outside),
        };
        let text = std::str::from_utf8(inside).map_err(|_| GuardError::Rejected(PathRejected::LinkToUnnameable))?;
        LogicalPath::parse(text).map_err(GuardError::Rejected)
    }
}

impl fmt::Debug for Root {
    // Without the physical path, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("fd", &self.dir.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Opened {
    fn new(file: OwnedFd, real: Option<LogicalPath>) -> Result<Self, GuardError> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(Self { file, stat, real })
    }

    /// Wraps a handle from [`Root::open_entry`].
    pub(crate) fn of(file: OwnedFd) -> Result<Self, GuardError> {
        Self::new(file, None)
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Whether it is a file with several names.
    pub(crate) fn is_hard_linked(&self) -> bool {
        is_hard_linked(&self.stat)
    }

    /// Returns its length in bytes.
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

impl ParentHandle {
    /// Returns the metadata of the entry, without following a symbolic link. `None` if the entry does not exist.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether `stat` describes a file with several names, which may be an alias. Folders have several links by nature.
pub(crate) fn is_hard_linked(stat: &Stat) -> bool {
    stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

impl GuardError {
    /// Whether a file or a symbolic link is where a mutation needs a folder.
    pub(crate) fn is_no_folder(&self) -> bool {
        matches!(self, Self::NotADirectory | Self::Rejected(PathRejected::LinkInMutation))
    }

    fn in_mutation(errno: Errno) -> Self {
        match errno {
            Errno::LOOP => Self::Rejected(PathRejected::LinkInMutation),
            other => other.into(),
        }
    }
}

impl From<Errno> for GuardError {
    fn from(errno: Errno) -> Self {
        match errno {
            // The path leaves the root. `..` and absolute paths are rejected earlier, so it was a link.
            Errno::XDEV => Self::Rejected(PathRejected::LinkOut),
            Errno::NOENT | Errno::LOOP | Errno::NAMETOOLONG => Self::Missing,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::NXIO | Errno::NODEV => Self::Special,
            Errno::ACCESS | Errno::PERM => Self::Unreadable,
            other => Self::Io(other.into()),
        }
    }
}

/// Opens `path` under `dir`. Retries errors that may come from a race and not from the path.
///
/// `EAGAIN` reports a rename elsewhere. `EXDEV` also reports a file that was moved out of the tree or exchanged after it
/// was found and before the kernel checked that it is still under `dir`, and `ESTALE` one that the file system lost in
/// between. A link that does leave the tree fails with `EXDEV` every time.
fn open_under<P: Arg + Copy>(
    dir: BorrowedFd<'_>,
    path: P,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let cached = resolve.contains(ResolveFlags::CACHED);
    let mut failure = Errno::AGAIN;
    for _ in 0..MAX_ATTEMPTS {
        match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
            // A rename elsewhere says nothing about the path. For a call that must not block, it means that it would have to.
            Err(Errno::AGAIN) if !cached => {}
            Err(errno @ (Errno::XDEV | Errno::STALE)) => failure = errno,
            done => return done,
        }
    }
    Err(failure)
}

/// Returns the kernel's own path of `fd`.
fn kernel_name(fd: BorrowedFd<'_>) -> Result<Vec<u8>, GuardError> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let name = rustix::fs::readlinkat(CWD, OsStr::from_bytes(link.as_bytes()), Vec::new())?;
    Ok(name.into_bytes())
}
