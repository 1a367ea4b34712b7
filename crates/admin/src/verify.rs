//! `workspaced verify`: checks the audit chains and the checkpoints over them.

use async_recursion::async_recursion as boxed;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use engine::audit::find_break;
use ledger::{Ledger, LedgerError};
use model::{ChainReport, FirstVersions, RunId};
use rustix::fs::Access;
use transparency::{KeyHistory, VerifierKey};
use workspace::Workspaces;

use crate::log_check::{LogCheck, LogReport};
use crate::offline_run::{check_database, database};
use crate::output::{print, print_chain};
use config::StartError;
use config::{ConfigError, VerifyConfig};
use data_dir::Instance;
use proofs::signer::{file, key, key_changes};

/// Runs that one query lists.
const PAGE: u32 = 100;

/// Checks the chain of one run or of all, and the checkpoints over them. Prints the results on standard output. Returns
/// whether everything is intact.
///
/// # Errors
///
/// If the database or the checkpoint file cannot be read, or the run does not exist.
#[boxed]
pub async fn verify(config: VerifyConfig) -> Result<bool, StartError> {
    // Opening a missing database would create an empty one, whose chains are all intact.
    check_database(&config.database_url)?;
    let ledger = open(&config).await?;
    let checked = check(&config, ledger.as_ref()).await;
    ledger.close().await;
    checked
}

/// Opens the database. One in a file is only read, because a service may use it, unless it has to be migrated first.
async fn open(config: &VerifyConfig) -> Result<Arc<dyn Ledger>, StartError> {
    let url = &config.database_url.url;
    if config.database_url.sqlite_file().is_some()
        && let Ok(ledger) = ledger::open_to_read(url).await
    {
        return Ok(ledger);
    }
    ledger::open(url).await.map_err(database)
}

async fn check(config: &VerifyConfig, ledger: &dyn Ledger) -> Result<bool, StartError> {
    let log = check_log(config, ledger).await?;
    let (mut runs, mut broken, mut known) = (0u64, 0u64, HashSet::new());
    let mut count = |report: &ChainReport| {
        let mut report = report.clone();
        log.add_to(&mut report);
        runs += u64::from(!report.run_id.is_service());
        broken += u64::from(!report.intact);
        print_chain(&report);
        known.insert(report.run_id);
    };
    let bases = open_bases(config).await?;
    if let Some(run) = &config.run {
        match verify_story(ledger, bases.as_deref(), run).await {
            Ok(report) => count(&report),
            Err(VerifyError::Ledger(LedgerError::NoSuchRun)) => {
                return Err(ConfigError(format!("--run {run}: there is no such run")).into());
            }
            Err(error) => return Err(error.into()),
        }
    } else {
        let mut after = 0;
        loop {
            let page = ledger.run_ids(after, PAGE).await.map_err(database)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (_, run) in page {
                count(&verify_story(ledger, bases.as_deref(), &run).await?);
            }
        }
    }
    let mut missing = 0;
    if config.run.is_none() {
        for run in log.missing_runs(&known) {
            broken += 1;
            print(&format!("{run}: BROKEN at seq 1: the run has leaves in the checkpoints and is missing"));
        }
        missing = ledger.orphaned_runs().await.map_err(database)?;
        if missing > 0 {
            print(&format!("BROKEN: there are records of {missing} runs that are missing"));
        }
        print(&format!("{runs} runs, {broken} broken"));
    }
    print(&log.line());
    Ok(broken == 0 && missing == 0 && log.is_intact())
}

/// Why a run could not be verified.
enum VerifyError {
    Ledger(LedgerError),
    Base(io::Error),
}

impl From<VerifyError> for StartError {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Ledger(error) => database(error),
            VerifyError::Base(error) => Self::failed("a run's base", &error),
        }
    }
}

/// Opens the folders of the runs, if they are here: the database may be verified without them. Nothing is written.
async fn open_bases(config: &VerifyConfig) -> Result<Option<Arc<Workspaces>>, StartError> {
    let folder = config.data_dir.join("workspaces");
    if rustix::fs::access(&folder, Access::READ_OK | Access::EXEC_OK).is_err() {
        return Ok(None);
    }
    let data_dir = config.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || Workspaces::open_to_read(&data_dir)).await;
    let opened = opened.map_err(io::Error::other).flatten();
    opened.map(|all| Some(Arc::new(all))).map_err(|error| StartError::data_dir(&error))
}

/// Verifies the chain of `run`, and that each record continues what the records before it, or the base, have left.
async fn verify_story(
    ledger: &dyn Ledger,
    bases: Option<&Workspaces>,
    run: &RunId,
) -> Result<ChainReport, VerifyError> {
    let mut first = FirstVersions::default();
    let verified = ledger.verify_each(run, &mut |record| first.push(record)).await;
    let mut report = verified.map_err(VerifyError::Ledger)?;
    let base = bases
        .filter(|_| report.archived_records == 0 && !first.is_empty() && !run.is_service())
        .map(|bases| bases.base(run));
    let Some(base) = base else { return Ok(report) };
    match (base, ledger.run(run).await) {
        // The files of the run are on another node, or deleted. A run whose row is damaged has no policy.
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {}
        (Err(error), _) => return Err(VerifyError::Base(error)),
        (Ok(_), Ok(None) | Err(LedgerError::Internal(_))) => {}
        (Ok(_), Err(error)) => return Err(VerifyError::Ledger(error)),
        (Ok(base), Ok(Some(stored))) => {
            let found = find_break(&base, &stored.run.policy, &first).map_err(VerifyError::Base)?;
            if let Some(found) = found {
                report.add_discontinuity(found);
            }
        }
    }
    Ok(report)
}

/// Checks the checkpoint file against the tree in the database.
async fn check_log(config: &VerifyConfig, ledger: &dyn Ledger) -> Result<LogReport, StartError> {
    let path = &config.checkpoint_file;
    let unreadable = |error: io::Error| StartError::failed(format!("--checkpoint-file {}", path.display()), &error);
    let stored = ledger.latest_checkpoint().await.map_err(database)?;
    let key = match &config.checkpoint_verifier {
        Some(given) => Some(given.clone()),
        None => own_key(config)?,
    };
    let origin = key.as_ref().map(|key| key.name().to_owned()).unwrap_or_default();
    let statements = key_changes::load(ledger, stored.as_ref()).await.map_err(database)?;
    let file = file::read(path, &origin).map_err(unreadable)?;
    let instance = ledger.setting(ledger::INSTANCE).await.map_err(database)?;
    let is_of_nodes = instance.as_deref().and_then(Instance::parse).is_some_and(|instance| instance.is_of_nodes());
    match &file {
        None if stored.is_none() && statements.is_empty() => return Ok(LogReport::default()),
        None if !is_of_nodes => return Ok(LogReport::file_missing(path)),
        _ => {}
    }
    let message = "--checkpoint-verifier-key is missing: the checkpoints cannot be verified without it; GET \
                   /v1/checkpoint/key returns it";
    let key = key.ok_or_else(|| ConfigError(message.to_owned()))?;
    match KeyHistory::follow(key, statements.iter().map(String::as_str)) {
        Ok(keys) => LogCheck::new(ledger, keys, (path, file), is_of_nodes).run().await.map_err(database),
        Err(error) => Ok(LogReport::keys_refused(&error)),
    }
}

/// Returns the first public key of the key file.
fn own_key(config: &VerifyConfig) -> Result<Option<VerifierKey>, ConfigError> {
    Ok(key::read(&config.checkpoint_key_file)?.map(|keys| keys.key().verifier_key()))
}
