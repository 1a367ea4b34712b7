//! Bytes that the ledger keeps beside its records: the chain covers their hashes, and nothing but these covers them.

use ledger::JournalEntry;
use model::{RunId, Sha256, StepBytes};

/// The ledger keeps other bytes than a record has left: somebody has changed them there.
#[derive(Debug, thiserror::Error)]
#[error("the ledger keeps other bytes than record {seq} of {run} has left under {sha256}")]
pub struct Damaged {
    run: RunId,
    seq: u64,
    sha256: Sha256,
}

/// `bytes`, if they are what the record `seq` has left under `sha256`.
///
/// # Errors
///
/// Where they are not.
pub fn sound(bytes: Vec<u8>, run: &RunId, seq: u64, sha256: &Sha256) -> Result<Vec<u8>, Damaged> {
    if Sha256::of(&bytes) == *sha256 {
        return Ok(bytes);
    }
    Err(Damaged { run: run.clone(), seq, sha256: *sha256 })
}

/// The first pending step whose bytes are not those that its record has left. What is staged in a file is not looked at:
/// it lies in the run's folder, not in the ledger.
pub fn damaged_step(open: &[JournalEntry]) -> Option<Damaged> {
    let steps = open.iter().flat_map(|open| open.steps.iter().map(move |step| (open, step)));
    let mut contents = steps.filter_map(|(open, step)| Some((open, step.after.as_ref()?)));
    contents.find_map(|(open, content)| match &content.bytes {
        StepBytes::Inline(bytes) if Sha256::of(bytes) != content.sha256 => {
            Some(Damaged { run: open.run_id.clone(), seq: open.seq, sha256: content.sha256 })
        }
        StepBytes::Inline(_) | StepBytes::Staged(_) => None,
    })
}
