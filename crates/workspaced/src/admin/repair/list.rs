//! What needs an operator, over all runs.

use std::io;
use std::sync::Arc;

use ledger::{Ledger, LedgerError};
use model::RunId;
use workspace::Workspaces;

use super::usable;
use crate::admin::offline::{check_database, has_files, open_files, open_workspaces};
use crate::admin::output::print;
use crate::bootstrap::error::StartError;
use crate::config::RepairConfig;
use crate::data_dir::{Continuity, DataDirLock};

/// Lists the runs that need repair, or that a service could not open, and the folders in `lost+found/`. True where there are none.
pub(super) async fn all(config: &RepairConfig) -> Result<bool, StartError> {
    check_database(&config.database_url)?;
    let lock = DataDirLock::take(&config.data_dir)?;
    let ledger = ledger::open(&config.database_url.0).await.map_err(|error| database(&error))?;
    let listed = list(config, &lock, ledger.as_ref()).await;
    ledger.close().await;
    listed
}

async fn list(config: &RepairConfig, lock: &DataDirLock, ledger: &dyn Ledger) -> Result<bool, StartError> {
    let continuity = lock.check(ledger).await?;
    let workspaces = open_workspaces(&config.data_dir).await?;
    let mut count = 0;
    for run in ledger.live_runs().await.map_err(|error| database(&error))? {
        count += usize::from(needs_an_operator(ledger, &workspaces, &run).await?);
    }
    let lost = tokio::task::spawn_blocking(move || workspaces.lost()).await;
    let lost = lost.map_err(io::Error::other).flatten();
    let lost = lost.map_err(|error| StartError::failed("--data-dir", &error))?;
    for folder in &lost {
        print(&format!("lost+found/{folder}: the files of a run that the database did not know at a start"));
    }
    if !lost.is_empty() {
        print("to have such a run again, put a database back that knows it, and move its folder back to workspaces/;");
        print("else remove the folder");
    }
    if continuity == Continuity::OlderDatabase {
        print("the database is older than the data folder: put its newest state back if there is one");
    }
    count += lost.len();
    print(&format!("{count} to be looked at"));
    Ok(count == 0 && continuity == Continuity::Whole)
}

/// Whether a service could not serve all of `run`; prints why not. What is wrong with one run keeps nobody from the next.
async fn needs_an_operator(ledger: &dyn Ledger, workspaces: &Arc<Workspaces>, run: &RunId) -> Result<bool, StartError> {
    let stored = match ledger.run(run).await {
        Ok(Some(stored)) if has_files(&stored.run) => stored,
        Ok(_) => return Ok(false),
        Err(error @ LedgerError::Internal(_)) => {
            let error = StartError::failed("what the database holds of it cannot be used", &error);
            print(&format!("{run}: needs repair; {error}"));
            return Ok(true);
        }
        Err(error) => return Err(database(&error)),
    };
    let (base, workspace) = open_files(workspaces, run).await?;
    if usable(ledger, &stored, &base, &workspace).await?.is_none() {
        return Ok(true);
    }
    if stored.needs_repair {
        print(&format!("{run}: needs repair; look at it with --run {run}"));
    }
    Ok(stored.needs_repair)
}

fn database(error: &ledger::LedgerError) -> StartError {
    StartError::failed("the database", error)
}
