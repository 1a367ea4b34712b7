//! A compiled query, whose work on any text is bounded.
//!
//! The regex engine builds its automaton while it searches. If that grows too large, the engine follows all states at once, at
//! a cost of states × bytes that nothing can interrupt. Text is therefore searched in pieces of whole lines, shorter for an
//! expression with more states, with a look at the clock before each. What cannot be cut, a long line or a text whose matches
//! may span lines, is searched with an automaton that gives up when it grows too large.

mod expression;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use grep_matcher::{LineMatchKind, Match, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use memchr::{memchr, memmem, memrchr};
use model::Refusal;
use regex_automata::nfa::thompson;
use regex_automata::{Input, hybrid, util::syntax};

use super::{SearchMode, SearchQuery};
use crate::WorkspaceError;
use crate::error::check_cancelled;
use expression::Expression;

/// The maximum size of a compiled expression.
const MAX_NFA_BYTES: usize = 2 * 1024 * 1024;
/// The maximum size of an expression that is compiled again, also to be followed backwards, which takes more.
const MAX_DERIVED_NFA_BYTES: usize = 4 * MAX_NFA_BYTES;
/// The maximum size of the automaton that the regex engine builds while it searches.
const MAX_AUTOMATON_BYTES: usize = 8 * 1024 * 1024;
/// The maximum size of the automaton for texts that cannot be cut. It gives up once it has filled this twice.
const MAX_BOUNDED_AUTOMATON_BYTES: usize = 2 * 1024 * 1024;
/// The maximum number of Unicode classes.
const MAX_CLASSES: usize = 256;
/// The maximum nesting of groups.
const MAX_NESTING: u32 = 100;
/// The maximum number of states × bytes between two looks at the clock: less than half a second of work.
const MAX_WORK: usize = 16 * 1024 * 1024;
/// The maximum size of a piece of text without its last line.
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// A compiled query.
pub(super) struct Pattern {
    /// Finds a match in a line, or in a text if matches may span lines.
    matcher: RegexMatcher,
    /// Finds lines that may match, in a text of several.
    line_finder: RegexMatcher,
    /// The bytes that every match contains, for a case-sensitive literal.
    needle: Option<memmem::Finder<'static>>,
    /// Whether every occurrence of the needle is a match.
    is_literal: bool,
    /// How many bytes `matcher` and `line_finder` may search without a look at the clock.
    max_unchecked_bytes: usize,
    /// For longer texts that cannot be cut. Built for the first one.
    automaton: OnceLock<Option<hybrid::regex::Regex>>,
    expression: String,
    syntax: syntax::Config,
    /// Whether a line is searched without the carriage return of its ending.
    ends_before_return: bool,
    multiline: bool,
}

/// What one thread has built of the automaton of a pattern.
pub(super) type AutomatonCache = Option<hybrid::regex::Cache>;

/// When a search ends early.
#[derive(Clone, Copy)]
pub(super) struct SearchLimits<'a> {
    pub(super) deadline: Instant,
    pub(super) cancel: &'a AtomicBool,
}

/// Why the search of a file has ended early.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The search has reached its time limit.
    Time,
    /// The pattern is too complex for a line or a text of this length.
    TooComplex,
    /// The search was cancelled, or the disk failed.
    Failed(WorkspaceError),
}

/// The lines of a match.
pub(super) struct MatchedLines {
    /// Where they are in the text, with the ending of the last.
    pub(super) lines: Range<usize>,
    /// Where the match is in them.
    pub(super) span: Range<usize>,
}

impl Pattern {
    /// Compiles the query.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if it is empty, spans lines without `multiline`, is not a valid expression or is too large.
    pub(super) fn compile(query: &SearchQuery) -> Result<Self, Refusal> {
        if query.query.is_empty() {
            return Err(Refusal::invalid("`query` is empty", "Set `query` to the text to search for."));
        }
        let multiline = query.multiline;
        let literal = query.mode == SearchMode::Literal;
        let spans_lines = query.query.contains(['\n', '\r']);
        if literal && spans_lines && !multiline {
            return Err(Refusal::invalid(
                "`query` spans several lines, but lines are searched one by one",
                "Search for one of its lines, then use read_file around the match. Or set `multiline`.",
            ));
        }
        let text = match query.mode {
            SearchMode::Literal => regex_syntax::escape(&query.query.replace("\r\n", "\n")),
            SearchMode::Regex => query.query.clone(),
        };
        let parsed = Expression::parse(&text, multiline);
        check_classes(parsed.unicode_classes)?;
        let either_form = parsed.in_either_form(&text);
        // A line is searched without its ending, so that only finding it among others depends on that.
        let ends_before_return = !multiline && either_form != text;
        let expression = if multiline { &either_form } else { &text };
        let syntax = syntax::Config::new()
            .case_insensitive(!query.case_sensitive)
            .multi_line(true)
            .nest_limit(MAX_NESTING)
            .dot_matches_new_line(multiline)
            .utf8(false);
        let states = count_states(expression, syntax)?;
        let mut builder = RegexMatcherBuilder::new();
        builder
            .case_insensitive(!query.case_sensitive)
            .word(query.whole_word)
            .multi_line(true)
            .size_limit(MAX_DERIVED_NFA_BYTES)
            .dfa_size_limit(MAX_AUTOMATON_BYTES)
            .nest_limit(MAX_NESTING)
            .dot_matches_new_line(multiline)
            // A matcher with a line terminator promises that no match contains it.
            .line_terminator((!multiline).then_some(b'\n'));
        let build = |expression: &str| builder.build(expression).map_err(|error| refused(&error));
        let matcher = build(expression)?;
        let line_finder = if ends_before_return { build(&either_form)? } else { matcher.clone() };
        let is_plain = literal && !spans_lines && query.case_sensitive;
        Ok(Self {
            matcher,
            line_finder,
            needle: is_plain.then(|| memmem::Finder::new(query.query.as_bytes()).into_owned()),
            is_literal: is_plain && !query.whole_word,
            max_unchecked_bytes: MAX_WORK / states,
            automaton: OnceLock::new(),
            expression: if query.whole_word {
                format!(r"\b{{start-half}}(?:{expression})\b{{end-half}}")
            } else {
                expression.clone()
            },
            syntax,
            ends_before_return,
            multiline,
        })
    }

    /// Whether a match may span lines.
    pub(super) fn multiline(&self) -> bool {
        self.multiline
    }

    /// Returns the bytes that every match contains, for a case-sensitive literal.
    pub(super) fn needle(&self) -> Option<&memmem::Finder<'static>> {
        self.needle.as_ref()
    }

    /// Finds the lines of the first match in `text` from `from` on, where a line begins.
    pub(super) fn find_lines(
        &self,
        text: &[u8],
        from: usize,
        limits: &SearchLimits<'_>,
        cache: &mut AutomatonCache,
    ) -> Result<Option<MatchedLines>, Stopped> {
        if self.multiline {
            self.find_across_lines(text, from, limits, cache)
        } else {
            self.find_line(text, from, limits, cache)
        }
    }

    fn find_line(
        &self,
        text: &[u8],
        mut from: usize,
        limits: &SearchLimits<'_>,
        cache: &mut AutomatonCache,
    ) -> Result<Option<MatchedLines>, Stopped> {
        while from < text.len() {
            limits.check()?;
            let end = end_of_piece(text, from, self.max_unchecked_bytes.min(MAX_PIECE_BYTES));
            let Some(candidate) = self.find_candidate(&text[from..end]) else {
                from = end;
                continue;
            };
            let lines = start_of_line(text, from + candidate)..end_of_line(text, from + candidate);
            let line = &text[lines.clone()];
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").filter(|_| self.ends_before_return).unwrap_or(line);
            if let Some(found) = self.find(line, 0, cache)? {
                return Ok(Some(MatchedLines { lines, span: found.start()..found.end() }));
            }
            from = lines.end;
        }
        Ok(None)
    }

    /// Returns a position in the first line of `piece` that may match. Lines before it do not.
    fn find_candidate(&self, piece: &[u8]) -> Option<usize> {
        if let Some(needle) = &self.needle {
            return needle.find(piece);
        }
        let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
        // `find` searches a long line in another way. And `\A` matches at the start of each line, not of the piece.
        if piece.len() > self.max_unchecked_bytes || self.line_finder.line_terminator().is_none() {
            return Some(0);
        }
        self.line_finder.find_candidate_line(piece).ok().flatten().map(|found| match found {
            LineMatchKind::Confirmed(at) | LineMatchKind::Candidate(at) => at,
        })
    }

    fn find_across_lines(
        &self,
        text: &[u8],
        from: usize,
        limits: &SearchLimits<'_>,
        cache: &mut AutomatonCache,
    ) -> Result<Option<MatchedLines>, Stopped> {
        limits.check()?;
        let Some(first) = self.find(text, from, cache)? else { return Ok(None) };
        let start = start_of_line(text, first.start());
        // No line begins at the end.
        if from == text.len() || start == text.len() {
            return Ok(None);
        }
        let mut end = end_of_match(text, first);
        // Other matches that begin in its last line belong to it.
        let mut last = first;
        while last.end() < end {
            limits.check()?;
            match self.find(text, last.end().max(last.start() + 1), cache)? {
                Some(next) if next.start() < end => last = next,
                _ => break,
            }
            end = end.max(end_of_match(text, last));
        }
        Ok(Some(MatchedLines { lines: start..end, span: first.start() - start..first.end() - start }))
    }

    /// Finds the first match in `text` from `from` on.
    fn find(&self, text: &[u8], from: usize, cache: &mut AutomatonCache) -> Result<Option<Match>, Stopped> {
        if let Some(needle) = self.needle.as_ref().filter(|_| self.is_literal) {
            let found = needle.find(&text[from..]).map(|at| from + at);
            return Ok(found.map(|at| Match::new(at, at + needle.needle().len())));
        }
        if text.len() - from <= self.max_unchecked_bytes {
            return Ok(self.matcher.find_at(text, from).ok().flatten());
        }
        let automaton = self.automaton.get_or_init(|| automaton(&self.expression, self.syntax));
        let automaton = automaton.as_ref().ok_or(Stopped::TooComplex)?;
        let (cache, input) = (cache.get_or_insert_with(|| automaton.create_cache()), Input::new(text).range(from..));
        let found = automaton.try_search(cache, &input).or_else(|_| {
            // What was searched before must not decide when it gives up.
            cache.reset(automaton);
            automaton.try_search(cache, &input).map_err(|_| Stopped::TooComplex)
        });
        Ok(found?.map(|found| Match::new(found.start(), found.end())))
    }
}

impl SearchLimits<'_> {
    /// Fails once the search has been cancelled or has reached its time limit.
    pub(super) fn check(&self) -> Result<(), Stopped> {
        check_cancelled(self.cancel)?;
        if Instant::now() >= self.deadline { Err(Stopped::Time) } else { Ok(()) }
    }
}

impl<E: Into<WorkspaceError>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Returns where the line around `at` begins.
pub(super) fn start_of_line(text: &[u8], at: usize) -> usize {
    memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1)
}

/// Returns where the line around `at` ends, with its ending.
fn end_of_line(text: &[u8], at: usize) -> usize {
    memchr(b'\n', &text[at..]).map_or(text.len(), |rest| at + rest + 1)
}

/// Returns where the last line of a match ends.
fn end_of_match(text: &[u8], found: Match) -> usize {
    let ends_line = !found.is_empty() && text[found.end() - 1] == b'\n';
    if ends_line { found.end() } else { end_of_line(text, found.end()) }
}

/// Returns the end of the lines from `start` on that end within `bytes`, or of the first line if none does.
fn end_of_piece(text: &[u8], start: usize, bytes: usize) -> usize {
    if text.len() - start <= bytes {
        return text.len();
    }
    let end = start_of_line(text, start + bytes);
    if end > start { end } else { end_of_line(text, start + bytes) }
}

fn check_classes(count: usize) -> Result<(), Refusal> {
    if count <= MAX_CLASSES {
        return Ok(());
    }
    let message = format!("`query` has {count} Unicode classes, such as `\\w`; at most {MAX_CLASSES} are allowed");
    let refusal = Refusal::invalid(message, "Use fewer, or simpler classes such as `[a-z]` or `.`.");
    Err(refusal.with_details(|details| {
        (details.limit, details.actual) = (Some(MAX_CLASSES as u64), Some(count as u64));
    }))
}

/// Returns how many states the engine may have to follow at once. Accepts an invalid expression, since compiling it to a matcher
/// returns the error.
///
/// # Errors
///
/// `INVALID_REQUEST` if the expression is too large.
fn count_states(expression: &str, syntax: syntax::Config) -> Result<usize, Refusal> {
    let config = thompson::Config::new().nfa_size_limit(Some(MAX_NFA_BYTES)).utf8(false);
    match thompson::Compiler::new().syntax(syntax).configure(config).build(expression) {
        Ok(nfa) => Ok(nfa.states().len()),
        Err(error) if error.size_limit().is_some() => Err(Refusal::invalid(
            format!("`query` is too large: compiled, it takes more than {MAX_NFA_BYTES} bytes"),
            "Use fewer repetitions, or simpler classes such as `[a-z]` or `.`.",
        )
        .with_details(|details| details.limit = Some(MAX_NFA_BYTES as u64))),
        Err(_) => Ok(1),
    }
}

/// Returns an expression as an automaton that fails if it grows too large.
fn automaton(expression: &str, syntax: syntax::Config) -> Option<hybrid::regex::Regex> {
    let limits = hybrid::dfa::Config::new()
        .cache_capacity(MAX_BOUNDED_AUTOMATON_BYTES)
        .skip_cache_capacity_check(true)
        .minimum_cache_clear_count(Some(1))
        .unicode_word_boundary(true);
    hybrid::regex::Builder::new()
        .syntax(syntax)
        .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_DERIVED_NFA_BYTES)).utf8(false))
        .dfa(limits)
        .build(expression)
        .ok()
}

fn refused(error: &grep_regex::Error) -> Refusal {
    let message = model::excerpt(&error.to_string(), 400);
    if matches!(error.kind(), grep_regex::ErrorKind::NotAllowed(_)) {
        return Refusal::invalid(
            format!("`query` spans several lines, but lines are searched one by one: {message}"),
            "Search for a part of one line. Or set `multiline`.",
        );
    }
    // The parser shows the expression over several lines, with what it was wrapped in; its last line says what is wrong.
    let problem = message.rsplit_once("error: ").map_or(&*message, |(_, problem)| problem);
    Refusal::invalid(
        format!("`query` is not a valid expression: {problem}"),
        "Use the syntax of Rust's regex crate (no look-around, no back-references), or mode `literal`.",
    )
}
