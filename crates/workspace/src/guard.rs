//! Resolves a logical path to a handle under its tree's root. The only code that opens files of a tree by path.
//!
//! A run's tree has two layers: the files that the run has written, and under them its base, which runs share and nobody changes.
//! [`Root`] is the only code that knows of both. Within one layer the kernel resolves each path in one step (`openat2`) and
//! follows no link, so nothing can change between a check and its use. Reads may follow symbolic links that stay inside the tree:
//! they are resolved here, over both layers, since the kernel would find what they lead to in one layer alone. Mutations follow
//! none.

mod base_layer;
mod empty_dirs;
mod folder;
mod links;
mod open_file;
mod self_test;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use model::{LogicalPath, MAX_PATH_BYTES, PathRejected};
use parking_lot::{RwLock, RwLockReadGuard};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::base_files::{BaseEntry, BaseFiles, damaged};
use crate::byte_path::split;
use crate::dir::MAX_ATTEMPTS;

pub(crate) use crate::file_bytes::Blocking;
pub(crate) use base_layer::LowerLayer;
use base_layer::{BaseFolder, BaseLayer};
pub(crate) use empty_dirs::RemovedPaths;
pub(crate) use folder::TreeFolder;
use links::Links;
pub(crate) use open_file::OpenFile;
pub(crate) use self_test::self_test;

/// The flags of every open: the handle closes on `exec`, a FIFO does not block, a terminal does not take over.
const OPEN_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// The flags of a handle that is only looked at, and of a symbolic link itself.
const LOOK_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The permission bits of new folders.
pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// The root of a tree, under which every path is resolved.
pub(crate) struct Root {
    /// The folder of the files that the run has written; of a mount, of all files.
    own: OwnedFd,
    resolve: ResolveFlags,
    base: Option<BaseLayer>,
    /// Shared by whoever puts an entry into a folder; taken alone to remove an empty folder.
    folders: RwLock<()>,
}

/// A file or folder that was opened under a root.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The file, for reading. Of a folder in both layers, that of the run's own.
    pub(crate) file: OpenFile,
    /// Its metadata, taken from the file.
    pub(crate) stat: Stat,
    /// Its real path, if the path led through a symbolic link.
    pub(crate) real: Option<LogicalPath>,
    /// Of a folder in both layers, that of the base.
    below: Option<BaseFolder>,
}

/// What is at a path, without following a symbolic link.
#[derive(Debug)]
pub(crate) struct FoundEntry {
    /// It can only be looked at.
    file: OpenFile,
    /// Its metadata, taken from the file.
    pub(crate) stat: Stat,
}

/// A symbolic link that was opened under a root, and not followed.
#[derive(Debug)]
pub(crate) struct OpenedLink {
    /// The path that it leads to, as its text says.
    pub(crate) target: Vec<u8>,
    /// Its metadata, taken from the handle.
    pub(crate) stat: Stat,
}

/// The folder of an entry in the run's own layer, reached without a symbolic link, and the entry's name: what a mutation acts on.
///
/// While it exists, no other mutation removes the folder because it is empty. A thread must not have two of them.
#[derive(Debug)]
pub(crate) struct ParentHandle<'a> {
    /// The folder's handle; it can be synced.
    pub(crate) dir: OwnedFd,
    /// The entry's name in the folder. The entry need not exist.
    pub(crate) name: String,
    _folder_stays: RwLockReadGuard<'a, ()>,
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
    /// Something else is where a mutation would put or take an entry.
    Occupied,
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

impl Blocking {
    fn resolve(self) -> ResolveFlags {
        match self {
            Self::Allowed => ResolveFlags::empty(),
            Self::Forbidden => ResolveFlags::CACHED,
        }
    }
}

impl Root {
    /// Returns the root of a run's tree, whose own files are in `own`. File systems mounted inside it are refused: the service mounts none.
    pub(crate) fn of_run(own: OwnedFd, base: Option<Arc<dyn LowerLayer>>) -> Self {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        Self { own, resolve, base: base.map(BaseLayer::new), folders: RwLock::default() }
    }

    /// Returns the root of a read-only mount, which may span several file systems.
    pub(crate) fn of_mount(dir: OwnedFd) -> Self {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Self { own: dir, resolve, base: None, folders: RwLock::default() }
    }

    /// Opens `path` for reading. Symbolic links are followed as long as they stay in the tree.
    pub(crate) fn open(&self, path: &LogicalPath, blocking: Blocking) -> Result<Opened, GuardError> {
        match self.open_plain(path.as_str(), blocking) {
            // Perhaps the path leads through a link. Only then is it resolved name by name.
            Err(Errno::LOOP) => self.open_linked(path, Links::Followed, blocking),
            opened => Ok(opened?),
        }
    }

    /// Opens `path` for reading, as a mutation needs it: a path through a symbolic link is refused.
    pub(crate) fn open_unlinked(&self, path: &LogicalPath) -> Result<Opened, GuardError> {
        match self.open_plain(path.as_str(), Blocking::Allowed) {
            Err(Errno::LOOP) => self.open_linked(path, Links::Refused, Blocking::Allowed),
            opened => Ok(opened?),
        }
    }

    /// Opens the folder at the root.
    pub(crate) fn open_root(&self) -> Result<TreeFolder, GuardError> {
        Ok(self.open_plain(".", Blocking::Allowed)?.into_folder(&LogicalPath::root()))
    }

    /// Returns what is at `path`, without following a link; `None` if nothing is. A path through a link is refused.
    pub(crate) fn find(&self, path: &LogicalPath) -> Result<Option<FoundEntry>, GuardError> {
        let found = match self.find_plain(path.as_str(), Blocking::Allowed) {
            Err(Errno::LOOP) => self.find_in_folder(path),
            found => found.map_err(GuardError::from),
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(GuardError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the symbolic link at `path`; `None` if something else is there. A path through another link is refused.
    pub(crate) fn link(&self, path: &LogicalPath) -> Result<Option<OpenedLink>, GuardError> {
        self.find(path)?.ok_or(GuardError::Missing)?.link()
    }

    /// As [`link`](Self::link); `None` also if nothing can be found at `path`.
    pub(crate) fn find_link(&self, path: &LogicalPath) -> io::Result<Option<OpenedLink>> {
        self.link(path).or_else(|error| error.unless_disk().map(|()| None))
    }

    /// Opens what the run itself has at `path`, without following a link.
    pub(crate) fn open_own(&self, path: &LogicalPath) -> Result<OwnedFd, GuardError> {
        self.open_in_own(path.as_str().as_bytes(), OFlags::RDONLY | OPEN_FLAGS, Blocking::Allowed)
            .map_err(GuardError::in_mutation)
    }

    /// Opens the parent folder of `path` in the run's own layer for a mutation. The folder must exist there.
    pub(crate) fn open_parent(&self, path: &LogicalPath) -> Result<ParentHandle<'_>, GuardError> {
        let folder_stays = self.folders.read();
        let dir = self.open_own_parent(path)?;
        Ok(ParentHandle { dir, name: path.file_name().to_owned(), _folder_stays: folder_stays })
    }

    /// As [`open_parent`](Self::open_parent), and creates missing folders. Also returns whether it created any.
    pub(crate) fn create_parent(&self, path: &LogicalPath) -> Result<(ParentHandle<'_>, bool), GuardError> {
        let folder_stays = self.folders.read();
        let (dir, has_created) = match self.open_own_parent(path) {
            Err(GuardError::Missing) => self.create_own_parent(path).map_err(GuardError::in_mutation)?,
            opened => (opened?, false),
        };
        Ok((ParentHandle { dir, name: path.file_name().to_owned(), _folder_stays: folder_stays }, has_created))
    }

    fn open_own_parent(&self, path: &LogicalPath) -> Result<OwnedFd, GuardError> {
        let parent = path.parent().ok_or(GuardError::Special)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OPEN_FLAGS;
        self.open_in_own(parent.as_str().as_bytes(), flags, Blocking::Allowed).map_err(GuardError::in_mutation)
    }

    fn create_own_parent(&self, path: &LogicalPath) -> Result<(OwnedFd, bool), Errno> {
        let mut dir = self.enter(self.own.as_fd(), ".")?;
        let mut has_created = false;
        for name in path.parent().iter().flat_map(LogicalPath::components) {
            dir = match self.enter(dir.as_fd(), name) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&dir, name, FOLDER_MODE) {
                        Ok(()) => has_created = true,
                        Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    self.enter(dir.as_fd(), name)?
                }
                opened => opened?,
            };
        }
        Ok((dir, has_created))
    }

    /// Hides the base's file at `path`, which the run has removed. Returns its metadata if the base has one that was shown.
    pub(crate) fn hide(&self, path: &LogicalPath) -> io::Result<Option<Stat>> {
        self.base.as_ref().map_or(Ok(None), |base| base.hide(path.as_str()))
    }

    /// Shows the base's file at `path` again.
    pub(crate) fn show(&self, path: &LogicalPath) {
        if let Some(base) = &self.base {
            base.show(path.as_str());
        }
    }

    /// Returns every path of the base that the run has removed.
    pub(crate) fn hidden(&self) -> Vec<LogicalPath> {
        self.base.as_ref().map(BaseLayer::hidden).unwrap_or_default()
    }

    /// Opens `path` without following a link. `LOOP` if a link may be on it.
    fn open_plain(&self, path: &str, blocking: Blocking) -> Result<Opened, Errno> {
        let own = self.open_in_own(path.as_bytes(), OFlags::RDONLY | OPEN_FLAGS, blocking);
        Opened::of_layers(own, || self.find_in_base(path, blocking))
    }

    /// Finds what is at `path` without following a link, as [`open_plain`](Self::open_plain) does.
    fn find_plain(&self, path: &str, blocking: Blocking) -> Result<FoundEntry, Errno> {
        let own = self.open_in_own(path.as_bytes(), LOOK_FLAGS, blocking);
        FoundEntry::of_layers(own, || self.find_in_base(path, blocking))
    }

    fn find_in_base(&self, path: &str, blocking: Blocking) -> Result<(Arc<BaseFiles>, BaseEntry), Errno> {
        self.base.as_ref().ok_or(Errno::NOENT)?.find(path.as_bytes(), blocking)
    }

    /// As [`find`](Self::find), by the name in the opened folder.
    fn find_in_folder(&self, path: &LogicalPath) -> Result<FoundEntry, GuardError> {
        let parent = path.parent().ok_or(GuardError::Special)?;
        let opened = self.open_linked(&parent, Links::Refused, Blocking::Allowed)?;
        if !opened.file_type().is_dir() {
            return Err(GuardError::NotADirectory);
        }
        let name = CString::new(path.file_name()).map_err(|_| GuardError::Missing)?;
        Ok(self.look(&opened.into_folder(&parent), &name)?)
    }

    fn enter(&self, dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OPEN_FLAGS;
        open_under(dir, name, flags, self.resolve | ResolveFlags::NO_SYMLINKS)
    }

    fn open_in_own(&self, path: &[u8], flags: OFlags, blocking: Blocking) -> Result<OwnedFd, Errno> {
        let resolve = self.resolve | ResolveFlags::NO_SYMLINKS | blocking.resolve();
        match open_under(self.own.as_fd(), path, flags, resolve) {
            // The kernel takes one byte less than a path may have.
            Err(Errno::NAMETOOLONG) if path.len() >= MAX_PATH_BYTES => {
                let (folder, name) = split(path);
                let folder = open_under(self.own.as_fd(), folder, LOOK_FLAGS | OFlags::DIRECTORY, resolve)?;
                open_under(folder.as_fd(), name, flags, resolve)
            }
            opened => opened,
        }
    }
}

impl fmt::Debug for Root {
    // Without the physical path, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("fd", &self.own.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Opened {
    /// Returns what the run's own layer has or, if it has nothing, what the base has there; of a folder both. `LOOP` for a link.
    fn of_layers(
        own: Result<OwnedFd, Errno>,
        in_base: impl FnOnce() -> Result<(Arc<BaseFiles>, BaseEntry), Errno>,
    ) -> Result<Self, Errno> {
        if own.as_ref().err() == Some(&Errno::NOENT) {
            let (files, entry) = in_base()?;
            let is_link = files.file_type(entry) == FileType::Symlink;
            return if is_link { Err(Errno::LOOP) } else { Ok(Self::of_base((files, entry))) };
        }
        let own = Self::own(own?)?;
        let below = match own.file_type().is_dir().then(in_base) {
            None | Some(Err(Errno::NOENT | Errno::LOOP)) => None,
            Some(found) => BaseFolder::of(found?),
        };
        Ok(Self { below, ..own })
    }

    fn own(file: OwnedFd) -> Result<Self, Errno> {
        Ok(Self { stat: rustix::fs::fstat(&file)?, file: OpenFile::Own(file), real: None, below: None })
    }

    fn of_base((files, entry): (Arc<BaseFiles>, BaseEntry)) -> Self {
        Self { stat: files.stat(entry), file: OpenFile::Base(files, entry), real: None, below: None }
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

impl FoundEntry {
    /// As [`Opened::of_layers`], also for a link.
    fn of_layers(
        own: Result<OwnedFd, Errno>,
        in_base: impl FnOnce() -> Result<(Arc<BaseFiles>, BaseEntry), Errno>,
    ) -> Result<Self, Errno> {
        let file = match own {
            Err(Errno::NOENT) => in_base().map(|(files, entry)| OpenFile::Base(files, entry))?,
            own => OpenFile::Own(own?),
        };
        Ok(Self { stat: file.stat()?, file })
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Returns the symbolic link; `None` if it is something else.
    pub(crate) fn link(&self) -> Result<Option<OpenedLink>, GuardError> {
        if self.file_type() != FileType::Symlink {
            return Ok(None);
        }
        let target = match &self.file {
            // The empty name means the link itself, whatever has taken its place meanwhile.
            OpenFile::Own(link) => rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes(),
            OpenFile::Base(files, BaseEntry::File(link)) => files.bytes(*link).map_err(GuardError::Io)?,
            OpenFile::Base(..) => return Ok(None),
        };
        Ok(Some(OpenedLink { target, stat: self.stat }))
    }

    /// Returns the file or link of the base that it is; `None` if the run's own layer has it.
    pub(crate) fn in_base(&self) -> Option<(Arc<BaseFiles>, BaseEntry)> {
        match &self.file {
            OpenFile::Base(files, entry) => Some((Arc::clone(files), *entry)),
            OpenFile::Own(_) => None,
        }
    }

    /// Whether only the base has it.
    pub(crate) fn is_of_base(&self) -> bool {
        matches!(self.file, OpenFile::Base(..))
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
            // The last is a folder that something is mounted on.
            Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY | Errno::BUSY => Self::Occupied,
            Errno::UCLEAN => Self::Io(damaged("the base of the run is damaged")),
            other => Self::Io(other.into()),
        }
    }
}

impl From<io::Error> for GuardError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Opens `path` under `dir`. Retries errors that may come from a race and not from the path.
///
/// `EAGAIN` reports a rename elsewhere. `EXDEV` also reports a file that was moved out of the tree or exchanged after it
/// was found and before the kernel checked that it is still under `dir`, and `ESTALE` one that the file system lost in
/// between.
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
