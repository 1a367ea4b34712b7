//! `read_file`: returns lines of a text file.

use model::{
    Code, Encoding, FileKind, LineEnding, LogicalPath, PageFormat, PageStart, Permission, Refusal, Sha256, TextPage,
    TextPageSize,
};
use serde::{Deserialize, Serialize};
use workspace::{FileContent, RANGED_READ_FACTOR, WorkspaceError};

use crate::tool::AtRecord;
use crate::tool::input::{self, bounded, decode_as, file_path, max_chars, parse, unsupported_binary};
use crate::tool::output::{ReadOutput, is_zero, skip_long_text};
use crate::tool::{ReadContext, ReadTool, SnapshotView, Tool, ToolRun, ToolSchema};

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
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadFileOutput {
    /// The normalised path.
    pub(crate) path: LogicalPath,
    /// Number of the first returned line.
    pub(crate) start_line: u64,
    /// Number of the last returned line; `startLine` minus 1 if no line is returned.
    pub(crate) end_line: u64,
    /// Number of lines in the file.
    pub(crate) total_lines: u64,
    /// Hash of the file's bytes. Missing if `redacted` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<Sha256>,
    /// True if the file is secret, and the content shows its keys without their values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
    /// Whether more lines follow, or the rest of a line over 64 KiB is omitted; with `raw` such a line ends the content.
    pub(crate) truncated: bool,
    /// The `startLine` to continue with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_start_line: Option<u64>,
    /// The lines. With `numbered`, each starts with `%6d | `.
    // Here without the numbers, which JSON alone has.
    #[serde(skip_serializing_if = "skip_long_text")]
    #[schema(required = true)]
    pub(crate) content: String,
    /// The file's character encoding.
    pub(crate) encoding: Encoding,
    /// True if the encoding is guessed from the bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) encoding_guessed: bool,
    /// The file's line endings.
    pub(crate) line_ending: LineEnding,
    /// Number of lines that were cut at 2,000 characters, or at `maxChars` if that is less; with `numbered` only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) lines_cut: u64,
    /// The first line that was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut_line: Option<u64>,
    /// The `column` with which `startLine` = `cutLine` continues it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_column: Option<u64>,
    /// The `atSeq` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_seq: Option<u64>,
    /// The `format` of the request, if it is `raw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) format: Option<PageFormat>,
    /// If the file is a pointer of Git LFS: the number of bytes of the content, which is in Git LFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) git_lfs_bytes: Option<u64>,
}

struct ReadFile {
    path: LogicalPath,
    page: PageQuery,
    at_seq: Option<u64>,
}

impl TryFrom<ReadFileInput> for ReadFile {
    type Error = Refusal;

    fn try_from(input: ReadFileInput) -> Result<Self, Refusal> {
        let page = PageQuery {
            start: PageStart {
                line: bounded("startLine", input.start_line, 1, u64::MAX)?,
                column: input.column.map(|column| bounded("column", column, 1, u64::MAX)).transpose()?,
            },
            max_lines: bounded("maxLines", input.max_lines, 1, MAX_LINES)?,
            format: input.format,
            size: TextPageSize { max_bytes: MAX_CONTENT_BYTES, max_chars: max_chars(input.max_chars)? },
            encoding: input::encoding(input.encoding.as_deref())?,
        };
        Ok(Self { page, at_seq: input.at_seq, path: file_path(&input.path)? })
    }
}

impl ReadTool for ReadFile {
    fn needs_one_state(&self) -> bool {
        false
    }

    fn read_inline(&self, context: &ReadContext<'_>) -> Option<Result<ReadOutput, WorkspaceError>> {
        let max_bytes = MAX_INLINE_BYTES.min(max_bytes(context));
        match context.tree.try_read(context.rules, &self.path, max_bytes)? {
            Ok(file) => Some(self.page.of_file(&self.path, &file).map(|page| self.output(page))),
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
        let page = match context.at_record() {
            Some((SnapshotView { files, contents }, workspace)) => {
                let (rules, max_bytes) = (context.rules, max_bytes(context));
                let file = workspace.read_snapshot(rules, files, &self.path, max_bytes, contents.as_ref())?;
                self.page.of_file(&self.path, &file)?
            }
            None => self.page.read(context, &self.path)?,
        };
        Ok(self.output(page))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }
}

impl ReadFile {
    fn output(&self, file: FilePage) -> ReadOutput {
        let FilePage { page, version, .. } = file;
        let output = ReadFileOutput {
            path: self.path.clone(),
            start_line: page.start_line,
            end_line: page.end_line,
            total_lines: page.total_lines,
            sha256: version.map(|(_, sha256)| sha256),
            redacted: version.is_none(),
            truncated: page.truncated,
            next_start_line: page.next_start_line,
            content: page.content,
            encoding: page.encoding,
            encoding_guessed: file.encoding_guessed,
            line_ending: page.line_ending,
            lines_cut: match self.page.format {
                PageFormat::Numbered => page.lines_cut,
                // Raw lines are cut only by the limit of the content, which `truncated` reports.
                PageFormat::Raw => 0,
            },
            cut_line: page.cut.map(|cut| cut.line),
            next_column: page.cut.and_then(|cut| cut.column),
            at_seq: self.at_seq,
            format: Some(self.page.format).filter(|format| *format == PageFormat::Raw),
            git_lfs_bytes: file.git_lfs_bytes,
        };
        ReadOutput::new(output, vec![self.path.clone()]).with_version(&self.path, version)
    }
}

/// Which lines of a file to return, and how.
pub(crate) struct PageQuery {
    /// The first one.
    pub(crate) start: PageStart,
    /// How many at most.
    pub(crate) max_lines: u64,
    /// Their format.
    pub(crate) format: PageFormat,
    /// Their maximum size.
    pub(crate) size: TextPageSize,
    /// The file's encoding, if the caller names it.
    pub(crate) encoding: Option<Encoding>,
}

/// Lines of a file, and what describes it.
pub(crate) struct FilePage {
    /// The lines. Its encoding is the named one, if there is one.
    pub(crate) page: TextPage,
    /// The file's kind and hash. Missing if the file is secret and the lines are its keys: a hash would confirm a guess.
    pub(crate) version: Option<(FileKind, Sha256)>,
    /// The size of the file.
    pub(crate) size_bytes: u64,
    /// Whether the encoding is guessed from the bytes.
    pub(crate) encoding_guessed: bool,
    /// If the file is a pointer of Git LFS: the number of bytes of the content.
    pub(crate) git_lfs_bytes: Option<u64>,
}

impl PageQuery {
    /// Reads lines of the present file at `path`, or keys of a secret file, where policy permits it.
    pub(crate) fn read(&self, context: &ReadContext<'_>, path: &LogicalPath) -> Result<FilePage, WorkspaceError> {
        match context.tree.read(context.rules, path, max_bytes(context)) {
            Ok(file) => self.of_file(path, &file),
            Err(refused) => self.of_bytes(path, read_redacted(context, path, refused)?.as_bytes(), None),
        }
    }

    fn of_file(&self, path: &LogicalPath, file: &FileContent) -> Result<FilePage, WorkspaceError> {
        self.of_bytes(path, &file.bytes, Some((file.kind, file.sha256)))
    }

    fn of_bytes(
        &self,
        path: &LogicalPath,
        bytes: &[u8],
        version: Option<(FileKind, Sha256)>,
    ) -> Result<FilePage, WorkspaceError> {
        // Text in a named encoding is paged as UTF-8.
        let named = self.encoding.filter(|_| version.is_some());
        let decoded = named.map(|encoding| decode_as(path, bytes, encoding)).transpose()?;
        let shown = decoded.as_ref().map_or(bytes, |text| text.as_bytes());
        let page = model::page_within(shown, self.format, self.start, self.max_lines, self.size)
            .ok_or_else(|| unsupported_binary(path))?;
        Ok(FilePage {
            version,
            size_bytes: bytes.len() as u64,
            encoding_guessed: named.is_none() && model::is_guessed(bytes, page.encoding),
            git_lfs_bytes: model::git_lfs_pointer(bytes),
            page: TextPage { encoding: named.unwrap_or(page.encoding), ..page },
        })
    }
}

/// The size of the largest file of which lines are returned, in bytes.
fn max_bytes(context: &ReadContext<'_>) -> u64 {
    context.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR)
}

/// Whether the keys of a file that was refused might be shown.
fn is_redactable(context: &ReadContext<'_>, refusal: &Refusal) -> bool {
    refusal.code == Code::PolicyDeniedSecret && context.rules.redacts_secrets()
}

/// Returns the keys of the secret file at `path` without their values, where policy permits it; otherwise `refused`, which reading the file
/// as a whole has returned.
fn read_redacted(
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
