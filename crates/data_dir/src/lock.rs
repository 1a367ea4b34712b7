//! Locks the data folder for one process, and binds it to one database.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the folder must exist before the crates that own its contents can open it"
)]

use async_recursion::async_recursion as boxed;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use engine::clock::new_secret;
use ledger::Ledger;
use rustix::fs::FlockOperation;

use crate::instance::{Continuity, Instance, InstanceNote};
use config::ConfigError;
use config::StartError;

/// The database setting that names its data folder.
pub(super) const SETTING: &str = "data-folder";
/// The file in the data folder with the same value.
pub const IDENTITY: &str = "identity";
/// The file in the data folder that names the instance that used it last.
const NOTE: &str = "instance";

/// The file that marks a data folder whose restore has not finished. It contains the address of the database.
const RESTORING: &str = "restoring";

/// An exclusive lock on the data folder. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct DataDirLock {
    data_dir: PathBuf,
    note: InstanceNoteFile,
    #[expect(dead_code, reason = "held for its drop")]
    file: File,
}

/// The file in which a data folder says which instance of the service it is of.
#[derive(Clone, Debug)]
pub struct InstanceNoteFile {
    data_dir: PathBuf,
}

/// Checks, without a lock and without writing, that a data folder and a database belong together.
///
/// # Errors
///
/// Fails if they do not, or if one of them cannot be read.
#[boxed]
pub async fn check_identity(data_dir: &Path, ledger: &dyn Ledger) -> Result<(), StartError> {
    let of_folder = identity(data_dir).map_err(|error| io_error(&error))?;
    let of_database = ledger.setting(SETTING).await?;
    if of_folder.is_some() && of_folder == of_database {
        return Ok(());
    }
    let why = "it does not belong to the database, or no service has used it yet";
    Err(ConfigError(format!("--data-dir {}: {why}", data_dir.display())).into())
}

/// The state of a folder and its database.
struct Inspection {
    note: InstanceNote,
    continuity: Continuity,
    /// The instance that the database belongs to.
    stored: Option<String>,
    /// Size of the database's newest checkpoint.
    checkpoint_size: u64,
}

impl InstanceNoteFile {
    /// Notes that the database is about to receive a checkpoint of `size` leaves. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails.
    pub fn expect_checkpoint(&self, size: u64) -> io::Result<()> {
        self.write(&self.read()?.with_checkpoint(size))
    }

    pub(super) fn read(&self) -> io::Result<InstanceNote> {
        let mut text = String::new();
        match File::open(self.data_dir.join(NOTE)) {
            Ok(file) => drop(file.take(4096).read_to_string(&mut text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(InstanceNote::parse(&text))
    }

    /// Overwrites the note in place, which works on a full disk.
    pub(super) fn write(&self, note: &InstanceNote) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(false).open(self.data_dir.join(NOTE))?;
        file.write_all(note.to_text().as_bytes())?;
        file.sync_all()?;
        File::open(&self.data_dir)?.sync_all()
    }
}

impl DataDirLock {
    /// Creates the folder if it does not exist, and locks it.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be created, another process has locked it, or its restore has not finished.
    pub fn take(data_dir: &Path) -> Result<Self, ConfigError> {
        let lock = Self::take_to_restore(data_dir)?;
        match lock.restoring() {
            Ok(None) => Ok(lock),
            Ok(Some(_)) => Err(lock.refused("its restore has not finished: repeat `workspaced restore`")),
            Err(error) => Err(lock.refused(&error.to_string())),
        }
    }

    /// As [`take`](Self::take), also if the folder's restore has not finished.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be created, or another process has locked it.
    pub fn take_to_restore(data_dir: &Path) -> Result<Self, ConfigError> {
        let failed = |why: String| ConfigError(format!("--data-dir {}: {why}", data_dir.display()));
        std::fs::create_dir_all(data_dir).map_err(|error| failed(error.to_string()))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(data_dir.join("lock")).map_err(|error| failed(error.to_string()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                data_dir: data_dir.to_owned(),
                note: InstanceNoteFile { data_dir: data_dir.to_owned() },
                file,
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(failed("another workspaced is using this folder".to_owned())),
            Err(error) => Err(failed(io::Error::from(error).to_string())),
        }
    }

    /// Binds folder and database to each other at their first start, and checks the binding later.
    ///
    /// Without it, two services with one database and different folders would not see each other's files and would apply each
    /// other's pending changes, and a folder whose runs the database does not know would be cleaned up.
    ///
    /// # Errors
    ///
    /// Fails if they do not belong together, or one of them cannot be read.
    #[boxed]
    pub async fn bind(&self, ledger: &dyn Ledger) -> Result<(), StartError> {
        let of_folder = self.identity().map_err(|error| io_error(&error))?;
        let of_database = ledger.setting(SETTING).await?;
        self.compare(of_folder.as_deref(), of_database.as_deref())?;
        if of_database.is_some() {
            return Ok(());
        }
        let fresh = of_folder.clone().unwrap_or_else(|| new_secret("data"));
        if of_folder.is_none() {
            self.set_identity(&fresh).map_err(|error| io_error(&error))?;
        }
        let known = ledger.set_setting_once(SETTING, &fresh).await?;
        Ok(self.compare(Some(&fresh), Some(&known))?)
    }

    /// Fails if the folder or the database is bound to another one.
    fn compare(&self, of_folder: Option<&str>, of_database: Option<&str>) -> Result<(), ConfigError> {
        match of_database {
            Some(known) if of_folder != Some(known) => Err(self.refused(&format!(
                "the database belongs to another data folder; start with that one, or, if it is lost, write {known} to the \
                 file `{IDENTITY}` here"
            ))),
            None if of_folder.is_some() && self.has_runs() => {
                Err(self.refused("its runs belong to another database; start with that one"))
            }
            _ => Ok(()),
        }
    }

    /// Checks, without writing, that folder and database belong together and whether one of them is an older copy.
    ///
    /// # Errors
    ///
    /// Fails if they do not belong together, if the folder is an older copy, or if one of them cannot be read.
    #[boxed]
    pub async fn check(&self, ledger: &dyn Ledger) -> Result<Continuity, StartError> {
        let of_folder = self.identity().map_err(|error| io_error(&error))?;
        let of_database = ledger.setting(SETTING).await?;
        self.compare(of_folder.as_deref(), of_database.as_deref())?;
        Ok(self.inspect(ledger).await?.continuity)
    }

    /// Takes over the database: after this no other process, which may have a copy of the folder, can commit to it. Returns
    /// whether the database is an older copy.
    ///
    /// # Errors
    ///
    /// Fails if the folder is an older copy, if another process takes over at the same time, or if one of them cannot be
    /// written.
    #[boxed]
    pub async fn take_over(&self, ledger: &dyn Ledger) -> Result<Continuity, StartError> {
        let Inspection { note, continuity, stored, checkpoint_size } = self.inspect(ledger).await?;
        let (note, next) = note.begin(stored.as_deref().and_then(Instance::parse).as_ref());
        self.note.write(&note).map_err(|error| io_error(&error))?;
        failpoint::hit("instance.begun");
        if !ledger.take_over(stored.as_deref(), &next.to_string()).await? {
            return Err(self.refused("another workspaced is starting with this database").into());
        }
        failpoint::hit("instance.stored");
        self.note.write(&note.end().with_checkpoint(checkpoint_size)).map_err(|error| io_error(&error))?;
        Ok(continuity)
    }

    /// Returns what [`begin_restore`](Self::begin_restore) was called with, if the folder's restore has not finished.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails.
    pub fn restoring(&self) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.data_dir.join(RESTORING)) {
            Ok(database) => Ok(Some(database.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks the folder as one that is being restored, with `database`, the address of its database. Removes everything else that
    /// an interrupted restore has left in it.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails.
    pub fn begin_restore(&self, database: &str) -> io::Result<()> {
        let mut file = File::create(self.data_dir.join(RESTORING))?;
        writeln!(file, "{database}")?;
        file.sync_all()?;
        File::open(&self.data_dir)?.sync_all()?;
        for entry in std::fs::read_dir(&self.data_dir)? {
            let entry = entry?;
            if [RESTORING, "lock", "lost+found"].iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the mark of [`begin_restore`](Self::begin_restore). Everything must be synced.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails.
    pub fn end_restore(&self) -> io::Result<()> {
        std::fs::remove_file(self.data_dir.join(RESTORING))?;
        File::open(&self.data_dir)?.sync_all()
    }

    /// Returns the note file, for the signer of checkpoints.
    pub fn note(&self) -> InstanceNoteFile {
        self.note.clone()
    }

    /// Reads the note of the folder and compares it with the database.
    async fn inspect(&self, ledger: &dyn Ledger) -> Result<Inspection, StartError> {
        let stored = ledger.setting(ledger::INSTANCE).await?;
        let latest = ledger.latest_checkpoint().await?;
        let checkpoint_size = latest.map_or(0, |latest| latest.size);
        let note = self.note.read().map_err(|error| io_error(&error))?;
        let continuity = note.continuity(stored.as_deref().and_then(Instance::parse).as_ref());
        if continuity == Continuity::OlderFolder
            || continuity == Continuity::Whole && note.lacks_checkpoint(checkpoint_size)
        {
            let why = format!(
                "this is an older copy: the database was used with another copy since; start with that one, or, if it is \
                 lost, remove the file `{NOTE}` here"
            );
            return Err(self.refused(&why).into());
        }
        Ok(Inspection { note, continuity, stored, checkpoint_size })
    }

    pub(super) fn path(&self) -> &Path {
        &self.data_dir
    }

    pub(super) fn refused(&self, why: &str) -> ConfigError {
        ConfigError(format!("--data-dir {}: {why}", self.data_dir.display()))
    }

    pub(super) fn identity(&self) -> io::Result<Option<String>> {
        identity(&self.data_dir)
    }

    pub(super) fn set_identity(&self, identity: &str) -> io::Result<()> {
        let mut file = File::create(self.data_dir.join(IDENTITY))?;
        writeln!(file, "{identity}")?;
        file.sync_all()?;
        File::open(&self.data_dir)?.sync_all()
    }

    /// Returns whether any run has files here.
    pub(super) fn has_runs(&self) -> bool {
        let entries = std::fs::read_dir(self.data_dir.join("workspaces"));
        let is_run = |name: std::ffi::OsString| !name.to_string_lossy().starts_with('.');
        entries.is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_run(entry.file_name()))))
    }
}

/// Returns the identity of the folder, if it has one. A killed start may have left the file empty.
fn identity(data_dir: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    match File::open(data_dir.join(IDENTITY)) {
        Ok(mut file) => file.read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

pub(super) fn io_error(error: &io::Error) -> StartError {
    StartError::failed("--data-dir", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_folder_is_refused_in_one_line_until_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/data");
        let held = DataDirLock::take(&path).unwrap();
        let message = DataDirLock::take(&path).unwrap_err().to_string();
        assert!(message.ends_with("another workspaced is using this folder") && !message.contains('\n'), "{message}");
        drop(held);
        assert!(DataDirLock::take(&path).is_ok());
    }
}
