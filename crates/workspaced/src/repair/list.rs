//! What needs an operator, over all runs.

use std::io;

use ledger::Ledger;
use workspace::Workspaces;

use crate::config::RepairConfig;
use crate::lock::{Continuity, DataLock};
use crate::offline::{check_database, print};
use crate::start::StartError;

/// Lists the runs that need repair and the folders in `lost+found/`. True where there are none.
pub(super) async fn all(config: &RepairConfig) -> Result<bool, StartError> {
    check_database(&config.database_url)?;
    let lock = DataLock::take(&config.data_dir)?;
    let ledger = ledger::open(&config.database_url.0).await.map_err(|error| database(&error))?;
    let listed = list(config, &lock, ledger.as_ref()).await;
    ledger.close().await;
    listed
}

async fn list(config: &RepairConfig, lock: &DataLock, ledger: &dyn Ledger) -> Result<bool, StartError> {
    let continuity = lock.check(ledger).await?;
    let mut count = 0;
    for run in ledger.live_runs().await.map_err(|error| database(&error))? {
        let stored = ledger.run(&run).await.map_err(|error| database(&error))?;
        if stored.is_some_and(|stored| stored.needs_repair) {
            print(&format!("{run}: needs repair; look at it with --run {run}"));
            count += 1;
        }
    }
    let data_dir = config.data_dir.clone();
    let lost = tokio::task::spawn_blocking(move || Workspaces::open(&data_dir, &[])?.lost()).await;
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

fn database(error: &ledger::LedgerError) -> StartError {
    StartError::failed("the database", error)
}
