//! `read_files`: several whole files; one bad path never fails the rest.

use std::collections::BTreeMap;

use model::{Code, Encoding, FileKind, LineEnding, LogicalPath, PageFormat, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::WorkspaceError;

use crate::call::record::attempted_path;
use crate::tool::input::{file_path, parse};
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The most files that one call names.
pub(crate) const MAX_PATHS: usize = 50;
/// The most content that one call tells, in bytes, over all files; the first is told whole, whatever its size.
pub(crate) const MAX_CONTENT_BYTES: usize = 512 * 1024;

pub(crate) const TOOL: Tool = Tool {
    name: "read_files",
    description: "Reads up to 50 whole text files at once. Each has its own status; a file that cannot be read does \
                  not fail the others.",
    is_expensive: false,
    permissions: &[Permission::FileRead],
    content: &["content"],
    input: ToolSchema::of::<ReadFilesInput>,
    output: ToolSchema::of::<ReadFilesOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(ReadFiles::try_from(parse::<ReadFilesInput>(members)?)?))),
};

/// What `read_files` takes.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"paths": ["README.md", "src/main.rs"]}))]
pub(crate) struct ReadFilesInput {
    /// The files.
    #[schema(min_items = 1, max_items = 50)]
    paths: Vec<String>,
}

/// What `read_files` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadFilesOutput {
    /// Each file by the path that the call named.
    files: BTreeMap<String, OneFile>,
}

/// One file of `read_files`.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OneFile {
    /// `OK`, or why there is no content: `NOT_FOUND`, `FILE_TOO_LARGE`, `PATH_REJECTED`, `IGNORED`,
    /// `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `UNSUPPORTED_BINARY`, `NOT_A_FILE`.
    status: String,
    /// All its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Hash of its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
    /// Its length in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    /// Its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// How its bytes are its characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<Encoding>,
    /// How its lines end.
    #[serde(skip_serializing_if = "Option::is_none")]
    line_ending: Option<LineEnding>,
    /// What is wrong, where something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// With `FILE_TOO_LARGE`: the most bytes, of this file or of all files of the call together.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// With `FILE_TOO_LARGE`: how many bytes there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<u64>,
}

struct ReadFiles(Vec<(String, Result<LogicalPath, Refusal>)>);

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
        Ok(Self(parsed.collect()))
    }
}

impl ReadTool for ReadFiles {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let mut told_bytes = 0;
        let mut files = BTreeMap::new();
        let mut read = Vec::new();
        let (mut reasons, mut refusals) = (Vec::new(), Vec::new());
        for (raw, path) in &self.0 {
            let one = match path {
                Ok(path) => read_one(context, path, &mut told_bytes),
                Err(refusal) => Err(WorkspaceError::Refused(refusal.clone())),
            };
            let one = match one {
                Ok((one, kind, version)) => {
                    read.extend(path.as_ref().ok().map(|path| (path.clone(), kind, version)));
                    one
                }
                Err(WorkspaceError::Refused(refusal)) => {
                    reasons.extend(attempted_path(&refusal));
                    let one = refused(&refusal);
                    refusals.extend(path.as_ref().ok().map(|path| (path, refusal)));
                    one
                }
                Err(fault) => return Err(fault),
            };
            files.insert(raw.clone(), one);
        }
        let mut told =
            ReadOutput::new(&ReadFilesOutput { files }, read.iter().map(|(path, ..)| path.clone()).collect())?;
        told.reasons = reasons;
        let told = read.iter().fold(told, |told, (path, kind, version)| told.with_file(path, *kind, *version));
        // Who was told nothing has asked all the same.
        Ok(refusals.iter().fold(told, |told, (path, refusal)| told.with_refused(context.rules, path, refusal)))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        self.0.iter().filter_map(|(_, path)| path.as_ref().ok().cloned()).collect()
    }
}

fn read_one(
    context: &ReadContext<'_>,
    path: &LogicalPath,
    told_bytes: &mut usize,
) -> Result<(OneFile, FileKind, Sha256), WorkspaceError> {
    let file = context.tree.read(context.rules, path, context.rules.policy().max_file_bytes)?;
    let page = model::page(&file.bytes, PageFormat::Raw, 1, u64::MAX, usize::MAX);
    let page = page.ok_or_else(|| crate::tool::input::unsupported_binary(path))?;
    let with_it = *told_bytes + page.content.len();
    // The first file is told as far as any is: a call for it alone could do no better.
    if *told_bytes > 0 && with_it > MAX_CONTENT_BYTES {
        let message = format!(
            "the call has told {told_bytes} bytes already; with `{path}` it would be {with_it}, and it tells {MAX_CONTENT_BYTES}"
        );
        return Err(WorkspaceError::Refused(
            Refusal::new(Code::FileTooLarge, message, "Read it by a call of its own.").at(path).with_details(
                |details| (details.limit, details.actual) = (Some(MAX_CONTENT_BYTES as u64), Some(with_it as u64)),
            ),
        ));
    }
    *told_bytes = with_it;
    let one = OneFile {
        status: "OK".to_owned(),
        size_bytes: Some(file.bytes.len() as u64),
        sha256: Some(file.sha256),
        total_lines: Some(page.total_lines),
        encoding: Some(page.encoding),
        line_ending: Some(page.line_ending),
        content: Some(page.content),
        ..OneFile::default()
    };
    Ok((one, file.kind, file.sha256))
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
