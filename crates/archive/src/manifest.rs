//! The manifest of an archive, and the name of its file.

use std::fmt;

use model::{RunId, Sha256};
use serde::{Deserialize, Serialize};

/// The format of the archives that this version writes and reads.
pub const FORMAT: &str = "workspaced-archive/1";
/// The first member.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The run. The table in the [crate] says what each member contains.
pub const RUN: &str = "run.json";
/// Changes of the key; left out if there are none.
pub const KEY_CHANGES: &str = "key_changes.txt";
/// The proof.
pub const PROOF: &str = "proof.json";
/// The records.
pub const RECORDS: &str = "records.jsonl.zst";
/// The approvals.
pub const APPROVALS: &str = "approvals.jsonl.zst";
/// The data of the records: [`Part::add_file`](crate::Part::add_file) adds to it.
pub const DATA: &str = "data.tar.zst";
/// The files; left out if the run never had any.
pub const FILES: &str = "files.tar.zst";
/// What is [absent](crate::ArchiveReport::absent); left out if nothing is.
pub const ABSENT: &str = "absent.txt.zst";
/// The rows.
pub const ROWS: &str = "rows.zst";
/// The entries of the run's folder.
pub const ENTRIES: &str = "entries.jsonl.zst";
/// The members after the manifest of an archive that proves itself, in order.
const EVIDENCE: [&str; 8] = [RUN, KEY_CHANGES, PROOF, RECORDS, APPROVALS, DATA, FILES, ABSENT];
/// The members after the manifest of an archive that restores the run, in order.
const STATE: [&str; 2] = [ROWS, ENTRIES];
/// The members that an archive may lack: of a log whose key was never changed, of a run that never had files, and of one of which
/// nothing is absent.
const OPTIONAL: [&str; 3] = [KEY_CHANGES, FILES, ABSENT];

/// Whether the member with this name is compressed.
pub(crate) fn is_compressed(name: &str) -> bool {
    ![RUN, KEY_CHANGES, PROOF].contains(&name)
}

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

impl Manifest {
    /// Whether the archive has the members that prove what is in it.
    pub(crate) fn is_evidence(&self) -> bool {
        let has = |name: &&str| self.members.iter().any(|member| member.name == **name);
        self.names().eq(EVIDENCE.iter().filter(|name| has(name) || !OPTIONAL.contains(name)).copied())
    }

    /// Whether the members are those of this format.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_evidence() || self.names().eq(STATE)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }
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
