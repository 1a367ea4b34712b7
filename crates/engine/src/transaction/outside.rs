//! Changes from outside: files whose present version no record of the run, and not its base, has left.
//!
//! A call that changes such a file is refused, or the change from outside is recorded first, by itself.

use std::sync::Arc;

use ledger::{Artifact, Entry};
use model::{
    Code, Draft, FileKind, FileState, LogicalPath, NOBODY, OUTSIDE_CHANGE_TOOL, OutsideChanges, RecordFile, Refusal,
    Sha256, Side, Step, StepBytes, StepContent, diff_file,
};
use serde_json::{Map, Value};
use workspace::Target;

use crate::CallError;
use crate::call::{Call, OpenedCall};
use crate::clock::{new_artifact_id, new_tool_call_id, now};
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::tool::change_plan::ChangePlan;
use crate::tool::earlier_calls::StoredContent;
use crate::tool::outside_change::{OutsideChange, RecordedOutside};
use crate::transaction::judge::JudgedItem;

/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl OutsideChange {
    /// Returns the change from outside at `path`, at which a mutation found the file `found`. The caller has locked the path.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn at(run: &OpenRun, path: &LogicalPath, found: Option<&FileState>) -> Result<Option<Self>, CallError> {
        let known = run.known.file(run.workspace.base(), path)?;
        let is_same = match (&known, found) {
            (None, None) => true,
            (Some(known), Some(found)) => known.is(found),
            (Some(_), None) => false,
            // What programs leave where git ignores it is nobody's change.
            (None, Some(_)) => !run.known.has_written(path) && run.workspace.is_ignored(path)?,
        };
        Ok((!is_same).then(|| Self { path: path.clone(), known, found: found.cloned() }))
    }

    /// Returns the changes from outside among the targets of a mutation.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn among<'t>(run: &OpenRun, targets: impl IntoIterator<Item = &'t Target>) -> Result<Vec<Self>, CallError> {
        let mut all = Vec::new();
        for target in targets {
            all.extend(Self::at(run, &target.path, target.before.as_ref().map(|(state, _)| state))?);
        }
        Ok(all)
    }

    fn refusal(&self) -> Refusal {
        let path = &self.path;
        let message = match (self.known, &self.found) {
            (Some(_), None) => format!("`{path}` was removed by something else than a call of this run"),
            (None, _) => format!("`{path}` was created by something else than a call of this run"),
            (Some(_), Some(_)) => format!("`{path}` was changed by something else than a call of this run"),
        };
        let hint = "Nothing was changed. Continue with other files: the operator of the run can accept the present file or restore \
                    the recorded one.";
        Refusal::new(Code::ChangedOutside, message, hint).at(path).with_details(|details| {
            details.known_sha256 = self.known.map(|known| known.sha256);
            details.current_sha256 = self.found.as_ref().map(|found| found.sha256);
        })
    }
}

/// Returns the refusal of a plan that changes files which were changed from outside, unless the policy has such changes recorded.
/// Otherwise, warns of them.
pub(crate) fn refuse(policy: OutsideChanges, plan: &mut ChangePlan) -> Option<Refusal> {
    if plan.settlement.is_some() {
        return None;
    }
    match policy {
        OutsideChanges::Refuse => plan.outside.first().map(OutsideChange::refusal),
        OutsideChanges::Record => {
            let warning = |change: &OutsideChange| {
                format!("`{}` had been changed from outside; that change is recorded by itself", change.path)
            };
            plan.warnings.extend(plan.outside.iter().map(warning));
            None
        }
    }
}

impl RecordedOutside {
    /// Describes the changes from outside of `plan`.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn of(engine: &Engine, run: &Arc<OpenRun>, plan: &ChangePlan) -> Result<Self, CallError> {
        let mut recorded = Self::default();
        for change in &plan.outside {
            let old = match change.known {
                Some(known) => engine.stored_content(run, &change.path, known.sha256, NEWEST).await?,
                None => StoredContent::Unknown,
            };
            recorded.add(change, &old, plan.found_bytes(&change.path));
        }
        Ok(recorded)
    }

    fn add(&mut self, change: &OutsideChange, old: &StoredContent, new: Option<&[u8]>) {
        let OutsideChange { path, known, found } = change;
        // A file that is too large to be in memory has a substitute, which makes its diff a binary one.
        let new = found.as_ref().map(|found| (found, new.filter(|bytes| bytes.len() as u64 == found.size_bytes)));
        let before = known.map(|known| Side {
            path,
            bytes: match old {
                StoredContent::Bytes(bytes) => bytes,
                StoredContent::TooLarge | StoredContent::Unknown => &[0, 0],
            },
            mode: known.mode.bits(),
        });
        let after = new.map(|(found, bytes)| Side { path, bytes: bytes.unwrap_or(&[0]), mode: found.mode });
        self.diff.extend_from_slice(&diff_file(before, after).text);
        let after = match new {
            None => Some(None),
            Some((found, Some(bytes))) => Some(Some(StepContent {
                sha256: found.sha256,
                mode: found.mode,
                bytes: StepBytes::Inline(bytes.to_vec()),
            })),
            Some((_, None)) => None,
        };
        let before = known.map(|known| known.sha256);
        self.steps.extend(after.map(|after| Step { path: path.clone(), before, after }));
        self.files.push(RecordFile::written(
            path.clone(),
            found.as_ref().map_or_else(|| FileKind::of_path(path), |found| found.kind),
            known.map(|known| (known.sha256, known.mode.bits())),
            found.as_ref().map(|found| (found.sha256, found.mode)),
        ));
    }

    /// Returns the written paths.
    pub fn paths(&self) -> Vec<LogicalPath> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    /// Returns the entry of changes that nobody has made, which precedes that of `call`.
    fn into_entry(self, call: &Call) -> Entry {
        let id = new_tool_call_id();
        let mut draft = Draft::new(call.run_id.clone(), NOBODY.to_owned(), OUTSIDE_CHANGE_TOOL, id, now());
        let artifact_id = new_artifact_id();
        draft.mutates = true;
        draft.artifact_uris = vec![format!("artifact://{}/{artifact_id}", call.run_id)];
        draft.diff_sha256 = Some(Sha256::of(&self.diff));
        draft.input = Some(Map::from_iter([("foundBy".to_owned(), Value::from(call.tool_call_id.as_str()))]));
        draft.paths_written = self.paths();
        let Self { files, diff, steps } = self;
        draft.files = files;
        let mut entry = Entry::new(draft, Sha256::ZERO);
        (entry.steps, entry.artifact) = (steps, Some(Artifact { artifact_id, diff }));
        entry
    }
}

/// Whether the calls build on changes from outside.
pub(crate) fn is_found(items: &[JudgedItem]) -> bool {
    items.iter().any(|item| matches!(item, JudgedItem::Change(change) if !change.plan.outside.is_empty()))
}

/// Describes the changes from outside that the calls record: for a call that accepts them, in its own plan. Returns the entry of
/// the others, which precedes those of the calls.
///
/// # Errors
///
/// If the ledger or the disk fails.
pub(crate) async fn describe(
    engine: &Engine,
    run: &Arc<OpenRun>,
    calls: &[OpenedCall],
    items: &mut [JudgedItem],
) -> Result<Option<Entry>, CallError> {
    let (mut all, mut first) = (RecordedOutside::default(), None);
    for (call, item) in calls.iter().zip(items) {
        let JudgedItem::Change(change) = item else { continue };
        if change.plan.outside.is_empty() {
            continue;
        }
        let recorded = RecordedOutside::of(engine, run, &change.plan).await?;
        if change.plan.accepts_tree() {
            change.plan.diff.clone_from(&recorded.diff);
            change.plan.accepted = Some(Box::new(recorded));
        } else {
            first.get_or_insert(call);
            all.files.extend(recorded.files);
            all.diff.extend(recorded.diff);
            all.steps.extend(recorded.steps);
        }
    }
    Ok(first.map(|call| all.into_entry(call)))
}
