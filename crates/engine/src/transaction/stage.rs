//! The fourth state of a transaction: new contents are written next to the tree, on its file system.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{DiskChange, Step};

use crate::CallError;
use crate::call::OpenedCall;
use crate::call::record::Failure;
use crate::call_error::refusals::changed_meanwhile;
use crate::run::accounting::UsageReservation;
use crate::run::fsync_worker::abort_on_failed_fsync;
use crate::run::open_run::OpenRun;
use crate::run::quota::Reservation;
use crate::run::staged_files;
use crate::tool::change_plan::ChangePlan;
use crate::transaction::judge::{Judged, JudgedItem};

/// Judged calls whose new contents are staged.
pub(crate) struct Staged {
    /// The calls, in order.
    pub calls: Arc<[OpenedCall]>,
    /// What each would do.
    pub items: Vec<JudgedItem>,
    /// The staged contents; `None` if the calls only read.
    pub files: Option<workspace::StagedSteps>,
    /// Names of large staged files, which the journal refers to.
    pub large_files: Vec<String>,
    /// What is reserved of the run's budgets.
    pub usage: UsageReservation,
    /// The disk space that is reserved for the change.
    pub disk: Reservation,
    /// How the size of the tree changes.
    pub disk_change: DiskChange,
    /// How the size of the run's own files changes.
    pub own_change: DiskChange,
}

impl Judged {
    /// Writes the new contents next to the tree. `usage` is what is reserved for them.
    ///
    /// # Errors
    ///
    /// `WRITE_CONFLICT` if a file has changed since it was planned; the errors of the disk. No staged file remains.
    pub(crate) fn stage(mut self, run: &OpenRun, usage: UsageReservation) -> Result<Staged, Failure> {
        let steps = self.steps();
        let large_files = staged_files::names(&steps);
        let handed_over = self.hand_over(&large_files).inspect_err(abort_on_failed_fsync);
        let staged = handed_over.map_err(|error| self.at_first_change(error.into()));
        let staged = staged.and_then(|()| self.stage_steps(run, &steps));
        let files = staged.inspect_err(|_| staged_files::discard(run, &large_files))?;
        let Self { calls, items, disk, disk_change, own_change, .. } = self;
        Ok(Staged { calls, items, files, large_files, usage, disk, disk_change, own_change })
    }

    fn stage_steps(&self, run: &OpenRun, steps: &[Step]) -> Result<Option<workspace::StagedSteps>, Failure> {
        let stage = || {
            if self.changes().next().is_none() {
                return Ok(None);
            }
            let mut stamps = BTreeMap::new();
            for (_, change) in self.changes() {
                copy_moved(run, &change.plan)?;
                for (path, stamp) in change.plan.stamps() {
                    stamps.entry(path.clone()).or_insert(stamp);
                }
            }
            Ok::<_, CallError>(Some(run.workspace.stage(steps, &stamps)?))
        };
        let staged = stage().map_err(|error| self.at_first_change(error))?;
        let changed = staged.as_ref().map(workspace::StagedSteps::changed_outside).unwrap_or_default();
        let Some(first) = changed.first() else { return Ok(staged) };
        let touches = self.changes().find(|(_, change)| change.plan.at(first).is_some());
        let index = touches.map_or(0, |(index, _)| index);
        Err(Failure::Call(index, changed_meanwhile(&changed).into()))
    }

    /// Returns what the calls change together, file by file.
    fn steps(&self) -> Vec<Step> {
        match self.items.as_slice() {
            [JudgedItem::Change(change)] => change.plan.steps(),
            _ => self.overlay.steps(),
        }
    }

    fn at_first_change(&self, error: CallError) -> Failure {
        match self.changes().next() {
            Some((index, _)) if self.items.len() == 1 => Failure::Call(index, error),
            _ => Failure::All(error),
        }
    }
}

/// Copies the large files that the plan moves to `tmp/`: all, or none.
///
/// # Errors
///
/// `WRITE_CONFLICT` if one has changed since it was planned; the errors of the disk.
fn copy_moved(run: &OpenRun, planned: &ChangePlan) -> Result<(), CallError> {
    let mut copied = Vec::new();
    for (from, name, sha256) in planned.large_moves() {
        copied.push(name.to_owned());
        let done = run.workspace.stage_copy(from, name, sha256).inspect_err(abort_on_failed_fsync);
        let done = done
            .map_err(CallError::from)
            .and_then(|same| if same { Ok(()) } else { Err(changed_meanwhile(std::slice::from_ref(from)).into()) });
        done.inspect_err(|_| staged_files::discard(run, &copied))?;
    }
    Ok(())
}
