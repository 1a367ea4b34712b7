//! `workspaced key`: makes and replaces the key that signs checkpoints, and writes their file again.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use ledger::Ledger;
use rustix::fs::Mode;

use crate::offline_run::{check_database, database};
use crate::output::print;
use config::StartError;
use config::{ConfigError, KeyAction, KeyConfig, KeyStep};
use data_dir::{Continuity, DataDirLock};
use proofs::signer::{self, KeysWritten};

/// Makes the key that signs checkpoints, begins or ends its replacement, or completes the checkpoint file. Prints the new public key on
/// standard output.
///
/// # Errors
///
/// If a service uses the data, the key or the step is not the next one, or the database or a file cannot be used.
#[boxed]
pub async fn key(config: KeyConfig) -> Result<(), StartError> {
    // New files are for this user alone, as those of the service are.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let (checkpoints, new_key_file) = (&config.checkpoints, config.new_key_file.as_deref());
    let step = match &config.action {
        KeyAction::Create { origin } => {
            let made = signer::create(checkpoints, origin.as_deref(), new_key_file)?;
            print_keys(&made, "checkpoints will be signed by this key; its secret is in");
            return Ok(());
        }
        KeyAction::Replace(step) => Some(*step),
        KeyAction::RenewFile => None,
    };
    check_database(&config.database_url)?;
    let lock = DataDirLock::take(&config.data_dir)?;
    let ledger = ledger::open(&config.database_url.url).await.map_err(database)?;
    let done = run(&config, step, &lock, &ledger).await;
    ledger.close().await;
    done
}

/// Takes the `step`, or completes the checkpoint file if there is none.
async fn run(
    config: &KeyConfig,
    step: Option<KeyStep>,
    lock: &DataDirLock,
    ledger: &Arc<dyn Ledger>,
) -> Result<(), StartError> {
    if lock.check(ledger.as_ref()).await? == Continuity::OlderDatabase {
        let message =
            "--database-url: it is older than the data folder and lacks newer data: put its newest state back";
        return Err(ConfigError(message.to_owned()).into());
    }
    let checkpoints = &config.checkpoints;
    let Some(step) = step else {
        signer::renew_file(checkpoints, Arc::clone(ledger), lock.note()).await?;
        print(&format!("{} has all checkpoints of the database", checkpoints.file.display()));
        return Ok(());
    };
    let written = signer::rotate(checkpoints, ledger.as_ref(), step, config.new_key_file.as_deref()).await?;
    let what = match step {
        KeyStep::Rotate => "checkpoints will be signed by both keys; their secrets are in",
        KeyStep::Retire => "checkpoints will be signed by the new key alone; its secret is in",
    };
    print_keys(&written, what);
    Ok(())
}

fn print_keys(KeysWritten { verifier_key, file }: &KeysWritten, what: &str) {
    print(&format!("{what} {}", file.display()));
    print(verifier_key);
}
