//! Files that are too large for the journal and move all the same: their bytes lie in the run's `tmp/` before it names them.

use model::{Content, Effect, LogicalPath, Refusal, Sha256, Step, StepBytes};

use super::{changed_meanwhile, end_on_lost_sync};
use crate::CallError;
use crate::change_plan::ChangePlan;
use crate::engine::OpenRun;
use crate::file_transfers::INLINE_BYTES;

/// Copies every large file that the plan moves; nothing is left of them where one cannot be.
pub(super) fn copy(live: &OpenRun, planned: &ChangePlan) -> Result<(), CallError> {
    let mut copied = Vec::new();
    for (from, name, sha256) in moves(planned) {
        copied.push(name.to_owned());
        let done = live.workspace.stage_copy(from, name, sha256).inspect_err(end_on_lost_sync);
        let done = done
            .map_err(CallError::from)
            .and_then(|same| if same { Ok(()) } else { Err(changed_meanwhile(std::slice::from_ref(from)).into()) });
        done.inspect_err(|_| discard_named(live, &copied))?;
    }
    Ok(())
}

/// Refuses a plan that moves a large file: a batch holds what its calls make in memory.
pub(super) fn refuse_in_batch(planned: &ChangePlan) -> Result<(), Refusal> {
    moves(planned).next().map_or(Ok(()), |(from, ..)| {
        let message = format!("`{from}` is too large to be moved together with other calls");
        Err(Refusal::new(model::Code::FileTooLarge, message, "Move it by a call of its own.").at(from))
    })
}

/// Refuses a plan that would wait for a person with content that is not kept for that long.
pub(super) fn refuse_waiting(planned: &ChangePlan, reasons: &[String]) -> Option<Refusal> {
    let comes_in = |change: &&model::Change| {
        let staged = change.after.as_ref().filter(|content| matches!(content.bytes, StepBytes::Staged(_)));
        staged.is_some() && !matches!(change.effect, Effect::MoveTo { .. })
    };
    let change = planned.changes.changes.iter().find(comes_in)?;
    let limit = INLINE_BYTES as u64;
    let message = format!(
        "the change of `{}` needs a person's approval, and a content of more than {limit} bytes is not kept for one",
        change.path
    );
    let hint = "Send at most as many bytes, or ask the operator for a policy that allows the change.";
    Some(Refusal::new(model::Code::FileTooLarge, message, hint).at(&change.path).with_details(|details| {
        details.reasons = reasons.to_vec();
        details.limit = Some(limit);
        details.actual = change.after.as_ref().map(|content| content.size_bytes).filter(|bytes| *bytes > limit);
    }))
}

/// The files of `steps` that lie in the run's `tmp/`.
pub(super) fn names(steps: &[Step]) -> Vec<String> {
    let name = |step: &Step| match &step.after.as_ref()?.bytes {
        StepBytes::Staged(name) => Some(name.clone()),
        StepBytes::Inline(_) => None,
    };
    steps.iter().filter_map(name).collect()
}

/// Removes the files of steps that the journal will not name.
pub(super) fn discard(live: &OpenRun, steps: &[Step]) {
    discard_named(live, &names(steps));
}

/// Removes files that the journal will not name.
pub(super) fn discard_named(live: &OpenRun, names: &[String]) {
    for name in names {
        if let Err(error) = live.workspace.discard(name) {
            // The next start empties the folder.
            tracing::warn!(run.id = %live.run_id, %error, "a large file is left behind in the run's tmp");
        }
    }
}

/// Where each large file comes from, its name in the run's `tmp/`, and its hash.
fn moves(planned: &ChangePlan) -> impl Iterator<Item = (&LogicalPath, &str, Sha256)> {
    planned.changes.changes.iter().filter_map(|change| match (&change.effect, &change.after) {
        (Effect::MoveTo { from }, Some(Content { bytes: StepBytes::Staged(name), sha256, .. })) => {
            Some((from, name.as_str(), *sha256))
        }
        _ => None,
    })
}
