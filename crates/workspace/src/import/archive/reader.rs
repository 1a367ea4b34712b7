//! Reading the entries of a tar archive: old, ustar, GNU and pax format.
//!
//! An entry has one meaning or is refused, since programs differ in how they read malformed archives. Refused are: a header
//! with a wrong checksum, a malformed pax header, two names for one entry, and a global header that renames or resizes what
//! follows it. Everything that extends a header is bounded before it is read.

use std::io::{self, Read};

use model::Refusal;
use tar::{EntryType, GnuExtSparseHeader, GnuHeader, Header};

use super::stream::{DecodedStream, damaged};
use crate::WorkspaceError;
use crate::import::layer::LayerBase;

/// The maximum size of the extension headers of one entry. Names end at 4 KiB, so most of this is for attributes in pax
/// format.
const MAX_HEADERS_BYTES: u64 = 1 << 20;
/// The maximum size of a header for all entries that follow.
const MAX_GLOBAL_BYTES: u64 = 4 << 20;
/// The block size of tar.
const BLOCK_BYTES: usize = 512;
/// The longest key of a pax record: an extended attribute of the longest name, with its prefix.
const MAX_KEY_BYTES: usize = 1024;
/// The pax key of the version that an entry of a layer replaces.
const BASE_KEY: &[u8] = b"WORKSPACED.base";

/// One entry, with its extension headers applied.
pub(crate) struct TarMember {
    pub(crate) kind: EntryType,
    /// As in the archive.
    pub(crate) path: Vec<u8>,
    /// The target of a link.
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    /// The number of its bytes in the archive, which [`TarReader`] reads next.
    pub(crate) size: u64,
    /// Whether it is a sparse file, whose bytes are not those of the file.
    pub(crate) is_sparse: bool,
    /// The version of the file that the entry replaces, if it says so.
    pub(crate) base: Option<LayerBase>,
}

/// Reads entries, and the bytes of the current one.
pub(crate) struct TarReader<'a> {
    from: DecodedStream<'a>,
    /// The bytes of the entry that remain to be read.
    left: u64,
    /// The padding of its last block.
    padding: u64,
}

/// The extension headers of an entry.
#[derive(Default)]
struct Extensions {
    bytes: u64,
    has_pax: bool,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
    base: Option<LayerBase>,
}

impl<'a> TarReader<'a> {
    pub(crate) fn new(from: DecodedStream<'a>) -> Self {
        Self { from, left: 0, padding: 0 }
    }

    /// Returns the next entry; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<TarMember>, WorkspaceError> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                // The end; or the entry is missing after its extension headers.
                return if extensions.bytes == 0 { Ok(None) } else { Err(damaged().into()) };
            };
            let size = size_of(&header).ok_or_else(damaged)?;
            self.expect(size)?;
            // The old format has no extension headers: there these are entries of an unknown type.
            let is_known = header.as_ustar().is_some() || header.as_gnu().is_some();
            match header.entry_type().as_byte() {
                b'x' if is_known => self.pax(size, &mut extensions)?,
                b'g' if is_known => self.global_pax(size)?,
                kind @ (b'L' | b'K') if is_known => {
                    let name = self.long_name(size, &mut extensions)?;
                    set_once(if kind == b'L' { &mut extensions.path } else { &mut extensions.link }, name)?;
                }
                _ => return self.member(&header, extensions).map(Some),
            }
        }
    }

    /// Reads the rest of the stream, to check that it is complete.
    pub(crate) fn finish(&mut self) -> Result<(), WorkspaceError> {
        io::copy(&mut self.from, &mut io::sink())?;
        Ok(())
    }

    fn member(&mut self, header: &Header, mut extensions: Extensions) -> Result<TarMember, WorkspaceError> {
        let is_gnu_sparse = header.entry_type().is_gnu_sparse();
        if is_gnu_sparse {
            self.skip_sparse_map(header, &mut extensions)?;
        }
        if let Some(size) = extensions.size {
            self.expect(size)?;
        }
        let path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = extensions.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let kind = match header.entry_type() {
            // Old archives have no type for folders.
            EntryType::Regular if path.ends_with(b"/") => EntryType::Directory,
            kind => kind,
        };
        Ok(TarMember {
            is_sparse: extensions.is_sparse || is_gnu_sparse,
            base: extensions.base,
            kind,
            path,
            link: link.unwrap_or_default(),
            // A file that nobody may read says nothing: many programs leave the field empty.
            mode: header.mode().ok().filter(|mode| mode & 0o777 != 0).map_or(0o644, |mode| mode & 0o7777),
            size: self.left,
        })
    }

    /// Skips the rest of the map of a sparse file in GNU's form, which the size of the entry does not count.
    fn skip_sparse_map(&mut self, header: &Header, extensions: &mut Extensions) -> Result<(), WorkspaceError> {
        let mut continues = header.as_gnu().is_some_and(GnuHeader::is_extended);
        while continues {
            extensions.count(BLOCK_BYTES as u64)?;
            let mut block = GnuExtSparseHeader::new();
            self.block(block.as_mut_bytes())?;
            continues = block.is_extended();
        }
        Ok(())
    }

    /// Reads the next header; `None` at a block of zeros, the end of an archive. A stream that ends without one was cut off: between
    /// two entries nothing else shows it.
    fn header(&mut self) -> Result<Option<Header>, WorkspaceError> {
        let mut header = Header::new_old();
        self.block(header.as_mut_bytes())?;
        let block = header.as_bytes();
        if block == &[0; BLOCK_BYTES] {
            return Ok(None);
        }
        // The checksum counts its own field as spaces.
        let outside: u32 = block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum();
        match header.cksum() {
            Ok(sum) if sum == outside + 8 * u32::from(b' ') => Ok(Some(header)),
            _ => Err(damaged().into()),
        }
    }

    fn block(&mut self, block: &mut [u8; BLOCK_BYTES]) -> Result<(), WorkspaceError> {
        self.from.read_exact(block).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged().into(),
            _ => error.into(),
        })
    }

    /// Starts reading `size` bytes of an entry.
    fn expect(&mut self, size: u64) -> Result<(), WorkspaceError> {
        let stored = size.checked_next_multiple_of(BLOCK_BYTES as u64).ok_or_else(damaged)?;
        (self.left, self.padding) = (size, stored - size);
        Ok(())
    }

    /// Skips the rest of the entry.
    fn skip(&mut self) -> Result<(), WorkspaceError> {
        let rest = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        let skipped = io::copy(&mut (&mut self.from).take(rest), &mut io::sink())?;
        if skipped == rest { Ok(()) } else { Err(damaged().into()) }
    }

    fn long_name(&mut self, size: u64, extensions: &mut Extensions) -> Result<Vec<u8>, WorkspaceError> {
        extensions.count(size)?;
        let mut name = self.take_bytes(size)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn pax(&mut self, size: u64, extensions: &mut Extensions) -> Result<(), WorkspaceError> {
        extensions.count(size)?;
        if std::mem::replace(&mut extensions.has_pax, true) {
            return Err(damaged_pax("there are two for one entry"));
        }
        let header = self.take_bytes(size)?;
        let (mut rest, mut path, mut link) = (&header[..], None, None);
        while !rest.is_empty() {
            match pax_record(&mut rest)? {
                // Of two records with one key the later counts.
                (b"path", value) => path = Some(value),
                (b"linkpath", value) => link = Some(value),
                (b"size", digits) => {
                    extensions.size = Some(decimal(digits).ok_or_else(|| damaged_pax("its `size` is not a number"))?);
                }
                (BASE_KEY, value) => {
                    let base = LayerBase::parse(value);
                    extensions.base = Some(base.ok_or_else(|| damaged_pax("its base is neither a hash nor `none`"))?);
                }
                (key, _) => extensions.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
        path.map_or(Ok(()), |path| set_once(&mut extensions.path, path.to_owned()))?;
        link.map_or(Ok(()), |link| set_once(&mut extensions.link, link.to_owned()))
    }

    /// Skips a header for all entries that follow: comments, mostly.
    fn global_pax(&mut self, size: u64) -> Result<(), WorkspaceError> {
        check_headers(size, MAX_GLOBAL_BYTES)?;
        let header = self.take_bytes(size)?;
        let mut rest = &header[..];
        while !rest.is_empty() {
            let (key, _) = pax_record(&mut rest)?;
            if matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(b"GNU.sparse.") {
                return Err(damaged_pax("a global one names or resizes every entry after it"));
            }
        }
        Ok(())
    }

    /// Reads the next `count` bytes of the entry. `count` must be bounded by the caller.
    fn take_bytes(&mut self, count: u64) -> Result<Vec<u8>, WorkspaceError> {
        let mut bytes = Vec::new();
        let read = self.by_ref().take(count).read_to_end(&mut bytes)?;
        if read as u64 == count { Ok(bytes) } else { Err(damaged().into()) }
    }
}

impl Read for TarReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.from.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::Error::other(damaged()));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

impl Extensions {
    /// Counts bytes that are held in memory until the entry is complete.
    fn count(&mut self, size: u64) -> Result<(), WorkspaceError> {
        self.bytes = self.bytes.saturating_add(size.max(1));
        check_headers(self.bytes, MAX_HEADERS_BYTES)
    }
}

/// Refuses `bytes` of headers if they are more than `limit`.
fn check_headers(bytes: u64, limit: u64) -> Result<(), WorkspaceError> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Refusal::invalid(
        format!("the archive has more than {limit} bytes of headers before one entry"),
        "Pack it without extended attributes, long comments and names of more than 4,096 bytes.",
    )
    .with_details(|details| details.limit = Some(limit))
    .into())
}

/// Splits the first record from `rest`, and returns its key and its value.
fn pax_record<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], &'a [u8]), WorkspaceError> {
    let space = rest.iter().position(|byte| *byte == b' ');
    let (length, start) = space
        .and_then(|end| Some((usize::try_from(decimal(&rest[..end])?).ok()?, end + 1)))
        .ok_or_else(|| damaged_pax("a record does not begin with its length"))?;
    let record = rest.split_off(..length).and_then(|record| record.get(start..)?.strip_suffix(b"\n"));
    let record = record.ok_or_else(|| damaged_pax("a record's length is wrong"))?;
    let key = record.iter().position(|byte| *byte == b'=').filter(|end| (1..=MAX_KEY_BYTES).contains(end));
    let end = key.ok_or_else(|| damaged_pax("a record has no key"))?;
    Ok((&record[..end], &record[end + 1..]))
}

fn set_once(name: &mut Option<Vec<u8>>, value: Vec<u8>) -> Result<(), WorkspaceError> {
    if name.replace(value).is_none() { Ok(()) } else { Err(damaged_pax("an entry has two names")) }
}

/// Returns the size in a header, if it is valid: octal digits, or a binary number that is not negative.
fn size_of(header: &Header) -> Option<u64> {
    let is_negative = header.as_old().size[0] == 0xff;
    header.entry_size().ok().filter(|_| !is_negative)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

fn damaged_pax(problem: &str) -> WorkspaceError {
    Refusal::invalid(
        format!("the archive contains a damaged extended header (pax): {problem}"),
        "Pack it again, for example with `tar --format=gnu`.",
    )
    .into()
}
