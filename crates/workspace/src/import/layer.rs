//! A layer: a set of changes in the form of a layer of an OCI image. Nothing is unpacked.

use std::io::{self, Read};

use model::{MAX_PATH_BYTES, PathRejected, Refusal, Sha256, WHITEOUT};
use tar::EntryType;

use super::ImportLimits;
use super::archive::clean;
use super::archive::reader::{TarMember, TarReader};
use super::archive::stream::decode;
use super::quota::{EntryQuota, too_large};
use crate::WorkspaceError;
use crate::skipped::shown;

/// The name that stands for all files that a folder had before.
const OPAQUE: &str = ".wh..wh..opq";
/// The compression ratio is not limited by itself: the bytes are.
const ANY_RATIO: u64 = u64::MAX;
/// The most names in a path that is read; how many a new path may have is less.
const MAX_DEPTH: usize = 1024;

/// What a layer may have.
#[derive(Clone, Copy, Debug)]
pub struct LayerLimits {
    /// Files, folders and deletions.
    pub max_entries: u64,
    /// Bytes of all files.
    pub max_bytes: u64,
    /// Bytes of one file. The content of a larger one is not read.
    pub max_file_bytes: u64,
}

/// One change of a layer.
#[derive(Debug)]
pub struct LayerEntry {
    /// The path, relative to the root, without `.`, `..` and doubled slashes; escaped if it is not UTF-8.
    pub path: String,
    /// What becomes of the path.
    pub change: LayerChange,
    /// Which version it replaces, if the layer says so.
    pub base: Option<LayerBase>,
}

/// The version of a file from which an entry of a layer was made; `None` if there was no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerBase(pub Option<Sha256>);

impl LayerBase {
    /// Parses the value of its pax record.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        match std::str::from_utf8(value).ok()? {
            "none" => Some(Self(None)),
            hash => Some(Self(Some(Sha256::parse(hash).ok()?))),
        }
    }
}

/// What a layer does with a path.
#[derive(Debug)]
pub enum LayerChange {
    /// There is a file.
    File {
        /// Its size in bytes.
        size_bytes: u64,
        /// Whether it is executable.
        is_executable: bool,
    },
    /// There is a symbolic link with this target, as its text says.
    Link(Vec<u8>),
    /// A file that is larger than one may be, with its size.
    LargeFile(u64),
    /// There is nothing.
    Deleted,
    /// The folder has only what the layer has in it.
    OnlyThese,
    /// What no change set may have, in words.
    Unsupported(&'static str),
}

/// Reads the entries of a layer, a tar that may be compressed with gzip or zstd. As a [`Read`] it has the content of the current
/// entry, if that is a file; it need not be read. Errors of its reads are refusals once they are a [`WorkspaceError`].
pub struct LayerReader<'a> {
    reader: TarReader<'a>,
    quota: EntryQuota,
    limits: LayerLimits,
    content_bytes: u64,
}

impl<'a> LayerReader<'a> {
    /// Begins to read `layer`.
    ///
    /// # Errors
    ///
    /// As for [`next_entry`](Self::next_entry).
    pub fn new(layer: &'a mut dyn Read, limits: LayerLimits) -> Result<Self, WorkspaceError> {
        let LayerLimits { max_entries, max_bytes, .. } = limits;
        let max_name_bytes = max_entries.saturating_mul(256);
        let all = ImportLimits { max_entries, max_name_bytes, max_bytes, max_depth: MAX_DEPTH, max_ratio: ANY_RATIO };
        let reader = TarReader::new(decode(layer, all).map_err(of_layer)?);
        Ok(Self { reader, quota: EntryQuota::new(all), limits, content_bytes: 0 })
    }

    /// Returns the next entry; `None` at the end. Folders are left out: they exist as soon as they have a file.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the layer is damaged or exceeds a limit; `PATH_REJECTED` for an absolute path, or one with `..` or a NUL; if the
    /// layer cannot be read.
    pub fn next_entry(&mut self) -> Result<Option<LayerEntry>, WorkspaceError> {
        self.read_entry().map_err(of_layer)
    }

    fn read_entry(&mut self) -> Result<Option<LayerEntry>, WorkspaceError> {
        while let Some(mut member) = self.reader.next()? {
            self.quota.count(&member.path)?;
            let Some(path) = clean(&member.path)? else { continue };
            if path.len() > MAX_PATH_BYTES {
                return Err(Refusal::path(&shown(&path), PathRejected::TooLong).into());
            }
            let Some(entry) = entry_of(&mut member, path, self.limits.max_file_bytes) else { continue };
            if let LayerChange::File { size_bytes, .. } = entry.change {
                self.content_bytes = self.content_bytes.saturating_add(size_bytes);
                if self.content_bytes > self.limits.max_bytes {
                    return Err(too_large("bytes of files", self.limits.max_bytes));
                }
            }
            return Ok(Some(entry));
        }
        self.reader.finish()?;
        Ok(None)
    }
}

impl Read for LayerReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer).map_err(|error| match error.downcast() {
            Ok(refusal) => io::Error::other(refusal_of_layer(refusal)),
            Err(error) => error,
        })
    }
}

/// Returns how many bytes a caller that holds all entries of a layer holds in memory, with contents of at most `max_held_bytes`.
///
/// # Errors
///
/// As for [`LayerReader::next_entry`].
pub fn measure_layer(layer: &mut dyn Read, limits: LayerLimits, max_held_bytes: u64) -> Result<u64, WorkspaceError> {
    let (mut bytes, mut content) = (0, 0_u64);
    let mut layer = LayerReader::new(layer, limits)?;
    while let Some(LayerEntry { path, change, base }) = layer.next_entry()? {
        let target = match change {
            LayerChange::Link(target) => target.len(),
            LayerChange::File { size_bytes, .. } => {
                content = content.saturating_add(size_bytes);
                0
            }
            _ => 0,
        };
        // The base of a path is held beside what becomes of it.
        let base = if base.is_some() { 64 + path.len() } else { 0 };
        bytes += 64 + (path.len() + target + base) as u64;
    }
    Ok(bytes + content.min(max_held_bytes))
}

/// Returns what the entry does; `None` if it is a folder.
fn entry_of(member: &mut TarMember, path: Vec<u8>, max_file_bytes: u64) -> Option<LayerEntry> {
    let path = match String::from_utf8(path) {
        Ok(path) => path,
        Err(error) => {
            let path = shown(error.as_bytes());
            let change = LayerChange::Unsupported("a name that is not UTF-8");
            return Some(LayerEntry { path, change, base: None });
        }
    };
    let unsupported = |what| Some(LayerChange::Unsupported(what));
    let change = match member.kind {
        EntryType::Directory => None,
        _ if member.is_sparse => unsupported("a sparse file"),
        EntryType::Regular | EntryType::Continuous if member.size > max_file_bytes => {
            Some(LayerChange::LargeFile(member.size))
        }
        EntryType::Regular | EntryType::Continuous => {
            Some(LayerChange::File { size_bytes: member.size, is_executable: member.mode & 0o111 != 0 })
        }
        // As long as a path may be, with the zero that ends it.
        EntryType::Symlink if member.link.len() >= MAX_PATH_BYTES => unsupported("a symbolic link with a long target"),
        EntryType::Symlink => Some(LayerChange::Link(std::mem::take(&mut member.link))),
        EntryType::Link => unsupported("a hard link"),
        EntryType::Char | EntryType::Block => unsupported("a device"),
        EntryType::Fifo => unsupported("a FIFO"),
        _ => unsupported("an entry of an unknown type"),
    };
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let Some(hidden) = name.strip_prefix(WHITEOUT) else {
        return change.map(|change| LayerEntry { path, change, base: member.base });
    };
    let is_empty = matches!(change, Some(LayerChange::File { .. })) && member.size == 0;
    let (path, change) = match (is_empty, name) {
        (false, _) => (path, LayerChange::Unsupported("a deletion that is no empty file")),
        (true, OPAQUE) if folder.is_empty() => (".".to_owned(), LayerChange::OnlyThese),
        (true, OPAQUE) => (folder.to_owned(), LayerChange::OnlyThese),
        (true, _) if matches!(hidden, "" | "." | "..") || hidden.starts_with(WHITEOUT) => {
            (path, LayerChange::Unsupported("a deletion of no file"))
        }
        (true, _) => (format!("{}{hidden}", &path[..path.len() - name.len()]), LayerChange::Deleted),
    };
    Some(LayerEntry { path, change, base: member.base })
}

fn of_layer(error: WorkspaceError) -> WorkspaceError {
    if let WorkspaceError::Refused(refusal) = error { refusal_of_layer(refusal).into() } else { error }
}

/// Makes the refusal of an archive that of a layer.
fn refusal_of_layer(mut refusal: Refusal) -> Refusal {
    if refusal.details.limit.is_some() {
        "Leave out build output, dependencies and data, or send the change in several sets."
            .clone_into(&mut refusal.hint);
    }
    refusal.message = refusal.message.replace("the archive", "the layer").replace("the source", "the layer");
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LayerLimits = LayerLimits { max_entries: 10, max_bytes: 1000, max_file_bytes: 100 };

    fn layer(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, kind, bytes) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            tar.append(&header, *bytes).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn shown_entries(layer: &[u8]) -> Vec<String> {
        let limits = LayerLimits { max_entries: 20, ..LIMITS };
        let mut shown = Vec::new();
        let mut from = layer;
        let mut layer = LayerReader::new(&mut from, limits).unwrap();
        while let Some(LayerEntry { path, change, base }) = layer.next_entry().unwrap() {
            shown.push(match change {
                LayerChange::File { size_bytes, is_executable } => {
                    let text = io::read_to_string(&mut layer).unwrap();
                    assert_eq!(text.len() as u64, size_bytes);
                    format!("{path}={text}{}", if is_executable { " x" } else { "" })
                }
                LayerChange::Link(target) => format!("{path} -> {}", String::from_utf8(target).unwrap()),
                LayerChange::LargeFile(size) => format!("{path} has {size}"),
                LayerChange::Deleted => format!("-{path}"),
                LayerChange::OnlyThese => format!("only {path}"),
                LayerChange::Unsupported(what) => format!("{path}: {what}"),
            });
            if let (Some(LayerBase(base)), Some(last)) = (base, shown.last_mut()) {
                last.push_str(&base.map_or(" of none".to_owned(), |base| format!(" of {base}")));
            }
        }
        shown
    }

    /// Reads the entries without their contents. Returns how many there are.
    fn count(layer: &[u8], limits: LayerLimits) -> Result<u64, WorkspaceError> {
        let (mut from, mut count) = (layer, 0);
        let mut layer = LayerReader::new(&mut from, limits)?;
        while layer.next_entry()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    fn refused(layer: &[u8], limits: LayerLimits) -> Refusal {
        match count(layer, limits) {
            Err(WorkspaceError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_and_deletions_are_read_in_any_compression() {
        use EntryType::{Directory, Fifo, Regular, Symlink};
        let tar = layer(&[
            ("./a/", Directory, b""),
            ("./a/b.txt", Regular, b"b"),
            ("a/.wh.gone", Regular, b""),
            (".wh.top", Regular, b""),
            ("d/.wh..wh..opq", Regular, b""),
            ("large", Regular, &[b'x'; 101]),
            ("pipe", Fifo, b""),
            ("link", Symlink, b""),
            ("a/.wh.full", Regular, b"x"),
            ("a/.wh..", Regular, b""),
            ("a/.wh...", Regular, b""),
        ]);
        let expected = [
            "a/b.txt=b x",
            "-a/gone",
            "-top",
            "only d",
            "large has 101",
            "pipe: a FIFO",
            "link -> ",
            "a/.wh.full: a deletion that is no empty file",
            "a/.wh..: a deletion of no file",
            "a/.wh...: a deletion of no file",
        ];
        assert_eq!(shown_entries(&tar), expected);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &tar).unwrap();
        assert_eq!(shown_entries(&gzip.finish().unwrap()), expected);
        assert_eq!(shown_entries(&zstd::encode_all(&tar[..], 1).unwrap()), expected);
    }

    #[test]
    fn an_entry_says_which_version_it_replaces() {
        use EntryType::{Regular, XHeader};
        let hash = Sha256::of(b"old").to_string();
        let known = format!("84 WORKSPACED.base={hash}\n");
        let tar = layer(&[
            ("x", XHeader, known.as_bytes()),
            ("a", Regular, b"new"),
            ("x", XHeader, b"24 WORKSPACED.base=none\n"),
            ("b", Regular, b""),
            ("x", XHeader, known.as_bytes()),
            ("d/.wh.c", Regular, b""),
            ("e", Regular, b""),
        ]);
        let of = format!(" of {hash}");
        assert_eq!(
            shown_entries(&tar),
            [format!("a=new x{of}"), "b= x of none".into(), format!("-d/c{of}"), "e= x".into()]
        );
        let wrong = layer(&[("x", XHeader, b"23 WORKSPACED.base=old\n"), ("a", Regular, b"")]);
        assert!(refused(&wrong, LIMITS).message.contains("neither a hash nor `none`"));
    }

    #[test]
    fn limits_and_paths_refuse_the_whole_layer() {
        use EntryType::Regular;
        let refusal = |entries: &[(&str, EntryType, &[u8])]| refused(&layer(entries), LIMITS).message;
        assert!(refusal(&[("../a", Regular, b"")]).contains("`..`"));
        assert!(refusal(&[("/a", Regular, b"")]).contains("absolute"));
        let many: Vec<_> = (0..11).map(|n| format!("f{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), Regular, &b""[..])).collect();
        assert_eq!(refusal(&many), "the layer has more than 10 entries");
        let full: Vec<_> = many[..9].iter().map(|(name, ..)| (*name, Regular, &[b'a'; 100][..])).collect();
        assert_eq!(count(&layer(&full), LayerLimits { max_bytes: 900, ..LIMITS }).unwrap(), 9);
        let over = refused(&layer(&full), LayerLimits { max_bytes: 899, ..LIMITS });
        assert_eq!(over.message, "the layer has more than 899 bytes of files");
        // What is not read is bounded too: 1,000 bytes of files and 2,048 of headers for each of ten entries.
        let bomb = zstd::encode_all(&layer(&[("a", Regular, &vec![b'a'; 30_000])])[..], 1).unwrap();
        assert!(bomb.len() < 200, "{}", bomb.len());
        assert_eq!(refused(&bomb, LIMITS).message, "the layer is too large when unpacked");
        assert_eq!(refused(b"no tar", LIMITS).message, "the layer is damaged, or is not a tar, tar.gz or tar.zst");
        let tar = layer(&[("a", Regular, b"aaaa"), ("b", Regular, b"bb")]);
        let measured = |held| measure_layer(&mut &tar[..], LIMITS, held).unwrap();
        assert_eq!((measured(100), measured(5)), (2 * 65 + 6, 2 * 65 + 5));
    }

    #[test]
    fn a_content_that_cannot_be_read_is_refused_or_an_error_of_the_stream() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let zeros = layer(&[("a", EntryType::Regular, &[0; 100])]);
        let read = |from: &mut dyn Read| {
            let mut layer = LayerReader::new(from, LIMITS)?;
            while layer.next_entry()?.is_some() {
                io::copy(&mut layer, &mut io::sink())?;
            }
            Ok(())
        };
        read(&mut &zeros[..]).unwrap();
        match read(&mut &zeros[..550]) {
            Err(WorkspaceError::Refused(refusal)) => assert!(refusal.message.starts_with("the layer is damaged")),
            other => panic!("{other:?}"),
        }
        match read(&mut zeros[..550].chain(Broken)) {
            Err(WorkspaceError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sparse_file_is_not_supported_and_the_entries_after_it_are_read() {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..1].copy_from_slice(b"s");
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(4);
        header.as_gnu_mut().unwrap().set_is_extended(true);
        header.set_cksum();
        let map = tar::GnuExtSparseHeader::new();
        let mut content = [0; 512];
        content[..4].copy_from_slice(b"part");
        let after = layer(&[
            ("x", EntryType::XHeader, b"22 GNU.sparse.major=1\n"),
            ("p", EntryType::Regular, b"1"),
            ("a", EntryType::Regular, b"a"),
        ]);
        let whole = [header.as_bytes(), map.as_bytes(), &content, &after[..]].concat();
        assert_eq!(shown_entries(&whole), ["s: a sparse file", "p: a sparse file", "a=a x"]);
    }
}
