//! A run of workspaced at rest: one file.
//!
//! The file is a tar archive. Its first member, `manifest.json`, has the run, the head of its chain, and the size and hash of
//! each other member; text is JSON, or one JSON value in each line (`.jsonl`), and larger members are compressed by zstd. There are two
//! kinds. The archive of a closed run proves itself: it has the records, the data and the files of the run, and the proof that a signed
//! checkpoint covers them:
//!
//! | member | content |
//! |---|---|
//! | `run.json` | the run, as the API returned it |
//! | `key_changes.txt` | the statements about changes of the log's key up to the checkpoint of the proof, as the API returns them; missing if there are none |
//! | `proof.json` | the proof that a checkpoint covers the last record, as the API returns it |
//! | `records.jsonl.zst` | the records, in order, as they were hashed |
//! | `approvals.jsonl.zst` | the approvals, each with the input of its call |
//! | `data.tar.zst` | `contents/SEQ/SHA256`, `diffs/ARTIFACT`, `uploads/SHA256`, `replies/SEQ.json` |
//! | `files.tar.zst` | `repo/`, the tree; `base.manifest` and `base.git/`, what the run started from (`base/` if it does not come from git); `artifacts/`, the files that other programs kept with the run |
//! | `absent.txt.zst` | the names that contents and uploads would have in the data, a line each, which neither the data nor the tree contains; missing if there are none |
//!
//! A content that is in the data of its record, or is a file of the tree, is in the archive.
//!
//! The archive of a run in a backup restores it, in any state:
//!
//! | member | content |
//! |---|---|
//! | `rows.zst` | the rows of the run in the database, as either kind of database writes and reads them |
//! | `entries.jsonl.zst` | what the run's folder has besides the rows: in the first line what is missing, then a line for each entry; files are named by the hash of their content, which archives share |
//!
//! The same run gives the same bytes: the file has no owners and times. Its name contains its hash.
//!
//! The law of this crate: it reads and writes what its caller passes. No database, no HTTP, no async. An outside
//! verifier needs this crate and nothing of the service.

mod entries;
mod error;
mod hashing;
mod manifest;
mod member;
mod named;
mod unpack;
mod verify;
mod write;

pub use error::ArchiveError;
pub use manifest::{
    ABSENT, APPROVALS, ArchiveName, DATA, ENTRIES, FILES, FORMAT, KEY_CHANGES, Manifest, Member, PROOF, RECORDS, ROWS,
    RUN,
};
pub use member::open_member;
pub use unpack::{Unpacked, unpack};
pub use verify::{ArchiveReport, MAX_UNPACKED_BYTES, verify};
pub use write::{ArchiveWriter, DataFile, FinishedArchive, Part};
