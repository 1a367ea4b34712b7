//! The format of the checkpoint file: the signed notes in order, each followed by an empty line.
//!
//! An entry ends at the first empty line after a signature line. A process that is killed, or a power failure, leaves a
//! partial entry at the end: the beginning of a note of the same origin, or zeros.

use std::io::{self, BufRead, Read as _};

use crate::note::SIGNATURE_PREFIX;

/// The largest entry. Notes with one signature are much smaller.
const MAX_ENTRY_BYTES: u64 = 16 * 1024;

/// Reads the entries of a checkpoint file in order.
#[derive(Debug)]
pub struct CheckpointReader<R> {
    lines: R,
    origin: String,
}

/// The next part of a checkpoint file.
#[derive(Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// The note of a complete entry. Its signature has not been verified.
    Note(String),
    /// A partial entry at the end of the file.
    Partial,
    /// The end of the file.
    End,
}

impl<R: BufRead> CheckpointReader<R> {
    /// Reads the file of the log called `origin`.
    pub fn new(lines: R, origin: &str) -> Self {
        Self { lines, origin: origin.to_owned() }
    }

    /// Reads the next entry.
    ///
    /// # Errors
    ///
    /// If reading fails, or the file has content that is not a checkpoint of this origin.
    pub fn next_entry(&mut self) -> io::Result<LogEntry> {
        let mut entry = Vec::new();
        let mut after_signature = false;
        loop {
            let start = entry.len();
            let limit = MAX_ENTRY_BYTES.saturating_sub(start as u64);
            let read = (&mut self.lines).take(limit).read_until(b'\n', &mut entry)?;
            if !entry.ends_with(b"\n") || read == 0 {
                return match entry.len() as u64 {
                    0 => Ok(LogEntry::End),
                    length if length < MAX_ENTRY_BYTES && is_partial(&entry, &self.origin) => Ok(LogEntry::Partial),
                    _ => Err(io::Error::other("the file has content that is not a checkpoint of this origin")),
                };
            }
            let line = &entry[start..];
            if line == b"\n" && after_signature {
                entry.pop();
                let note = String::from_utf8(entry).map_err(|_| io::Error::other("an entry is not UTF-8"))?;
                return Ok(LogEntry::Note(note));
            }
            after_signature = line.starts_with(SIGNATURE_PREFIX.as_bytes());
        }
    }
}

/// The end of a checkpoint file.
#[derive(Debug, PartialEq, Eq)]
pub struct LogTail {
    /// The last complete note.
    pub last_note: Option<String>,
    /// The size of the partial entry after it.
    pub partial_bytes: u64,
}

impl LogTail {
    /// How many bytes at the end of a file are enough to find its last complete note.
    pub const BYTES: u64 = 2 * MAX_ENTRY_BYTES;

    /// Parses the last [`BYTES`](Self::BYTES) of a file, or the whole of a smaller one. Returns `None` if this is not a
    /// checkpoint file of the log called `origin`.
    pub fn parse(tail: &[u8], origin: &str) -> Option<Self> {
        let end = end_of_last_entry(tail).unwrap_or(0);
        let (complete, partial) = tail.split_at(end);
        if !partial.is_empty() && !is_partial(partial, origin) {
            return None;
        }
        let before = complete.len().checked_sub(1).and_then(|last| end_of_last_entry(&complete[..last]));
        // The empty line after the note belongs to the file.
        let note = complete.get(before.unwrap_or(0)..complete.len().saturating_sub(1)).filter(|note| !note.is_empty());
        let last_note = note.map(|note| String::from_utf8_lossy(note).into_owned());
        Some(Self { last_note, partial_bytes: partial.len() as u64 })
    }
}

/// Returns the end of the last complete entry: after the empty line that follows a signature.
fn end_of_last_entry(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    while let Some(found) = bytes[..end].windows(2).rposition(|pair| pair == b"\n\n") {
        let line = bytes[..found].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        if bytes[line..].starts_with(SIGNATURE_PREFIX.as_bytes()) {
            return Some(found + 2);
        }
        end = found + 1;
    }
    None
}

/// Returns whether `bytes` can be a partial entry, so that no other file is mistaken for a checkpoint file and cut.
fn is_partial(bytes: &[u8], origin: &str) -> bool {
    let first_line = format!("{origin}\n").into_bytes();
    let shared = first_line.len().min(bytes.len());
    let is_beginning = first_line[..shared] == bytes[..shared];
    bytes.len() as u64 <= MAX_ENTRY_BYTES && (is_beginning || bytes.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests;
