//! The bare repository of a run: made without a template, filled by `fast-import` where the source is no repository.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use sha1::Digest as _;

use super::{ImportError, ImportObserver};
use crate::base::manifest::{MODE_LINK, Row};
use crate::git::{Bounds, Git, GitError, hex, parse_oid};

/// How long writing the base's objects may take.
const COMMIT_TIME: Duration = Duration::from_mins(15);
/// Who made a base that no repository had; with a fixed time, so that the same files give the same commit.
const COMMITTER: &str = "workspaced <workspaced@localhost> 0 +0000";
const MESSAGE: &str = "What the run started with\n";

/// Makes an empty bare repository in the folder `git_dir`, which must not exist.
pub(crate) fn make(git_dir: &Path) -> io::Result<()> {
    std::fs::create_dir(git_dir)?;
    for folder in ["objects", "refs", "refs/heads"] {
        std::fs::create_dir(git_dir.join(folder))?;
    }
    std::fs::write(git_dir.join("HEAD"), "ref: refs/heads/base\n")?;
    std::fs::write(git_dir.join("config"), "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n")
}

/// How many bytes of objects there are. What cannot be looked at counts as nothing: git may be moving it.
pub(super) fn size(git_dir: &Path) -> u64 {
    let folder = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum::<u64>()
    };
    folder(&git_dir.join("objects")) + folder(&git_dir.join("objects/pack"))
}

/// Commits `rows`, whose bytes lie below `root`, and returns the commit.
pub(super) fn commit(
    git: &Git,
    root: BorrowedFd<'_>,
    rows: &[Row],
    watch: &dyn ImportObserver,
) -> Result<String, ImportError> {
    if rows.is_empty() {
        return Ok(commit_nothing(git.dir())?);
    }
    let bounds = Bounds { time: COMMIT_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    let args = ["fast-import", "--quiet", "--done", "--depth=0", "--force"];
    let said = git.talk(&args, &bounds, |stdin, stdout| {
        let mut to = BufWriter::with_capacity(256 * 1024, stdin);
        write_blobs(&mut to, root, rows, watch)?;
        write_commit(&mut to, rows)?;
        to.flush()?;
        drop(to);
        let mut line = String::new();
        BufReader::new(stdout).take(256).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    });
    match said {
        Ok(commit) if parse_oid(&commit).is_some() => Ok(commit),
        Ok(_) => Err(io::Error::other("git fast-import named no commit").into()),
        Err(GitError::Cancelled) => Err(ImportError::Cancelled),
        Err(GitError::Io(error)) => Err(error.into()),
        Err(error) => Err(io::Error::other(error).into()),
    }
}

fn write_blobs(to: &mut impl Write, root: BorrowedFd<'_>, rows: &[Row], watch: &dyn ImportObserver) -> io::Result<()> {
    let mut written = HashSet::with_capacity(rows.len());
    let (mut files, mut bytes) = (0, 0);
    for row in rows.iter().filter(|row| written.insert(row.oid)) {
        write!(to, "blob\ndata {}\n", row.stamp.size)?;
        if row.mode == MODE_LINK {
            let target = rustix::fs::readlinkat(root, &row.path[..], Vec::new())?;
            to.write_all(target.as_bytes())?;
        } else {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let fd = rustix::fs::openat2(root, &row.path[..], flags, Mode::empty(), resolve)?;
            io::copy(&mut File::from(fd).take(row.stamp.size), to)?;
        }
        to.write_all(b"\n")?;
        files += 1;
        bytes += row.stamp.size;
        if files % 500 == 0 {
            watch.progress("committing", files, bytes);
        }
    }
    Ok(())
}

fn write_commit(to: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    write!(to, "commit refs/heads/base\nmark :1\ncommitter {COMMITTER}\ndata {}\n{MESSAGE}", MESSAGE.len())?;
    for row in rows {
        write!(to, "M {:o} {} ", row.mode, hex(&row.oid))?;
        write_quoted(to, &row.path)?;
        to.write_all(b"\n")?;
    }
    to.write_all(b"\nget-mark :1\ndone\n")
}

/// A path as `fast-import` takes it whatever it holds.
pub(crate) fn write_quoted(to: &mut impl Write, path: &[u8]) -> io::Result<()> {
    to.write_all(b"\"")?;
    for byte in path {
        match byte {
            b'"' | b'\\' => to.write_all(&[b'\\', *byte])?,
            0x20..=0x7e => to.write_all(&[*byte])?,
            byte => write!(to, "\\{byte:03o}")?,
        }
    }
    to.write_all(b"\"")
}

/// A commit without files, by hand: a run that starts with nothing needs no git to start.
fn commit_nothing(git_dir: &Path) -> io::Result<String> {
    let tree = write_object(git_dir, "tree", b"")?;
    let text = format!("tree {tree}\nauthor {COMMITTER}\ncommitter {COMMITTER}\n\n{MESSAGE}");
    let commit = write_object(git_dir, "commit", text.as_bytes())?;
    std::fs::write(git_dir.join("refs/heads/base"), format!("{commit}\n"))?;
    Ok(commit)
}

fn write_object(git_dir: &Path, kind: &str, bytes: &[u8]) -> io::Result<String> {
    let mut object = format!("{kind} {}\0", bytes.len()).into_bytes();
    object.extend_from_slice(bytes);
    let name = hex(&sha1::Sha1::digest(&object));
    let folder = git_dir.join("objects").join(&name[..2]);
    std::fs::create_dir_all(&folder)?;
    let mut out = ZlibEncoder::new(File::create(folder.join(&name[2..]))?, Compression::fast());
    out.write_all(&object)?;
    out.finish()?;
    Ok(name)
}
