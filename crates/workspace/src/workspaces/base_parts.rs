//! The parts of a base, for a store outside of this machine: the list of its files, its packs, and the files that git ignores.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read, Seek as _, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use model::RunId;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{RunEntry, RunEntryKind, Workspaces};
use crate::base::manifest::{MODE_LINK, ManifestRow};
use crate::base::{Base, GIT_NAME, MANIFEST_NAME};
use crate::byte_path::is_plain;
use crate::dir::{entries, open_dir, open_file, open_under};
use crate::import::FETCHED;

/// What the paths of a base begin with in a backup.
pub(super) const BASE_PATH: &[u8] = b"base";
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
    pub content: Box<dyn Read + Send>,
}

/// One file of the part with the files that git ignores.
pub(super) struct UntrackedFile {
    pub(super) path: Vec<u8>,
    pub(super) mode: u32,
    pub(super) size: u64,
}

impl Workspaces {
    /// Returns the parts of `run`'s base. Two bases with the same files have the same list of files; packs may differ.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn base_parts(&self, run: &RunId) -> io::Result<Vec<BasePart>> {
        let base = self.base(run)?;
        let mut parts = vec![part_of_bytes(MANIFEST_PART, base.manifest_bytes()?)];
        let untracked: Vec<_> = base.load()?.manifest.rows().into_iter().filter(|row| row.is_ignored).collect();
        if !untracked.is_empty() {
            let tmp = open_dir(open_dir(&self.dir, run.as_str())?, "tmp")?;
            parts.push(part_of_file(UNTRACKED_PART, write_untracked(&base, &tmp, &untracked)?)?);
        }
        for (name, file) in git_parts(&self.bases.folder(base.id())?)? {
            parts.push(if name == FETCHED_PART {
                part_of_bytes(&name, Vec::new())
            } else {
                part_of_file(&name, file)?
            });
        }
        Ok(parts)
    }

    /// Calls `take` with every file that makes `run`'s base again, for a backup: the list of its files, the parts of its repository,
    /// and the files that git ignores. A link has no content.
    ///
    /// # Errors
    ///
    /// If the base is missing, the disk fails, or `take` does.
    pub fn visit_base(
        &self,
        run: &RunId,
        take: &mut dyn FnMut(RunEntry, Option<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let base = self.base(run)?;
        let folder = self.bases.folder(base.id())?;
        let entry = |name: &[u8], kind| RunEntry { path: [BASE_PATH, b"/", name].concat(), kind };
        let file = RunEntryKind::File { mode: 0o600 };
        take(entry(MANIFEST_PART.as_bytes(), file.clone()), Some(open_file(&folder, MANIFEST_NAME)?))?;
        for (name, content) in git_parts(&folder)? {
            take(entry(name.as_bytes(), file.clone()), Some(content))?;
        }
        for row in base.load()?.manifest.rows().into_iter().filter(|row| row.is_ignored) {
            let path = [UNTRACKED_PART.as_bytes(), b"/", &row.path].concat();
            if row.mode == MODE_LINK {
                let mut target = Vec::new();
                base.content_of(&row)?.read_to_end(&mut target)?;
                take(entry(&path, RunEntryKind::Link { target }), None)?;
            } else {
                take(entry(&path, RunEntryKind::File { mode: row.mode & 0o777 }), Some(base.open_file(&row.path)?))?;
            }
        }
        Ok(())
    }
}

/// Returns the files of the repository of the base in `folder` that make it again: those of the first kind of each part.
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

fn part_of_bytes(name: &str, bytes: Vec<u8>) -> BasePart {
    BasePart { name: name.to_owned(), size_bytes: bytes.len() as u64, content: Box::new(Cursor::new(bytes)) }
}

fn part_of_file(name: &str, file: File) -> io::Result<BasePart> {
    Ok(BasePart { name: name.to_owned(), size_bytes: file.metadata()?.len(), content: Box::new(file) })
}

/// Writes the untracked files of a base to a file without a name in `tmp`: for each its mode, its size and its path up to a NUL,
/// then its bytes; of a link, its target.
fn write_untracked(base: &Base, tmp: &OwnedFd, rows: &[ManifestRow]) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(tmp, ".", flags, rustix::fs::Mode::RUSR)?);
    let mut to = BufWriter::with_capacity(1 << 20, file);
    for row in rows {
        write_header(&mut to, &row.path, row.mode, row.size)?;
        if io::copy(&mut base.content_of(row)?.take(row.size), &mut to)? != row.size {
            return Err(damaged("a file of a base ends early"));
        }
    }
    let mut file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

/// Writes what precedes the bytes of an untracked file.
fn write_header(to: &mut dyn Write, path: &[u8], mode: u32, size: u64) -> io::Result<()> {
    write!(to, "{mode:o} {size} ")?;
    to.write_all(path)?;
    to.write_all(b"\0")
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
