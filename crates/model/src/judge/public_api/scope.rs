//! Finds the lines at which public declarations begin, by language and enclosing declaration.

use super::extent::Extent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Java,
    TypeScript,
    Python,
    Go,
}

/// The declaration that encloses a line.
#[derive(Debug, Default)]
pub(super) struct EnclosingScope {
    /// The enclosing public declaration whose members are public too.
    owner: Option<MemberOwner>,
}

#[derive(Debug)]
struct MemberOwner {
    kind: PublicMembers,
    /// The indentation of its own line. It ends at the next line that is not indented further.
    indent: usize,
    /// The indentation of its members: that of the first one. Lines indented further belong to their bodies.
    members: Option<usize>,
}

/// The public members of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PublicMembers {
    /// Functions, types and constants of a trait.
    Trait,
    /// Methods of an interface.
    Interface,
    /// Constants of an enum.
    Constants,
    /// Members of an exported class that are not private.
    ExportedClass,
    /// Methods whose names do not begin with an underscore.
    Methods,
    /// Names that begin with a capital.
    Capitals,
}

impl EnclosingScope {
    /// Returns the extent of the public declaration that begins at `line`, if any.
    pub(super) fn enter(&mut self, language: Language, line: &str) -> Option<Extent> {
        let code = line.trim();
        let comment = match language {
            Language::Python => code.starts_with('#'),
            Language::Rust | Language::Java | Language::TypeScript | Language::Go => {
                code.starts_with("//") || code.starts_with('*') || code.starts_with("/*")
            }
        };
        if code.is_empty() || comment {
            return None;
        }
        let indent = line.len() - line.trim_start().len();
        self.leave(indent, code);
        let extent = match language {
            Language::Rust => rust(code),
            Language::Java => java(code),
            Language::TypeScript => typescript(code),
            Language::Python => python(indent, code),
            Language::Go => go(indent, code),
        };
        let extent = extent.or_else(|| self.member(indent, code));
        if let Some(kind) = owner_kind(language, indent, code) {
            self.owner = Some(MemberOwner { kind, indent, members: None });
        }
        extent
    }

    fn leave(&mut self, indent: usize, code: &str) {
        // A brace or bracket at the owner's indentation opens its body or ends its head.
        let continues =
            |owner: &MemberOwner| indent > owner.indent || (owner.members.is_none() && code.starts_with(['{', ')']));
        if self.owner.as_ref().is_some_and(|owner| !continues(owner)) {
            self.owner = None;
        }
    }

    fn member(&mut self, indent: usize, code: &str) -> Option<Extent> {
        let owner = self.owner.as_mut()?;
        if indent <= owner.indent || indent != *owner.members.get_or_insert(indent) {
            return None;
        }
        let word = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        match owner.kind {
            PublicMembers::Trait => {
                matches!(word, "fn" | "async" | "unsafe" | "const" | "type").then_some(Extent::Head("{;="))
            }
            PublicMembers::Interface => {
                (code.contains('(') && !code.starts_with(['@', '}'])).then_some(Extent::Head("{;="))
            }
            PublicMembers::Constants => {
                let is_constant = !word.is_empty() && word == word.to_uppercase() && !code.starts_with('@');
                is_constant.then_some(Extent::Head(",;\n"))
            }
            PublicMembers::ExportedClass => {
                let hidden = matches!(word, "private" | "static" if code.contains("private ") || code.contains('#'));
                (!hidden && !code.starts_with(['#', '}', '@', '_'])).then_some(Extent::Head("{;=\n"))
            }
            PublicMembers::Methods => python(0, code).filter(|_| !code.starts_with("class ")),
            PublicMembers::Capitals => word.starts_with(char::is_uppercase).then_some(Extent::Head("\n")),
        }
    }
}

/// Returns which members of the declaration that begins with `code` are public.
fn owner_kind(language: Language, indent: usize, code: &str) -> Option<PublicMembers> {
    let has = |word: &str| code.split_whitespace().any(|part| part == word);
    match language {
        Language::Rust => (code.starts_with("pub ") && has("trait")).then_some(PublicMembers::Trait),
        Language::Java if !has("public") => None,
        Language::Java if has("interface") || has("@interface") => Some(PublicMembers::Interface),
        Language::Java => has("enum").then_some(PublicMembers::Constants),
        Language::TypeScript => (code.starts_with("export ") && has("class")).then_some(PublicMembers::ExportedClass),
        Language::Python => {
            (indent == 0 && code.starts_with("class ") && python(0, code).is_some()).then_some(PublicMembers::Methods)
        }
        Language::Go => {
            let group = matches!(code, "const (" | "var (" | "type (");
            let fields = code.ends_with("struct {") || code.ends_with("interface {");
            let public = code.strip_prefix("type ").is_some_and(|name| name.starts_with(char::is_uppercase));
            (indent == 0 && (group || (fields && public))).then_some(PublicMembers::Capitals)
        }
    }
}

fn rust(code: &str) -> Option<Extent> {
    if code.starts_with("#[macro_export") {
        return Some(Extent::Head("{"));
    }
    let item = code.strip_prefix("pub ")?.trim_start();
    Some(match item.split_whitespace().next().unwrap_or_default() {
        word if word.starts_with('(') => return None,
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

fn java(code: &str) -> Option<Extent> {
    let code = without_annotations(code);
    (code.starts_with("public ") || code.starts_with("protected ")).then_some(Extent::Head("{;="))
}

fn typescript(code: &str) -> Option<Extent> {
    if code.starts_with("module.exports") || code.starts_with("exports.") {
        return Some(Extent::Head("{\n"));
    }
    let rest = code.strip_prefix("export").filter(|rest| rest.starts_with([' ', '{', '*']))?;
    let mut words = rest.split_whitespace().filter(|word| !matches!(*word, "default" | "declare" | "abstract"));
    Some(match words.next().unwrap_or_default() {
        "interface" | "enum" => Extent::Whole,
        "type" if code.contains('=') => Extent::Whole,
        "const" if code.contains(" enum ") => Extent::Whole,
        // The value of a constant is not part of its signature, but a function's value contains the signature.
        "const" | "let" | "var" if !code.contains("=>") && !code.contains("function") => Extent::Head("=;\n"),
        word if word.starts_with(['{', '*']) || word == "type" => Extent::Head(";\n"),
        _ => Extent::Head("{;\n"),
    })
}

fn python(indent: usize, code: &str) -> Option<Extent> {
    if indent > 0 {
        return None;
    }
    if code.starts_with("__all__") {
        return Some(Extent::Head("\n"));
    }
    let definition = code.strip_prefix("async ").unwrap_or(code);
    let name = definition.strip_prefix("def ").or_else(|| definition.strip_prefix("class "))?;
    (!name.starts_with('_') || name.starts_with("__init__") || name.starts_with("__call__"))
        .then_some(Extent::Head(":"))
}

fn go(indent: usize, code: &str) -> Option<Extent> {
    let is_public = |name: &str| name.starts_with(char::is_uppercase);
    if indent > 0 {
        return None;
    }
    let (word, rest) = code.split_once(' ')?;
    match (word, rest.strip_prefix('(')) {
        ("func", Some(method)) => {
            let (receiver, name) = method.split_once(") ")?;
            let receiver = receiver.rsplit(' ').next().unwrap_or(receiver).trim_start_matches('*');
            (is_public(receiver) && is_public(name)).then_some(Extent::Head("{\n"))
        }
        ("func" | "type", _) => is_public(rest).then_some(Extent::Head("{\n")),
        ("const" | "var", _) => is_public(rest).then_some(Extent::Head("=\n")),
        _ => None,
    }
}

/// Removes annotations such as `@Override` or `@Named("x")` from the start of `code`.
fn without_annotations(code: &str) -> &str {
    let mut rest = code;
    while let Some(annotation) = rest.strip_prefix('@').filter(|annotation| !annotation.starts_with("interface")) {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let after = annotation.trim_start_matches(is_name);
        let after = match after.strip_prefix('(') {
            Some(arguments) => arguments.split_once(')').map_or("", |(_, after)| after),
            None => after,
        };
        rest = after.trim_start();
    }
    rest
}
