//! A layer: a set of changes in the form of a layer of an OCI image. Nothing is unpacked.

use std::io::Read as _;
use std::rc::Rc;

use model::{MAX_PATH_BYTES, PathRejected, Refusal, WHITEOUT};
use tar::EntryType;

use super::archive::clean;
use super::archive::reader::{TarMember, TarReader};
use super::archive::stream::{Meter, decode};
use super::quota::{EntryQuota, shown, too_large};
use super::{ImportError, ImportLimits};

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
}

/// What a layer does with a path.
#[derive(Debug)]
pub enum LayerChange {
    /// There is a file.
    File {
        /// Its content; empty if [`measure_layer`] asked.
        bytes: Vec<u8>,
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

/// Reads `layer`, a tar that may be compressed with gzip or zstd. Folders are not returned: they exist as soon as they have a file.
///
/// # Errors
///
/// `INVALID_REQUEST` if it is damaged or exceeds a limit; `PATH_REJECTED` for an absolute path, or one with `..` or a NUL.
pub fn read_layer(layer: &[u8], limits: LayerLimits) -> Result<Vec<LayerEntry>, Refusal> {
    let mut entries = Vec::new();
    each_entry(layer, limits, true, |entry| entries.push(entry))?;
    Ok(entries)
}

/// Returns how many bytes [`read_layer`] would hold in memory, with names.
///
/// # Errors
///
/// As for [`read_layer`].
pub fn measure_layer(layer: &[u8], limits: LayerLimits) -> Result<u64, Refusal> {
    let mut bytes = 0;
    let content = each_entry(layer, limits, false, |LayerEntry { path, change }| {
        let target = if let LayerChange::Link(target) = change { target.len() } else { 0 };
        bytes += 64 + (path.len() + target) as u64;
    })?;
    Ok(bytes + content)
}

/// Calls `found` with each entry, with its content if `with_content`. Returns the bytes of all contents.
fn each_entry(
    mut layer: &[u8],
    limits: LayerLimits,
    with_content: bool,
    mut found: impl FnMut(LayerEntry),
) -> Result<u64, Refusal> {
    let LayerLimits { max_entries, max_bytes, max_file_bytes } = limits;
    let max_name_bytes = max_entries.saturating_mul(256);
    let limits = ImportLimits { max_entries, max_name_bytes, max_bytes, max_depth: MAX_DEPTH, max_ratio: ANY_RATIO };
    let meter = Rc::new(Meter::new(limits));
    let mut quota = EntryQuota::new(limits);
    let mut content_bytes = 0;
    let mut read = || {
        let mut reader = TarReader::new(decode(&mut layer, &meter)?, meter.clone());
        while let Some(mut member) = reader.next()? {
            quota.count(&member.path)?;
            let Some(path) = clean(&member.path)? else { continue };
            if path.len() > MAX_PATH_BYTES {
                return Err(Refusal::path(&shown(&path), PathRejected::TooLong).into());
            }
            let Some(mut entry) = entry_of(&mut member, path, max_file_bytes) else { continue };
            if let LayerChange::File { bytes, .. } = &mut entry.change {
                content_bytes += member.size;
                if content_bytes > max_bytes {
                    return Err(too_large("bytes of files", max_bytes));
                }
                if with_content {
                    bytes.reserve_exact(usize::try_from(member.size).unwrap_or_default());
                    let read = (&mut reader).take(member.size).read_to_end(bytes);
                    read.map_err(|error| meter.error(&error))?;
                }
            }
            found(entry);
        }
        reader.finish()
    };
    match read() {
        Ok(()) => Ok(content_bytes),
        Err(ImportError::Refused(refusal)) => Err(of_layer(refusal)),
        // The bytes are in memory.
        Err(ImportError::Io(_) | ImportError::Cancelled) => {
            Err(Refusal::invalid("the layer cannot be read", "Send a complete tar, tar.gz or tar.zst."))
        }
    }
}

/// Returns what the entry does; `None` if it is a folder.
fn entry_of(member: &mut TarMember, path: Vec<u8>, max_file_bytes: u64) -> Option<LayerEntry> {
    let path = match String::from_utf8(path) {
        Ok(path) => path,
        Err(error) => {
            let path = shown(error.as_bytes());
            return Some(LayerEntry { path, change: LayerChange::Unsupported("a name that is not UTF-8") });
        }
    };
    let unsupported = |what| Some(LayerChange::Unsupported(what));
    let change = match member.kind {
        EntryType::Directory => None,
        _ if member.is_pax_sparse || member.sparse.is_some() => unsupported("a sparse file"),
        EntryType::Regular | EntryType::Continuous if member.size > max_file_bytes => {
            Some(LayerChange::LargeFile(member.size))
        }
        EntryType::Regular | EntryType::Continuous => {
            Some(LayerChange::File { bytes: Vec::new(), is_executable: member.is_executable })
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
        return change.map(|change| LayerEntry { path, change });
    };
    let is_empty = matches!(change, Some(LayerChange::File { .. })) && member.size == 0;
    let (path, change) = match (is_empty, name) {
        (false, _) => (path, LayerChange::Unsupported("a deletion that is no empty file")),
        (true, OPAQUE) if folder.is_empty() => (".".to_owned(), LayerChange::OnlyThese),
        (true, OPAQUE) => (folder.to_owned(), LayerChange::OnlyThese),
        (true, _) if matches!(hidden, "" | "." | "..") || hidden.starts_with(WHITEOUT) => {
            (path, LayerChange::Unsupported("a deletion of no file"))
        }
        (true, _) => (join(folder, hidden), LayerChange::Deleted),
    };
    Some(LayerEntry { path, change })
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Returns a refusal of an archive as that of a layer.
fn of_layer(refusal: Refusal) -> Refusal {
    let Refusal { message, hint, details, code } = refusal;
    let hint = if details.limit.is_some() {
        "Leave out build output, dependencies and data, or send the change in several sets.".to_owned()
    } else {
        hint
    };
    let message = message.replace("the archive", "the layer").replace("the source", "the layer");
    Refusal { message, hint, details, code }
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
        let show = |LayerEntry { path, change }| match change {
            LayerChange::File { bytes, is_executable } => {
                format!("{path}={}{}", String::from_utf8(bytes).unwrap(), if is_executable { " x" } else { "" })
            }
            LayerChange::Link(target) => format!("{path} -> {}", String::from_utf8(target).unwrap()),
            LayerChange::LargeFile(size) => format!("{path} has {size}"),
            LayerChange::Deleted => format!("-{path}"),
            LayerChange::OnlyThese => format!("only {path}"),
            LayerChange::Unsupported(what) => format!("{path}: {what}"),
        };
        let limits = LayerLimits { max_entries: 20, ..LIMITS };
        read_layer(layer, limits).unwrap().into_iter().map(show).collect()
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
    fn limits_and_paths_refuse_the_whole_layer() {
        use EntryType::Regular;
        let refusal = |entries: &[(&str, EntryType, &[u8])]| read_layer(&layer(entries), LIMITS).unwrap_err().message;
        assert!(refusal(&[("../a", Regular, b"")]).contains("`..`"));
        assert!(refusal(&[("/a", Regular, b"")]).contains("absolute"));
        let many: Vec<_> = (0..11).map(|n| format!("f{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), Regular, &b""[..])).collect();
        assert_eq!(refusal(&many), "the layer has more than 10 entries");
        let full: Vec<_> = many[..9].iter().map(|(name, ..)| (*name, Regular, &[b'a'; 100][..])).collect();
        assert_eq!(read_layer(&layer(&full), LayerLimits { max_bytes: 900, ..LIMITS }).unwrap().len(), 9);
        let refused = read_layer(&layer(&full), LayerLimits { max_bytes: 899, ..LIMITS }).unwrap_err();
        assert_eq!(refused.message, "the layer has more than 899 bytes of files");
        // What is not read is bounded too: 1,000 bytes of files and 2,048 of headers for each of ten entries.
        let bomb = zstd::encode_all(&layer(&[("a", Regular, &vec![b'a'; 30_000])])[..], 1).unwrap();
        assert!(bomb.len() < 200, "{}", bomb.len());
        let refused = read_layer(&bomb, LIMITS).unwrap_err();
        assert_eq!(refused.message, "the layer is too large when unpacked");
        assert_eq!(
            read_layer(b"no tar", LIMITS).unwrap_err().message,
            "the layer is damaged, or is not a tar, tar.gz or tar.zst"
        );
        let tar = layer(&[("a", Regular, b"aaaa"), ("b", Regular, b"bb")]);
        assert_eq!(measure_layer(&tar, LIMITS).unwrap(), 2 * 65 + 6);
    }
}
