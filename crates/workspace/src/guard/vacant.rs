//! Folders with nothing but folders in them. As in git, a folder is there as long as a file is in it: such a one may make
//! room for a file.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::LogicalPath;
use rustix::fs::{Access, AtFlags, Dir, FileType};
use rustix::io::Errno;

use super::{GuardError, Place, Root};

/// So many entries are looked at; a folder with more of them counts as one that holds something.
const MAX_ENTRIES: usize = 1000;
/// So many folders within one another are looked at. No path that the service makes has more names.
const MAX_DEPTH: usize = 64;

/// Whether the file at a path goes, in the same change.
pub(crate) type Goes<'a> = &'a dyn Fn(&LogicalPath) -> bool;

impl Root {
    /// Whether nothing is in the way of a file at `path` but what goes: a folder in which only folders are and files that go,
    /// or a file above `path` that goes. Follows no link.
    pub(crate) fn is_vacant(&self, path: &LogicalPath, goes: Goes<'_>) -> io::Result<bool> {
        let vacant = match self.place(path) {
            Ok(place) => self.is_place_vacant(&place, path, goes),
            Err(GuardError::NotADirectory) => self.goes_above(path, goes),
            Err(error) => Err(error),
        };
        vacant.or_else(|error| error.unless_disk().map(|()| false))
    }

    fn is_place_vacant(&self, place: &Place, path: &LogicalPath, goes: Goes<'_>) -> Result<bool, GuardError> {
        let Some(stat) = place.stat().map_err(GuardError::Io)? else { return Ok(true) };
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Ok(false);
        }
        let mut left = MAX_ENTRIES;
        Ok(self.holds_nothing((place.dir.as_fd(), &c_name(place)?), path, goes, MAX_DEPTH, &mut left)?)
    }

    /// Whether the file that `path` leads through is one that goes.
    fn goes_above(&self, path: &LogicalPath, goes: Goes<'_>) -> Result<bool, GuardError> {
        let mut above = path.parent();
        while let Some(folder) = above.filter(|folder| !folder.is_root()) {
            if goes(&folder)
                && let Ok(place) = self.place(&folder)
            {
                let stat = place.stat().map_err(GuardError::Io)?;
                return Ok(stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file()));
            }
            above = folder.parent();
        }
        Ok(false)
    }

    fn holds_nothing(
        &self,
        (dir, name): (BorrowedFd<'_>, &CStr),
        path: &LogicalPath,
        goes: Goes<'_>,
        depth: usize,
        left: &mut usize,
    ) -> Result<bool, Errno> {
        let folder = self.open_entry(dir, name)?;
        // What may not be written to could not be emptied, which must be known before anything is promised.
        rustix::fs::accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
        for (name, file_type) in entries(&folder)? {
            // A name that no path can have is nobody's to remove.
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else { return Ok(false) };
            let (Some(fewer), Some(depth)) = (left.checked_sub(1), depth.checked_sub(1)) else { return Ok(false) };
            *left = fewer;
            let is_nothing = match file_type {
                FileType::Directory => self.holds_nothing((folder.as_fd(), &name), &path, goes, depth, left)?,
                FileType::RegularFile => goes(&path),
                _ => false,
            };
            if !is_nothing {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the folder at `path` where nothing is in it; whether there is none any more. One that cannot be removed is
    /// nobody's error, and stays.
    pub(crate) fn remove_empty(&self, path: &LogicalPath) -> bool {
        let removed = match self.place(path) {
            Ok(place) => rustix::fs::unlinkat(&place.dir, &*place.name, AtFlags::REMOVEDIR),
            Err(GuardError::Missing) => Err(Errno::NOENT),
            Err(_) => return false,
        };
        if removed.is_ok() {
            failpoint::hit("apply.left");
        }
        matches!(removed, Ok(()) | Err(Errno::NOENT))
    }

    /// Removes the folder at `place` with the folders in it, by `rmdir` alone: whatever else comes to be in it stays, and is
    /// an error. Nothing there is none.
    pub(crate) fn remove_vacant(&self, place: &Place) -> Result<(), Errno> {
        self.remove_folders(place.dir.as_fd(), &c_name(place)?, MAX_DEPTH)
    }

    fn remove_folders(&self, dir: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
        let remove = || match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        };
        match remove() {
            Err(Errno::NOTEMPTY | Errno::EXIST) if depth > 0 => {}
            done => return done,
        }
        let folder = self.open_entry(dir, name)?;
        for (name, _) in entries(&folder)? {
            self.remove_folders(folder.as_fd(), &name, depth - 1)?;
        }
        remove()
    }
}

/// The first entries of `folder`, one more than are looked at.
fn entries(folder: &OwnedFd) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let file_type = match entry.file_type() {
            // Some file systems leave it to `stat`.
            FileType::Unknown => {
                FileType::from_raw_mode(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            known => known,
        };
        entries.push((name.to_owned(), file_type));
        if entries.len() > MAX_ENTRIES {
            break;
        }
    }
    Ok(entries)
}

fn c_name(place: &Place) -> Result<CString, Errno> {
    CString::new(place.name.as_str()).map_err(|_| Errno::INVAL)
}
