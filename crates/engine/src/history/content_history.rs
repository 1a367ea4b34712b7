//! Earlier versions of a run's files: from the ledger, which keeps what calls have written, and from the base.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Record, Sha256};
use workspace::WorkspaceError;

use crate::engine::{Engine, OpenRun};
use crate::{CallError, history::snapshot};

/// The largest file of the base that is brought into memory.
const MAX_BASE_BYTES: u64 = 16 << 20;
/// So many versions of a file are looked through, the newest first.
const MAX_LOOKS: usize = 200;

/// A version of a file, as far as it is still known.
#[derive(Debug)]
pub enum Version {
    /// Its bytes.
    Kept(Vec<u8>),
    /// It was too large to be kept.
    TooLarge,
    /// Neither the ledger nor the base has it: it came from outside.
    Unknown,
}

impl Engine {
    /// The version `sha256` of the file at `path`, which a call up to the record `at_seq` has left, or the base.
    ///
    /// Policy has not been asked: whoever shows it judges it first.
    ///
    /// # Errors
    ///
    /// Where the ledger or the disk fails.
    pub async fn version(
        &self,
        live: &Arc<OpenRun>,
        path: &LogicalPath,
        sha256: Sha256,
        at_seq: u64,
    ) -> Result<Version, CallError> {
        let ledger = &self.ledger;
        let (mut at_seq, mut found) = (at_seq, Version::Unknown);
        for _ in 0..MAX_LOOKS {
            let Some(stored) = ledger.last_change(&live.run_id, path, at_seq).await? else { break };
            let record = parse(&stored.text)?;
            let left = record.files.iter().find(|file| file.path == *path).and_then(|file| file.new_sha256);
            if left == Some(sha256) {
                match ledger.content(&live.run_id, record.seq, &sha256).await? {
                    Some(bytes) => {
                        let sound = snapshot::sound(bytes, &live.run_id, record.seq, &sha256);
                        return sound.map(Version::Kept).map_err(|damaged| CallError::Internal(Box::new(damaged)));
                    }
                    None => found = Version::TooLarge,
                }
            }
            at_seq = record.seq.saturating_sub(1);
        }
        let (run, path) = (Arc::clone(live), path.clone());
        let base = self.blocking(move || base_version(&run, &path, sha256)).await?;
        Ok(base.unwrap_or(found))
    }
}

fn base_version(live: &OpenRun, path: &LogicalPath, sha256: Sha256) -> Result<Option<Version>, CallError> {
    match live.workspace.base_file(&live.rules, path, MAX_BASE_BYTES, &AtomicBool::new(false)) {
        Ok(Some((state, bytes))) if state.sha256 == sha256 => Ok(Some(Version::Kept(bytes))),
        Ok(_) => Ok(None),
        // Whether it is the one that is wanted makes no difference.
        Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::FileTooLarge => Ok(Some(Version::TooLarge)),
        Err(fault) => Err(fault.into()),
    }
}

/// A record from its stored text.
///
/// # Errors
///
/// Where the text is none.
pub fn parse(text: &str) -> Result<Record, CallError> {
    serde_json::from_str(text).map_err(|error| CallError::Internal(Box::new(error)))
}
