//! What a start finds in the folder of workspaces: half made and half removed folders go, and so do those of deleted runs.
//! Any other whose run the database does not know is somebody's work, and is set aside.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use ledger::Ledger;
use model::RunState;
use workspace::{RunFolder, Workspaces};

use crate::start::StartError;
use crate::telemetry;

/// Runs that are asked for at a time.
const PAGE: u32 = 1000;

/// What becomes of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The run has it.
    Kept,
    /// It is known that nobody needs it.
    Removed,
    /// It goes to `lost+found/`.
    SetAside,
}

impl Fate {
    /// Of a folder whose run is in `state`, which is none where the database does not know it. A database that `is_older` than
    /// the folders knows nothing of imports that are finished by now.
    fn of(folder: &RunFolder, state: Option<RunState>, is_older: bool) -> Self {
        match state {
            Some(RunState::Open | RunState::AwaitingApproval | RunState::Closed) => Self::Kept,
            Some(RunState::Deleted) => Self::Removed,
            // A run that prepares has no files yet.
            Some(RunState::Preparing) | None if folder.is_unfinished && !is_older => Self::Removed,
            Some(RunState::Preparing) | None => Self::SetAside,
        }
    }
}

/// Settles what earlier processes have left. Where the database `is_older` than the folders, nothing goes but what it says
/// was deleted.
///
/// # Errors
///
/// Where the database or the disk fails.
pub(crate) async fn settle(
    ledger: &dyn Ledger,
    workspaces: &Arc<Workspaces>,
    is_older: bool,
) -> Result<(), StartError> {
    if is_older {
        tracing::warn!(
            "the database is older than the data folder: put its newest state back if there is one; \
             folders of runs that it does not know are moved to lost+found"
        );
    }
    let mut removed = blocking(workspaces, Workspaces::sweep).await?;
    let with_files = runs_with_files(ledger).await.map_err(|error| database(&error))?;
    for folder in blocking(workspaces, Workspaces::folders).await? {
        let run = folder.run.clone();
        let state = if with_files.contains(run.as_str()) {
            Some(RunState::Open)
        } else {
            ledger.run(&run).await.map_err(|error| database(&error))?.map(|stored| stored.run.state)
        };
        match Fate::of(&folder, state, is_older) {
            Fate::Kept if folder.is_unfinished => blocking(workspaces, move |all| all.confirm(&run)).await?,
            Fate::Kept => {}
            Fate::Removed => {
                blocking(workspaces, move |all| all.remove(&run)).await?;
                removed += 1;
            }
            Fate::SetAside => match blocking(workspaces, move |all| all.set_aside(&run)).await {
                Ok(name) => {
                    tracing::warn!(
                        run.id = %folder.run, folder = name,
                        "the database does not know this run: its folder was moved to lost+found"
                    );
                }
                // What cannot be moved is left where it is.
                Err(error) => {
                    tracing::warn!(
                        run.id = %folder.run, error = &error as &dyn std::error::Error,
                        "the database does not know this run, and its folder could not be moved to lost+found: it stays"
                    );
                }
            },
        }
    }
    if removed > 0 {
        tracing::info!(folders = removed, "unfinished imports and the files of deleted runs were removed");
    }
    telemetry::lost_folders(blocking(workspaces, Workspaces::lost).await?.len());
    Ok(())
}

async fn blocking<T: Send + 'static>(
    workspaces: &Arc<Workspaces>,
    work: impl FnOnce(&Workspaces) -> io::Result<T> + Send + 'static,
) -> Result<T, StartError> {
    let workspaces = Arc::clone(workspaces);
    let done = tokio::task::spawn_blocking(move || work(&workspaces)).await;
    done.map_err(io::Error::other).flatten().map_err(|error| StartError::failed("--data-dir", &error))
}

/// The IDs of all runs that have files: those that are neither preparing nor deleted.
async fn runs_with_files(ledger: &dyn Ledger) -> ledger::Result<HashSet<String>> {
    let mut runs: HashSet<String> = ledger.live_runs().await?.into_iter().map(String::from).collect();
    let mut after = None;
    loop {
        let page = ledger.runs(Some(RunState::Preparing), after, PAGE.into()).await?;
        after = page.last().map(|(position, _)| *position);
        for (_, run) in page.iter() {
            runs.remove(run.run_id.as_str());
        }
        if !page.more {
            return Ok(runs);
        }
    }
}

fn database(error: &ledger::LedgerError) -> StartError {
    StartError::failed("the database", error)
}

#[cfg(test)]
mod tests {
    use model::RunId;

    use super::*;

    #[test]
    fn nothing_goes_but_what_was_deleted_and_what_was_never_finished() {
        let folder = |is_unfinished| RunFolder { run: RunId::parse("r").unwrap(), is_unfinished };
        let fates = |state, is_unfinished| [false, true].map(|older| Fate::of(&folder(is_unfinished), state, older));
        for state in [RunState::Open, RunState::AwaitingApproval, RunState::Closed] {
            assert_eq!([fates(Some(state), false), fates(Some(state), true)], [[Fate::Kept; 2]; 2], "{state:?}");
        }
        assert_eq!(fates(Some(RunState::Deleted), false), [Fate::Removed; 2]);
        for state in [Some(RunState::Preparing), None] {
            assert_eq!(fates(state, false), [Fate::SetAside; 2], "{state:?}");
            assert_eq!(fates(state, true), [Fate::Removed, Fate::SetAside], "{state:?}");
        }
    }
}
