//! A pattern whose work on any text is bounded, in time and for a single line.
//!
//! If an expression's automaton grows too large, the regex engine falls back to following all states at once, at a cost of
//! states × bytes that nothing can interrupt: an expression of 5,000 states takes 20 s for a line of 64 KiB. Text is
//! therefore searched in pieces of whole lines, with a check of the clock between them; and a line that is too long for the
//! expression is searched with an automaton that gives up. Where a match may span lines, the whole text is such a line.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use grep_matcher::{LineMatchKind, LineTerminator, Match, Matcher, NoCaptures};
use memchr::{memchr, memchr_iter, memrchr};
use regex_automata::hybrid::regex::{Cache, Regex};
use regex_automata::{Input, hybrid, nfa::thompson, util::syntax};

use super::{MAX_COMPILED_BYTES, Pattern};

/// The most states × bytes that are searched without a check of the clock: about 2 s in the worst case.
const MAX_WORK: u64 = 32 * 1024 * 1024;
/// The minimum and maximum size of a piece of text, without its last line.
const PIECE_BYTES: (usize, usize) = (1024, 128 * 1024);
/// The memory of the automaton for long lines. It gives up once it has filled this twice.
const AUTOMATON_BYTES: usize = 2 * 1024 * 1024;

/// When a search ends early.
#[derive(Clone, Copy)]
pub(in crate::query::search) struct PatternLimits<'a> {
    pub(in crate::query::search) deadline: Instant,
    pub(in crate::query::search) cancel: &'a AtomicBool,
}

impl PatternLimits<'_> {
    /// # Errors
    ///
    /// `Cancelled`, or `Time` once the deadline has passed.
    pub(in crate::query::search) fn check(&self) -> Result<(), Stopped> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Stopped::Cancelled);
        }
        if Instant::now() >= self.deadline { Err(Stopped::Time) } else { Ok(()) }
    }
}

/// Why the search of a text has ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::query::search) enum Stopped {
    Cancelled,
    Time,
    /// A line is too long for an expression of this size.
    Line,
    /// A text whose matches may span lines is too long for it.
    Text,
}

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cancelled => "the search was cancelled",
            Self::Time => "the search has reached its time limit",
            Self::Line => "a line is too long for this expression",
            Self::Text => "too large for this expression across lines",
        })
    }
}

impl std::error::Error for Stopped {}

/// A pattern for the searches of one thread.
pub(in crate::query::search) struct BoundedPattern<'a> {
    pattern: &'a Pattern,
    limits: PatternLimits<'a>,
    /// For lines that are too long; built for the first one.
    automaton: OnceCell<Option<(Regex, RefCell<Cache>)>>,
    /// What has ended the last search. The searcher itself converts its errors to text.
    stopped: Cell<Option<Stopped>>,
}

impl<'a> BoundedPattern<'a> {
    pub(in crate::query::search) fn new(pattern: &'a Pattern, limits: PatternLimits<'a>) -> Self {
        Self { pattern, limits, automaton: OnceCell::new(), stopped: Cell::new(None) }
    }

    pub(in crate::query::search) fn pattern(&self) -> &'a Pattern {
        self.pattern
    }

    pub(in crate::query::search) fn limits(&self) -> &PatternLimits<'a> {
        &self.limits
    }

    /// Takes what has ended the last search.
    pub(in crate::query::search) fn take_stopped(&self) -> Option<Stopped> {
        self.stopped.take()
    }

    /// Whether some line of `text` may match.
    ///
    /// # Errors
    ///
    /// What has ended the search early.
    pub(in crate::query::search) fn may_match(&self, text: &[u8]) -> Result<bool, Stopped> {
        let found = self.find_candidate_line(text);
        self.stopped.take();
        Ok(found?.is_some())
    }

    /// Calls `find` for each piece of `text` from `at` on, without the last line's ending, until it finds something. For a line
    /// that is too long for the pattern, or that has a carriage return inside, `find` gets the match of another matcher. A text
    /// whose matches may span lines is one piece, from its beginning on.
    fn by_pieces<T>(
        &self,
        text: &[u8],
        at: usize,
        find: impl FnMut(&[u8], usize, Option<Match>) -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        self.find_by_pieces(text, at, find).inspect_err(|stopped| self.stopped.set(Some(*stopped)))
    }

    fn find_by_pieces<T>(
        &self,
        text: &[u8],
        at: usize,
        mut find: impl FnMut(&[u8], usize, Option<Match>) -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        let longest = usize::try_from(MAX_WORK / self.pattern.states.max(1)).unwrap_or(usize::MAX);
        if self.pattern.multiline {
            self.limits.check()?;
            if text.len() <= longest.max(PIECE_BYTES.0) {
                return Ok(find(text, 0, None));
            }
            let found = self.find_by_automaton(text, at).map_err(|_| Stopped::Text)?;
            return Ok(found.and_then(|found| find(text, 0, Some(found))));
        }
        let piece_bytes = longest.clamp(PIECE_BYTES.0, PIECE_BYTES.1);
        let mut start = at;
        loop {
            self.limits.check()?;
            let end = end_of_piece(text, start, piece_bytes);
            let (end, line_matcher) = match &self.pattern.line_matcher {
                Some(matcher) => {
                    let (end, has_return) = end_at_inner_return(text, start, end);
                    (end, has_return.then_some(matcher))
                }
                None => (end, None),
            };
            let piece = &text[start..end];
            // Where it ends a line, an empty line would follow it.
            let piece = piece.strip_suffix(b"\r").filter(|_| self.pattern.crlf).unwrap_or(piece);
            let found = if piece.len() > longest.max(PIECE_BYTES.0) {
                self.find_by_automaton(piece, 0)?.and_then(|found| find(piece, start, Some(found)))
            } else if let Some(matcher) = line_matcher {
                matcher.find(piece).ok().flatten().and_then(|found| find(piece, start, Some(found)))
            } else {
                find(piece, start, None)
            };
            start = end + 1;
            if found.is_some() || start >= text.len() {
                return Ok(found);
            }
        }
    }

    /// Finds the first match from `at` on, unless the automaton gives up.
    fn find_by_automaton(&self, text: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
        let automaton = self.automaton.get_or_init(|| {
            let regex = automaton(self.pattern)?;
            let cache = RefCell::new(regex.create_cache());
            Some((regex, cache))
        });
        let (regex, cache) = automaton.as_ref().ok_or(Stopped::Line)?;
        let found =
            regex.try_search(&mut cache.borrow_mut(), &Input::new(text).range(at..)).map_err(|_| Stopped::Line)?;
        Ok(found.map(|found| Match::new(found.start(), found.end())))
    }
}

/// Returns the end of the piece of `text` that begins at `start`: the end of the last line that ends within `bytes`, or of
/// the first line if none does.
fn end_of_piece(text: &[u8], start: usize, bytes: usize) -> usize {
    if text.len() - start <= bytes {
        return if text[start..].ends_with(b"\n") { text.len() - 1 } else { text.len() };
    }
    let within = start + bytes;
    match memrchr(b'\n', &text[start..within]) {
        Some(end) => start + end,
        None => memchr(b'\n', &text[within..]).map_or(text.len(), |end| within + end),
    }
}

/// Returns the end of the piece of `text` from `start` to at most `end` that has no carriage return inside a line; or else the
/// end of its first line, which has one, and `true`.
fn end_at_inner_return(text: &[u8], start: usize, end: usize) -> (usize, bool) {
    let piece = &text[start..end];
    let is_inner = |at: &usize| text.get(start + at + 1).is_some_and(|next| *next != b'\n');
    let Some(inner) = memchr_iter(b'\r', piece).find(is_inner) else { return (end, false) };
    match memrchr(b'\n', &piece[..inner]) {
        Some(line_end) => (start + line_end, false),
        None => (memchr(b'\n', &piece[inner..]).map_or(end, |rest| start + inner + rest), true),
    }
}

/// Returns the pattern as an automaton that fails if it grows too large.
fn automaton(pattern: &Pattern) -> Option<Regex> {
    let limits = hybrid::dfa::Config::new()
        .cache_capacity(AUTOMATON_BYTES)
        .skip_cache_capacity_check(true)
        .minimum_cache_clear_count(Some(1))
        .unicode_word_boundary(true);
    hybrid::regex::Builder::new()
        .syntax(
            syntax::Config::new()
                .case_insensitive(!pattern.case_sensitive)
                .multi_line(true)
                // Alone, a line has no line ending.
                .crlf(pattern.crlf && pattern.multiline)
                .dot_matches_new_line(pattern.multiline)
                .utf8(false),
        )
        .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_COMPILED_BYTES)).utf8(false))
        .dfa(limits)
        .build(&pattern.expression)
        .ok()
}

impl Matcher for BoundedPattern<'_> {
    type Captures = NoCaptures;
    type Error = Stopped;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
        self.by_pieces(text, at, |piece, start, found| {
            // A piece begins with a line. In a text of several lines, what is before `at` decides about anchors.
            let from = if self.pattern.multiline { at } else { 0 };
            let found = found.or_else(|| self.pattern.matcher.find_at(piece, from).ok().flatten())?;
            Some(found.offset(start))
        })
    }

    fn new_captures(&self) -> Result<NoCaptures, Stopped> {
        Ok(NoCaptures::new())
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.pattern.matcher.line_terminator()
    }

    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, Stopped> {
        self.by_pieces(text, 0, |piece, start, found| match found {
            Some(found) => Some(LineMatchKind::Confirmed(start + found.end())),
            None => self.pattern.matcher.find_candidate_line(piece).ok().flatten().map(|found| match found {
                LineMatchKind::Confirmed(at) => LineMatchKind::Confirmed(start + at),
                LineMatchKind::Candidate(at) => LineMatchKind::Candidate(start + at),
            }),
        })
    }
}
