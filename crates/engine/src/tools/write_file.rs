//! `write_file`: writes the whole content of a file.

use model::{Code, Effect, LogicalPath, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use workspace::Target;

use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::input::{file_path, parse};
use crate::tool::{Mutation, NewText, PlanContext, Tool, ToolRun, ToolSchema};

/// The permission bits of a new file.
const NEW_FILE_MODE: u32 = 0o644;

pub(crate) const TOOL: Tool = Tool {
    name: "write_file",
    description: "Writes the whole content of one text file. To replace a file, give the sha256 that read_file returned \
                  as expectedSha256; if the file has changed since, nothing is written. Prefer apply_patch for small \
                  changes.",
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
    /// The file. Missing folders are created.
    path: String,
    /// The whole text.
    content: String,
    /// Whether the file may or must exist.
    #[serde(default)]
    #[schema(inline)]
    mode: WriteMode,
    /// The sha256 of the file to replace. Required if the file exists.
    #[serde(default)]
    expected_sha256: Option<Sha256>,
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
}

struct WriteFile {
    path: LogicalPath,
    content: String,
    mode: WriteMode,
    expected: Option<Sha256>,
}

impl TryFrom<WriteFileInput> for WriteFile {
    type Error = Refusal;

    fn try_from(input: WriteFileInput) -> Result<Self, Refusal> {
        let path = file_path(&input.path)?;
        Ok(Self { path, content: input.content, mode: input.mode, expected: input.expected_sha256 })
    }
}

impl Mutation for WriteFile {
    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }

    fn expected_version(&self, _path: &LogicalPath) -> Option<Sha256> {
        self.expected
    }

    fn required_permission(&self, targets: &[Target]) -> Option<Permission> {
        let exists = targets.first().is_some_and(|target| target.before.is_some());
        Some(match (self.mode, exists) {
            (WriteMode::CreateNew, _) | (WriteMode::CreateOrReplace, false) => Permission::FileWriteCreate,
            (WriteMode::ReplaceExisting, _) | (WriteMode::CreateOrReplace, true) => Permission::FileWriteReplace,
        })
    }

    fn new_texts(&self) -> Vec<NewText> {
        vec![NewText::to(&self.path, self.content.clone().into_bytes())]
    }

    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let before = targets.first().and_then(|target| target.before.as_ref()).map(|(state, _)| state.clone());
        match (self.mode, &before) {
            (WriteMode::CreateNew, Some(_)) => return Err(already_exists(&self.path)),
            (WriteMode::ReplaceExisting, None) => return Err(Refusal::not_found(&self.path)),
            (WriteMode::CreateNew | WriteMode::CreateOrReplace, None) => {
                self.path.check_new().map_err(|rule| Refusal::path(self.path.as_str(), rule))?;
            }
            (WriteMode::ReplaceExisting | WriteMode::CreateOrReplace, Some(_)) => {}
        }
        let after = (self.content.as_bytes().to_vec(), before.as_ref().map_or(NEW_FILE_MODE, |state| state.mode));
        let effect = if before.is_some() { Effect::Replace } else { Effect::Create };
        let desired = DesiredFile { path: self.path.clone(), effect, after: Some(after) };
        let mut plan = ChangePlan::build(context.rules, targets, vec![desired])?;
        expect_version(&self.path, before.as_ref().map(|state| state.sha256), self.expected)?;
        plan.describe_one(&self.path)?;
        Ok(plan)
    }
}

impl ChangePlan {
    /// Fills in the output and the summary of a tool that writes only the file at `path`.
    pub(crate) fn describe_one(&mut self, path: &LogicalPath) -> Result<(), Refusal> {
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
        };
        let verb = if output.created { "created" } else { "replaced" };
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

/// The refusal of creating `path`, which exists.
pub(crate) fn already_exists(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        format!("`{path}` already exists"),
        "Read the file and replace it with its sha256 as `expectedSha256`, or choose another path.",
    )
    .at(path)
}

/// The hint where a version is expected of a file that does not exist.
const ABSENT_HINT: &str = "Leave out `expectedSha256` to create the file, or find its path with find_files.";

/// Checks that `path` has the version that the caller expects. An existing file needs an expected version.
pub(crate) fn expect_version(
    path: &LogicalPath,
    current: Option<Sha256>,
    expected: Option<Sha256>,
) -> Result<(), Refusal> {
    if let (None, Some(_)) = (current, expected) {
        // The transaction adds whether the file existed before.
        let message = format!("`{path}` does not exist, so `expectedSha256` cannot match");
        return Err(Refusal::new(Code::WriteConflict, message, ABSENT_HINT).at(path));
    }
    let message = match (current, expected) {
        (None, _) => return Ok(()),
        (Some(current), Some(expected)) if current == expected => return Ok(()),
        (Some(_), Some(_)) => format!("`{path}` does not have the version in `expectedSha256`"),
        (Some(_), None) => format!("`{path}` exists; replacing it needs `expectedSha256`"),
    };
    Err(Refusal::new(
        Code::WriteConflict,
        message,
        "Read the file again, base the change on its present content, and give its sha256 as `expectedSha256`.",
    )
    .at(path)
    .with_details(|details| details.current_sha256 = current))
}
