//! The files as the planned calls of a batch would leave them.

use std::collections::{BTreeMap, BTreeSet};

use model::{Code, FileState, LogicalPath, Refusal, Step, StepBytes, StepContent};
use workspace::{Preview, Target, VersionId, Workspace};

use crate::CallError;
use crate::tool::change_plan::{ChangePlan, PlannedChange};

/// Every path that the planned calls change. Empty for a single call.
#[derive(Debug, Default)]
pub(crate) struct PlanOverlay(BTreeMap<LogicalPath, PathState>);

type FileVersion = (FileState, Vec<u8>);

/// A path before and after the planned calls.
#[derive(Debug)]
struct PathState {
    before: Option<FileVersion>,
    after: Option<FileVersion>,
}

/// What a read of a batch reads.
#[derive(Debug)]
pub(crate) enum ReadView {
    /// The present tree: no path of the read changes.
    Present,
    /// The files as the calls would leave them.
    Planned(Box<Preview>),
}

impl PlanOverlay {
    /// Whether a planned call changes `path`.
    pub(crate) fn contains(&self, path: &LogicalPath) -> bool {
        self.0.contains_key(path)
    }

    /// Returns every path that the calls remove.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &LogicalPath> {
        self.0.iter().filter(|(_, state)| state.after.is_none()).map(|(path, _)| path)
    }

    /// Returns the targets as a later call, which removes the paths in `removed`, finds them.
    ///
    /// # Errors
    ///
    /// `NOT_A_DIRECTORY`, `NOT_A_FILE` if an earlier call turns a folder on the path into a file, or the reverse.
    pub(crate) fn apply_to(
        &self,
        targets: Vec<Target>,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, Refusal> {
        let over = |target: Target| {
            self.check_path(&target.path, removed)?;
            Ok(match self.0.get(&target.path) {
                Some(state) => Target { before: state.after.clone(), scanned: None, ..target },
                None => target,
            })
        };
        targets.into_iter().map(over).collect()
    }

    fn check_path(&self, path: &LogicalPath, removed: &BTreeSet<LogicalPath>) -> Result<(), Refusal> {
        for (made, _) in self.0.iter().filter(|(made, state)| state.after.is_some() && !removed.contains(*made)) {
            let (code, message) = if path.is_under(made) {
                (Code::NotADirectory, format!("an earlier call of the batch makes `{made}` a file"))
            } else if made.is_under(path) {
                (Code::NotAFile, format!("an earlier call of the batch makes `{path}` a folder"))
            } else {
                continue;
            };
            return Err(Refusal::new(code, message, "Choose another path.").at(path));
        }
        Ok(())
    }

    /// Returns the refusal of a plan that would leave a file and another one under it. No tree can hold both.
    pub(crate) fn path_conflict(&self, planned: &ChangePlan) -> Option<Refusal> {
        if !planned.changes().any(|change| change.before.is_none() && change.after.is_some()) {
            return None;
        }
        let mut files: BTreeSet<_> = planned.found_paths().collect();
        files.extend(self.0.iter().filter(|(_, state)| state.after.is_some()).map(|(path, _)| path));
        for change in planned.changes() {
            if change.after.is_some() {
                files.insert(&change.path);
            } else {
                files.remove(&change.path);
            }
        }
        let (above, under) = LogicalPath::find_nested(files)?;
        if planned.is_restoration {
            let message = format!("`{under}` cannot be restored: `{above}` would be a file too");
            let hint = "Also undo the calls that changed the other path, or leave out the calls that restore this one.";
            return Some(Refusal::new(Code::RevertConflict, message, hint).at(under));
        }
        let message = format!("`{above}` would be a file, and `{under}` a file under it");
        Some(Refusal::new(Code::NotADirectory, message, "Choose another path for one of the two.").at(under))
    }

    /// Adds a planned call.
    pub(crate) fn add(&mut self, planned: &ChangePlan) {
        for PlannedChange { change, kind, .. } in planned.planned_changes() {
            let after = change.after.as_ref().map(|content| {
                let (sha256, size_bytes, mode) = (content.sha256, content.size_bytes, content.mode);
                (FileState { sha256, size_bytes, mode, kind: *kind }, content.inline().to_vec())
            });
            let before = || {
                let bytes = planned.found_bytes(&change.path).unwrap_or_default().to_vec();
                change.before.clone().map(|state| (state, bytes))
            };
            let state =
                self.0.entry(change.path.clone()).or_insert_with(|| PathState { before: before(), after: None });
            state.after = after;
        }
    }

    /// Returns what all calls change together, file by file; removals before creations.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let version = |version: &Option<FileVersion>| version.as_ref().map(|(state, _)| (state.sha256, state.mode));
        let changed = self.0.iter().filter(|(_, state)| version(&state.before) != version(&state.after));
        let step = |(path, state): (&LogicalPath, &PathState)| Step {
            path: path.clone(),
            before: state.before.as_ref().map(|(state, _)| state.sha256),
            after: state.after.as_ref().map(|(state, bytes)| StepContent {
                sha256: state.sha256,
                mode: state.mode,
                bytes: StepBytes::Inline(bytes.clone()),
            }),
        };
        let mut steps: Vec<_> = changed.map(step).collect();
        steps.sort_by_key(|step| step.after.is_some());
        steps
    }

    /// Returns the version of each path after the calls so far and `planned`; `None` for no file.
    pub(crate) fn versions_with(&self, planned: &ChangePlan) -> BTreeMap<LogicalPath, Option<VersionId>> {
        let planned_so_far = |(path, state): (&LogicalPath, &PathState)| {
            let after = state.after.as_ref().map(|(state, _)| VersionId::of(state.sha256, state.mode));
            (path.clone(), after)
        };
        let mut all: BTreeMap<_, _> = self.0.iter().map(planned_so_far).collect();
        for change in planned.changes() {
            let after = change.after.as_ref().map(|content| VersionId::of(content.sha256, content.mode));
            all.insert(change.path.clone(), after);
        }
        all
    }

    /// Returns what a read that names `paths` reads.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if it names a path that changes together with one that does not.
    pub(crate) fn view(&self, workspace: &Workspace, paths: &[LogicalPath]) -> Result<ReadView, CallError> {
        if self.0.is_empty() {
            return Ok(ReadView::Present);
        }
        if !paths.is_empty() && paths.iter().all(|path| self.contains(path)) {
            let named: BTreeSet<_> = paths.iter().collect();
            let files = named.into_iter().filter_map(|path| {
                let (state, bytes) = self.0.get(path)?.after.as_ref()?;
                Some((path, bytes.as_slice(), state.mode))
            });
            return Ok(ReadView::Planned(Box::new(workspace.preview(files)?)));
        }
        let root = [LogicalPath::root()];
        for path in if paths.is_empty() { &root[..] } else { paths } {
            let real = workspace.tree().real_path(path);
            let meets = |changed: &LogicalPath| {
                [Some(path), real.as_ref()]
                    .into_iter()
                    .flatten()
                    .any(|path| path == changed || path.is_under(changed) || changed.is_under(path))
            };
            if let Some(changed) = self.0.keys().find(|changed| meets(changed)) {
                let message = format!(
                    "the call reads `{changed}`, which an earlier call of the batch changes, together with other paths"
                );
                let hint = "Read before the first change, or only changed files, or after the batch.";
                return Err(Refusal::invalid(message, hint).at(path).into());
            }
        }
        Ok(ReadView::Present)
    }
}
