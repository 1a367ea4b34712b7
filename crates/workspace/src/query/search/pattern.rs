//! Compiling a query.

mod bounded;
mod line_endings;
mod size;

use std::borrow::Cow;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use memchr::memmem;
use model::Refusal;

use super::{SearchMode, SearchQuery};
pub(super) use bounded::{BoundedPattern, PatternLimits, Stopped};

/// The maximum size of a compiled expression, and of its automaton.
const MAX_COMPILED_BYTES: usize = 8 * 1024 * 1024;
/// The maximum nesting of groups.
const MAX_NESTING: u32 = 100;

/// A compiled query.
pub(super) struct Pattern {
    matcher: RegexMatcher,
    /// The matcher of a line with a carriage return inside, at which `matcher` would end a line.
    line_matcher: Option<RegexMatcher>,
    /// The bytes that every match contains, for a case-sensitive literal.
    needle: Option<memmem::Finder<'static>>,
    /// Approximately how many states the engine may have to follow at once for every byte.
    states: u64,
    /// The query as an expression, for the other engine.
    expression: String,
    case_sensitive: bool,
    crlf: bool,
    multiline: bool,
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
        let literal = query.mode == SearchMode::Literal;
        let spans_lines = query.query.contains(['\n', '\r']);
        if literal && spans_lines && !query.multiline {
            return Err(Refusal::invalid(
                "`query` spans several lines, but lines are searched one by one",
                "Search for one of its lines, then use read_file around the match. Or set `multiline`.",
            ));
        }
        // The lines of a text may end in either way.
        let text: Cow<'_, str> = match query.mode {
            SearchMode::Literal if spans_lines => {
                regex_syntax::escape(&query.query.replace("\r\n", "\n")).replace('\n', r"\r?\n").into()
            }
            SearchMode::Regex if query.multiline => line_endings::in_either_form(&query.query).into(),
            SearchMode::Literal | SearchMode::Regex => Cow::Borrowed(query.query.as_str()),
        };
        let is_fixed = literal && !spans_lines;
        // The automaton of a literal stays small.
        let states = if literal { 1 } else { size::check(&text, query)? };
        // Makes `$` match before either kind of line ending. Without `$` the expression is faster without it.
        let crlf = !literal && query.query.contains('$');
        let mut builder = RegexMatcherBuilder::new();
        builder
            .fixed_strings(is_fixed)
            .case_insensitive(!query.case_sensitive)
            .word(query.whole_word)
            .multi_line(true)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(MAX_NESTING)
            .dot_matches_new_line(query.multiline)
            .line_terminator(Some(b'\n'));
        if crlf {
            builder.crlf(true);
        }
        if query.multiline {
            // Whoever has a line terminator promises that no match has one in it.
            builder.line_terminator(None);
        }
        let matcher = builder.build(&text).map_err(|error| refused(&error))?;
        let line_matcher = (crlf && !query.multiline)
            .then(|| builder.crlf(false).line_terminator(Some(b'\n')).build(&text))
            .transpose()
            .map_err(|error| refused(&error))?;
        let plain = is_fixed && query.case_sensitive;
        let needle = plain.then(|| memmem::Finder::new(query.query.as_bytes()).into_owned());
        let expression =
            if query.whole_word { format!(r"\b{{start-half}}(?:{text})\b{{end-half}}") } else { text.into_owned() };
        let (case_sensitive, multiline) = (query.case_sensitive, query.multiline);
        Ok(Self { matcher, line_matcher, needle, states, expression, case_sensitive, crlf, multiline })
    }

    /// Returns the matcher's line terminator.
    pub(super) fn line_terminator(&self) -> LineTerminator {
        self.matcher.line_terminator().unwrap_or_default()
    }

    /// Whether a match may span lines.
    pub(super) fn multiline(&self) -> bool {
        self.multiline
    }

    /// Returns the bytes that every match contains, for a case-sensitive literal.
    pub(super) fn needle(&self) -> Option<&memmem::Finder<'static>> {
        self.needle.as_ref()
    }
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
