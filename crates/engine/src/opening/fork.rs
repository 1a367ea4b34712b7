//! Making the files of a fork, from the base of the run that it is a fork of and from the ledger.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use model::{Code, LogicalPath, Refusal, Rules, Run, RunId};
use workspace::{ChainPoint, Inherited, MadeRun, RecordedBase, WorkspaceError};

use super::damaged;
use super::fetch::{FolderContents, not_restored};
use super::recorded_base::recorded_base;
use crate::CallError;
use crate::engine::Engine;
use crate::history::snapshot::{self, LedgerContents};
use crate::reconcile::lock_consistent;

/// The most bytes of changed files, with their diff, that a fork takes over: its first record holds them, as that of a change set does.
const MAX_INHERITED_BYTES: u64 = 64 << 20;
/// The most paths that a refusal names.
const MAX_NAMED: usize = 20;

impl Engine {
    /// Makes the files of the fork `run`: those of `parent` at its record `at`. Returns them with what the fork takes over from there, and with
    /// its base.
    ///
    /// # Errors
    ///
    /// `WRITE_CONFLICT` and `QUOTA_EXCEEDED` as for [`check_inherited`]; `UNAVAILABLE`; `RUN_NEEDS_REPAIR`.
    pub(crate) async fn make_fork(
        self: &Arc<Self>,
        parent: &Run,
        at: ChainPoint,
        run: &RunId,
        rules: Rules,
    ) -> Result<(MadeRun, Inherited, RecordedBase), CallError> {
        let parent_id = &parent.run_id;
        let recorded = recorded_base(self.ledger.as_ref(), parent).await?;
        let unknown = || damaged(parent_id, "the record of its base", &io::Error::from(ErrorKind::NotFound));
        let recorded = recorded.ok_or_else(unknown)?;
        let workspaces = Arc::clone(&self.workspaces);
        let restorer = self.blocking(move || {
            let restorer = workspaces.restorer(None)?;
            restorer.mark_unfinished()?;
            Ok(restorer)
        });
        let restorer = restorer.await?;
        let restorer = self.add_base(parent_id, &recorded, restorer).await?;
        // Without an object store, large contents are in the parent's tree alone: it takes no calls until they are copied.
        let _locked = if self.objects.is_none() {
            let open_run = self.open(parent_id).await?;
            Some(lock_consistent(self, &open_run).await?)
        } else {
            None
        };
        let base = restorer.base()?;
        let snapshot = snapshot::load(&self.ledger, parent_id, &base, at.seq).await?;
        let contents =
            LedgerContents::of(Arc::clone(&self.ledger), parent_id.clone()).with_objects(self.objects.clone());
        let contents = FolderContents::new(contents, Arc::clone(&self.workspaces), parent_id.clone(), &snapshot);
        let (id, of_parent) = (run.clone(), parent_id.clone());
        let made = self.blocking(move || {
            let failed = |error| match error {
                WorkspaceError::Io(error) => not_restored(&of_parent, error),
                error => error.into(),
            };
            let inherited = base.inherited(&rules, &snapshot, &contents, MAX_INHERITED_BYTES).map_err(failed)?;
            check_inherited(&inherited)?;
            let made = restorer.make(&id, &snapshot, &contents, ChainPoint::UNKNOWN).map_err(failed)?;
            Ok((made, inherited))
        });
        let (made, inherited) = made.await?;
        Ok((made, inherited, recorded))
    }
}

/// Checks that a fork can have every content of its record.
///
/// # Errors
///
/// `WRITE_CONFLICT`, `QUOTA_EXCEEDED`.
fn check_inherited(inherited: &Inherited) -> Result<(), Refusal> {
    if let [first, ..] = &*inherited.not_stored {
        let named: Vec<_> = inherited.not_stored.iter().take(MAX_NAMED).map(LogicalPath::as_str).collect();
        let more = inherited.not_stored.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let message = format!(
            "the run cannot be forked at that record: some of its files had contents that are not stored any more: {}{more}",
            named.join(", ")
        );
        let hint = "Fork a later record.";
        return Err(Refusal::new(Code::WriteConflict, message, hint).at(first));
    }
    if inherited.bytes > MAX_INHERITED_BYTES {
        let message = format!(
            "the run's changed files have more than {MAX_INHERITED_BYTES} bytes with their diff, too many for a fork"
        );
        let hint = "Export the run's present files as an archive, and create a run from it.";
        return Err(Refusal::new(Code::QuotaExceeded, message, hint)
            .with_details(|details| details.limit = Some(MAX_INHERITED_BYTES)));
    }
    Ok(())
}
