//! A temporary tree of planned files, for reads that follow changes which are planned but not applied.

use std::io::{self, Write as _};
use std::sync::Arc;

use model::{LogicalPath, is_link_mode};
use rustix::fs::Mode;

use crate::dir::create_file;
use crate::guard::{Blocking, Root};
use crate::temp_entry::TempEntry;
use crate::{Tree, Workspace};

/// A tree of planned files in a run's `tmp/`. Dropping it removes it.
#[derive(Debug)]
pub struct Preview {
    tree: Tree,
    _folder: TempEntry,
}

impl Workspace {
    /// Writes `files`, each with its bytes and its mode, to a new tree in `tmp/`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn preview<'a>(
        &self,
        files: impl IntoIterator<Item = (&'a LogicalPath, &'a [u8], u32)>,
    ) -> io::Result<Preview> {
        let folder = TempEntry::create_folder(self.tmp(), "preview-", Mode::RWXU)?;
        let root = Arc::new(Root::of_run(folder.open_folder()?, None));
        let preview = Preview { tree: Tree { root, ignored: None }, _folder: folder };
        for (path, bytes, mode) in files {
            preview.write(path, bytes, mode)?;
        }
        Ok(preview)
    }
}

impl Tree {
    /// Returns the real path of `path`, if it leads through a symbolic link.
    pub fn real_path(&self, path: &LogicalPath) -> Option<LogicalPath> {
        self.root.open(path, Blocking::Allowed).ok()?.real
    }
}

impl Preview {
    /// Returns the tree of the files.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    fn write(&self, path: &LogicalPath, bytes: &[u8], mode: u32) -> io::Result<()> {
        // Nobody else knows the folder.
        let fault = || io::Error::other("a planned file cannot be created in the preview");
        let parent = self.tree.root.create_parent(path);
        let (parent, _) = parent.map_err(|error| error.unless_disk().err().unwrap_or_else(fault))?;
        if is_link_mode(mode) {
            return Ok(rustix::fs::symlinkat(bytes, &parent.dir, &*parent.name)?);
        }
        let mut file = create_file(&parent.dir, &*parent.name)?;
        file.write_all(bytes)?;
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?)
    }
}
