//! The manifest of a backup: its files and the archives of its runs, each with its size and its hash. A folder without one is no backup.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a backup is outside of the data folder, in a folder that the operator names"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use model::{RunId, Sha256};
use serde::{Deserialize, Serialize};

use super::saved_content::SavedContent;

/// The version of the layout of backups.
pub(crate) const FORMAT: u32 = 5;
/// The manifest of a backup, which is written last.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The checkpoints up to the newest one in the copied database, and the keys that sign them, in the backup's own folder.
pub(crate) const CHECKPOINTS: &str = "checkpoints.log";
pub(crate) const CHECKPOINT_KEY: &str = "checkpoint.key";
const NEW_MANIFEST: &str = "manifest.json.new";
/// The hash of the manifest, in the format of `sha256sum`.
const MANIFEST_SHA256: &str = "manifest.sha256";
/// The largest manifest that is read: millions of runs.
const MAX_BYTES: u64 = 1 << 30;

/// The content of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BackupManifest {
    pub(crate) format: u32,
    /// The version of the program that wrote it.
    pub(crate) version: String,
    /// The position among the backups of its folder, counted from 1.
    pub(crate) number: u64,
    pub(crate) created_at: String,
    /// The version of the schema of the rows.
    pub(crate) schema: usize,
    /// The instance of the service that the database belonged to.
    pub(crate) instance: Option<String>,
    /// The files in the backup's own folder.
    pub(crate) files: Vec<NamedFile>,
    pub(crate) runs: Vec<SavedArchive>,
}

/// The archive of a run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SavedArchive {
    pub(crate) run_id: RunId,
    pub(crate) archive: SavedContent,
    /// How the run ended before its files were copied. The archive has its rows alone then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<RunEnd>,
}

/// How a run ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RunEnd {
    /// It was deleted.
    Deleted,
    /// It was archived.
    Archived(ArchivedRun),
}

/// A run that was archived, as the record of its archive says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ArchivedRun {
    pub(crate) run_id: RunId,
    pub(crate) archived_at: String,
    pub(crate) archive_uri: String,
    /// The hash of the archive.
    pub(crate) sha256: Sha256,
    /// The number of the last archived record.
    pub(crate) head_seq: u64,
    /// The hash of that record.
    pub(crate) head_hash: Sha256,
}

/// The part of a manifest that every version of the layout has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// A file in the backup's own folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NamedFile {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) content: SavedContent,
}

impl BackupManifest {
    /// Writes the manifest into the backup's folder. From then on the folder is a backup.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the manifest would be too large to be read.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        self.write_within(folder, MAX_BYTES)
    }

    fn write_within(&self, folder: &Path, max_bytes: u64) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        if bytes.len() as u64 > max_bytes {
            return Err(io::Error::other(format!(
                "{MANIFEST} would have {} bytes, and at most {max_bytes} are read: archive or delete runs, and repeat the backup",
                bytes.len()
            )));
        }
        let sum = format!("{}  {MANIFEST}\n", Sha256::of(&bytes));
        for (name, bytes) in [(MANIFEST_SHA256, sum.as_bytes()), (NEW_MANIFEST, &bytes)] {
            let mut file = File::create(folder.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        File::open(folder)?.sync_all()?;
        failpoint::hit("backup.manifest");
        std::fs::rename(folder.join(NEW_MANIFEST), folder.join(MANIFEST))?;
        File::open(folder)?.sync_all()
    }

    /// Reads the manifest of a backup. Returns `None` if the folder has none.
    ///
    /// # Errors
    ///
    /// If it cannot be read, was changed, or belongs to another version of the layout.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(folder.join(MANIFEST)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        if file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 > MAX_BYTES {
            return Err(io::Error::other(format!("{MANIFEST} is larger than {MAX_BYTES} bytes")));
        }
        let mut sum = String::new();
        File::open(folder.join(MANIFEST_SHA256))?.take(256).read_to_string(&mut sum)?;
        if sum.split_whitespace().next() != Some(&Sha256::of(&bytes).to_string()) {
            return Err(io::Error::other(format!(
                "{MANIFEST} was changed: it does not have the hash in {MANIFEST_SHA256}"
            )));
        }
        let Format { format } = serde_json::from_slice(&bytes)?;
        if format != FORMAT {
            return Err(io::Error::other(format!("it has format {format}; this program reads format {FORMAT}")));
        }
        let manifest: Self = serde_json::from_slice(&bytes)?;
        let is_inside = |name: &String| Path::new(name).file_name() == Some(OsStr::new(name));
        match manifest.files.iter().find(|file| !is_inside(&file.name)) {
            Some(file) => {
                Err(io::Error::other(format!("{MANIFEST} names `{}`, which is no file of the backup", file.name)))
            }
            None => Ok(Some(manifest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_could_not_be_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = BackupManifest {
            format: FORMAT,
            version: "1".to_owned(),
            number: 1,
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            schema: 1,
            instance: None,
            files: Vec::new(),
            runs: Vec::new(),
        };
        let size = serde_json::to_vec(&manifest).unwrap().len() as u64;
        let refused = manifest.write_within(folder.path(), size - 1).unwrap_err().to_string();
        assert!(refused.contains("archive or delete runs"), "{refused}");
        assert!(BackupManifest::read(folder.path()).unwrap().is_none(), "it was written");
        manifest.write_within(folder.path(), size).unwrap();
        assert!(BackupManifest::read(folder.path()).unwrap().is_some());
    }
}
