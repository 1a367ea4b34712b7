//! `workspaced key`: replaces the key that signs checkpoints.

use ledger::Ledger;
use rustix::fs::Mode;

use crate::admin::offline_run::{check_database, database};
use crate::admin::output::print;
use crate::config::{ConfigError, KeyAction, KeyConfig};
use crate::data_dir::{Continuity, DataDirLock};
use crate::signer::{self, KeysWritten};
use crate::start_error::StartError;

/// Begins or ends the replacement of the key that signs checkpoints. Prints the new public key on standard output.
///
/// # Errors
///
/// If a service uses the data, there is no key, the step is not the next one, or the database or a key file cannot be used.
pub async fn key(config: KeyConfig) -> Result<(), StartError> {
    check_database(&config.database_url)?;
    // New files are for this user alone, as those of the service are.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let lock = DataDirLock::take(&config.data_dir)?;
    let ledger = ledger::open(&config.database_url.url).await.map_err(database)?;
    let done = rotate(&config, &lock, ledger.as_ref()).await;
    ledger.close().await;
    let KeysWritten { verifier_key, file } = done?;
    let file = file.display();
    print(&match config.action {
        KeyAction::Rotate => format!("checkpoints will be signed by both keys; their secrets are in {file}"),
        KeyAction::Retire => format!("checkpoints will be signed by the new key alone; its secret is in {file}"),
    });
    print(&verifier_key);
    Ok(())
}

async fn rotate(config: &KeyConfig, lock: &DataDirLock, ledger: &dyn Ledger) -> Result<KeysWritten, StartError> {
    if lock.check(ledger).await? == Continuity::OlderDatabase {
        let message =
            "--database-url: it is older than the data folder and lacks newer data: put its newest state back";
        return Err(ConfigError(message.to_owned()).into());
    }
    signer::rotate(&config.checkpoints, ledger, config.action, config.new_key_file.as_deref()).await
}
