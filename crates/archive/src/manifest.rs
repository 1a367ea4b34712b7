//! The manifest of an archive, and the name of its file.

use std::fmt;

use model::{RunId, Sha256};
use serde::{Deserialize, Serialize};

/// The format of the archives that this version writes and reads.
pub const FORMAT: &str = "workspaced-archive/1";
/// The first member.
pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const RUN: &str = "run.json";
pub(crate) const KEY_CHANGES: &str = "key_changes.txt";
pub(crate) const PROOF: &str = "proof.json";
pub(crate) const RECORDS: &str = "records.jsonl.zst";
pub(crate) const APPROVALS: &str = "approvals.jsonl.zst";
pub(crate) const DATA: &str = "data.tar.zst";
pub(crate) const FILES: &str = "files.tar.zst";
pub(crate) const ABSENT: &str = "absent.txt.zst";
/// The members after the manifest, in order.
pub(crate) const MEMBERS: [&str; 8] = [RUN, KEY_CHANGES, PROOF, RECORDS, APPROVALS, DATA, FILES, ABSENT];
/// The members that an archive may lack: of a log whose key was never changed, of a run that never had files, and of one of which
/// nothing is absent.
pub(crate) const OPTIONAL: [&str; 3] = [KEY_CHANGES, FILES, ABSENT];

/// What an archive contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// The run.
    pub run_id: RunId,
    /// `seq` of its last record in the archive.
    pub head_seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
    /// The other members, in order.
    pub members: Vec<Member>,
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its size as it is in the archive, compressed or not.
    pub bytes: u64,
    /// The hash of these bytes.
    pub sha256: Sha256,
}

/// The name of an archive's file: `RUN.SHA256.tar`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveName {
    /// The run.
    pub run_id: RunId,
    /// The hash of the file.
    pub sha256: Sha256,
}

impl ArchiveName {
    /// Parses a name; `None` if it is not that of an archive.
    pub fn parse(name: &str) -> Option<Self> {
        let (run, hash) = name.strip_suffix(".tar")?.rsplit_once('.')?;
        Some(Self { run_id: RunId::parse(run).ok()?, sha256: Sha256::parse(hash).ok()? })
    }
}

impl fmt::Display for ArchiveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.tar", self.run_id, self.sha256)
    }
}
