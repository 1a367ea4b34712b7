//! The cost of an expression, estimated before it is compiled.
//!
//! A few characters may expand to many: a repetition multiplies what it repeats, a Unicode class has hundreds of ranges, and
//! a case-insensitive expression looks each of them up.

use model::Refusal;
use regex_syntax::ast::{self, Ast, ClassSetItem, Visitor};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::super::SearchQuery;
use super::MAX_NESTING;

/// The maximum cost of an expression, in character ranges including all repetitions: 0.1 s of work.
const MAX_COST: u64 = 100_000;
/// The cost of a character, and of any class with fewer ranges, since the search has to track it.
const LEAST_COST: u64 = 20;
/// The maximum number of named classes, such as `\p{Greek}`: each is built range by range.
const MAX_CLASSES: u64 = 100;

/// Returns approximately how many states the expression of a query has. Refuses one that would take long to compile. Accepts
/// an invalid one, since compiling it returns the error.
///
/// # Errors
///
/// `INVALID_REQUEST`, with the limit.
pub(super) fn check(expression: &str, query: &SearchQuery) -> Result<u64, Refusal> {
    let parser = ast::parse::ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(expression);
    let Ok(ast) = parser else { return Ok(1) };
    let Ok(classes) = ast::visit(&ast, Classes { count: 0, in_brackets: 0 });
    bounded("named classes", classes, MAX_CLASSES)?;
    let mut translator = regex_syntax::hir::translate::TranslatorBuilder::new();
    let translator = translator
        .case_insensitive(!query.case_sensitive)
        .multi_line(true)
        .dot_matches_new_line(query.multiline)
        .utf8(false);
    match translator.build().translate(expression, &ast) {
        Ok(hir) => {
            let cost = cost(&hir);
            bounded("character ranges, including repetitions,", cost, MAX_COST)?;
            Ok(cost.div_ceil(LEAST_COST))
        }
        Err(_) => Ok(1),
    }
}

fn bounded(what: &str, actual: u64, limit: u64) -> Result<(), Refusal> {
    if actual <= limit {
        return Ok(());
    }
    let message = format!("`query` is too large: it has {actual} {what} and the limit is {limit}");
    Err(Refusal::invalid(message, "Use fewer repetitions, or simpler classes such as `[a-z]` or `.`.")
        .with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual))))
}

/// Returns the cost of an expression. Its depth is bounded by the parser.
fn cost(hir: &Hir) -> u64 {
    let of_class = |ranges: usize| (ranges as u64).max(LEAST_COST);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64 * LEAST_COST,
        HirKind::Class(Class::Unicode(class)) => of_class(class.ranges().len()),
        HirKind::Class(Class::Bytes(class)) => of_class(class.ranges().len()),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            cost(&repetition.sub).saturating_mul(times.into()).saturating_add(1)
        }
        HirKind::Capture(capture) => cost(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(cost).fold(1, u64::saturating_add),
    }
}

/// Counts named classes: Unicode classes, and in brackets also short ones such as `\w`.
struct Classes {
    count: u64,
    in_brackets: u64,
}

impl Visitor for Classes {
    type Output = u64;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<u64, Self::Err> {
        Ok(self.count + self.in_brackets)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        self.count += u64::from(matches!(ast, Ast::ClassUnicode(_)));
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        self.in_brackets += u64::from(matches!(item, ClassSetItem::Unicode(_) | ClassSetItem::Perl(_)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::LogicalPath;

    use super::*;
    use crate::SearchMode;

    fn check_pattern(pattern: &str, case_sensitive: bool) -> Result<u64, Refusal> {
        let query = SearchQuery {
            query: pattern.to_owned(),
            mode: SearchMode::Regex,
            path: LogicalPath::root(),
            include_glob: Vec::new(),
            exclude_glob: Vec::new(),
            file_type: None,
            case_sensitive,
            whole_word: false,
            multiline: false,
            max_matches: 1,
            context_lines: 0,
            paths_only: false,
            one_per_file: false,
            after: None,
            max_time: std::time::Duration::from_mins(1),
        };
        check(pattern, &query)
    }

    #[test]
    fn what_would_take_long_to_compile_is_refused_by_its_size() {
        let named = r"\pL".repeat(101);
        let bracketed = r"[\w&&\pL]".repeat(51);
        for pattern in [
            "[a-z]{25000}",
            "(?:[ab]|c){5000}",
            r"\w{200}",
            "((a{100}){100}){100}",
            "a{4000000000}",
            &named,
            &bracketed,
        ] {
            for case_sensitive in [true, false] {
                let refusal = check_pattern(pattern, case_sensitive).unwrap_err();
                assert_eq!(refusal.code, model::Code::InvalidRequest, "{pattern}");
                assert!(refusal.details.actual > refusal.details.limit, "{pattern}: {:?}", refusal.details);
            }
        }
    }

    #[test]
    fn what_people_search_for_passes() {
        let names = (0..400).map(|number| format!("name{number}")).collect::<Vec<_>>().join("|");
        for pattern in [
            r"\b(?:\w{2,12} ){6,}\d\b",
            r"fn \w+\(.*\) -> Result<",
            ".{0,500}TODO.{0,500}",
            r"[\w.-]+@[\w.-]+",
            "(",
            &names,
        ] {
            for case_sensitive in [true, false] {
                check_pattern(pattern, case_sensitive).unwrap_or_else(|refusal| panic!("{pattern}: {refusal}"));
            }
        }
    }
}
