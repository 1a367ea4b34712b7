//! A folder of this machine as a source.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use model::Refusal;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::sink::{ImportWriter, Tally, WriteError, is_git_internal};
use super::{ImportError, ImportLimits, own_folder};

/// One folder on the way down: what is yet to be looked at, the last first.
struct Level {
    fd: OwnedFd,
    names: Vec<(Vec<u8>, FileType)>,
    /// How long the path is without it.
    path_len: usize,
}

/// Which folder it is, whatever its name: its device and its number there.
pub(super) type FolderId = (u64, u64);

/// Files that have several names on the disk, by which they are: each with its place in the sink's list of such names.
type Linked = HashMap<FolderId, usize>;

/// Copies the tree below `source`: no link is followed, and every file is opened by the handle of its folder. `own`, the
/// service's own folders, are left out wherever they lie, mounted at a second place too: what they hold is nobody's to see.
pub(super) fn copy(
    source: &Path,
    own: &[FolderId],
    limits: ImportLimits,
    sink: &mut ImportWriter<'_>,
) -> Result<(), ImportError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(source, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::ACCESS => ImportError::Refused(Refusal::invalid(
            "the source is no folder that can be read",
            "Name a folder under an import root.",
        )),
        errno => ImportError::Io(errno.into()),
    })?;
    if own.contains(&identity(&root)?) {
        return Err(own_folder().into());
    }
    let mut path = Vec::new();
    let (mut listed, mut linked) = (Tally::new(limits), Linked::new());
    let mut levels = vec![Level { names: names(&root, &mut listed)?, fd: root, path_len: 0 }];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_len);
        let Some((name, file_type)) = level.names.pop() else {
            levels.pop();
            continue;
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        if let Some(fd) = entry(level, &name, file_type, &path, sink, &mut linked)? {
            if own.contains(&identity(&fd)?) {
                sink.leave_out(&path, "the service's own folder");
                continue;
            }
            let names = names(&fd, &mut listed)?;
            levels.push(Level { fd, names, path_len: path.len() });
        }
    }
    Ok(())
}

/// Which folder it is.
pub(super) fn identity(fd: &OwnedFd) -> io::Result<FolderId> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Puts one entry into the sink. A folder is answered with its handle, to go on there.
fn entry(
    level: &Level,
    name: &[u8],
    file_type: FileType,
    path: &[u8],
    sink: &mut ImportWriter<'_>,
    linked: &mut Linked,
) -> Result<Option<OwnedFd>, ImportError> {
    if is_git_internal(name) {
        sink.leave_out(path, "git's own");
        return Ok(None);
    }
    match place(level, name, file_type, path, sink, linked) {
        Ok(folder) => Ok(folder),
        Err(WriteError::Misfit(reason)) => {
            sink.leave_out(path, reason);
            Ok(None)
        }
        Err(WriteError::Source(error)) => Err(ImportError::Io(error)),
        Err(WriteError::Over(error)) => Err(error),
    }
}

fn place(
    level: &Level,
    name: &[u8],
    file_type: FileType,
    path: &[u8],
    sink: &mut ImportWriter<'_>,
    linked: &mut Linked,
) -> Result<Option<OwnedFd>, WriteError> {
    match file_type {
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = open(level, name, flags)?;
            sink.folder(path)?;
            Ok(Some(fd))
        }
        FileType::RegularFile => {
            // Not blocking, since what was a file a moment ago may be a pipe by now.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let fd = open(level, name, flags)?;
            let stat = rustix::fs::fstat(&fd)?;
            if !FileType::from_raw_mode(stat.st_mode).is_file() {
                return Err(WriteError::Misfit("no file, folder or symbolic link"));
            }
            let executable = stat.st_mode & 0o111 != 0;
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let written = sink.file(path, executable, size, None, &mut File::from(fd));
            if stat.st_nlink > 1 {
                let at = *linked.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| sink.new_linked());
                sink.note_linked(at, path, written.is_ok());
            }
            written.map(|()| None)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&level.fd, name, Vec::new())?;
            sink.link(path, target.as_bytes())?;
            Ok(None)
        }
        _ => Err(WriteError::Misfit("no file, folder or symbolic link")),
    }
}

fn open(level: &Level, name: &[u8], flags: OFlags) -> Result<OwnedFd, WriteError> {
    rustix::fs::openat(&level.fd, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::ACCESS | Errno::PERM => WriteError::Misfit("it may not be read"),
        Errno::NOENT => WriteError::Misfit("it went away during the import"),
        errno => errno.into(),
    })
}

/// What lies in a folder, in reverse order, so that the last is the first to be taken.
fn names(fd: &OwnedFd, listed: &mut Tally) -> Result<Vec<(Vec<u8>, FileType)>, ImportError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(fd.as_fd()).map_err(std::io::Error::from)? {
        let entry = entry.map_err(std::io::Error::from)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        listed.add(name)?;
        let file_type = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(fd, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => FileType::Unknown,
            },
            known => known,
        };
        names.push((name.to_owned(), file_type));
    }
    names.sort_unstable_by(|a, b| b.0.cmp(&a.0));
    Ok(names)
}
