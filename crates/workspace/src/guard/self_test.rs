//! Proof at start-up that the guard holds on this kernel and this file system.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use model::{LogicalPath, PathRejected};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{ALWAYS, FOLDER_MODE, GuardFault, Root, Wait};

/// The folder that the checks use and remove.
const SCRATCH: &str = ".guard-self-test";
const NAMES: [&str; 4] = ["file", "other", "inside", "outside"];

/// Checks in a scratch folder of `dir` that an escape by a link is refused, that a mutation refuses any link, that a read
/// learns where a link led, and that a rename can refuse to replace.
///
/// # Errors
///
/// Where a check fails: the service must not serve then.
pub(crate) fn self_test(dir: BorrowedFd<'_>) -> io::Result<()> {
    clear(dir)?;
    rustix::fs::mkdirat(dir, SCRATCH, FOLDER_MODE)?;
    let checked = check(dir);
    clear(dir)?;
    checked
}

fn check(dir: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
    let scratch = rustix::fs::openat(dir, SCRATCH, flags | OFlags::NOFOLLOW, Mode::empty())?;
    for name in ["file", "other"] {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        rustix::fs::openat(&scratch, name, flags, Mode::RUSR | Mode::WUSR)?;
    }
    rustix::fs::symlinkat("file", &scratch, "inside")?;
    rustix::fs::symlinkat("..", &scratch, "outside")?;
    let no_replace = rustix::fs::renameat_with(&scratch, "file", &scratch, "other", RenameFlags::NOREPLACE);
    demand(no_replace == Err(Errno::EXIST), "a rename that must not replace replaces")?;

    let path = |raw| LogicalPath::parse(raw).map_err(io::Error::other);
    let root = Root::of_run(scratch.as_fd().try_clone_to_owned()?);
    let outside = root.open(&path("outside")?, Wait::Allowed);
    demand(matches!(outside, Err(GuardFault::Rejected(PathRejected::LinkOut))), "a link leads out of its root")?;
    let unlinked = root.open_unlinked(&path("inside")?);
    let refused = matches!(unlinked, Err(GuardFault::Rejected(PathRejected::LinkInMutation)));
    demand(refused, "a mutation follows a link")?;
    let inside = root.open(&path("inside")?, Wait::Allowed).ok().and_then(|opened| opened.real);
    demand(inside == Some(path("file")?), "a followed link does not tell where it led; is /proc mounted?")
}

fn demand(holds: bool, otherwise: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(format!("the path guard does not hold here: {otherwise}"))) }
}

fn clear(dir: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | ALWAYS;
    let scratch = match rustix::fs::openat(dir, SCRATCH, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        done => done?,
    };
    for name in NAMES {
        match rustix::fs::unlinkat(&scratch, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(rustix::fs::unlinkat(dir, SCRATCH, AtFlags::REMOVEDIR)?)
}
