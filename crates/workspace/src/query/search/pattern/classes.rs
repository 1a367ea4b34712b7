//! The cost of the Unicode classes in an expression: each is expanded to hundreds of ranges before the expression is compiled.

use std::convert::Infallible;

use regex_syntax::ast::{self, Ast, ClassSetItem, Visitor};

use super::MAX_NESTING;

/// Returns the number of Unicode classes in `expression`; 0 if that is invalid, since compiling it returns the error.
pub(super) fn count(expression: &str) -> usize {
    let parsed = ast::parse::ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(expression);
    parsed.map_or(0, |parsed| {
        let Ok(count) = ast::visit(&parsed, UnicodeClasses(0));
        count
    })
}

struct UnicodeClasses(usize);

impl Visitor for UnicodeClasses {
    type Output = usize;
    type Err = Infallible;

    fn finish(self) -> Result<usize, Infallible> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        self.0 += usize::from(matches!(ast, Ast::ClassUnicode(_) | Ast::ClassPerl(_)));
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        self.0 += usize::from(match item {
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => true,
            ClassSetItem::Range(range) => !range.end.c.is_ascii(),
            _ => false,
        });
        Ok(())
    }
}
