//! `edit_file`: replaces a text in a file.

use model::{Code, EditFault, EditResult, Encoding, LogicalPath, NearMatch, NearestText, Permission, Refusal, Rules};
use serde::Deserialize;

use crate::tool::change_plan::too_large;
use crate::tool::expected_version::ExpectedVersion;
use crate::tool::input::{self, bounded, file_path, parse};
use crate::tool::{Tool, ToolRun, ToolSchema};
use crate::tools::edits::{Edit, EditedText, ReplacedText, TextEdit, TextEditOutput};

pub(crate) const TOOL: Tool = Tool {
    name: "edit_file",
    description: "Replaces oldString with newString in one text file, as you last read it. oldString must occur exactly once, \
                  unless replaceAll is set; include enough surrounding lines.",
    is_expensive: false,
    permissions: &[Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<EditFileInput>,
    output: ToolSchema::of::<TextEditOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(TextEdit::try_from(parse::<EditFileInput>(members)?)?))),
};

/// The input of `edit_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "path": "src/main.rs",
    "oldString": "let limit = 10;",
    "newString": "let limit = 20;",
    "reason": "allow more"
}))]
pub(crate) struct EditFileInput {
    /// Relative to the workspace root.
    path: String,
    /// Text to replace. LF also matches CRLF.
    old_string: String,
    /// The new text.
    new_string: String,
    /// Replace every occurrence.
    #[serde(default)]
    replace_all: bool,
    /// With replaceAll: the number of occurrences that there must be.
    #[serde(default)]
    #[schema(minimum = 1)]
    expected_replacements: Option<u64>,
    /// The version that the file must have. `seen` refuses a file that has changed since this token has seen it.
    #[serde(default)]
    expected_sha256: Option<ExpectedVersion>,
    /// The encoding, if the guess is wrong.
    #[serde(default)]
    encoding: Option<String>,
}

impl TryFrom<EditFileInput> for TextEdit {
    type Error = Refusal;

    fn try_from(input: EditFileInput) -> Result<Self, Refusal> {
        let invalid = |message: &str, hint: &str| Err(Refusal::invalid(message, hint));
        if input.old_string.is_empty() {
            return invalid("`oldString` is empty", "Give the text to replace; write_file creates files.");
        }
        if input.old_string == input.new_string {
            return invalid("`oldString` and `newString` are the same", "Give a different `newString`.");
        }
        let replacements = input.expected_replacements;
        let replacements = replacements.map(|count| bounded("expectedReplacements", count, 1, u64::MAX)).transpose()?;
        if replacements.is_some() && !input.replace_all {
            return invalid("`expectedReplacements` is given without `replaceAll`", "Set `replaceAll`, or omit it.");
        }
        Ok(Self {
            path: file_path(&input.path)?,
            expected: input.expected_sha256,
            encoding: input::encoding(input.encoding.as_deref())?,
            edit: Edit::Replace(ReplacedText {
                old: input.old_string,
                new: input.new_string,
                replace_all: input.replace_all,
                replacements,
            }),
        })
    }
}

impl ReplacedText {
    /// Replaces the text in that of the file at `path`.
    ///
    /// # Errors
    ///
    /// `EDIT_NOT_FOUND`, `EDIT_NOT_UNIQUE`; `FILE_TOO_LARGE` for the new text.
    pub(crate) fn apply(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        text: &str,
        encoding: Encoding,
    ) -> Result<EditedText, Refusal> {
        let max_bytes = encoding.max_text_bytes(rules.policy().max_file_bytes);
        let edited = model::edit(text, &self.old, &self.new, self.replace_all, max_bytes);
        let EditResult { text, replacements } = edited.map_err(|fault| match fault {
            EditFault::TooLong { bytes } => too_large(rules, path, encoding.min_bytes_of(bytes)),
            EditFault::NotFound(near) => not_found(path, near),
            EditFault::AlreadyApplied(lines) => already_applied(path, lines),
            EditFault::Numbered(line) => numbered(path, line),
            EditFault::SameLines => same_lines(path),
            EditFault::NotUnique { occurrences, lines } => not_unique(path, occurrences, lines),
        })?;
        if let Some(wanted) = self.replacements.filter(|wanted| *wanted != replacements) {
            return Err(other_count(path, wanted, replacements));
        }
        Ok((text, replacements, format!("edited {path}, {replacements} ×")))
    }
}

fn not_unique(path: &LogicalPath, occurrences: u64, lines: Vec<u64>) -> Refusal {
    let message = format!("`oldString` occurs {occurrences} times in `{path}`");
    let hint = "Include more surrounding lines in `oldString`, or set `replaceAll`.";
    Refusal::new(Code::EditNotUnique, message, hint)
        .at(path)
        .with_details(|details| (details.lines, details.actual) = (lines, Some(occurrences)))
}

fn other_count(path: &LogicalPath, wanted: u64, occurrences: u64) -> Refusal {
    let message = format!("`oldString` occurs {occurrences} times in `{path}`, not {wanted} times");
    let hint = "Include more or fewer surrounding lines in `oldString`, or give the number of its occurrences.";
    Refusal::new(Code::EditNotUnique, message, hint)
        .at(path)
        .with_details(|details| (details.limit, details.actual) = (Some(wanted), Some(occurrences)))
}

fn already_applied(path: &LogicalPath, lines: Vec<u64>) -> Refusal {
    let message = format!("`oldString` was not found in `{path}`");
    let at: Vec<_> = lines.iter().take(5).map(u64::to_string).collect();
    let hint =
        format!("`newString` is there, at line {}: already applied. Continue with the next change.", at.join(", "));
    Refusal::new(Code::EditNotFound, message, hint).at(path).with_details(|details| details.lines = lines)
}

fn numbered(path: &LogicalPath, line: u64) -> Refusal {
    let message = format!("`oldString` was not found in `{path}`");
    let hint =
        "Its lines begin with line numbers, which the file does not have. Leave the numbers out, also in `newString`.";
    Refusal::new(Code::EditNotFound, message, hint).at(path).with_details(|details| {
        details.lines = vec![line];
        // Content, so that a caller without file:read does not learn what the file has.
        details.difference = Some(String::new());
    })
}

fn same_lines(path: &LogicalPath) -> Refusal {
    let message = "`oldString` and `newString` differ in their line endings only, and an edit keeps those of the file";
    Refusal::invalid(message, "To change line endings, use write_file with `lineEnding`.").at(path)
}

fn not_found(path: &LogicalPath, near: Vec<NearMatch>) -> Refusal {
    let message = format!("`oldString` was not found in `{path}`");
    // The near text is content of the file and must not be in the message, which is recorded.
    let hint = match near.first() {
        None => "Nothing similar is in the file. Read it again and copy the text exactly.".to_owned(),
        Some(best) => {
            let only = best.only.map(|only| format!(" and differs in {only} only")).unwrap_or_default();
            let unseen = best.unseen.as_deref().map(|named| format!(": {named}")).unwrap_or_default();
            let line = best.line;
            format!(
                "The nearest text is at line {line}{only}{unseen}. Copy it exactly: in `difference`, lines with + are in the file."
            )
        }
    };
    Refusal::new(Code::EditNotFound, message, hint).at(path).with_details(|details| {
        details.lines = near.iter().map(|found| found.line).collect();
        // Also set where nothing is similar, so that a caller without file:read does not learn that.
        details.difference = Some(near.first().map_or_else(String::new, |best| best.difference.clone()));
        let nearest = near.into_iter().map(|found| NearestText { line: found.line, difference: found.difference });
        details.nearest = nearest.collect();
    })
}
