//! What leaves a run: the tree as a tar.gz, its changes as a git bundle.

mod bundle;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use flate2::Compression;
use flate2::write::GzEncoder;
use model::{Access, LogicalPath, PathFacts, Rules};
use rustix::fs::FileType;
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use crate::error::file_too_large;
use crate::guard::{self, Opened};
use crate::ignored::{GITIGNORE_NAME, Scope};
use crate::import::stays_inside;
use crate::walk::each_entry;
use crate::{Workspace, WorkspaceError};

pub use bundle::Bundle;

impl Workspace {
    /// Writes the tree as tar.gz to `out`, in the order of paths; flat in memory. What policy hides and what git ignores
    /// is left out, and so is whatever is no file, no folder and no symbolic link that stays inside.
    ///
    /// The same tree gives the same bytes: neither owners nor times are told.
    ///
    /// # Errors
    ///
    /// Where the disk or `out` fails, a file became shorter while it was written, or one is larger than the policy's
    /// `maxTransferBytes`: the archive is cut short then.
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

/// Something that is yet to be written.
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
    /// What the folder at `path`, which lies where `above` is in force, has to show, in reverse order.
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
            ignored.enter_without_rules(above, text)?
        };
        let mut entries = Vec::new();
        for (name, file_type) in names {
            // Names that are not UTF-8 or git's own are in reach of no tool.
            let Some(path) = name.to_str().ok().and_then(|name| path.child(name).ok()) else { continue };
            let is_folder = file_type == FileType::Directory;
            if is_folder || self.is_told(&path, file_type, &scope)? {
                entries.push(Entry { path, is_folder, scope: scope.clone() });
            }
        }
        entries.retain(|entry| !entry.is_folder || self.enters(entry));
        entries.sort_unstable_by(|a, b| b.path.cmp(&a.path));
        Ok(entries)
    }

    /// Whether there may be something to show in a folder.
    fn enters(&self, entry: &Entry) -> bool {
        let Some(ignored) = &self.workspace.tree().ignored else { return false };
        let hidden = ignored.hides(&entry.scope, entry.path.as_str().as_bytes(), true);
        hidden.is_ok_and(|hidden| !hidden)
    }

    /// Whether policy lets the caller have the file.
    fn is_told(&self, path: &LogicalPath, file_type: FileType, scope: &Scope) -> Result<bool, WorkspaceError> {
        if !matches!(file_type, FileType::RegularFile | FileType::Symlink) {
            return Ok(false);
        }
        let Some(ignored) = &self.workspace.tree().ignored else { return Ok(false) };
        if ignored.hides(scope, path.as_str().as_bytes(), false)? {
            return Ok(false);
        }
        let kind = self.rules.kind_of_path(path);
        let facts = PathFacts { path, real_path: None, kind, ignored: false, hard_linked: false };
        Ok(model::judge_path(self.rules, Access::Read, &facts).is_ok())
    }

    fn open(&self, path: &LogicalPath) -> Result<Option<Opened>, WorkspaceError> {
        match self.workspace.tree().root.open_unlinked(path) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) => {
                // It went away or became something else since its folder was read.
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
        let Ok(place) = self.workspace.tree().root.place(path) else { return Ok(()) };
        let Some(stat) = place.stat()? else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode).is_symlink() {
            return match rustix::fs::readlinkat(&place.dir, &*place.name, Vec::new()) {
                Ok(target) => self.link(path, target.as_bytes()),
                Err(Errno::NOENT | Errno::INVAL) => Ok(()),
                Err(errno) => Err(errno.into()),
            };
        }
        let Some(opened) = self.open(path)? else { return Ok(()) };
        // A further name may be an alias of what policy hides.
        if !opened.file_type().is_file() || guard::is_hard_linked(&opened.stat) {
            return Ok(());
        }
        let mode = if opened.stat.st_mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let (size, most) = (opened.size(), self.rules.policy().max_transfer_bytes);
        if size > most {
            return Err(file_too_large(path, most, size).into());
        }
        let mut header = header(EntryType::Regular, mode, size);
        // As many bytes as the header says, whatever becomes of the file meanwhile.
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

fn header(entry_type: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(entry_type);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A reader that fails where there is less than was promised.
struct Exactly<R> {
    from: R,
    left: u64,
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
