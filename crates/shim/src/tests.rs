//! Real folders, with everything that a command may leave in them.

mod commands;
mod layers;
mod remotes;
mod scans;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use crate::{ChangeKind, CheckedOut, CommandFolder as _, LocalFolder, ReadLimits, ReadReport, ScanReport, ShimError};

pub(super) const LIMITS: ReadLimits = ReadLimits { max_file_bytes: 1 << 20, max_total_bytes: 8 << 20 };

/// A checkout in a folder of its own.
pub(super) struct Checkout {
    pub(super) dir: TempDir,
    pub(super) folder: LocalFolder,
    seq: u64,
}

/// What a layer has of a path.
pub(super) enum Put<'a> {
    File(&'a str),
    Program(&'a str),
    Link(&'a str),
    Folder,
    Special,
}

pub(super) fn layer(entries: &[(&str, Put<'_>)]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (path, put) in entries {
        let mut header = Header::new_gnu();
        let (kind, mode, content) = match put {
            Put::File(content) => (EntryType::Regular, 0o644, *content),
            Put::Program(content) => (EntryType::Regular, 0o755, *content),
            Put::Link(_) => (EntryType::Symlink, 0o777, ""),
            Put::Folder => (EntryType::Directory, 0o755, ""),
            Put::Special => (EntryType::Fifo, 0o644, ""),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_mtime(1_700_000_000);
        // Written as it is: a hostile name would be refused by the builder.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        if let Put::Link(target) = put {
            header.set_link_name_literal(target).unwrap();
        }
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

impl Checkout {
    pub(super) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = LocalFolder::open(dir.path()).unwrap();
        Self { dir, folder, seq: 0 }
    }

    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut checkout = Self::empty();
        let entries: Vec<_> = files.iter().map(|(path, content)| (*path, Put::File(content))).collect();
        checkout.pull(&layer(&entries)).unwrap();
        checkout
    }

    pub(super) fn pull(&mut self, mut layer: &[u8]) -> Result<(u64, u64), ShimError> {
        self.seq += 1;
        let after = CheckedOut { run: "run_1".to_owned(), seq: self.seq, head_hash: "00".to_owned() };
        let before = self.folder.have().unwrap();
        let applied = self.folder.apply(&after, &mut layer)?;
        if !applied.conflicts.is_empty() {
            assert_eq!(self.folder.have().unwrap(), before, "the layer comes again");
            return Err(ShimError::Conflicts(applied.conflicts));
        }
        assert_eq!(self.folder.have().unwrap(), Some(after));
        assert_eq!(self.folder.tree_sha256().unwrap().len(), 64);
        Ok((applied.written, applied.deleted))
    }

    pub(super) fn scan(&mut self) -> ScanReport {
        self.folder.scan(&["target".to_owned()]).unwrap()
    }

    /// The changed paths, each after `A`, `M` or `D`.
    pub(super) fn changes(&mut self) -> Vec<String> {
        let letter = |change| match change {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
        };
        self.scan().changes.iter().map(|change| format!("{} {}", letter(change.change), change.path)).collect()
    }

    pub(super) fn read(&mut self) -> (Vec<u8>, ReadReport) {
        let paths: Vec<_> = self.scan().changes.into_iter().map(|change| change.path).collect();
        let mut layer = Vec::new();
        let report = self.folder.read(&paths, LIMITS, &mut layer).unwrap();
        (layer, report)
    }

    pub(super) fn put(&self, path: &str, content: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(super) fn path(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join(path)
    }

    /// Opens the folder again, as another program does.
    pub(super) fn reopen(&mut self) -> Result<(), ShimError> {
        let other = tempfile::tempdir().unwrap();
        // The lock is given back first.
        self.folder = LocalFolder::open(other.path()).unwrap();
        self.folder = LocalFolder::open(self.dir.path())?;
        Ok(())
    }
}

/// Every file and link under a folder, but the index.
pub(super) fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let kind = path.symlink_metadata().unwrap();
            if name == crate::OWN_FOLDER {
            } else if kind.is_dir() {
                todo.push(path);
            } else if kind.is_symlink() {
                found.insert(name, format!("-> {}", path.read_link().unwrap().display()));
            } else {
                let mode = if kind.permissions().mode() & 0o100 != 0 { "x " } else { "" };
                found.insert(name, mode.to_owned() + &std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// The names of a layer's entries.
pub(super) fn names(layer: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(layer);
    archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
}

/// The index as bytes.
pub(super) fn read_index(checkout: &Checkout) -> Vec<u8> {
    std::fs::read(checkout.path(".workspaced/index")).unwrap()
}
