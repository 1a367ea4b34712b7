//! Refusals in the words of a form, from which its models recover.

use model::{Code, Refusal, RefusalReader, excerpt, hint_for};

use super::paths::FormRoot;
use super::{AsWritten, FormatTool, ModelFormat, Words};
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

/// How lines about decisions begin.
const DECISIONS: [&str; 5] = ["approved: ", "denied: ", "expired: ", "failed: ", "waiting: "];
/// How such a line says which call reads the output of a command, before the ID; a form that has commands has words for it.
pub(super) const OUTPUT_OF: &str = "; run_command with outputOf=";
/// What comes after the ID.
const SHOWN: &str = " shows its output";

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
        refusal_text_with(refusal, &self.notices(refusal.details.notices.clone()), &first, &hint)
    }

    /// Returns what a model is told of a refused input, which is in the words of the form already.
    pub(crate) fn input_refusal_text(&self, refusal: &Refusal) -> String {
        let first = format!("{}: {}", refusal.code, refusal.message);
        let hint = hint_for(&refusal.hint, RefusalReader::Model);
        refusal_text_with(refusal, &self.notices(refusal.details.notices.clone()), &first, &hint)
    }

    /// Returns lines about decisions with the names that the form has for our tools.
    pub(crate) fn notices(&self, lines: Vec<String>) -> Vec<String> {
        let Words::Other(words) = self.words else { return lines };
        lines.into_iter().map(|line| self.notice(line, words)).collect()
    }

    fn notice(&self, line: String, words: &[(&str, &str)]) -> String {
        // What else is told is a comment, in the words of a person.
        if !DECISIONS.iter().any(|start| line.starts_with(start)) {
            return line;
        }
        let (line, output) = match line.rsplit_once(OUTPUT_OF) {
            Some((line, rest)) if rest.ends_with(SHOWN) => (line, Some(rest)),
            _ => (line.as_str(), None),
        };
        let mut out = line.to_owned();
        let named = TOOLS.iter().filter_map(|tool| Some((after_path(line, tool.name)?, tool.name))).min();
        if let Some((at, own)) = named {
            let other = words.iter().find(|(name, _)| *name == own).map(|(_, other)| *other).or_else(|| {
                let becomes = |tool: &&FormatTool| tool.becomes.iter().any(|tool| tool.name == own);
                self.tools.iter().find(becomes).map(|tool| tool.name)
            });
            let other = other.map(|other| format!(" ({other})")).unwrap_or_default();
            out.replace_range(at..at + own.len() + " ()".len(), &other);
        }
        let how = words.iter().find(|(own, _)| *own == OUTPUT_OF);
        if let (Some(rest), Some((_, how))) = (output, how) {
            out.extend([how, rest]);
        }
        out
    }
}

/// Returns where ` (tool)` is in a line about a decision: after a path or a command, before what became of it.
fn after_path(line: &str, tool: &str) -> Option<usize> {
    let name = format!(" ({tool})");
    let is_end = |rest: &str| rest.is_empty() || [", ", ": ", " — "].iter().any(|end| rest.starts_with(end));
    line.match_indices(&name).map(|(at, _)| at).find(|at| is_end(&line[at + name.len()..]))
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
    use super::super::FORMATS;
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

    #[test]
    fn a_decision_names_the_tools_of_the_form() {
        let edited = "approved: src/a (edit_file).py (edit_file), applied — \"as (edit_file), asked\"";
        let ran = "approved: \"make\" (run_command): exit 2; run_command with outputOf=tc_1 shows its output";
        let of = |tool: &str| format!("approved: src/a (edit_file).py ({tool}), applied — \"as (edit_file), asked\"");
        let not_named = "approved: src/a (edit_file).py, applied — \"as (edit_file), asked\"".to_owned();
        let ran_by = |tool: &str, how: &str| format!("approved: \"make\" ({tool}): exit 2; {how} shows its output");
        let no_command = "approved: \"make\": exit 2".to_owned();
        for format in FORMATS.iter() {
            let expected = match format.name {
                "anthropic-editor" | "swe-agent" | "anthropic-memory" => (of("str_replace"), no_command.clone()),
                "anthropic-toolset" => (of("edit"), ran_by("bash", "read with file_path=/output/tc_1")),
                "claude-code" => (of("Edit"), no_command.clone()),
                "openai-apply-patch" => (not_named.clone(), no_command.clone()),
                "codex" => (not_named.clone(), ran_by("exec_command", "write_stdin with session_id=tc_1")),
                "gemini" => (of("replace"), ran_by("run_shell_command", "read_file with file_path=/output/tc_1")),
                "qwen" => (of("edit"), ran_by("run_shell_command", "read_file with file_path=/output/tc_1")),
                _ => (edited.to_owned(), ran.to_owned()),
            };
            let said = format.notices(vec![edited.to_owned(), ran.to_owned()]);
            assert_eq!(said, [expected.0, expected.1], "{}", format.name);
            let comment = vec!["comment on a by ada: \"denied: x (edit_file)\"".to_owned()];
            assert_eq!(format.notices(comment.clone()), comment);
        }
    }
}
