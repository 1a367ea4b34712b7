//! `read_file`: some lines of a text file.

use model::{Code, Encoding, LineEnding, LogicalPath, PageFormat, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{FileContent, RANGED_READ_FACTOR, WorkspaceError};

use crate::tool::at_record::AtRecord;
use crate::tool::input::{bounded, file_path, parse};
use crate::tool::output::{ReadOutput, skip_text_member};
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The most content that one call tells, in bytes.
pub(crate) const MAX_CONTENT_BYTES: usize = 64 * 1024;
/// Larger files are read on a thread of their own, even where they are in memory.
const MAX_PROMPT_BYTES: u64 = 256 * 1024;

/// The most lines that one call tells.
pub(crate) const MAX_LINES: u64 = 1000;

pub(crate) const TOOL: Tool = Tool {
    name: "read_file",
    description: "Reads lines of a text file, 200 unless asked for more, and tells the file's sha256, which write_file \
                  and apply_patch take as the version that you saw. Go on with nextStartLine. With atSeq it reads the \
                  file as it was at an earlier record.",
    is_expensive: false,
    permissions: &[Permission::FileRead],
    content: &["content"],
    input: ToolSchema::of::<ReadFileInput>,
    output: ToolSchema::of::<ReadFileOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(ReadFile::try_from(parse::<ReadFileInput>(members)?)?))),
};

/// What `read_file` takes.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src/main.rs", "startLine": 1, "maxLines": 200}))]
pub(crate) struct ReadFileInput {
    /// The file.
    path: String,
    /// The first line, from 1.
    #[serde(default = "first")]
    #[schema(minimum = 1, default = 1)]
    start_line: u64,
    /// At most so many lines. Taken as 1,000 where it is more.
    #[serde(default = "two_hundred")]
    #[schema(minimum = 1, maximum = 1000, default = 200)]
    max_lines: u64,
    /// `numbered` puts `%6d | ` before each line and cuts lines over 2,000 characters; `raw` tells them as they are.
    #[serde(default)]
    #[schema(inline)]
    format: PageFormat,
    /// Read the file as it was at this record of the run's audit; 0 is what the run started from. Not with `mount`.
    #[serde(default)]
    #[schema(minimum = 0)]
    at_seq: Option<u64>,
}

fn first() -> u64 {
    1
}

fn two_hundred() -> u64 {
    200
}

/// What `read_file` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadFileOutput<'a> {
    /// The file, cleaned.
    path: &'a LogicalPath,
    /// Number of the first line told.
    start_line: u64,
    /// Number of the last line told; one less than `startLine` where none is.
    end_line: u64,
    /// Lines in the whole file.
    total_lines: u64,
    /// Hash of the whole file's bytes.
    sha256: Sha256,
    /// Whether lines follow, or the rest of a line of more than 64 KiB is left out, which with `raw` ends the content.
    truncated: bool,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_start_line: Option<u64>,
    /// The lines.
    #[serde(skip_serializing_if = "skip_text_member")]
    #[schema(required = true)]
    content: &'a str,
    /// How the file's bytes are its characters.
    encoding: Encoding,
    /// How the file's lines end.
    line_ending: LineEnding,
    /// Lines that were cut for their length; with `numbered` only.
    #[serde(skip_serializing_if = "is_zero")]
    lines_cut: u64,
    /// The record whose version this is, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_seq: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

struct ReadFile {
    path: LogicalPath,
    start_line: u64,
    max_lines: u64,
    format: PageFormat,
    at_seq: Option<u64>,
}

impl TryFrom<ReadFileInput> for ReadFile {
    type Error = Refusal;

    fn try_from(input: ReadFileInput) -> Result<Self, Refusal> {
        Ok(Self {
            start_line: bounded("startLine", input.start_line, 1, u64::MAX)?,
            max_lines: bounded("maxLines", input.max_lines, 1, MAX_LINES)?,
            format: input.format,
            at_seq: input.at_seq,
            path: file_path(&input.path)?,
        })
    }
}

impl ReadTool for ReadFile {
    fn read_inline(&self, context: &ReadContext<'_>) -> Option<Result<ReadOutput, WorkspaceError>> {
        let max_bytes = MAX_PROMPT_BYTES.min(Self::max_bytes(context));
        match context.tree.try_read(context.rules, &self.path, max_bytes)? {
            Ok(file) => Some(self.tell(&file)),
            // Too large to be read here; whether it is too large to be read at all is seen where it is.
            Err(WorkspaceError::Refused(refusal)) if refusal.code == Code::FileTooLarge => None,
            Err(fault) => Some(Err(fault)),
        }
    }

    fn at_record(&self) -> Option<AtRecord> {
        self.at_seq.map(|seq| AtRecord { seq, with_modes: false, only: Some(self.path.clone()) })
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let (rules, path, max_bytes) = (context.rules, &self.path, Self::max_bytes(context));
        let file = match context.at_record() {
            Some((past, run)) => {
                run.read_snapshot(rules, &past.files, path, max_bytes, past.contents.as_ref(), context.cancel)?
            }
            None => context.tree.read(rules, path, max_bytes)?,
        };
        self.tell(&file)
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }
}

impl ReadFile {
    fn max_bytes(context: &ReadContext<'_>) -> u64 {
        context.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR)
    }

    fn tell(&self, file: &FileContent) -> Result<ReadOutput, WorkspaceError> {
        let page = model::page(&file.bytes, self.format, self.start_line, self.max_lines, MAX_CONTENT_BYTES)
            .ok_or_else(|| crate::tool::input::unsupported_binary(&self.path))?;
        let output = ReadFileOutput {
            path: &self.path,
            start_line: page.start_line,
            end_line: page.end_line,
            total_lines: page.total_lines,
            sha256: file.sha256,
            truncated: page.truncated,
            next_start_line: page.next_start_line,
            content: &page.content,
            encoding: page.encoding,
            line_ending: page.line_ending,
            lines_cut: match self.format {
                PageFormat::Numbered => page.lines_cut,
                // A raw line is told as far as there is room, and not cut to be looked at.
                PageFormat::Raw => 0,
            },
            at_seq: self.at_seq,
        };
        let told = ReadOutput::with_text(&output, "content", &page.content, vec![self.path.clone()])?;
        Ok(told.with_file(&self.path, file.kind, file.sha256))
    }
}
