//! One file searched: by its bytes first, line by line only where they hold a match.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use grep_matcher::Matcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use memchr::memchr;
use model::{FileKind, Rules};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::pattern::{Bounded, Stopped};
use super::{Match, snippet};
use crate::WorkspaceError;
use crate::guard::Opened;
use crate::read::kind_of;
use crate::walk::WalkPath;

/// Bytes that are read at a time while nothing has been found: they stay in the processor's cache.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;
/// A NUL byte among the first so many makes a file binary.
const HEAD_BYTES: usize = 8 * 1024;
/// Files beyond this are searched as a stream.
const MAX_WHOLE_BYTES: u64 = 16 * 1024 * 1024;
/// A buffer that has grown beyond this is given back after the file.
const KEPT_BUFFER_BYTES: usize = 1024 * 1024;
/// A stream's lines may be so long.
const MAX_STREAM_LINE_BYTES: usize = 1024 * 1024;

/// What came of one file.
pub(super) enum Scanned {
    /// It is no text, no file any more, or has further names: not looked into.
    Passed,
    /// It cannot be searched, and the caller should know why.
    Skipped(String),
    /// The search has taken its time.
    OutOfTime,
    /// Its matches.
    Searched(Vec<Match>),
}

/// Searches file after file with the same buffers.
pub(super) struct Scanner<'a> {
    rules: &'a Rules,
    pattern: Bounded<'a>,
    searcher: Searcher,
    context_lines: usize,
    max_matches: usize,
    max_bytes: u64,
    buffer: Vec<u8>,
}

impl<'a> Scanner<'a> {
    /// Files of at most `max_bytes`, at most `max_matches` matches each.
    pub(super) fn new(
        rules: &'a Rules,
        pattern: Bounded<'a>,
        context_lines: usize,
        max_matches: usize,
        max_bytes: u64,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(pattern.pattern().line_terminator())
            .line_number(true)
            .before_context(context_lines)
            .after_context(context_lines)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_STREAM_LINE_BYTES))
            .bom_sniffing(true)
            .build();
        Self { rules, pattern, searcher, context_lines, max_matches, max_bytes, buffer: Vec::new() }
    }

    /// Searches one file, which is open.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and where the disk does not answer.
    pub(super) fn scan(&mut self, opened: &Opened, at: &WalkPath, kind: FileKind) -> Result<Scanned, WorkspaceError> {
        match self.pattern.until().check() {
            Ok(()) => {}
            Err(stopped) => return told(stopped, at),
        }
        // What was judged was a file with one name.
        if opened.file_type() != FileType::RegularFile || opened.is_hard_linked() {
            return Ok(Scanned::Passed);
        }
        if opened.size() > self.max_bytes {
            return Ok(Scanned::Skipped(format!("{}: too large", at.shown)));
        }
        if opened.size() > MAX_WHOLE_BYTES {
            return self.stream(&opened.file, at, kind);
        }
        let scanned = self.whole(opened, at, kind);
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        scanned
    }

    fn whole(&mut self, opened: &Opened, at: &WalkPath, kind: FileKind) -> Result<Scanned, WorkspaceError> {
        let size = usize::try_from(opened.size()).unwrap_or(usize::MAX);
        self.buffer.clear();
        self.fill(&opened.file, 0, size.min(CHUNK_BYTES))?;
        let transcoded = self.buffer.starts_with(b"\xff\xfe") || self.buffer.starts_with(b"\xfe\xff");
        if !transcoded {
            if memchr(0, &self.buffer[..self.buffer.len().min(HEAD_BYTES)]).is_some() {
                return Ok(Scanned::Passed);
            }
            match self.read_to_match(&opened.file, size)? {
                Ok(true) => {}
                Ok(false) => return Ok(Scanned::Searched(Vec::new())),
                Err(stopped) => return told(stopped, at),
            }
        }
        self.fill(&opened.file, self.buffer.len(), size)?;
        if !transcoded && memchr(0, &self.buffer).is_some() {
            return Ok(Scanned::Passed);
        }
        let kind = match kind {
            FileKind::Unknown => kind_of(self.rules, at.real(), &self.buffer),
            told => told,
        };
        let mut sink = Lines::new(&self.pattern, at, kind, self.context_lines, self.max_matches);
        let searched = self.searcher.search_slice(&self.pattern, &self.buffer, &mut sink);
        sink.finish(&searched)
    }

    /// Reads on until something may match; `false` where nothing in the whole file does. Bytes that were searched in
    /// vain are overwritten by the next, unless a line of theirs goes on.
    fn read_to_match(&mut self, file: &OwnedFd, size: usize) -> io::Result<Result<bool, Stopped>> {
        let Some(needle) = self.pattern.pattern().needle() else {
            self.fill(file, self.buffer.len(), size)?;
            return Ok(self.pattern.may_match(&self.buffer));
        };
        let overlap = needle.needle().len() - 1;
        let mut done = self.buffer.len();
        loop {
            if needle.find(&self.buffer).is_some() {
                // The lines around it may have been overwritten; a hit is rare enough to read the file anew.
                if done > self.buffer.len() || done < size {
                    self.buffer.clear();
                    fill(&mut self.buffer, file, 0, size)?;
                }
                return Ok(Ok(true));
            }
            if done >= size {
                return Ok(Ok(false));
            }
            let kept = self.buffer.len().saturating_sub(overlap);
            self.buffer.drain(..kept);
            let before = self.buffer.len();
            fill(&mut self.buffer, file, done, CHUNK_BYTES.min(size - done))?;
            let more = self.buffer.len() - before;
            if more == 0 {
                return Ok(Ok(false));
            }
            done += more;
        }
    }

    fn fill(&mut self, file: &OwnedFd, from: usize, to: usize) -> io::Result<()> {
        fill(&mut self.buffer, file, from, to.saturating_sub(from))
    }

    /// Searches a file too large to be held, with bounded memory.
    fn stream(&mut self, file: &OwnedFd, at: &WalkPath, kind: FileKind) -> Result<Scanned, WorkspaceError> {
        let mut sink = Lines::new(&self.pattern, at, kind, self.context_lines, self.max_matches);
        let file = File::from(file.try_clone()?);
        let searched = self.searcher.search_file(&self.pattern, &file, &mut sink);
        sink.finish(&searched)
    }
}

/// What a search that was stopped says of the file at which it was.
fn told(stopped: Stopped, at: &WalkPath) -> Result<Scanned, WorkspaceError> {
    match stopped {
        Stopped::Cancelled => Err(WorkspaceError::Cancelled),
        Stopped::Time => Ok(Scanned::OutOfTime),
        Stopped::Line => Ok(Scanned::Skipped(format!("{}: {stopped}", at.shown))),
    }
}

/// Appends up to `count` bytes of `file`, from byte `from` on.
fn fill(buffer: &mut Vec<u8>, file: &OwnedFd, from: usize, count: usize) -> io::Result<()> {
    let end = buffer.len() + count;
    buffer.reserve(count);
    let mut offset = from as u64;
    while buffer.len() < end {
        match rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), offset) {
            Ok(0) => break,
            Ok(read) => offset += read as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    buffer.truncate(end);
    Ok(())
}

/// Gathers matching lines with those around them.
struct Lines<'a> {
    pattern: &'a Bounded<'a>,
    at: &'a WalkPath,
    kind: FileKind,
    /// Lines around a match.
    reach: usize,
    max_matches: usize,
    matches: Vec<Match>,
    /// The last lines that were told, for what stands before the next match.
    recent: VecDeque<(u64, String)>,
    binary: bool,
}

impl<'a> Lines<'a> {
    fn new(pattern: &'a Bounded<'a>, at: &'a WalkPath, kind: FileKind, reach: usize, max_matches: usize) -> Self {
        let (matches, recent) = (Vec::new(), VecDeque::new());
        Self { pattern, at, kind, reach, max_matches, matches, recent, binary: false }
    }

    fn finish(self, searched: &io::Result<()>) -> Result<Scanned, WorkspaceError> {
        if let Some(stopped) = self.pattern.stopped() {
            return told(stopped, self.at);
        }
        match searched {
            Ok(()) if self.binary => Ok(Scanned::Passed),
            Ok(()) => Ok(Scanned::Searched(self.matches)),
            // Only a bound or an unreadable byte stops a search of what has been opened.
            Err(_) => Ok(Scanned::Skipped(format!("{}: a line is too long, or it cannot be read", self.at.shown))),
        }
    }

    /// Takes note of line `number` for the matches around it.
    fn pass(&mut self, number: u64, text: &[u8]) {
        if self.reach == 0 {
            return;
        }
        let shown = snippet::head(text);
        let reach = self.reach as u64;
        for earlier in self.matches.iter_mut().rev().take_while(|earlier| earlier.line + reach >= number) {
            if earlier.line < number {
                earlier.after.push(shown.clone());
            }
        }
        if self.recent.len() == self.reach {
            self.recent.pop_front();
        }
        self.recent.push_back((number, shown));
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.matches.len() == self.max_matches {
            return Ok(false);
        }
        let number = found.line_number().unwrap_or(0);
        let line = snippet::without_ending(found.bytes());
        let place = self.pattern.find(line).map_err(io::Error::other)?.map_or(0..0, |place| place.start()..place.end());
        let reach = self.reach as u64;
        let before = self.recent.iter().filter(|(earlier, _)| earlier + reach >= number);
        let next = Match {
            path: self.at.shown.as_str().to_owned(),
            line: number,
            column: snippet::column(line, place.start),
            snippet: snippet::around(line, &place),
            before: before.map(|(_, text)| text.clone()).collect(),
            after: Vec::new(),
            kind: self.kind,
        };
        self.pass(number, line);
        self.matches.push(next);
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.pass(context.line_number().unwrap_or(0), snippet::without_ending(context.bytes()));
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}
