//! The data folder and the database that a backup is restored into.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the folder is checked before the crates that own its contents can open it"
)]

use std::fs::File;
use std::io;
use std::path::Path;

use archive::open_member;
use ledger::RestoreTarget;

use super::{Backup, failed};
use crate::backup::{CHECKPOINT_KEY, CHECKPOINTS, SERVICE, open_object};
use crate::offline_run::database;
use crate::output::progress;
use config::StartError;
use config::{ConfigError, RestoreConfig};
use data_dir::{DataDirLock, IDENTITY};

/// The names in a data folder that a restore does not write and leaves alone.
const ALLOWED: [&str; 2] = ["lock", "lost+found"];
/// The files of a backup that go into the data folder under the same name.
const FILES: [&str; 3] = [IDENTITY, CHECKPOINTS, CHECKPOINT_KEY];

/// A locked data folder with a restored database.
pub(super) struct RestoredFolder {
    lock: DataDirLock,
}

impl RestoredFolder {
    /// Locks and marks the data folder, and restores the database and the files that belong to no run.
    ///
    /// # Errors
    ///
    /// If the folder or the database is in use or not empty, or cannot be written.
    pub(super) async fn prepare(config: &RestoreConfig, backup: &Backup) -> Result<Self, StartError> {
        let names = names_in(&config.data_dir)?;
        let is_locked_by_others = names.iter().any(|name| name == "lock");
        // A folder that was never a data folder must not receive the lock's file.
        if !is_locked_by_others {
            refuse_names(&config.data_dir, &names)?;
        }
        let lock = DataDirLock::take_to_restore(&config.data_dir)?;
        let earlier = lock.restoring().map_err(|error| failed(&error))?;
        if earlier.is_none() {
            refuse_names(&config.data_dir, &names)?;
        }
        let address = ledger::database_address(&config.database_url.url).map_err(database)?;
        let is_repeated = earlier.is_some_and(|earlier| earlier == address);
        let is_restored = has_database(config, backup, is_repeated).await?;
        lock.begin_restore(&address).map_err(|error| failed(&error))?;
        failpoint::hit("restore.begun");
        for name in FILES {
            if backup.manifest.files.iter().any(|file| file.name == name) {
                copy(&backup.path.join(name), &config.data_dir.join(name)).map_err(|error| failed(&error))?;
            }
        }
        if !is_restored {
            progress("restoring the database");
            load(config, backup).await?;
        }
        failpoint::hit("restore.database");
        Ok(Self { lock })
    }

    /// Makes the folder one that a service can use. Everything must be synced.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(super) fn complete(self, config: &RestoreConfig) -> io::Result<()> {
        File::open(&config.data_dir)?.sync_all()?;
        failpoint::hit("restore.complete");
        self.lock.end_restore()
    }
}

/// Reads the rows of all runs, and then those that refer to them.
async fn load(config: &RestoreConfig, backup: &Backup) -> Result<(), StartError> {
    let manifest = &backup.manifest;
    let mut load = ledger::begin_load(&config.database_url.url, manifest.schema).await.map_err(database)?;
    let archives = manifest.runs.iter().map(|run| open_object(&backup.root, &run.archive));
    for archive in archives.chain([File::open(backup.path.join(SERVICE))]) {
        let rows = archive.and_then(|file| open_member(file, archive::ROWS).map_err(io::Error::other));
        load.read(&mut rows.map_err(|error| failed(&error))?).await.map_err(database)?;
    }
    load.finish().await.map(drop).map_err(database)
}

/// Returns whether the database has the backup already, from a restore that was interrupted after it. `is_repeated` if an
/// interrupted restore has found this database empty.
async fn has_database(config: &RestoreConfig, backup: &Backup, is_repeated: bool) -> Result<bool, StartError> {
    let file = config.database_url.sqlite_file();
    match (ledger::restore_target(&config.database_url.url).await.map_err(database)?, file) {
        (RestoreTarget::Empty, _) => Ok(false),
        // An interrupted restore has begun to write this file, which is written again.
        (RestoreTarget::Used { .. }, Some(_)) if is_repeated => Ok(false),
        // No service has used it since: each start changes the instance. The restore was one transaction.
        (RestoreTarget::Used { instance: Some(instance) }, None)
            if is_repeated && Some(&instance) == backup.manifest.instance.as_ref() =>
        {
            Ok(true)
        }
        (RestoreTarget::Used { .. }, None) => {
            Err(ConfigError("--database-url: the database is not empty: create an empty one".to_owned()).into())
        }
        (RestoreTarget::Used { .. }, Some(file)) => {
            let message = format!("--database-url: there is a database at {file}: name another file, or move it away");
            Err(ConfigError(message).into())
        }
    }
}

fn names_in(data_dir: &Path) -> Result<Vec<String>, ConfigError> {
    let read = || {
        let entries = match std::fs::read_dir(data_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    read().map_err(|error: io::Error| ConfigError(format!("--data-dir {}: {error}", data_dir.display())))
}

fn refuse_names(data_dir: &Path, names: &[String]) -> Result<(), ConfigError> {
    if names.iter().all(|name| ALLOWED.contains(&name.as_str())) {
        return Ok(());
    }
    let data_dir = data_dir.display();
    Err(ConfigError(format!("--data-dir {data_dir}: the folder is not empty: name an empty or a new one")))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::copy(from, to)?;
    File::open(to)?.sync_all()
}
