//! `workspaced verify`: the audit chains and the checkpoints over them, checked without a service.

use std::collections::HashSet;
use std::io;

use ledger::Ledger;
use model::{ChainReport, CheckpointVerifier};

use crate::admin::log_check::{TreeCheck, TreeReport};
use crate::admin::offline::check_database;
use crate::admin::output::{print, print_chain};
use crate::checkpoints::file::Notes;
use crate::checkpoints::key;
use crate::config::{BadSetting, VerifyConfig};
use crate::start::StartError;

/// Checks the chain of one run or of all, and the checkpoints over them; tells of each on standard output. False where
/// something is broken.
///
/// # Errors
///
/// Where the database or the checkpoint file cannot be read, or there is no such run.
pub async fn verify(config: VerifyConfig) -> Result<bool, StartError> {
    // Opening would make an empty one, whose chains are all intact.
    check_database(&config.database_url)?;
    let ledger = ledger::open(&config.database_url.0).await.map_err(|error| database(&error))?;
    let checked = check(&config, ledger.as_ref()).await;
    ledger.close().await;
    checked
}

async fn check(config: &VerifyConfig, ledger: &dyn Ledger) -> Result<bool, StartError> {
    let tree = check_tree(config, ledger).await?;
    let (mut runs, mut broken, mut known) = (0u64, 0u64, HashSet::new());
    let mut count = |report: &ChainReport| {
        let mut report = report.clone();
        tree.add_to(&mut report);
        runs += 1;
        broken += u64::from(!report.intact);
        print_chain(&report);
        known.insert(report.run_id);
    };
    match ledger::verify_all(ledger, config.run.as_ref(), &mut count).await {
        Ok(_) => {}
        Err(ledger::LedgerError::NoSuchRun) if config.run.is_some() => {
            let run = config.run.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(BadSetting(format!("--run {run}: there is no such run")).into());
        }
        Err(error) => return Err(database(&error)),
    }
    let mut lost = 0;
    if config.run.is_none() {
        for run in tree.runs_beside(&known) {
            broken += 1;
            print(&format!("{run}: BROKEN at seq 1: checkpoints hold its records, and the run is gone"));
        }
        lost = ledger.orphaned_runs().await.map_err(|error| database(&error))?;
        if lost > 0 {
            print(&format!("BROKEN: there are records of {lost} runs that are gone"));
        }
        print(&format!("{runs} runs, {broken} broken"));
    }
    print(&tree.line());
    Ok(broken == 0 && lost == 0 && tree.holds())
}

/// Checks the signed checkpoints against the tree in the database.
async fn check_tree(config: &VerifyConfig, ledger: &dyn Ledger) -> Result<TreeReport, StartError> {
    let path = &config.checkpoint_file;
    let unreadable = |error: io::Error| StartError::failed(format!("--checkpoint-file {}", path.display()), &error);
    let stored = ledger.latest_checkpoint().await.map_err(|error| database(&error))?;
    let verifier = match &config.checkpoint_verifier {
        Some(given) => Some(given.clone()),
        None => own_key(config, stored.as_ref())?,
    };
    let origin = verifier.as_ref().map(|verifier| verifier.name().to_owned()).unwrap_or_default();
    let Some(notes) = Notes::open(path, &origin).map_err(unreadable)? else {
        return Ok(match stored {
            None => TreeReport::nothing(),
            Some(_) => TreeReport::without_file(path),
        });
    };
    let unknown =
        "--checkpoint-verifier-key: the checkpoints cannot be checked without it; GET /v1/checkpoint/key tells it";
    let verifier = verifier.ok_or_else(|| BadSetting(unknown.to_owned()))?;
    TreeCheck::new(ledger, verifier, notes).run().await.map_err(|error| database(&error))
}

/// The public half of the data folder's key, under the name that the checkpoints have.
fn own_key(
    config: &VerifyConfig,
    stored: Option<&ledger::StoredCheckpoint>,
) -> Result<Option<CheckpointVerifier>, BadSetting> {
    let Some(key) = key::read(&config.data_dir)? else { return Ok(None) };
    let origin = stored.and_then(|stored| stored.note.lines().next());
    let named = origin.and_then(|origin| key.named(origin).ok()).unwrap_or(key);
    Ok(Some(named.verifier()))
}

fn database(error: &ledger::LedgerError) -> StartError {
    StartError::failed("the database", error)
}
