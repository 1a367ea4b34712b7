//! A fetched commit's tree: listed, judged entry by entry, and written by the sink.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::thread;
use std::time::Duration;

use super::{fetch_error, no_repository};
use crate::base::manifest::{MODE_EXECUTABLE, MODE_FILE, MODE_LINK};
use crate::git::{Bounds, Git, hex, parse_oid};
use crate::import::sink::{ImportWriter, Tally, WriteError, is_git_internal, too_large};
use crate::import::{ImportError, ImportLimits, ImportObserver};

/// How long reading the fetched objects may take.
const READ_TIME: Duration = Duration::from_mins(15);
/// A link's target is a path.
const MAX_LINK_BYTES: u64 = 4096;
/// A tree in a tree.
const MODE_FOLDER: u32 = 0o040_000;

/// How long a line of the list may be: the longest path that a folder could have, and more.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// One file of the commit's tree.
pub(super) struct TreeEntry {
    mode: u32,
    oid: [u8; 20],
    path: Vec<u8>,
}

/// Lists the commit's tree; what has no place in a run's is left out. A tree of more bytes than may be is refused before one
/// of them is written: it may name the same large blob a thousand times.
pub(super) fn list(
    git: &Git,
    commit: &str,
    limits: ImportLimits,
    watch: &dyn ImportObserver,
    sink: &mut ImportWriter<'_>,
) -> Result<Vec<TreeEntry>, ImportError> {
    let bounds = Bounds { time: READ_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    // With its folders, so that a tree of trees without files has an end too.
    let args = ["ls-tree", "-r", "-t", "-l", "-z", "--full-tree", "--end-of-options", commit];
    let mut over = None;
    let said = git.talk(&args, &bounds, |stdin, stdout| {
        drop(stdin);
        let mut from = BufReader::with_capacity(256 * 1024, stdout);
        let (mut entries, mut line) = (Vec::new(), Vec::new());
        let (mut last_cut, mut bytes) = (Vec::new(), 0u64);
        let mut listed = Tally::new(limits);
        // A tree of trees can name more files than there are atoms: it is not read to its end.
        let error = loop {
            line.clear();
            if from.by_ref().take(MAX_LINE_BYTES).read_until(0, &mut line)? == 0 {
                return Ok(entries);
            }
            if line.pop() != Some(0) {
                break too_large("bytes in one path", MAX_LINE_BYTES);
            }
            let entry = parse_entry(&line)?;
            if let Err(error) = listed.add(&entry.path) {
                break error;
            }
            let size = entry.size;
            if let Some(entry) = keep(entry, &mut last_cut, sink) {
                bytes = bytes.saturating_add(size);
                entries.push(entry);
            }
            if bytes > limits.max_bytes {
                break too_large("bytes", limits.max_bytes);
            }
        };
        over = Some(error);
        Err(io::ErrorKind::FileTooLarge.into())
    });
    said.map_err(|error| over.unwrap_or_else(|| fetch_error(error)))
}

/// One line of the list.
struct Listed {
    mode: u32,
    oid: Option<[u8; 20]>,
    /// 0 where git does not tell: of what is no file, and of what it does not have, which is found out by reading it.
    size: u64,
    path: Vec<u8>,
}

fn parse_entry(line: &[u8]) -> io::Result<Listed> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "git ls-tree wrote an unknown line");
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or_else(odd)?;
    let words = std::str::from_utf8(&line[..tab]).map_err(|_| odd())?;
    let [mode, _, oid, size] = words.split_ascii_whitespace().collect::<Vec<_>>()[..] else { return Err(odd()) };
    let mode = u32::from_str_radix(mode, 8).map_err(|_| odd())?;
    Ok(Listed { mode, oid: parse_oid(oid), size: size.parse().unwrap_or(0), path: line[tab + 1..].to_owned() })
}

/// The entry, if it may be in a run's tree. `last_cut` is the last folder that was left out.
fn keep(listed: Listed, last_cut: &mut Vec<u8>, sink: &mut ImportWriter<'_>) -> Option<TreeEntry> {
    let Listed { mode, oid, path, .. } = listed;
    if !last_cut.is_empty() && path.strip_prefix(&last_cut[..]).is_some_and(|rest| rest.first() == Some(&b'/')) {
        return None;
    }
    let mut end = 0;
    for name in path.split(|byte| *byte == b'/') {
        end += name.len();
        if is_git_internal(name) {
            last_cut.clear();
            last_cut.extend_from_slice(&path[..end]);
            sink.leave_out(&path[..end], "git's own");
            return None;
        }
        if matches!(name, b"" | b"." | b"..") {
            sink.leave_out(&path, "no name that a file can have");
            return None;
        }
        end += 1;
    }
    let mode = match mode {
        0o160_000 => {
            sink.leave_out(&path, "a submodule");
            return None;
        }
        // A folder is made with what lies in it.
        MODE_FOLDER => return None,
        MODE_LINK => MODE_LINK,
        mode if mode & 0o170_000 == 0o100_000 => {
            if mode & 0o111 == 0 {
                MODE_FILE
            } else {
                MODE_EXECUTABLE
            }
        }
        _ => {
            sink.leave_out(&path, "no file, folder or symbolic link");
            return None;
        }
    };
    Some(TreeEntry { mode, oid: oid?, path })
}

/// Writes the files' bytes, which one `cat-file` hands out in their order.
pub(super) fn write(
    git: &Git,
    entries: &[TreeEntry],
    watch: &dyn ImportObserver,
    sink: &mut ImportWriter<'_>,
) -> Result<(), ImportError> {
    let bounds = Bounds { time: READ_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    let mut over = None;
    let said = git.talk(&["cat-file", "--batch", "--buffer"], &bounds, |mut stdin, stdout| {
        thread::scope(|scope| {
            // Asks from another thread, since git stops reading while nobody takes its answers.
            scope.spawn(move || entries.iter().try_for_each(|entry| writeln!(stdin, "{}", hex(&entry.oid))));
            let mut from = BufReader::with_capacity(256 * 1024, stdout);
            for entry in entries {
                if let Err(error) = write_entry(entry, &mut from, sink) {
                    over = Some(error);
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
            Ok(())
        })
    });
    match (over, said) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => Err(fetch_error(error)),
    }
}

fn write_entry(entry: &TreeEntry, from: &mut impl BufRead, sink: &mut ImportWriter<'_>) -> Result<(), ImportError> {
    let mut line = String::new();
    from.by_ref().take(256).read_line(&mut line)?;
    let size = line.trim_end().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
    let (true, Some(size)) = (line.contains(" blob "), size) else {
        tracing::warn!(line = %line.trim_end(), "a git source lacks an object of its tree");
        return Err(no_repository());
    };
    let mut bytes = from.by_ref().take(size);
    let placed = if entry.mode == MODE_LINK {
        let mut target = Vec::new();
        bytes.by_ref().take(MAX_LINK_BYTES + 1).read_to_end(&mut target)?;
        if size > MAX_LINK_BYTES {
            Err(WriteError::Misfit("a symbolic link whose target is too long"))
        } else {
            sink.link(&entry.path, &target)
        }
    } else {
        sink.file(&entry.path, entry.mode == MODE_EXECUTABLE, size, Some(entry.oid), &mut bytes)
    };
    match placed {
        Ok(()) => {}
        Err(WriteError::Misfit(reason)) => sink.leave_out(&entry.path, reason),
        Err(WriteError::Source(error)) => return Err(ImportError::Io(error)),
        Err(WriteError::Over(error)) => return Err(error),
    }
    // What was not taken, and the line's end.
    io::copy(&mut bytes, &mut io::sink())?;
    let mut newline = [0];
    Ok(from.read_exact(&mut newline)?)
}
