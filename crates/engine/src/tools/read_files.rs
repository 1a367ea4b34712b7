//! `read_files`: returns several whole files, each with its own status.

use std::collections::BTreeMap;

use model::{Code, Encoding, FileKind, LineEnding, LogicalPath, PageFormat, Permission, Refusal, Sha256, TextPageSize};
use serde::{Deserialize, Serialize};
use workspace::{RANGED_READ_FACTOR, WorkspaceError};

use crate::call_error::refusals::attempted_path;
use crate::tool::input::{file_path, max_chars, parse, unsupported_binary};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema, text};
use crate::tools::read_file::{self, read_redacted};

/// The maximum number of files in one call.
pub(crate) const MAX_PATHS: usize = 50;
/// The maximum content of one response, over all files, in bytes.
pub(crate) const MAX_CONTENT_BYTES: usize = read_file::MAX_CONTENT_BYTES;

pub(crate) const TOOL: Tool = Tool {
    name: "read_files",
    description: "Returns up to 50 text files, up to 64 KiB together. A file that cannot be read does not fail the others.",
    is_expensive: false,
    permissions: &[Permission::FileRead],
    content: &["content"],
    input: ToolSchema::of::<ReadFilesInput>,
    output: ToolSchema::of::<ReadFilesOutput>,
    text: text::files::read_files,
    run: ToolRun::Read(|members| Ok(Box::new(ReadFiles::try_from(parse::<ReadFilesInput>(members)?)?))),
};

/// The input of `read_files`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"paths": ["README.md", "src/main.rs"]}))]
pub(crate) struct ReadFilesInput {
    /// Relative to the workspace root.
    #[schema(min_items = 1, max_items = 50)]
    paths: Vec<String>,
    /// The maximum length of all contents together in characters, cut after a line.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
}

/// The output of `read_files`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadFilesOutput {
    /// Each file, by its path as the request gives it.
    files: BTreeMap<String, OneFile>,
    /// Whether the contents were cut at 64 KiB or at `maxChars`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// Why: `maxBytes` or `maxChars`.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_reason: Option<&'static str>,
    /// The paths that were not read because of that. Give them as `paths` to continue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    remaining: Vec<String>,
}

/// A file in the output of `read_files`.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OneFile {
    /// `OK`, or the reason why `content` is missing: `NOT_FOUND`, `FILE_TOO_LARGE`, `PATH_REJECTED`, `IGNORED`,
    /// `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `UNSUPPORTED_BINARY`, `NOT_A_FILE`.
    status: String,
    /// The text, or its first lines if `truncated` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Hash of the file's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
    /// True if the file is secret, and the text shows its keys without their values. It then has no `sha256` and no
    /// `sizeBytes`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    redacted: bool,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    /// Number of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// The file's character encoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<Encoding>,
    /// True if the encoding is guessed from the bytes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    encoding_guessed: bool,
    /// The file's line endings.
    #[serde(skip_serializing_if = "Option::is_none")]
    line_ending: Option<LineEnding>,
    /// Whether the text was cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// The `startLine` with which `read_file` continues the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_start_line: Option<u64>,
    /// The line that was cut because it is longer than the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_line: Option<u64>,
    /// The `column` with which `read_file` continues it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_column: Option<u64>,
    /// The error message, if `status` is not `OK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// If the file is a pointer of Git LFS: the number of bytes of the content, which is in Git LFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    git_lfs_bytes: Option<u64>,
    /// With `FILE_TOO_LARGE`: the exceeded limit in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// With `FILE_TOO_LARGE`: the actual number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<u64>,
}

struct ReadFiles {
    paths: Vec<(String, Result<LogicalPath, Refusal>)>,
    max_chars: Option<usize>,
}

impl TryFrom<ReadFilesInput> for ReadFiles {
    type Error = Refusal;

    fn try_from(input: ReadFilesInput) -> Result<Self, Refusal> {
        if input.paths.is_empty() || input.paths.len() > MAX_PATHS {
            let message = format!("`paths` has {} entries; it takes 1 to {MAX_PATHS}", input.paths.len());
            return Err(Refusal::invalid(message, "Read the files in several calls.").with_details(|details| {
                (details.limit, details.actual) = (Some(MAX_PATHS as u64), Some(input.paths.len() as u64));
            }));
        }
        let parsed = input.paths.into_iter().map(|raw| {
            let path = file_path(&raw);
            (raw, path)
        });
        Ok(Self { paths: parsed.collect(), max_chars: max_chars(input.max_chars)? })
    }
}

impl ReadTool for ReadFiles {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let mut length = Length { bytes: 0, chars_left: self.max_chars };
        let (mut truncated_reason, mut remaining) = (None, Vec::new());
        let mut files = BTreeMap::new();
        let mut read = Vec::new();
        let (mut reasons, mut refusals) = (Vec::new(), Vec::new());
        for (raw, path) in &self.paths {
            truncated_reason = truncated_reason.or_else(|| length.limit_reached());
            if truncated_reason.is_some() {
                remaining.push(raw.clone());
                continue;
            }
            let result = match path {
                Ok(path) => read_one(context, path, &mut length),
                Err(refusal) => Err(WorkspaceError::Refused(refusal.clone())),
            };
            let file = match result {
                Ok(None) => {
                    truncated_reason = Some("maxBytes");
                    remaining.push(raw.clone());
                    continue;
                }
                Ok(Some((file, version))) => {
                    // The caller's limit is the smaller one, unless it is larger than any answer.
                    let is_small = self.max_chars.is_some_and(|most| most < MAX_CONTENT_BYTES);
                    truncated_reason = file.truncated.then_some(if is_small { "maxChars" } else { "maxBytes" });
                    read.extend(path.as_ref().ok().map(|path| (path.clone(), version)));
                    file
                }
                Err(WorkspaceError::Refused(refusal)) => {
                    reasons.extend(attempted_path(&refusal));
                    let file = refused(&refusal);
                    refusals.extend(path.as_ref().ok().map(|path| (path, refusal)));
                    file
                }
                Err(fault) => return Err(fault),
            };
            files.insert(raw.clone(), file);
        }
        let paths_read = read.iter().map(|(path, _)| path.clone()).collect();
        let truncated = truncated_reason.is_some();
        let output = ReadFilesOutput { files, truncated, truncated_reason, remaining };
        let mut output = ReadOutput::new(&output, paths_read)?;
        output.reasons = reasons;
        for (path, version) in &read {
            output = match version {
                Some((kind, sha256)) => output.with_file(path, *kind, *sha256),
                None => output.with_redacted(path),
            };
        }
        // The record names refused files too: the caller requested them.
        for (path, refusal) in &refusals {
            output = output.with_refused(context.rules, path, refusal);
        }
        Ok(output)
    }

    fn needs_one_state(&self) -> bool {
        self.paths.len() > 1
    }

    fn paths(&self) -> Vec<LogicalPath> {
        self.paths.iter().filter_map(|(_, path)| path.as_ref().ok().cloned()).collect()
    }
}

/// The length of the contents so far.
struct Length {
    bytes: usize,
    /// How many more characters fit; `None` without a limit.
    chars_left: Option<usize>,
}

impl Length {
    /// The limit that leaves no room for another file.
    fn limit_reached(&self) -> Option<&'static str> {
        match self.chars_left {
            Some(0) => Some("maxChars"),
            _ => (self.bytes >= MAX_CONTENT_BYTES).then_some("maxBytes"),
        }
    }
}

/// A file, with its kind and version unless it is redacted.
type VersionedFile = (OneFile, Option<(FileKind, Sha256)>);

/// Returns a file, or its first lines; `None` if not even its first line fits.
fn read_one(
    context: &ReadContext<'_>,
    path: &LogicalPath,
    length: &mut Length,
) -> Result<Option<VersionedFile>, WorkspaceError> {
    let max_bytes = context.rules.policy().max_file_bytes.saturating_mul(RANGED_READ_FACTOR);
    let (bytes, version) = match context.tree.read(context.rules, path, max_bytes) {
        Ok(file) => (file.bytes, Some((file.kind, file.sha256))),
        Err(error) => (read_redacted(context, path, error)?.into_bytes(), None),
    };
    let left = MAX_CONTENT_BYTES.saturating_sub(length.bytes);
    let size = TextPageSize { max_bytes: left, max_chars: length.chars_left };
    let page = model::page_within(&bytes, PageFormat::Raw, 1.into(), u64::MAX, size);
    let page = page.ok_or_else(|| unsupported_binary(path))?;
    let is_cut_by_bytes = length.chars_left.is_none_or(|chars| page.content.chars().count() < chars);
    if length.bytes > 0 && page.cut.is_some() && is_cut_by_bytes {
        return Ok(None);
    }
    length.bytes += page.content.len();
    length.chars_left = length.chars_left.map(|left| left.saturating_sub(page.content.chars().count()));
    let output = OneFile {
        status: "OK".to_owned(),
        size_bytes: version.map(|_| bytes.len() as u64),
        sha256: version.map(|(_, sha256)| sha256),
        redacted: version.is_none(),
        total_lines: Some(page.total_lines),
        encoding: Some(page.encoding),
        encoding_guessed: model::is_guessed(&bytes, page.encoding),
        git_lfs_bytes: model::git_lfs_pointer(&bytes),
        line_ending: Some(page.line_ending),
        content: Some(page.content),
        truncated: page.truncated,
        next_start_line: page.next_start_line,
        cut_line: page.cut.map(|cut| cut.line),
        next_column: page.cut.and_then(|cut| cut.column),
        ..OneFile::default()
    };
    Ok(Some((output, version)))
}

fn refused(refusal: &Refusal) -> OneFile {
    let ignored =
        refusal.code == Code::PolicyDenied && refusal.details.reasons.iter().any(|reason| reason == "ignored");
    let status = if ignored { "IGNORED".to_owned() } else { refusal.code.to_string() };
    let too_large = refusal.code == Code::FileTooLarge;
    OneFile {
        status,
        message: Some(refusal.message.clone()),
        limit: refusal.details.limit.filter(|_| too_large),
        actual: refusal.details.actual.filter(|_| too_large),
        ..OneFile::default()
    }
}
