//! `workspaced verify`: the audit chains, checked without a service.

use std::io::{self, Write as _};

use model::ChainReport;
use rustix::fs::Access;

use crate::config::{BadSetting, VerifyConfig};
use crate::start::StartError;

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
    let (mut runs, mut broken) = (0u64, 0u64);
    let mut count = |report: &ChainReport| {
        runs += 1;
        broken += u64::from(!report.intact);
        tell(report);
    };
    let checked = ledger::verify_all(ledger.as_ref(), config.run.as_ref(), &mut count).await;
    ledger.close().await;
    match (checked, config.run) {
        (Ok(intact), run) => {
            if run.is_none() {
                print(&format!("{runs} runs, {broken} broken"));
            }
            Ok(intact)
        }
        (Err(ledger::LedgerError::NoSuchRun), Some(run)) => {
            Err(BadSetting(format!("--run {run}: there is no such run")).into())
        }
        (Err(error), _) => Err(database(error)),
    }
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
