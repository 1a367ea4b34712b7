//! What a tool is: its declaration, and the traits of its parsed input.

pub(crate) mod change_plan;
pub(crate) mod changed_since;
pub(crate) mod cursor;
pub(crate) mod earlier_calls;
pub(crate) mod expected_version;
pub(crate) mod folder;
pub(crate) mod input;
pub(crate) mod layer;
pub(crate) mod lookup;
pub(crate) mod output;
pub(crate) mod outside_change;
pub(crate) mod scanned_reader;
pub(crate) mod schema;
pub(crate) mod text;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use model::{Code, LogicalPath, Permission, Refusal, Rules, ScannedContent};
use serde::Deserialize;
use serde_json::{Map, Value};
use workspace::{Snapshot, StagedContents, StagedFile, StoredContents, Target, Tree, Workspace, WorkspaceError};

use crate::CallError;
use crate::run::known_versions::KnownVersions;
use crate::run::quota::Reservation;
use crate::tool::change_plan::ChangePlan;
use crate::tool::changed_since::ChangedSince;
use crate::tool::expected_version::ExpectedVersion;
pub(crate) use crate::tool::lookup::RunLookup;
use crate::tool::output::ReadOutput;
use crate::tool::outside_change::OutsideChange;
pub(crate) use schema::ToolSchema;

/// The declaration of a tool.
pub struct Tool {
    /// The name, also of the route, the span and the OpenAPI operation.
    pub name: &'static str,
    /// What it does and when to use it. A model reads this.
    pub description: &'static str,
    /// Whether it may read the whole tree. Expensive reads have permits of their own, so that cheap ones do not wait.
    pub is_expensive: bool,
    /// The permissions of which a caller needs at least one. A mutation may require another once its effect is known.
    pub permissions: &'static [Permission],
    /// Members of the output that hold file content. Such an output empties them for callers without `file:read`.
    pub content: &'static [&'static str],
    /// The schema of the input, without the members that every tool has.
    pub input: fn() -> ToolSchema,
    /// The schema of the output, without the members that every answer has.
    pub output: fn() -> ToolSchema,
    /// How to parse its input.
    pub run: ToolRun,
}

impl Tool {
    /// Whether it may change files.
    pub fn mutates(&self) -> bool {
        matches!(self.run, ToolRun::Mutation(_))
    }

    /// Whether it only reads.
    pub fn only_reads(&self) -> bool {
        matches!(self.run, ToolRun::Read(_))
    }

    /// Whether a runner does its work, outside of the service.
    pub fn is_command(&self) -> bool {
        matches!(self.run, ToolRun::Command)
    }

    /// Whether a caller with these permissions may call it.
    pub fn is_permitted(&self, permissions: &BTreeSet<Permission>) -> bool {
        self.permissions.iter().any(|permission| permissions.contains(permission))
    }
}

/// The parser of a tool's input, which also says whether the tool reads or changes files.
#[derive(Clone, Copy)]
pub enum ToolRun {
    /// Of a reading tool.
    Read(Parse<dyn ReadTool>),
    /// Of a mutating tool.
    Mutation(Parse<dyn Mutation>),
    /// Of the tool whose work a runner does, outside of the service.
    Command,
}

/// Parses the tool's own members of an input.
pub(crate) type Parse<T> = fn(Map<String, Value>) -> Result<Box<T>, Refusal>;

/// The parsed input of a reading tool.
pub trait ReadTool: Send {
    /// Reads without waiting for a disk, on the runtime's thread; `None` if that is not possible.
    fn read_inline(&self, _context: &ReadContext<'_>) -> Option<Result<ReadOutput, WorkspaceError>> {
        None
    }

    /// Restricts the output to what a caller without `file:read` may be shown.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN` if every output would show content.
    fn restrict_to_metadata(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether all files that the read looks at must be as they were at one record. False if it looks at one file, or the caller has
    /// locked the run.
    fn needs_one_state(&self) -> bool {
        true
    }

    /// Returns the earlier record at which the files are to be read; `None` for the present files.
    fn at_record(&self) -> Option<AtRecord> {
        None
    }

    /// Reads, on a thread that may block.
    ///
    /// # Errors
    ///
    /// If policy denies a path, the input does not fit the files, or the disk fails.
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError>;

    /// Returns the paths of the input, for the record of a refusal.
    fn paths(&self) -> Vec<LogicalPath>;
}

/// What a reading tool reads from.
pub struct ReadContext<'a> {
    /// The policy in force.
    pub rules: &'a Rules,
    /// The tree: the run's own or a mount.
    pub tree: &'a Tree,
    /// The run's workspace; `None` if the call names a mount.
    pub workspace: Option<&'a Workspace>,
    /// The versions that records have written; of the run's own tree.
    pub known: Option<&'a KnownVersions>,
    /// The files at an earlier record, if [`ReadTool::at_record`] returned one.
    pub snapshot: Option<&'a SnapshotView>,
    /// Whether a list that is cut has the number of all its entries.
    pub counts_all: bool,
    /// Set when the client has disconnected or the time limit is exceeded.
    pub cancel: &'a AtomicBool,
}

impl<'a> ReadContext<'a> {
    /// Returns the files at the earlier record that the call asked for, with the run's workspace.
    pub fn at_record(&self) -> Option<(&'a SnapshotView, &'a Workspace)> {
        self.snapshot.zip(self.workspace)
    }
}

/// The parsed input of a mutating tool. It describes a change; policy decides about it elsewhere.
///
/// It is asked in the order of these methods: it is prepared, its paths are locked, then it is planned on a thread that may block.
#[async_trait]
pub trait Mutation: Send {
    /// Takes the format in which the call was made, if it was made in one.
    fn in_format(&mut self, _format: &str) {}

    /// Whether [`meet_tree`](Self::meet_tree) is to be called.
    fn meets_tree(&self) -> bool {
        false
    }

    /// Compares the input with the tree, on a thread that may block: which files it is about. Called first. Large contents are staged in
    /// `_space`.
    ///
    /// # Errors
    ///
    /// If the call cannot change one of them; if the disk fails.
    fn meet_tree(&mut self, _rules: &Rules, _workspace: &Workspace, _space: Reservation) -> Result<(), WorkspaceError> {
        Ok(())
    }

    /// Looks up what the call has to know of the run and its history, and sets the versions that the caller has seen.
    ///
    /// # Errors
    ///
    /// If the call cannot be made with what was found; the errors of the ledger and the disk.
    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        lookup.seen(self.expected_versions()).await
    }

    /// Returns what takes the changes of the run since the record that the input is based on. Called with the paths locked.
    fn changed_since(&mut self) -> Option<&mut ChangedSince> {
        None
    }

    /// The versions that the input expects, by path. [`prepare`](Self::prepare) sets those that the caller has seen.
    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        Vec::new()
    }

    /// Returns the paths of the prepared call, and what is known of its change before a file is read.
    fn scope(&self) -> Scope;

    /// Reads the present state of the paths of `scope`, in their order. Files in `removed` do not block other paths.
    ///
    /// # Errors
    ///
    /// If policy denies one of them, a path is blocked, or the disk fails.
    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        workspace.targets(rules, &scope.paths, removed)
    }

    /// Returns the content in the input itself. It is checked for credentials before anything about the tree is answered.
    fn new_texts(&self) -> Vec<NewText<'_>> {
        Vec::new()
    }

    /// Plans the change. `targets` are in the order of the paths of the scope.
    ///
    /// # Errors
    ///
    /// If the input does not fit the present files.
    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal>;
}

/// A large content that was staged for a call.
#[derive(Debug)]
pub(crate) struct StagedContent {
    /// The file in the run's `tmp/`.
    pub file: StagedFile,
    /// What was found in it.
    pub scanned: ScannedContent,
    /// Its file's owner, who removes it unless it is journalled, and the disk space that is reserved for it; until it is planned.
    pub owner: Option<(StagedContents, Reservation)>,
}

/// The paths of a call, and what is known of its change before a file is read.
#[derive(Debug, Default)]
pub struct Scope {
    /// Every path that may change, or that a read names, each once. A mutation locks them.
    pub paths: Vec<LogicalPath>,
    /// Those that change if the call succeeds, as far as the input alone determines that; `None` for all.
    pub changed: Option<Vec<LogicalPath>>,
    /// Those that may be removed, so that another file may take a path above or under them.
    pub removed: Vec<LogicalPath>,
    /// Whether the call locks the whole run.
    pub is_exclusive: bool,
    /// Whether it is a change that was made outside of the service, or undoes one. As a call by itself it is judged by the limits of a
    /// change set. Before the plan [`Mutation::changed_since`] is called.
    pub is_of_command: bool,
    /// How the call writes its only path, if that decides which permission of its tool it needs.
    pub write_mode: Option<WriteMode>,
    /// What the refusal of the call says in addition.
    pub refusal_note: Option<&'static str>,
}

impl Scope {
    /// The scope of a call that may change all of `paths`.
    pub fn of(paths: Vec<LogicalPath>) -> Self {
        Self { paths, ..Self::default() }
    }

    /// Returns the paths that change if the call succeeds.
    pub fn changed(&self) -> &[LogicalPath] {
        self.changed.as_deref().unwrap_or(&self.paths)
    }
}

/// Whether the file that a call writes may or must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WriteMode {
    /// It must not exist.
    CreateNew,
    /// It must exist.
    ReplaceExisting,
    /// It may exist.
    #[default]
    CreateOrReplace,
}

impl WriteMode {
    /// Returns the permission that is needed if there is a file already, or none.
    pub fn needed(self, exists: bool) -> Permission {
        match (self, exists) {
            (Self::CreateNew, _) | (Self::CreateOrReplace, false) => Permission::FileWriteCreate,
            (Self::ReplaceExisting, _) | (Self::CreateOrReplace, true) => Permission::FileWriteReplace,
        }
    }
}

/// A content in the input of a call.
#[derive(Debug)]
pub struct NewText<'a> {
    /// The path that the content is written to.
    pub path: &'a LogicalPath,
    /// The path whose present content it becomes part of.
    pub into: &'a LogicalPath,
    /// Its bytes.
    pub bytes: NewBytes<'a>,
}

/// The bytes of a content in an input.
#[derive(Debug)]
pub enum NewBytes<'a> {
    /// In memory.
    InMemory(Cow<'a, [u8]>),
    /// What was found in a content that is not in memory.
    Scanned(&'a ScannedContent),
}

impl<'a> NewText<'a> {
    /// Returns a text for the file at `path`.
    pub fn to(path: &'a LogicalPath, text: &'a [u8]) -> Self {
        Self { path, into: path, bytes: NewBytes::InMemory(Cow::Borrowed(text)) }
    }
}

/// Returns the refusal that `exists` makes of a file where none may be, instead of that of its content, which only a file that is there
/// has.
pub(crate) fn exists_instead(
    error: WorkspaceError,
    exists: impl FnOnce(&LogicalPath) -> Option<Refusal>,
) -> WorkspaceError {
    let WorkspaceError::Refused(refusal) = &error else { return error };
    let path = match refusal.code {
        Code::FileTooLarge | Code::UnsupportedBinary => refusal.details.path.as_deref(),
        _ => None,
    };
    let path = path.and_then(|path| LogicalPath::parse(path).ok());
    path.and_then(|path| exists(&path)).map_or(error, WorkspaceError::from)
}

/// What a plan is made with.
pub struct PlanContext<'a> {
    /// The policy in force.
    pub rules: &'a Rules,
    /// The commit that the run started from.
    pub base_commit: &'a str,
    /// The targets that were changed from outside.
    pub outside: &'a [OutsideChange],
    /// Returns the changes of a plan that policy denies by themselves, each with its refusal.
    pub denied: &'a dyn Fn(&ChangePlan) -> Vec<(LogicalPath, Refusal)>,
}

/// The earlier record that a read asks for.
#[derive(Clone, Debug)]
pub struct AtRecord {
    /// The number of the record.
    pub seq: u64,
    /// The only path that is read; `None` for all.
    pub only: Option<LogicalPath>,
}

/// A run's files at an earlier record.
pub struct SnapshotView {
    /// The files.
    pub files: Snapshot,
    /// Their contents.
    pub contents: Box<dyn StoredContents + Send + Sync>,
}
