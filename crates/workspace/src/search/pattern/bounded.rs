//! A pattern whose work on any text is bounded, in time and for a single line.
//!
//! The engine behind a pattern falls back to following all states of an expression at once where its automaton grows too
//! large, at a cost of states × bytes that nothing interrupts: an expression of 5,000 states takes 20 s for a line of 64 KiB.
//! So text is given to it in pieces of whole lines, with a look at the clock between them; and a line that is too long for
//! the expression is searched with an automaton that gives up.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use grep_matcher::{LineMatchKind, LineTerminator, Match, Matcher, NoCaptures};
use memchr::{memchr, memrchr};
use regex_automata::hybrid::regex::{Cache, Regex};
use regex_automata::{Input, hybrid, nfa::thompson, util::syntax};

use super::{MAX_COMPILED_BYTES, Pattern};

/// The most states × bytes that are searched without a look at the clock: about 2 s at the worst.
const MAX_WORK: u64 = 32 * 1024 * 1024;
/// A piece of text has at least so many bytes, and at most so many more than its last line.
const PIECE_BYTES: (usize, usize) = (1024, 128 * 1024);
/// The automaton for lines that are too long gives up once it has filled this twice.
const AUTOMATON_BYTES: usize = 2 * 1024 * 1024;

/// When a search ends, whatever it has found.
#[derive(Clone, Copy)]
pub(in crate::search) struct Until<'a> {
    pub(in crate::search) deadline: Instant,
    pub(in crate::search) cancel: &'a AtomicBool,
}

impl Until<'_> {
    /// # Errors
    ///
    /// `Cancelled`, or `Time` once the time is over.
    pub(in crate::search) fn check(&self) -> Result<(), Stopped> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Stopped::Cancelled);
        }
        if Instant::now() >= self.deadline { Err(Stopped::Time) } else { Ok(()) }
    }
}

/// Why a search of a text has ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::search) enum Stopped {
    Cancelled,
    Time,
    /// A line is too long for so large an expression.
    Line,
}

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cancelled => "the search was cancelled",
            Self::Time => "the search has taken its time",
            Self::Line => "a line is too long for this expression",
        })
    }
}

impl std::error::Error for Stopped {}

/// A pattern for one thread's search.
pub(in crate::search) struct Bounded<'a> {
    pattern: &'a Pattern,
    until: Until<'a>,
    /// For lines that are too long; made when the first one comes.
    automaton: OnceCell<Option<(Regex, RefCell<Cache>)>>,
    /// What has ended the last search: the error itself becomes a text on its way through the searcher.
    stopped: Cell<Option<Stopped>>,
}

impl<'a> Bounded<'a> {
    pub(in crate::search) fn new(pattern: &'a Pattern, until: Until<'a>) -> Self {
        Self { pattern, until, automaton: OnceCell::new(), stopped: Cell::new(None) }
    }

    pub(in crate::search) fn pattern(&self) -> &'a Pattern {
        self.pattern
    }

    pub(in crate::search) fn until(&self) -> &Until<'a> {
        &self.until
    }

    /// What has ended the search since this was asked the last time.
    pub(in crate::search) fn stopped(&self) -> Option<Stopped> {
        self.stopped.take()
    }

    /// Whether some line of `text` may match; where not, none does.
    ///
    /// # Errors
    ///
    /// What has ended the search of it.
    pub(in crate::search) fn may_match(&self, text: &[u8]) -> Result<bool, Stopped> {
        let found = self.find_candidate_line(text);
        self.stopped.take();
        Ok(found?.is_some())
    }

    /// Goes through `text` from `at` on by pieces of whole lines, without the last one's ending, until `look` finds something:
    /// by the whole pattern, or in a line too long for it by the automaton's match.
    fn by_pieces<T>(
        &self,
        text: &[u8],
        at: usize,
        look: impl FnMut(&[u8], usize, Option<Match>) -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        self.go_through(text, at, look).inspect_err(|stopped| self.stopped.set(Some(*stopped)))
    }

    fn go_through<T>(
        &self,
        text: &[u8],
        at: usize,
        mut look: impl FnMut(&[u8], usize, Option<Match>) -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        let longest = usize::try_from(MAX_WORK / self.pattern.states.max(1)).unwrap_or(usize::MAX);
        let piece_bytes = longest.clamp(PIECE_BYTES.0, PIECE_BYTES.1);
        let mut start = at;
        loop {
            self.until.check()?;
            let end = end_of_piece(text, start, piece_bytes);
            let piece = &text[start..end];
            let found = if piece.len() <= longest.max(PIECE_BYTES.0) {
                look(piece, start, None)
            } else {
                self.find_in_long_line(piece)?.and_then(|place| look(piece, start, Some(place)))
            };
            start = end + 1;
            if found.is_some() || start >= text.len() {
                return Ok(found);
            }
        }
    }

    fn find_in_long_line(&self, line: &[u8]) -> Result<Option<Match>, Stopped> {
        let automaton = self.automaton.get_or_init(|| {
            let regex = automaton(self.pattern)?;
            let cache = RefCell::new(regex.create_cache());
            Some((regex, cache))
        });
        let (regex, cache) = automaton.as_ref().ok_or(Stopped::Line)?;
        let found = regex.try_search(&mut cache.borrow_mut(), &Input::new(line)).map_err(|_| Stopped::Line)?;
        Ok(found.map(|found| Match::new(found.start(), found.end())))
    }
}

/// Where the piece of `text` from `start` on ends: at the end of a line. It has the last line that ends within `bytes`, or
/// one line that does not.
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

/// The pattern as an automaton that ends with an error where it grows too large.
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
                .crlf(pattern.crlf)
                .utf8(false),
        )
        .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_COMPILED_BYTES)).utf8(false))
        .dfa(limits)
        .build(&pattern.expression)
        .ok()
}

impl Matcher for Bounded<'_> {
    type Captures = NoCaptures;
    type Error = Stopped;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
        self.by_pieces(text, at, |piece, start, place| {
            let place = place.or_else(|| self.pattern.matcher.find(piece).ok().flatten())?;
            Some(place.offset(start))
        })
    }

    fn new_captures(&self) -> Result<NoCaptures, Stopped> {
        Ok(NoCaptures::new())
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.pattern.matcher.line_terminator()
    }

    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, Stopped> {
        self.by_pieces(text, 0, |piece, start, place| match place {
            Some(place) => Some(LineMatchKind::Confirmed(start + place.end())),
            None => self.pattern.matcher.find_candidate_line(piece).ok().flatten().map(|found| match found {
                LineMatchKind::Confirmed(place) => LineMatchKind::Confirmed(start + place),
                LineMatchKind::Candidate(place) => LineMatchKind::Candidate(start + place),
            }),
        })
    }
}
