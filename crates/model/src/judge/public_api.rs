//! Detects changes of public declarations, by language. Compares lines; this is not a parser.

mod extent;
mod scope;

use std::collections::BTreeMap;

use crate::LogicalPath;
use crate::credential::readable;
use crate::path::confusables::with_folded;
use scope::EnclosingScope;
pub(crate) use scope::Language;

/// Whether a change from `old` to `new` adds, removes or changes a public declaration. False for other languages.
///
/// - Rust: items and fields that are `pub`, without `pub(…)`; the variants of public enums and the items of public
///   traits; exported macros.
/// - Java: what is `public` or `protected`; the methods of public interfaces and the constants of public enums.
/// - TypeScript and JavaScript: what is exported, with the members of interfaces, types, enums and classes.
/// - Python: top-level `def`, `class` and `__all__`, and the methods of such classes, without a leading underscore.
/// - Go: top-level names with a capital, and their fields and methods.
///
/// Ignores white space, comments, bodies and the order of declarations. Members and bodies are distinguished by their
/// indentation, so a text that is not formatted may be misread.
pub(super) fn changes_public_api(path: &LogicalPath, old: Option<&[u8]>, new: Option<&[u8]>) -> bool {
    let Some(language) = language_of(path) else { return false };
    if old == new {
        return false;
    }
    let declared =
        |bytes: Option<&[u8]>| declarations(language, &String::from_utf8_lossy(&readable(bytes.unwrap_or_default())));
    declared(old) != declared(new)
}

/// Whether a file of this name may have public declarations.
pub(super) fn may_have_declarations(path: &LogicalPath) -> bool {
    language_of(path).is_some()
}

pub(crate) fn language_of(path: &LogicalPath) -> Option<Language> {
    with_folded(path.file_name(), |name| match name.rsplit_once('.')?.1 {
        "rs" => Some(Language::Rust),
        "java" => Some(Language::Java),
        "ts" | "tsx" | "mts" | "cts" | "js" | "jsx" | "mjs" | "cjs" => Some(Language::TypeScript),
        "py" | "pyi" => Some(Language::Python),
        "go" => Some(Language::Go),
        _ => None,
    })
}

/// The normalized public declarations of a text, with the number of their occurrences.
fn declarations(language: Language, text: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut scope = EnclosingScope::default();
    let mut done = 0;
    let mut next = 0;
    for line in text.split_inclusive('\n') {
        let at = next;
        next += line.len();
        // Lines of a previous declaration are skipped, so that the time stays linear.
        if at < done {
            continue;
        }
        let Some(extent) = scope.enter(language, line) else { continue };
        let declaration = extent::cut(&text[at..], extent);
        done = at + declaration.len();
        *found.entry(extent::normalize(declaration)).or_default() += 1;
    }
    found
}

#[cfg(test)]
mod tests;
