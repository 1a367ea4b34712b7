//! Checks that journal steps match their records, and that these records are in the chain up to its head. If not, the journal
//! was modified, and nothing of it is applied.

use std::collections::HashMap;

use ledger::{JournalEntry, Ledger};
use model::{ChainCheck, Outcome, Record, RunId, Sha256, Step};

use crate::CallError;
use crate::history::content_history;

/// Records that are read at a time.
const PAGE: u32 = 500;

/// The first journal entry that does not match its record.
#[derive(Debug, thiserror::Error)]
#[error("the journal of {run} does not match record {seq}: {problem}")]
pub(crate) struct JournalMismatch {
    run: RunId,
    seq: u64,
    problem: String,
}

/// Finds the first entry of `open` that does not match its record; `head` is that of the run's chain.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn find_mismatch(
    ledger: &dyn Ledger,
    run: &RunId,
    open: &[JournalEntry],
    head: (u64, Sha256),
) -> Result<Option<JournalMismatch>, CallError> {
    let Some(first) = open.iter().map(|open| open.seq).min() else { return Ok(None) };
    let found = |seq: u64, problem: &str| Some(JournalMismatch { run: run.clone(), seq, problem: problem.to_owned() });
    let before = match first.checked_sub(1) {
        None => return Ok(found(0, "the record does not exist")),
        Some(0) => Sha256::ZERO,
        Some(seq) => match record_before(ledger, run, seq).await? {
            Some(hash) => hash,
            None => return Ok(found(seq, "it is missing or has no hash")),
        },
    };
    let mut steps: HashMap<u64, &[Step]> = open.iter().map(|open| (open.seq, &open.steps[..])).collect();
    let mut check = ChainCheck::after(run, first - 1, before);
    while check.next_seq() <= head.0 {
        let page = ledger.record_range(run, check.next_seq(), head.0, PAGE.into()).await?;
        for stored in page.iter() {
            let seq = check.next_seq();
            if !check.push(&stored.text) {
                break;
            }
            if let Some(steps) = steps.remove(&seq)
                && !content_history::parse(&stored.text).is_ok_and(|record| says(&record, steps))
            {
                return Ok(found(seq, "its files differ from those of the journal"));
            }
        }
        if page.is_empty() || check.clone().end().first_break.is_some() {
            break;
        }
    }
    let report = check.finish(head);
    Ok(match (report.first_break, steps.keys().min()) {
        (Some(broken), _) => found(broken.seq, &broken.problem),
        (None, Some(seq)) => found(*seq, "the record does not exist"),
        (None, None) => None,
    })
}

/// Returns the hash in record `seq`.
async fn record_before(ledger: &dyn Ledger, run: &RunId, seq: u64) -> Result<Option<Sha256>, CallError> {
    let stored = ledger.record(run, seq).await?;
    Ok(stored.and_then(|stored| content_history::parse(&stored.text).ok()).and_then(|record| record.hash))
}

/// Whether the files of a record are those that `steps` write.
fn says(record: &Record, steps: &[Step]) -> bool {
    let is_said = |step: &Step| {
        let after = step.after.as_ref().map(|content| content.sha256);
        let same = |file: &model::RecordFile| {
            (&file.path, file.old_sha256, file.new_sha256) == (&step.path, step.before, after)
        };
        record.files.iter().any(same) && record.paths_written.contains(&step.path)
    };
    record.mutates && record.outcome == Outcome::Ok && steps.iter().all(is_said)
}
