//! Searching one file: its bytes first, and line by line only if they contain a match.

use std::collections::VecDeque;
use std::io;

use grep_matcher::Matcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use memchr::{memchr, memchr_iter};
use model::{FileKind, LogicalPath, Rules};
use rustix::fs::FileType;

use super::pattern::{BoundedPattern, Stopped};
use super::{Match, snippet};
use crate::WorkspaceError;
use crate::guard::{OpenFile, Opened};
use crate::opened_file::{HEAD_BYTES, is_secret, kind_of};
use crate::query::not_shown::LeftOut;
use crate::walk::WalkPath;

/// How many bytes are read at a time until something matches: they stay in the processor's cache.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;
/// Larger files are searched as a stream.
const MAX_WHOLE_BYTES: u64 = 16 * 1024 * 1024;
/// A larger buffer is freed after the file.
const MAX_RETAINED_BUFFER_BYTES: usize = 1024 * 1024;
/// The maximum length of a stream's lines.
const MAX_STREAM_LINE_BYTES: usize = 1024 * 1024;
/// The maximum length of a decoded text that is searched as a whole: UTF-16 grows by half.
const MAX_DECODED_BYTES: usize = 32 * 1024 * 1024;

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

/// What a first pass over the bytes of a file says.
enum FirstPass {
    /// Something may match.
    Match,
    /// Nothing matches.
    Nothing,
    /// Nothing matches in these bytes, but something may in the text that they encode.
    NotInBytes,
}

/// Searches files one after another with the same buffers.
pub(super) struct Scanner<'a> {
    rules: &'a Rules,
    pattern: BoundedPattern<'a>,
    /// Made for the first file that may match: it has a buffer of its own.
    searcher: Option<Searcher>,
    context_lines: usize,
    max_matches: usize,
    max_bytes: u64,
    /// Only matches after this line of this file are returned.
    after: Option<&'a (LogicalPath, u64)>,
    buffer: Vec<u8>,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner for files of at most `max_bytes` that returns at most `max_matches` matches of each.
    pub(super) fn new(
        rules: &'a Rules,
        pattern: BoundedPattern<'a>,
        context_lines: usize,
        max_matches: usize,
        max_bytes: u64,
        after: Option<&'a (LogicalPath, u64)>,
    ) -> Self {
        Self { rules, pattern, searcher: None, context_lines, max_matches, max_bytes, after, buffer: Vec::new() }
    }

    /// The last line of the file whose matches are left out; 0 if none is.
    fn skipped_lines(&self, at: &WalkPath) -> u64 {
        self.after.filter(|(path, _)| *path == at.shown).map_or(0, |(_, line)| *line)
    }

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
        if let Err(stopped) = self.pattern.limits().check() {
            return scan_stopped(stopped, at);
        }
        // Policy has judged a file with one name.
        if opened.file_type() != FileType::RegularFile || opened.is_hard_linked() {
            return Ok(ScannedFile::Hidden);
        }
        if opened.size() > self.max_bytes {
            return Ok(ScannedFile::Skipped(format!("{}: too large", at.shown)));
        }
        if opened.size() > MAX_WHOLE_BYTES {
            if is_secret(self.rules, at.real(), opened)? {
                return Ok(ScannedFile::Hidden);
            }
            if self.pattern.pattern().multiline() {
                return Ok(ScannedFile::Skipped(format!("{}: too large to be searched across lines", at.shown)));
            }
            opened.file.check()?;
            return self.stream(&opened.file, at, kind);
        }
        let scanned = self.whole(opened, at, kind);
        if self.buffer.capacity() > MAX_RETAINED_BUFFER_BYTES {
            self.buffer = Vec::new();
            // It has a decoded text of its own.
            self.searcher = self.searcher.take().filter(|_| !self.pattern.pattern().multiline());
        }
        scanned
    }

    fn whole(&mut self, opened: &Opened, at: &WalkPath, kind: FileKind) -> Result<ScannedFile, WorkspaceError> {
        let size = usize::try_from(opened.size()).unwrap_or(usize::MAX);
        self.buffer.clear();
        self.fill(&opened.file, 0, size.min(CHUNK_BYTES))?;
        if self.rules.is_secret_content(at.real(), &self.buffer[..self.buffer.len().min(HEAD_BYTES)]) {
            return Ok(ScannedFile::Hidden);
        }
        let transcoded = self.buffer.starts_with(b"\xff\xfe") || self.buffer.starts_with(b"\xfe\xff");
        let mut is_candidate = true;
        if !transcoded {
            if memchr(0, &self.buffer[..self.buffer.len().min(HEAD_BYTES)]).is_some() {
                return Ok(ScannedFile::NotText);
            }
            match self.read_to_match(&opened.file, size)? {
                Ok(FirstPass::Match) => {}
                Ok(FirstPass::Nothing) => return Ok(ScannedFile::Searched(Vec::new())),
                Ok(FirstPass::NotInBytes) => is_candidate = false,
                Err(stopped) => return scan_stopped(stopped, at),
            }
        }
        self.fill(&opened.file, self.buffer.len(), size)?;
        // What is not shown need not be checked.
        opened.file.check_bytes(&self.buffer)?;
        if !transcoded && memchr(0, &self.buffer).is_some() {
            return Ok(ScannedFile::NotText);
        }
        if !transcoded && std::str::from_utf8(&self.buffer).is_err() {
            // What is searched is what a read shows.
            if let Some(decoded) = model::decode(&self.buffer) {
                self.buffer = decoded.text.into_bytes();
                is_candidate = true;
            }
        }
        if !is_candidate {
            return Ok(ScannedFile::Searched(Vec::new()));
        }
        let kind = match kind {
            FileKind::Unknown => kind_of(self.rules, at.real(), &self.buffer),
            known => known,
        };
        let skipped_lines = self.skipped_lines(at);
        let mut sink =
            MatchCollector::new(&self.pattern, at, kind, self.context_lines, self.max_matches, skipped_lines);
        let searcher = self.searcher.get_or_insert_with(|| line_searcher(&self.pattern, self.context_lines));
        let searched = searcher.search_slice(&self.pattern, &self.buffer, &mut sink);
        sink.finish(&searched)
    }

    /// Reads until something may match. Bytes without a match are overwritten by the next ones, except the end of a line.
    fn read_to_match(&mut self, file: &OpenFile, size: usize) -> io::Result<Result<FirstPass, Stopped>> {
        let Some(needle) = self.pattern.pattern().needle() else {
            self.fill(file, self.buffer.len(), size)?;
            // The searcher leaves a byte order mark out as well. With it, `^` would not match at the first line.
            let text = self.buffer.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.buffer);
            let is_ascii = text.is_ascii();
            return Ok(self.pattern.may_match(text).map(|matches| match matches {
                true => FirstPass::Match,
                false if is_ascii => FirstPass::Nothing,
                false => FirstPass::NotInBytes,
            }));
        };
        // Every encoding writes ASCII as UTF-8 does, so that only other characters may be there in other bytes.
        let is_ascii_needle = needle.needle().is_ascii();
        let mut is_ascii = true;
        let overlap = needle.needle().len() - 1;
        let mut done = self.buffer.len();
        loop {
            if needle.find(&self.buffer).is_some() {
                // The lines around the match may have been overwritten. Matches are rare enough to read the file again.
                if done > self.buffer.len() || done < size {
                    self.buffer.clear();
                    file.append_to(&mut self.buffer, size, 0)?;
                }
                return Ok(Ok(FirstPass::Match));
            }
            is_ascii = is_ascii && (is_ascii_needle || self.buffer.is_ascii());
            if done >= size {
                return self.without_match(file, size, done, is_ascii).map(Ok);
            }
            let kept = self.buffer.len().saturating_sub(overlap);
            self.buffer.drain(..kept);
            let before = self.buffer.len();
            file.append_to(&mut self.buffer, CHUNK_BYTES.min(size - done), done as u64)?;
            let more = self.buffer.len() - before;
            if more == 0 {
                return self.without_match(file, size, done, is_ascii).map(Ok);
            }
            done += more;
        }
    }

    /// The result of a first pass that has found nothing. Reads the whole file again if its bytes may be those of other characters.
    fn without_match(&mut self, file: &OpenFile, size: usize, done: usize, is_ascii: bool) -> io::Result<FirstPass> {
        if is_ascii {
            return Ok(FirstPass::Nothing);
        }
        if done > self.buffer.len() {
            self.buffer.clear();
            self.fill(file, 0, size)?;
        }
        Ok(FirstPass::NotInBytes)
    }

    fn fill(&mut self, file: &OpenFile, from: usize, to: usize) -> io::Result<()> {
        file.append_to(&mut self.buffer, to.saturating_sub(from), from as u64)
    }

    /// Searches a file that is too large to hold, with bounded memory.
    fn stream(&mut self, file: &OpenFile, at: &WalkPath, kind: FileKind) -> Result<ScannedFile, WorkspaceError> {
        let skipped_lines = self.skipped_lines(at);
        let mut sink =
            MatchCollector::new(&self.pattern, at, kind, self.context_lines, self.max_matches, skipped_lines);
        let searcher = self.searcher.get_or_insert_with(|| line_searcher(&self.pattern, self.context_lines));
        let searched = searcher.search_reader(&self.pattern, file.reader(), &mut sink);
        sink.finish(&searched)
    }
}

/// Creates what searches line by line.
fn line_searcher(pattern: &BoundedPattern<'_>, context_lines: usize) -> Searcher {
    SearcherBuilder::new()
        .line_terminator(pattern.pattern().line_terminator())
        .multi_line(pattern.pattern().multiline())
        .line_number(true)
        .before_context(context_lines)
        .after_context(context_lines)
        .binary_detection(BinaryDetection::quit(0))
        .memory_map(MmapChoice::never())
        .heap_limit(Some(if pattern.pattern().multiline() { MAX_DECODED_BYTES } else { MAX_STREAM_LINE_BYTES }))
        .bom_sniffing(true)
        .build()
}

/// Converts the early end of a search into the result of the file at which it ended.
fn scan_stopped(stopped: Stopped, at: &WalkPath) -> Result<ScannedFile, WorkspaceError> {
    match stopped {
        Stopped::Cancelled => Err(WorkspaceError::Cancelled),
        Stopped::Time => Ok(ScannedFile::OutOfTime),
        Stopped::Line | Stopped::Text => Ok(ScannedFile::Skipped(format!("{}: {stopped}", at.shown))),
    }
}

/// Collects matching lines with their context.
struct MatchCollector<'a> {
    pattern: &'a BoundedPattern<'a>,
    at: &'a WalkPath,
    kind: FileKind,
    context_lines: usize,
    max_matches: usize,
    /// Matches up to this line are left out.
    skipped_lines: u64,
    matches: Vec<Match>,
    /// The last lines, for the context before the next match.
    recent: VecDeque<(u64, String)>,
    binary: bool,
}

impl<'a> MatchCollector<'a> {
    fn new(
        pattern: &'a BoundedPattern<'a>,
        at: &'a WalkPath,
        kind: FileKind,
        context_lines: usize,
        max_matches: usize,
        skipped_lines: u64,
    ) -> Self {
        let (matches, recent) = (Vec::new(), VecDeque::new());
        Self { pattern, at, kind, context_lines, max_matches, skipped_lines, matches, recent, binary: false }
    }

    fn finish(self, searched: &io::Result<()>) -> Result<ScannedFile, WorkspaceError> {
        if let Some(stopped) = self.pattern.take_stopped() {
            return scan_stopped(stopped, self.at);
        }
        match searched {
            Ok(()) if self.binary => Ok(ScannedFile::NotText),
            Ok(()) => Ok(ScannedFile::Searched(self.matches)),
            // The file is open, so only a line beyond the limit or a read error ends the search.
            Err(_) => Ok(ScannedFile::Skipped(format!("{}: a line is too long, or it cannot be read", self.at.shown))),
        }
    }

    /// Adds lines from `number` on to the context of the matches around them.
    fn add_lines(&mut self, number: u64, lines: &[u8]) {
        for (number, line) in (number..).zip(snippet::split_lines(lines)) {
            self.add_context(number, snippet::without_ending(line));
        }
    }

    /// Adds line `number` to the context of the matches around it.
    fn add_context(&mut self, number: u64, text: &[u8]) {
        if self.context_lines == 0 {
            return;
        }
        let shown = snippet::head(text);
        let context = self.context_lines as u64;
        for earlier in self.matches.iter_mut().rev().take_while(|earlier| earlier.last_line() + context >= number) {
            if earlier.last_line() < number {
                earlier.after.push(shown.clone());
            }
        }
        if self.recent.len() == self.context_lines {
            self.recent.pop_front();
        }
        self.recent.push_back((number, shown));
    }

    /// Returns the end of the lines of the first match from the line at `start` on, and of those that begin in its last line.
    fn end_of_match(&self, text: &[u8], start: usize) -> Result<usize, io::Error> {
        let (mut end, mut at) = (start, start);
        while at <= text.len() {
            let Some(found) = self.pattern.find_at(text, at).map_err(io::Error::other)? else { break };
            if end > start && found.start() >= end {
                break;
            }
            let to = found.end();
            let ends_line = !found.is_empty() && text[to - 1] == b'\n';
            end = if ends_line { to } else { memchr(b'\n', &text[to..]).map_or(text.len(), |rest| to + rest + 1) };
            at = to.max(found.start() + 1);
        }
        Ok(if end > start { end } else { text.len() })
    }

    /// Adds a match, which has these lines. Returns whether more are wanted.
    fn push(&mut self, number: u64, bytes: &[u8]) -> Result<bool, io::Error> {
        if self.matches.len() == self.max_matches {
            return Ok(false);
        }
        let lines = snippet::without_ending(bytes);
        if number <= self.skipped_lines {
            self.add_lines(number, lines);
            return Ok(true);
        }
        let line = snippet::first_line(lines);
        let last = number + memchr_iter(b'\n', lines).count() as u64;
        // A match that spans lines may end with the ending of the last.
        let searched = if self.pattern.pattern().multiline() { bytes } else { lines };
        let span =
            self.pattern.find(searched).map_err(io::Error::other)?.map_or(0..0, |found| found.start()..found.end());
        let context = self.context_lines as u64;
        let before = self.recent.iter().filter(|(earlier, _)| earlier + context >= number);
        let next = Match {
            path: self.at.shown.as_str().to_owned(),
            line: number,
            end_line: (last > number).then_some(last),
            column: snippet::column(line, span.start),
            snippet: snippet::of_match(lines, &span),
            before: before.map(|(_, text)| text.clone()).collect(),
            after: Vec::new(),
            kind: self.kind,
        };
        self.add_lines(number, lines);
        self.matches.push(next);
        Ok(true)
    }
}

impl Sink for MatchCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let (mut number, text) = (found.line_number().unwrap_or(0), found.bytes());
        if !self.pattern.pattern().multiline() {
            return self.push(number, text);
        }
        // The searcher joins the matches of adjacent lines.
        let mut start = 0;
        while start < text.len() {
            let end = self.end_of_match(text, start)?;
            if !self.push(number, &text[start..end])? {
                return Ok(false);
            }
            number += memchr_iter(b'\n', &text[start..end]).count() as u64;
            start = end;
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.add_context(context.line_number().unwrap_or(0), snippet::without_ending(context.bytes()));
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}
