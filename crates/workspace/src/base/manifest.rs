//! What the tree was when the run began, file by file: so that a diff opens only what has changed.
//!
//! One file beside `repo/`, written once. Folders in order, each with its files in order; hashes apart from what a walk
//! compares, so that the walk stays in the cache.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Crc;

/// What the file begins with; a change of format changes it.
const MAGIC: &[u8; 8] = b"wsbase1\n";

/// A regular file, in git's words.
pub(crate) const MODE_FILE: u32 = 0o100_644;
/// A regular file that may be executed.
pub(crate) const MODE_EXECUTABLE: u32 = 0o100_755;
/// A symbolic link.
pub(crate) const MODE_LINK: u32 = 0o120_000;

/// By what a file is told from any other version of itself without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) inode: u64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
}

impl Stamp {
    /// The stamp in what the kernel says of a file.
    pub(crate) fn of(stat: &rustix::fs::Stat) -> Self {
        let nanos = |seconds: i64, nanos: u64| seconds.wrapping_mul(1_000_000_000).wrapping_add_unsigned(nanos);
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            modified_ns: nanos(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Stamp {
    /// Whether the last change is more than a second ago, so that another one cannot leave the same times.
    #[expect(clippy::disallowed_methods, reason = "compared with times that the file system took from the same clock")]
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let last = u128::try_from(self.changed_ns.max(self.modified_ns)).unwrap_or(0);
        now.saturating_sub(last) > 1_000_000_000
    }
}

/// One file of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The path, as bytes of the disk.
    pub(crate) path: Vec<u8>,
    /// [`MODE_FILE`], [`MODE_EXECUTABLE`] or [`MODE_LINK`].
    pub(crate) mode: u32,
    /// The blob in the base's repository.
    pub(crate) oid: [u8; 20],
    /// Hash of the bytes.
    pub(crate) sha256: [u8; 32],
    /// As it was written.
    pub(crate) stamp: Stamp,
}

/// What is written before the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The base commit.
    pub(crate) commit: String,
    /// The `.gitignore` files of the base, each with the folder it lies in (empty for the root).
    pub(crate) ignores: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The file as bytes.
pub(crate) fn write(head: &Head, mut rows: Vec<Row>) -> Vec<u8> {
    let split = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at);
    rows.sort_unstable_by(|a, b| {
        let (a_dir, b_dir) = (split(&a.path), split(&b.path));
        (&a.path[..a_dir], &a.path[a_dir..]).cmp(&(&b.path[..b_dir], &b.path[b_dir..]))
    });
    let mut out = Vec::with_capacity(rows.len() * 128 + 256);
    out.extend_from_slice(MAGIC);
    put_bytes(&mut out, head.commit.as_bytes());
    put_u32(&mut out, head.ignores.len());
    for (folder, text) in &head.ignores {
        put_bytes(&mut out, folder);
        put_bytes(&mut out, text);
    }
    let folders: Vec<&[Row]> = rows.chunk_by(|a, b| a.path[..split(&a.path)] == b.path[..split(&b.path)]).collect();
    put_u32(&mut out, folders.len());
    put_u32(&mut out, rows.len());
    for files in folders {
        let folder = split(&files[0].path);
        put_bytes(&mut out, &files[0].path[..folder]);
        put_u32(&mut out, files.len());
        for row in files {
            let name = &row.path[folder..];
            put_bytes(&mut out, name.strip_prefix(b"/").unwrap_or(name));
            put_row(&mut out, row);
        }
    }
    let mut crc = Crc::new();
    crc.update(&out);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out
}

fn put_row(out: &mut Vec<u8>, row: &Row) {
    out.extend_from_slice(&row.mode.to_le_bytes());
    out.extend_from_slice(&row.stamp.size.to_le_bytes());
    out.extend_from_slice(&row.stamp.inode.to_le_bytes());
    out.extend_from_slice(&row.stamp.modified_ns.to_le_bytes());
    out.extend_from_slice(&row.stamp.changed_ns.to_le_bytes());
    out.extend_from_slice(&row.oid);
    out.extend_from_slice(&row.sha256);
}

fn put_u32(out: &mut Vec<u8>, count: usize) {
    // Bounded by the limits of an import, far below.
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The base of a run, in memory.
#[derive(Debug)]
pub(crate) struct Manifest {
    names: Vec<u8>,
    /// Every folder that has files in or beneath it, with those that lie in it.
    folders: HashMap<Box<[u8]>, Range<u32>>,
    files: Vec<File>,
    hashes: Vec<([u8; 20], [u8; 32])>,
    /// When it was written, by the clock of the file system.
    written_ns: i64,
}

#[derive(Debug)]
struct File {
    name: Range<u32>,
    mode: u32,
    stamp: Stamp,
}

/// A file of the base, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileIndex(pub(crate) u32);

impl Manifest {
    /// Reads what [`write`] wrote; `written_ns` is when the file was written, by its own stamp.
    pub(crate) fn read(bytes: &[u8], written_ns: i64) -> io::Result<(Head, Self)> {
        let (bytes, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        let mut crc = Crc::new();
        crc.update(bytes);
        if crc.sum() != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let mut input = Input(bytes);
        let head = read_head(&mut input)?;
        let (folder_count, file_count) = (input.u32()?, input.u32()?);
        let mut manifest = Self {
            names: Vec::with_capacity(input.0.len() / 4),
            folders: HashMap::with_capacity(folder_count as usize),
            files: Vec::with_capacity(file_count as usize),
            hashes: Vec::with_capacity(file_count as usize),
            written_ns,
        };
        for _ in 0..folder_count {
            let folder = input.bytes()?;
            let count = input.u32()?;
            let first = manifest.index()?;
            for _ in 0..count {
                manifest.read_file(&mut input)?;
            }
            let files = first..manifest.index()?;
            manifest.add_folders_above(folder);
            manifest.folders.insert(folder.into(), files);
        }
        manifest.names.shrink_to_fit();
        Ok((head, manifest))
    }

    fn add_folders_above(&mut self, mut folder: &[u8]) {
        while !folder.is_empty() {
            folder = folder.iter().rposition(|byte| *byte == b'/').map_or(&[], |at| &folder[..at]);
            if self.folders.contains_key(folder) {
                return;
            }
            self.folders.insert(folder.into(), 0..0);
        }
    }

    fn read_file(&mut self, input: &mut Input<'_>) -> io::Result<()> {
        let start = u32::try_from(self.names.len()).map_err(|_| damaged())?;
        self.names.extend_from_slice(input.bytes()?);
        let end = u32::try_from(self.names.len()).map_err(|_| damaged())?;
        let mode = input.u32()?;
        let stamp = Stamp {
            size: u64::from_le_bytes(input.array()?),
            inode: u64::from_le_bytes(input.array()?),
            modified_ns: i64::from_le_bytes(input.array()?),
            changed_ns: i64::from_le_bytes(input.array()?),
        };
        self.files.push(File { name: start..end, mode, stamp });
        self.hashes.push((input.array()?, input.array()?));
        Ok(())
    }

    fn index(&self) -> io::Result<u32> {
        u32::try_from(self.files.len()).map_err(|_| damaged())
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The files that lie in `folder` itself (empty for the root), in the order of their names.
    pub(crate) fn folder(&self, folder: &[u8]) -> Range<u32> {
        self.folders.get(folder).cloned().unwrap_or(0..0)
    }

    /// Whether any file lies in or beneath `folder`.
    pub(crate) fn has_folder(&self, folder: &[u8]) -> bool {
        self.folders.contains_key(folder)
    }

    /// The file `name` among `files`.
    pub(crate) fn find(&self, files: Range<u32>, name: &[u8]) -> Option<FileIndex> {
        let slice = &self.files[files.start as usize..files.end as usize];
        let at = slice.binary_search_by(|file| self.bytes(&file.name).cmp(name)).ok()?;
        Some(FileIndex(files.start + u32::try_from(at).ok()?))
    }

    /// The file at `path`.
    pub(crate) fn get(&self, path: &[u8]) -> Option<FileIndex> {
        let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        self.find(self.folder(folder), name)
    }

    /// Every folder that has files, with them.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (&[u8], Range<u32>)> {
        self.folders.iter().map(|(path, files)| (&**path, files.clone()))
    }

    /// A file's name.
    pub(crate) fn name(&self, file: FileIndex) -> &[u8] {
        self.bytes(&self.files[file.0 as usize].name)
    }

    /// A file's mode, in git's words.
    pub(crate) fn mode(&self, file: FileIndex) -> u32 {
        self.files[file.0 as usize].mode
    }

    /// A file's size.
    pub(crate) fn size(&self, file: FileIndex) -> u64 {
        self.files[file.0 as usize].stamp.size
    }

    /// A file's blob.
    pub(crate) fn oid(&self, file: FileIndex) -> &[u8; 20] {
        &self.hashes[file.0 as usize].0
    }

    /// The hash of a file's bytes.
    pub(crate) fn sha256(&self, file: FileIndex) -> &[u8; 32] {
        &self.hashes[file.0 as usize].1
    }

    /// Whether `stamp` alone proves that the file is as it was imported.
    pub(crate) fn is_unchanged(&self, file: FileIndex, stamp: &Stamp) -> bool {
        let base = &self.files[file.0 as usize].stamp;
        // A change within the tick of the clock in which the manifest was written would leave the same times.
        base == stamp && base.changed_ns < self.written_ns && base.modified_ns < self.written_ns
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn weight(&self) -> usize {
        self.names.capacity() + self.files.len() * (size_of::<File>() + 52) + self.folders.len() * 96
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.names[range.start as usize..range.end as usize]
    }
}

/// Reads the base commit alone. The input may end anywhere behind it.
pub(crate) fn read_commit(input: &mut Input<'_>) -> io::Result<String> {
    if input.take(MAGIC.len())? != MAGIC {
        return Err(damaged());
    }
    String::from_utf8(input.bytes()?.to_vec()).map_err(|_| damaged())
}

fn read_head(input: &mut Input<'_>) -> io::Result<Head> {
    let commit = read_commit(input)?;
    let count = input.u32()?;
    let ignores = (0..count).map(|_| Ok((input.bytes()?.to_vec(), input.bytes()?.to_vec())));
    Ok(Head { commit, ignores: ignores.collect::<io::Result<_>>()? })
}

/// Bytes that are yet to be read.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| damaged())
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let count = self.u32()?;
        self.take(count as usize)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the base's manifest is damaged")
}
