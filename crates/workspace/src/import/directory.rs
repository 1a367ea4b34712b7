//! A folder of this machine as a source.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use model::Refusal;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::hard_links::FileId;
use super::quota::EntryQuota;
use super::writer::{ImportWriter, WriteError, is_git_internal};
use super::{ImportLimits, own_folder};
use crate::WorkspaceError;
use crate::dir::{each_entry, open_dir, open_file};

/// A folder on the path of the walk, with the entries that remain, the next one last.
struct WalkedFolder {
    fd: OwnedFd,
    names: Vec<(CString, FileType)>,
    /// The length of the path without the entry's name.
    path_len: usize,
}

/// Copies the tree under `source`. No link is followed, and every file is opened through its folder's handle. `own`, the
/// service's own folders, are skipped wherever they are, including at a second mount point.
pub(super) fn copy(
    source: &Path,
    own: &[FileId],
    limits: ImportLimits,
    writer: &mut ImportWriter<'_>,
) -> Result<(), WorkspaceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(source, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::ACCESS => WorkspaceError::Refused(Refusal::invalid(
            "the source is not a readable folder",
            "Use a folder under an import root.",
        )),
        errno => WorkspaceError::Io(errno.into()),
    })?;
    if own.contains(&identity(&root)?) {
        return Err(own_folder().into());
    }
    let mut path = Vec::new();
    let mut listed = EntryQuota::new(limits);
    let mut levels = vec![WalkedFolder { names: names(&root, &mut listed)?, fd: root, path_len: 0 }];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_len);
        let Some((name, file_type)) = level.names.pop() else {
            levels.pop();
            continue;
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        let written = write(&level.fd, &name, file_type, &path, writer);
        if let Some(Some(fd)) = writer.skip_unsupported(&path, written)? {
            if own.contains(&identity(&fd)?) {
                writer.skip(&path, "the service's own folder");
                continue;
            }
            let names = names(&fd, &mut listed)?;
            levels.push(WalkedFolder { fd, names, path_len: path.len() });
        }
    }
    Ok(())
}

pub(super) fn identity(fd: impl AsFd) -> io::Result<FileId> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Writes one entry. Returns the handle of a folder, whose entries come next.
fn write(
    folder: &OwnedFd,
    name: &CStr,
    file_type: FileType,
    path: &[u8],
    writer: &mut ImportWriter<'_>,
) -> Result<Option<OwnedFd>, WriteError> {
    if is_git_internal(name.to_bytes()) {
        return Err(WriteError::Unsupported("a Git-internal path"));
    }
    match file_type {
        FileType::Directory => {
            let fd = open_dir(folder, name).map_err(open_error)?;
            writer.folder(path)?;
            Ok(Some(fd))
        }
        FileType::RegularFile => {
            let mut file = open_file(folder, name).map_err(open_error)?;
            let stat = rustix::fs::fstat(&file).map_err(open_error)?;
            if !FileType::from_raw_mode(stat.st_mode).is_file() {
                return Err(WriteError::Unsupported("not a file, folder or symbolic link"));
            }
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let written = writer.file(path, stat.st_mode & 0o7777, size, None, &mut file);
            if stat.st_nlink > 1 {
                writer.hard_links.add_name((stat.st_dev, stat.st_ino), path, written.is_ok());
            }
            written.map(|()| None)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(folder, name, Vec::new()).map_err(open_error)?;
            writer.link(path, target.as_bytes())?;
            Ok(None)
        }
        _ => Err(WriteError::Unsupported("not a file, folder or symbolic link")),
    }
}

fn open_error(errno: Errno) -> WriteError {
    match errno {
        Errno::ACCESS | Errno::PERM => WriteError::Unsupported("permission denied"),
        Errno::NOENT => WriteError::Unsupported("it was removed during the import"),
        Errno::NOTDIR | Errno::LOOP => WriteError::Unsupported("it was replaced during the import"),
        errno => errno.into(),
    }
}

/// Returns the entries of a folder in reverse order, since the last is taken first.
fn names(fd: &OwnedFd, listed: &mut EntryQuota) -> Result<Vec<(CString, FileType)>, WorkspaceError> {
    let mut names = Vec::new();
    each_entry(fd.as_fd(), &mut Vec::new(), |name, file_type| {
        listed.count(name.to_bytes())?;
        names.push((name.to_owned(), file_type));
        Ok::<_, WorkspaceError>(())
    })?;
    names.sort_unstable_by(|a, b| b.0.cmp(&a.0));
    Ok(names)
}
