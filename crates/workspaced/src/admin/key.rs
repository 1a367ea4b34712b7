//! `workspaced key`: replaces the key that signs checkpoints.

use std::sync::Arc;

use ledger::Ledger;
use rustix::fs::Mode;

use crate::admin::offline_run::{check_database, database};
use crate::admin::output::print;
use crate::config::{ConfigError, KeyConfig};
use crate::data_dir::{Continuity, DataDirLock};
use crate::signer::{self, Rotation};
use crate::start_error::StartError;

/// Replaces the key that signs checkpoints. Prints the new public key on standard output.
///
/// # Errors
///
/// If a service uses the data, there is no key, or the database, the key files or the checkpoint file cannot be used or
/// contradict each other.
pub async fn key(config: KeyConfig) -> Result<(), StartError> {
    check_database(&config.database_url)?;
    // New files are for this user alone, as those of the service are.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let lock = DataDirLock::take(&config.data_dir)?;
    let ledger = ledger::open(&config.database_url.url).await.map_err(database)?;
    let done = rotate(&config, &lock, &ledger).await;
    ledger.close().await;
    let Rotation { verifier_key, file, size } = done?;
    let done = match size {
        Some(size) => format!("the key was replaced after {size} leaves; its secret is in {}", file.display()),
        None => "an interrupted replacement of the key was completed; run the command again to replace it once more"
            .to_owned(),
    };
    print(&done);
    print(&verifier_key);
    Ok(())
}

async fn rotate(config: &KeyConfig, lock: &DataDirLock, ledger: &Arc<dyn Ledger>) -> Result<Rotation, StartError> {
    if lock.check(ledger.as_ref()).await? == Continuity::OlderDatabase {
        let message =
            "--database-url: it is older than the data folder and lacks newer data: put its newest state back";
        return Err(ConfigError(message.to_owned()).into());
    }
    lock.take_over(ledger.as_ref()).await?;
    let new_key_file = config.new_key_file.as_deref();
    signer::rotate(&config.checkpoints, Arc::clone(ledger), lock.note(), new_key_file).await
}
