//! Files as they will be, in a tree of their own: what a read sees behind changes that are planned and not carried out.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use model::LogicalPath;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::guard::{Blocking, GuardError, Root};
use crate::import::{fresh_name, remove_all_in};
use crate::{Tree, Workspace};

/// A tree of planned files in a run's `tmp/`; it goes when this is dropped.
#[derive(Debug)]
pub struct Preview {
    tree: Tree,
    dir: OwnedFd,
    tmp: Arc<OwnedFd>,
    name: String,
}

impl Workspace {
    /// Writes `files`, each with its bytes and permission bits, to a tree of their own beside the run's.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn preview<'a>(
        &self,
        files: impl IntoIterator<Item = (&'a LogicalPath, &'a [u8], u32)>,
    ) -> io::Result<Preview> {
        let name = fresh_name("preview-");
        rustix::fs::mkdirat(self.tmp(), &*name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(self.tmp(), &*name, flags, Mode::empty())?;
        let root = Arc::new(Root::of_run(dir.try_clone()?));
        let preview = Preview { tree: Tree { root, ignored: None }, dir, tmp: Arc::clone(self.tmp()), name };
        for (path, bytes, mode) in files {
            preview.put(path, bytes, mode)?;
        }
        Ok(preview)
    }
}

impl Tree {
    /// Where `path` leads, if a symbolic link is on the way.
    pub fn real_path(&self, path: &LogicalPath) -> Option<LogicalPath> {
        self.root.open(path, Blocking::Allowed).ok()?.real
    }
}

impl Preview {
    /// The files, to be read.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    fn put(&self, path: &LogicalPath, bytes: &[u8], mode: u32) -> io::Result<()> {
        let (place, _) = self.tree.root.make_place(path).map_err(|error| match error {
            GuardError::Io(error) => error,
            // Nobody else knows of the folder.
            _ => io::Error::other("a planned file has no place"),
        })?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&place.dir, &*place.name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(bytes)?;
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?)
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        let emptied = remove_all_in(&self.dir, &[]);
        let removed = emptied.and_then(|()| Ok(rustix::fs::unlinkat(&self.tmp, &*self.name, AtFlags::REMOVEDIR)?));
        if let Err(error) = removed {
            // The next start empties the folder that it lies in.
            tracing::warn!(%error, "a preview could not be removed");
        }
    }
}
