//! A tar or tar.gz as a source: every entry is looked at by hand and written by the sink, nothing is unpacked.
//!
//! Files, folders, links that stay inside. A hard link becomes a file of its own, unless it shows what another name hides. An
//! absolute path, `..`, a NUL, a device, a pipe, or two entries of different type with one name refuse the whole archive; of
//! two files with one name the later counts, as tar has it.

mod reader;
mod sparse;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::rc::Rc;

use model::{Code, MAX_PATH_BYTES, PathRejected, Refusal};
use tar::EntryType;

use super::sink::{ImportWriter, WriteError, is_git_internal, shown};
use super::{ImportError, ImportLimits};
use reader::{Member, Reader};
use sparse::Filled;
use stream::{Meter, decode};

/// Puts every entry of `archive` into the sink.
pub(super) fn copy(
    archive: &mut dyn Read,
    limits: ImportLimits,
    sink: &mut ImportWriter<'_>,
) -> Result<(), ImportError> {
    let meter = Rc::new(Meter::new(limits));
    let mut reader = Reader::new(decode(archive, &meter)?, meter.clone());
    let mut copier = Copier { sink, meter: &meter, files: HashMap::new(), absent: HashSet::new() };
    while let Some(member) = reader.next()? {
        copier.entry(&member, &mut reader)?;
    }
    // What follows the last entry tells whether the compressed stream is whole.
    reader.finish()
}

struct Copier<'a, 'b> {
    sink: &'a mut ImportWriter<'b>,
    meter: &'a Meter,
    /// Files so far: the only thing that a later entry may replace or link to. Each with its place in the sink's list of
    /// contents with several names, if it has several.
    files: HashMap<Vec<u8>, Option<usize>>,
    /// What the archive has and the tree has not, to which a later entry may link; of folders of git's own the topmost.
    absent: HashSet<Vec<u8>>,
}

impl Copier<'_, '_> {
    fn entry(&mut self, member: &Member, bytes: &mut Reader<'_>) -> Result<(), ImportError> {
        // A label of the volume.
        if member.kind.as_byte() == b'V' {
            return self.sink.pass_over(&member.path);
        }
        let raw = &member.path;
        let Some(path) = clean(raw)? else {
            return if member.kind.is_dir() { Ok(()) } else { Err(bad_path(raw, PathRejected::Empty)) };
        };
        // Before anything remembers it.
        if path.len() > MAX_PATH_BYTES {
            return Err(refuse(&path, "its path is too long"));
        }
        if let Some(own) = git_internal(&path) {
            self.sink.pass_over(&path)?;
            if self.absent.insert(own.to_owned()) {
                self.sink.leave_out(own, "git's own");
            }
            return Ok(());
        }
        match self.place(member, &path, bytes) {
            Ok(()) => Ok(()),
            Err(WriteError::Misfit(reason)) => Err(refuse(&path, reason)),
            Err(WriteError::Source(error)) => Err(self.meter.fault(&error)),
            Err(WriteError::Over(error)) => Err(error),
        }
    }

    fn place(&mut self, member: &Member, path: &[u8], bytes: &mut Reader<'_>) -> Result<(), WriteError> {
        if member.is_pax_sparse {
            return Err(WriteError::Misfit("a sparse file in pax form, which only GNU tar reads"));
        }
        match member.kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.replace(path)?;
                self.files.insert(path.to_owned(), None);
                let Some(map) = &member.sparse else {
                    return self.sink.file(path, member.is_executable, member.size, None, bytes);
                };
                // What it is here counts, and not what the archive has of it.
                self.meter.add(map.size - member.size).map_err(WriteError::Source)?;
                self.sink.file(path, member.is_executable, map.size, None, &mut Filled::new(map, bytes))
            }
            EntryType::Directory | EntryType::Link | EntryType::Symlink if member.size > 0 => {
                // Programs differ in whether such bytes are there at all.
                Err(WriteError::Misfit("a folder or link with bytes of its own"))
            }
            EntryType::Directory => self.sink.folder(path),
            EntryType::Link => self.hard_link(member, path),
            EntryType::Symlink => {
                if !self.sink.link_inside(path, &member.link)? {
                    self.absent.insert(path.to_owned());
                }
                Ok(())
            }
            _ => Err(WriteError::Misfit("no file, folder or link")),
        }
    }

    /// Copies what a hard link names.
    fn hard_link(&mut self, member: &Member, path: &[u8]) -> Result<(), WriteError> {
        let original = clean(&member.link)?.unwrap_or_default();
        if git_internal(&original).is_some() || self.absent.contains(&original) {
            return self.leave_out(path, "a hard link to what was left out");
        }
        let Some(linked) = self.files.get(&original).copied().filter(|_| original != path) else {
            return Err(WriteError::Misfit("a hard link to what is no file before it"));
        };
        let at = linked.unwrap_or_else(|| self.sink.new_linked());
        self.sink.note_linked(at, &original, true);
        self.files.insert(original.clone(), Some(at));
        self.replace(path)?;
        self.sink.copy_of(path, member.is_executable, &original)?;
        self.sink.note_linked(at, path, true);
        self.files.insert(path.to_owned(), Some(at));
        Ok(())
    }

    /// Leaves a hard link out, and what had its name before it.
    fn leave_out(&mut self, path: &[u8], reason: &str) -> Result<(), WriteError> {
        self.sink.pass_over(path)?;
        self.replace(path)?;
        self.sink.leave_out(path, reason);
        self.absent.insert(path.to_owned());
        Ok(())
    }

    /// Makes a file's name free where an earlier file has it.
    fn replace(&mut self, path: &[u8]) -> Result<(), WriteError> {
        self.absent.remove(path);
        let Some(linked) = self.files.remove(path) else { return Ok(()) };
        if let Some(at) = linked {
            // The content had the name all the same.
            self.sink.note_linked(at, path, false);
        }
        self.sink.withdraw(path)
    }
}

/// The part of `path` that is git's own: such a file, or the topmost such folder.
fn git_internal(path: &[u8]) -> Option<&[u8]> {
    let mut end = 0;
    for name in path.split(|byte| *byte == b'/') {
        end += name.len();
        if is_git_internal(name) {
            return Some(&path[..end]);
        }
        end += 1;
    }
    None
}

/// The path without `.` and doubled slashes; `None` for the root.
fn clean(raw: &[u8]) -> Result<Option<Vec<u8>>, ImportError> {
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

fn bad_path(raw: &[u8], rule: PathRejected) -> ImportError {
    Refusal::path(&shown(raw), rule).into()
}

fn refuse(path: &[u8], reason: &str) -> ImportError {
    let shown = shown(path);
    Refusal::new(
        Code::PathRejected,
        format!("the archive holds `{shown}`, which cannot be taken: {reason}"),
        "Pack files, folders and links that stay inside, each name once.",
    )
    .with_details(|details| details.path = Some(shown))
    .into()
}
