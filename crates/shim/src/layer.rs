//! Changed files as a layer.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tar::{Archive, Builder, EntryType, Header};

use crate::entry::{NodeKind, NodeStamp, NodeVersion, WHITEOUT, check_path, hex, size_of, stays_inside};
use crate::error::ShimError;
use crate::folder::{LeftEntry, ReadLimits, ReadReport};
use crate::handles::{FolderCursor, ParentFolder, name_of, open_file, stat};
use crate::index::{CheckoutIndex, IndexChanges, IndexEntry};
use crate::scan::MAX_SHOWN_CHARS;

/// The pax key of the version of the run that an entry replaces.
const BASE_KEY: &str = "WORKSPACED.base";
/// The most paths that a report names.
const MAX_NAMED: usize = 1000;

/// A layer that is written.
pub(crate) struct LayerWriter<'a> {
    tar: Builder<&'a mut dyn Write>,
    index: &'a CheckoutIndex,
    limits: ReadLimits,
    /// The file system's time before anything was read.
    began_ns: i64,
    bytes: u64,
    report: ReadReport,
    versions: IndexChanges,
}

impl<'a> LayerWriter<'a> {
    pub(crate) fn new(index: &'a CheckoutIndex, limits: ReadLimits, began_ns: i64, out: &'a mut dyn Write) -> Self {
        let (tar, report) = (Builder::new(out), ReadReport::default());
        Self { tar, index, limits, began_ns, bytes: 0, report, versions: IndexChanges::new() }
    }

    /// Writes `paths`, in their order.
    pub(crate) fn run(
        mut self,
        cursor: &mut FolderCursor,
        paths: &[String],
    ) -> Result<(ReadReport, IndexChanges), ShimError> {
        for path in paths {
            check_path(path).map_err(|why| ShimError::Refused(format!("{path:?}: {why}")))?;
            match cursor.parent_of(path).map_err(ShimError::of(path))? {
                ParentFolder::Folder(dir) => self.path(dir, path)?,
                ParentFolder::Missing | ParentFolder::NoFolder(_) => self.whiteout(path)?,
            }
        }
        let out = self.tar.into_inner().map_err(|error| ShimError::io("the layer", error))?;
        out.flush().map_err(|error| ShimError::io("the layer", error))?;
        Ok((self.report, self.versions))
    }

    fn path(&mut self, dir: BorrowedFd<'_>, path: &str) -> Result<(), ShimError> {
        let Some(found) = stat(dir, name_of(path)).map_err(ShimError::of(path))? else { return self.whiteout(path) };
        match NodeKind::of(&found) {
            Some(NodeKind::Link) => self.link(dir, path, &found),
            Some(_) => self.file(dir, path),
            // What is in a folder that took the place of a file has paths of its own.
            None if FileType::from_raw_mode(found.st_mode) == FileType::Directory => self.whiteout(path),
            None => {
                self.leave(path, "it is no file any more");
                Ok(())
            }
        }
    }

    fn whiteout(&mut self, path: &str) -> Result<(), ShimError> {
        let name = name_of(path);
        let folder = &path[..path.len() - name.len()];
        let mut header = header(EntryType::Regular, 0o644, 0);
        self.append(path, |tar| tar.append_data(&mut header, format!("{folder}{WHITEOUT}{name}"), io::empty()))?;
        self.versions.insert(path.to_owned(), None);
        Ok(())
    }

    fn link(&mut self, dir: BorrowedFd<'_>, path: &str, found: &Stat) -> Result<(), ShimError> {
        let target = match rustix::fs::readlinkat(dir, name_of(path), Vec::new()) {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::INVAL) => return self.torn(path),
            Err(errno) => return Err(ShimError::io(path, errno)),
        };
        let Some(target) = target.into_string().ok().filter(|target| stays_inside(path, target)) else {
            self.leave(path, "the link leads out of the folder");
            return Ok(());
        };
        let mut header = header(EntryType::Symlink, 0o777, 0);
        set_time(&mut header, found);
        // Not by `append_link`, which normalises the target.
        self.append(path, |tar| {
            if header.set_link_name_literal(&target).is_err() {
                tar.append_pax_extensions([("linkpath", target.as_bytes())])?;
            }
            tar.append_data(&mut header, path, io::empty())
        })?;
        let (version, stamp) = (NodeVersion::of_link(target.as_bytes()), NodeStamp::of(found).proven_at(self.began_ns));
        self.versions.insert(path.to_owned(), Some(IndexEntry { version, stamp }));
        Ok(())
    }

    fn file(&mut self, dir: BorrowedFd<'_>, path: &str) -> Result<(), ShimError> {
        let file = match open_file(dir, name_of(path)) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP) => return self.torn(path),
            Err(errno) => {
                self.leave(path, &format!("it cannot be read: {}", errno.kind()));
                return Ok(());
            }
        };
        let before = rustix::fs::fstat(&file).map_err(ShimError::of(path))?;
        let Some(kind) = NodeKind::of(&before) else { return self.torn(path) };
        let size = size_of(&before);
        if size > self.limits.max_file_bytes {
            self.leave(path, &format!("it has more than {} bytes: {size}", self.limits.max_file_bytes));
            return Ok(());
        }
        if self.bytes.saturating_add(size) > self.limits.max_total_bytes {
            let max = self.limits.max_total_bytes;
            return Err(ShimError::Refused(format!("the changed files have more than {max} bytes")));
        }
        self.bytes += size;
        let mut header = header(EntryType::Regular, if kind == NodeKind::Executable { 0o755 } else { 0o644 }, size);
        set_time(&mut header, &before);
        let mut content = Promised { file: &file, left: size, hasher: Sha256::new(), is_short: false };
        self.append(path, |tar| tar.append_data(&mut header, path, &mut content))?;
        let after = rustix::fs::fstat(&file).map_err(ShimError::of(path))?;
        let stamp = NodeStamp::of(&after);
        if content.is_short || stamp != NodeStamp::of(&before) {
            return self.torn(path);
        }
        let version = NodeVersion { kind, hash: content.hasher.finalize().into() };
        let stamp = stamp.proven_at(self.began_ns);
        self.versions.insert(path.to_owned(), Some(IndexEntry { version, stamp }));
        Ok(())
    }

    /// Appends an entry, with the version of the run that it replaces: after a pull that has left something, the index has files of more
    /// than one record.
    fn append(
        &mut self,
        path: &str,
        add: impl FnOnce(&mut Builder<&'a mut dyn Write>) -> io::Result<()>,
    ) -> Result<(), ShimError> {
        self.report.entries += 1;
        let base = self.index.entries.get(path).map_or("none".to_owned(), |known| hex(&known.version.hash));
        let record = format!(" {BASE_KEY}={base}\n");
        // The length counts its own two digits.
        let record = format!("{}{record}", record.len() + 2);
        let mut pax = header(EntryType::XHeader, 0o644, record.len() as u64);
        let appended = self.tar.append_data(&mut pax, "pax", record.as_bytes()).and_then(|()| add(&mut self.tar));
        appended.map_err(|error| ShimError::io("the layer", error))
    }

    #[expect(clippy::unnecessary_wraps, reason = "it ends functions that can fail")]
    fn torn(&mut self, path: &str) -> Result<(), ShimError> {
        self.report.torn.push(path.to_owned());
        Ok(())
    }

    fn leave(&mut self, path: &str, why: &str) {
        if self.report.left.len() < MAX_NAMED {
            let path = path.chars().take(MAX_SHOWN_CHARS).collect();
            self.report.left.push(LeftEntry { path, why: why.to_owned() });
        }
    }
}

/// Checks that a layer has nothing but `paths`, each as a file, a link or a deletion.
///
/// # Errors
///
/// If it has something else, or cannot be read.
pub fn check_layer(layer: impl Read, paths: &[String]) -> Result<(), ShimError> {
    let asked: HashSet<&str> = paths.iter().map(String::as_str).collect();
    let bad = |error: io::Error| ShimError::io("the layer", error);
    for entry in Archive::new(layer).entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        // Others could name or resize the entry for another reader.
        for record in entry.pax_extensions().map_err(bad)?.into_iter().flatten() {
            if record.map_err(bad)?.key() != Ok(BASE_KEY) {
                return Err(ShimError::Refused(format!("the sandbox sent {path:?} with attributes")));
            }
        }
        let kind = entry.header().entry_type();
        let name = name_of(&path);
        let folder = &path[..path.len() - name.len()];
        let is_asked = match name.strip_prefix(WHITEOUT) {
            Some(name) => kind.is_file() && asked.contains(format!("{folder}{name}").as_str()),
            None => (kind.is_file() || kind.is_symlink()) && asked.contains(path.as_str()),
        };
        if !is_asked {
            return Err(ShimError::Refused(format!("the sandbox sent {path:?}, which it was not asked for")));
        }
    }
    Ok(())
}

/// Returns the texts of a layer's files with their paths.
///
/// # Errors
///
/// If the layer cannot be read.
pub fn texts_of_layer(layer: impl Read) -> Result<Vec<(String, String)>, ShimError> {
    let bad = |error: io::Error| ShimError::io("the layer", error);
    let mut texts = Vec::new();
    for entry in Archive::new(layer).entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type().is_file() && !name_of(&path).starts_with(WHITEOUT) {
            let mut text = Vec::new();
            entry.read_to_end(&mut text).map_err(bad)?;
            texts.push((path, String::from_utf8_lossy(&text).into_owned()));
        }
    }
    Ok(texts)
}

/// A file of which exactly as many bytes are read as its header says. A file that became shorter is filled with zeros.
struct Promised<'a> {
    file: &'a std::fs::File,
    left: u64,
    hasher: Sha256,
    is_short: bool,
}

impl Read for Promised<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let mut count = if self.is_short { 0 } else { self.file.read(&mut buffer[..want])? };
        if count == 0 && want > 0 {
            self.is_short = true;
            buffer[..want].fill(0);
            count = want;
        }
        self.hasher.update(&buffer[..count]);
        self.left -= count as u64;
        Ok(count)
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn set_time(header: &mut Header, found: &Stat) {
    header.set_mtime(u64::try_from(found.st_mtime).unwrap_or(0));
}
