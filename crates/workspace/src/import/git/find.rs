//! Locating what would be read of a git repository on this machine.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::no_repository;
use crate::WorkspaceError;
use crate::skipped::shown;

/// Returns the git folder of the repository at `path`, if `is_allowed` accepts everything that it refers to.
///
/// A repository can refer to other folders: `.git` may be a file, `commondir` and `objects/info/alternates` name folders, and
/// any of these may be a symbolic link. An import reads those folders too, so each must be allowed.
#[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
pub(in crate::import) fn find(path: &Path, is_allowed: &dyn Fn(&Path) -> bool) -> Result<PathBuf, WorkspaceError> {
    let real = |path: &Path| std::fs::canonicalize(path).ok().filter(|real| is_allowed(real)).ok_or_else(no_repository);
    let dot_git = path.join(".git");
    let git_dir = match std::fs::symlink_metadata(&dot_git) {
        Ok(meta) if meta.is_file() => {
            let text = read_small(&dot_git)?;
            real(&path.join(text.strip_prefix("gitdir:").ok_or_else(no_repository)?.trim()))?
        }
        Ok(_) => real(&dot_git)?,
        Err(_) => real(path)?,
    };
    let common = git_dir.join("commondir");
    let common = if common.exists() { real(&git_dir.join(read_small(&common)?.trim()))? } else { git_dir.clone() };
    if !git_dir.join("HEAD").exists() {
        return Err(no_repository());
    }
    check_regular(&git_dir)?;
    check_regular(&common)?;
    check_objects(&real(&common.join("objects"))?, &real, 0)?;
    Ok(git_dir)
}

/// Returns the folder in which the repository at `path` is checked out; `None` for a bare one.
#[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
pub(in crate::import) fn work_tree(path: &Path) -> Option<PathBuf> {
    path.join(".git").exists().then(|| std::fs::canonicalize(path).ok()).flatten()
}

/// Refuses a FIFO, a socket or a device, also behind a link, in place of a file that git reads: it could wait for it without end.
fn check_regular(git_dir: &Path) -> Result<(), WorkspaceError> {
    const FILES: [&str; 7] = ["HEAD", "config", "config.worktree", "index", "info/grafts", "packed-refs", "shallow"];
    let mut pending: Vec<_> = FILES.iter().map(|name| git_dir.join(name)).collect();
    pending.push(git_dir.join("refs"));
    while let Some(path) = pending.pop() {
        // What a link leads to may be missing, or in another folder, which is not listed.
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        if !meta.is_file() && !meta.is_dir() {
            return Err(special(&path));
        }
        if meta.is_dir() && !path.is_symlink() {
            // Git may be removing the folder.
            pending.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    Ok(())
}

fn special(path: &Path) -> WorkspaceError {
    let name = path.file_name().unwrap_or_default();
    tracing::info!(name = %shown(name.as_encoded_bytes()), "a git source has something else than a file among its files");
    no_repository()
}

fn check_objects(
    objects: &Path,
    real: &dyn Fn(&Path) -> Result<PathBuf, WorkspaceError>,
    depth: usize,
) -> Result<(), WorkspaceError> {
    const MAX_ALTERNATES: usize = 5;
    check_entries(objects)?;
    let alternates = objects.join("info/alternates");
    if !alternates.exists() {
        return Ok(());
    }
    if depth == MAX_ALTERNATES {
        return Err(no_repository());
    }
    for line in read_small(&alternates)?.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        // git unquotes such names; no import needs them.
        if line.starts_with('"') {
            return Err(no_repository());
        }
        check_objects(&real(&objects.join(line))?, real, depth + 1)?;
    }
    Ok(())
}

/// Refuses symbolic links among the objects, as git's own local clone does, and what git would wait for.
fn check_entries(objects: &Path) -> Result<(), WorkspaceError> {
    let mut folders = vec![objects.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if !kind.is_file() && !kind.is_dir() {
                return Err(special(&entry.path()));
            }
            if kind.is_dir() && folder == objects {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

fn read_small(path: &Path) -> Result<String, WorkspaceError> {
    let mut text = String::new();
    let read = open_regular(path).and_then(|file| file.take(64 * 1024).read_to_string(&mut text));
    read.map_err(|_| no_repository())?;
    Ok(text)
}

/// Opens a file of a source. A FIFO or a device is an error.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}
