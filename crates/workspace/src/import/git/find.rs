//! Locating what would be read of a git repository on this machine.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::no_repository;
use crate::import::ImportError;
use crate::skipped::shown;

/// Returns the git folder of the repository at `path`, if `is_allowed` accepts everything that it refers to.
///
/// A repository can refer to other folders: `.git` may be a file, `commondir` and `objects/info/alternates` name folders, and
/// any of these may be a symbolic link. An import reads those folders too, so each must be allowed.
#[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
pub(in crate::import) fn find(path: &Path, is_allowed: &dyn Fn(&Path) -> bool) -> Result<PathBuf, ImportError> {
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
    check_objects(&real(&common.join("objects"))?, &real, 0)?;
    Ok(git_dir)
}

/// Returns the folder in which the repository at `path` is checked out; `None` for a bare one.
#[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
pub(in crate::import) fn work_tree(path: &Path) -> Option<PathBuf> {
    path.join(".git").exists().then(|| std::fs::canonicalize(path).ok()).flatten()
}

fn check_objects(
    objects: &Path,
    real: &dyn Fn(&Path) -> Result<PathBuf, ImportError>,
    depth: usize,
) -> Result<(), ImportError> {
    const MAX_ALTERNATES: usize = 5;
    check_no_links(objects)?;
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

/// Refuses symbolic links among the objects, as git's own local clone does.
fn check_no_links(objects: &Path) -> Result<(), ImportError> {
    let mut folders = vec![objects.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                tracing::info!(name = %shown(entry.file_name().as_encoded_bytes()), "a git source has a link among its objects");
                return Err(no_repository());
            }
            if kind.is_dir() && folder == objects {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

fn read_small(path: &Path) -> Result<String, ImportError> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(64 * 1024).read_to_string(&mut text).map_err(|_| no_repository())?;
    Ok(text)
}
