//! Earlier calls that a plan needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{RecordFilter, RecordReader};
use model::{Code, LogicalPath, Outcome, Record, Refusal, RunId, Sha256, ToolCallId, judge_file_count};

use crate::CallError;
use crate::engine::Engine;
use crate::history::content_history;
use crate::history::snapshot::diff_of;
use crate::run::changes::Changes;
use crate::run::open_run::OpenRun;
use crate::tool::earlier_calls::{
    EarlierCall, EarlierCalls, EarlierCallsQuery, EarlierFile, StoredContent, changed_paths,
};
use crate::tools::apply_changeset::APPLY_CHANGESET;

/// The name of the tool that undoes calls.
const REVERT_CALLS: &str = "revert_calls";
/// The most bytes of earlier contents that one call loads.
const MAX_EARLIER_BYTES: usize = 64 << 20;
/// The most bytes of the earlier calls themselves: their files, with hashes and modes.
const MAX_CALLS_BYTES: usize = 16 << 20;
/// The approximate size of a call without its files, and of a file without its path, in bytes.
const ENTRY_BYTES: usize = 256;

impl Engine {
    /// Loads the mutations that `wanted` names and that have changed files, with the contents of these files before the first
    /// of them.
    ///
    /// # Errors
    ///
    /// If they cannot be loaded, or are too many to be undone.
    pub(crate) async fn earlier_calls(
        &self,
        open_run: &Arc<OpenRun>,
        actor: &str,
        wanted: EarlierCallsQuery,
    ) -> Result<EarlierCalls, CallError> {
        let run = &open_run.run_id;
        let mut calls = match wanted {
            EarlierCallsQuery::Calls(ids) => named(self, run, &ids).await?,
            EarlierCallsQuery::After(seq) => all_after(self, run, seq).await?,
            EarlierCallsQuery::Last(count) => last_of(self, run, actor, count, false).await?,
            EarlierCallsQuery::LastEdit => last_of(self, run, actor, 1, true).await?,
        };
        let paths = changed_paths(&calls);
        let refusal = if calls.iter().any(|call| call.is_of_command) {
            judge_file_count(&open_run.rules.of_command(), &paths)
        } else {
            judge_file_count(&open_run.rules, &paths)
        };
        if let Some(refusal) = refusal {
            return Err(refusal.into());
        }
        let mut first: BTreeMap<&LogicalPath, (u64, Option<Sha256>)> = BTreeMap::new();
        for call in &calls {
            for file in &call.files {
                first.entry(&file.path).or_insert((call.seq, file.old_sha256));
            }
        }
        let (mut files, mut remaining) = (Vec::new(), MAX_EARLIER_BYTES);
        for (path, (seq, sha256)) in first {
            let Some(sha256) = sha256 else { continue };
            let content = match self.stored_content(open_run, path, sha256, seq.saturating_sub(1)).await? {
                StoredContent::Bytes(bytes) if bytes.len() > remaining => StoredContent::TooLarge,
                content => content,
            };
            if let StoredContent::Bytes(bytes) = &content {
                remaining -= bytes.len();
            }
            files.push(EarlierFile { path: path.clone(), sha256, content });
        }
        if files.iter().any(|file| !matches!(file.content, StoredContent::Bytes(_))) {
            // Contents that are not stored may be restored from the present ones by undoing the diffs.
            load_diffs(self, run, &mut calls, remaining).await?;
        }
        Ok(EarlierCalls { calls, files })
    }
}

/// Returns the mutations with these `ids` that have changed files, oldest first.
async fn named(engine: &Engine, run: &RunId, ids: &[ToolCallId]) -> Result<Vec<EarlierCall>, CallError> {
    let mut found = BTreeMap::new();
    for id in ids {
        let Some(stored) = engine.ledger.call(run, id).await? else { continue };
        let record = content_history::parse(&stored.record)?;
        if has_changed_files(&record) {
            found.insert(record.seq, earlier_call(record));
        }
    }
    Ok(found.into_values().collect())
}

/// Returns the last `count` mutations of `actor` that have changed files, oldest first. `are_edits` leaves out each undoing, with the
/// one that it has undone.
async fn last_of(
    engine: &Engine,
    run: &RunId,
    actor: &str,
    count: usize,
    are_edits: bool,
) -> Result<Vec<EarlierCall>, CallError> {
    let filter = RecordFilter {
        run: Some(run.clone()),
        outcome: Some("ok".to_owned()),
        actor: Some(actor.to_owned()),
        newest_first: true,
        ..RecordFilter::default()
    };
    let (mut found, mut undone) = (Vec::new(), 0_u64);
    let mut records = RecordReader::new(engine.ledger.as_ref(), filter);
    while found.len() < count
        && let Some(stored) = records.next().await?
    {
        let record = content_history::parse(&stored.text)?;
        if !record.mutates || !has_changed_files(&record) {
            continue;
        }
        // A call that has undone several counts as one of one. What is found then has changed since, so that undoing it is refused.
        if are_edits && record.tool == REVERT_CALLS {
            undone += 1;
        } else if undone > 0 {
            undone -= 1;
        } else {
            found.push(earlier_call(record));
        }
    }
    found.reverse();
    Ok(found)
}

/// Returns the mutations after the record `since` that have changed files, oldest first. Records that are added meanwhile are
/// omitted, so that this ends.
async fn all_after(engine: &Engine, run: &RunId, since: u64) -> Result<Vec<EarlierCall>, CallError> {
    let until = engine.ledger.run(run).await?.map_or(0, |stored| stored.run.head_seq);
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut changes = Changes::after(engine.ledger.as_ref(), run, since);
    while let Some(record) = changes.next::<Record>().await?.filter(|record| record.seq <= until) {
        if !has_changed_files(&record) {
            continue;
        }
        let call = earlier_call(record);
        bytes += call.files.iter().map(|file| file.path.as_str().len() + ENTRY_BYTES).sum::<usize>() + ENTRY_BYTES;
        if bytes > MAX_CALLS_BYTES {
            return Err(too_many_calls().into());
        }
        found.push(call);
    }
    Ok(found)
}

/// Whether the record is of a successful mutation that has changed files.
fn has_changed_files(record: &Record) -> bool {
    record.outcome == Outcome::Ok && !record.paths_written.is_empty()
}

fn earlier_call(record: Record) -> EarlierCall {
    let is_of_command = record.tool == APPLY_CHANGESET.name;
    let Record { seq, tool_call_id, files, .. } = record;
    EarlierCall { seq, tool_call_id, files, is_of_command, diff: Vec::new() }
}

/// Loads the diffs of the newest of `calls`, as many as fit into `remaining` bytes.
async fn load_diffs(
    engine: &Engine,
    run: &RunId,
    calls: &mut [EarlierCall],
    mut remaining: usize,
) -> Result<(), CallError> {
    let ledger = engine.ledger.as_ref();
    for call in calls.iter_mut().rev() {
        let Some(stored) = ledger.record(run, call.seq).await? else { continue };
        let diff = diff_of(ledger, run, &content_history::parse(&stored.text)?).await?;
        if diff.len() > remaining {
            return Ok(());
        }
        remaining -= diff.len();
        call.diff = diff;
    }
    Ok(())
}

fn too_many_calls() -> Refusal {
    Refusal::new(
        Code::PatchBudgetExceeded,
        "the calls to undo have changed more files than can be undone at once",
        "Undo fewer calls at a time.",
    )
    .with_details(|details| details.reasons = vec!["undo:files".to_owned()])
}
