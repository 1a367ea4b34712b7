//! Earlier versions of a run's files, from the ledger and from the base, checked by their hashes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use ledger::JournalEntry;
use model::{LogicalPath, Record, RunId, Sha256, StepBytes};
use workspace::WorkspaceError;

use crate::CallError;
use crate::engine::Engine;
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
    match run.workspace.base_file(&run.rules, path, MAX_BASE_BYTES) {
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

/// The stored content differs from the hash in its record: it was changed in the ledger.
#[derive(Debug, thiserror::Error)]
#[error("the stored content of record {seq} of {run} does not match its hash {sha256}")]
pub(crate) struct Damaged {
    run: RunId,
    seq: u64,
    sha256: Sha256,
}

/// Returns `bytes` if they are the content `sha256` of record `seq`.
///
/// # Errors
///
/// If they are not.
pub(crate) fn verified(bytes: Vec<u8>, run: &RunId, seq: u64, sha256: &Sha256) -> Result<Vec<u8>, Damaged> {
    if Sha256::of(&bytes) == *sha256 {
        return Ok(bytes);
    }
    Err(Damaged { run: run.clone(), seq, sha256: *sha256 })
}

/// Returns the first journal step whose stored content differs from its hash. Staged files are not checked: they are in
/// the run's folder, not in the ledger.
pub(crate) fn damaged_step(open: &[JournalEntry]) -> Option<Damaged> {
    let steps = open.iter().flat_map(|open| open.steps.iter().map(move |step| (open, step)));
    let mut contents = steps.filter_map(|(open, step)| Some((open, step.after.as_ref()?)));
    contents.find_map(|(open, content)| match &content.bytes {
        StepBytes::Inline(bytes) if Sha256::of(bytes) != content.sha256 => {
            Some(Damaged { run: open.run_id.clone(), seq: open.seq, sha256: content.sha256 })
        }
        StepBytes::Inline(_) | StepBytes::Staged(_) => None,
    })
}

/// The most bytes of contents that one call loads.
const MAX_CONTENTS_BYTES: usize = 16 << 20;
/// No record has a higher number.
const NEWEST: u64 = i64::MAX as u64;

impl Engine {
    /// Returns the contents that the audit has of the files at `paths`, as many as may be held in memory.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn recorded_contents(
        &self,
        run: &Arc<OpenRun>,
        paths: Vec<LogicalPath>,
    ) -> Result<BTreeMap<LogicalPath, (Sha256, StoredContent)>, CallError> {
        let mut versions = Vec::with_capacity(paths.len());
        for path in paths {
            let (open_run, at) = (Arc::clone(run), path.clone());
            let known = self.blocking(move || Ok(open_run.known.file(open_run.workspace.base(), &at)?)).await?;
            versions.extend(known.map(|known| (path, known.sha256)));
        }
        self.contents_of(run, versions).await
    }

    /// Returns the contents of these versions of files, as many as may be held in memory.
    ///
    /// # Errors
    ///
    /// If the ledger or the disk fails.
    pub(crate) async fn contents_of(
        &self,
        run: &Arc<OpenRun>,
        versions: Vec<(LogicalPath, Sha256)>,
    ) -> Result<BTreeMap<LogicalPath, (Sha256, StoredContent)>, CallError> {
        let (mut contents, mut remaining) = (BTreeMap::new(), MAX_CONTENTS_BYTES);
        for (path, sha256) in versions {
            let content = match self.stored_content(run, &path, sha256, NEWEST).await? {
                StoredContent::Bytes(bytes) if bytes.len() > remaining => StoredContent::TooLarge,
                content => content,
            };
            if let StoredContent::Bytes(bytes) = &content {
                remaining -= bytes.len();
            }
            contents.insert(path, (sha256, content));
        }
        Ok(contents)
    }
}
