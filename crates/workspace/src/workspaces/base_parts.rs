//! The parts of a base, for a store outside of this machine: the list of its files, its packs, and the files that git ignores.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use model::RunId;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Workspaces;
use crate::base::{GIT_NAME, MANIFEST_NAME};
use crate::base_files::manifest::{FileIndex, ManifestRow};
use crate::base_files::{BaseEntry, BaseFiles};
use crate::byte_path::is_plain;
use crate::dir::{entries, open_dir, open_file, open_under};
use crate::guard::{FileReader, OpenFile};
use crate::import::FETCHED;

/// The part with the list of the base's files.
pub(super) const MANIFEST_PART: &str = "manifest";
/// The part that lists the commits whose parents are missing.
pub(super) const SHALLOW_PART: &str = "shallow";
/// The part that says that the base was fetched from a repository.
pub(super) const FETCHED_PART: &str = "fetched";
/// What the names of packs begin with.
pub(super) const PACK: &str = "pack-";
/// The part with the files that git ignores.
pub(super) const UNTRACKED_PART: &str = "untracked";
/// How much of an untracked file's header is read.
const MAX_HEADER_BYTES: u64 = 8 << 10;

/// A part of a base.
pub struct BasePart {
    /// Its name: lower-case letters, digits, `.` and `-`.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its bytes.
    pub content: PartContent,
}

/// The bytes of a part of a base.
pub enum PartContent {
    /// Those of a file that nobody changes.
    File(File),
    /// Those that are read.
    Stream(Box<dyn Read + Send>),
}

impl Read for PartContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Stream(stream) => stream.read(buffer),
        }
    }
}

/// One file of the part with the files that git ignores.
pub(super) struct UntrackedFile {
    pub(super) path: Vec<u8>,
    pub(super) mode: u32,
    pub(super) size: u64,
}

impl Workspaces {
    /// Returns the parts that make `run`'s base again. Two bases with the same files have the same list of files; packs may differ.
    ///
    /// # Errors
    ///
    /// If the base is missing or the disk fails.
    pub fn base_parts(&self, run: &RunId) -> io::Result<Vec<BasePart>> {
        let base = self.base(run)?;
        base.drop_other_objects()?;
        let folder = self.bases.folder(base.id())?;
        let mut parts = vec![part_of_file(MANIFEST_PART, open_file(&folder, MANIFEST_NAME)?)?];
        parts.extend(UntrackedReader::part(base.load()?));
        for (name, file) in git_parts(&folder)? {
            parts.push(part_of_file(&name, file)?);
        }
        Ok(parts)
    }
}

/// Returns the files of the base's repository that are parts: `shallow`, the mark that it was fetched, and the packs.
fn git_parts(folder: &OwnedFd) -> io::Result<Vec<(String, File)>> {
    let git_dir = open_dir(folder, GIT_NAME)?;
    let mut parts = Vec::new();
    match open_file(&git_dir, "shallow") {
        Ok(file) => parts.push((SHALLOW_PART.to_owned(), file)),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    if let Ok(fetched) = open_under(&git_dir, FETCHED, OFlags::empty()) {
        parts.push((FETCHED_PART.to_owned(), File::from(fetched)));
    }
    let packs = match open_under(&git_dir, "objects/pack", OFlags::DIRECTORY) {
        Err(Errno::NOENT) => return Ok(parts),
        packs => packs?,
    };
    for (name, _) in entries(&packs, usize::MAX)? {
        if let Some(name) = name.to_str().ok().filter(|name| name.starts_with(PACK)) {
            parts.push((name.to_owned(), open_file(&packs, name)?));
        }
    }
    Ok(parts)
}

fn part_of_file(name: &str, file: File) -> io::Result<BasePart> {
    // A part says by its name alone that the base was fetched.
    if name == FETCHED_PART {
        let content = PartContent::Stream(Box::new(io::empty()));
        return Ok(BasePart { name: name.to_owned(), size_bytes: 0, content });
    }
    Ok(BasePart { name: name.to_owned(), size_bytes: file.metadata()?.len(), content: PartContent::File(file) })
}

/// Reads the files of a base that git ignores: for each its mode, its size and its path up to a NUL, then its bytes; of a link, its
/// target.
struct UntrackedReader {
    files: Arc<BaseFiles>,
    rows: std::vec::IntoIter<(FileIndex, ManifestRow)>,
    header: Cursor<Vec<u8>>,
    content: Option<FileReader>,
}

impl UntrackedReader {
    /// Returns the part; `None` if the base has no such files.
    fn part(files: Arc<BaseFiles>) -> Option<BasePart> {
        let mut rows = files.manifest.indexed_rows();
        rows.retain(|(_, row)| row.is_ignored);
        if rows.is_empty() {
            return None;
        }
        let size_bytes = rows.iter().map(|(_, row)| header_of(row).len() as u64 + row.size).sum();
        let reader = Self { files, rows: rows.into_iter(), header: Cursor::default(), content: None };
        let content = PartContent::Stream(Box::new(reader));
        Some(BasePart { name: UNTRACKED_PART.to_owned(), size_bytes, content })
    }
}

impl Read for UntrackedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = match &mut self.content {
                Some(content) if self.header.position() == self.header.get_ref().len() as u64 => {
                    content.read(buffer)?
                }
                _ => self.header.read(buffer)?,
            };
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some((file, row)) = self.rows.next() else { return Ok(0) };
            self.header = Cursor::new(header_of(&row));
            self.content = Some(OpenFile::Base(Arc::clone(&self.files), BaseEntry::File(file)).into_reader()?);
        }
    }
}

/// Returns what precedes the bytes of an untracked file.
fn header_of(row: &ManifestRow) -> Vec<u8> {
    let mut header = format!("{:o} {} ", row.mode, row.size).into_bytes();
    header.extend_from_slice(&row.path);
    header.push(0);
    header
}

/// Calls `take` with each file of an [`UNTRACKED_PART`] and a reader of its bytes.
pub(super) fn read_untracked(
    from: &mut dyn Read,
    take: &mut dyn FnMut(UntrackedFile, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(1 << 20, from);
    loop {
        let mut header = Vec::new();
        from.by_ref().take(MAX_HEADER_BYTES).read_until(0, &mut header)?;
        if header.is_empty() {
            return Ok(());
        }
        let file = parse_header(&header).filter(|file| is_plain(&file.path));
        let file = file.ok_or_else(|| damaged("the list of untracked files cannot be read"))?;
        let mut bytes = from.by_ref().take(file.size);
        take(file, &mut bytes)?;
        if bytes.limit() > 0 {
            return Err(damaged("an untracked file ends early"));
        }
    }
}

fn parse_header(header: &[u8]) -> Option<UntrackedFile> {
    let header = header.strip_suffix(b"\0")?;
    let mut parts = header.splitn(3, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (mode, size) = (u32::from_str_radix(text()?, 8).ok()?, text()?.parse().ok()?);
    Some(UntrackedFile { path: parts.next()?.to_vec(), mode, size })
}

pub(super) fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Makes `git_dir` a repository that has the base commit `commit` under the name by which others find it.
pub(super) fn set_base_commit(git_dir: &Path, commit: &str, is_fetched: bool) -> io::Result<()> {
    let reference = git_dir.join(if is_fetched { FETCHED } else { "refs/heads/base" });
    if let Some(folder) = reference.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(reference, format!("{commit}\n"))
}
