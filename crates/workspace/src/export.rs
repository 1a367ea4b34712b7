//! Exports of a run: the tree as tar.gz, and its changes as a git bundle.

mod archive;
mod bundle;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use flate2::Compression;
use flate2::write::GzEncoder;
use model::{LogicalPath, Rules};
use rustix::fs::FileType;
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use crate::error::file_too_large;
use crate::guard::{self, Opened};
use crate::ignored::{GITIGNORE_NAME, Scope};
use crate::import::stays_inside;
use crate::read::{is_readable, is_secret};
use crate::walk::each_entry;
use crate::{Workspace, WorkspaceError};

pub use bundle::Bundle;

impl Workspace {
    /// Writes the tree as tar.gz to `out`, in path order, in constant memory. Left out are files that policy hides or git
    /// ignores, special files, and symbolic links to paths outside the tree.
    ///
    /// The same tree gives the same bytes: the archive has no owners and times.
    ///
    /// # Errors
    ///
    /// If the disk or `out` fails, a file becomes shorter while it is written, or a file is larger than the policy's
    /// `maxTransferBytes`. The archive is truncated then.
    pub fn export(&self, rules: &Rules, out: &mut dyn Write) -> Result<(), WorkspaceError> {
        let gzip = GzEncoder::new(out, Compression::fast());
        let mut export = Export { workspace: self, rules, tar: Builder::new(gzip) };
        let mut entries = export.entries(&LogicalPath::root(), &Scope::default())?;
        while let Some(entry) = entries.pop() {
            if entry.is_folder {
                export.folder(&entry.path)?;
                entries.append(&mut export.entries(&entry.path, &entry.scope)?);
            } else {
                export.file(&entry.path)?;
            }
        }
        export.tar.into_inner()?.finish()?.flush()?;
        Ok(())
    }
}

/// An entry that remains to be written.
struct Entry {
    path: LogicalPath,
    is_folder: bool,
    scope: Scope,
}

struct Export<'a, W: Write> {
    workspace: &'a Workspace,
    rules: &'a Rules,
    tar: Builder<GzEncoder<W>>,
}

impl<W: Write> Export<'_, W> {
    /// Returns the entries of the folder at `path` in reverse order. `above` are the rules in force in its parent.
    fn entries(&self, path: &LogicalPath, above: &Scope) -> Result<Vec<Entry>, WorkspaceError> {
        let tree = self.workspace.tree();
        let Some(ignored) = &tree.ignored else { return Ok(Vec::new()) };
        let Some(opened) = self.open(path)? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        let never = std::sync::atomic::AtomicBool::new(false);
        each_entry(opened.file.as_fd(), &mut Vec::new(), &never, |name, file_type| {
            names.push((name.to_owned(), file_type));
            Ok(())
        })?;
        let text = path.as_str().as_bytes();
        let scope = if names.iter().any(|(name, _)| name.to_bytes() == GITIGNORE_NAME.as_bytes()) {
            ignored.enter(&tree.root, above, text, opened.file.as_fd())?
        } else {
            ignored.enter_without_gitignore(above, text)?
        };
        let mut entries = Vec::new();
        for (name, file_type) in names {
            // No tool can name entries whose names are not UTF-8 or are Git-internal.
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else { continue };
            let is_folder = file_type == FileType::Directory;
            let is_hidden = tree.hides(&scope, path.as_str().as_bytes(), is_folder);
            let is_exported = if is_folder {
                is_hidden.is_ok_and(|hidden| !hidden)
            } else {
                matches!(file_type, FileType::RegularFile | FileType::Symlink)
                    && !is_hidden?
                    && is_readable(self.rules, &path, false)
            };
            if is_exported {
                entries.push(Entry { path, is_folder, scope: scope.clone() });
            }
        }
        entries.sort_unstable_by(|a, b| b.path.cmp(&a.path));
        Ok(entries)
    }

    fn open(&self, path: &LogicalPath) -> Result<Option<Opened>, WorkspaceError> {
        match self.workspace.tree().root.open_unlinked(path) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) => {
                // It was removed or replaced since its folder was read.
                error.unless_disk()?;
                Ok(None)
            }
        }
    }

    fn folder(&mut self, path: &LogicalPath) -> Result<(), WorkspaceError> {
        let mut header = header(EntryType::Directory, 0o755, 0);
        Ok(self.tar.append_data(&mut header, format!("{path}/"), io::empty())?)
    }

    fn file(&mut self, path: &LogicalPath) -> Result<(), WorkspaceError> {
        let Ok(parent) = self.workspace.tree().root.open_parent(path) else { return Ok(()) };
        let Some(stat) = parent.stat()? else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode).is_symlink() {
            return match rustix::fs::readlinkat(&parent.dir, &*parent.name, Vec::new()) {
                Ok(target) => self.link(path, target.as_bytes()),
                Err(Errno::NOENT | Errno::INVAL) => Ok(()),
                Err(errno) => Err(errno.into()),
            };
        }
        let Some(opened) = self.open(path)? else { return Ok(()) };
        // A file with several names may be an alias of one that policy hides.
        if !opened.file_type().is_file() || guard::is_hard_linked(&opened.stat) {
            return Ok(());
        }
        if is_secret(self.rules, path, &opened)? {
            return Ok(());
        }
        let mode = if opened.stat.st_mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let (size, most) = (opened.size(), self.rules.policy().max_transfer_bytes);
        if size > most {
            return Err(file_too_large(path, most, size).into());
        }
        let mut header = header(EntryType::Regular, mode, size);
        // Exactly as many bytes as the header says, even if the file changes meanwhile.
        let mut bytes = Exactly { from: File::from(opened.file).take(size), left: size };
        Ok(self.tar.append_data(&mut header, path.as_str(), &mut bytes)?)
    }

    fn link(&mut self, path: &LogicalPath, target: &[u8]) -> Result<(), WorkspaceError> {
        let Ok(text) = std::str::from_utf8(target) else { return Ok(()) };
        if !stays_inside(path.as_str().as_bytes(), target) {
            return Ok(());
        }
        let mut header = header(EntryType::Symlink, 0o777, 0);
        Ok(self.tar.append_link(&mut header, path.as_str(), text)?)
    }
}

pub(crate) fn header(entry_type: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(entry_type);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A reader that fails if there are fewer bytes than promised.
pub(crate) struct Exactly<R> {
    pub(crate) from: R,
    pub(crate) left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.left -= count as u64;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was archived"));
        }
        Ok(count)
    }
}
