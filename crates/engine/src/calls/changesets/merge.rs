//! Merging a fork into the run that it was made from: what the fork has changed since then, or since it was merged last, is applied as
//! one change set.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use model::{LogicalPath, Refusal, RunId, RunState, is_link_mode};
use serde::Deserialize;
use serde_json::json;
use workspace::{ContentLocation, PackedFile, Snapshot, SnapshotFile, StoredContents, WorkspaceError, pack_layer};

use crate::CallError;
use crate::call::record::RecordedError;
use crate::call::{Answer, Call, Failed};
use crate::call_error::refusals::{run_not_found, run_not_open, run_without_files};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::calls::changesets::ParsedChangeset;
use crate::history::snapshot::{self, LedgerContents};
use crate::run::known_versions::FIRST_SEQ_OF_FORK;
use crate::run::open_run::OpenRun;
use crate::tool::changed_since::MergedFork;
use crate::tool::layer::Layer;
use crate::tools::apply_changeset::{APPLY_CHANGESET, OnDenied};
use crate::tools::write_file::merge::OnConflict;

/// A request to merge a fork.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"from": "issue-4711-b", "reason": "the second attempt passes the tests"}))]
pub struct MergeRequest {
    /// The fork, which may be closed.
    from: RunId,
    /// Why it is merged.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
    /// What happens to a file that both runs have changed: the merge is refused, or the changes are merged line by line.
    #[serde(default)]
    on_conflict: OnConflict,
    /// What happens if a file is denied: the merge is refused, or the file is left as it is and listed in the answer.
    #[serde(default)]
    on_denied: OnDenied,
    /// Whether the answer only says what would change.
    #[serde(default)]
    dry_run: bool,
}

/// What a merge applies.
struct PreparedMerge {
    fork: MergedFork,
    /// The record of the run at which the fork was made.
    at_seq: u64,
    layer: Layer,
}

impl Calls {
    /// Merges a fork into `run`, which it was made from. Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// The refusal, recorded: `INVALID_REQUEST` if it is no fork of the run, `RUN_CLOSED` if either run takes no part in it any more, or as
    /// for [`apply_changeset`](Self::apply_changeset). Nothing has changed then.
    #[boxed]
    pub async fn merge_run(&self, run: &RunId, caller: Caller, request: MergeRequest) -> Result<Answer, Failed> {
        let prepared = match Box::pin(self.prepare_merge(run, &request)).await {
            Ok(prepared) => Ok(prepared),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(error) => {
                let tool_call_id = Call::new(run, caller, &APPLY_CHANGESET).tool_call_id;
                return Err(Failed { tool_call_id, error: RecordedError::left_out(error) });
            }
        };
        let MergeRequest { from, reason, on_conflict, on_denied, dry_run } = request;
        let mut members = json!({
            "reason": reason, "dryRun": dry_run, "onConflict": on_conflict, "onDenied": on_denied, "from": { "runId": from },
        });
        if let Ok(PreparedMerge { fork, at_seq, layer }) = &prepared {
            members["from"] = json!(fork);
            members["basedOnSeq"] = json!(at_seq);
            members["layerSha256"] = json!(layer.sha256());
        }
        let members = members.as_object().cloned().unwrap_or_default();
        let (call, members) = Call::of(run, caller, &APPLY_CHANGESET, members);
        let (members, layer) = match prepared {
            Ok(prepared) => (members, Ok(prepared.layer)),
            Err(refusal) => (members.and(Err(refusal.clone())), Err(refusal)),
        };
        self.apply_set(ParsedChangeset::new(call, members), layer).await
    }

    /// Packs what the fork has changed since it was made or merged last.
    async fn prepare_merge(&self, run: &RunId, request: &MergeRequest) -> Result<PreparedMerge, CallError> {
        let from = &request.from;
        let (into, _) = self.engine.stored_run(run).await?;
        if !matches!(into.state, RunState::Open | RunState::AwaitingApproval) {
            return Err(run_not_open(into.state).into());
        }
        self.engine.stored_run(from).await.map_err(|error| error.about(from))?;
        // Waits until uncertain commits are decided.
        let fork = self.engine.ledger.settled_run(from).await?.ok_or_else(run_not_found)?.stored.run;
        let Some(parent) = fork.parent.as_ref().filter(|parent| parent.run_id == *run) else {
            let hint = "Name one of the run's `forks`. A fork is merged into the run that it was made from.";
            return Err(Refusal::invalid(format!("`{from}` is not a fork of `{run}`"), hint).into());
        };
        if matches!(fork.state, RunState::Preparing | RunState::Deleted) {
            return Err(CallError::from(run_without_files(fork.state)).about(from));
        }
        let base_seq = parent.merged_seq.unwrap_or(FIRST_SEQ_OF_FORK);
        let open_run = self.engine.open(run).await?;
        let ledger = &self.engine.ledger;
        // Both runs have the same base.
        let before = snapshot::load(ledger, from, open_run.workspace.base(), base_seq).await?;
        let after = snapshot::load(ledger, from, open_run.workspace.base(), fork.head_seq).await?;
        let contents = LedgerContents::of(Arc::clone(ledger), from.clone()).with_objects(self.engine.objects.clone());
        let packing = Arc::clone(&open_run);
        let permit = self.engine.write_permit().await;
        let layer = self.engine.blocking(move || pack_changes(&packing, &before, &after, &contents)).await?;
        drop(permit);
        let fork = MergedFork { run_id: from.clone(), seq: fork.head_seq, base_seq };
        Ok(PreparedMerge { fork, at_seq: parent.seq, layer })
    }
}

/// Packs the files that differ between two states of a fork of `run`, as a layer.
fn pack_changes(
    run: &OpenRun,
    before: &Snapshot,
    after: &Snapshot,
    contents: &dyn StoredContents,
) -> Result<Layer, CallError> {
    let mut changed: BTreeMap<&LogicalPath, Option<SnapshotFile>> = BTreeMap::new();
    let version = |file: SnapshotFile| (file.sha256, file.git_mode());
    for path in after.written() {
        let (old, new) = (before.get(path), after.get(path));
        let is_new = match new {
            Some(file) => old.map(version) != Some(version(file)) && !is_in(run, path, &file)?,
            None => old.is_some(),
        };
        if is_new {
            changed.insert(path, new);
        }
    }
    let mut not_stored = None;
    let packed = run.workspace.spool_written(|out| {
        let files = changed.into_iter().map(|(path, file)| {
            let Some(file) = file else { return (path, Ok(None)) };
            let packed = packed_file(run, path, (before.get(path), file), contents);
            let packed = packed.and_then(|packed| {
                packed.map(Some).ok_or_else(|| {
                    not_stored = Some(path.clone());
                    io::ErrorKind::NotFound.into()
                })
            });
            (path, packed)
        });
        pack_layer(files, out)
    });
    let spooled = match (packed, not_stored) {
        (Err(_), Some(path)) => return Err(content_not_stored(&path).into()),
        (packed, _) => packed?,
    };
    let mut space = run.disk.reservation();
    space.grow(spooled.size_bytes)?;
    Ok(Layer::spooled(spooled, space))
}

/// Whether the run already has the fork's version of the file at `path`, as after an upload of what the ledger does not keep.
fn is_in(run: &OpenRun, path: &LogicalPath, file: &SnapshotFile) -> io::Result<bool> {
    let known = run.known.file(run.workspace.base(), path)?;
    Ok(known.is_some_and(|known| known.sha256 == file.sha256 && known.mode.bits() == file.git_mode()))
}

/// Returns the file at `path` as it is now; `None` if its content is stored nowhere.
fn packed_file<'a>(
    run: &OpenRun,
    path: &LogicalPath,
    (before, now): (Option<SnapshotFile>, SnapshotFile),
    contents: &dyn StoredContents,
) -> io::Result<Option<PackedFile<'a>>> {
    let mut mode = now.git_mode();
    if !is_link_mode(mode) && before.is_some_and(|before| before.git_mode() == mode) {
        // The fork has not changed it, so that it stays as it is in the run.
        let known = run.known.file(run.workspace.base(), path)?.filter(|known| !known.mode.is_link());
        mode = known.map_or(mode, |known| known.mode.bits());
    }
    let bytes = match run.workspace.snapshot_content(path, &now, contents) {
        Ok(bytes) => bytes,
        Err(WorkspaceError::Io(error)) => return Err(error),
        Err(error) => return Err(io::Error::other(error)),
    };
    let (size_bytes, bytes): (u64, Box<dyn io::Read>) = match (bytes, now.location) {
        (Some(bytes), _) => (bytes.len() as u64, Box::new(io::Cursor::new(bytes))),
        (None, ContentLocation::Ledger { .. }) => match contents.large(&now.sha256)? {
            Some((size, content)) => (size, content),
            None => return Ok(None),
        },
        (None, ContentLocation::Base { .. }) => return Ok(None),
    };
    Ok(Some(PackedFile { bytes, size_bytes, mode }))
}

fn content_not_stored(path: &LogicalPath) -> Refusal {
    let message = format!("the fork's `{path}` cannot be merged: it is too large to be kept in the ledger");
    let hint = "Download it from the fork, upload it into this run, and merge again.";
    Refusal::new(model::Code::FileTooLarge, message, hint).at(path)
}
