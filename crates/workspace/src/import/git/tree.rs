//! The tree of a fetched commit: listed, checked entry by entry, and written by [`ImportWriter`].

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write as _};
use std::thread;
use std::time::Duration;

use super::{fetch_error, no_repository};
use crate::WorkspaceError;
use crate::bare::MODE_FOLDER;
use crate::base_files::manifest::{MODE_EXECUTABLE, MODE_FILE, MODE_LINK};
use crate::git::{Bounds, Git, GitError, hex, parse_oid};
use crate::import::quota::{EntryQuota, too_large};
use crate::import::writer::{ImportWriter, git_internal};
use crate::import::{ImportLimits, ImportObserver};

/// The time limit for reading the fetched objects.
const READ_TIME: Duration = Duration::from_mins(15);
/// The maximum length of a link's target, which is a path.
const MAX_LINK_BYTES: u64 = 4096;
/// The git mode of a submodule.
const MODE_SUBMODULE: u32 = 0o160_000;

/// The maximum length of a line of the list: more than the longest possible path.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// One entry of the commit's tree.
pub(super) struct TreeEntry {
    mode: u32,
    oid: [u8; 20],
    path: Vec<u8>,
}

/// Lists the commit's tree; entries that a run cannot have are skipped.
pub(super) fn list(
    git: &Git,
    commit: &str,
    limits: ImportLimits,
    watch: &dyn ImportObserver,
    writer: &mut ImportWriter<'_>,
) -> Result<Vec<TreeEntry>, WorkspaceError> {
    let bounds = Bounds { time: READ_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    // With its folders, so that a tree of folders without files is bounded too.
    let args = ["ls-tree", "-r", "-t", "-z", "--full-tree", "--end-of-options", commit];
    let mut refused = None;
    let listed = git.run(&args, &bounds, |stdin, stdout| {
        drop(stdin);
        let mut from = BufReader::with_capacity(256 * 1024, stdout);
        let (mut entries, mut line) = (Vec::new(), Vec::new());
        let mut last_skipped = Vec::new();
        let mut quota = EntryQuota::new(limits);
        // Nested trees can name an astronomical number of files, so the list is not read to its end.
        let error = loop {
            line.clear();
            if from.by_ref().take(MAX_LINE_BYTES).read_until(0, &mut line)? == 0 {
                return Ok(entries);
            }
            if line.pop() != Some(0) {
                break too_large("bytes in one path", MAX_LINE_BYTES);
            }
            let entry = parse_entry(&line)?;
            if let Err(error) = quota.count(&entry.path) {
                break error;
            }
            entries.extend(keep(entry, &mut last_skipped, writer));
        };
        refused = Some(error);
        Err(io::ErrorKind::FileTooLarge.into())
    });
    listed.map_err(|error| refused.unwrap_or_else(|| fetch_error(error)))
}

fn parse_entry(line: &[u8]) -> io::Result<TreeEntry> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "git ls-tree wrote an unknown line");
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or_else(odd)?;
    let words = std::str::from_utf8(&line[..tab]).map_err(|_| odd())?;
    let [mode, _, oid] = words.split_ascii_whitespace().collect::<Vec<_>>()[..] else { return Err(odd()) };
    let mode = u32::from_str_radix(mode, 8).map_err(|_| odd())?;
    Ok(TreeEntry { mode, oid: parse_oid(oid).ok_or_else(odd)?, path: line[tab + 1..].to_owned() })
}

/// Returns the entry with the mode that a run's tree gives it; `None` if that cannot have it, or has it with its files.
/// `last_skipped` is the Git-internal path that was reported last.
fn keep(entry: TreeEntry, last_skipped: &mut Vec<u8>, writer: &mut ImportWriter<'_>) -> Option<TreeEntry> {
    let TreeEntry { mode, oid, path } = entry;
    if let Some(own) = git_internal(&path) {
        if own != last_skipped {
            writer.skip(own, "a Git-internal path");
            own.clone_into(last_skipped);
        }
        return None;
    }
    if path.split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
        writer.skip(&path, "not a valid file name");
        return None;
    }
    let mode = match mode {
        // A folder is created with its files.
        MODE_FOLDER => return None,
        MODE_LINK | MODE_SUBMODULE => mode,
        mode if mode & 0o170_000 != 0o100_000 => {
            writer.skip(&path, "not a file, folder or symbolic link");
            return None;
        }
        mode if mode & 0o111 == 0 => MODE_FILE,
        _ => MODE_EXECUTABLE,
    };
    Some(TreeEntry { mode, oid, path })
}

/// Writes the files and links. The bytes of those that an earlier base has are not read.
pub(super) fn write(
    git: &Git,
    entries: Vec<TreeEntry>,
    watch: &dyn ImportObserver,
    writer: &mut ImportWriter<'_>,
) -> Result<(), WorkspaceError> {
    let mut new = Vec::new();
    for entry in entries {
        if !write_known(&entry, writer)? {
            new.push(entry);
        }
    }
    if new.is_empty() {
        return Ok(());
    }
    let bounds = Bounds { time: READ_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    let mut failed = None;
    let written = git.run(&["cat-file", "--batch", "--buffer"], &bounds, |to, stdout| {
        thread::scope(|scope| {
            // Another thread sends the requests, since git stops reading them while nobody takes its output.
            scope.spawn(|| {
                let mut to = BufWriter::new(to);
                new.iter().try_for_each(|entry| writeln!(to, "{}", hex(&entry.oid)))?;
                to.flush()
            });
            // Dropped at the first error, which ends git and so that thread.
            let mut from = BufReader::with_capacity(256 * 1024, stdout);
            new.iter().try_for_each(|entry| {
                read_blob(&mut from, |bytes, size| {
                    write_entry(entry, bytes, size, writer).map_err(|error| {
                        failed = Some(error);
                        io::ErrorKind::Interrupted.into()
                    })
                })
            })
        })
    });
    match (failed, written) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(GitError::Io(error))) if error.kind() == io::ErrorKind::InvalidData => Err(no_repository()),
        (None, Err(error)) => Err(fetch_error(error)),
    }
}

/// Calls `take` with the bytes and the size of the blob that git prints next. They need not all be read.
fn read_blob(from: &mut impl BufRead, take: impl FnOnce(&mut dyn Read, u64) -> io::Result<()>) -> io::Result<()> {
    let mut line = String::new();
    from.by_ref().take(256).read_line(&mut line)?;
    let size = line.trim_end().rsplit(' ').next().and_then(|size| size.parse().ok());
    let Some(size) = size.filter(|_| line.contains(" blob ")) else {
        tracing::warn!(line = %line.trim_end(), "an object of a git source is missing");
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut bytes = from.by_ref().take(size);
    take(&mut bytes, size)?;
    io::copy(&mut bytes, &mut io::sink())?;
    from.read_exact(&mut [0])
}

/// Writes a submodule, or a file whose content is known. Returns whether it is one.
fn write_known(entry: &TreeEntry, writer: &mut ImportWriter<'_>) -> Result<bool, WorkspaceError> {
    let TreeEntry { mode, oid, path } = entry;
    let written = match *mode {
        MODE_LINK => return Ok(false),
        MODE_SUBMODULE => writer.submodule(path).map(|()| true),
        mode => writer.known_file(path, mode & 0o777, *oid),
    };
    Ok(writer.skip_unsupported(path, written)?.unwrap_or(true))
}

fn write_entry(
    entry: &TreeEntry,
    bytes: &mut dyn Read,
    size: u64,
    writer: &mut ImportWriter<'_>,
) -> Result<(), WorkspaceError> {
    let TreeEntry { mode, oid, path } = entry;
    // Another file of the tree may have had the content.
    if write_known(entry, writer)? {
        return Ok(());
    }
    let written = if *mode == MODE_LINK {
        let mut target = Vec::new();
        bytes.take(MAX_LINK_BYTES).read_to_end(&mut target)?;
        writer.link(path, &target)
    } else {
        writer.file(path, mode & 0o777, size, Some(*oid), bytes)
    };
    writer.skip_unsupported(path, written).map(drop)
}
