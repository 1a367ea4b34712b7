//! What a source file offers to others, by language: enough to see that a change touches it, not a parser.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::LogicalPath;
use crate::kind::with_folded;

/// How far a declaration goes at most, in bytes.
const MAX_DECLARATION_BYTES: usize = 8 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Rust,
    Java,
    TypeScript,
    Python,
    Go,
}

/// How far the declaration that a line begins goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// To its body: the first of these characters outside brackets.
    Head(&'static str),
    /// To the end of its body, since all that is in it is offered too.
    Whole,
}

/// Whether a change from `old` to `new` adds, removes or changes a public declaration; never for other languages.
///
/// - Rust: items and fields that are `pub`, without `pub(…)`; the variants of a public enum; exported macros.
/// - Java: what is `public` or `protected`, and the methods of interfaces.
/// - TypeScript and JavaScript: what is exported; interfaces, types and enums with their members.
/// - Python: top-level `def`, `class` and `__all__`, and the methods of top-level classes, without a leading underscore.
/// - Go: top-level names with a capital, and their fields and methods.
///
/// White space and the order of declarations do not matter.
pub(super) fn changes_public_api(path: &LogicalPath, old: Option<&[u8]>, new: Option<&[u8]>) -> bool {
    let Some(language) = language_of(path) else { return false };
    if old == new {
        return false;
    }
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    declarations(language, &text(old)) != declarations(language, &text(new))
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

/// The public declarations of a text, without white space, and how often each stands there.
fn declarations(language: Language, text: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut scope = Scope::default();
    let mut done = 0;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let at = start;
        start += line.len();
        if at < done {
            continue;
        }
        let Some(extent) = scope.enter(language, line) else { continue };
        let declaration = cut(&text[at..], extent);
        // What a declaration has taken in is not looked at again, so that the time stays linear.
        done = at + declaration.len();
        *found.entry(squeezed(declaration)).or_default() += 1;
    }
    found
}

/// The declaration at the start of `text`, at least its first character.
fn cut(text: &str, extent: Extent) -> &str {
    let mut depth = 0_usize;
    let mut braces = 0_usize;
    for (at, c) in text.char_indices() {
        if at >= MAX_DECLARATION_BYTES {
            return &text[..at];
        }
        match (extent, c) {
            (Extent::Head(ends), c) if depth == 0 && at > 0 && ends.contains(c) => return &text[..at],
            (Extent::Whole, ';') if depth == 0 => return &text[..at],
            (_, '(' | '[' | '{') => {
                depth += 1;
                braces += usize::from(c == '{');
            }
            (_, ')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if extent == Extent::Whole && c == '}' && depth == 0 && braces > 0 {
                    return &text[..=at];
                }
            }
            _ => {}
        }
    }
    text
}

/// `text` without white space but where two words would run together, and without a comma before a closing bracket.
fn squeezed(text: &str) -> String {
    let mut squeezed = String::with_capacity(text.len());
    for word in text.lines().flat_map(|line| line.split("//").next().unwrap_or(line).split_whitespace()) {
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        if squeezed.ends_with(joins) && word.starts_with(joins) {
            squeezed.push(' ');
        }
        squeezed.push_str(word);
    }
    for bracket in [")", "]", "}", ">"] {
        squeezed = squeezed.replace(&format!(",{bracket}"), bracket);
    }
    squeezed
}

/// What the lines before make of a line.
#[derive(Debug, Default)]
struct Scope {
    /// Whether the lines belong to a public class (Python), interface (Java) or group (Go).
    within: bool,
}

impl Scope {
    /// How far the public declaration goes that `line` begins, if it begins one.
    fn enter(&mut self, language: Language, line: &str) -> Option<Extent> {
        let code = line.trim();
        if code.is_empty() || code.starts_with("//") || code.starts_with('*') || code.starts_with("/*") {
            return None;
        }
        match language {
            Language::Rust => rust(code),
            Language::Java => self.java(code),
            Language::TypeScript => typescript(code),
            Language::Python => self.python(line),
            Language::Go => self.go(line),
        }
    }

    fn java(&mut self, line: &str) -> Option<Extent> {
        let code = without_annotations(line);
        let declares = |word: &str| code.split_whitespace().any(|part| part == word);
        if ["class", "interface", "enum", "record", "@interface"].iter().any(|word| declares(word)) {
            self.within = declares("interface") && declares("public");
        }
        let is_public = code.starts_with("public ") || code.starts_with("protected ");
        let is_member = self.within && code.contains('(') && !code.starts_with(['}', '{']);
        let in_interface = is_member && code.starts_with(|c: char| c.is_alphabetic() || c == '<');
        (is_public || in_interface).then_some(Extent::Head("{;="))
    }

    fn python(&mut self, line: &str) -> Option<Extent> {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let definition = code.strip_prefix("async ").unwrap_or(code);
        let name = definition.strip_prefix("def ").or_else(|| definition.strip_prefix("class "));
        let is_public = name.is_some_and(|name| !name.starts_with('_') || name.starts_with("__init__"));
        if indent == 0 {
            if !code.starts_with([')', '#', '@']) {
                self.within = is_public && definition.starts_with("class ");
            }
            return match is_public {
                true => Some(Extent::Head(":")),
                false => code.starts_with("__all__").then_some(Extent::Head("\n")),
            };
        }
        // Only the first level below a class: what is defined in a method is the method's own.
        let is_method = matches!(indent, 1 | 2 | 4) && self.within;
        (is_method && is_public).then_some(Extent::Head(":"))
    }

    fn go(&mut self, line: &str) -> Option<Extent> {
        let code = line.trim();
        let is_capital = |name: &str| name.starts_with(char::is_uppercase);
        if line.starts_with(char::is_whitespace) {
            return (self.within && is_capital(code)).then_some(Extent::Head("\n"));
        }
        self.within = matches!(code, "const (" | "var (" | "type (");
        let (word, rest) = code.split_once(' ')?;
        match word {
            "func" => {
                let name = rest
                    .strip_prefix('(')
                    .and_then(|receiver| receiver.split_once(") "))
                    .map_or(rest, |(_, name)| name);
                is_capital(name).then_some(Extent::Head("{\n"))
            }
            "type" if is_capital(rest) && (rest.contains("struct {") || rest.contains("interface {")) => {
                Some(Extent::Whole)
            }
            "type" | "const" | "var" => is_capital(rest).then_some(Extent::Head("\n")),
            _ => None,
        }
    }
}

fn rust(code: &str) -> Option<Extent> {
    if code.starts_with("#[macro_export]") {
        return Some(Extent::Head("{"));
    }
    let item = code.strip_prefix("pub ")?;
    let word = item.split_whitespace().next().unwrap_or_default();
    Some(match word {
        "enum" => Extent::Whole,
        "use" => Extent::Head(";"),
        "fn" | "async" | "unsafe" | "extern" | "struct" | "union" | "trait" | "mod" | "type" | "macro" => {
            Extent::Head("{;")
        }
        "const" if item.contains(" fn ") => Extent::Head("{;"),
        "const" | "static" => Extent::Head("=;"),
        // A field.
        _ => Extent::Head(",}\n"),
    })
}

fn typescript(code: &str) -> Option<Extent> {
    let is_export = code.starts_with("export ") || code.starts_with("export{") || code.starts_with("export*");
    let is_commonjs = code.starts_with("module.exports") || code.starts_with("exports.");
    if !is_export {
        return is_commonjs.then_some(Extent::Head("{\n"));
    }
    let mut words = code.split_whitespace().skip(1).filter(|word| !matches!(*word, "default" | "declare"));
    Some(match words.next().unwrap_or_default() {
        "interface" | "type" | "enum" => Extent::Whole,
        "const" if code.contains(" enum ") => Extent::Whole,
        word if word.starts_with('{') => Extent::Whole,
        _ => Extent::Head("{;\n"),
    })
}

/// `line` without the annotations at its start, such as `@Override` or `@Named("x")`.
fn without_annotations(line: &str) -> Cow<'_, str> {
    let mut rest = line;
    while let Some(annotation) = rest.strip_prefix('@').filter(|annotation| !annotation.starts_with("interface")) {
        let name =
            annotation.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(annotation.len());
        let behind = &annotation[name..];
        rest = match behind.strip_prefix('(') {
            Some(arguments) => arguments.split_once(')').map_or("", |(_, rest)| rest),
            None => behind,
        }
        .trim_start();
    }
    Cow::Borrowed(rest)
}
