//! An open folder of a tree: what both layers have in it, as one list of entries.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use model::LogicalPath;
use rustix::fs::{AtFlags, FileType, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::base_layer::BaseFolder;
use super::{Blocking, FoundEntry, GuardError, LOOK_FLAGS, OPEN_FLAGS, OpenFile, Opened, Root, open_under};
use crate::base_files::manifest::FileIndex;
use crate::base_files::{BaseEntry, BaseFiles};
use crate::dir::each_entry;

/// An open folder of a tree.
#[derive(Debug)]
pub(crate) struct TreeFolder {
    /// The folder in the run's own layer, if it has one.
    own: Option<OwnedFd>,
    /// The folder in the base, if it is shown.
    base: Option<BaseFolder>,
    /// Its real path; empty for the root.
    path: String,
}

impl Opened {
    /// Returns the folder, whose real path is `path`.
    pub(crate) fn into_folder(self, path: &LogicalPath) -> TreeFolder {
        self.into_folder_at(if path.is_root() { String::new() } else { path.as_str().to_owned() })
    }

    pub(super) fn into_folder_at(self, path: String) -> TreeFolder {
        match self.file {
            OpenFile::Own(own) => TreeFolder { own: Some(own), base: self.below, path },
            OpenFile::Base(files, BaseEntry::Folder(index)) => {
                TreeFolder { own: None, base: Some(BaseFolder { files, index }), path }
            }
            // A file has no entries.
            OpenFile::Base(_, BaseEntry::File(_)) => TreeFolder { own: None, base: None, path },
        }
    }
}

impl TreeFolder {
    /// Returns what it was made of.
    pub(super) fn into_opened(self) -> Result<Opened, GuardError> {
        match (self.own, self.base) {
            (Some(own), below) => Ok(Opened { below, ..Opened::own(own)? }),
            (None, Some(BaseFolder { files, index })) => Ok(Opened::of_base((files, BaseEntry::Folder(index)))),
            (None, None) => Err(GuardError::Missing),
        }
    }
}

impl Root {
    /// Opens the entry `name` of `folder`. A symbolic link is refused.
    pub(crate) fn open_entry(&self, folder: &TreeFolder, name: &CStr) -> Result<Opened, GuardError> {
        self.open_in(folder, name, Blocking::Allowed)
    }

    pub(super) fn open_in(&self, folder: &TreeFolder, name: &CStr, blocking: Blocking) -> Result<Opened, GuardError> {
        let own = self.open_own_entry(folder, name, OFlags::RDONLY | OPEN_FLAGS, blocking);
        // A link leads elsewhere, and is not opened.
        Ok(Opened::of_layers(own, || self.base_entry(folder, name).ok_or(Errno::NOENT))?)
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

    /// Returns what is at the entry `name` of `folder`, without following a link.
    pub(crate) fn look(&self, folder: &TreeFolder, name: &CStr) -> Result<FoundEntry, Errno> {
        let own = self.open_own_entry(folder, name, LOOK_FLAGS, Blocking::Allowed);
        FoundEntry::of_layers(own, || self.base_entry(folder, name).ok_or(Errno::NOENT))
    }

    /// Returns the metadata of the entry `name` of `folder`, without following a link. `None` if there is none.
    pub(crate) fn stat_entry(&self, folder: &TreeFolder, name: &CStr) -> Result<Option<Stat>, Errno> {
        if let Some(own) = &folder.own {
            match rustix::fs::statat(own, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT | Errno::NAMETOOLONG) => {}
                stat => return stat.map(Some),
            }
        }
        Ok(self.base_entry(folder, name).map(|(files, entry)| files.stat(entry)))
    }

    /// Returns the target of the symbolic link `name` in `folder`; `None` if there is none any more.
    pub(crate) fn read_link(&self, folder: &TreeFolder, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        self.read_link_in(folder, name, Blocking::Allowed)
    }

    pub(super) fn read_link_in(
        &self,
        folder: &TreeFolder,
        name: &CStr,
        blocking: Blocking,
    ) -> io::Result<Option<Vec<u8>>> {
        let own = match &folder.own {
            Some(own) => rustix::fs::readlinkat(own, name, Vec::new()),
            None => Err(Errno::NOENT),
        };
        match own {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(Errno::NOENT | Errno::NAMETOOLONG) => match self.base_entry(folder, name) {
                Some((files, BaseEntry::File(file))) if files.is_link(file) => {
                    if blocking == Blocking::Forbidden && !files.is_checked(file) {
                        return Err(Errno::AGAIN.into());
                    }
                    files.bytes(file).map(Some)
                }
                _ => Ok(None),
            },
            Err(Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Calls `visit` for every entry of `folder` with its type, in no particular order.
    pub(crate) fn each_entry<E: From<Errno>>(
        &self,
        folder: &TreeFolder,
        buffer: &mut Vec<u8>,
        mut visit: impl FnMut(&CStr, FileType) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(below) = &folder.base else {
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
        let BaseFolder { files, index } = below;
        let manifest = &files.manifest;
        let in_base = manifest.files_in(*index).map(FileIndex).map(|file| (manifest.name(file), BaseEntry::File(file)));
        let folders = manifest.folders_in(*index).map(|(folder, name)| (name, BaseEntry::Folder(folder)));
        let mut c_name = Vec::new();
        for (name, entry) in in_base.chain(folders) {
            c_name.clear();
            c_name.extend_from_slice(name);
            c_name.push(0);
            // No name of a base has a NUL.
            let Ok(name) = CStr::from_bytes_with_nul(&c_name) else { continue };
            if !own_names.contains(name) && self.shows(folder, name, entry) {
                visit(name, files.file_type(entry))?;
            }
        }
        Ok(())
    }

    /// Returns the entry `name` of the base's part of `folder`, if it is shown.
    fn base_entry(&self, folder: &TreeFolder, name: &CStr) -> Option<(Arc<BaseFiles>, BaseEntry)> {
        let (below, base) = (folder.base.as_ref()?, self.base.as_ref()?);
        let entry = base.entry_in(below, &folder.path, name.to_bytes())?;
        Some((Arc::clone(&below.files), entry))
    }

    fn shows(&self, folder: &TreeFolder, name: &CStr, entry: BaseEntry) -> bool {
        self.base.as_ref().is_some_and(|base| base.shows_entry(&folder.path, name.to_bytes(), entry))
    }

    fn open_own_entry(
        &self,
        folder: &TreeFolder,
        name: &CStr,
        flags: OFlags,
        blocking: Blocking,
    ) -> Result<OwnedFd, Errno> {
        let own = folder.own.as_ref().ok_or(Errno::NOENT)?;
        open_under(own.as_fd(), name, flags, self.resolve | ResolveFlags::NO_SYMLINKS | blocking.resolve())
    }

    /// Returns the handle of the run's own part of `folder`, if there is one.
    pub(crate) fn own_part(folder: &TreeFolder) -> Option<&OwnedFd> {
        folder.own.as_ref()
    }
}
