//! Startup cleanup of the workspaces: removes unfinished folders and those of deleted runs. Any other folder whose run the
//! database does not know may be valuable, and is moved to `lost+found`.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use ledger::Ledger;
use model::RunState;
use workspace::{RunFolder, Workspaces};

use crate::bootstrap::error::StartError;
use crate::telemetry;

/// Runs per query.
const PAGE: u32 = 1000;

/// What happens to a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It stays: it belongs to a run.
    Keep,
    /// It is removed: nobody needs it.
    Remove,
    /// It is moved to `lost+found/`.
    SetAside,
}

impl Fate {
    /// Decides about a folder whose run is in `state`, or unknown to the database. A database that `is_older` than the folders
    /// does not know of imports that have finished since.
    fn of(folder: &RunFolder, state: Option<RunState>, is_older: bool) -> Self {
        match state {
            Some(RunState::Open | RunState::AwaitingApproval | RunState::Closed) => Self::Keep,
            Some(RunState::Deleted) => Self::Remove,
            // A run that is preparing has no files yet.
            Some(RunState::Preparing) | None if folder.is_unfinished && !is_older => Self::Remove,
            Some(RunState::Preparing) | None => Self::SetAside,
        }
    }
}

/// Cleans up what earlier processes left. If the database `is_older` than the folders, removes only what it records as
/// deleted.
///
/// # Errors
///
/// Fails if the database or the disk fails.
pub(crate) async fn clean_up(
    ledger: &dyn Ledger,
    workspaces: &Arc<Workspaces>,
    is_older: bool,
) -> Result<(), StartError> {
    if is_older {
        tracing::warn!(
            "the database is older than the data folder: restore its newest state if you have it; \
             folders of runs that it does not know are moved to lost+found"
        );
    }
    let mut removed = blocking(workspaces, Workspaces::sweep).await?;
    let with_files = runs_with_files(ledger).await?;
    for folder in blocking(workspaces, Workspaces::folders).await? {
        let run = folder.run.clone();
        let state = if with_files.contains(run.as_str()) {
            Some(RunState::Open)
        } else {
            ledger.run(&run).await?.map(|stored| stored.run.state)
        };
        match Fate::of(&folder, state, is_older) {
            Fate::Keep if folder.is_unfinished => blocking(workspaces, move |all| all.confirm(&run)).await?,
            Fate::Keep => {}
            Fate::Remove => {
                blocking(workspaces, move |all| all.remove(&run)).await?;
                removed += 1;
            }
            Fate::SetAside => match blocking(workspaces, move |all| all.set_aside(&run)).await {
                Ok(name) => {
                    tracing::warn!(
                        run.id = %folder.run, folder = name,
                        "unknown run: its folder was moved to lost+found"
                    );
                }
                Err(error) => {
                    tracing::warn!(
                        run.id = %folder.run, error = &error as &dyn std::error::Error,
                        "unknown run: failed to move its folder to lost+found"
                    );
                }
            },
        }
    }
    if removed > 0 {
        tracing::info!(folders = removed, "removed the folders of unfinished imports and deleted runs");
    }
    telemetry::set_lost_folders(blocking(workspaces, Workspaces::lost).await?.len());
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

/// Returns the IDs of all runs with files: those that are neither preparing nor deleted.
async fn runs_with_files(ledger: &dyn Ledger) -> ledger::Result<HashSet<String>> {
    let mut runs: HashSet<String> = ledger.live_runs().await?.into_iter().map(String::from).collect();
    let mut after = None;
    loop {
        let page = ledger.runs(&RunState::Preparing.into(), after, PAGE.into()).await?;
        after = page.last().map(|(position, _)| *position);
        for (_, run) in page.iter() {
            runs.remove(run.run_id.as_str());
        }
        if !page.more {
            return Ok(runs);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::RunId;

    use super::*;

    #[test]
    fn only_deleted_and_unfinished_runs_are_removed() {
        let folder = |is_unfinished| RunFolder { run: RunId::parse("r").unwrap(), is_unfinished };
        let fates = |state, is_unfinished| [false, true].map(|older| Fate::of(&folder(is_unfinished), state, older));
        for state in [RunState::Open, RunState::AwaitingApproval, RunState::Closed] {
            assert_eq!([fates(Some(state), false), fates(Some(state), true)], [[Fate::Keep; 2]; 2], "{state:?}");
        }
        assert_eq!(fates(Some(RunState::Deleted), false), [Fate::Remove; 2]);
        for state in [Some(RunState::Preparing), None] {
            assert_eq!(fates(state, false), [Fate::SetAside; 2], "{state:?}");
            assert_eq!(fates(state, true), [Fate::Remove, Fate::SetAside], "{state:?}");
        }
    }
}
