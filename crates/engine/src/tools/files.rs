//! File transfers: `GET`, `PUT` and `DELETE` of a whole file. They are judged, recorded and approved like tools, but are not in
//! the catalogue, since models do not write binary content.

use std::collections::BTreeSet;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use model::{Code, Content, FileState, LogicalPath, Permission, Refusal, Rules, Sha256, StepBytes};
use serde::{Deserialize, Serialize};
use workspace::{Target, Workspace, WorkspaceError};

use super::folder_op::FolderOp;
use super::write_file::already_exists;
use crate::CallError;
use crate::call_error::refusals::canonically_equal;
use crate::run::fsync_worker::abort_on_failed_fsync;
use crate::run::quota::Reservation;
use crate::tool::change_plan::{ChangePlan, INLINE_BYTES, NEW_FILE_MODE, UploadedFile};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{file_path, new_file_path, parse};
use crate::tool::output::{ReadOutput, ToolOutput, members as members_of};
use crate::tool::scanned_reader::ScannedReader;
use crate::tool::{
    AtRecord, Mutation, NewBytes, NewText, PlanContext, ReadContext, ReadTool, RunLookup, Scope, SnapshotView,
    StagedContent, Tool, ToolRun, ToolSchema, WriteMode,
};

/// The largest file of an earlier record that is sent: it is held in memory, and of a larger one no earlier version is kept.
const MAX_EARLIER_BYTES: u64 = 16 << 20;

/// `GET` and `HEAD` of a file.
pub(crate) static GET: Tool = Tool {
    name: "files_get",
    description: "Returns a whole file as bytes.",
    is_expensive: false,
    permissions: &[Permission::FileRead],
    content: &[],
    input: ToolSchema::of::<GetInput>,
    output: ToolSchema::of::<StoredFile>,
    run: ToolRun::Read(|members| {
        let input = parse::<GetInput>(members)?;
        Ok(Box::new(GetFile { path: file_path(&input.path)?, at_seq: input.at_seq }))
    }),
};

/// `PUT` of a file.
pub static PUT: Tool = Tool {
    name: "files_put",
    description: "Stores a whole file as bytes.",
    is_expensive: true,
    permissions: &[Permission::FileWriteCreate, Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<PutInput>,
    output: ToolSchema::of::<StoredFile>,
    run: ToolRun::Mutation(|members| Ok(Box::new(PutFile::try_from(parse::<PutInput>(members)?)?))),
};

/// `DELETE` of a file.
pub(crate) static DELETE: Tool = Tool {
    name: "files_delete",
    description: "Deletes a file of any kind.",
    is_expensive: false,
    permissions: &[Permission::FileDelete],
    content: &[],
    input: ToolSchema::of::<PathInput>,
    output: ToolSchema::of::<StoredFile>,
    run: ToolRun::Mutation(|members| {
        let input = parse::<PathInput>(members)?;
        let (path, expected) = (file_path(&input.path)?, input.expected_sha256.map(ExpectedVersion::from));
        Ok(Box::new(FolderOp::delete(path, expected, false, |path, before| {
            members_of(&StoredFile::deleted(path, before))
        })))
    }),
};

/// The path of a file to send.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GetInput {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_seq: Option<u64>,
}

/// The path of a file.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PathInput {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected_sha256: Option<Sha256>,
}

/// An upload, as it is stored for an approval.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PutInput {
    path: String,
    /// The content. Of one that is staged it is added when the call has to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_base64: Option<String>,
    /// The hash of a staged content, which makes the same request the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_sha256: Option<Sha256>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected_sha256: Option<Sha256>,
}

/// A file after the call, or before it if the call deleted the file.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    /// The normalised path.
    path: LogicalPath,
    /// Whether the call created the file.
    created: bool,
    /// Hash before the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_sha256: Option<Sha256>,
    /// Hash after the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_sha256: Option<Sha256>,
    /// Size in bytes.
    size_bytes: u64,
}

impl ToolOutput for StoredFile {}

impl StoredFile {
    fn deleted(path: LogicalPath, before: &FileState) -> Self {
        let (old_sha256, size_bytes) = (Some(before.sha256), before.size_bytes);
        Self { path, created: false, old_sha256, new_sha256: None, size_bytes }
    }
}

/// An upload.
pub(crate) struct PutFile {
    path: LogicalPath,
    /// The version that it replaces; `None` if no file may exist.
    expected: Option<ExpectedVersion>,
    content: NewContent,
}

/// Parses the path of an upload that replaces the version `expected`, or creates the file.
///
/// # Errors
///
/// `PATH_REJECTED`.
pub(crate) fn put_path(raw: &str, expected: Option<Sha256>) -> Result<LogicalPath, Refusal> {
    if expected.is_some() { file_path(raw) } else { new_file_path(raw) }
}

/// The content of an upload.
pub(crate) enum NewContent {
    /// In memory.
    Inline(Vec<u8>),
    /// Staged in the run's `tmp/`.
    Staged(Box<StagedContent>),
    /// Not received yet, with the size that the client declares.
    Announced(Option<u64>),
}

/// The member of a stored input that has the content.
pub(crate) const CONTENT: &str = "contentBase64";

impl PutFile {
    /// Creates an upload of `content` that replaces the version `expected`, or creates the file.
    pub(crate) fn new(path: LogicalPath, expected: Option<Sha256>, content: NewContent) -> Self {
        Self { path, expected: expected.map(ExpectedVersion::from), content }
    }

    /// Returns the input to store, of a staged content with its hash.
    pub(crate) fn to_input(&self) -> PutInput {
        let (content_base64, content_sha256) = match &self.content {
            NewContent::Inline(bytes) => (Some(BASE64_STANDARD.encode(bytes)), None),
            NewContent::Staged(staged) => (None, Some(staged.file.sha256)),
            NewContent::Announced(_) => (None, None),
        };
        PutInput {
            path: self.path.to_string(),
            content_base64,
            content_sha256,
            expected_sha256: self.expected.and_then(ExpectedVersion::sha256),
        }
    }
}

impl TryFrom<PutInput> for PutFile {
    type Error = Refusal;

    fn try_from(input: PutInput) -> Result<Self, Refusal> {
        let content = input.content_base64.and_then(|content| BASE64_STANDARD.decode(content).ok());
        let content = content.ok_or_else(|| {
            Refusal::invalid("the stored content of the upload cannot be read", "Send the file again.")
        })?;
        let expected = input.expected_sha256;
        Ok(Self::new(put_path(&input.path, expected)?, expected, NewContent::Inline(content)))
    }
}

#[async_trait]
impl Mutation for PutFile {
    /// Only a content that has waited for approval is as large and in memory.
    fn meets_tree(&self) -> bool {
        matches!(&self.content, NewContent::Inline(bytes) if bytes.len() > INLINE_BYTES)
    }

    fn meet_tree(
        &mut self,
        _rules: &Rules,
        workspace: &Workspace,
        mut space: Reservation,
    ) -> Result<(), WorkspaceError> {
        let NewContent::Inline(bytes) = &self.content else { return Ok(()) };
        let (mut from, size_bytes) = (bytes.as_slice(), bytes.len() as u64);
        space.grow(size_bytes)?;
        let mut reader = ScannedReader::new(&mut from);
        let mut contents = workspace.staged_contents();
        let file = contents.stage(&mut reader, size_bytes).inspect_err(abort_on_failed_fsync)?;
        let scanned = reader.scan.finish();
        let staged = StagedContent { file, scanned, owner: Some((contents, space)) };
        self.content = NewContent::Staged(Box::new(staged));
        Ok(())
    }

    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        if self.path.as_str().is_ascii() {
            return Ok(());
        }
        let followed = lookup.canonically_equal(vec![self.path.clone()]).await?;
        let Some((_, followed)) = followed.into_iter().next() else { return Ok(()) };
        if followed.exists && self.expected.is_none() {
            return Err(canonically_equal(&self.path, &followed).into());
        }
        self.path = followed.path;
        Ok(())
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        self.expected.iter_mut().map(|expected| (&self.path, expected)).collect()
    }

    fn scope(&self) -> Scope {
        let mode = if self.expected.is_some() { WriteMode::ReplaceExisting } else { WriteMode::CreateNew };
        Scope { write_mode: Some(mode), ..Scope::of(vec![self.path.clone()]) }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        workspace.targets_of_any_kind(rules, &scope.paths, removed, rules.policy().max_file_bytes, |_| false)
    }

    fn new_texts(&self) -> Vec<NewText<'_>> {
        let bytes = match &self.content {
            NewContent::Inline(bytes) => NewBytes::InMemory(bytes.into()),
            NewContent::Staged(staged) => NewBytes::Scanned(&staged.scanned),
            NewContent::Announced(_) => return Vec::new(),
        };
        vec![NewText { path: &self.path, into: &self.path, bytes }]
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let before = state_of(&targets);
        match (&before, self.expected) {
            (Some(_), None) => return Err(already_exists(&self.path)),
            (None, None) => {}
            (_, Some(_)) => {
                expect_version(&self.path, before.as_ref().map(|state| state.sha256), self.expected)?;
            }
        }
        let mode = before.as_ref().map_or(NEW_FILE_MODE, |state| state.mode);
        let (content, kind, lines) = match &self.content {
            NewContent::Inline(bytes) => {
                (Content::new(bytes.clone(), mode), context.rules.kind_of_file(&self.path, bytes), None)
            }
            NewContent::Staged(staged) => {
                let StagedContent { file, scanned, .. } = &**staged;
                let bytes = StepBytes::Staged(file.name.clone());
                let content = Content { bytes, size_bytes: file.size_bytes, sha256: file.sha256, mode };
                let lines = Some(scanned.lines).filter(|_| !scanned.is_binary);
                (content, context.rules.kind_of_file(&self.path, &file.head), lines)
            }
            NewContent::Announced(size_bytes) => {
                // Whether the content is text is not known yet. Rules that depend on it are judged once the bytes are received.
                let (bytes, size_bytes) = (StepBytes::Staged(String::new()), size_bytes.unwrap_or(0));
                let content = Content { bytes, size_bytes, sha256: Sha256::ZERO, mode };
                (content, context.rules.kind_of_path(&self.path), None)
            }
        };
        let limit = context.rules.policy().max_transfer_bytes;
        if content.size_bytes > limit {
            return Err(too_large(&self.path, limit, content.size_bytes));
        }
        let stored = StoredFile {
            path: self.path.clone(),
            created: before.is_none(),
            old_sha256: before.map(|state| state.sha256),
            new_sha256: Some(content.sha256),
            size_bytes: content.size_bytes,
        };
        let upload = UploadedFile { path: self.path.clone(), content, kind, lines };
        let mut plan = ChangePlan::build_any_kind(context.rules, targets, Vec::new(), vec![upload]);
        let verb = if stored.created { "created" } else { "replaced" };
        plan.summary = format!("{verb} {} ({} bytes)", self.path, stored.size_bytes);
        plan.output = members_of(&stored);
        if let NewContent::Staged(staged) = &mut self.content {
            (plan.staged, plan.reservation) = staged.owner.take().unzip();
        }
        Ok(plan)
    }
}

/// A download.
struct GetFile {
    path: LogicalPath,
    at_seq: Option<u64>,
}

impl ReadTool for GetFile {
    fn needs_one_state(&self) -> bool {
        false
    }

    fn at_record(&self) -> Option<AtRecord> {
        self.at_seq.map(|seq| AtRecord { seq, only: Some(self.path.clone()) })
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let (rules, path) = (context.rules, &self.path);
        let limit = rules.policy().max_transfer_bytes;
        let transfer = match context.at_record() {
            None => context.tree.open_transfer(rules, path, limit)?,
            Some((SnapshotView { files, contents }, workspace)) => {
                let limit = limit.min(MAX_EARLIER_BYTES);
                workspace.snapshot_transfer(rules, files, path, limit, contents.as_ref())?
            }
        };
        let state = &transfer.state;
        let stored = StoredFile {
            path: path.clone(),
            created: false,
            old_sha256: Some(state.sha256),
            new_sha256: Some(state.sha256),
            size_bytes: state.size_bytes,
        };
        let (kind, version) = (state.kind, state.sha256);
        let mut output = ReadOutput::new(stored, vec![path.clone()]).with_file(path, kind, version);
        output.transfer = Some(transfer);
        Ok(output)
    }

    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }
}

fn state_of(targets: &[Target]) -> Option<FileState> {
    targets.first().and_then(|target| target.before.as_ref()).map(|(state, _)| state.clone())
}

/// Returns the refusal of a file that is larger than a transfer may be.
fn too_large(path: &LogicalPath, limit: u64, actual: u64) -> Refusal {
    let message = format!("`{path}` has {actual} bytes; the limit for transfers is {limit}");
    Refusal::new(Code::FileTooLarge, message, "Send a smaller file.")
        .at(path)
        .with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual)))
}
