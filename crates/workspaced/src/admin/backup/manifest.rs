//! The manifest of a backup: every file with its size and its hash. A folder without one is no backup.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a backup is outside of the data folder, in a folder that the operator names"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use model::{LogicalPath, RunId, Sha256};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use workspace::{RunEntry, RunEntryKind};

/// The version of the layout of backups.
pub(in crate::admin) const FORMAT: u32 = 1;
/// The manifest of a backup, which is written last.
pub(in crate::admin) const MANIFEST: &str = "manifest.json";
const NEW_MANIFEST: &str = "manifest.json.new";
/// The hash of the manifest, in the format of `sha256sum`.
const MANIFEST_SHA256: &str = "manifest.sha256";
/// The largest manifest that is read: millions of files.
const MAX_BYTES: u64 = 1 << 30;
/// What a path is escaped by. Bytes that are not ASCII are escaped in any case.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The content of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::admin) struct BackupManifest {
    pub(in crate::admin) format: u32,
    /// The version of the program that wrote it.
    pub(in crate::admin) version: String,
    /// The position among the backups of its folder, counted from 1; 0 in those of earlier versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(in crate::admin) number: u64,
    pub(in crate::admin) created_at: String,
    pub(in crate::admin) database: DatabaseKind,
    /// The instance of the service that the database belonged to.
    pub(in crate::admin) instance: Option<String>,
    /// The files in the backup's own folder.
    pub(in crate::admin) files: Vec<NamedFile>,
    pub(in crate::admin) runs: Vec<SavedRun>,
    /// The runs of the copied database that were deleted before their files were copied.
    pub(in crate::admin) deleted: Vec<RunId>,
    /// The runs of the copied database that were archived before their files were copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::admin) archived: Vec<ArchivedRun>,
}

/// A run that was archived, as the record of its archive says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::admin) struct ArchivedRun {
    pub(in crate::admin) run_id: RunId,
    pub(in crate::admin) archived_at: String,
    pub(in crate::admin) archive_uri: String,
    /// The hash of the archive.
    pub(in crate::admin) sha256: Sha256,
    /// The number of the last archived record.
    pub(in crate::admin) head_seq: u64,
    /// The hash of that record.
    pub(in crate::admin) head_hash: Sha256,
}

/// The part of a manifest that every version of the layout has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) enum DatabaseKind {
    /// A copy of the database file.
    Sqlite,
    /// An archive of `pg_dump`.
    Postgres,
}

/// A file in the backup's own folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) struct NamedFile {
    pub(in crate::admin) name: String,
    #[serde(flatten)]
    pub(in crate::admin) content: SavedContent,
}

/// The identity of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::admin) struct SavedContent {
    pub(in crate::admin) sha256: Sha256,
    /// In bytes.
    pub(in crate::admin) size: u64,
}

/// A run's files, except those that the base and the ledger have.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::admin) struct SavedRun {
    pub(in crate::admin) run_id: RunId,
    /// The number of the run's newest record in the copied database.
    pub(in crate::admin) head_seq: u64,
    /// Its base, its artifacts, the contents that wait for approval, and the entries of its tree that neither the base nor the ledger has.
    pub(in crate::admin) entries: Vec<SavedEntry>,
    /// Contents of the tree that were too large for the ledger.
    pub(in crate::admin) contents: Vec<SavedContent>,
    /// Whether the whole tree is in `entries`, because it is not what the ledger says.
    pub(in crate::admin) is_whole_tree: bool,
    /// Files whose content was found nowhere.
    pub(in crate::admin) missing: Vec<LogicalPath>,
    /// Why a part of the run could not be read.
    pub(in crate::admin) problem: Option<String>,
}

/// An entry of a run's folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(in crate::admin) enum SavedEntry {
    /// A regular file.
    File {
        path: String,
        mode: u32,
        #[serde(flatten)]
        content: SavedContent,
        /// The stamp under which the file had this content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stamp: Option<String>,
    },
    /// A symbolic link.
    Link { path: String, target: String },
    /// A folder.
    Folder { path: String },
}

impl SavedEntry {
    /// Returns the saved form of an entry. `content` is that of a file.
    pub(in crate::admin) fn new(entry: &RunEntry, content: Option<(SavedContent, Option<String>)>) -> Option<Self> {
        let path = escape(&entry.path);
        Some(match (&entry.kind, content) {
            (RunEntryKind::File { mode }, Some((content, stamp))) => Self::File { path, mode: *mode, content, stamp },
            (RunEntryKind::File { .. }, None) => return None,
            (RunEntryKind::Link { target }, _) => Self::Link { path, target: escape(target) },
            (RunEntryKind::Folder, _) => Self::Folder { path },
        })
    }

    /// Returns the entry as it is written, and the content of a file.
    pub(in crate::admin) fn entry(&self) -> (RunEntry, Option<SavedContent>) {
        let (path, kind, content) = match self {
            Self::File { path, mode, content, .. } => (path, RunEntryKind::File { mode: *mode }, Some(*content)),
            Self::Link { path, target } => (path, RunEntryKind::Link { target: unescape(target) }, None),
            Self::Folder { path } => (path, RunEntryKind::Folder, None),
        };
        (RunEntry { path: unescape(path), kind }, content)
    }

    /// Returns whether the entry is in the run's tree, or is its root.
    pub(in crate::admin) fn is_in_tree(&self) -> bool {
        let (Self::File { path, .. } | Self::Link { path, .. } | Self::Folder { path }) = self;
        path == "repo" || path.starts_with("repo/")
    }
}

impl BackupManifest {
    /// Returns what sorts the backups of a folder by age. The clock may have been set back between two of them, so time is compared
    /// last: after the number, and after the count of the service's starts, which orders the backups of earlier versions.
    pub(in crate::admin) fn age_key(&self) -> (u64, u64, &str) {
        let starts = self.instance.as_deref().and_then(|instance| instance.split_once(' '));
        (self.number, starts.and_then(|(count, _)| count.parse().ok()).unwrap_or(0), &self.created_at)
    }

    /// Returns every content that is in the shared folder of objects.
    pub(in crate::admin) fn objects(&self) -> impl Iterator<Item = SavedContent> {
        self.runs.iter().flat_map(|run| {
            let entries = run.entries.iter().filter_map(|entry| match entry {
                SavedEntry::File { content, .. } => Some(*content),
                SavedEntry::Link { .. } | SavedEntry::Folder { .. } => None,
            });
            entries.chain(run.contents.iter().copied())
        })
    }

    /// Returns the contents of files by their stamps.
    pub(in crate::admin) fn stamps(&self) -> HashMap<String, SavedContent> {
        let entries = self.runs.iter().flat_map(|run| &run.entries);
        let stamps = entries.filter_map(|entry| match entry {
            SavedEntry::File { content, stamp: Some(stamp), .. } => Some((stamp.clone(), *content)),
            SavedEntry::File { .. } | SavedEntry::Link { .. } | SavedEntry::Folder { .. } => None,
        });
        stamps.collect()
    }

    /// Writes the manifest into the backup's folder. From then on the folder is a backup.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the manifest would be too large to be read.
    pub(in crate::admin) fn write(&self, folder: &Path) -> io::Result<()> {
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
    pub(in crate::admin) fn read(folder: &Path) -> io::Result<Option<Self>> {
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
        Ok(Some(serde_json::from_slice(&bytes)?))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn escape(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

fn unescape(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
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
            database: DatabaseKind::Sqlite,
            instance: None,
            files: Vec::new(),
            runs: Vec::new(),
            deleted: Vec::new(),
            archived: Vec::new(),
        };
        let size = serde_json::to_vec(&manifest).unwrap().len() as u64;
        let refused = manifest.write_within(folder.path(), size - 1).unwrap_err().to_string();
        assert!(refused.contains("archive or delete runs"), "{refused}");
        assert!(BackupManifest::read(folder.path()).unwrap().is_none(), "it was written");
        manifest.write_within(folder.path(), size).unwrap();
        assert!(BackupManifest::read(folder.path()).unwrap().is_some());
    }
}
