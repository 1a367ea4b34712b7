//! Searching one file: what of it is text, and which of its lines match.

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use memchr::memchr;
use model::{FileKind, LogicalPath, Rules};
use rustix::fs::FileType;

use super::matches::FileMatches;
use super::pattern::{AutomatonCache, Pattern, SearchLimits, Stopped};
use super::{Match, SearchQuery, snippet};
use crate::WorkspaceError;
use crate::guard::{OpenFile, Opened};
use crate::opened_file::{HEAD_BYTES, kind_of};
use crate::query::not_shown::LeftOut;
use crate::walk::WalkPath;

/// How many bytes are read at a time until a literal is found.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;
/// The maximum size of a text that is held at once. A larger file is searched window by window.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;
/// A larger buffer is freed after the file.
const MAX_RETAINED_BUFFER_BYTES: usize = 1024 * 1024;
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The result of one file.
pub(super) enum ScannedFile {
    /// It is not text: not searched.
    NotText,
    /// Policy hides it, or it was removed meanwhile.
    Hidden,
    /// It is left out by its name.
    LeftOut(LeftOut),
    /// It cannot be searched, for a reason that the caller should know.
    Skipped(String),
    /// The search has reached its time limit.
    OutOfTime,
    Searched(Vec<Match>),
}

/// Searches files one after another with the same buffer.
pub(super) struct Scanner<'a> {
    pub(super) rules: &'a Rules,
    pub(super) query: &'a SearchQuery,
    pub(super) pattern: &'a Pattern,
    pub(super) limits: SearchLimits<'a>,
    /// The size of the largest file that is searched.
    pub(super) max_bytes: u64,
    /// Bytes of the current file, and after them those of earlier ones.
    pub(super) buffer: Vec<u8>,
    pub(super) cache: AutomatonCache,
}

impl Scanner<'_> {
    /// Searches one open file.
    ///
    /// # Errors
    ///
    /// `Cancelled`, or if the disk fails.
    pub(super) fn scan(
        &mut self,
        opened: &Opened,
        at: &WalkPath,
        kind: FileKind,
    ) -> Result<ScannedFile, WorkspaceError> {
        let scanned = self.scan_file(opened, at, kind);
        if self.buffer.len() > MAX_RETAINED_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        match scanned {
            Ok(scanned) => Ok(scanned),
            Err(Stopped::Time) => Ok(ScannedFile::OutOfTime),
            Err(Stopped::TooComplex) if self.pattern.multiline() => {
                Ok(skipped(&at.shown, "too large for this expression across lines"))
            }
            Err(Stopped::TooComplex) => Ok(skipped(&at.shown, "a line is too long for this expression")),
            Err(Stopped::Failed(error)) => Err(error),
        }
    }

    fn scan_file(&mut self, opened: &Opened, at: &WalkPath, kind: FileKind) -> Result<ScannedFile, Stopped> {
        self.limits.check()?;
        // Policy has judged a file with one name.
        if opened.file_type() != FileType::RegularFile || opened.is_hard_linked() {
            return Ok(ScannedFile::Hidden);
        }
        if opened.size() > self.max_bytes {
            return Ok(skipped(&at.shown, "too large"));
        }
        let file = &opened.file;
        let size = usize::try_from(opened.size()).unwrap_or(usize::MAX);
        let mut end = self.read(file, 0..size.min(CHUNK_BYTES), 0)?;
        let head = &self.buffer[..end.min(HEAD_BYTES)];
        if self.rules.is_secret_content(at.real(), head) {
            return Ok(ScannedFile::Hidden);
        }
        let is_utf16 = is_utf16(head);
        if !is_utf16 && memchr(0, head).is_some() {
            return Ok(ScannedFile::NotText);
        }
        if size > MAX_TEXT_BYTES {
            let matches = FileMatches::new(self.pattern, self.query, self.limits, &at.shown, kind);
            return self.scan_windows(file, matches);
        }
        // Every encoding but UTF-16 writes ASCII as UTF-8 does.
        if let Some(needle) = self.pattern.needle().filter(|needle| !is_utf16 && needle.needle().is_ascii()) {
            let mut done = end;
            while needle.find(&self.buffer[..end]).is_none() {
                // The next chunk takes the place of this one, so that both stay in the processor's cache.
                let kept = end.min(needle.needle().len() - 1);
                self.buffer.copy_within(end - kept..end, 0);
                end = self.read(file, kept..kept + CHUNK_BYTES.min(size - done), done as u64)?;
                if end == kept {
                    return Ok(ScannedFile::Searched(Vec::new()));
                }
                done += end - kept;
            }
            // Unless this is the first chunk, the file is read again: matches are rare enough.
            end = if done == end { end } else { 0 };
        }
        end = self.read(file, end..size, end as u64)?;
        let bytes = &self.buffer[..end];
        let Some(text) = text_of(bytes) else { return Ok(ScannedFile::NotText) };
        let kind = if kind == FileKind::Unknown { kind_of(self.rules, at.real(), bytes) } else { kind };
        let mut matches = FileMatches::new(self.pattern, self.query, self.limits, &at.shown, kind);
        matches.add(&text, 0, text.len(), &mut self.cache)?;
        let found = matches.into_found();
        if !found.is_empty() {
            // What is not shown need not be checked.
            file.check_bytes(bytes)?;
        }
        Ok(ScannedFile::Searched(found))
    }

    /// Searches a file that is too large to hold, as UTF-8. A window begins with the lines that the matches after them show.
    fn scan_windows(&mut self, file: &OpenFile, mut matches: FileMatches<'_>) -> Result<ScannedFile, Stopped> {
        let path = matches.path();
        if self.pattern.multiline() {
            return Ok(skipped(path, "too large to be searched across lines"));
        }
        if is_utf16(&self.buffer) {
            return Ok(skipped(path, "too large to be decoded"));
        }
        file.check()?;
        let mut offset = if self.buffer.starts_with(UTF8_MARK) { UTF8_MARK.len() as u64 } else { 0 };
        let (mut from, mut filled) = (0, 0);
        loop {
            let end = self.read(file, filled..MAX_TEXT_BYTES, offset)?;
            offset += (end - filled) as u64;
            let window = &self.buffer[..end];
            if memchr(0, &window[filled..]).is_some() {
                return Ok(ScannedFile::NotText);
            }
            let is_last = end < MAX_TEXT_BYTES;
            let context = self.query.context_lines;
            // A match is shown with the lines after it.
            let to = if is_last { end } else { snippet::start_of_lines(window, end, context + 1) };
            if to <= from && !is_last {
                return Ok(skipped(path, "a line is too long, or it cannot be read"));
            }
            if !matches.add(window, from, to, &mut self.cache)? || is_last {
                return Ok(ScannedFile::Searched(matches.into_found()));
            }
            let kept = snippet::start_of_lines(window, to, context);
            self.buffer.copy_within(kept..end, 0);
            (from, filled) = (to - kept, end - kept);
        }
    }

    /// Reads the bytes of `file` from `offset` on to this part of the buffer. Returns where they end; before the part's end only
    /// if the file ends there.
    fn read(&mut self, file: &OpenFile, part: Range<usize>, offset: u64) -> io::Result<usize> {
        if self.buffer.len() < part.end {
            self.buffer.resize(part.end, 0);
        }
        let mut end = part.start;
        while end < part.end {
            match file.read_at(&mut self.buffer[end..part.end], offset + (end - part.start) as u64)? {
                0 => break,
                count => end += count,
            }
        }
        Ok(end)
    }
}

fn skipped(path: &LogicalPath, reason: &str) -> ScannedFile {
    ScannedFile::Skipped(format!("{path}: {reason}"))
}

fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

/// Returns the text that a read shows for these bytes, without a byte order mark; `None` if they are not text. Bytes of an
/// unknown encoding are searched as they are.
fn text_of(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_utf16 = is_utf16(bytes);
    if !is_utf16 && memchr(0, bytes).is_some() {
        return None;
    }
    let text = bytes.strip_prefix(UTF8_MARK).unwrap_or(bytes);
    if std::str::from_utf8(text).is_ok() {
        return Some(Cow::Borrowed(text));
    }
    match model::decode(bytes) {
        Some(decoded) => Some(Cow::Owned(decoded.text.into_bytes())),
        None if is_utf16 => None,
        None => Some(Cow::Borrowed(text)),
    }
}
