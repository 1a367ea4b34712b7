//! The disk usage of a run's tree, counted by a walk: for a run whose ledger does not know it.

use std::io;

use model::Disk;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::Workspace;
use crate::guard::{Root, TreeFolder};

impl Workspace {
    /// Counts every file and link of the tree, including hidden and ignored ones.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn disk_usage(&self) -> io::Result<Disk> {
        let mut disk = Disk::default();
        let root = &self.tree().root;
        match root.open_root() {
            Ok(top) => add_usage(root, &top, &mut disk)?,
            Err(error) => error.unless_disk()?,
        }
        Ok(disk)
    }
}

/// Adds the contents of `folder`. Keeps one handle open for each level and layer.
fn add_usage(root: &Root, folder: &TreeFolder, disk: &mut Disk) -> io::Result<()> {
    let mut names = Vec::new();
    root.each_entry(folder, &mut Vec::new(), |name, file_type| {
        names.push((name.to_owned(), file_type));
        Ok::<(), Errno>(())
    })?;
    for (name, file_type) in names {
        match file_type {
            FileType::Directory => match root.open_subfolder(folder, &name) {
                Ok(inner) => add_usage(root, &inner, disk)?,
                // It was removed or replaced meanwhile; or nobody may read it, so that no call of a run created files in it.
                Err(error) => error.unless_disk()?,
            },
            FileType::RegularFile => {
                let Some(stat) = root.stat_entry(folder, &name)? else { continue };
                disk.files += 1;
                disk.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            }
            FileType::Symlink => disk.files += 1,
            _ => {}
        }
    }
    Ok(())
}
