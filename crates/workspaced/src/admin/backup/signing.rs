//! The checkpoint file and the key that signs checkpoints, as they belong to the copied database. A service may sign, and
//! `key rotate` replace the key, after the database was copied.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a backup is outside of the data folder, in a folder that the operator names"
)]

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use ledger::DatabaseCopy;
use transparency::{KeyChange, LogEntry, SignerKey};

use crate::admin::backup::folder::{BackupCopyError, BackupFolder};
use crate::admin::backup::manifest::NamedFile;
use crate::admin::backup::{CHECKPOINT_KEY, failed};
use crate::signer::{self, key, key_changes};
use crate::start_error::StartError;

/// A copied key, or why there is none.
pub(crate) type CopiedKey = Result<NamedFile, String>;

/// Copies the checkpoint file up to the newest checkpoint in the copy of the database, with the statements about changes of the
/// key that the copy has: later ones would contradict it. The file may lack the newest ones themselves, which the next start adds.
/// Returns false if there is no file, or nothing was signed.
pub(crate) fn copy_log(from: &Path, copied: &DatabaseCopy, to: &Path) -> Result<bool, StartError> {
    let unreadable = |error: io::Error| StartError::failed(format!("--checkpoint-file {}", from.display()), &error);
    let Some(newest) = &copied.checkpoint else { return Ok(false) };
    let statements = key_changes::of_settings(&copied.settings);
    let Some(mut reader) = signer::file::read(from, origin_of(&newest.note)).map_err(unreadable)? else {
        return Ok(false);
    };
    let mut to = BufWriter::new(File::create(to).map_err(|error| failed(&error))?);
    while let LogEntry::Note(note) = reader.next_entry().map_err(unreadable)? {
        let size = note.lines().nth(1).and_then(|size| size.parse::<u64>().ok());
        let is_known =
            !KeyChange::is_statement(&note) || statements.iter().any(|one| one.trim_end() == note.trim_end());
        if !is_known || size.is_some_and(|size| size > newest.size) {
            break;
        }
        writeln!(to, "{note}").map_err(|error| failed(&error))?;
    }
    to.flush().map_err(|error| failed(&error))?;
    Ok(true)
}

/// Copies the key in force in the copy of the database: that of `key_file`, or the one that an interrupted rotation has left
/// beside it. It has the name [`CHECKPOINT_KEY`] in the backup `folder` at `path`.
///
/// # Errors
///
/// If a file cannot be read, or the backup not be written.
pub(crate) fn copy_key(
    key_file: &Path,
    copied: &DatabaseCopy,
    folder: &BackupFolder,
    path: &Path,
) -> Result<CopiedKey, StartError> {
    let to = path.join(CHECKPOINT_KEY);
    let mut was_found = false;
    for file in [key_file.to_owned(), key::next_file(key_file)] {
        let added = folder.add_named(CHECKPOINT_KEY, &file).map_err(|error| match error {
            BackupCopyError::Source(error) => {
                StartError::failed(format!("--checkpoint-key-file {}", file.display()), &error)
            }
            BackupCopyError::Target(error) => failed(&error),
        })?;
        let Some(added) = added else { continue };
        was_found = true;
        // The copy is read, because the file may be replaced meanwhile.
        if key::read(&to)?.is_some_and(|key| is_in_force(&key, copied)) {
            return Ok(Ok(added));
        }
        std::fs::remove_file(&to).map_err(|error| failed(&error))?;
    }
    let file = key_file.display();
    let why = if was_found {
        format!(
            "{file} is not the key in force in the copied database: repeat the backup if the key was rotated meanwhile, otherwise \
             name the file of the key in force by --checkpoint-key-file"
        )
    } else {
        format!(
            "there is no file {file}: name it by --checkpoint-key-file, or keep a key of WORKSPACED_CHECKPOINT_KEY elsewhere and \
             omit --include-key"
        )
    };
    Ok(Err(format!("the key that signs checkpoints is not in the backup: {why}")))
}

/// Whether `key` signs the checkpoints after those in the copy of the database. The configuration may give it another name.
fn is_in_force(key: &SignerKey, copied: &DatabaseCopy) -> bool {
    let named = |name: &str| key.with_name(name).ok().map(|key| key.verifier_key());
    let statements = key_changes::of_settings(&copied.settings);
    if let Some(change) = statements.last().and_then(|last| KeyChange::verify(last).ok()) {
        return named(change.new.name()) == Some(change.new);
    }
    copied.checkpoint.as_ref().is_none_or(|newest| {
        named(origin_of(&newest.note)).is_some_and(|verifier| verifier.verify(&newest.note).is_ok())
    })
}

fn origin_of(note: &str) -> &str {
    note.lines().next().unwrap_or_default()
}
