//! `read_file`: returns lines of a text file.

use model::{
    Code, Encoding, LineEnding, LogicalPath, PageFormat, PageStart, Permission, Refusal, Sha256, TextPageSize,
};
use serde::{Deserialize, Serialize};
use workspace::{FileContent, RANGED_READ_FACTOR, WorkspaceError};

use crate::tool::AtRecord;
use crate::tool::input::{self, bounded, decode_as, file_path, max_chars, parse, unsupported_binary};
use crate::tool::output::{ReadOutput, skip_text_member};
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema, text};

/// The maximum content of one response, in bytes.
pub(crate) const MAX_CONTENT_BYTES: usize = 64 * 1024;
/// The largest file that is read on the runtime's thread, in bytes.
const MAX_INLINE_BYTES: u64 = 256 * 1024;

/// The maximum number of lines in one response.
pub(crate) const MAX_LINES: u64 = 1000;

pub(crate) const TOOL: Tool = Tool {
    name: "read_file",
    description: "Returns lines of a text file, 200 by default. If more follow, the answer says which startLine continues. Read a \
                  file before you change it.",
    is_expensive: false,
    permissions: &[Permission::FileRead],
    content: &["content"],
    input: ToolSchema::of::<ReadFileInput>,
    output: ToolSchema::of::<ReadFileOutput>,
    text: text::files::read_file,
    run: ToolRun::Read(|members| Ok(Box::new(ReadFile::try_from(parse::<ReadFileInput>(members)?)?))),
};

/// The input of `read_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src/main.rs", "startLine": 1, "maxLines": 200}))]
pub(crate) struct ReadFileInput {
    /// Relative to the workspace root.
    path: String,
    /// The first line, from 1.
    #[serde(default = "first")]
    #[schema(minimum = 1, default = 1)]
    start_line: u64,
    /// The first character of the line.
    #[serde(default)]
    #[schema(minimum = 1)]
    column: Option<u64>,
    /// At most 1,000.
    #[serde(default = "two_hundred")]
    #[schema(minimum = 1, default = 200)]
    max_lines: u64,
    /// `numbered` adds line numbers and cuts long lines; `raw` does not.
    #[serde(default)]
    #[schema(inline)]
    format: PageFormat,
    /// Read the file as it was at this record of the run's audit; 0 is the run's start. Not allowed with `mount`.
    #[serde(default)]
    #[schema(minimum = 0)]
    at_seq: Option<u64>,
    /// The maximum length of `content` in characters. It ends with a whole line, unless the first line is longer.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
    /// The encoding, if the guess is wrong.
    #[serde(default)]
    encoding: Option<String>,
}

fn first() -> u64 {
    1
}

fn two_hundred() -> u64 {
    200
}

/// The output of `read_file`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadFileOutput<'a> {
    /// The normalised path.
    path: &'a LogicalPath,
    /// Number of the first returned line.
    start_line: u64,
    /// Number of the last returned line; `startLine` minus 1 if no line is returned.
    end_line: u64,
    /// Number of lines in the file.
    total_lines: u64,
    /// Hash of the file's bytes. Missing if `redacted` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
    /// True if the file is secret, and the content shows its keys without their values.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    redacted: bool,
    /// Whether more lines follow, or the rest of a line over 64 KiB is omitted; with `raw` such a line ends the content.
    truncated: bool,
    /// The `startLine` to continue with.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_start_line: Option<u64>,
    /// The lines. With `numbered`, each starts with `%6d | `.
    #[serde(skip_serializing_if = "skip_text_member")]
    #[schema(required = true)]
    content: &'a str,
    /// The file's character encoding.
    encoding: Encoding,
    /// True if the encoding is guessed from the bytes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    encoding_guessed: bool,
    /// The file's line endings.
    line_ending: LineEnding,
    /// Number of lines that were cut at 2,000 characters, or at `maxChars` if that is less; with `numbered` only.
    #[serde(skip_serializing_if = "is_zero")]
    lines_cut: u64,
    /// The first line that was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_line: Option<u64>,
    /// The `column` with which `startLine` = `cutLine` continues it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_column: Option<u64>,
    /// The `atSeq` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_seq: Option<u64>,
    /// The `format` of the request, if it is `raw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    format: Option<PageFormat>,
    /// If the file is a pointer of Git LFS: the number of bytes of the content, which is in Git LFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    git_lfs_bytes: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

struct ReadFile {
    path: LogicalPath,
    start: PageStart,
    max_lines: u64,
    format: PageFormat,
    at_seq: Option<u64>,
    max_chars: Option<usize>,
    encoding: Option<Encoding>,
}

impl TryFrom<ReadFileInput> for ReadFile {
    type Error = Refusal;

    fn try_from(input: ReadFileInput) -> Result<Self, Refusal> {
        Ok(Self {
            start: PageStart {
                line: bounded("startLine", input.start_line, 1, u64::MAX)?,
                column: input.column.map(|column| bounded("column", column, 1, u64::MAX)).transpose()?,
            },
            max_lines: bounded("maxLines", input.max_lines, 1, MAX_LINES)?,
            format: input.format,
            at_seq: input.at_seq,
            max_chars: max_chars(input.max_chars)?,
            encoding: input::encoding(input.encoding.as_deref())?,
            path: file_path(&input.path)?,
        })
    }
}

impl ReadTool for ReadFile {
    fn needs_one_state(&self) -> bool {
        false
    }

    fn read_inline(&self, context: &ReadContext<'_>) -> Option<Result<ReadOutput, WorkspaceError>> {
        let max_bytes = MAX_INLINE_BYTES.min(Self::max_bytes(context));
        match context.tree.try_read(context.rules, &self.path, max_bytes)? {
            Ok(file) => Some(self.output(&file)),
            // Too large to be read inline. `read` decides whether the file may be read at all.
            Err(WorkspaceError::Refused(refusal)) if refusal.code == Code::FileTooLarge => None,
            // `read` may show the keys of a secret file.
            Err(WorkspaceError::Refused(refusal)) if is_redactable(context, &refusal) => None,
            Err(fault) => Some(Err(fault)),
        }
    }

    fn at_record(&self) -> Option<AtRecord> {
        self.at_seq.map(|seq| AtRecord { seq, only: Some(self.path.clone()) })
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let (rules, path, max_bytes) = (context.rules, &self.path, Self::max_bytes(context));
        let file = match context.at_record() {
            Some((snapshot, workspace)) => {
                workspace.read_snapshot(rules, &snapshot.files, path, max_bytes, snapshot.contents.as_ref())?
            }
            None => match context.tree.read(rules, path, max_bytes) {
                Ok(file) => file,
                Err(error) => return self.redacted_output(&read_redacted(context, path, error)?),
            },
        };
        self.output(&file)
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }
}

impl ReadFile {
    fn max_bytes(context: &ReadContext<'_>) -> u64 {
        context.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR)
    }

    fn output(&self, file: &FileContent) -> Result<ReadOutput, WorkspaceError> {
        Ok(self.output_of(&file.bytes, Some(file.sha256))?.with_file(&self.path, file.kind, file.sha256))
    }

    /// The output for the keys of a secret file. No hash of the file is shown or recorded, since it would confirm a guess.
    fn redacted_output(&self, text: &str) -> Result<ReadOutput, WorkspaceError> {
        Ok(self.output_of(text.as_bytes(), None)?.with_redacted(&self.path))
    }

    /// The output for `bytes`, whose hash is missing if they are redacted.
    fn output_of(&self, bytes: &[u8], sha256: Option<Sha256>) -> Result<ReadOutput, WorkspaceError> {
        let size = TextPageSize { max_bytes: MAX_CONTENT_BYTES, max_chars: self.max_chars };
        // Text in a named encoding is paged as UTF-8.
        let named = self.encoding.filter(|_| sha256.is_some());
        let decoded = named.map(|encoding| decode_as(&self.path, bytes, encoding)).transpose()?;
        let shown = decoded.as_ref().map_or(bytes, |text| text.as_bytes());
        let page = model::page_within(shown, self.format, self.start, self.max_lines, size)
            .ok_or_else(|| unsupported_binary(&self.path))?;
        let output = ReadFileOutput {
            path: &self.path,
            start_line: page.start_line,
            end_line: page.end_line,
            total_lines: page.total_lines,
            sha256,
            redacted: sha256.is_none(),
            truncated: page.truncated,
            next_start_line: page.next_start_line,
            content: &page.content,
            encoding: named.unwrap_or(page.encoding),
            encoding_guessed: named.is_none() && model::is_guessed(bytes, page.encoding),
            line_ending: page.line_ending,
            lines_cut: match self.format {
                PageFormat::Numbered => page.lines_cut,
                // Raw lines are cut only by the limit of the content, which `truncated` reports.
                PageFormat::Raw => 0,
            },
            cut_line: page.cut.map(|cut| cut.line),
            next_column: page.cut.and_then(|cut| cut.column),
            at_seq: self.at_seq,
            format: Some(self.format).filter(|format| *format == PageFormat::Raw),
            git_lfs_bytes: model::git_lfs_pointer(bytes),
        };
        ReadOutput::with_text(&output, "content", &page.content, vec![self.path.clone()])
    }
}

/// Whether the keys of a file that was refused might be shown.
fn is_redactable(context: &ReadContext<'_>, refusal: &Refusal) -> bool {
    refusal.code == Code::PolicyDeniedSecret && context.rules.redacts_secrets()
}

/// Returns the keys of the secret file at `path` without their values, where policy permits it.
///
/// # Errors
///
/// `refused`, which reading the file as a whole has returned, if it does not; or if the disk fails.
pub(crate) fn read_redacted(
    context: &ReadContext<'_>,
    path: &LogicalPath,
    refused: WorkspaceError,
) -> Result<String, WorkspaceError> {
    let redacted = match &refused {
        WorkspaceError::Refused(refusal) if is_redactable(context, refusal) => {
            context.tree.read_redacted(context.rules, path, context.rules.policy().max_file_bytes)?
        }
        _ => None,
    };
    redacted.ok_or(refused)
}
