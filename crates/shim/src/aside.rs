//! Versions that the run did not take are put aside, so that the run's version can take their place.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;

use crate::apply::remove_empty_folders;
use crate::entry::check_path;
use crate::error::ShimError;
use crate::handles::{FolderCursor, ParentFolder, name_of, open_folder};
use crate::incoming::remove_tree;
use crate::index::{CheckoutIndex, IndexFolder};
use crate::scan::{LookedAt, look};

/// The folder, in that of the index, of what was put aside.
const ASIDE: &str = "aside";

/// Moves what differs from the index at `paths` into a folder beside the tree, from which the versions of an earlier call are removed.
/// Returns the paths that differed: a layer may write the run's version of each.
pub(crate) fn put_aside(
    root: &OwnedFd,
    own: &IndexFolder,
    index: &CheckoutIndex,
    paths: &[String],
) -> Result<BTreeSet<String>, ShimError> {
    let failed = ShimError::of("the folder of what is put aside");
    remove_tree(&own.dir, ASIDE).map_err(&failed)?;
    let mut differing = BTreeSet::new();
    if paths.is_empty() {
        return Ok(differing);
    }
    rustix::fs::mkdirat(&own.dir, ASIDE, Mode::RWXU).map_err(&failed)?;
    let cloned = root.try_clone().map_err(|error| ShimError::io("the folder", error))?;
    let (mut from, mut to) =
        (FolderCursor::new(cloned), FolderCursor::new(open_folder(&own.dir, ASIDE).map_err(&failed)?));
    for path in paths {
        check_path(path).map_err(|why| ShimError::Refused(format!("{path:?}: {why}")))?;
        if let ParentFolder::Folder(dir) = from.parent_of(path).map_err(ShimError::of(path))? {
            match look(dir, path, index.entries.get(path))? {
                LookedAt::Unchanged(_) => continue,
                LookedAt::Node(..) => {
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let ParentFolder::Folder(aside) = to.enter(folder, true).map_err(ShimError::of(path))? else {
                        return Err(ShimError::Refused(format!("{path}: it cannot be put aside")));
                    };
                    let name = name_of(path);
                    rustix::fs::renameat(dir, name, aside, name).map_err(ShimError::of(path))?;
                    remove_empty_folders(&mut from, path)?;
                }
                LookedAt::Absent | LookedAt::Folder | LookedAt::Special => {}
            }
        }
        differing.insert(path.clone());
    }
    Ok(differing)
}
