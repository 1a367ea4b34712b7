//! `move_file`: moves a file, or a folder with its files, to another path.

use std::collections::{BTreeMap, BTreeSet};

use model::{Change, Code, Effect, LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{Target, Workspace, WorkspaceError};

use super::write_file::{already_exists, members};
use crate::tool::change_plan::ChangePlan;
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::folder::{Folder, targets_or_folder_hint};
use crate::tool::input::{check_new, file_path, folder_path, new_file_path, parse};
use crate::tool::text::notes::counted;
use crate::tool::{Mutation, Need, Obtained, PlanContext, Scope, Tool, ToolRun, ToolSchema, exists_instead};

pub(crate) const TOOL: Tool = Tool {
    name: "move_file",
    description: "Moves or renames one file, if it is as you last read it, or with recursive a folder; the new path must not exist.",
    is_expensive: false,
    permissions: &[Permission::FileMove],
    content: &[],
    input: ToolSchema::of::<MoveFileInput>,
    output: ToolSchema::of::<MoveFileOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(MoveFile::try_from(parse::<MoveFileInput>(members)?)?))),
};

/// The input of `move_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "from": "src/a.txt",
    "to": "src/b.txt",
    "expectedSha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    "reason": "a better name"
}))]
pub(crate) struct MoveFileInput {
    /// Relative to the workspace root.
    from: String,
    /// The new path. Missing folders are created.
    to: String,
    /// Move a folder.
    #[serde(default)]
    recursive: bool,
    /// The version that the file must have. Required for a file, except in the text view, where `seen` is the default.
    #[serde(default)]
    expected_sha256: Option<ExpectedVersion>,
}

/// The output of `move_file`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MoveFileOutput {
    /// The normalised old path.
    from: LogicalPath,
    /// The normalised new path.
    to: LogicalPath,
    /// Hash of the file. Missing for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
    /// The moved files of a folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    files: Vec<MovedFile>,
}

/// A file of a moved folder.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MovedFile {
    /// The old path.
    from: LogicalPath,
    /// The new path.
    path: LogicalPath,
    /// Always `renamed`.
    operation: &'static str,
    /// Hash of the file.
    sha256: Sha256,
    /// Always 0.
    insertions: u64,
    /// Always 0.
    deletions: u64,
}

struct MoveFile {
    from: LogicalPath,
    to: LogicalPath,
    expected: Option<ExpectedVersion>,
    /// Whether `from` may be a folder, which is not known yet.
    may_be_folder: bool,
    /// The folder, if `from` is one.
    folder: Option<Folder>,
    /// The old and the new path of each file.
    moves: Vec<(LogicalPath, LogicalPath)>,
}

impl TryFrom<MoveFileInput> for MoveFile {
    type Error = Refusal;

    fn try_from(input: MoveFileInput) -> Result<Self, Refusal> {
        let (from, to) = if input.recursive {
            (folder_path(&input.from)?, folder_path(&input.to)?)
        } else {
            (file_path(&input.from)?, new_file_path(&input.to)?)
        };
        check_new(&to)?;
        if from == to {
            return Err(Refusal::invalid("`from` and `to` are the same path", "Give another path in `to`.").at(&to));
        }
        let (may_be_folder, expected) = (input.recursive, input.expected_sha256);
        let moves = vec![(from.clone(), to.clone())];
        Ok(Self { from, to, expected, may_be_folder, folder: None, moves })
    }
}

impl Mutation for MoveFile {
    fn need(&self) -> Option<Need> {
        self.may_be_folder.then(|| Need::Folder(self.from.clone()))
    }

    fn prepare(&mut self, found: Obtained) -> Result<(), Refusal> {
        let Obtained::Folder(files) = found else { return Ok(()) };
        self.may_be_folder = false;
        let Some(files) = files else { return Ok(()) };
        if self.to.is_under(&self.from) {
            let message = format!("`{}` is in the folder `{}`, which is to be moved", self.to, self.from);
            return Err(Refusal::invalid(message, "Give a path outside of the folder in `to`.").at(&self.to));
        }
        let new_path = |file: &LogicalPath| {
            let raw = format!("{}{}", self.to, file.as_str().strip_prefix(self.from.as_str()).unwrap_or_default());
            new_file_path(&raw)
        };
        self.moves = files.iter().map(|file| Ok((file.clone(), new_path(file)?))).collect::<Result<_, Refusal>>()?;
        self.folder = Some(Folder::new(&self.from, files, self.expected)?);
        Ok(())
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        match &mut self.folder {
            Some(folder) => folder.expected_versions(),
            None => self.expected.iter_mut().map(|expected| (&self.from, expected)).collect(),
        }
    }

    fn scope(&self) -> Scope {
        let (from, to): (Vec<_>, Vec<_>) = self.moves.iter().cloned().unzip();
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
        let targets = targets_or_folder_hint(workspace, rules, &scope.paths, removed, "move");
        let targets = targets.map_err(|error| exists_instead(error, |path| self.if_exists(path)))?;
        if let Some(folder) = &self.folder {
            folder.check(workspace)?;
            if workspace.files_under(&self.to, 1)?.is_some_and(|files| !files.is_empty()) {
                let hint = "Give the whole new path of the folder in `to`, which must not exist.";
                let message = format!("`{}` is a folder with files", self.to);
                return Err(Refusal::new(Code::AlreadyExists, message, hint).at(&self.to).into());
            }
        }
        Ok(targets)
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        // A folder may have many files.
        let by_path: BTreeMap<_, _> = targets.iter().map(|target| (&target.path, target)).collect();
        let before = |path: &LogicalPath| by_path.get(path)?.before.as_ref();
        for (from, to) in &self.moves {
            if before(from).is_none() {
                return Err(Refusal::not_found(from));
            }
            if before(to).is_some()
                && let Some(refusal) = self.if_exists(to)
            {
                return Err(refusal);
            }
        }
        let sha256 = before(&self.from).map(|(state, _)| state.sha256);
        match &self.folder {
            Some(folder) => folder.check_versions(&targets)?,
            None => expect_version(&self.from, sha256, self.expected)?,
        }
        let mut plan = ChangePlan::moves(context.rules, targets, &self.moves);
        let mut files = Vec::new();
        plan.summary = if self.folder.is_some() {
            files = plan.changes().filter_map(MovedFile::of).collect();
            let count = counted(files.len() as u64, "file", "files");
            format!("moved {}/ to {}/, {count}", self.from, self.to)
        } else {
            format!("moved {} to {}", self.from, self.to)
        };
        plan.output = members(&MoveFileOutput { from: self.from.clone(), to: self.to.clone(), sha256, files });
        Ok(plan)
    }
}

impl MoveFile {
    /// The refusal of a file at `path`, if that is a new path.
    fn if_exists(&self, path: &LogicalPath) -> Option<Refusal> {
        let hint = "Choose another path in `to`. Or delete the file there first, if it is no longer needed.";
        let is_new = self.moves.iter().any(|(_, to)| to == path);
        is_new.then(|| Refusal { hint: hint.to_owned(), ..already_exists(path) })
    }
}

impl MovedFile {
    /// The file that a change has received.
    fn of(change: &Change) -> Option<Self> {
        let Effect::MoveTo { from } = &change.effect else { return None };
        let sha256 = change.after.as_ref()?.sha256;
        Some(Self {
            from: from.clone(),
            path: change.path.clone(),
            operation: "renamed",
            sha256,
            insertions: 0,
            deletions: 0,
        })
    }
}
