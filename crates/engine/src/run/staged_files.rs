//! Files in a run's `tmp/` to which its journal refers by name.

use model::{Step, StepBytes};

use crate::run::open_run::OpenRun;

/// Returns the names of the files in `tmp/` that `steps` refer to.
pub(crate) fn names(steps: &[Step]) -> Vec<String> {
    let name = |step: &Step| match &step.after.as_ref()?.bytes {
        StepBytes::Staged(name) => Some(name.clone()),
        StepBytes::Inline(_) => None,
    };
    steps.iter().filter_map(name).collect()
}

/// Removes files in `tmp/` that no journal refers to.
pub(crate) fn discard(run: &OpenRun, names: &[String]) {
    for name in names {
        if let Err(error) = run.workspace.discard(name) {
            // The folder is emptied when the run is next opened.
            tracing::warn!(run.id = %run.run_id, %error, "a staged file could not be removed");
        }
    }
}
