//! An open folder of a tree: what both layers have in it, as one list of entries.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use model::LogicalPath;
use rustix::fs::{AtFlags, FileType, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{GuardError, LOOK_FLAGS, OPEN_FLAGS, Opened, Root, TreeLayer, open_under};
use crate::dir::each_entry;

/// An open folder of a tree.
#[derive(Debug)]
pub(crate) struct TreeFolder {
    /// The folder in the run's own layer, if it has one.
    own: Option<OwnedFd>,
    /// The folder in the base, if it is shown.
    base: Option<OwnedFd>,
    /// Its real path; empty for the root.
    path: String,
}

impl Opened {
    /// Returns the folder, whose real path is `path`.
    pub(crate) fn into_folder(self, path: &LogicalPath) -> TreeFolder {
        self.into_folder_at(if path.is_root() { String::new() } else { path.as_str().to_owned() })
    }

    fn into_folder_at(self, path: String) -> TreeFolder {
        match self.layer {
            TreeLayer::Own => TreeFolder { own: Some(self.file), base: self.below, path },
            TreeLayer::Base => TreeFolder { own: None, base: Some(self.file), path },
        }
    }
}

impl Root {
    /// Opens the entry `name` of `folder`. A symbolic link is refused.
    pub(crate) fn open_entry(&self, folder: &TreeFolder, name: &CStr) -> Result<Opened, GuardError> {
        let flags = OFlags::RDONLY | OPEN_FLAGS;
        let own = match &folder.own {
            Some(own) => open_under(own.as_fd(), name, flags, self.resolve | ResolveFlags::NO_SYMLINKS),
            None => Err(Errno::NOENT),
        };
        match own {
            Err(Errno::NOENT) => Ok(self.open_below(folder, name, flags)?),
            own => {
                let opened = Opened::new(own?, TreeLayer::Own, None)?;
                if !opened.file_type().is_dir() {
                    return Ok(opened);
                }
                let below = match self.open_below(folder, name, flags | OFlags::DIRECTORY) {
                    Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NAMETOOLONG) => None,
                    below => Some(below?.file),
                };
                Ok(Opened { below, ..opened })
            }
        }
    }

    /// Opens the folder `name` of `folder`.
    pub(crate) fn open_subfolder(&self, folder: &TreeFolder, name: &CStr) -> Result<TreeFolder, GuardError> {
        let opened = self.open_entry(folder, name)?;
        if !opened.file_type().is_dir() {
            return Err(GuardError::NotADirectory);
        }
        let name = name.to_string_lossy();
        let path = if folder.path.is_empty() { name.into_owned() } else { format!("{}/{name}", folder.path) };
        Ok(opened.into_folder_at(path))
    }

    /// Returns the metadata of the entry `name` of `folder`, without following a link. `None` if there is none.
    pub(crate) fn stat_entry(&self, folder: &TreeFolder, name: &CStr) -> Result<Option<Stat>, Errno> {
        if let Some(own) = &folder.own {
            match rustix::fs::statat(own, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT | Errno::NAMETOOLONG) => {}
                stat => return stat.map(Some),
            }
        }
        let (Some(below), Some(base)) = (&folder.base, &self.base) else { return Ok(None) };
        match rustix::fs::statat(below, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let is_shown = base.shows_entry(&folder.path, name.to_bytes(), FileType::from_raw_mode(stat.st_mode));
                Ok(is_shown.then_some(stat))
            }
            Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Returns the target of the symbolic link `name` in `folder`; `None` if there is none any more.
    pub(crate) fn read_link(&self, folder: &TreeFolder, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
        let own = match &folder.own {
            Some(own) => rustix::fs::readlinkat(own, name, Vec::new()),
            None => Err(Errno::NOENT),
        };
        let target = match own {
            Err(Errno::NOENT) => {
                let link = self.open_below(folder, name, LOOK_FLAGS);
                link.and_then(|link| rustix::fs::readlinkat(link.file, "", Vec::new()))
            }
            own => own,
        };
        match target {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Calls `visit` for every entry of `folder` with its type, in no particular order.
    pub(crate) fn each_entry<E: From<Errno>>(
        &self,
        folder: &TreeFolder,
        buffer: &mut Vec<u8>,
        mut visit: impl FnMut(&CStr, FileType) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some(below), Some(base)) = (&folder.base, &self.base) else {
            return match &folder.own {
                Some(own) => each_entry(own.as_fd(), buffer, visit),
                None => Ok(()),
            };
        };
        let mut own_names: HashSet<CString> = HashSet::new();
        if let Some(own) = &folder.own {
            each_entry(own.as_fd(), buffer, |name, file_type| {
                own_names.insert(name.to_owned());
                visit(name, file_type)
            })?;
        }
        each_entry(below.as_fd(), buffer, |name, file_type| {
            let is_shown = !own_names.contains(name) && base.shows_entry(&folder.path, name.to_bytes(), file_type);
            if is_shown { visit(name, file_type) } else { Ok(()) }
        })
    }

    /// Begins to read the entries of `folder` again.
    pub(crate) fn rewind(folder: &TreeFolder) -> io::Result<()> {
        for dir in folder.own.iter().chain(&folder.base) {
            rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
        }
        Ok(())
    }

    /// Opens the entry `name` of the base's part of `folder`, if it is shown.
    fn open_below(&self, folder: &TreeFolder, name: &CStr, flags: OFlags) -> Result<Opened, Errno> {
        let (Some(below), Some(base)) = (&folder.base, &self.base) else { return Err(Errno::NOENT) };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let opened = Opened::new(open_under(below.as_fd(), name, flags, resolve)?, TreeLayer::Base, None)?;
        let is_shown = base.shows_entry(&folder.path, name.to_bytes(), opened.file_type());
        if is_shown { Ok(opened) } else { Err(Errno::NOENT) }
    }

    /// Returns the handle of the run's own part of `folder`, if there is one.
    pub(crate) fn own_part(folder: &TreeFolder) -> Option<&OwnedFd> {
        folder.own.as_ref()
    }
}
