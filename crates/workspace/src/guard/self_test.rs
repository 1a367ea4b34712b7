//! Start-up check that the kernel and the file system support everything that the guard and the changes of a tree need.

use std::fmt::{self, Display};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::{LogicalPath, PathRejected};
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Blocking, FOLDER_MODE, GuardError, OPEN_FLAGS, Root};
use crate::dir::open_dir;
use crate::remove::remove_tree;

/// The folder in which the checks run, removed afterwards.
const SCRATCH: &str = ".guard-self-test";

/// Runs every operation that changes of a tree need in a scratch folder of `dir`, and checks that a link out of the tree
/// is refused, that a mutation refuses any link, and that a read learns the real path of a link.
///
/// # Errors
///
/// The missing operation and its purpose. The service must not start then.
pub(crate) fn self_test(dir: BorrowedFd<'_>) -> io::Result<()> {
    remove_tree(dir, SCRATCH.as_bytes())?;
    needed("mkdirat", "to make a folder", rustix::fs::mkdirat(dir, SCRATCH, FOLDER_MODE))?;
    let checked = check(dir);
    let removed = remove_tree(dir, SCRATCH.as_bytes());
    checked.and(removed)
}

fn check(dir: BorrowedFd<'_>) -> io::Result<()> {
    let scratch = open_dir(dir, SCRATCH)?;
    for name in ["tree", "tmp"] {
        rustix::fs::mkdirat(&scratch, name, FOLDER_MODE)?;
    }
    let (tree, tmp) = (open_dir(&scratch, "tree")?, open_dir(&scratch, "tmp")?);
    check_changes(&tree, &tmp)?;
    check_opening(&tree)
}

/// The operations of a mutation, in the order in which it uses them.
fn check_changes(tree: &OwnedFd, tmp: &OwnedFd) -> io::Result<()> {
    let make = |dir: &OwnedFd, name: &str| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OPEN_FLAGS;
        rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)
    };
    let staged = needed("openat with O_EXCL", "to stage a file", make(tmp, "staged"))?;
    drop(make(tree, "file")?);
    let mode = Mode::from_raw_mode(0o755);
    let chmodded = rustix::fs::fchmod(&staged, mode).and_then(|()| rustix::fs::fstat(&staged));
    let chmodded = needed("fchmod", "to set a file's permission bits", chmodded)?;
    demand(Mode::from_raw_mode(chmodded.st_mode) == mode, "fchmod does not set a file's permission bits")?;

    let rename = |from: (&OwnedFd, &str), to: (&OwnedFd, &str), flags| {
        rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags)
    };
    let exchanged = rename((tmp, "staged"), (tree, "file"), RenameFlags::EXCHANGE);
    needed("renameat2 with RENAME_EXCHANGE", "to replace a file", exchanged)?;
    let stat = rustix::fs::statat(tree, "file", rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    demand(stat.st_ino == chmodded.st_ino, "renameat2 with RENAME_EXCHANGE exchanges nothing")?;
    let no_replace = rename((tmp, "staged"), (tree, "file"), RenameFlags::NOREPLACE);
    demand(no_replace != Ok(()), "renameat2 with RENAME_NOREPLACE replaces a file")?;
    let arrived = rename((tmp, "staged"), (tree, "other"), RenameFlags::NOREPLACE);
    needed("renameat2 with RENAME_NOREPLACE", "to create, move and delete a file", arrived)?;

    needed("fsync of a file", "to make a change durable", rustix::fs::fsync(&staged))?;
    needed("fsync of a folder", "to make a change durable", rustix::fs::fsync(tree))?;
    let linked = rustix::fs::symlinkat("file", tree, "inside");
    needed("symlinkat", "to import a tree with symbolic links", linked)?;
    Ok(rustix::fs::symlinkat("..", tree, "outside")?)
}

/// The operations of every access to a tree.
fn check_opening(tree: &OwnedFd) -> io::Result<()> {
    let path = |raw| LogicalPath::parse(raw).map_err(io::Error::other);
    let root = Root::of_run(tree.try_clone()?, None);
    let flags = root.resolve | rustix::fs::ResolveFlags::NO_SYMLINKS;
    let opened = super::open_under(tree.as_fd(), "file", OFlags::RDONLY | OPEN_FLAGS, flags);
    needed("openat2 with RESOLVE_BENEATH", "to open a file", opened.map_err(Openat2Error))?;
    let cached = flags | rustix::fs::ResolveFlags::CACHED;
    match super::open_under(tree.as_fd(), "file", OFlags::RDONLY | OPEN_FLAGS, cached) {
        Err(Errno::AGAIN) => {}
        opened => drop(needed("openat2 with RESOLVE_CACHED", "to read without blocking on the disk", opened)?),
    }
    let outside = root.open(&path("outside")?, Blocking::Allowed);
    demand(
        matches!(outside, Err(GuardError::Rejected(PathRejected::LinkOut))),
        "a read follows a link out of its root",
    )?;
    let unlinked = root.open_unlinked(&path("inside")?);
    let refused = matches!(unlinked, Err(GuardError::Rejected(PathRejected::LinkInMutation)));
    demand(refused, "a mutation follows a link")?;
    let inside = root.open(&path("inside")?, Blocking::Allowed).ok().and_then(|opened| opened.real);
    demand(inside == Some(path("file")?), "a read does not find what a link leads to")
}

/// A failure of `openat2`, shown with its probable cause.
struct Openat2Error(Errno);

impl Display for Openat2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        if matches!(self.0, Errno::NOSYS | Errno::PERM) {
            // systemd's filter of modes cannot look into the argument of openat2, and therefore disables it.
            f.write_str(
                ". Linux has it since 5.6; on a newer kernel, a filter of system calls disables it: \
                 `RestrictSUIDSGID=yes` or `DynamicUser=yes` of a systemd unit, or the seccomp profile of a container",
            )?;
        }
        Ok(())
    }
}

/// Returns the value of `done`, or an error that names the missing operation and its purpose.
fn needed<T>(operation: &str, purpose: &str, done: Result<T, impl Display>) -> io::Result<T> {
    done.map_err(|error| {
        let text = format!("the file system or the kernel lacks {operation}, which is needed {purpose}: {error}");
        unsupported(text)
    })
}

fn demand(holds: bool, otherwise: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(unsupported(format!("the path guard does not work here: {otherwise}"))) }
}

/// The data folder cannot be on this file system.
fn unsupported(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}
