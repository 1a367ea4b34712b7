//! Whether a service can open a run.

use std::io;
use std::sync::Arc;

use ledger::{JournalEntry, Ledger, LedgerError, StoredRun};
use model::Rules;
use workspace::{Base, Workspace};

use crate::offline_run::database;
use crate::output::print;
use config::StartError;

/// Returns the pending changes of a run that a service can open. Otherwise prints why it cannot and what helps, and returns
/// `None`.
///
/// # Errors
///
/// If the ledger fails.
pub(super) async fn journal(
    ledger: &dyn Ledger,
    stored: &StoredRun,
    base: &io::Result<Arc<Base>>,
    workspace: &io::Result<Arc<Workspace>>,
) -> Result<Option<Vec<JournalEntry>>, StartError> {
    if !is_complete(stored, base, workspace) {
        return Ok(None);
    }
    let run = &stored.run.run_id;
    match ledger.pending_journal(Some(run)).await {
        Err(error @ LedgerError::Internal(_)) => {
            let error = StartError::failed("a pending change in the database cannot be used", &error);
            print(&format!("{run}: needs repair; {error}"));
            print("restore the database from a backup that matches the run's folder");
            Ok(None)
        }
        journal => journal.map(Some).map_err(database),
    }
}

/// Returns whether base, workspace and policy can be used. Otherwise prints what is wrong and what helps.
fn is_complete(stored: &StoredRun, base: &io::Result<Arc<Base>>, workspace: &io::Result<Arc<Workspace>>) -> bool {
    let run = &stored.run.run_id;
    if let Err(error) = base {
        print(&format!(
            "{run}: needs repair; the base is MISSING or damaged, and nothing can be rebuilt without it: {error}"
        ));
        print("restore the run's folder from a backup and start the service, which finishes pending changes");
        return false;
    }
    if let Err(error) = workspace {
        print(&format!("{run}: needs repair; the workspace is MISSING or damaged: {error}"));
        print("restore the run's folder from a backup; or rebuild its files with `workspaced replay`,");
        print("move them to `repo` in the run's folder, create an empty folder `tmp` beside it, and run repair again");
        return false;
    }
    if let Err(refusal) = Rules::compile(stored.run.policy.clone()) {
        print(&format!("{run}: needs repair; this version cannot use the run's policy: {refusal}"));
        print("start a version that can use it; `workspaced replay` rebuilds the run's files");
        return false;
    }
    true
}
