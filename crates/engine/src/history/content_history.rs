//! Earlier versions of a run's files, from the ledger and from the base.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Record, Sha256};
use workspace::WorkspaceError;

use crate::CallError;
use crate::engine::Engine;
use crate::history::content_integrity::verified;
use crate::history::snapshot::large_content;
use crate::run::open_run::OpenRun;
use crate::tool::earlier_calls::StoredContent;

/// The largest file of the base that is loaded.
const MAX_BASE_BYTES: u64 = 16 << 20;
/// The most versions of a file that are searched, newest first.
const MAX_VERSIONS: usize = 200;

impl Engine {
    /// Returns the content `sha256` of the file at `path`, as a call up to the record `at_seq` or the base left it.
    ///
    /// Policy is not checked: a caller that shows the content must judge it first.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn stored_content(
        &self,
        run: &Arc<OpenRun>,
        path: &LogicalPath,
        sha256: Sha256,
        at_seq: u64,
    ) -> Result<StoredContent, CallError> {
        let ledger = &self.ledger;
        let (mut at_seq, mut found) = (at_seq, StoredContent::Unknown);
        for _ in 0..MAX_VERSIONS {
            let Some(stored) = ledger.last_change(&run.run_id, path, at_seq).await? else { break };
            let record = parse(&stored.text)?;
            let written = record.files.iter().find(|file| file.path == *path).and_then(|file| file.new_sha256);
            if written == Some(sha256) {
                match ledger.content(&run.run_id, record.seq, &sha256).await? {
                    Some(bytes) => {
                        let content = verified(bytes, &run.run_id, record.seq, &sha256);
                        return content
                            .map(StoredContent::Bytes)
                            .map_err(|damaged| CallError::Internal(Box::new(damaged)));
                    }
                    None => match large_content(self.objects.as_ref(), sha256).await? {
                        Some(bytes) => return Ok(StoredContent::Bytes(bytes)),
                        None => found = StoredContent::TooLarge,
                    },
                }
            }
            at_seq = record.seq.saturating_sub(1);
        }
        let (run, path) = (Arc::clone(run), path.clone());
        let base = self.blocking(move || base_version(&run, &path, sha256)).await?;
        Ok(base.unwrap_or(found))
    }
}

fn base_version(run: &OpenRun, path: &LogicalPath, sha256: Sha256) -> Result<Option<StoredContent>, CallError> {
    match run.workspace.base_file(&run.rules, path, MAX_BASE_BYTES, &AtomicBool::new(false)) {
        Ok(Some((state, bytes))) if state.sha256 == sha256 => Ok(Some(StoredContent::Bytes(bytes))),
        Ok(_) => Ok(None),
        // Whether it has the wanted hash makes no difference.
        Err(WorkspaceError::Io(error)) if error.kind() == io::ErrorKind::FileTooLarge => {
            Ok(Some(StoredContent::TooLarge))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// Parses the stored text of a record.
///
/// # Errors
///
/// If the text is not a record.
pub fn parse(text: &str) -> Result<Record, CallError> {
    serde_json::from_str(text).map_err(|error| CallError::Internal(Box::new(error)))
}
