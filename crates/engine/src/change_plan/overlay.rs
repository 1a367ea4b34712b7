//! The tree as it will be, once what a batch has planned so far is carried out.

use std::collections::{BTreeMap, BTreeSet};

use model::{Code, FileKind, FileState, LogicalPath, Refusal, Step, StepBytes, StepContent};
use workspace::{PlannedFile, Preview, Target, Workspace};

use super::ChangePlan;
use crate::CallError;

/// Every path that earlier calls of a batch change. Empty for a call by itself.
#[derive(Debug, Default)]
pub struct PlanOverlay(BTreeMap<LogicalPath, Stand>);

type Version = (FileState, Vec<u8>);

/// One path: what is there, and what will be.
#[derive(Debug)]
struct Stand {
    now: Option<Version>,
    then: Option<Version>,
}

/// Two paths that cannot both be files.
#[derive(Debug)]
pub struct PathConflict {
    /// The one on the way to the other.
    pub above: LogicalPath,
    /// The other.
    pub beneath: LogicalPath,
}

/// What a read of a batch looks at.
#[derive(Debug)]
pub enum View {
    /// The tree as it is: nothing that the read names changes.
    Now,
    /// The files as they will be.
    Then(Box<Preview>),
}

impl PlanOverlay {
    /// Whether an earlier call changes `path`.
    pub fn holds(&self, path: &LogicalPath) -> bool {
        self.0.contains_key(path)
    }

    /// Every path that they change.
    pub fn paths(&self) -> Vec<LogicalPath> {
        self.0.keys().cloned().collect()
    }

    /// Every path at which they leave nothing.
    pub fn gone(&self) -> impl Iterator<Item = &LogicalPath> {
        self.0.iter().filter(|(_, stand)| stand.then.is_none()).map(|(path, _)| path)
    }

    /// The targets as a later call finds them, which takes away what is among those that `go`.
    ///
    /// # Errors
    ///
    /// `NOT_A_DIRECTORY`, `NOT_A_FILE` where an earlier call makes a file of a folder on the way, or the other way round.
    pub fn over(&self, targets: Vec<Target>, go: &BTreeSet<LogicalPath>) -> Result<Vec<Target>, Refusal> {
        let over = |target: Target| {
            self.check_way(&target.path, go)?;
            Ok(match self.0.get(&target.path) {
                Some(stand) => Target { before: stand.then.clone(), scanned: None, ..target },
                None => target,
            })
        };
        targets.into_iter().map(over).collect()
    }

    fn check_way(&self, path: &LogicalPath, go: &BTreeSet<LogicalPath>) -> Result<(), Refusal> {
        for (made, _) in self.0.iter().filter(|(made, stand)| stand.then.is_some() && !go.contains(*made)) {
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

    /// A file and one beneath it that there would be once `planned` is carried out upon the calls before it, of those that it
    /// touches or they do: no tree can hold both.
    pub fn crossing(&self, planned: &ChangePlan) -> Option<PathConflict> {
        if !planned.changes.changes.iter().any(|change| change.before.is_none() && change.after.is_some()) {
            return None;
        }
        let mut files: BTreeSet<_> = planned.before.keys().collect();
        files.extend(self.0.iter().filter(|(_, stand)| stand.then.is_some()).map(|(path, _)| path));
        for change in &planned.changes.changes {
            if change.after.is_some() {
                files.insert(&change.path);
            } else {
                files.remove(&change.path);
            }
        }
        let (above, beneath) = LogicalPath::find_nested(files)?;
        Some(PathConflict { above: above.clone(), beneath: beneath.clone() })
    }

    /// Puts a planned call behind those before it.
    pub fn take(&mut self, planned: &ChangePlan) {
        for change in &planned.changes.changes {
            let then = change.after.as_ref().map(|content| {
                let kind = planned.kinds.get(&change.path).copied().unwrap_or(FileKind::Unknown);
                let (sha256, size_bytes, mode) = (content.sha256, content.size_bytes, content.mode);
                (FileState { sha256, size_bytes, mode, kind }, content.inline().to_vec())
            });
            let now = || {
                let bytes = planned.before.get(&change.path).cloned().unwrap_or_default();
                change.before.clone().map(|state| (state, bytes))
            };
            let stand = self.0.entry(change.path.clone()).or_insert_with(|| Stand { now: now(), then: None });
            stand.then = then;
        }
    }

    /// What all calls together come to, file by file; removals before creations.
    pub fn steps(&self) -> Vec<Step> {
        let version = |version: &Option<Version>| version.as_ref().map(|(state, _)| (state.sha256, state.mode));
        let changed = self.0.iter().filter(|(_, stand)| version(&stand.now) != version(&stand.then));
        let step = |(path, stand): (&LogicalPath, &Stand)| Step {
            path: path.clone(),
            before: stand.now.as_ref().map(|(state, _)| state.sha256),
            after: stand.then.as_ref().map(|(state, bytes)| StepContent {
                sha256: state.sha256,
                mode: state.mode,
                bytes: StepBytes::Inline(bytes.clone()),
            }),
        };
        let mut steps: Vec<_> = changed.map(step).collect();
        steps.sort_by_key(|step| step.after.is_some());
        steps
    }

    /// What the calls so far and `planned` find and leave, for the workspace's diff.
    pub fn overlay(&self, planned: &ChangePlan) -> Vec<PlannedFile> {
        let overlay = |(path, stand): (&LogicalPath, &Stand)| PlannedFile {
            path: path.clone(),
            before: stand.now.as_ref().map(|(_, bytes)| bytes.clone()),
            after: stand.then.as_ref().map(|(state, bytes)| (bytes.clone(), state.mode)),
        };
        let mut all: BTreeMap<_, _> = self.0.iter().map(|one| (one.0.clone(), overlay(one))).collect();
        for next in planned.overlay() {
            let before = all.remove(&next.path).map_or(next.before, |known| known.before);
            all.insert(next.path.clone(), PlannedFile { before, ..next });
        }
        all.into_values().collect()
    }

    /// What a read that names `paths` looks at.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` where it asks for what changes and for what does not change at once.
    pub fn view(&self, workspace: &Workspace, paths: &[LogicalPath]) -> Result<View, CallError> {
        if self.0.is_empty() {
            return Ok(View::Now);
        }
        if !paths.is_empty() && paths.iter().all(|path| self.holds(path)) {
            let named: BTreeSet<_> = paths.iter().collect();
            let files = named.into_iter().filter_map(|path| {
                let (state, bytes) = self.0.get(path)?.then.as_ref()?;
                Some((path, bytes.as_slice(), state.mode))
            });
            return Ok(View::Then(Box::new(workspace.preview(files)?)));
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
                let message =
                    format!("the call reads more than `{changed}`, which an earlier call of the batch changes");
                let hint = "Read it before the first change, or name changed files alone, or read behind the batch.";
                return Err(Refusal::invalid(message, hint).at(path).into());
            }
        }
        Ok(View::Now)
    }
}
