//! Line endings in an expression whose matches may span lines.

use std::convert::Infallible;
use std::ops::Range;

use regex_syntax::ast::{self, AssertionKind, Ast, Visitor};

use super::MAX_NESTING;

/// Returns `expression` so that `\n`, except in brackets, matches either line ending, and `^` does not match after a carriage
/// return alone. Returns an invalid one as it is, since compiling it returns the error.
pub(super) fn in_either_form(expression: &str) -> String {
    let parsed = ast::parse::ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(expression);
    let mut text = expression.to_owned();
    let Ok(parsed) = parsed else { return text };
    let Ok(replacements) = ast::visit(&parsed, Replacements(Vec::new()));
    // From the last on, so that the ranges of the others stay right.
    for (range, replacement) in replacements.into_iter().rev() {
        text.replace_range(range, replacement);
    }
    text
}

/// What to replace in an expression, in its order.
struct Replacements(Vec<(Range<usize>, &'static str)>);

impl Visitor for Replacements {
    type Output = Vec<(Range<usize>, &'static str)>;
    type Err = Infallible;

    fn finish(self) -> Result<Self::Output, Self::Err> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        let replacement = match ast {
            Ast::Literal(literal) if literal.c == '\n' => Some((literal.span, r"(?:\r?\n)")),
            Ast::Assertion(assertion) if assertion.kind == AssertionKind::StartLine => {
                Some((assertion.span, "(?-R:^)"))
            }
            _ => None,
        };
        self.0.extend(replacement.map(|(span, text)| (span.start.offset..span.end.offset, text)));
        Ok(())
    }
}
