//! A logical path → a handle beneath its tree's root. The only `open` in the product.
//!
//! The kernel resolves (`openat2`), never this code: there is no moment between a check and its use. Reads may follow
//! symbolic links that stay inside, and learn where they led; mutations follow none.

mod self_test;
#[cfg(test)]
mod tests;
mod vacant;

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, io};

use model::{LogicalPath, PathRejected};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

pub(crate) use self_test::self_test;
pub(crate) use vacant::Goes;

/// How often a resolution that raced with a rename is tried again. Each try meets a writer that does nothing but replace the
/// file about three times in ten, and eight readers on two cores were seen to lose eight tries in a row.
const RACES: u32 = 64;
/// What every handle is opened with: it closes on `exec`, no FIFO blocks it, no terminal takes over.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// Permission bits of folders that are made.
pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// A tree's root folder, beneath which everything is resolved.
pub(crate) struct Root {
    dir: OwnedFd,
    resolve: ResolveFlags,
}

/// Something that was opened beneath a root.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Its handle, for reading. Whatever is known of it comes from here.
    pub(crate) file: OwnedFd,
    /// What it is.
    pub(crate) stat: Stat,
    /// Where it is, if a symbolic link was on the way.
    pub(crate) real: Option<LogicalPath>,
}

/// What tells one version of a file from another, as long as nobody writes within the clock's tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// Whether a call may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// It may.
    Allowed,
    /// It may not, and fails with `WouldBlock` where it would have to.
    Never,
}

/// A name in a folder that was reached without any symbolic link: what a mutation acts on.
#[derive(Debug)]
pub(crate) struct Place {
    /// The folder's handle; it can be synced.
    pub(crate) dir: OwnedFd,
    /// The name in it.
    pub(crate) name: String,
}

/// Why a path did not become a handle.
#[derive(Debug)]
pub(crate) enum GuardError {
    /// The path breaks a rule, whatever is there.
    Rejected(PathRejected),
    /// Nothing is there: no such name, a link that dangles or leads to itself.
    Missing,
    /// Something on the way, or what should be a folder, is none.
    NotADirectory,
    /// A socket or a device without a driver: nothing that can be opened.
    Special,
    /// Permission bits keep the service out.
    Unreadable,
    /// The disk failed.
    Io(io::Error),
}

/// Opens a folder by its place on the machine: for the roots themselves, and nothing else.
///
/// # Errors
///
/// Where it is no folder or cannot be opened.
pub(crate) fn open_ambient_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS, Mode::empty())?)
}

impl Root {
    /// The root of a run's tree. Whatever is mounted into it is refused: the service puts nothing there.
    pub(crate) fn of_run(dir: OwnedFd) -> Self {
        Self { dir, resolve: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV }
    }

    /// The root of a read-only mount, which an operator may have put together from several file systems.
    pub(crate) fn of_mount(dir: OwnedFd) -> Self {
        Self { dir, resolve: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS }
    }

    /// The root folder's own handle.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens what is at `path` for reading. Symbolic links are followed as long as they stay beneath the root.
    pub(crate) fn open(&self, path: &LogicalPath, wait: Blocking) -> Result<Opened, GuardError> {
        let extra = match wait {
            Blocking::Allowed => ResolveFlags::empty(),
            Blocking::Never => ResolveFlags::CACHED,
        };
        match self.resolve(path.as_str(), OFlags::RDONLY, extra | ResolveFlags::NO_SYMLINKS) {
            // A link is on the way. Where it leads has to be asked for, which plain paths need not pay for.
            Err(Errno::LOOP) => {}
            done => return Opened::new(done?, None),
        }
        let mut tries = 0..RACES;
        loop {
            let opened = Opened::new(self.resolve(path.as_str(), OFlags::RDONLY, extra)?, None)?;
            match self.name_of(&opened) {
                // The file may have been replaced after it was opened: its name is no answer to the path any more.
                Err(GuardError::Missing | GuardError::Rejected(PathRejected::LinkOut)) if tries.next().is_some() => {}
                real => {
                    let real = real?;
                    return Ok(Opened { real: (real != *path).then_some(real), ..opened });
                }
            }
        }
    }

    /// What is at `raw`, a clean path that nobody outside named, where no symbolic link is on the way; `None` where
    /// nothing is or a link is.
    pub(crate) fn probe(&self, raw: &str, wait: Blocking) -> io::Result<Option<Stat>> {
        let extra = match wait {
            Blocking::Allowed => ResolveFlags::NO_SYMLINKS,
            Blocking::Never => ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED,
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

    /// Opens the entry `name` of the folder `dir`, which was opened beneath this root; never a symbolic link.
    pub(crate) fn open_entry(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        open_beneath(dir, name, OFlags::RDONLY | ALWAYS, self.resolve | ResolveFlags::NO_SYMLINKS)
    }

    /// Opens what is at `path` for reading where no symbolic link is on the way, as a mutation needs it.
    pub(crate) fn open_unlinked(&self, path: &LogicalPath) -> Result<Opened, GuardError> {
        let file =
            self.resolve(path.as_str(), OFlags::RDONLY, ResolveFlags::NO_SYMLINKS).map_err(GuardError::in_mutation)?;
        Opened::new(file, None)
    }

    /// The place that a mutation of `path` acts on. The folder it lies in must be there.
    pub(crate) fn place(&self, path: &LogicalPath) -> Result<Place, GuardError> {
        let parent = path.parent().ok_or(GuardError::Special)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.resolve(parent.as_str(), flags, ResolveFlags::NO_SYMLINKS).map_err(GuardError::in_mutation)?;
        Ok(Place { dir, name: path.file_name().to_owned() })
    }

    /// As [`place`](Self::place), and makes the folders that are missing on the way. Also gives a handle of every folder
    /// that got a new entry, for the caller to sync.
    pub(crate) fn make_place(&self, path: &LogicalPath) -> Result<(Place, Vec<OwnedFd>), GuardError> {
        match self.place(path) {
            Err(GuardError::Missing) => {}
            done => return done.map(|place| (place, Vec::new())),
        }
        let parent = path.parent().ok_or(GuardError::Special)?;
        let mut dir = self.enter(self.dir(), ".").map_err(GuardError::in_mutation)?;
        let mut grown = Vec::new();
        for name in parent.components() {
            let next = match self.enter(dir.as_fd(), name) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&dir, name, FOLDER_MODE) {
                        Ok(()) => grown.push(dir.try_clone().map_err(GuardError::Io)?),
                        Err(Errno::EXIST) => {}
                        Err(errno) => return Err(GuardError::in_mutation(errno)),
                    }
                    self.enter(dir.as_fd(), name)
                }
                done => done,
            };
            dir = next.map_err(GuardError::in_mutation)?;
        }
        Ok((Place { dir, name: path.file_name().to_owned() }, grown))
    }

    fn enter(&self, dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        open_beneath(dir, name, flags, self.resolve | ResolveFlags::NO_SYMLINKS)
    }

    fn resolve(&self, path: &str, flags: OFlags, extra: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = if flags == OFlags::PATH { flags | OFlags::CLOEXEC } else { flags | ALWAYS };
        open_beneath(self.dir(), path, flags, self.resolve | extra)
    }

    /// Where `opened` is, as the kernel knows it now.
    fn name_of(&self, opened: &Opened) -> Result<LogicalPath, GuardError> {
        if opened.stat.st_nlink == 0 {
            return Err(GuardError::Missing);
        }
        // Asked for each time: the root itself may have been moved since.
        let root = kernel_name(self.dir())?;
        let name = kernel_name(opened.file.as_fd())?;
        let outside = GuardError::Rejected(PathRejected::LinkOut);
        let Some(beneath) = name.strip_prefix(root.strip_suffix(b"/").unwrap_or(&root)) else { return Err(outside) };
        let beneath = match beneath {
            [] => return Ok(LogicalPath::root()),
            [b'/', rest @ ..] => rest,
            _ => return Err(outside),
        };
        let text = std::str::from_utf8(beneath).map_err(|_| GuardError::Rejected(PathRejected::LinkToUnnameable))?;
        LogicalPath::parse(text).map_err(GuardError::Rejected)
    }
}

impl fmt::Debug for Root {
    // Not where it is: no physical path in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("fd", &self.dir.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Opened {
    fn new(file: OwnedFd, real: Option<LogicalPath>) -> Result<Self, GuardError> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(Self { file, stat, real })
    }

    /// What a handle from [`Root::open_entry`] is open on.
    pub(crate) fn of(file: OwnedFd) -> Result<Self, GuardError> {
        Self::new(file, None)
    }

    /// What it is.
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Whether it is a file that has further names.
    pub(crate) fn is_hard_linked(&self) -> bool {
        is_hard_linked(&self.stat)
    }

    /// Its length in bytes.
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

impl Stamp {
    /// The version of the file that `stat` is of.
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The same as a base keeps it, for files of one tree: one device.
    pub(crate) fn in_tree(&self) -> crate::base::manifest::Stamp {
        let nanos = |(seconds, nanos): (i64, u64)| seconds.wrapping_mul(1_000_000_000).wrapping_add_unsigned(nanos);
        crate::base::manifest::Stamp {
            size: u64::try_from(self.size).unwrap_or(0),
            inode: self.inode,
            modified_ns: nanos(self.modified),
            changed_ns: nanos(self.changed),
        }
    }

    /// Seconds since the epoch at which the file was last written or renamed.
    pub(crate) fn seconds(&self) -> i64 {
        self.modified.0.max(self.changed.0)
    }
}

impl Place {
    /// What is there now, without following a symbolic link; `None` where nothing is.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether a file has further names and may so be an alias. Folders have several links by nature.
pub(crate) fn is_hard_linked(stat: &Stat) -> bool {
    stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

impl GuardError {
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
            // The kernel's word for leaving the root; `..` and absolute paths never get this far, so it was a link.
            Errno::XDEV => Self::Rejected(PathRejected::LinkOut),
            Errno::NOENT | Errno::LOOP | Errno::NAMETOOLONG => Self::Missing,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::NXIO | Errno::NODEV => Self::Special,
            Errno::ACCESS | Errno::PERM => Self::Unreadable,
            other => Self::Io(other.into()),
        }
    }
}

/// Opens `path` under `dir`, again where the kernel's answer may be of a moment and not of the path.
///
/// `EAGAIN` is the answer to a rename elsewhere. `EXDEV` is the answer to a file that was found, and taken out of the tree
/// or replaced by an exchange before the kernel checked that it is still under `dir`; `ESTALE` that of a file system which
/// lost it in between. A link that does leave the tree has `EXDEV` every time.
fn open_beneath<P: Arg + Copy>(
    dir: BorrowedFd<'_>,
    path: P,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve);
    let cached = resolve.contains(ResolveFlags::CACHED);
    for _ in 0..RACES {
        match open() {
            // Of a look that may not wait, the answer is that it would have to.
            Err(Errno::AGAIN) if cached => break,
            Err(Errno::AGAIN | Errno::XDEV | Errno::STALE) => {}
            done => return done,
        }
    }
    open()
}

/// The kernel's own name for what `fd` is open on.
fn kernel_name(fd: BorrowedFd<'_>) -> Result<Vec<u8>, GuardError> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let name = rustix::fs::readlinkat(CWD, OsStr::from_bytes(link.as_bytes()), Vec::new())?;
    Ok(name.into_bytes())
}
