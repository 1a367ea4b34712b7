//! What a source file offers to others, by language: enough to see that a change touches it, not a parser.

mod extent;
mod scope;

use std::collections::BTreeMap;

use crate::LogicalPath;
use crate::confusables::with_folded;
use crate::credential::readable;
use scope::{Language, Scope};

/// Whether a change from `old` to `new` adds, removes or changes a public declaration; never for other languages.
///
/// - Rust: items and fields that are `pub`, without `pub(…)`; the variants of public enums and the items of public
///   traits; exported macros.
/// - Java: what is `public` or `protected`; the methods of public interfaces and the constants of public enums.
/// - TypeScript and JavaScript: what is exported, with the members of interfaces, types, enums and classes.
/// - Python: top-level `def`, `class` and `__all__`, and the methods of such classes, without a leading underscore.
/// - Go: top-level names with a capital, and their fields and methods.
///
/// White space, comments and the order of declarations do not matter, nor does what is in a body. Members are distinguished from
/// bodies by how far they are indented, so a text that is not formatted may be misread; a change that does not fire then
/// still shows in its diff.
pub(super) fn changes_public_api(path: &LogicalPath, old: Option<&[u8]>, new: Option<&[u8]>) -> bool {
    let Some(language) = language_of(path) else { return false };
    if old == new {
        return false;
    }
    let offered =
        |bytes: Option<&[u8]>| declarations(language, &String::from_utf8_lossy(&readable(bytes.unwrap_or_default())));
    offered(old) != offered(new)
}

/// Whether a file of that name may have public declarations.
pub(super) fn may_hold_one(path: &LogicalPath) -> bool {
    language_of(path).is_some()
}

fn language_of(path: &LogicalPath) -> Option<Language> {
    with_folded(path.file_name(), |name| match name.rsplit_once('.')?.1 {
        "rs" => Some(Language::Rust),
        "java" => Some(Language::Java),
        "ts" | "tsx" | "mts" | "cts" | "js" | "jsx" | "mjs" | "cjs" => Some(Language::TypeScript),
        "py" | "pyi" => Some(Language::Python),
        "go" => Some(Language::Go),
        _ => None,
    })
}

/// The public declarations of a text, without white space, and how often each occurs.
fn declarations(language: Language, text: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut scope = Scope::default();
    let mut taken_in = 0;
    let mut next = 0;
    for line in text.split_inclusive('\n') {
        let at = next;
        next += line.len();
        // What a declaration has taken in is not looked at again, so that the time stays linear.
        if at < taken_in {
            continue;
        }
        let Some(extent) = scope.enter(language, line) else { continue };
        let declaration = extent::cut(&text[at..], extent);
        taken_in = at + declaration.len();
        *found.entry(extent::squeeze(declaration)).or_default() += 1;
    }
    found
}

#[cfg(test)]
mod tests;
