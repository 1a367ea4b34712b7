//! Copying the base of a run that started from the same commit of the same repository: nothing is fetched or hashed again.
//!
//! There is no store of bases: every run keeps its own, and any run of the commit can serve as the source of the next one.
//! Packs are shared as hard links, which the file system counts, and files are cloned, so that a base exists as long as some
//! run refers to it, whenever the process is killed.

mod files;
mod index;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use model::{RunId, Sha256};
use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::fill::{Destination, FilledRun};
use super::git::{FETCHED, GitOrigin};
use super::quota::SkippedReport;
use super::tracked::Untracked;
use super::writer::ENTRY_BYTES;
use super::{ImportError, ImportObserver};
use crate::base::manifest::{self, MODE_LINK, ManifestRow};
use crate::base::{GIT_NAME, MANIFEST_NAME, MAX_MANIFEST_BYTES};
use crate::dir::{create_file, entries, open_dir, open_file};
use crate::stamp::FileStamp;

pub(super) use index::ReuseIndex;

/// The file beside `repo/` that says where a base is from.
pub(crate) const NAME: &str = "base.source";
/// The version of the rules by which a commit becomes a tree. Bases of other rules are not reused.
const RULES: u32 = 2;
/// The maximum size of the file: a report of skipped entries, and the names of a few packs.
const MAX_BYTES: u64 = 1 << 20;

/// Why a base was not copied.
pub(super) enum CopyError {
    /// It is damaged or being removed. Another one may do.
    Unusable(io::Error),
    /// The import has failed.
    Import(ImportError),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Another base would fail as well.
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Import(error.into()),
            _ => Self::Unusable(error),
        }
    }
}

impl From<rustix::io::Errno> for CopyError {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

/// Where a base is from, and what belongs to it.
#[derive(Serialize, Deserialize)]
struct Description {
    rules: u32,
    origin: Sha256,
    commit: String,
    manifest_sha256: Sha256,
    /// The packs that the import fetched. Later objects belong to the run alone.
    packs: Vec<String>,
    skipped: SkippedReport,
}

/// Identifies the repository of `origin`: two repositories may name the same commit, and only one of them may be readable.
pub(super) fn origin_id(origin: &GitOrigin<'_>) -> Sha256 {
    match origin {
        GitOrigin::Remote { url, .. } => Sha256::of(format!("remote\n{url}").as_bytes()),
        GitOrigin::Local { path, .. } => Sha256::of(&[b"local\n", path.as_os_str().as_encoded_bytes()].concat()),
    }
}

/// Describes the base that was imported, so that other runs can reuse it.
pub(super) fn describe(to: &Destination<'_>, origin: Sha256, done: &FilledRun) -> io::Result<()> {
    let mut packs = Vec::new();
    for entry in std::fs::read_dir(to.git.dir().join("objects/pack"))? {
        packs.extend(entry?.file_name().into_string().ok().filter(|name| name.starts_with("pack-")));
    }
    write_description(
        to.folder,
        &Description {
            rules: RULES,
            origin,
            commit: done.base_commit.clone(),
            manifest_sha256: done.manifest_sha256,
            packs,
            skipped: done.skipped.clone(),
        },
    )
}

fn write_description(dir: &OwnedFd, description: &Description) -> io::Result<()> {
    create_file(dir, NAME)?.write_all(&serde_json::to_vec(description)?)
}

fn read_description(dir: &OwnedFd) -> io::Result<Description> {
    let mut bytes = Vec::new();
    open_file(dir, NAME)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Copies the base of `run`, and its tree, if it is that of the commit and undamaged. Files that `run` has
/// changed since are read from the base's objects.
pub(super) fn copy(
    to: &Destination<'_>,
    run: &RunId,
    (origin, commit): (Sha256, &str),
    watch: &dyn ImportObserver,
) -> Result<FilledRun, CopyError> {
    let from = open_dir(to.runs, run.as_str())?;
    let description = read_description(&from)?;
    if (description.rules, description.origin, description.commit.as_str()) != (RULES, origin, commit) {
        return Err(damaged("it is another base").into());
    }
    let mut bytes = Vec::new();
    let file = open_file(&from, MANIFEST_NAME)?;
    let written = FileStamp::of(&rustix::fs::fstat(&file)?);
    file.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
    let (head, manifest) = manifest::read(&bytes, written.modified_ns)?;
    let folders = manifest.sorted_folders();
    let rows = manifest.rows();
    if head.commit != description.commit || manifest::digest(&rows) != description.manifest_sha256 {
        return Err(damaged("its manifest does not match").into());
    }
    let is_link = |row: &&ManifestRow| row.mode == MODE_LINK;
    let bytes: u64 = rows.iter().filter(|row| !is_link(row)).map(|row| row.stamp.size).sum();
    let entries_of_no_size = (folders.len() + rows.iter().filter(is_link).count()) as u64;
    watch
        .check_quota(rows.len() as u64, bytes.saturating_add(entries_of_no_size * ENTRY_BYTES))
        .map_err(|refusal| CopyError::Import(refusal.into()))?;
    link_objects(&from, to.folder, &description)?;
    let (rows, folders) = files::copy(&from, to.folder, &to.git, &manifest, &folders, watch)?;
    let (files, entries) = (rows.len() as u64, rows.len() + folders.len());
    create_file(to.folder, MANIFEST_NAME)?.write_all(&manifest::write(&head, rows, folders))?;
    write_description(to.folder, &description)?;
    Ok(FilledRun {
        base_commit: head.commit.clone(),
        manifest_sha256: description.manifest_sha256,
        files,
        bytes,
        skipped: description.skipped,
        entries,
        reusable: Some((origin, head.commit)),
        untracked: Untracked::default(),
    })
}

/// Links the packs of the base in `from` into the repository in `to`, and sets its ref.
fn link_objects(from: &OwnedFd, to: &OwnedFd, description: &Description) -> io::Result<()> {
    let (from, to) = (open_dir(from, GIT_NAME)?, open_dir(to, GIT_NAME)?);
    let from_packs = open_dir(open_dir(&from, "objects")?, "pack")?;
    let objects = open_dir(&to, "objects")?;
    make_dir(&objects, "pack")?;
    let packs = open_dir(objects, "pack")?;
    for name in &description.packs {
        match rustix::fs::linkat(&from_packs, name.as_str(), &packs, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    if entries(&from, usize::MAX)?.iter().any(|(name, _)| name.to_bytes() == b"shallow") {
        let mut commits = Vec::new();
        open_file(&from, "shallow")?.take(MAX_BYTES).read_to_end(&mut commits)?;
        replace_file(&to, "shallow", &commits)?;
    }
    let mut folder = to;
    let mut names = FETCHED.split('/').peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return replace_file(&folder, name, format!("{}\n", description.commit).as_bytes());
        }
        make_dir(&folder, name)?;
        folder = open_dir(&folder, name)?;
    }
    Ok(())
}

fn make_dir(dir: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn replace_file(dir: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir.as_fd(), name, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(file).write_all(bytes)
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
