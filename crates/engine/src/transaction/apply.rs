//! The last step of a transaction: the staged contents are moved into the tree.

use std::sync::Arc;

use model::{LogicalPath, Record, Sha256};
use tracing::Instrument as _;
use workspace::{ApplyError, ChainPoint};

use crate::CallError;
use crate::call::Answer;
use crate::call_error::refusals::needs_repair;
use crate::engine::Engine;
use crate::metrics::SPANS;
use crate::reconcile;
use crate::run::open_run::OpenRun;
use crate::run::tree_states::TreeChange;
use crate::transaction::commit::Committed;

impl Committed {
    /// Moves the staged contents into the tree and returns the answers. What cannot be moved now is repeated from the
    /// journal before any other call of the run.
    ///
    /// # Errors
    ///
    /// `RUN_NEEDS_REPAIR` if a file was changed from outside; `UNAVAILABLE` if the change cannot be applied to the disk
    /// now. The calls are recorded nevertheless.
    pub(crate) async fn apply(
        self,
        engine: &Engine,
        run: &Arc<OpenRun>,
        mut change: TreeChange<'_>,
    ) -> Result<Vec<Answer>, CallError> {
        let Self { answers, records, files } = self;
        let Some(files) = files else { return Ok(answers) };
        // A panic from here on would leave a change journalled and not applied.
        let unapplied = Unapplied(Some(run));
        failpoint::hit("transaction.committed");
        let permit = engine.write_permit().await;
        let points: Vec<_> = records.iter().map(point_of).collect();
        let (tree, last) = (Arc::clone(run), points.last().copied());
        let removed: Vec<_> = records.iter().flat_map(removed_paths).cloned().collect();
        change.begin_to_apply();
        let span = tracing::trace_span!(target: SPANS, "apply");
        let apply = move || {
            let begun = last.map_or(Ok(()), |last| tree.tree_note.begin(last));
            let applied = begun.map_err(ApplyError::Io).and_then(|()| tree.workspace.apply(files));
            // Also where somebody else has put a folder in the place of a file of the base.
            let hide = |applied| tree.workspace.hide_removed(&removed).map(|()| applied).map_err(ApplyError::Io);
            Ok(applied.and_then(hide))
        };
        let applied = engine.blocking(apply).instrument(span).await;
        drop(permit);
        failpoint::hit("transaction.applied");
        let seqs: Vec<_> = records.iter().map(|record| record.seq).collect();
        for record in &records {
            run.workspace.add_written(&record.paths_written);
        }
        match applied {
            Ok(Ok(applied)) => engine.fsync_worker.push(run, points, applied).await,
            Ok(Err(ApplyError::ChangedOutside(changed))) => {
                reconcile::mark_for_repair(engine, run, &changed).await?;
                return Err(needs_repair().into());
            }
            Ok(Err(ApplyError::Io(error))) => {
                tracing::warn!(run.id = %run.run_id, ?seqs, %error, "a journalled change was not applied and is repeated");
                reconcile::replay_records(engine, run, &points).await.map_err(|error| error.unapplied(&seqs))?;
            }
            Err(_) => {
                tracing::error!(run.id = %run.run_id, ?seqs, "applying a change panicked; it is repeated");
                reconcile::replay_records(engine, run, &points).await.map_err(|error| error.unapplied(&seqs))?;
            }
        }
        unapplied.finish();
        drop(change);
        Ok(answers)
    }
}

fn point_of(record: &Record) -> ChainPoint {
    ChainPoint { seq: record.seq, hash: record.hash.unwrap_or(Sha256::ZERO) }
}

fn removed_paths(record: &Record) -> impl Iterator<Item = &LogicalPath> {
    record.files.iter().filter(|file| file.new_sha256.is_none()).map(|file| &file.path)
}

/// Marks the run dirty when it is dropped before the change is applied.
struct Unapplied<'a>(Option<&'a OpenRun>);

impl Unapplied<'_> {
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for Unapplied<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.0 {
            run.accounting.set_dirty();
        }
    }
}
