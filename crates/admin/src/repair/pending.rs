//! The list of what needs an operator, over all runs.

use std::io;
use std::sync::Arc;

use ledger::{Ledger, LedgerError};
use model::RunId;
use workspace::Workspaces;

use super::openable;
use crate::offline_run::{
    check_database, database, has_files, is_elsewhere, open_folder, open_workspaces, other_history,
};
use crate::output::print;
use config::RepairConfig;
use config::StartError;
use data_dir::{Continuity, DataDirLock};

/// Prints the runs that need repair or that a service cannot open, and the folders in `lost+found/`. Returns whether there
/// are none.
///
/// # Errors
///
/// If the data cannot be used.
pub(super) async fn list(config: &RepairConfig) -> Result<bool, StartError> {
    check_database(&config.database_url)?;
    let lock = DataDirLock::take(&config.data_dir)?;
    let ledger = ledger::open(&config.database_url.url).await.map_err(database)?;
    let listed = print_all(config, &lock, ledger.as_ref()).await;
    ledger.close().await;
    listed
}

async fn print_all(config: &RepairConfig, lock: &DataDirLock, ledger: &dyn Ledger) -> Result<bool, StartError> {
    let continuity = lock.check(ledger).await?;
    let workspaces = open_workspaces(&config.data_dir).await?;
    let mut count = 0;
    for run in ledger.live_runs().await.map_err(database)? {
        count += usize::from(needs_operator(ledger, &workspaces, &run).await?);
    }
    let lost = tokio::task::spawn_blocking(move || workspaces.lost()).await;
    let lost = lost.map_err(io::Error::other).flatten();
    let lost = lost.map_err(|error| StartError::failed("--data-dir", &error))?;
    for folder in &lost {
        print(&format!(
            "lost+found/{folder}: files of a run that the database did not have at a start, or whose newest records it had lost"
        ));
    }
    if !lost.is_empty() {
        print("to get them back, restore a database that has all of the run and move the folder back to workspaces/;");
        print("otherwise remove the folder");
    }
    if continuity == Continuity::OlderDatabase {
        print("the database is older than the data folder: put its newest state back if there is one");
    }
    count += lost.len();
    print(&format!("operator action needed: {count}"));
    Ok(count == 0 && continuity == Continuity::Whole)
}

/// Returns whether a service cannot serve all of `run`, and prints why. A run that cannot be read does not end the list.
async fn needs_operator(ledger: &dyn Ledger, workspaces: &Arc<Workspaces>, run: &RunId) -> Result<bool, StartError> {
    let stored = match ledger.run(run).await {
        Ok(Some(stored)) if has_files(&stored.run) => stored,
        Ok(_) => return Ok(false),
        Err(error @ LedgerError::Internal(_)) => {
            let error = StartError::failed("its data in the database cannot be used", &error);
            print(&format!("{run}: needs repair; {error}"));
            return Ok(true);
        }
        Err(error) => return Err(database(error)),
    };
    if is_elsewhere(ledger, workspaces, &stored.run).await? {
        return Ok(false);
    }
    let (base, workspace) = open_folder(workspaces, run).await?;
    let Some(journal) = openable::journal(ledger, &stored, &base, &workspace).await? else { return Ok(true) };
    if let Some(other) = other_history(ledger, workspaces, &stored.run, &journal).await? {
        print(&format!("{run}: {other}"));
        return Ok(true);
    }
    if stored.needs_repair {
        print(&format!("{run}: needs repair; show the differences with --run {run}"));
    }
    Ok(stored.needs_repair)
}
