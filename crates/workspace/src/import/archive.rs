//! A tar or tar.gz as a source: every entry is looked at by hand and written by the sink, nothing is unpacked.
//!
//! Files, folders, links that stay inside. A hard link becomes a file of its own. An absolute path, `..`, a NUL, a
//! device, a pipe, or two entries of different type with one name refuse the whole archive; of two files with one name
//! the later counts, as tar has it.
//!
//! What stands between two entries (long names, pax extensions, maps of sparse files) is kept in memory while it is read,
//! so that it is bounded before it is: whatever a header says of its size.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use model::{Code, MAX_PATH_BYTES, PathRejected, Refusal};
use tar::EntryType;

use super::sink::{Sink, SinkFault, is_git_internal, shown};
use super::{ImportFault, ImportLimits};

/// Below so many bytes, what is in an archive may be any multiple of its size.
const RATIO_FREE_BYTES: u64 = 64 << 20;
/// The most that may stand in front of an entry's own bytes: its header and all that extends it. Names end at 4 KiB, so that
/// most of this is for the attributes that pax knows.
const MAX_HEADERS_BYTES: u64 = 1 << 20;
/// Everything in a tar stands in blocks of so many bytes.
const BLOCK_BYTES: u64 = 512;

/// Puts every entry of `archive` into the sink.
pub(super) fn copy(archive: &mut dyn Read, limits: ImportLimits, sink: &mut Sink<'_>) -> Result<(), ImportFault> {
    let meter = Rc::new(Meter { limits, ..Meter::default() });
    let decoded = decode(archive, &meter)?;
    let mut tar = tar::Archive::new(decoded);
    let mut copier = Copier { sink, meter: &meter, files: HashSet::new(), cut: HashSet::new() };
    meter.expect(0);
    for entry in tar.entries().map_err(|fault| meter.fault(&fault))? {
        let mut entry = entry.map_err(|fault| meter.fault(&fault))?;
        meter.expect(stored_bytes(&mut entry).map_err(|fault| meter.fault(&fault))?);
        copier.entry(&mut entry)?;
    }
    meter.expect_anything();
    // What follows the last entry tells whether the compressed stream is whole.
    let mut rest = tar.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|fault| meter.fault(&fault))?;
    Ok(())
}

struct Copier<'a, 'b> {
    sink: &'a mut Sink<'b>,
    meter: &'a Meter,
    /// Files so far: the only thing that a later entry may replace or link to.
    files: HashSet<Vec<u8>>,
    /// Folders of git's own, told once.
    cut: HashSet<Vec<u8>>,
}

impl Copier<'_, '_> {
    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), ImportFault> {
        let entry_type = entry.header().entry_type();
        if matches!(entry_type, EntryType::XGlobalHeader) || entry_type.as_byte() == b'V' {
            return Ok(());
        }
        let raw = entry.path_bytes().into_owned();
        let Some(path) = clean(&raw)? else {
            return if entry_type.is_dir() { Ok(()) } else { Err(bad_path(&raw, PathRejected::Empty)) };
        };
        // Before anything remembers it.
        if path.len() > MAX_PATH_BYTES {
            return Err(refuse(&path, "its path is too long"));
        }
        if self.is_cut(&path) {
            return self.sink.pass_over();
        }
        match self.place(entry, entry_type, &path) {
            Ok(()) => Ok(()),
            Err(SinkFault::Misfit(reason)) => Err(refuse(&path, reason)),
            Err(SinkFault::Source(fault)) => Err(self.meter.fault(&fault)),
            Err(SinkFault::Over(fault)) => Err(fault),
        }
    }

    fn place<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        entry_type: EntryType,
        path: &[u8],
    ) -> Result<(), SinkFault> {
        // One of its own, without an entry that it extends: asked for its extensions, it would be read into memory whole.
        if entry_type.is_pax_local_extensions() {
            return Err(SinkFault::Misfit("no file, folder or link"));
        }
        if is_pax_sparse(entry)? {
            return Err(SinkFault::Misfit("a sparse file in pax form, which only GNU tar reads"));
        }
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
        match entry_type {
            EntryType::Directory => self.sink.folder(path),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.make_room(path)?;
                let size = entry.size();
                self.sink.file(path, executable, size, None, entry)
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
                let original = clean(&target)?.filter(|original| self.files.contains(original));
                let Some(original) = original.filter(|original| original != path) else {
                    return Err(SinkFault::Misfit("a hard link to what is no file before it"));
                };
                self.make_room(path)?;
                self.sink.copy_of(path, executable, &original)
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
                self.sink.link_inside(path, &target)
            }
            _ => Err(SinkFault::Misfit("no file, folder or link")),
        }
    }

    /// Makes a file's name free where an earlier file has it.
    fn make_room(&mut self, path: &[u8]) -> Result<(), SinkFault> {
        if self.files.insert(path.to_owned()) { Ok(()) } else { self.sink.forget(path) }
    }

    /// Whether `path` is git's own or lies in such a folder, which is told once.
    fn is_cut(&mut self, path: &[u8]) -> bool {
        let mut end = 0;
        for name in path.split(|byte| *byte == b'/') {
            end += name.len();
            if is_git_internal(name) {
                if self.cut.insert(path[..end].to_owned()) {
                    self.sink.leave_out(&path[..end], "git's own");
                }
                return true;
            }
            end += 1;
        }
        false
    }
}

/// How many bytes of the archive the entry has behind its headers. Rather too few than too many: the reader goes no further
/// than this and the headers of the next one.
fn stored_bytes<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<u64> {
    if !entry.header().entry_type().is_gnu_sparse() {
        return Ok(entry.size());
    }
    // What it takes up here; the size of the entry is the size of the file, with its holes. A pax header that says something
    // else belongs to another form of tar.
    let named =
        entry.pax_extensions()?.into_iter().flatten().flatten().any(|extension| extension.key_bytes() == b"size");
    if named { Ok(0) } else { entry.header().entry_size() }
}

/// Whether the entry's bytes are a map of a sparse file in front of its parts, which would be taken for its content.
fn is_pax_sparse<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<bool, SinkFault> {
    let Some(extensions) = entry.pax_extensions().map_err(SinkFault::Source)? else { return Ok(false) };
    Ok(extensions.flatten().any(|extension| extension.key_bytes().starts_with(b"GNU.sparse.")))
}

/// The path without `.` and doubled slashes; `None` for the root.
fn clean(raw: &[u8]) -> Result<Option<Vec<u8>>, ImportFault> {
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

fn bad_path(raw: &[u8], rule: PathRejected) -> ImportFault {
    Refusal::path(&shown(raw), rule).into()
}

fn refuse(path: &[u8], reason: &str) -> ImportFault {
    let shown = shown(path);
    Refusal::new(
        Code::PathRejected,
        format!("the archive holds `{shown}`, which cannot be taken: {reason}"),
        "Pack files, folders and links that stay inside, each name once.",
    )
    .about(|about| about.path = Some(shown))
    .into()
}

type Head<'a> = Chain<Cursor<Vec<u8>>, Raw<'a>>;

/// The bytes of the tar, whether or not they are compressed.
fn decode<'a>(archive: &'a mut dyn Read, meter: &Rc<Meter>) -> Result<Decoded<'a>, ImportFault> {
    let mut raw = Raw { from: archive, meter: meter.clone() };
    let mut magic = Vec::new();
    (&mut raw).take(2).read_to_end(&mut magic).map_err(|fault| meter.fault(&fault))?;
    if magic.is_empty() {
        return Err(Refusal::invalid("the archive is empty", "Send a tar or tar.gz.").into());
    }
    let is_gzip = magic == [0x1f, 0x8b];
    let head: Head<'a> = Cursor::new(magic).chain(raw);
    let stream: Box<dyn Read + 'a> =
        if is_gzip { Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 * 1024, head))) } else { Box::new(head) };
    Ok(Decoded { from: BufReader::with_capacity(256 * 1024, stream), meter: meter.clone() })
}

/// How much came in and how much it became.
#[derive(Default)]
struct Meter {
    limits: ImportLimits,
    raw_bytes: Cell<u64>,
    decoded_bytes: Cell<u64>,
    /// How far the archive may be read until the next entry is known.
    known_until: Cell<u64>,
    /// What the caller's own stream failed with.
    broken: RefCell<Option<io::Error>>,
    over: Cell<Option<Bound>>,
}

/// A bound that the archive has passed.
#[derive(Clone, Copy)]
enum Bound {
    /// Of all that it becomes.
    Whole,
    /// Of what stands in front of one entry.
    Headers,
}

impl Meter {
    /// From here on come `bytes` of an entry, and then no more than the headers of another one.
    fn expect(&self, bytes: u64) {
        let stored = bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
        self.known_until.set(self.decoded_bytes.get().saturating_add(stored).saturating_add(MAX_HEADERS_BYTES));
    }

    /// There are no more entries: what comes is passed over.
    fn expect_anything(&self) {
        self.known_until.set(u64::MAX);
    }

    /// What a failed read means: the stream's end, a bound, or an archive that is none.
    fn fault(&self, fault: &io::Error) -> ImportFault {
        if let Some(broken) = self.broken.take() {
            return ImportFault::Io(broken);
        }
        match self.over.get() {
            Some(Bound::Whole) => {
                return Refusal::invalid(
                    "the archive becomes too large when it is unpacked",
                    "Import a smaller tree: leave out what is built, vendored or data.",
                )
                .about(|about| {
                    about.limit = Some(self.limits.max_bytes);
                    about.actual = Some(self.decoded_bytes.get());
                })
                .into();
            }
            Some(Bound::Headers) => {
                return Refusal::invalid(
                    format!("the archive has more than {MAX_HEADERS_BYTES} bytes of headers in front of one entry"),
                    "Pack it without extended attributes, long comments and names of more than 4,096 bytes.",
                )
                .about(|about| about.limit = Some(MAX_HEADERS_BYTES))
                .into();
            }
            None => {}
        }
        tracing::debug!(error = %fault, "an archive was refused");
        Refusal::invalid("the archive is damaged or no tar or tar.gz", "Send a whole tar or tar.gz.").into()
    }
}

/// The stream as it comes in.
struct Raw<'a> {
    from: &'a mut dyn Read,
    meter: Rc<Meter>,
}

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(count) => {
                self.meter.raw_bytes.set(self.meter.raw_bytes.get() + count as u64);
                Ok(count)
            }
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => Err(fault),
            Err(fault) => {
                let kind = fault.kind();
                self.meter.broken.replace(Some(fault));
                Err(kind.into())
            }
        }
    }
}

/// The stream after decompression, counted: headers, padding and all.
struct Decoded<'a> {
    from: BufReader<Box<dyn Read + 'a>>,
    meter: Rc<Meter>,
}

impl Read for Decoded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let known = self.meter.known_until.get().saturating_sub(self.meter.decoded_bytes.get());
        if known == 0 && !buffer.is_empty() {
            self.meter.over.set(Some(Bound::Headers));
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let most = usize::try_from(known).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.from.read(&mut buffer[..most])?;
        let decoded = self.meter.decoded_bytes.get() + count as u64;
        self.meter.decoded_bytes.set(decoded);
        let limits = &self.meter.limits;
        // Headers and padding come on top of what the files have.
        let most = limits.max_bytes.saturating_add(limits.max_entries.saturating_mul(2048));
        let swollen = decoded > RATIO_FREE_BYTES && decoded / limits.max_ratio > self.meter.raw_bytes.get();
        if decoded > most || swollen {
            self.meter.over.set(Some(Bound::Whole));
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(count)
    }
}
