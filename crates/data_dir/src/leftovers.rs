//! Startup cleanup of the workspaces: removes unfinished folders and those of deleted runs. Any other folder whose run the
//! database does not know may be valuable, and is moved to `lost+found`.

use async_recursion::async_recursion as boxed;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use ledger::{Ledger, StoredRun};
use model::{Run, RunState};
use workspace::{RunFolder, Workspaces};

use config::StartError;

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
    /// Decides about a folder. A database that `is_older` than the folders does not know of imports that have finished since.
    fn of(folder: &RunFolder, owner: FolderOwner, is_older: bool) -> Self {
        match owner {
            FolderOwner::WithFiles => Self::Keep,
            FolderOwner::Deleted => Self::Remove,
            FolderOwner::WithoutFiles if folder.is_unfinished && !is_older => Self::Remove,
            FolderOwner::WithoutFiles => Self::SetAside,
        }
    }
}

/// What the database knows of a folder's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderOwner {
    /// It has files.
    WithFiles,
    /// It is preparing, was closed before its import had ended, or is unknown.
    WithoutFiles,
    /// It is deleted.
    Deleted,
}

impl FolderOwner {
    fn of(stored: Option<StoredRun>) -> Self {
        match stored.map(|stored| stored.run) {
            Some(Run { state: RunState::Deleted, .. }) => Self::Deleted,
            Some(Run { state: RunState::Closed, base_commit: None, .. } | Run { state: RunState::Preparing, .. })
            | None => Self::WithoutFiles,
            Some(Run { state: RunState::Open | RunState::AwaitingApproval | RunState::Closed, .. }) => Self::WithFiles,
        }
    }
}

/// Cleans up what earlier processes left. If the database `is_older` than the folders, removes only what it records as
/// deleted. Returns the number of folders in `lost+found/`.
///
/// # Errors
///
/// Fails if the database or the disk fails.
#[boxed]
pub async fn clean_up(ledger: &dyn Ledger, workspaces: &Arc<Workspaces>, is_older: bool) -> Result<usize, StartError> {
    let is_node = ledger.node().is_some();
    if is_older {
        tracing::warn!(
            "the database is older than the data folder: restore its newest state if you have it; \
             folders of runs that it does not know, and of those whose newest records it lacks, are moved to lost+found"
        );
    }
    let mut removed = blocking(workspaces, Workspaces::sweep).await?;
    let with_files = runs_with_files(ledger).await?;
    for folder in blocking(workspaces, Workspaces::folders).await? {
        let run = folder.run.clone();
        // Few imports are unfinished: a run that was closed meanwhile has no files.
        let owner = if with_files.contains(run.as_str()) && !folder.is_unfinished {
            FolderOwner::WithFiles
        } else {
            FolderOwner::of(ledger.run(&run).await?)
        };
        match Fate::of(&folder, owner, is_older) {
            // Of a node, another one may have imported the run under this ID: opening it compares the folder with its records.
            Fate::Keep if folder.is_unfinished && !is_node => {
                blocking(workspaces, move |all| all.confirm(&run)).await?;
            }
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
    Ok(blocking(workspaces, Workspaces::lost).await?.len())
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
        let fates = |owner, is_unfinished| [false, true].map(|older| Fate::of(&folder(is_unfinished), owner, older));
        let of = |owner| [fates(owner, false), fates(owner, true)];
        assert_eq!(of(FolderOwner::WithFiles), [[Fate::Keep; 2]; 2]);
        assert_eq!(of(FolderOwner::Deleted), [[Fate::Remove; 2]; 2]);
        assert_eq!(of(FolderOwner::WithoutFiles), [[Fate::SetAside; 2], [Fate::Remove, Fate::SetAside]]);
    }
}
