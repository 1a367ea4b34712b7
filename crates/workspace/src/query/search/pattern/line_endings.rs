//! Line endings in an expression: a line may end in `\n` or `\r\n`.

use std::convert::Infallible;
use std::ops::Range;

use regex_syntax::ast::{self, AssertionKind, Ast, Visitor};

use super::MAX_NESTING;

/// Returns `expression` so that `$` matches before either line ending; it then also matches before a carriage return inside a
/// line. If matches may span lines, `\n`, except in brackets, matches either line ending; if they may not, an expression with a
/// carriage return is returned as it is. So is an invalid one, since compiling it returns the error.
pub(super) fn in_either_form(expression: &str, multiline: bool) -> String {
    let parsed = ast::parse::ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(expression);
    let mut text = expression.to_owned();
    let Ok(parsed) = parsed else { return text };
    let visitor = Replacements { multiline, has_return: false, found: Vec::new() };
    let Ok(replacements) = ast::visit(&parsed, visitor);
    // From the last on, so that the ranges of the others stay right.
    for (range, replacement) in replacements.into_iter().rev() {
        text.replace_range(range, replacement);
    }
    text
}

/// What to replace in an expression, in its order.
struct Replacements {
    multiline: bool,
    has_return: bool,
    found: Vec<(Range<usize>, &'static str)>,
}

impl Visitor for Replacements {
    type Output = Vec<(Range<usize>, &'static str)>;
    type Err = Infallible;

    fn finish(self) -> Result<Self::Output, Self::Err> {
        Ok(if self.has_return && !self.multiline { Vec::new() } else { self.found })
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        self.has_return |= matches!(ast, Ast::Literal(literal) if literal.c == '\r');
        let replacement = match ast {
            Ast::Literal(literal) if self.multiline && literal.c == '\n' => Some((literal.span, r"(?:\r?\n)")),
            Ast::Assertion(assertion) if assertion.kind == AssertionKind::EndLine => Some((assertion.span, "(?R:$)")),
            _ => None,
        };
        self.found.extend(replacement.map(|(span, text)| (span.start.offset..span.end.offset, text)));
        Ok(())
    }
}
