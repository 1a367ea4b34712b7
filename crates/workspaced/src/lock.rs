//! The data folder, for one process at a time, and for one database.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the folder has to be there before the crates that own what is in it can be asked"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ledger::Ledger;
use rustix::fs::FlockOperation;

use crate::clock::new_secret;
use crate::config::BadSetting;
pub(crate) use crate::instance::Continuity;
use crate::instance::{Instance, Note};
use crate::start::StartError;

/// What the database calls its data folder by.
const SETTING: &str = "data-folder";
/// The file in the data folder that has the same.
const IDENTITY: &str = "identity";
/// The file in the data folder that names the instance of the service that used it last.
const NOTE: &str = "instance";

/// The right to use a data folder, for as long as it is held. The system ends it with the process, however that ends.
#[derive(Debug)]
pub(crate) struct DataLock {
    data_dir: PathBuf,
    note: NoteFile,
    #[expect(dead_code, reason = "held for its drop")]
    file: File,
}

/// The note in a data folder.
#[derive(Clone, Debug)]
pub(crate) struct NoteFile {
    data_dir: PathBuf,
}

/// How a folder and its database were found.
struct Look {
    note: Note,
    continuity: Continuity,
    /// The instance that the database is of.
    stored: Option<String>,
    /// How many leaves its newest checkpoint is over.
    signed: u64,
}

impl NoteFile {
    /// Notes that the database is about to get a checkpoint over `size` leaves. Blocks.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub(crate) fn expect_checkpoint(&self, size: u64) -> io::Result<()> {
        self.write(&self.read()?.with_checkpoint(size))
    }

    fn read(&self) -> io::Result<Note> {
        let mut text = String::new();
        match File::open(self.data_dir.join(NOTE)) {
            Ok(file) => drop(file.take(4096).read_to_string(&mut text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Note::parse(&text))
    }

    /// Writes the note over the last one, for which no room on the disk is needed.
    fn write(&self, note: &Note) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(false).open(self.data_dir.join(NOTE))?;
        file.write_all(note.to_text().as_bytes())?;
        file.sync_all()?;
        File::open(&self.data_dir)?.sync_all()
    }
}

impl DataLock {
    /// Makes the folder where it is missing, and takes it.
    ///
    /// # Errors
    ///
    /// Where it cannot be made, or another process has it.
    pub(crate) fn take(data_dir: &Path) -> Result<Self, BadSetting> {
        let failed = |why: String| BadSetting(format!("--data-dir {}: {why}", data_dir.display()));
        std::fs::create_dir_all(data_dir).map_err(|error| failed(error.to_string()))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(data_dir.join("lock")).map_err(|error| failed(error.to_string()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                Ok(Self { data_dir: data_dir.to_owned(), note: NoteFile { data_dir: data_dir.to_owned() }, file })
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(failed("another workspaced is using this folder".to_owned())),
            Err(error) => Err(failed(io::Error::from(error).to_string())),
        }
    }
}

impl DataLock {
    /// Makes sure that folder and database belong together; at their first start they are told of each other.
    ///
    /// Two services with one database and a folder each would not see each other's files, and each would take the other's
    /// pending changes for its own; and a folder whose runs the database does not know would be swept empty.
    ///
    /// # Errors
    ///
    /// Where they do not, or one of them cannot be read.
    pub(crate) async fn belongs_to(&self, ledger: &dyn Ledger) -> Result<(), StartError> {
        let of_folder = self.identity().map_err(|error| unreadable(&error))?;
        let of_database = ledger.setting(SETTING).await.map_err(|error| database(&error))?;
        self.compare(of_folder.as_deref(), of_database.as_deref())?;
        if of_database.is_some() {
            return Ok(());
        }
        let fresh = of_folder.clone().unwrap_or_else(|| new_secret("data"));
        if of_folder.is_none() {
            self.set_identity(&fresh).map_err(|error| unreadable(&error))?;
        }
        let known = ledger.set_setting_once(SETTING, &fresh).await.map_err(|error| database(&error))?;
        Ok(self.compare(Some(&fresh), Some(&known))?)
    }

    /// Refused where folder and database are known to belong to others.
    fn compare(&self, of_folder: Option<&str>, of_database: Option<&str>) -> Result<(), BadSetting> {
        match of_database {
            Some(known) if of_folder != Some(known) => Err(self.refused(&format!(
                "the database belongs to another data folder; start with that one, or, if it is lost, write {known} into \
                 the file `{IDENTITY}` of this one"
            ))),
            None if of_folder.is_some() && self.has_runs() => {
                Err(self.refused("its runs belong to another database; start with that one"))
            }
            _ => Ok(()),
        }
    }

    /// The same for whoever only looks: nothing is written. Tells whether one of the two is an older copy.
    ///
    /// # Errors
    ///
    /// Where they do not belong together, the folder is an older copy, or one of them cannot be read.
    pub(crate) async fn check(&self, ledger: &dyn Ledger) -> Result<Continuity, StartError> {
        let of_folder = self.identity().map_err(|error| unreadable(&error))?;
        let of_database = ledger.setting(SETTING).await.map_err(|error| database(&error))?;
        self.compare(of_folder.as_deref(), of_database.as_deref())?;
        Ok(self.look(ledger).await?.continuity)
    }

    /// Takes the database over for this start: no other process, which may have a copy of the folder, commits to it any more.
    /// Tells whether the database is an older copy.
    ///
    /// # Errors
    ///
    /// Where the folder is an older copy, another process takes over at the same time, or one of them cannot be written.
    pub(crate) async fn take_over(&self, ledger: &dyn Ledger) -> Result<Continuity, StartError> {
        let Look { note, continuity, stored, signed } = self.look(ledger).await?;
        let (note, next) = note.begin(stored.as_deref().and_then(Instance::parse).as_ref());
        self.note.write(&note).map_err(|error| unreadable(&error))?;
        failpoint::hit("instance.begun");
        if !ledger.take_over(stored.as_deref(), &next.to_string()).await.map_err(|error| database(&error))? {
            return Err(self.refused("another workspaced is starting with this database").into());
        }
        failpoint::hit("instance.stored");
        self.note.write(&note.end().with_checkpoint(signed)).map_err(|error| unreadable(&error))?;
        Ok(continuity)
    }

    /// The folder's note, for whoever signs with it.
    pub(crate) fn note(&self) -> NoteFile {
        self.note.clone()
    }

    /// What the folder notes, and how it fits the database.
    async fn look(&self, ledger: &dyn Ledger) -> Result<Look, StartError> {
        let stored = ledger.setting(ledger::INSTANCE).await.map_err(|error| database(&error))?;
        let latest = ledger.latest_checkpoint().await.map_err(|error| database(&error))?;
        let signed = latest.map_or(0, |latest| latest.size);
        let note = self.note.read().map_err(|error| unreadable(&error))?;
        let continuity = note.continuity(stored.as_deref().and_then(Instance::parse).as_ref());
        if continuity == Continuity::OlderFolder || continuity == Continuity::Whole && note.lacks_checkpoint(signed) {
            let told = format!(
                "it is an older copy: the database was used with another copy of it since; start with that one, or, if it \
                 is lost, remove the file `{NOTE}` of this one"
            );
            return Err(self.refused(&told).into());
        }
        Ok(Look { note, continuity, stored, signed })
    }

    fn refused(&self, why: &str) -> BadSetting {
        BadSetting(format!("--data-dir {}: {why}", self.data_dir.display()))
    }

    /// What the folder is called by, if it was told. A start that was killed may have left the file empty.
    fn identity(&self) -> io::Result<Option<String>> {
        let mut text = String::new();
        match File::open(self.data_dir.join(IDENTITY)) {
            Ok(mut file) => file.read_to_string(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    fn set_identity(&self, identity: &str) -> io::Result<()> {
        let mut file = File::create(self.data_dir.join(IDENTITY))?;
        writeln!(file, "{identity}")?;
        file.sync_all()?;
        File::open(&self.data_dir)?.sync_all()
    }

    /// Whether some run has files here.
    fn has_runs(&self) -> bool {
        let entries = std::fs::read_dir(self.data_dir.join("workspaces"));
        let is_run = |name: std::ffi::OsString| !name.to_string_lossy().starts_with('.');
        entries.is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_run(entry.file_name()))))
    }
}

fn database(error: &ledger::LedgerError) -> StartError {
    StartError::failed("the database", error)
}

fn unreadable(error: &io::Error) -> StartError {
    StartError::failed("--data-dir", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_in_one_line_and_the_next_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new/data");
        let held = DataLock::take(&place).unwrap();
        let told = DataLock::take(&place).unwrap_err().to_string();
        assert!(told.ends_with("another workspaced is using this folder") && !told.contains('\n'), "{told}");
        drop(held);
        assert!(DataLock::take(&place).is_ok());
    }
}
