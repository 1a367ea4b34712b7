//! Integrity of the contents that the ledger stores beside its records. Only their hashes are in the chain.

use ledger::JournalEntry;
use model::{RunId, Sha256, StepBytes};

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
