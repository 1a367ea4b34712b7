//! Writing tar archives.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use model::{LogicalPath, WHITEOUT, is_link_mode};
use tar::{Builder, EntryType, Header};

/// A time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryTime(pub u64);

/// The times of the entries of an archive.
#[derive(Clone, Debug)]
pub struct EntryTimes {
    /// That of each file that the run has changed.
    pub changed: BTreeMap<LogicalPath, EntryTime>,
    /// That of all others.
    pub created: EntryTime,
}

impl EntryTimes {
    pub(super) fn of(&self, path: &LogicalPath) -> EntryTime {
        self.changed.get(path).copied().unwrap_or(self.created)
    }
}

/// Writes a tar archive without owners: the same entries give the same bytes.
pub(super) struct Packer<W: Write>(Builder<W>);

impl<W: Write> Packer<W> {
    pub(super) fn new(out: W) -> Self {
        Self(Builder::new(out))
    }

    /// Appends a folder.
    pub(super) fn folder(&mut self, path: &[u8], time: EntryTime) -> io::Result<()> {
        let path = [path, b"/"].concat();
        self.0.append_data(&mut header(EntryType::Directory, 0o755, 0, time), as_path(&path), io::empty())
    }

    /// Appends a symbolic link with exactly this target, which [`Builder::append_link`] would normalise.
    pub(super) fn link(&mut self, path: &[u8], target: &[u8], time: EntryTime) -> io::Result<()> {
        let mut header = header(EntryType::Symlink, 0o777, 0, time);
        if header.set_link_name_literal(target).is_err() {
            // It is too long for the header.
            self.0.append_pax_extensions([("linkpath", target)])?;
        }
        self.0.append_data(&mut header, as_path(path), io::empty())
    }

    /// Appends a file with the next `size` bytes of `content`. Fails if there are fewer.
    pub(super) fn file(
        &mut self,
        path: &[u8],
        mode: u32,
        size: u64,
        content: impl Read,
        EntryTime(micros): EntryTime,
    ) -> io::Result<()> {
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        if fraction > 0 {
            // A build tool must see that a file is newer than what was made of it within the same second.
            self.0.append_pax_extensions([("mtime", format!("{seconds}.{fraction:06}").as_bytes())])?;
        }
        let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let mut header = header(EntryType::Regular, mode, size, EntryTime(micros));
        self.0.append_data(&mut header, as_path(path), Exactly::of(content, size))
    }

    /// Appends the entry that deletes the file at `path` where a layer is unpacked.
    pub(super) fn whiteout(&mut self, path: &LogicalPath, time: EntryTime) -> io::Result<()> {
        let folder = path.parent().filter(|parent| !parent.is_root());
        let folder = folder.map(|parent| format!("{parent}/")).unwrap_or_default();
        let name = format!("{folder}{WHITEOUT}{}", path.file_name());
        self.0.append_data(&mut header(EntryType::Regular, 0o644, 0, time), name, io::empty())
    }

    /// Ends the archive and returns what it was written to.
    pub(super) fn finish(self) -> io::Result<W> {
        self.0.into_inner()
    }
}

fn header(entry_type: EntryType, mode: u32, size: u64, EntryTime(micros): EntryTime) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(entry_type);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(micros / 1_000_000);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The first bytes of a reader, which fails if there are fewer than promised.
pub(super) struct Exactly<R> {
    from: io::Take<R>,
}

impl<R: Read> Exactly<R> {
    pub(super) fn of(from: R, size: u64) -> Self {
        Self { from: from.take(size) }
    }
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        if count == 0 && self.from.limit() > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was exported"));
        }
        Ok(count)
    }
}

/// What [`pack_layer`] packs at a path.
pub struct PackedFile<'a> {
    /// The content, of a link its target.
    pub bytes: Box<dyn Read + 'a>,
    /// The length of the content in bytes.
    pub size_bytes: u64,
    /// The mode.
    pub mode: u32,
}

/// Packs files and links as a layer, compressed with zstd, into `out`: each path with its file, or nothing for a deleted one.
///
/// # Errors
///
/// If a content cannot be read or written.
pub fn pack_layer<'a>(
    files: impl IntoIterator<Item = (&'a LogicalPath, io::Result<Option<PackedFile<'a>>>)>,
    out: impl Write,
) -> io::Result<()> {
    let mut packer = Packer::new(zstd::stream::write::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?);
    for (path, file) in files {
        let (name, time) = (path.as_str().as_bytes(), EntryTime::default());
        match file? {
            None => packer.whiteout(path, time)?,
            Some(PackedFile { mut bytes, mode, .. }) if is_link_mode(mode) => {
                let mut target = Vec::new();
                bytes.read_to_end(&mut target)?;
                packer.link(name, &target, time)?;
            }
            Some(PackedFile { bytes, size_bytes, mode }) => packer.file(name, mode, size_bytes, bytes, time)?,
        }
    }
    packer.finish()?.finish().map(drop)
}
