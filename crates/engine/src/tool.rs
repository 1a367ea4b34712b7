//! What a tool is: its declaration, and the traits of its parsed input.

pub(crate) mod at_record;
pub(crate) mod change_plan;
pub(crate) mod changed_since;
pub(crate) mod cursor;
pub(crate) mod earlier_calls;
pub(crate) mod expected_version;
pub(crate) mod folder;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod outside_change;
pub(crate) mod schema;
pub(crate) mod text;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use model::{Code, LogicalPath, Permission, Refusal, Rules, ScannedContent, Sha256};
use serde_json::{Map, Value};
use workspace::{FollowedPath, StagedFile, Target, Tree, Workspace, WorkspaceError};

use crate::run::changed_paths::ChangedPaths;
use crate::run::quota::Reservation;
use crate::tool::at_record::{AtRecord, SnapshotView};
use crate::tool::change_plan::ChangePlan;
use crate::tool::changed_since::ChangedSince;
use crate::tool::earlier_calls::{EarlierCalls, EarlierCallsQuery, StoredContent};
use crate::tool::expected_version::ExpectedVersion;
use crate::tool::output::ReadOutput;
use crate::tool::outside_change::OutsideChange;
use crate::tool::text::Render;

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
    /// Members of the output that hold file content. They are emptied for callers without `file:read`.
    pub content: &'static [&'static str],
    /// The schema of the input, without the members that every tool has.
    pub input: fn() -> ToolSchema,
    /// The schema of the output, without the members that every answer has.
    pub output: fn() -> ToolSchema,
    /// How its answer is shown to a model.
    pub text: Render,
    /// How to parse its input.
    pub run: ToolRun,
}

impl Tool {
    /// Whether it may change files.
    pub fn mutates(&self) -> bool {
        matches!(self.run, ToolRun::Mutation(_))
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
    /// Paths that are known to differ from the base; of the run's own tree.
    pub changed: Option<&'a ChangedPaths>,
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
pub trait Mutation: Send {
    /// Returns the earlier calls that the plan needs. Called first.
    fn earlier_calls(&self) -> Option<EarlierCallsQuery> {
        None
    }

    /// Takes the result of [`earlier_calls`](Self::earlier_calls).
    ///
    /// # Errors
    ///
    /// If they cannot be undone.
    fn take_earlier_calls(&mut self, _earlier: EarlierCalls) -> Result<(), Refusal> {
        Ok(())
    }

    /// Follows the paths that are not members of the input by themselves.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED` for a new file whose name would be canonically equal to an existing one; or if the disk fails.
    fn follow_paths(&mut self, _follow: Follow<'_>) -> Result<(), WorkspaceError> {
        Ok(())
    }

    /// Returns the path of which the call changes all files, if it is a folder. Their paths are among [`paths`](Self::paths) once
    /// [`take_folder`](Self::take_folder) has taken them.
    fn folder(&self) -> Option<&LogicalPath> {
        None
    }

    /// Takes the files of [`folder`](Self::folder), sorted. Not called where it is no folder.
    ///
    /// # Errors
    ///
    /// If the call cannot change them.
    fn take_folder(&mut self, _files: Vec<LogicalPath>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether it is a change that was made outside of the service. It is judged by the limits of a change set, and
    /// [`meet_tree`](Self::meet_tree) and [`changed_since`](Self::changed_since) are called.
    fn is_of_command(&self) -> bool {
        false
    }

    /// Compares the input with the tree, on a thread that may block: which files it is about. Called before the paths are locked.
    ///
    /// # Errors
    ///
    /// If the call cannot change one of them; if the disk fails.
    fn meet_tree(&mut self, _rules: &Rules, _workspace: &Workspace) -> Result<(), WorkspaceError> {
        Ok(())
    }

    /// Returns what takes the changes of the run since the record that the input is based on. Called with the paths locked.
    fn changed_since(&mut self) -> Option<&mut ChangedSince> {
        None
    }

    /// Returns every path that may change, each once. The call locks them.
    fn paths(&self) -> Vec<LogicalPath>;

    /// Returns those of [`paths`](Self::paths) that change if the call succeeds, as far as the input alone determines that.
    fn changed_paths(&self) -> Vec<LogicalPath> {
        self.paths()
    }

    /// Whether the call locks the whole run.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Returns the version that the caller expects at `path`, if the input names one.
    fn expected_version(&self, _path: &LogicalPath) -> Option<Sha256> {
        None
    }

    /// The versions that the input expects, by path. Those that the caller has seen are set before the call is planned.
    fn expected_versions_mut(&mut self) -> Vec<(LogicalPath, &mut ExpectedVersion)> {
        Vec::new()
    }

    /// The version whose content the plan needs where the file has changed since, with its path.
    fn merge_base(&self) -> Option<(LogicalPath, Sha256)> {
        None
    }

    /// Takes the content of [`merge_base`](Self::merge_base), as far as it is stored.
    fn take_merge_base(&mut self, _content: StoredContent) {}

    /// The paths whose recorded contents the plan needs, to restore them.
    fn restores(&self) -> Vec<LogicalPath> {
        Vec::new()
    }

    /// Takes the recorded content of a path of [`restores`](Self::restores), as far as it is stored.
    fn take_restored(&mut self, _path: LogicalPath, _sha256: Sha256, _content: StoredContent) {}

    /// What the refusal of the call says in addition.
    fn refusal_note(&self) -> Option<&'static str> {
        None
    }

    /// Returns those of [`paths`](Self::paths) that may be removed, so that another file may take a path above or under
    /// them.
    fn removed_paths(&self) -> Vec<LogicalPath> {
        Vec::new()
    }

    /// Reads the present state of [`paths`](Self::paths), in their order. Files in `removed` do not block other paths.
    ///
    /// # Errors
    ///
    /// If policy denies one of them, a path is blocked, or the disk fails.
    fn targets(
        &self,
        rules: &Rules,
        workspace: &Workspace,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        workspace.targets(rules, &self.paths(), removed)
    }

    /// Returns the refusal of a file that exists at `path`, if there may be none.
    fn if_exists(&self, _path: &LogicalPath) -> Option<Refusal> {
        None
    }

    /// Returns the permission that the known effect requires; `None` if the tool's own is enough.
    fn required_permission(&self, _targets: &[Target]) -> Option<Permission> {
        None
    }

    /// Returns the texts in the input itself, each with its path. They are checked for credentials before anything about
    /// the tree is answered.
    fn new_texts(&self) -> Vec<NewText> {
        Vec::new()
    }

    /// Returns the refusal of a credential in new content that is not in memory.
    fn check_staged_content(&self, _targets: &[Target]) -> Option<Refusal> {
        None
    }

    /// Returns the hash of the content that the call has waited with for approval, if that was too large to be stored with its input.
    fn waiting_content(&self) -> Option<Sha256> {
        None
    }

    /// Takes that content, and the disk space that is reserved for it.
    fn take_waiting_content(&mut self, _staged: StagedFile, _scanned: ScannedContent, _reservation: Reservation) {}

    /// Returns the disk space that is reserved already for new content outside of memory.
    fn take_reservation(&mut self) -> Option<Reservation> {
        None
    }

    /// Plans the change. `targets` are in the order of [`paths`](Self::paths).
    ///
    /// # Errors
    ///
    /// If the input does not fit the present files.
    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal>;

    /// Returns the refusal of a plan that would leave a file and another one under it.
    fn path_conflict(&self, conflict: PathConflict) -> Refusal {
        let PathConflict { above, under } = conflict;
        let message = format!("`{above}` would be a file, and `{under}` a file under it");
        Refusal::new(Code::NotADirectory, message, "Choose another path for one of the two.").at(&under)
    }
}

/// Returns the existing path that is canonically equal to one that does not exist.
pub(crate) type Follow<'a> = &'a dyn Fn(&LogicalPath) -> Result<Option<FollowedPath>, WorkspaceError>;

/// Two paths that cannot both be files.
#[derive(Debug)]
pub struct PathConflict {
    /// The path above the other.
    pub above: LogicalPath,
    /// The path under it.
    pub under: LogicalPath,
}

/// A text in the input of a call.
#[derive(Debug)]
pub struct NewText {
    /// The path that the text is written to.
    pub path: LogicalPath,
    /// The path whose present text it becomes part of.
    pub into: LogicalPath,
    /// The text.
    pub text: Vec<u8>,
}

impl NewText {
    /// Returns a text for the file at `path`.
    pub fn to(path: &LogicalPath, text: Vec<u8>) -> Self {
        Self { path: path.clone(), into: path.clone(), text }
    }
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
