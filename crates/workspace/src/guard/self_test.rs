//! Start-up check that the kernel and the file system support everything that the guard and the changes of a tree need.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use model::{LogicalPath, PathRejected};
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Blocking, FOLDER_MODE, GuardError, OPEN_FLAGS, Root};
use crate::dir::{create_file, make_dir};
use crate::remove::remove_tree;

/// The folder in which the checks run, removed afterwards.
const SCRATCH: &str = ".guard-self-test";

/// Runs every operation that changes of a tree need in a scratch folder of `dir`, and checks that a link out of the tree
/// is refused, and that a mutation refuses any link.
///
/// # Errors
///
/// The missing operation and its purpose. The service must not start then.
pub(crate) fn self_test(dir: BorrowedFd<'_>) -> io::Result<()> {
    remove_tree(dir, SCRATCH.as_bytes())?;
    let checked = check(dir);
    let removed = remove_tree(dir, SCRATCH.as_bytes());
    checked.and(removed)
}

fn check(dir: BorrowedFd<'_>) -> io::Result<()> {
    let scratch = make_dir(dir, SCRATCH, FOLDER_MODE)?;
    let (tree, tmp) = (make_dir(&scratch, "tree", FOLDER_MODE)?, make_dir(&scratch, "tmp", FOLDER_MODE)?);
    // What a mutation does, in its order.
    let staged = create_file(&tmp, "staged")?;
    drop(create_file(&tree, "file")?);
    let rename = |to: &str, flags| rustix::fs::renameat_with(&tmp, "staged", &tree, to, flags);
    needed("renameat2 with RENAME_EXCHANGE", "to replace a file", rename("file", RenameFlags::EXCHANGE))?;
    let replaced = rename("file", RenameFlags::NOREPLACE);
    demand(replaced.is_err(), "renameat2 with RENAME_NOREPLACE replaces a file")?;
    let created = rename("other", RenameFlags::NOREPLACE);
    needed("renameat2 with RENAME_NOREPLACE", "to create, move and delete a file", created)?;
    for file in [staged.as_fd(), tree.as_fd()] {
        needed("fsync", "to make a change durable", rustix::fs::fsync(file))?;
    }
    for (to, link) in [("file", "inside"), ("..", "outside")] {
        let linked = rustix::fs::symlinkat(to, &tree, link);
        needed("symlinkat", "to import a tree with symbolic links", linked)?;
    }
    // What every access to a tree does.
    let path = |raw| LogicalPath::parse(raw).map_err(io::Error::other);
    let root = Root::of_run(tree, None);
    let open = |blocking| root.open_in_own(b"file", OFlags::RDONLY | OPEN_FLAGS, blocking);
    let opened = open(Blocking::Allowed).map_err(with_cause);
    needed("openat2 with RESOLVE_BENEATH", "to open a file", opened)?;
    match open(Blocking::Forbidden) {
        Err(Errno::AGAIN) => {}
        opened => drop(needed("openat2 with RESOLVE_CACHED", "to read without blocking on the disk", opened)?),
    }
    let is_refused =
        matches!(root.open(&path("outside")?, Blocking::Allowed), Err(GuardError::Rejected(PathRejected::LinkOut)));
    demand(is_refused, "a read follows a link out of its root")?;
    let is_refused =
        matches!(root.open_unlinked(&path("inside")?), Err(GuardError::Rejected(PathRejected::LinkInMutation)));
    demand(is_refused, "a mutation follows a link")
}

/// Describes a failure of `openat2` with its probable cause.
fn with_cause(errno: Errno) -> String {
    match errno {
        // systemd's filter of modes cannot look into the argument of openat2, and therefore disables it.
        Errno::NOSYS | Errno::PERM => format!(
            "{errno}. Linux has it since 5.6; on a newer kernel, a filter of system calls disables it: \
             `RestrictSUIDSGID=yes` or `DynamicUser=yes` of a systemd unit, or the seccomp profile of a container"
        ),
        errno => errno.to_string(),
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
