//! The file of checkpoints: every signed note in order, each with an empty line behind it, synced one by one.

#![expect(
    clippy::disallowed_types,
    reason = "the file lies outside of the database and of the runs' folders on purpose"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The longest entry, in bytes: far more than one of ours has.
const MAX_ENTRY_BYTES: u64 = 16 * 1024;
/// What begins the line of a signature.
const MARK: &[u8] = "— ".as_bytes();

/// The file, open to be appended to.
#[derive(Debug)]
pub(crate) struct CheckpointFile {
    file: File,
    /// Where the last whole entry ends.
    end: u64,
    /// Whether there may be something behind it.
    torn: bool,
}

/// What a file held when it was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The file.
    pub(crate) file: CheckpointFile,
    /// Its last whole note.
    pub(crate) last: Option<String>,
    /// Bytes behind it that were cut off: what a process was writing when it was killed.
    pub(crate) cut: u64,
}

impl CheckpointFile {
    /// Opens or makes the file of the log called `origin`; half an entry at its end is cut off. Blocks.
    ///
    /// # Errors
    ///
    /// Where the disk fails, or the file holds something else.
    pub(crate) fn open(path: &Path, origin: &str) -> io::Result<Opened> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        let start = length.saturating_sub(2 * MAX_ENTRY_BYTES);
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut tail)?;
        let whole = last_end(&tail).unwrap_or(0);
        let (before, behind) = tail.split_at(whole);
        if !behind.is_empty() && !is_half(behind, origin) || whole == 0 && start > 0 {
            return Err(io::Error::other("it is no file of checkpoints of this origin"));
        }
        let begin = before.len().checked_sub(1).and_then(|end| last_end(&before[..end])).unwrap_or(0);
        // The empty line behind the note is the file's.
        let last = before.get(begin..before.len().saturating_sub(1)).filter(|note| !note.is_empty());
        let last = last.map(|note| String::from_utf8_lossy(note).into_owned());
        let cut = behind.len() as u64;
        let mut file = Self { file, end: length - cut, torn: cut > 0 };
        file.mend()?;
        sync_folder(path)?;
        Ok(Opened { file, last, cut })
    }

    /// Appends a note and syncs it. Where it fails, nothing of it counts. Blocks.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub(crate) fn append(&mut self, note: &str) -> io::Result<()> {
        self.mend()?;
        self.torn = true;
        self.file.seek(SeekFrom::Start(self.end))?;
        let entry = format!("{note}\n");
        self.file.write_all(entry.as_bytes())?;
        failpoint::hit("checkpoint.written");
        self.file.sync_data()?;
        self.end += entry.len() as u64;
        self.torn = false;
        Ok(())
    }

    /// Cuts off what stands behind the last whole entry.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.end)?;
            self.file.sync_all()?;
            self.torn = false;
        }
        Ok(())
    }
}

/// Where the last whole entry ends: behind the empty line that follows a signature.
fn last_end(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    while let Some(found) = bytes[..end].windows(2).rposition(|pair| pair == b"\n\n") {
        let line = bytes[..found].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        if bytes[line..].starts_with(MARK) {
            return Some(found + 2);
        }
        end = found + 1;
    }
    None
}

/// Whether `bytes` can be the beginning of an entry, or what a power cut leaves of one: no file of something else is cut.
fn is_half(bytes: &[u8], origin: &str) -> bool {
    let begin = format!("{origin}\n").into_bytes();
    let shared = begin.len().min(bytes.len());
    bytes.len() as u64 <= MAX_ENTRY_BYTES && (begin[..shared] == bytes[..shared] || bytes.iter().all(|byte| *byte == 0))
}

/// Makes sure that a new file is found after a power cut.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Reads a file's notes in order.
#[derive(Debug)]
pub(crate) struct Notes {
    lines: BufReader<File>,
    path: PathBuf,
    origin: String,
}

/// What stands next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A whole entry's note.
    Note(String),
    /// What can be the beginning of one, at the end of the file.
    Half,
    /// Nothing more.
    End,
}

impl Notes {
    /// Opens the file of the log called `origin`; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Where it cannot be read.
    pub(crate) fn open(path: &Path, origin: &str) -> io::Result<Option<Self>> {
        let (path, origin) = (path.to_owned(), origin.to_owned());
        match File::open(&path) {
            Ok(file) => Ok(Some(Self { lines: BufReader::new(file), path, origin })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads on.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, or holds something else.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        let mut entry = Vec::new();
        let mut signed = false;
        loop {
            let from = entry.len();
            let room = MAX_ENTRY_BYTES.saturating_sub(from as u64);
            let read = (&mut self.lines).take(room).read_until(b'\n', &mut entry)?;
            if !entry.ends_with(b"\n") || read == 0 {
                return match entry.len() as u64 {
                    0 => Ok(Next::End),
                    length if length < MAX_ENTRY_BYTES && is_half(&entry, &self.origin) => Ok(Next::Half),
                    _ => Err(io::Error::other("it holds what is no checkpoint of this origin")),
                };
            }
            let line = &entry[from..];
            if line == b"\n" && signed {
                entry.pop();
                let note = String::from_utf8(entry).map_err(|_| io::Error::other("it holds what is no text"))?;
                return Ok(Next::Note(note));
            }
            signed = line.starts_with(MARK);
        }
    }
}

#[cfg(test)]
mod tests;
