//! Large files that a change moves: their content is in the run's `tmp/`, and the journal refers to it by name.

use model::{Code, Content, Effect, LogicalPath, Refusal, Sha256, StepBytes};

use crate::CallError;
use crate::call_error::refusals::changed_meanwhile;
use crate::run::fsync_worker::abort_on_failed_fsync;
use crate::run::open_run::OpenRun;
use crate::run::staged_files;
use crate::tool::change_plan::ChangePlan;

/// Copies the large files that the plan moves to `tmp/`: all, or none.
///
/// # Errors
///
/// `WRITE_CONFLICT` if one has changed since it was planned; the errors of the disk.
pub(crate) fn copy(run: &OpenRun, planned: &ChangePlan) -> Result<(), CallError> {
    let mut copied = Vec::new();
    for (from, name, sha256) in moves(planned) {
        copied.push(name.to_owned());
        let done = run.workspace.stage_copy(from, name, sha256).inspect_err(abort_on_failed_fsync);
        let done = done
            .map_err(CallError::from)
            .and_then(|same| if same { Ok(()) } else { Err(changed_meanwhile(std::slice::from_ref(from)).into()) });
        done.inspect_err(|_| staged_files::discard(run, &copied))?;
    }
    Ok(())
}

/// Refuses a plan that moves a large file: a batch holds the contents of its files in memory.
///
/// # Errors
///
/// `FILE_TOO_LARGE`.
pub(crate) fn refuse_in_batch(planned: &ChangePlan) -> Result<(), Refusal> {
    moves(planned).next().map_or(Ok(()), |(from, ..)| {
        let message = format!("`{from}` is too large to be moved in a batch");
        Err(Refusal::new(Code::FileTooLarge, message, "Move it in a separate call.").at(from))
    })
}

/// Returns the source of each large file that moves, its name in `tmp/`, and its hash.
fn moves(planned: &ChangePlan) -> impl Iterator<Item = (&LogicalPath, &str, Sha256)> {
    planned.changes().filter_map(|change| match (&change.effect, &change.after) {
        (Effect::MoveTo { from }, Some(Content { bytes: StepBytes::Staged(name), sha256, .. })) => {
            Some((from, name.as_str(), *sha256))
        }
        _ => None,
    })
}
