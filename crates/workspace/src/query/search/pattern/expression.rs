//! What is known of an expression before it is compiled: its Unicode classes, and where it names line endings.

use std::convert::Infallible;
use std::ops::Range;

use regex_syntax::ast::{self, AssertionKind, Ast, ClassSetItem, Visitor};

use super::MAX_NESTING;

/// An expression that was looked through. One that is not valid has no findings, since compiling it returns the error.
#[derive(Default)]
pub(super) struct Expression {
    /// The number of Unicode classes. Each is expanded to hundreds of ranges before the expression is compiled.
    pub(super) unicode_classes: usize,
    multiline: bool,
    names_return: bool,
    /// What to replace so that it matches before and at either line ending, in order.
    replacements: Vec<(Range<usize>, &'static str)>,
}

impl Expression {
    pub(super) fn parse(expression: &str, multiline: bool) -> Self {
        let found = Self { multiline, ..Self::default() };
        match ast::parse::ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(expression) {
            Ok(parsed) => {
                let Ok(found) = ast::visit(&parsed, found);
                found
            }
            Err(_) => found,
        }
    }

    /// Returns the text `expression`, which was parsed, so that `$` matches before `\n` and before `\r\n`; it then also matches before a
    /// carriage return inside a line. If matches may span lines, `\n`, except in brackets, matches either line ending; if they may not,
    /// an expression with a carriage return is returned as it is.
    pub(super) fn in_either_form(self, expression: &str) -> String {
        let mut text = expression.to_owned();
        if self.multiline || !self.names_return {
            // From the last on, so that the ranges of the others stay right.
            for (range, replacement) in self.replacements.into_iter().rev() {
                text.replace_range(range, replacement);
            }
        }
        text
    }
}

impl Visitor for Expression {
    type Output = Self;
    type Err = Infallible;

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        let replacement = match ast {
            Ast::Literal(literal) if self.multiline && literal.c == '\n' => Some((literal.span, r"(?:\r?\n)")),
            Ast::Assertion(assertion) if assertion.kind == AssertionKind::EndLine => Some((assertion.span, "(?R:$)")),
            _ => None,
        };
        self.replacements.extend(replacement.map(|(span, text)| (span.start.offset..span.end.offset, text)));
        self.names_return |= matches!(ast, Ast::Literal(literal) if literal.c == '\r');
        self.unicode_classes += usize::from(matches!(ast, Ast::ClassUnicode(_) | Ast::ClassPerl(_)));
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        self.unicode_classes += usize::from(match item {
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => true,
            ClassSetItem::Range(range) => !range.end.c.is_ascii(),
            _ => false,
        });
        Ok(())
    }
}
