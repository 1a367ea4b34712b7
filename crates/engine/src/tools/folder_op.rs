//! The deletion or the move of a file, or of a folder with its files: what `delete_file`, `move_file` and `DELETE` of a file have in common.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use model::{Code, Effect, FileState, LogicalPath, Refusal, Rules};
use serde_json::{Map, Value};
use workspace::{Target, Workspace, WorkspaceError};

use crate::CallError;
use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::folder::Folder;
use crate::tool::input::new_file_path;
use crate::tool::text::notes::counted;
use crate::tool::{Mutation, PlanContext, RunLookup, Scope, exists_instead};
use crate::tools::delete_file::deleted_folder;
use crate::tools::move_file::moved;
use crate::tools::write_file::already_exists;

/// The deletion or the move of a file or a folder.
pub(crate) struct FolderOp {
    path: LogicalPath,
    /// The version that a file must have.
    expected: Option<ExpectedVersion>,
    /// Whether the path may be that of a folder.
    may_be_folder: bool,
    /// The folder, if it is one.
    folder: Option<Folder>,
    kind: Kind,
}

enum Kind {
    /// The output is that for the deleted file.
    Delete(fn(LogicalPath, &FileState) -> Map<String, Value>),
    /// Each file moves from an old to a new path.
    Move { to: LogicalPath, moves: Vec<(LogicalPath, LogicalPath)> },
}

impl FolderOp {
    /// Deletes `path`. `output` returns the output for a file.
    pub(crate) fn delete(
        path: LogicalPath,
        expected: Option<ExpectedVersion>,
        may_be_folder: bool,
        output: fn(LogicalPath, &FileState) -> Map<String, Value>,
    ) -> Self {
        Self { path, expected, may_be_folder, folder: None, kind: Kind::Delete(output) }
    }

    /// Moves `path` to `to`.
    pub(crate) fn new_move(
        path: LogicalPath,
        to: LogicalPath,
        expected: Option<ExpectedVersion>,
        may_be_folder: bool,
    ) -> Self {
        let kind = Kind::Move { moves: vec![(path.clone(), to.clone())], to };
        Self { path, expected, may_be_folder, folder: None, kind }
    }

    /// The files that are deleted or moved.
    fn files(&self) -> &[LogicalPath] {
        self.folder.as_ref().map_or(std::slice::from_ref(&self.path), Folder::files)
    }

    /// Makes it an operation on the folder with these files.
    fn set_folder(&mut self, files: Vec<LogicalPath>) -> Result<(), Refusal> {
        if let Kind::Move { to, moves } = &mut self.kind {
            if to.is_under(&self.path) {
                let message = format!("`{to}` is in the folder `{}`, which is to be moved", self.path);
                return Err(Refusal::invalid(message, "Give a path outside of the folder in `to`.").at(to));
            }
            let new_path = |file: &LogicalPath| {
                new_file_path(&format!("{to}{}", file.as_str().strip_prefix(self.path.as_str()).unwrap_or_default()))
            };
            *moves = files.iter().map(|file| Ok((file.clone(), new_path(file)?))).collect::<Result<_, Refusal>>()?;
        }
        self.folder = Some(Folder::new(&self.path, files, self.expected)?);
        Ok(())
    }

    /// The refusal of a file at `path`, if that is a new path of a move.
    fn if_exists(&self, path: &LogicalPath) -> Option<Refusal> {
        let Kind::Move { moves, .. } = &self.kind else { return None };
        let hint = "Choose another path in `to`. Or delete the file there first, if it is no longer needed.";
        let is_new = moves.iter().any(|(_, to)| to == path);
        is_new.then(|| Refusal { hint: hint.to_owned(), ..already_exists(path) })
    }

    /// Reads the files of any kind at `paths`. The refusal of a folder says how its files are meant.
    fn read_targets(
        &self,
        rules: &Rules,
        workspace: &Workspace,
        paths: &[LogicalPath],
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        match workspace.movable_targets(rules, paths, removed) {
            Err(WorkspaceError::Refused(mut refusal)) if refusal.code == Code::NotAFile => {
                let path = refusal.details.path.as_ref().and_then(|path| LogicalPath::parse(path.as_str()).ok());
                if path.is_some_and(|path| path == self.path) && workspace.files_under(&self.path, 1)?.is_some() {
                    let verb = if let Kind::Delete(_) = self.kind { "delete" } else { "move" };
                    refusal.hint = format!("To {verb} the folder with all its files, give recursive: true.");
                }
                Err(refusal.into())
            }
            targets => targets.map_err(|error| exists_instead(error, |path| self.if_exists(path))),
        }
    }
}

#[async_trait]
impl Mutation for FolderOp {
    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        if self.may_be_folder
            && let Some(files) = lookup.folder(&self.path).await?
        {
            self.set_folder(files)?;
            lookup.check_file_count(&self.scope())?;
        }
        lookup.seen(self.expected_versions()).await
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        match &mut self.folder {
            Some(folder) => folder.expected_versions(),
            None => self.expected.iter_mut().map(|expected| (&self.path, expected)).collect(),
        }
    }

    fn scope(&self) -> Scope {
        let Kind::Move { moves, .. } = &self.kind else { return Scope::of(self.files().to_vec()) };
        let (from, to): (Vec<_>, Vec<_>) = moves.iter().cloned().unzip();
        let paths = from.iter().chain(&to).cloned().collect();
        // A move counts once.
        Scope { changed: Some(to), removed: from, ..Scope::of(paths) }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let targets = self.read_targets(rules, workspace, &scope.paths, removed)?;
        let Some(folder) = &self.folder else { return Ok(targets) };
        folder.check(workspace)?;
        if let Kind::Move { to, .. } = &self.kind
            && workspace.files_under(to, 1)?.is_some_and(|files| !files.is_empty())
        {
            let hint = "Give the whole new path of the folder in `to`, which must not exist.";
            return Err(Refusal::new(Code::AlreadyExists, format!("`{to}` is a folder with files"), hint)
                .at(to)
                .into());
        }
        Ok(targets)
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        // A folder may have many files.
        let by_path: BTreeMap<_, _> = targets.iter().map(|target| (&target.path, target)).collect();
        let before = |path: &LogicalPath| Some(&by_path.get(path)?.before.as_ref()?.0);
        if let Some(missing) = self.files().iter().find(|path| before(path).is_none()) {
            return Err(Refusal::not_found(missing));
        }
        if let Kind::Move { moves, .. } = &self.kind {
            let taken = moves.iter().find(|(_, to)| before(to).is_some());
            taken.and_then(|(_, to)| self.if_exists(to)).map_or(Ok(()), Err)?;
        }
        let file = before(&self.path).cloned();
        match &self.folder {
            Some(folder) => folder.check_versions(&targets)?,
            None => expect_version(&self.path, file.as_ref().map(|state| state.sha256), self.expected)?,
        }
        let path = &self.path;
        let mut plan = match &self.kind {
            Kind::Delete(_) => {
                let deletion =
                    |path: &LogicalPath| DesiredFile { path: path.clone(), effect: Effect::Delete, after: None };
                let desired = self.files().iter().map(deletion).collect();
                ChangePlan::build_any_kind(context.rules, targets, desired, Vec::new())
            }
            Kind::Move { moves, .. } => ChangePlan::moves(context.rules, targets, moves),
        };
        let count = counted(self.files().len() as u64, "file", "files");
        (plan.summary, plan.output) = match (&self.kind, file.filter(|_| self.folder.is_none())) {
            (Kind::Delete(output), Some(file)) => (format!("deleted {path}"), output(path.clone(), &file)),
            (Kind::Delete(_), None) => (format!("deleted {path}/ with {count}"), deleted_folder(path, &plan)),
            (Kind::Move { to, .. }, Some(file)) => {
                (format!("moved {path} to {to}"), moved(path, to, Some(file.sha256), &plan))
            }
            (Kind::Move { to, .. }, None) => (format!("moved {path}/ to {to}/, {count}"), moved(path, to, None, &plan)),
        };
        Ok(plan)
    }
}
