//! Refusals and decisions in the words of a format, from which its models recover.

use engine::tools::text::{SeenFault, refusal_text_with, seen_fault};
use engine::tools::{CATALOGUE, TOOLS, Tool, ToolInfo};
use model::{
    Code, FILE_HEAD_HINT, FORMAT_HINT, HUNK_FILE_HINT, MessageParts, Refusal, RefusalReader, WHOLE_PATCH_HINT, hint_for,
};

use crate::ToolFormat;
use crate::mapping::MappedCall;
use crate::templates::fill;

/// The names of ours in hints that are no tools, and no arguments in two words.
const OTHER_NAMES: [&str; 5] = ["encoding", "multiline", "recursive", "CREATE_NEW", "REPLACE_EXISTING"];

/// Hints about the form of a patch.
const PATCH_HINTS: [&str; 4] = [WHOLE_PATCH_HINT, HUNK_FILE_HINT, FILE_HEAD_HINT, FORMAT_HINT];
/// How lines about decisions begin.
const DECISIONS: [&str; 5] = ["approved: ", "denied: ", "expired: ", "failed: ", "waiting: "];
/// How such a line says which call reads the output of a command, before the ID.
const OUTPUT_OF: &str = "; run_command with outputOf=";
/// The end of such a line, after the ID.
const SHOWN: &str = " shows its output";

impl ToolFormat {
    /// Returns what a model is told of a refused call, or of a refused input, which is in the words of the format already.
    pub(crate) fn refusal_text(&self, call: Option<&MappedCall>, refusal: &Refusal) -> String {
        let hint = hint_for(&refusal.hint, RefusalReader::Model);
        let (first, hint) = match call {
            Some(call) => (call.first_line(refusal), self.translate(&hint)),
            None => (format!("{}: {}", refusal.code, refusal.message), hint.into_owned()),
        };
        refusal_text_with(refusal, &self.notices(refusal.details.notices.clone()), &first, &hint)
    }

    /// Returns lines about decisions with the names that the format has for our tools.
    pub(crate) fn notices(&self, lines: Vec<String>) -> Vec<String> {
        lines.into_iter().map(|line| self.notice(line)).collect()
    }

    fn notice(&self, line: String) -> String {
        // Other lines are comments, in the words of a person.
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
            let becomes = || self.tools.iter().find(|tool| tool.becomes().any(|tool| tool.name == own));
            let other = self.words.get(own).or_else(|| becomes().map(|tool| &tool.name));
            let other = other.map(|other| format!(" ({other})")).unwrap_or_default();
            out.replace_range(at..at + own.len() + " ()".len(), &other);
        }
        if let (Some(rest), Some(reader)) = (output, &self.output) {
            out.extend(["; ", &reader.with, rest]);
        }
        out
    }

    /// Replaces our names in a hint, and leaves out each sentence with a name for which the format has none.
    pub(crate) fn translate(&self, hint: &str) -> String {
        if PATCH_HINTS.contains(&hint) {
            return self.patch_hint.as_deref().unwrap_or(FORMAT_HINT).to_owned();
        }
        let sentences = hint.split_inclusive(". ").filter_map(|sentence| self.translate_sentence(sentence));
        sentences.collect::<String>().trim_end().to_owned()
    }

    fn translate_sentence(&self, sentence: &str) -> Option<String> {
        let is_in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '-');
        let mut out = String::with_capacity(sentence.len());
        for word in sentence.split_inclusive(|c| !is_in_name(c)) {
            let name = word.trim_end_matches(|c| !is_in_name(c));
            let other = if is_own(name) { self.words.get(name)? } else { name };
            out.extend([other, &word[name.len()..]]);
        }
        Some(out)
    }

    /// Replaces our names of arguments in a message. Other texts between backquotes are the caller's.
    pub(crate) fn message(&self, message: &str) -> String {
        let names = self.words.iter().filter(|(own, _)| TOOLS.iter().all(|tool| tool.name != own.as_str()));
        names.fold(message.to_owned(), |out, (own, other)| out.replace(&format!("`{own}`"), &format!("`{other}`")))
    }
}

/// Whether hints use a word only as a name of ours.
fn is_own(word: &str) -> bool {
    let is_tool = |tool: &Tool| tool.name == word;
    let has_words = || word.contains(|c: char| c.is_ascii_uppercase());
    let takes = |tool: &ToolInfo| tool.input_schema["properties"].get(word).is_some();
    OTHER_NAMES.contains(&word) || TOOLS.iter().any(is_tool) || has_words() && CATALOGUE.iter().any(takes)
}

/// Returns where ` (tool)` is in a line about a decision: after a path or a command, before its outcome.
fn after_path(line: &str, tool: &str) -> Option<usize> {
    let name = format!(" ({tool})");
    let is_end = |rest: &str| rest.is_empty() || [", ", ": ", " — "].iter().any(|end| rest.starts_with(end));
    line.match_indices(&name).map(|(at, _)| at).find(|at| is_end(&line[at + name.len()..]))
}

impl MappedCall {
    /// Returns the first line of a refusal of the call.
    fn first_line(&self, refusal: &Refusal) -> String {
        let templates = self.tool.refusals.as_ref().unwrap_or(&self.format.refusals);
        let key = match (refusal.code, seen_fault(refusal)) {
            (Code::WriteConflict, Some(SeenFault::Unseen)) => "unseen",
            (Code::WriteConflict, Some(SeenFault::Changed)) => "changed",
            (code, _) => code.as_str(),
        };
        let said = templates.get(key).and_then(|template| fill(template, |name| self.value_of(name, refusal)));
        match said {
            // After a note that ends the sentence.
            Some(said) if said.ends_with("?.") => said.trim_end_matches('.').to_owned(),
            Some(said) => said,
            None => format!("{}: {}", refusal.code, self.format.message(&refusal.message)),
        }
    }

    fn value_of(&self, name: &str, refusal: &Refusal) -> Option<String> {
        let details = &refusal.details;
        match name {
            "times" => Some(details.actual.unwrap_or_default().to_string()),
            "wanted" => Some(details.limit.unwrap_or(1).to_string()),
            "total" => details.total_lines.map(|lines| lines.to_string()),
            "places" if details.lines.is_empty() => Some(format!("{} places", details.actual.unwrap_or_default())),
            "places" => {
                let lines: Vec<_> = details.lines.iter().map(u64::to_string).collect();
                Some(format!("lines: [{}]", lines.join(", ")))
            }
            "file" => Some(details.path.clone().unwrap_or_else(|| self.aside.path.clone())),
            "message" => Some(self.message_of(refusal)),
            "note" => Some(self.note_of(refusal)),
            name => self.value(name),
        }
    }

    /// Returns what a message says beside that something is wrong. A path that may be meant is as the format writes it.
    fn note_of(&self, refusal: &Refusal) -> String {
        let Some(MessageParts { note: Some(note), suggested_path, .. }) = refusal.parts.as_deref() else {
            return String::new();
        };
        match suggested_path {
            None => format!("; {note}"),
            Some(path) => {
                format!("; {}", note.replace(&format!("`{path}`"), &format!("`{}`", self.format.show(path))))
            }
        }
    }

    /// Returns the message. One about a line of a patch is about that of the diff, if the patch was made of one.
    pub(crate) fn message_of(&self, refusal: &Refusal) -> String {
        let before = self.aside.lines_before;
        let of_line = |line: u64| refusal.message.strip_prefix(&format!("line {line} of the patch: "));
        let line = refusal.parts.as_ref().and_then(|parts| parts.line).filter(|_| before > 0);
        match line.and_then(|line| Some((line, of_line(line)?))) {
            Some((line, problem)) if line > before => format!("line {} of the diff: {problem}", line - before),
            Some((_, problem)) => problem.to_owned(),
            None => refusal.message.clone(),
        }
    }
}
