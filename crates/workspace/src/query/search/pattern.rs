//! Compiling a query.

mod bounded;
mod size;

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
    /// The bytes that every match contains, for a case-sensitive literal.
    needle: Option<memmem::Finder<'static>>,
    /// Approximately how many states the engine may have to follow at once for every byte.
    states: u64,
    /// The query as an expression, for the other engine.
    expression: String,
    case_sensitive: bool,
    crlf: bool,
}

impl Pattern {
    /// Compiles the query.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if it is empty, spans lines, is not a valid expression or is too large.
    pub(super) fn compile(query: &SearchQuery) -> Result<Self, Refusal> {
        if query.query.is_empty() {
            return Err(Refusal::invalid("`query` is empty", "Set `query` to the text to search for."));
        }
        let literal = query.mode == SearchMode::Literal;
        if literal && query.query.contains(['\n', '\r']) {
            return Err(Refusal::invalid(
                "`query` spans several lines, but lines are searched one by one",
                "Search for one of its lines, then use read_file around the match.",
            ));
        }
        // The automaton of a literal stays small.
        let states = if literal { 1 } else { size::check(query)? };
        // Makes `$` match before either kind of line ending. Without `$` the expression is faster without it.
        let crlf = !literal && query.query.contains('$');
        let mut builder = RegexMatcherBuilder::new();
        builder
            .fixed_strings(literal)
            .case_insensitive(!query.case_sensitive)
            .word(query.whole_word)
            .multi_line(true)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(MAX_NESTING)
            .line_terminator(Some(b'\n'));
        if crlf {
            builder.crlf(true);
        }
        let matcher = builder.build(&query.query).map_err(|error| refused(&error))?;
        let plain = literal && query.case_sensitive;
        let needle = plain.then(|| memmem::Finder::new(query.query.as_bytes()).into_owned());
        let expression = if query.whole_word {
            format!(r"\b{{start-half}}(?:{})\b{{end-half}}", query.query)
        } else {
            query.query.clone()
        };
        Ok(Self { matcher, needle, states, expression, case_sensitive: query.case_sensitive, crlf })
    }

    /// Returns the matcher's line terminator.
    pub(super) fn line_terminator(&self) -> LineTerminator {
        self.matcher.line_terminator().unwrap_or_default()
    }

    /// Returns the bytes that every match contains, for a case-sensitive literal.
    pub(super) fn needle(&self) -> Option<&memmem::Finder<'static>> {
        self.needle.as_ref()
    }
}

fn refused(error: &grep_regex::Error) -> Refusal {
    let message = model::excerpt(&error.to_string(), 400);
    Refusal::invalid(
        format!("`query` is not a valid expression: {message}"),
        "Use the syntax of Rust's regex crate (no look-around, no back-references), or mode `literal`.",
    )
}
