//! `read_files`: returns several whole files, each with its own status.

use std::collections::BTreeMap;

use model::{Code, Encoding, LineEnding, LogicalPath, PageFormat, Permission, Refusal, Sha256, TextPage, TextPageSize};
use serde::{Deserialize, Serialize};
use workspace::WorkspaceError;

use crate::call_error::refusals::attempted_path;
use crate::tool::input::{file_path, max_chars, parse};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};
use crate::tools::read_file::{self, FilePage, PageQuery};

/// The maximum number of files in one call.
pub const MAX_PATHS: usize = 50;
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
    /// The maximum length of all contents together in characters. Each file gets its share, cut after a line.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
}

/// The output of `read_files`.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadFilesOutput {
    /// Each file, by its path as the request gives it.
    pub(crate) files: BTreeMap<String, OneFile>,
    /// Whether the contents were cut at 64 KiB or at `maxChars`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    /// Why: `maxBytes` or `maxChars`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncated_reason: Option<String>,
    /// The paths for which no room was left. Give them as `paths` to continue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) remaining: Vec<String>,
}

/// A file in the output of `read_files`.
#[derive(Debug, Default, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OneFile {
    /// `OK`, or the reason why `content` is missing: `NOT_FOUND`, `FILE_TOO_LARGE`, `PATH_REJECTED`, `IGNORED`,
    /// `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `UNSUPPORTED_BINARY`, `NOT_A_FILE`.
    pub(crate) status: String,
    /// The text, or its first lines if `truncated` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    /// Hash of the file's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<Sha256>,
    /// True if the file is secret, and the text shows its keys without their values. It then has no `sha256` and no
    /// `sizeBytes`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes: Option<u64>,
    /// Number of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_lines: Option<u64>,
    /// The file's character encoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encoding: Option<Encoding>,
    /// True if the encoding is guessed from the bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) encoding_guessed: bool,
    /// The file's line endings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line_ending: Option<LineEnding>,
    /// Whether the text was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    /// The `startLine` with which `read_file` continues the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_start_line: Option<u64>,
    /// The line that was cut because it is longer than the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut_line: Option<u64>,
    /// The `column` with which `read_file` continues it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_column: Option<u64>,
    /// The error message, if `status` is not `OK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// If the file is a pointer of Git LFS: the number of bytes of the content, which is in Git LFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) git_lfs_bytes: Option<u64>,
    /// With `FILE_TOO_LARGE`: the exceeded limit in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// With `FILE_TOO_LARGE`: the actual number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actual: Option<u64>,
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
        let size = TextPageSize { max_bytes: MAX_CONTENT_BYTES, max_chars: self.max_chars };
        let page = PageQuery { start: 1.into(), max_lines: u64::MAX, format: PageFormat::Raw, size, encoding: None };
        let mut found = Vec::with_capacity(self.paths.len());
        for (raw, path) in &self.paths {
            let result = match path {
                Ok(path) => page.read(context, path),
                Err(refusal) => Err(WorkspaceError::Refused(refusal.clone())),
            };
            match result {
                Err(WorkspaceError::Refused(refusal)) => found.push((raw, path, Err(refusal))),
                result => found.push((raw, path, Ok(result?))),
            }
        }
        let mut room = Room::of(found.iter().filter_map(|(.., result)| result.as_ref().ok()), size);
        let (mut is_truncated, mut remaining, mut files) = (false, Vec::new(), BTreeMap::new());
        let mut read = Vec::new();
        let (mut reasons, mut refusals) = (Vec::new(), Vec::new());
        for (raw, path, result) in found {
            let file = match result {
                Ok(mut file) => {
                    if !room.fit(&mut file.page) {
                        is_truncated = true;
                        remaining.push(raw.clone());
                        continue;
                    }
                    is_truncated |= file.page.truncated;
                    read.extend(path.as_ref().ok().map(|path| (path.clone(), file.version)));
                    file.into()
                }
                Err(refusal) => {
                    reasons.extend(attempted_path(&refusal));
                    let file = refused(&refusal);
                    refusals.extend(path.as_ref().ok().map(|path| (path, refusal)));
                    file
                }
            };
            files.insert(raw.clone(), file);
        }
        // The caller's limit is the smaller one, unless it is larger than any answer.
        let is_small = self.max_chars.is_some_and(|most| most < MAX_CONTENT_BYTES);
        let truncated_reason = is_truncated.then(|| if is_small { "maxChars" } else { "maxBytes" }.to_owned());
        let paths_read = read.iter().map(|(path, _)| path.clone()).collect();
        let output = ReadFilesOutput { files, truncated: is_truncated, truncated_reason, remaining };
        let mut output = ReadOutput { reasons, ..ReadOutput::new(output, paths_read) };
        for (path, version) in &read {
            output = output.with_version(path, *version);
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

/// The room for contents that is left in an answer, of which each file gets its share: what a small file leaves goes to larger ones.
struct Room {
    bytes_left: usize,
    chars_left: usize,
    /// The share of a file that needs more than that.
    share: TextPageSize,
}

impl Room {
    fn of<'a>(files: impl Iterator<Item = &'a FilePage>, size: TextPageSize) -> Self {
        let contents: Vec<_> = files.map(|file| file.page.content.as_str()).collect();
        let max_bytes = share(contents.iter().map(|content| content.len()).collect(), size.max_bytes);
        let of_chars = |most| share(contents.iter().map(|content| content.chars().count()).collect(), most);
        let share = TextPageSize { max_bytes, max_chars: size.max_chars.map(of_chars) };
        Self { bytes_left: size.max_bytes, chars_left: size.max_chars.unwrap_or(usize::MAX), share }
    }

    /// Cuts a page to its share. False if not even its first character has room.
    fn fit(&mut self, page: &mut TextPage) -> bool {
        let size = TextPageSize {
            max_bytes: self.share.max_bytes.min(self.bytes_left),
            max_chars: self.share.max_chars.map(|share| share.min(self.chars_left)),
        };
        let (bytes, chars) = (page.content.len(), page.content.chars().count());
        if bytes > 0 && (size.max_bytes == 0 || size.max_chars == Some(0)) {
            return false;
        }
        if (bytes > size.max_bytes || size.max_chars.is_some_and(|most| chars > most))
            && let Some(cut) = model::page_within(page.content.as_bytes(), PageFormat::Raw, 1.into(), u64::MAX, size)
        {
            (page.truncated, page.cut, page.content) = (true, cut.cut, cut.content);
            page.next_start_line = cut.next_start_line.or(page.next_start_line);
        }
        self.bytes_left = self.bytes_left.saturating_sub(page.content.len());
        self.chars_left = self.chars_left.saturating_sub(page.content.chars().count());
        true
    }
}

/// Returns how much each may have at most, so that all together have `total` at most: an equal share of what those leave that need
/// less.
fn share(mut needs: Vec<usize>, total: usize) -> usize {
    needs.sort_unstable();
    let (mut left, mut count) = (total, needs.len());
    for need in needs {
        if need > left / count {
            return (left / count).max(1);
        }
        (left, count) = (left - need, count - 1);
    }
    total
}

impl From<FilePage> for OneFile {
    fn from(file: FilePage) -> Self {
        let FilePage { page, version, size_bytes, encoding_guessed, git_lfs_bytes } = file;
        Self {
            status: "OK".to_owned(),
            size_bytes: version.map(|_| size_bytes),
            sha256: version.map(|(_, sha256)| sha256),
            redacted: version.is_none(),
            total_lines: Some(page.total_lines),
            encoding: Some(page.encoding),
            encoding_guessed,
            git_lfs_bytes,
            line_ending: Some(page.line_ending),
            content: Some(page.content),
            truncated: page.truncated,
            next_start_line: page.next_start_line,
            cut_line: page.cut.map(|cut| cut.line),
            next_column: page.cut.and_then(|cut| cut.column),
            ..Self::default()
        }
    }
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

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn small_files_leave_room_to_large_ones() {
        for (needs, total, want) in [
            (vec![100, 200], 1000, 1000),
            (vec![5000, 100, 5000], 1000, 450),
            (vec![5000; 4], 1000, 250),
            (vec![3000, 0, 10], 1000, 990),
            (vec![9; 5], 3, 1),
            (vec![], 1000, 1000),
        ] {
            assert_eq!(share(needs.clone(), total), want, "{needs:?}");
        }
    }
}
