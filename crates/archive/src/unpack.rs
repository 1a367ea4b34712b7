//! Unpacks an archive into a new folder.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "an archive is unpacked into a folder that nobody else uses, which holds no symbolic links"
)]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::entries::{NestedEntry, each_entry};
use crate::error::{ArchiveError, invalid};
use crate::manifest::{DATA, FILES, MANIFEST, Manifest};
use crate::member::{MemberVisitor, walk};
use crate::verify::MAX_UNPACKED_BYTES;

/// The file that lists the symbolic links, which are not created.
const LINKS: &str = "links.jsonl";
/// The most names in a path.
const MAX_DEPTH: usize = 256;

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files.
    pub files: u64,
    /// Symbolic links, which are listed in `links.jsonl` and not created.
    pub links: u64,
}

/// Unpacks the archive in `reader` into the folder `to`, which must be empty: `repo/` is the tree, `base.git/` or `base/`
/// what it started from, `diffs/`, `contents/`, `uploads/` and `replies/` are the data of the records in `records.jsonl`. No link is created
/// and no file is replaced, so that nothing is written outside of the folder. [Verify](crate::verify()) the archive first.
///
/// # Errors
///
/// [`ArchiveError`] if the archive is invalid, has a path outside of the folder, or if the disk fails. What was
/// unpacked until then remains.
pub fn unpack(reader: impl Read, to: &Path) -> Result<Unpacked, ArchiveError> {
    let mut unpack = Unpack { to, done: Unpacked::default(), links: None };
    walk(reader, MAX_UNPACKED_BYTES, &mut unpack)?;
    if let Some(mut links) = unpack.links {
        links.flush().map_err(|error| invalid(LINKS, &error))?;
    }
    Ok(unpack.done)
}

struct Unpack<'a> {
    to: &'a Path,
    done: Unpacked,
    links: Option<BufWriter<File>>,
}

impl MemberVisitor for Unpack<'_> {
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), ArchiveError> {
        let text = serde_json::to_vec_pretty(manifest).map_err(|error| invalid(MANIFEST, &error))?;
        self.write(Path::new(MANIFEST), &mut &*text, false).map_err(|error| invalid(MANIFEST, &error))
    }

    fn member(&mut self, name: &str, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let done = match name {
            DATA | FILES => {
                return each_entry(name, content, |mut entry| {
                    self.unpack_entry(&mut entry).map_err(|error| invalid(name, &error))
                });
            }
            // One of the names of the format.
            name => self.write(Path::new(name.trim_end_matches(".zst")), content, false),
        };
        done.map_err(|error| invalid(name, &error))
    }
}

impl Unpack<'_> {
    fn unpack_entry(&mut self, entry: &mut NestedEntry<'_>) -> io::Result<()> {
        let path = checked(&entry.path)?;
        let entry_type = entry.header.entry_type();
        if entry_type.is_dir() {
            std::fs::create_dir_all(self.to.join(&path))
        } else if entry_type.is_file() {
            let is_executable = entry.header.mode()? & 0o111 != 0;
            self.write(&path, entry.content, is_executable)
        } else if entry_type.is_symlink() {
            self.list_link(&path, &entry.link)
        } else {
            Err(io::Error::other("an entry is neither a file, a folder nor a symbolic link"))
        }
    }

    fn write(&mut self, path: &Path, content: &mut dyn Read, is_executable: bool) -> io::Result<()> {
        let path = self.to.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mode = if is_executable { 0o700 } else { 0o600 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        io::copy(content, &mut file)?;
        self.done.files += 1;
        Ok(())
    }

    fn list_link(&mut self, path: &Path, target: &[u8]) -> io::Result<()> {
        let links = match &mut self.links {
            Some(links) => links,
            none => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.to.join(LINKS))?;
                none.insert(BufWriter::new(file))
            }
        };
        self.done.links += 1;
        let target = String::from_utf8_lossy(target);
        writeln!(links, "{}", json!({ "path": path.to_string_lossy(), "target": target }))
    }
}

/// Returns the path of an entry, if it stays inside the folder.
fn checked(bytes: &[u8]) -> io::Result<PathBuf> {
    let names: Vec<&[u8]> = bytes.strip_suffix(b"/").unwrap_or(bytes).split(|byte| *byte == b'/').collect();
    let is_bad = |name: &&[u8]| [&b""[..], b".", b".."].contains(name) || name.contains(&0);
    if names.len() > MAX_DEPTH || names.iter().any(is_bad) {
        let path = String::from_utf8_lossy(bytes);
        return Err(io::Error::other(format!("the path `{}` is outside of the folder", path.escape_debug())));
    }
    Ok(names.into_iter().map(OsStr::from_bytes).collect())
}
