//! `workspaced repair`: settles a run whose workspace was changed from outside, perhaps while a change was pending.
//!
//! Either side can be accepted. A record in the run's audit says that the run was repaired, why, and which files
//! were found.

mod accept;
mod openable;
mod pending;
mod record;

use async_recursion::async_recursion as boxed;
use std::io::{self, BufRead as _};
use std::sync::Arc;

use engine::runs::LedgerClaims;

use crate::offline_run::{OfflineRun, other_history};
use crate::output::{print, print_drift};
use cluster::objects::open_objects;
use config::StartError;
use config::{AcceptedSide, ConfigError, RepairConfig};

pub(super) use record::TOOL;

/// Prints where the workspace of a run that needs repair differs from its ledger, or accepts one side. Without a run, lists
/// everything that needs an operator. Returns whether nothing is left to do.
///
/// # Errors
///
/// If the data cannot be used.
#[boxed]
pub async fn repair(config: RepairConfig) -> Result<bool, StartError> {
    let Some(id) = &config.run else { return pending::list(&config).await };
    let mut run = OfflineRun::open(&config.data_dir, &config.database_url, id).await?;
    // Services may delete objects meanwhile.
    let claims = Arc::new(LedgerClaims(Arc::clone(&run.ledger)));
    let objects = config.object_store.as_ref().map(|store| open_objects(store, &config.data_dir, claims)).transpose();
    run.objects = objects.map_err(|error| ConfigError(format!("--object-store-url: {error}")))?;
    let done = repair_run(&run, &config).await;
    run.ledger.close().await;
    done
}

async fn repair_run(run: &OfflineRun, config: &RepairConfig) -> Result<bool, StartError> {
    let id = run.id();
    if run.is_elsewhere {
        print(&format!(
            "{id}: its newest files are not in this data folder, but on another node or in the object store"
        ));
        print("if it needs repair, repair it with the data folder of the node that had it last");
        return Ok(!run.stored.needs_repair);
    }
    let journal = openable::journal(run.ledger.as_ref(), &run.stored, &run.base, &run.workspace).await?;
    let Some(journal) = journal else { return Ok(false) };
    let other = other_history(run.ledger.as_ref(), &run.workspaces, &run.stored.run, &journal).await?;
    if let Some(other) = &other {
        print(&format!("{id}: {other}"));
        print("put the newest database back if there is one; a service that opens the run makes its files again,");
        print("and moves a folder with changes that the database has lost to lost+found/");
    } else if !run.stored.needs_repair && !journal.is_empty() {
        print(&format!(
            "{id}: needs no repair; {} changes are pending: start the service, which finishes them",
            journal.len()
        ));
        return Ok(true);
    }
    let expected = run.expected().await?;
    let snapshot = expected.clone();
    let drift = run.blocking("the workspace", move |workspace| workspace.find_drift(&snapshot)).await?;
    if other.is_none() && !run.stored.needs_repair && drift.is_empty() {
        print(&format!("{id}: needs no repair"));
        return Ok(true);
    }
    if config.accept.is_some() {
        run.take_over().await?;
    }
    let why = if run.stored.needs_repair || other.is_some() { "needs repair" } else { "was changed from outside" };
    print(&format!("{id}: {why}; the workspace differs from the ledger at {} paths", drift.len()));
    print_drift(&drift);
    match config.accept {
        None => {
            print("add --accept ledger to restore the files from the ledger,");
            print("or --accept tree to keep them as they are and record that");
            Ok(false)
        }
        Some(AcceptedSide::Ledger) => accept::ledger(run, config, &expected, drift, &journal).await,
        Some(AcceptedSide::Tree) => accept::tree(run, config, expected, drift, &journal).await,
    }
}

/// Asks the operator for confirmation, unless `--yes` was given.
fn is_confirmed(config: &RepairConfig, action: &str) -> bool {
    if config.yes {
        return true;
    }
    print(&format!("this will {action}; type yes to continue"));
    let mut line = String::new();
    let is_confirmed = io::stdin().lock().read_line(&mut line).is_ok() && line.trim() == "yes";
    if !is_confirmed {
        print("nothing was changed; --yes continues without asking");
    }
    is_confirmed
}
