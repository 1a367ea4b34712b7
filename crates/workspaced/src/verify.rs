//! `workspaced verify`: the audit chains, checked without a service.

use std::io::{self, Write as _};

use ledger::Ledger;
use model::{ChainReport, RunId};
use rustix::fs::Access;

use crate::config::{BadSetting, VerifyConfig};
use crate::start::StartError;

/// Runs that are asked for at a time.
const PAGE: u32 = 500;

/// Checks the chain of one run or of all, and tells of each on standard output. False where one is broken.
///
/// # Errors
///
/// Where the database cannot be read, or has no such run.
pub async fn verify(config: VerifyConfig) -> Result<bool, StartError> {
    let database = |error: ledger::LedgerError| StartError::failed("the database", &error);
    // Opening would make an empty one, whose chains are all intact.
    if let Some(file) = config.database_url.sqlite_file()
        && rustix::fs::access(file, Access::READ_OK).is_err()
    {
        return Err(BadSetting(format!("--database-url: there is no database to read at {file}")).into());
    }
    let ledger = ledger::open(&config.database_url.0).await.map_err(database)?;
    let checked = match &config.run {
        Some(run) => check_one(ledger.as_ref(), run).await,
        None => check_all(ledger.as_ref()).await.map_err(database),
    };
    ledger.close().await;
    checked
}

async fn check_one(ledger: &dyn Ledger, run: &RunId) -> Result<bool, StartError> {
    match ledger.verify(run).await {
        Ok(report) => {
            tell(&report);
            Ok(report.intact)
        }
        Err(ledger::LedgerError::NoSuchRun) => Err(BadSetting(format!("--run {run}: there is no such run")).into()),
        Err(error) => Err(StartError::failed("the database", &error)),
    }
}

async fn check_all(ledger: &dyn Ledger) -> ledger::Result<bool> {
    let (mut runs, mut broken, mut records) = (0u64, 0u64, 0u64);
    let mut after = None;
    loop {
        let page = ledger.runs(None, after, PAGE).await?;
        after = page.last().map(|(position, _)| *position);
        for (_, run) in &page {
            let report = ledger.verify(&run.run_id).await?;
            tell(&report);
            runs += 1;
            records += report.records;
            broken += u64::from(!report.intact);
        }
        if page.len() < PAGE as usize {
            break;
        }
    }
    print(&format!("{runs} runs, {records} records, {broken} broken"));
    Ok(broken == 0)
}

fn tell(report: &ChainReport) {
    match &report.first_break {
        None => print(&format!("{}: intact, {} records, head {}", report.run_id, report.records, report.head_hash)),
        Some(found) => print(&format!("{}: BROKEN at seq {}: {}", report.run_id, found.seq, found.problem)),
    }
}

fn print(line: &str) {
    // A reader that has gone away has its exit code all the same.
    let _ = writeln!(io::stdout().lock(), "{line}");
}
