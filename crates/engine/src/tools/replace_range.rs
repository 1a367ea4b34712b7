//! `replace_range`: replaces whole lines of a file by their numbers.

use model::{Encoding, LogicalPath, Permission, RangeFault, Refusal, Rules};
use serde::Deserialize;

use crate::tool::change_plan::too_large;
use crate::tool::expected_version::ExpectedVersion;
use crate::tool::input::{self, bounded, file_path, parse};
use crate::tool::{Tool, ToolRun, ToolSchema};
use crate::tools::edits::{Edit, EditedText, ReplacedLines, TextEdit, TextEditOutput};

pub(crate) const TOOL: Tool = Tool {
    name: "replace_range",
    description: "Replaces lines startLine to endLine of one text file, as read_file numbers them. Read it again after each change, \
                  which moves the numbers. Prefer edit_file for small changes of unique text.",
    is_expensive: false,
    permissions: &[Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<ReplaceRangeInput>,
    output: ToolSchema::of::<TextEditOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(TextEdit::try_from(parse::<ReplaceRangeInput>(members)?)?))),
};

/// The input of `replace_range`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "path": "src/main.rs",
    "startLine": 3,
    "endLine": 4,
    "content": "    let limit = 20;\n",
    "expectedSha256": "seen",
    "reason": "allow more"
}))]
pub(crate) struct ReplaceRangeInput {
    /// Relative to the workspace root.
    path: String,
    /// The first line to replace, from 1.
    #[schema(minimum = 1)]
    start_line: u64,
    /// The last line to replace; startLine - 1 inserts before startLine.
    #[schema(minimum = 0)]
    end_line: u64,
    /// The new lines; empty removes the old ones.
    content: String,
    /// The version of the file whose lines are numbered.
    expected_sha256: ExpectedVersion,
    /// The encoding, if the guess is wrong.
    #[serde(default)]
    encoding: Option<String>,
}

impl TryFrom<ReplaceRangeInput> for TextEdit {
    type Error = Refusal;

    fn try_from(input: ReplaceRangeInput) -> Result<Self, Refusal> {
        let start = bounded("startLine", input.start_line, 1, u64::MAX)?;
        let end = bounded("endLine", input.end_line, start - 1, u64::MAX)?;
        if end < start && input.content.is_empty() {
            let message = "`content` is empty, and no line is replaced";
            return Err(Refusal::invalid(message, "Give the lines to insert, or an `endLine` from `startLine` on."));
        }
        Ok(Self {
            path: file_path(&input.path)?,
            expected: Some(input.expected_sha256),
            encoding: input::encoding(input.encoding.as_deref())?,
            edit: Edit::Range(ReplacedLines { start, end, content: input.content }),
        })
    }
}

impl ReplacedLines {
    /// Replaces the lines in the text of the file at `path`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the file does not have the lines; `FILE_TOO_LARGE` for the new text.
    pub(crate) fn apply(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        text: &str,
        encoding: Encoding,
    ) -> Result<EditedText, Refusal> {
        let max_bytes = encoding.max_text_bytes(rules.policy().max_file_bytes);
        let text = model::replace_range(text, self.start, self.end, &self.content, max_bytes);
        let text = text.map_err(|fault| match fault {
            RangeFault::TooLong { bytes } => too_large(rules, path, encoding.min_bytes_of(bytes)),
            RangeFault::OutOfRange { total_lines } => self.out_of_range(path, total_lines),
        })?;
        let done = match (self.start, self.end) {
            (start, end) if end < start => format!("inserted lines before line {start} of {path}"),
            (start, end) if start == end => format!("replaced line {start} of {path}"),
            (start, end) => format!("replaced lines {start}-{end} of {path}"),
        };
        Ok((text, 1, done))
    }

    fn out_of_range(&self, path: &LogicalPath, total_lines: u64) -> Refusal {
        let Self { start, end, .. } = self;
        let message = format!("lines {start} to {end} are not all in `{path}`, which has {total_lines} lines");
        let hint = format!(
            "Give lines up to {total_lines}; to append, give startLine {} and endLine {total_lines}.",
            total_lines + 1
        );
        Refusal::invalid(message, hint).at(path).with_details(|details| {
            (details.limit, details.actual) = (Some(total_lines), Some((*end).max(*start)));
            details.total_lines = Some(total_lines);
        })
    }
}
