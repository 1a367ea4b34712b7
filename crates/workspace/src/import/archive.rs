//! A tar, tar.gz or tar.zst archive as a source. Every entry is checked here and written by [`ImportWriter`]; nothing is unpacked.
//!
//! Files, folders and links that stay inside are taken. A hard link becomes a separate file, unless it reveals what another
//! name hides. An absolute path, `..`, a NUL, a device, a FIFO, or two entries of different types with one name refuse the
//! whole archive. Of two files with one name the later counts, as in tar.

pub(crate) mod reader;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io::Read;

use model::{Code, MAX_PATH_BYTES, PathRejected, Refusal};
use tar::EntryType;

use super::ImportLimits;
use super::writer::{ImportWriter, WriteError, git_internal};
use crate::WorkspaceError;
use crate::skipped::shown;
use reader::{TarMember, TarReader};
use stream::decode;

/// Writes every entry of `archive` with `writer`.
pub(super) fn copy(
    archive: &mut dyn Read,
    limits: ImportLimits,
    writer: &mut ImportWriter<'_>,
) -> Result<(), WorkspaceError> {
    let mut reader = TarReader::new(decode(archive, limits)?);
    let mut copier = ArchiveCopier { writer, absent: HashSet::new() };
    while let Some(member) = reader.next()? {
        copier.entry(&member, &mut reader)?;
    }
    // Reading to the end checks that the compressed stream is complete.
    reader.finish()
}

struct ArchiveCopier<'a, 'b> {
    writer: &'a mut ImportWriter<'b>,
    /// Entries of the archive that are not in the tree, which a later entry may link to. Of Git-internal folders, only the topmost.
    absent: HashSet<Vec<u8>>,
}

impl ArchiveCopier<'_, '_> {
    fn entry(&mut self, member: &TarMember, bytes: &mut TarReader<'_>) -> Result<(), WorkspaceError> {
        // A volume label.
        if member.kind.as_byte() == b'V' {
            return self.writer.count_skipped(&member.path);
        }
        let raw = &member.path;
        let Some(path) = clean(raw)? else {
            return if member.kind.is_dir() { Ok(()) } else { Err(bad_path(raw, PathRejected::Empty)) };
        };
        // Checked before the path is stored.
        if path.len() > MAX_PATH_BYTES {
            return Err(refuse(&path, "its path is too long"));
        }
        if let Some(own) = git_internal(&path) {
            self.writer.count_skipped(&path)?;
            if self.absent.insert(own.to_owned()) {
                self.writer.skip(own, "a Git-internal path");
            }
            return Ok(());
        }
        match self.write(member, &path, bytes) {
            Ok(()) => Ok(()),
            Err(WriteError::Unsupported(reason)) => Err(refuse(&path, reason)),
            Err(WriteError::Fatal(error)) => Err(error),
        }
    }

    fn write(&mut self, member: &TarMember, path: &[u8], bytes: &mut TarReader<'_>) -> Result<(), WriteError> {
        match member.kind {
            _ if member.is_sparse => Err(WriteError::Unsupported("a sparse file: pack it without `--sparse`")),
            EntryType::Regular | EntryType::Continuous => {
                self.replace(path)?;
                self.writer.file(path, member.mode, member.size, None, bytes)
            }
            EntryType::Directory | EntryType::Link | EntryType::Symlink if member.size > 0 => {
                // Programs differ in whether such bytes are read at all.
                Err(WriteError::Unsupported("a folder or link with content"))
            }
            EntryType::Directory => self.writer.folder(path),
            EntryType::Link => self.hard_link(member, path),
            EntryType::Symlink => {
                if !self.writer.link_inside(path, &member.link)? {
                    self.absent.insert(path.to_owned());
                }
                Ok(())
            }
            _ => Err(WriteError::Unsupported("not a file, folder or link")),
        }
    }

    /// Copies the file that a hard link names.
    fn hard_link(&mut self, member: &TarMember, path: &[u8]) -> Result<(), WriteError> {
        let original = clean(&member.link)?.unwrap_or_default();
        if git_internal(&original).is_some() || self.absent.contains(&original) {
            return self.skip(path, "a hard link to a skipped entry");
        }
        let file = self.writer.hard_links.file_at(&original);
        self.replace(path)?;
        self.writer.copy_of(path, member.mode, &original)?;
        self.writer.hard_links.add_name(file, path, true);
        Ok(())
    }

    /// Skips a hard link, and removes an earlier file of that name.
    fn skip(&mut self, path: &[u8], reason: &str) -> Result<(), WriteError> {
        self.writer.count_skipped(path)?;
        self.replace(path)?;
        self.writer.skip(path, reason);
        self.absent.insert(path.to_owned());
        Ok(())
    }

    /// Removes an earlier file of this name.
    fn replace(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.absent.remove(path);
        if self.writer.has_file(path) { self.writer.replace(path) } else { Ok(()) }
    }
}

/// Returns the path without `.` and doubled slashes; `None` for the root.
pub(crate) fn clean(raw: &[u8]) -> Result<Option<Vec<u8>>, WorkspaceError> {
    if raw.starts_with(b"/") {
        return Err(bad_path(raw, PathRejected::Absolute));
    }
    if raw.contains(&0) {
        return Err(bad_path(raw, PathRejected::Nul));
    }
    let mut path = Vec::with_capacity(raw.len());
    for name in raw.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(bad_path(raw, PathRejected::ParentDir)),
            name => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
            }
        }
    }
    Ok((!path.is_empty()).then_some(path))
}

fn bad_path(raw: &[u8], rule: PathRejected) -> WorkspaceError {
    Refusal::path(&shown(raw), rule).into()
}

fn refuse(path: &[u8], reason: &str) -> WorkspaceError {
    let shown = shown(path);
    Refusal::new(
        Code::PathRejected,
        format!("the archive contains `{shown}`, which cannot be imported: {reason}"),
        "Pack only files, folders and links that stay inside, each name once.",
    )
    .with_details(|details| details.path = Some(shown))
    .into()
}
