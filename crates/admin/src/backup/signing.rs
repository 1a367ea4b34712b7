//! The checkpoint file and the keys that sign checkpoints, as they belong to the copied database. A service may sign, and
//! `workspaced key` replace the key, after the database was copied.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a backup is outside of the data folder, in a folder that the operator names"
)]

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use ledger::SnapshotContents;
use transparency::{LogEntry, SigningKeys};

use crate::backup::folder::{BackupCopyError, BackupFolder, failed};
use crate::backup::manifest::{CHECKPOINT_KEY, NamedFile};
use config::StartError;
use proofs::signer::{self, key};

/// A copied key, or why there is none.
pub(crate) type CopiedKey = Result<NamedFile, String>;

/// Copies the checkpoint file up to the newest checkpoint in the copy of the database. The file may lack that itself, which the next
/// start adds.
/// Returns false if there is no file, or nothing was signed.
pub(crate) fn copy_log(from: &Path, copied: &SnapshotContents, to: &Path) -> Result<bool, StartError> {
    let unreadable = |error: io::Error| StartError::failed(format!("--checkpoint-file {}", from.display()), &error);
    let Some(newest) = &copied.checkpoint else { return Ok(false) };
    let Some(mut reader) = signer::file::read(from, origin_of(&newest.note)).map_err(unreadable)? else {
        return Ok(false);
    };
    let mut to = BufWriter::new(File::create(to).map_err(|error| failed(&error))?);
    while let LogEntry::Note(note) = reader.next_entry().map_err(unreadable)? {
        let size = note.lines().nth(1).and_then(|size| size.parse::<u64>().ok());
        if size.is_some_and(|size| size > newest.size) {
            break;
        }
        writeln!(to, "{note}").map_err(|error| failed(&error))?;
    }
    to.flush().map_err(|error| failed(&error))?;
    Ok(true)
}

/// Copies the `key_file` if a key in it signs the checkpoints after those in the copy of the database. It has the name
/// [`CHECKPOINT_KEY`] in the backup `folder` at `path`.
///
/// # Errors
///
/// If a file cannot be read, or the backup not be written.
pub(crate) fn copy_key(
    key_file: &Path,
    copied: &SnapshotContents,
    folder: &BackupFolder,
    path: &Path,
) -> Result<CopiedKey, StartError> {
    let to = path.join(CHECKPOINT_KEY);
    let file = key_file.display();
    let added = folder.add_named(CHECKPOINT_KEY, key_file).map_err(|error| match error {
        BackupCopyError::Source(error) => StartError::failed(format!("--checkpoint-key-file {file}"), &error),
        BackupCopyError::Target(error) => failed(&error),
    })?;
    let why = match added {
        // The copy is read, because the file may be replaced meanwhile.
        Some(added) if key::read(&to)?.is_some_and(|keys| signs_on(&keys, copied)) => return Ok(Ok(added)),
        Some(_) => {
            std::fs::remove_file(&to).map_err(|error| failed(&error))?;
            format!(
                "{file} has no key in force in the copied database: repeat the backup if the key was replaced meanwhile, otherwise \
                 name the file of the key in force by --checkpoint-key-file"
            )
        }
        None => format!(
            "there is no file {file}: name it by --checkpoint-key-file, or keep a key of WORKSPACED_CHECKPOINT_KEY elsewhere and \
             omit --include-key"
        ),
    };
    Ok(Err(format!("the key that signs checkpoints is not in the backup: {why}")))
}

/// Whether one of `keys` has signed the newest checkpoint in the copy of the database.
fn signs_on(keys: &SigningKeys, copied: &SnapshotContents) -> bool {
    let Some(newest) = &copied.checkpoint else { return true };
    keys.all().any(|key| key.verifier_key().verify(&newest.note).is_ok())
}

fn origin_of(note: &str) -> &str {
    note.lines().next().unwrap_or_default()
}
