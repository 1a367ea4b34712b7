//! `write_file`: writes the whole content of a file.

mod form;
pub(crate) mod merge;

use std::collections::BTreeSet;

use model::{Code, Effect, Encoding, LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use workspace::{Target, Workspace, WorkspaceError};

use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::earlier_calls::StoredContent;
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{self, check_guess, check_new, file_path, new_file_path, parse};
use crate::tool::{
    Mutation, Need, NewText, Obtained, PlanContext, Scope, Tool, ToolRun, ToolSchema, WritePermission, exists_instead,
};
use merge::{OnConflict, merge_change};

/// The permission bits of a new file.
const NEW_FILE_MODE: u32 = 0o644;

pub(crate) const TOOL: Tool = Tool {
    name: "write_file",
    description: "Writes the whole content of one text file. An existing file is replaced only if it is as you last read it, \
                  unless onConflict is `merge` and the changes are of other lines. Prefer edit_file for small changes.",
    is_expensive: false,
    permissions: &[Permission::FileWriteCreate, Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<WriteFileInput>,
    output: ToolSchema::of::<WriteFileOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(WriteFile::try_from(parse::<WriteFileInput>(members)?)?))),
};

/// The input of `write_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src/hello.txt", "content": "hello\n", "mode": "CREATE_NEW", "reason": "greet"}))]
pub(crate) struct WriteFileInput {
    /// Relative to the workspace root. Missing folders are created.
    path: String,
    /// The whole text.
    content: String,
    /// Whether the file may or must exist.
    #[serde(default)]
    #[schema(inline)]
    mode: WriteMode,
    /// The version of the file to replace. Required if the file exists.
    #[serde(default)]
    expected_sha256: Option<ExpectedVersion>,
    /// What to do if the file has changed.
    #[serde(default)]
    #[schema(inline)]
    on_conflict: OnConflict,
    /// Default: that of the file, or utf-8.
    #[serde(default)]
    encoding: Option<String>,
    /// Default: that of the file.
    #[serde(default)]
    #[schema(inline)]
    line_ending: Option<NewLineEnding>,
}

/// How the lines of a file are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NewLineEnding {
    Lf,
    Crlf,
}

/// Whether the file may or must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum WriteMode {
    /// It must not exist.
    CreateNew,
    /// It must exist.
    ReplaceExisting,
    /// It may exist.
    #[default]
    CreateOrReplace,
}

/// The output of `write_file`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WriteFileOutput {
    /// The normalised path.
    path: LogicalPath,
    /// Whether the call created the file.
    created: bool,
    /// Hash before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_sha256: Option<Sha256>,
    /// Hash after the change.
    new_sha256: Sha256,
    /// The new length in bytes.
    bytes_written: u64,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
    /// True if the change was merged into a file that had changed since `expectedSha256`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    merged: bool,
    /// If `merged`: the hash of the version that the change was merged into, and that was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    merged_from: Option<Sha256>,
}

struct WriteFile {
    path: LogicalPath,
    content: String,
    mode: WriteMode,
    expected: Option<ExpectedVersion>,
    on_conflict: OnConflict,
    encoding: Option<Encoding>,
    line_ending: Option<NewLineEnding>,
    /// The content of the expected version, for a merge.
    base: Option<StoredContent>,
}

impl TryFrom<WriteFileInput> for WriteFile {
    type Error = Refusal;

    fn try_from(input: WriteFileInput) -> Result<Self, Refusal> {
        let is_new = input.mode == WriteMode::CreateNew;
        let path = if is_new { new_file_path(&input.path)? } else { file_path(&input.path)? };
        // A new file has no version that somebody could have seen.
        let expected = input.expected_sha256.filter(|expected| !is_new || expected.seen().is_none());
        Ok(Self {
            path,
            content: input.content,
            mode: input.mode,
            expected,
            on_conflict: input.on_conflict,
            encoding: input::encoding(input.encoding.as_deref())?,
            line_ending: input.line_ending,
            base: None,
        })
    }
}

impl Mutation for WriteFile {
    fn need(&self) -> Option<Need> {
        if self.on_conflict == OnConflict::Refuse || self.base.is_some() {
            return None;
        }
        let version = self.expected.and_then(ExpectedVersion::sha256)?;
        Some(Need::Contents(vec![(self.path.clone(), version)]))
    }

    fn prepare(&mut self, found: Obtained) -> Result<(), Refusal> {
        if let Obtained::Contents(mut contents) = found {
            let base = contents.remove(&self.path).map(|(_, content)| content);
            self.base = Some(base.unwrap_or(StoredContent::Unknown));
        }
        Ok(())
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        self.expected.iter_mut().map(|expected| (&self.path, expected)).collect()
    }

    fn scope(&self) -> Scope {
        let permission = Some(match self.mode {
            WriteMode::CreateNew => WritePermission::Create,
            WriteMode::ReplaceExisting => WritePermission::Replace,
            WriteMode::CreateOrReplace => WritePermission::CreateOrReplace,
        });
        Scope { permission, ..Scope::of(vec![self.path.clone()]) }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let is_new = self.mode == WriteMode::CreateNew;
        let exists = |path: &LogicalPath| is_new.then(|| already_exists(path));
        workspace.targets(rules, &scope.paths, removed).map_err(|error| exists_instead(error, exists))
    }

    fn new_texts(&self) -> Vec<NewText<'_>> {
        vec![NewText::to(&self.path, self.content.as_bytes())]
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let before = targets.first().and_then(|target| target.before.as_ref()).map(|(state, _)| state.clone());
        match (self.mode, &before) {
            (WriteMode::CreateNew, Some(_)) => return Err(already_exists(&self.path)),
            (WriteMode::ReplaceExisting, None) => return Err(Refusal::not_found(&self.path)),
            (WriteMode::CreateOrReplace, None) => check_new(&self.path)?,
            (WriteMode::CreateNew, None) | (WriteMode::ReplaceExisting | WriteMode::CreateOrReplace, Some(_)) => {}
        }
        let current = before.as_ref().map(|state| state.sha256);
        let version = expect_version(&self.path, current, self.expected);
        // Faults of the content precede conflicts, so that a refused content is still checked.
        let written = version.map(|()| None).or_else(|conflict| self.merge(&targets, conflict).map(Some));
        let (merged, conflict) = match written {
            Ok(merged) => (merged, None),
            Err(conflict) => (None, Some(conflict)),
        };
        let merged_from = current.filter(|_| merged.is_some());
        let present = targets.first().and_then(|target| target.before.as_ref()).map(|(_, bytes)| bytes.as_slice());
        let (bytes, warnings) = match merged {
            Some(merged) => (merged, Vec::new()),
            None => form::in_form_of(self, present)?,
        };
        if let Some(present) = present.filter(|_| self.encoding.is_none()) {
            check_guess(&self.path, present, &bytes)?;
        }
        let after = (bytes, before.as_ref().map_or(NEW_FILE_MODE, |state| state.mode));
        let effect = if before.is_some() { Effect::Replace } else { Effect::Create };
        let desired = DesiredFile { path: self.path.clone(), effect, after: Some(after) };
        let mut plan = ChangePlan::build(context.rules, targets, vec![desired])?;
        if let Some(conflict) = conflict {
            return Err(conflict);
        }
        plan.describe_one(&self.path, merged_from)?;
        plan.warnings.extend(warnings);
        Ok(plan)
    }
}

impl WriteFile {
    /// The present file with the change merged in, where the caller asked for that.
    fn merge(&self, targets: &[Target], conflict: Refusal) -> Result<Vec<u8>, Refusal> {
        let current = targets.first().and_then(|target| target.before.as_ref());
        match (current, self.expected.and_then(ExpectedVersion::sha256), self.on_conflict) {
            (Some((_, current)), Some(_), OnConflict::Merge) => {
                merge_change(&self.path, self.base.as_ref(), current, &self.content, &conflict)
            }
            _ => Err(conflict),
        }
    }
}

impl ChangePlan {
    /// Fills in the output and the summary of a tool that writes only the file at `path`.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if the plan has no such file.
    pub(crate) fn describe_one(&mut self, path: &LogicalPath, merged_from: Option<Sha256>) -> Result<(), Refusal> {
        let Some((change, content)) = self.at(path).and_then(|change| Some((change, change.after.as_ref()?))) else {
            return Err(Refusal::not_found(path));
        };
        let output = WriteFileOutput {
            path: path.clone(),
            created: change.before.is_none(),
            old_sha256: change.before.as_ref().map(|state| state.sha256),
            new_sha256: content.sha256,
            bytes_written: content.size_bytes,
            insertions: change.counts.insertions,
            deletions: change.counts.deletions,
            merged: merged_from.is_some(),
            merged_from,
        };
        let verb = match (output.created, output.merged) {
            (true, _) => "created",
            (false, false) => "replaced",
            (false, true) => "merged into",
        };
        self.summary = format!("{verb} {path} (+{} -{})", output.insertions, output.deletions);
        self.output = members(&output);
        Ok(())
    }
}

/// Returns the members of `output`, which must be a struct.
pub(crate) fn members(output: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(output) {
        Ok(Value::Object(members)) => members,
        // A struct of strings, numbers and lists always serialises to an object.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Returns the refusal of creating `path`, which exists.
pub(crate) fn already_exists(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        format!("`{path}` already exists"),
        "Choose another path. Or read the file, then change it with edit_file. Or replace it by write_file with mode \
         REPLACE_EXISTING.",
    )
    .at(path)
}
