//! A query → what finds it.

mod size;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use memchr::memmem;
use model::Refusal;

use super::{SearchMode, SearchQuery};

/// A compiled expression may take so many bytes, and its automaton as many again.
const MAX_COMPILED_BYTES: usize = 8 * 1024 * 1024;
/// Groups may be nested so deep.
const MAX_NESTING: u32 = 100;

/// A compiled query.
pub(super) struct Pattern {
    matcher: RegexMatcher,
    /// What any match holds, byte for byte, where the query is that plain.
    needle: Option<memmem::Finder<'static>>,
}

impl Pattern {
    /// Compiles the query.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` where it is empty, spans lines, is no expression or is too large.
    pub(super) fn compile(query: &SearchQuery) -> Result<Self, Refusal> {
        if query.query.is_empty() {
            return Err(Refusal::invalid("`query` is empty", "Say what to search for."));
        }
        let literal = query.mode == SearchMode::Literal;
        if literal && query.query.contains(['\n', '\r']) {
            return Err(Refusal::invalid(
                "`query` spans lines, and lines are searched one by one",
                "Search for one line of it, then read_file around the match.",
            ));
        }
        if !literal {
            size::check(query)?;
        }
        // `$` stands before the end of a line of either kind; an expression without it is faster without the rule.
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
        Ok(Self { matcher, needle })
    }

    /// What finds it line by line.
    pub(super) fn matcher(&self) -> &RegexMatcher {
        &self.matcher
    }

    /// How lines end to the matcher.
    pub(super) fn line_terminator(&self) -> LineTerminator {
        self.matcher.line_terminator().unwrap_or_default()
    }

    /// The bytes that every match holds, if the query is that plain.
    pub(super) fn needle(&self) -> Option<&memmem::Finder<'static>> {
        self.needle.as_ref()
    }

    /// Whether some line of `text` may match; where not, none does.
    pub(super) fn may_match(&self, text: &[u8]) -> bool {
        match &self.needle {
            Some(needle) => needle.find(text).is_some(),
            // An error here is met again, and told, by the search line by line.
            None => !matches!(self.matcher.find_candidate_line(text), Ok(None)),
        }
    }
}

fn refused(error: &grep_regex::Error) -> Refusal {
    let told: String = error.to_string().chars().take(400).collect();
    Refusal::invalid(
        format!("`query` is no expression that can be searched for: {told}"),
        "Use the syntax of Rust's regex crate (no look-around, no back-references), or mode `literal`.",
    )
}
