//! Proof at start-up that the kernel and the file system do all that the guard and the changes of a tree ask of them.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::{LogicalPath, PathRejected};
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{ALWAYS, Blocking, FOLDER_MODE, GuardError, Root};
use crate::import::{open_folder, remove_tree};

/// The folder that the checks use and remove.
const SCRATCH: &str = ".guard-self-test";

/// Checks in a scratch folder of `dir` that an escape by a link is refused, that a mutation refuses any link, that a read
/// learns where a link led, and every operation that changes of a tree need.
///
/// # Errors
///
/// What is missing and what for: the service must not serve then.
pub(crate) fn self_test(dir: BorrowedFd<'_>) -> io::Result<()> {
    remove_tree(dir, SCRATCH.as_bytes())?;
    needed("mkdirat", "to make a folder", rustix::fs::mkdirat(dir, SCRATCH, FOLDER_MODE))?;
    let checked = check(dir);
    let removed = remove_tree(dir, SCRATCH.as_bytes());
    checked.and(removed)
}

fn check(dir: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | ALWAYS;
    let scratch = rustix::fs::openat(dir, SCRATCH, flags, Mode::empty())?;
    for name in ["tree", "tmp"] {
        rustix::fs::mkdirat(&scratch, name, FOLDER_MODE)?;
    }
    let (tree, tmp) = (open_folder(&scratch, "tree")?, open_folder(&scratch, "tmp")?);
    check_changes(&tree, &tmp)?;
    check_opening(&tree)
}

/// What a step of a mutation does: in the order in which it does it.
fn check_changes(tree: &OwnedFd, tmp: &OwnedFd) -> io::Result<()> {
    let make = |dir: &OwnedFd, name: &str| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)
    };
    let staged = needed("openat with O_EXCL", "to stage a file", make(tmp, "staged"))?;
    drop(make(tree, "file")?);
    let mode = Mode::from_raw_mode(0o755);
    let kept = rustix::fs::fchmod(&staged, mode).and_then(|()| rustix::fs::fstat(&staged));
    let kept = needed("fchmod", "to keep a file's permission bits", kept)?;
    demand(Mode::from_raw_mode(kept.st_mode) == mode, "fchmod does not keep a file's permission bits")?;

    let rename = |from: (&OwnedFd, &str), to: (&OwnedFd, &str), flags| {
        rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags)
    };
    let exchanged = rename((tmp, "staged"), (tree, "file"), RenameFlags::EXCHANGE);
    needed("renameat2 with RENAME_EXCHANGE", "to replace a file", exchanged)?;
    let stat = rustix::fs::statat(tree, "file", rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    demand(stat.st_ino == kept.st_ino, "renameat2 with RENAME_EXCHANGE exchanges nothing")?;
    let no_replace = rename((tmp, "staged"), (tree, "file"), RenameFlags::NOREPLACE);
    demand(no_replace != Ok(()), "a rename that must not replace replaces")?;
    let arrived = rename((tmp, "staged"), (tree, "other"), RenameFlags::NOREPLACE);
    needed("renameat2 with RENAME_NOREPLACE", "to create, move and delete a file", arrived)?;

    needed("fsync of a file", "to make a change durable", rustix::fs::fsync(&staged))?;
    needed("fsync of a folder", "to make a change durable", rustix::fs::fsync(tree))?;
    let linked = rustix::fs::symlinkat("file", tree, "inside");
    needed("symlinkat", "to take in a tree with symbolic links", linked)?;
    Ok(rustix::fs::symlinkat("..", tree, "outside")?)
}

/// What every access to a tree relies on.
fn check_opening(tree: &OwnedFd) -> io::Result<()> {
    let path = |raw| LogicalPath::parse(raw).map_err(io::Error::other);
    let root = Root::of_run(tree.try_clone()?);
    let flags = root.resolve | rustix::fs::ResolveFlags::NO_SYMLINKS;
    let opened = super::open_beneath(tree.as_fd(), "file", OFlags::RDONLY | ALWAYS, flags);
    needed("openat2 with RESOLVE_BENEATH", "to open a file", opened)?;
    let cached = flags | rustix::fs::ResolveFlags::CACHED;
    match super::open_beneath(tree.as_fd(), "file", OFlags::RDONLY | ALWAYS, cached) {
        Err(Errno::AGAIN) => {}
        opened => drop(needed("openat2 with RESOLVE_CACHED", "to read without waiting for the disk", opened)?),
    }
    let outside = root.open(&path("outside")?, Blocking::Allowed);
    demand(matches!(outside, Err(GuardError::Rejected(PathRejected::LinkOut))), "a link leads out of its root")?;
    let unlinked = root.open_unlinked(&path("inside")?);
    let refused = matches!(unlinked, Err(GuardError::Rejected(PathRejected::LinkInMutation)));
    demand(refused, "a mutation follows a link")?;
    let inside = root.open(&path("inside")?, Blocking::Allowed).ok().and_then(|opened| opened.real);
    demand(inside == Some(path("file")?), "a followed link does not tell where it led; is /proc mounted?")
}

/// `done`, or the line that says which operation is missing and what for.
fn needed<T>(operation: &str, purpose: &str, done: Result<T, impl Display>) -> io::Result<T> {
    done.map_err(|error| {
        let text = format!("the file system or the kernel lacks {operation}, which is needed {purpose}: {error}");
        unfit(text)
    })
}

fn demand(holds: bool, otherwise: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(unfit(format!("the path guard does not hold here: {otherwise}"))) }
}

/// Why no data folder can be here.
fn unfit(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}
