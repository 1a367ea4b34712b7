//! The matches of one file, with their context.

use memchr::memchr_iter;
use model::{FileKind, LogicalPath};

use super::pattern::{AutomatonCache, MatchedLines, Pattern, SearchLimits, Stopped};
use super::{Match, SearchQuery, snippet};

/// The maximum size of all matches; as JSON they take less than about twice as much.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// Collects the matches of one file.
pub(super) struct FileMatches<'a> {
    pattern: &'a Pattern,
    limits: SearchLimits<'a>,
    path: &'a LogicalPath,
    kind: FileKind,
    context_lines: usize,
    max_matches: usize,
    /// Matches up to this line are left out; 0 if none is.
    after_line: u64,
    /// The next line that is searched.
    line: u64,
    found: Vec<Match>,
    /// The size of the found matches.
    bytes: usize,
}

impl<'a> FileMatches<'a> {
    pub(super) fn new(
        pattern: &'a Pattern,
        query: &'a SearchQuery,
        limits: SearchLimits<'a>,
        path: &'a LogicalPath,
        kind: FileKind,
    ) -> Self {
        // One surplus match shows that some are missing.
        let max_matches = if query.paths_only || query.one_per_file { 1 } else { query.max_matches + 1 };
        let after_line = query.after.as_ref().filter(|(after, _)| after == path).map_or(0, |(_, line)| *line);
        let context_lines = query.context_lines;
        Self {
            pattern,
            limits,
            path,
            kind,
            context_lines,
            max_matches,
            after_line,
            line: 1,
            found: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn path(&self) -> &'a LogicalPath {
        self.path
    }

    pub(super) fn into_found(self) -> Vec<Match> {
        self.found
    }

    /// Adds the matches of the lines of `text` from `from` to `to`. They are the next lines of the file; the others of `text` are
    /// their context. Returns whether more matches are wanted.
    ///
    /// # Errors
    ///
    /// What has ended the search early.
    pub(super) fn add(
        &mut self,
        text: &[u8],
        from: usize,
        to: usize,
        cache: &mut AutomatonCache,
    ) -> Result<bool, Stopped> {
        let mut at = from;
        while let Some(found) = self.pattern.find_lines(&text[..to], at, &self.limits, cache)? {
            self.line += count_lines(&text[at..found.lines.start]);
            at = found.lines.end;
            let next_line = self.line + count_lines(&text[found.lines.clone()]);
            if self.line > self.after_line {
                self.push(text, &found);
                // An answer has no more, whatever else it shows.
                if self.found.len() == self.max_matches || self.bytes > MAX_BYTES {
                    return Ok(false);
                }
            }
            self.line = next_line;
        }
        self.line += count_lines(&text[at..to]);
        Ok(true)
    }

    fn push(&mut self, text: &[u8], found: &MatchedLines) {
        let MatchedLines { lines, span } = found;
        let shown = snippet::without_ending(&text[lines.clone()]);
        let last = self.line + count_lines(shown);
        let found = Match {
            path: self.path.as_str().to_owned(),
            line: self.line,
            end_line: (last > self.line).then_some(last),
            column: snippet::column(snippet::first_line(shown), span.start),
            snippet: snippet::of_match(shown, span),
            before: snippet::lines_before(text, lines.start, self.context_lines),
            after: snippet::lines_after(text, lines.end, self.context_lines),
            kind: self.kind,
        };
        self.bytes += size_of(&found);
        self.found.push(found);
    }
}

/// Returns the number of lines that end in `text`.
fn count_lines(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

/// Returns about the size of a match as JSON.
pub(super) fn size_of(found: &Match) -> usize {
    let lines = found.before.iter().chain(&found.after).map(|line| line.len() + 4);
    found.path.len() + found.snippet.len() + lines.sum::<usize>() + 100
}
