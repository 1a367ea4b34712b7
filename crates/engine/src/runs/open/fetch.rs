//! Opening a run whose files are not on this machine: they are made from its base in the object store and from the ledger.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use content::{BaseId, ObjectError, Objects};
use ledger::Epoch;
use model::{Code, Refusal, RunId, RunState};
use shared_pool::Parties;
use tokio::sync::watch;
use tracing::Instrument as _;
use workspace::{FolderState, RecordedBase, RunRestorer, WorkspaceError};

use super::damaged;
use super::recorded_base::recorded_base;
use crate::CallError;
use crate::admission::pools::permit;
use crate::call_error::refusals::run_not_found;
use crate::engine::Engine;
use crate::history::snapshot::{self, LedgerContents};
use crate::history::touched_paths::touched_paths;
use crate::runs::base_objects::{base_id, read_index, read_part};
use crate::runs::open_runs::fetches::Fetched;

/// How many of ten parts of the request timeout a call waits for the files, so that it still gets an answer of its own.
const WAIT_TENTHS: u32 = 9;

impl Engine {
    /// Whether the files of `run` are not on this machine at all, and have to be fetched before it can be opened.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn is_elsewhere(&self, run: &RunId) -> Result<bool, CallError> {
        if self.objects.is_none() {
            return Ok(false);
        }
        let (workspaces, run) = (Arc::clone(&self.workspaces), run.clone());
        self.blocking(move || Ok(!workspaces.has_folder(&run)?)).await
    }

    /// Whether the files of `run` have to be fetched before it can be opened: they are not on this machine, or, if several nodes share
    /// the ledger, another node may have changed them before this one owned the run under `epoch`. If not, the ledger knows from now on
    /// that this node may change them.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn lacks_files(&self, run: &RunId, epoch: Option<Epoch>) -> Result<bool, CallError> {
        if self.objects.is_none() {
            return Ok(false);
        }
        let (workspaces, id) = (Arc::clone(&self.workspaces), run.clone());
        if let Some(epoch) = epoch {
            let epochs = self.ledger.current_epochs(run).await?;
            if *epochs.end() != epoch.number() {
                return Err(CallError::Moved(run.clone()));
            }
            let is_opened = epochs.start() == epochs.end();
            let state = self.blocking(move || Ok(workspaces.own_folder(&id, &epochs)?)).await?;
            let is_current = state == FolderState::Current;
            if is_current && !is_opened {
                // After the note in the folder, and before anything in it changes.
                self.ledger.open_files(run, epoch).await?;
            }
            return Ok(!is_current);
        }
        let (is_here, noted) =
            self.blocking(move || Ok((workspaces.has_folder(&id)?, workspaces.noted_epoch(&id)?))).await?;
        Ok(match noted {
            // Nodes have used the database before, and another one may have been the last.
            Some(noted) => !self.ledger.current_epochs(run).await?.contains(&noted),
            None => !is_here,
        })
    }

    /// Fetches the files of `run`, once for all callers. Goes on if the caller does not wait any more.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if the store is, or if it takes longer than a request may; `RUN_NEEDS_REPAIR` if an object is missing or altered.
    pub(super) async fn fetch_files(&self, run: &RunId, epoch: Option<Epoch>) -> Result<(), CallError> {
        let mut outcome = self.fetch_in_background(run, epoch);
        let limit = self.limits.request_timeout / 10 * WAIT_TENTHS;
        let ended = match tokio::time::timeout(limit, outcome.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone(),
            // The task has panicked, or the service ends.
            Ok(Err(_)) => None,
            Err(_) => return Err(still_fetching().into()),
        };
        match ended {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(match &*error {
                CallError::Refused(refusal) => CallError::Refused(refusal.clone()),
                CallError::Moved(run) => CallError::Moved(run.clone()),
                CallError::Internal(_) => CallError::Internal(Box::new(error)),
            }),
            None => Err(CallError::Internal("fetching the files of a run was interrupted".into())),
        }
    }

    fn fetch_in_background(&self, run: &RunId, epoch: Option<Epoch>) -> watch::Receiver<Option<Fetched>> {
        let (outcome, begun) = self.fetches.begin(run);
        if let Some(fetch) = begun {
            let (engine, run) = (self.clone(), run.clone());
            let work = async move { fetch.end(engine.restore_files(&run, epoch).await.map_err(Arc::new)) };
            // It counts for the caller that has begun it.
            self.tasks.spawn(Parties::current().scope(work.in_current_span()));
        }
        outcome
    }

    /// Makes the folder of a run from its base and the newest version of each file that it has changed.
    async fn restore_files(&self, run: &RunId, epoch: Option<Epoch>) -> Result<(), CallError> {
        let Some(objects) = &self.objects else { return Ok(()) };
        if !self.lacks_files(run, epoch).await? {
            // Fetched by an earlier call, which did not wait for the end.
            return Ok(());
        }
        let started = Instant::now();
        let permit = permit(&self.pools.import).await;
        // Waits until uncertain commits are decided: the tree must have every recorded change.
        let settled = self.ledger.settled_run(run).await?.ok_or_else(run_not_found)?;
        let head_seq = settled.stored.run.head_seq;
        let recorded = recorded_base(self.ledger.as_ref(), &settled.stored.run).await?;
        let unknown = || damaged(run, "the record of its base", &std::io::Error::from(ErrorKind::NotFound));
        let recorded = recorded.ok_or_else(unknown)?;
        let base = base_id(&recorded)?;
        tracing::info!(run.id = %run, base = %base, "fetching the files of a run");
        let workspaces = Arc::clone(&self.workspaces);
        let restorer = self.blocking(move || Ok(workspaces.restorer(epoch.map(Epoch::number))?)).await?;
        let restorer = self.fetch_base(objects, run, &recorded, &base, restorer).await?;
        let fetched_millis = started.elapsed().as_millis();
        let base = restorer.base()?;
        let snapshot = snapshot::load(&self.ledger, run, &base, head_seq, true).await?;
        let contents = LedgerContents::of(Arc::clone(&self.ledger), run.clone()).with_objects(self.objects.clone());
        let id = run.clone();
        let restored = self.blocking(move || match restorer.finish(&id, &snapshot, &contents) {
            Err(WorkspaceError::Io(error)) => Err(not_restored(&id, error)),
            restored => Ok(restored?),
        });
        let restored = restored.await?;
        drop(permit);
        // It may have been deleted meanwhile.
        let stored = self.ledger.run(run).await?.ok_or_else(run_not_found)?;
        if stored.run.state == RunState::Deleted {
            let (workspaces, run) = (Arc::clone(&self.workspaces), run.clone());
            self.blocking(move || Ok(workspaces.remove(&run)?)).await?;
        }
        let millis = started.elapsed().as_millis();
        tracing::info!(
            run.id = %run, files = restored.files, bytes = restored.bytes, fetched_millis, millis, "the files of a run were fetched"
        );
        Ok(())
    }

    /// Fetches the parts of the base, each verified.
    async fn fetch_base(
        &self,
        objects: &Objects,
        run: &RunId,
        recorded: &RecordedBase,
        base: &BaseId,
        mut restorer: RunRestorer,
    ) -> Result<RunRestorer, CallError> {
        let index = read_index(objects, base).await.map_err(|error| unfetched(run, error))?;
        let mut untracked = None;
        for indexed in index.parts {
            let mut object = read_part(objects, base, &indexed).await.map_err(|error| unfetched(run, error))?;
            if indexed.name == RunRestorer::UNTRACKED_PART {
                untracked = Some(object);
                continue;
            }
            let id = run.clone();
            let add = move || {
                restorer.add_part(&indexed.name, &mut object).map_err(|error| not_restored(&id, error))?;
                Ok(restorer)
            };
            restorer = self.blocking(add).await?;
        }
        let written = touched_paths(self.ledger.as_ref(), run).await?;
        let (id, recorded) = (run.clone(), recorded.clone());
        self.blocking(move || {
            let mut check = |restorer: &mut RunRestorer| {
                restorer.set_base(&recorded)?;
                match (recorded.untracked_sha256, &mut untracked) {
                    (Some(sha256), Some(content)) => restorer.add_untracked(content, sha256, &written),
                    (None, None) => Ok(()),
                    (Some(_), None) | (None, Some(_)) => Err(ErrorKind::InvalidData.into()),
                }
            };
            check(&mut restorer).map_err(|error| not_restored(&id, error))?;
            Ok(restorer)
        })
        .await
    }
}

/// Returns the error of an object that could not be fetched. One that is missing or altered concerns this run alone.
fn unfetched(run: &RunId, error: ObjectError) -> CallError {
    match error {
        ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_) => {
            damaged(run, "its base in the object store", &error)
        }
        error
        @ (ObjectError::Store(_) | ObjectError::Io(_) | ObjectError::BeingDeleted(_) | ObjectError::Claims(_)) => {
            error.into()
        }
    }
}

/// Returns the error of files that could not be made.
fn not_restored(run: &RunId, error: std::io::Error) -> CallError {
    let is_altered = |error: &ObjectError| {
        matches!(error, ObjectError::Missing(_) | ObjectError::Differs(_) | ObjectError::TooLarge(_))
    };
    let of_object = error.get_ref().and_then(|inner| inner.downcast_ref::<ObjectError>());
    let is_damaged = match of_object {
        Some(object) => is_altered(object),
        None => matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::NotFound | ErrorKind::UnexpectedEof),
    };
    if is_damaged { damaged(run, "a part of its files in the object store", &error) } else { error.into() }
}

pub(super) fn still_fetching() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "the run's files are being fetched from the object store; nothing was changed",
        "Retry the same call in a moment: fetching goes on meanwhile.",
    )
}
