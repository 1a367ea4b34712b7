//! The bare repository of a run: created without a template, and filled by `fast-import` if the source is not a repository.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::Digest as _;

use super::{ImportError, ImportObserver};
use crate::base_files::NewContents;
use crate::base_files::manifest::ManifestRow;
use crate::git::{Bounds, Git, hex, parse_oid};

/// The time limit for writing the base's objects.
const COMMIT_TIME: Duration = Duration::from_mins(15);
/// The committer of a base that no repository had. The time is fixed, so that the same files give the same commit.
const COMMITTER: &str = "workspaced <workspaced@localhost> 0 +0000";
const MESSAGE: &str = "What the run started with\n";

/// Creates an empty bare repository in `git_dir`, which must not exist.
pub(crate) fn make(git_dir: &Path) -> io::Result<()> {
    std::fs::create_dir(git_dir)?;
    for folder in ["objects", "refs", "refs/heads"] {
        std::fs::create_dir(git_dir.join(folder))?;
    }
    std::fs::write(git_dir.join("HEAD"), "ref: refs/heads/base\n")?;
    std::fs::write(git_dir.join("config"), "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n")
}

/// Makes the repository in `git_dir` read the objects of the one in `from`.
pub(crate) fn borrow(git_dir: &Path, from: &Path) -> io::Result<()> {
    std::fs::create_dir_all(git_dir.join("objects/info"))?;
    let mut objects = from.join("objects").into_os_string().into_encoded_bytes();
    objects.push(b'\n');
    std::fs::write(git_dir.join("objects/info/alternates"), objects)?;
    // A commit that was fetched without its history has this file.
    match std::fs::copy(from.join("shallow"), git_dir.join("shallow")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the size of all objects. Unreadable entries count as empty, since git may be moving them.
pub(super) fn size(git_dir: &Path) -> u64 {
    let folder = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum::<u64>()
    };
    folder(&git_dir.join("objects")) + folder(&git_dir.join("objects/pack"))
}

/// Commits `rows`, whose bytes are in `contents`, and returns the commit.
pub(super) fn commit(
    git: &Git,
    contents: &NewContents,
    rows: &[&ManifestRow],
    watch: &dyn ImportObserver,
) -> Result<String, ImportError> {
    if rows.is_empty() {
        return Ok(commit_nothing(git.dir())?);
    }
    let bounds = Bounds { time: COMMIT_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    let args = ["fast-import", "--quiet", "--done", "--depth=0", "--force"];
    let commit = git.run(&args, &bounds, |stdin, stdout| {
        let mut to = BufWriter::with_capacity(256 * 1024, stdin);
        write_blobs(&mut to, contents, rows, watch)?;
        write_commit(&mut to, rows)?;
        to.flush()?;
        drop(to);
        let mut line = String::new();
        BufReader::new(stdout).take(256).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    })?;
    if parse_oid(&commit).is_some() {
        Ok(commit)
    } else {
        Err(io::Error::other("git fast-import printed no commit").into())
    }
}

fn write_blobs(
    to: &mut impl Write,
    contents: &NewContents,
    rows: &[&ManifestRow],
    watch: &dyn ImportObserver,
) -> io::Result<()> {
    let mut written = HashSet::with_capacity(rows.len());
    let (mut files, mut bytes) = (0, 0);
    for row in rows.iter().filter(|row| written.insert(row.oid)) {
        write!(to, "blob\ndata {}\n", row.size)?;
        io::copy(&mut contents.read(&row.sha256, row.size)?, to)?;
        to.write_all(b"\n")?;
        files += 1;
        bytes += row.size;
        if files % 500 == 0 {
            watch.progress("committing", files, bytes);
        }
    }
    Ok(())
}

fn write_commit(to: &mut impl Write, rows: &[&ManifestRow]) -> io::Result<()> {
    write!(to, "commit refs/heads/base\nmark :1\ncommitter {COMMITTER}\ndata {}\n{MESSAGE}", MESSAGE.len())?;
    for row in rows {
        write!(to, "M {:o} {} ", row.mode, hex(&row.oid))?;
        write_quoted(to, &row.path)?;
        to.write_all(b"\n")?;
    }
    to.write_all(b"\nget-mark :1\ndone\n")
}

/// Writes a path in the quoted form of `fast-import`, which allows any byte.
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

/// Writes a commit without files, without starting git.
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
