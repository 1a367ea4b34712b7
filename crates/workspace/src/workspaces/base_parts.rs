//! The parts of a base, for a store outside of this machine: the list of its files, its packs, and the files that git ignores.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read, Seek as _, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use model::RunId;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Workspaces;
use crate::base::manifest::{self, BaseManifest, MODE_LINK, ManifestRow};
use crate::base::{GIT_NAME, MANIFEST_NAME, MAX_MANIFEST_BYTES};
use crate::byte_path::is_plain;
use crate::dir::{entries, open_dir, open_file, open_under};
use crate::git::{Bounds, Git, GitError};
use crate::import::{FETCHED, Untracked};
use crate::stamp::FileStamp;

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
/// The time limit for packing the objects of a base.
const PACK_SECONDS: u64 = 900;
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
    /// Returns the parts of `run`'s base, which was just imported and is not open yet. Two runs with the same base have the same list
    /// of files; packs may differ.
    ///
    /// # Errors
    ///
    /// If the disk or git fails.
    pub fn base_parts(&self, run: &RunId, untracked: &Untracked) -> io::Result<Vec<BasePart>> {
        let dir = open_dir(&self.dir, run.as_str())?;
        let untracked = (!untracked.0.is_empty()).then(|| write_untracked(&dir, &untracked.0)).transpose()?;
        self.parts_in(run, &dir, untracked)
    }

    /// Returns the parts of the base of `run`, whose folder is `dir`, with the part `untracked`.
    pub(super) fn parts_in(&self, run: &RunId, dir: &OwnedFd, untracked: Option<File>) -> io::Result<Vec<BasePart>> {
        let git = Git::new(self.path.join(run.as_str()).join(GIT_NAME), &self.home);
        pack_loose_objects(&git)?;
        let mut parts = vec![part_of_bytes(MANIFEST_PART, list_of_files(dir)?)];
        if let Some(untracked) = untracked {
            parts.push(part_of_file(UNTRACKED_PART, untracked)?);
        }
        let git_dir = open_dir(dir, GIT_NAME)?;
        match open_file(&git_dir, "shallow") {
            Ok(file) => parts.push(part_of_file(SHALLOW_PART, file)?),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        if open_under(&git_dir, FETCHED, OFlags::empty()).is_ok() {
            parts.push(part_of_bytes(FETCHED_PART, Vec::new()));
        }
        let packs = open_under(&git_dir, "objects/pack", OFlags::DIRECTORY)?;
        for (name, _) in entries(&packs, usize::MAX)? {
            if let Some(name) = name.to_str().ok().filter(|name| name.starts_with(PACK)) {
                parts.push(part_of_file(name, open_file(&packs, name)?)?);
            }
        }
        Ok(parts)
    }
}

/// Packs the objects that git has stored one by one, as it does with few.
fn pack_loose_objects(git: &Git) -> io::Result<()> {
    let is_loose = |entry: io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name().len() == 2);
    if !std::fs::read_dir(git.dir().join("objects"))?.any(is_loose) {
        return Ok(());
    }
    let packed = git.run(&["repack", "-d", "-n", "-q"], &Bounds::seconds(PACK_SECONDS), |_, _| Ok(()));
    packed.map_err(|error| match error {
        GitError::Io(error) => error,
        error => io::Error::other(error),
    })
}

/// Returns the manifest of the run in `dir` without the stamps of its files, which are those of this machine.
pub(super) fn list_of_files(dir: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(dir, MANIFEST_NAME)?.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
    let (head, manifest) = manifest::read(&bytes, 0)?;
    let (rows, folders) = rows_of(&manifest);
    let folders = folders.into_iter().map(|folder| (folder, FileStamp::default())).collect();
    Ok(manifest::write(&head, rows, folders))
}

/// Returns the files of a manifest, without stamps, and its folders.
pub(super) fn rows_of(manifest: &BaseManifest) -> (Vec<ManifestRow>, Vec<Vec<u8>>) {
    let folders = manifest.sorted_folders().into_iter().map(<[u8]>::to_vec).collect();
    let without_stamp =
        |row: ManifestRow| ManifestRow { stamp: FileStamp { size: row.stamp.size, ..FileStamp::default() }, ..row };
    (manifest.rows().into_iter().map(without_stamp).collect(), folders)
}

fn part_of_bytes(name: &str, bytes: Vec<u8>) -> BasePart {
    BasePart { name: name.to_owned(), size_bytes: bytes.len() as u64, content: Box::new(Cursor::new(bytes)) }
}

fn part_of_file(name: &str, file: File) -> io::Result<BasePart> {
    Ok(BasePart { name: name.to_owned(), size_bytes: file.metadata()?.len(), content: Box::new(file) })
}

/// Writes the untracked files of the run in `dir` to a file without a name: for each its mode, its size and its path up to a NUL,
/// then its bytes; of a link, its target.
fn write_untracked(dir: &OwnedFd, rows: &[ManifestRow]) -> io::Result<File> {
    let root = open_dir(dir, "repo")?;
    let mut to = BufWriter::with_capacity(1 << 20, unnamed_file(dir)?);
    for ManifestRow { path, mode, stamp, .. } in rows {
        write_header(&mut to, path, *mode, stamp.size)?;
        let copied = if *mode == MODE_LINK {
            let target = rustix::fs::readlinkat(&root, &path[..], Vec::new())?.into_bytes();
            io::copy(&mut &target[..], &mut to)?
        } else {
            let opened = File::from(open_under(root.as_fd(), &path[..], OFlags::empty())?);
            io::copy(&mut opened.take(stamp.size), &mut to)?
        };
        if copied != stamp.size {
            return Err(io::Error::other("an imported file changed before its run was created"));
        }
    }
    let mut file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

/// Creates a file without a name in the folder `dir` of a run.
pub(super) fn unnamed_file(dir: &OwnedFd) -> io::Result<File> {
    let tmp = open_dir(dir, "tmp")?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(&tmp, ".", flags, rustix::fs::Mode::RUSR)?))
}

/// Writes what precedes the bytes of an untracked file.
pub(super) fn write_header(to: &mut dyn Write, path: &[u8], mode: u32, size: u64) -> io::Result<()> {
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
