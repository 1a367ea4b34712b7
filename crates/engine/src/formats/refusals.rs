//! Refusals in the words of a form, from which its models recover.

use model::{Code, Refusal, RefusalReader, excerpt, hint_for};

use super::paths::FormRoot;
use super::{AsWritten, ModelFormat, Words};
use crate::tool::expected_version::{SeenFault, seen_fault};
use crate::tool::text::quote;
use crate::tool::text::refusal::{refusal_text, refusal_text_with};
use crate::tools::TOOLS;

/// The names of our arguments that hints use.
const ARGUMENTS: [&str; 18] = [
    "oldString",
    "newString",
    "replaceAll",
    "expectedSha256",
    "startLine",
    "endLine",
    "maxLines",
    "maxDepth",
    "includeGlob",
    "onConflict",
    "lineEnding",
    "encoding",
    "multiline",
    "outputOf",
    "CREATE_NEW",
    "REPLACE_EXISTING",
    "recursive",
    "timeoutSeconds",
];

/// The most characters of a text that a refusal repeats.
const MAX_REPEATED: usize = 200;
/// What comes before the path that may have been meant.
const MEANT: &str = "did you mean `";

impl ModelFormat {
    /// Returns what a model is told of a refused call.
    pub(crate) fn refusal_text(&self, asked: &AsWritten, refusal: &Refusal) -> String {
        let Words::Other(words) = self.words else { return refusal_text(refusal) };
        let hint = translate(&hint_for(&refusal.hint, RefusalReader::Model), words);
        let first = (self.refuse)(asked, refusal);
        let first = first.unwrap_or_else(|| format!("{}: {}", refusal.code, message_with(&refusal.message, words)));
        refusal_text_with(refusal, &first, &hint)
    }
}

/// Replaces our names of arguments in a message. What else is between backquotes is of the caller.
fn message_with(message: &str, words: &[(&str, &str)]) -> String {
    let mut out = message.to_owned();
    for (own, other) in words {
        if ARGUMENTS.contains(own) {
            out = out.replace(&format!("`{own}`"), &format!("`{other}`"));
        }
    }
    out
}

/// Replaces our names in a hint, and leaves out each sentence with a name for which the form has none.
fn translate(hint: &str, words: &[(&str, &str)]) -> String {
    // A whole hint for which the form has another.
    if let Some((_, other)) = words.iter().find(|(own, _)| *own == hint) {
        return (*other).to_owned();
    }
    let mut hint = hint.to_owned();
    // Names that are also words of a sentence are names only between backquotes.
    for (own, other) in words.iter().filter(|(own, _)| own.starts_with('`')) {
        hint = hint.replace(own, other);
    }
    let mut out = String::with_capacity(hint.len());
    for sentence in hint.split_inclusive(". ") {
        if let Some(sentence) = translate_sentence(sentence, words) {
            out.push_str(&sentence);
        }
    }
    out.trim_end().to_owned()
}

fn translate_sentence(sentence: &str, words: &[(&str, &str)]) -> Option<String> {
    let is_in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '-');
    let mut out = String::with_capacity(sentence.len());
    for word in sentence.split_inclusive(|c| !is_in_name(c)) {
        let name = word.trim_end_matches(|c| !is_in_name(c));
        let is_own = TOOLS.iter().any(|tool| tool.name == name) || ARGUMENTS.contains(&name);
        if !is_own {
            out.push_str(word);
            continue;
        }
        let (_, other) = words.iter().find(|(own, _)| *own == name)?;
        out.push_str(other);
        out.push_str(&word[name.len()..]);
    }
    Some(out)
}

/// What was to be replaced, as a refusal repeats it.
pub(super) fn repeated(text: &str) -> String {
    quote::one_line(&excerpt(text, MAX_REPEATED)).into_owned()
}

/// What a message says after a semicolon, such as what may have been meant.
pub(super) fn note_of(refusal: &Refusal) -> &str {
    refusal.message.find("; ").map_or("", |at| &refusal.message[at..])
}

/// As [`note_of`], with the path that may have been meant as the form writes it.
pub(super) fn note_under(root: FormRoot, refusal: &Refusal) -> String {
    let note = note_of(refusal);
    let meant = note.split_once(MEANT).and_then(|(before, rest)| Some((before, rest.split_once("`?")?)));
    match meant {
        Some((before, (path, after))) => format!("{before}{MEANT}{}`?{after}", root.show(path)),
        None => note.to_owned(),
    }
}

/// Ends a sentence that may end already.
pub(super) fn ended(mut sentence: String) -> String {
    if !sentence.ends_with(['.', '?']) {
        sentence.push('.');
    }
    sentence
}

/// The lines at which a text occurs, or how often it does where they are not known.
pub(super) fn occurrences(refusal: &Refusal) -> String {
    let lines: Vec<_> = refusal.details.lines.iter().map(u64::to_string).collect();
    if lines.is_empty() {
        format!("{} places", refusal.details.actual.unwrap_or_default())
    } else {
        format!("lines: [{}]", lines.join(", "))
    }
}

/// The refusal of a change of a file that the caller has not read, or has read in an earlier version.
pub(super) fn unread(refusal: &Refusal) -> Option<String> {
    if refusal.code != Code::WriteConflict {
        return None;
    }
    match seen_fault(refusal)? {
        SeenFault::Unseen => Some("File has not been read yet. Read it first before writing to it.".to_owned()),
        SeenFault::Changed => {
            Some("File has been modified since it was read. Read it again before writing to it.".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{message_with, translate};

    const WORDS: &[(&str, &str)] = &[("oldString", "old_str"), ("read_file", "view"), ("`to`", "`new_path`")];

    #[test]
    fn hints_name_what_the_form_has() {
        let table = [
            ("Copy `oldString` exactly.", "Copy `old_str` exactly."),
            ("Read it again with read_file, then call again.", "Read it again with view, then call again."),
            ("Include more lines in `oldString`. Or set `replaceAll`.", "Include more lines in `old_str`."),
            ("Find its path with find_files.", ""),
            (
                "Choose another path in `to`. Go on to the next.",
                "Choose another path in `new_path`. Go on to the next.",
            ),
            ("Read src/read_file.rs or my-read_file.", "Read src/read_file.rs or my-read_file."),
        ];
        for (hint, want) in table {
            assert_eq!(translate(hint, WORDS), want);
        }
        let message = "`oldString` was not found in `read_file`";
        assert_eq!(message_with(message, WORDS), "`old_str` was not found in `read_file`");
    }
}
