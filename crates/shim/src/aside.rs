//! Versions that the run did not take are put aside, so that the run's version can take their place.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, Stat};
use rustix::io::Errno;

use crate::entry::{MAX_DEPTH, NodeKind, OWN_FOLDER, size_of};
use crate::error::ShimError;
use crate::handles::{FolderCursor, ParentFolder, for_each_entry, name_of, open_folder, stat};
use crate::incoming::{remove_empty_folders, remove_tree};
use crate::index::{CheckoutIndex, IndexEntry, IndexFolder};
use crate::scan::{LookedAt, look};

/// The folder, in that of the index, of what was put aside.
const ASIDE: &str = "aside";
/// What stands for bytes of a name that are not UTF-8.
const REPLACEMENT: char = '\u{fffd}';

/// Moves what differs from the index at `paths` into a folder beside the tree, from which the versions of an earlier call are removed.
/// What is in the place of a folder of one of them goes too. Returns the paths that differed: a layer may write the run's version of each.
pub(crate) fn put_aside(
    root: &OwnedFd,
    own: &IndexFolder,
    index: &CheckoutIndex,
    paths: &[String],
) -> Result<BTreeSet<String>, ShimError> {
    remove_tree(&own.dir, ASIDE).map_err(ShimError::of("the folder of what is put aside"))?;
    add_aside(root, own, index, paths)
}

/// As [`put_aside`], and keeps what an earlier call has moved.
pub(crate) fn add_aside(
    root: &OwnedFd,
    own: &IndexFolder,
    index: &CheckoutIndex,
    paths: &[String],
) -> Result<BTreeSet<String>, ShimError> {
    if paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    let failed = ShimError::of("the folder of what is put aside");
    match rustix::fs::mkdirat(&own.dir, ASIDE, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let to = FolderCursor::new(open_folder(&own.dir, ASIDE).map_err(&failed)?);
    let from = FolderCursor::new(root.try_clone().map_err(|error| ShimError::io("the folder", error))?);
    let mut moves = Moves { index, from, to, differing: BTreeSet::new() };
    for path in paths.iter().filter(|path| is_in_tree(path)) {
        moves.path(path)?;
    }
    Ok(moves.differing)
}

struct Moves<'a> {
    index: &'a CheckoutIndex,
    from: FolderCursor,
    to: FolderCursor,
    differing: BTreeSet<String>,
}

impl Moves<'_> {
    fn path(&mut self, path: &str) -> Result<(), ShimError> {
        let above = match self.from.parent_of(path).map_err(ShimError::of(path))? {
            ParentFolder::NoFolder(above) => Some(above),
            ParentFolder::Folder(_) | ParentFolder::Missing => None,
        };
        if self.away(above.as_deref().unwrap_or(path))? {
            self.differing.insert(path.to_owned());
        }
        Ok(())
    }

    /// Moves what is at `path`, whatever it is. Returns whether the version of the index is not there.
    fn away(&mut self, path: &str) -> Result<bool, ShimError> {
        let mut is_moved = false;
        if let ParentFolder::Folder(dir) = self.from.parent_of(path).map_err(ShimError::of(path))? {
            for (name, found) in named(dir, path).map_err(ShimError::of(path))? {
                if is_unchanged(dir, path, &found, self.index.entries.get(path)) {
                    return Ok(false);
                }
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let ParentFolder::Folder(aside) = self.to.enter(folder, true).map_err(ShimError::of(path))? else {
                    return Err(ShimError::Refused(format!("{path}: it cannot be put aside")));
                };
                rustix::fs::renameat(dir, &name, aside, &name).map_err(ShimError::of(path))?;
                is_moved = true;
            }
        }
        if is_moved {
            remove_empty_folders(&mut self.from, path)?;
            // What the run has in a folder that could not be looked into.
            self.differing.extend(self.index.beneath(path).cloned());
        }
        Ok(true)
    }
}

/// Whether a path of a scan, odd names included, is one in the tree, and not in the folder of the index or in `.git`.
fn is_in_tree(path: &str) -> bool {
    let is_name = |(at, name): (usize, &str)| {
        at < MAX_DEPTH
            && !matches!(name, "" | "." | "..")
            && !name.contains('\0')
            // Some file systems take both cases for one name.
            && !name.eq_ignore_ascii_case(".git")
            && (at > 0 || !name.eq_ignore_ascii_case(OWN_FOLDER))
    };
    path.split('/').enumerate().all(is_name)
}

/// Returns what is at `path`, whose folder is `dir`: several entries, if bytes of their names are replaced in it.
fn named(dir: BorrowedFd<'_>, path: &str) -> Result<Vec<(CString, Stat)>, Errno> {
    let name = name_of(path);
    if let Some(found) = stat(dir, name)? {
        return Ok(CString::new(name).map(|name| vec![(name, found)]).unwrap_or_default());
    }
    let mut names = Vec::new();
    if name.contains(REPLACEMENT) {
        for_each_entry(dir, |raw, _| {
            if raw.to_string_lossy() == name
                && let Some(found) = stat(dir, raw)?
            {
                names.push((raw.to_owned(), found));
            }
            Ok::<_, Errno>(())
        })?;
    }
    Ok(names)
}

/// Whether the version of the index is at `path`. What cannot be read is not, and what is of another size need not be read.
fn is_unchanged(dir: BorrowedFd<'_>, path: &str, found: &Stat, known: Option<&IndexEntry>) -> bool {
    known.is_some_and(|known| {
        NodeKind::of(found) == Some(known.version.kind)
            && size_of(found) == known.stamp.size
            && matches!(look(dir, path, Some(known)), Ok(LookedAt::Unchanged(_)))
    })
}
