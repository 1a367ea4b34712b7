//! Imports of runs' files. A run whose creation was answered at once is stored as `preparing`, and each way in which its import can
//! end changes that: it opens the run, or closes it with the reason in `import.error`. If the process ends first, the next start, or
//! another node, resumes the import once.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ledger::{Entry, LedgerError};
use model::{Code, Disk, ImportProblem, ImportReport, Rules, Run, RunId, RunState, Scope, Source};
use shared_pool::{Parties, Party};
use tracing::Instrument as _;
use workspace::{ImportObserver as _, ImportSource, ImportedRun, WorkspaceError};

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::admission::pools::{no_permit, operator_party};
use crate::call_error::refusals::shutting_down;
use crate::caller::Caller;
use crate::clock::now;
use crate::engine::NotRecorded;
use crate::opening::base_objects::ImportedBase;
use crate::run::import_registry::ImportGuard;
use crate::run::lifecycle;
use crate::run::quota::RunDisk;
use crate::runs::Runs;

/// The pause after the ledger was unavailable.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Runs per query.
const PAGE: u32 = 1000;

/// The source of a run's files, owned, so that it can be sent to another thread.
pub(super) enum Origin {
    Empty,
    GitRemote { url: String, reference: Option<String>, credential: Option<String> },
    GitLocal { path: Box<Path>, reference: Option<String> },
    Directory(Box<Path>),
    Archive(Box<dyn Read + Send>),
}

impl Origin {
    fn source(&mut self) -> ImportSource<'_> {
        match self {
            Self::Empty => ImportSource::Empty,
            Self::GitRemote { url, reference, credential } => ImportSource::GitRemote {
                url: url.clone(),
                reference: reference.clone(),
                credential: credential.clone(),
            },
            Self::GitLocal { path, reference } => {
                ImportSource::GitLocal { path: path.to_path_buf(), reference: reference.clone() }
            }
            Self::Directory(path) => ImportSource::Directory(path.to_path_buf()),
            Self::Archive(archive) => ImportSource::Archive(archive.as_mut()),
        }
    }
}

impl Runs {
    /// Imports a run's files, and puts their base into the object store, if there is one. Waits for a permit at most for `patience`.
    /// No files remain if it fails.
    pub(super) async fn import(
        &self,
        run: &RunId,
        importing: &ImportGuard,
        origin: Origin,
        creator: Option<&OperatorIdentity>,
        patience: Option<Duration>,
    ) -> Result<(ImportedRun, ImportedBase), CallError> {
        let imported = self.import_files(run, importing, origin, creator, patience).await?;
        match self.engine.store_base(run, &imported).await {
            Ok(base) => Ok((imported, base)),
            Err(error) => {
                self.remove_files(run).await;
                Err(error)
            }
        }
    }

    async fn import_files(
        &self,
        run: &RunId,
        importing: &ImportGuard,
        origin: Origin,
        creator: Option<&OperatorIdentity>,
        patience: Option<Duration>,
    ) -> Result<ImportedRun, CallError> {
        let pool = match origin {
            // Takes as long as a small mutation.
            Origin::Empty => &self.engine.pools.write,
            // The client may send slowly. Other imports must not wait for that.
            Origin::Archive(_) => &self.engine.pools.upload,
            Origin::GitRemote { .. } | Origin::GitLocal { .. } | Origin::Directory(_) => &self.engine.pools.import,
        };
        // All imports in the background together have one share: an import whose caller waits is not delayed by them.
        let parties = match creator {
            Some(creator) if patience.is_none() => {
                Parties::two(operator_party(creator), Party::of("work", "background import"))
            }
            _ => Parties::current(),
        };
        // Held by this future, not by the thread: dropping it releases the permit, and the thread sees the cancellation.
        let permit = async {
            tokio::select! {
                permit = pool.acquire(parties, 1) => Ok(permit),
                () = importing.import.until_cancelled() => Err(CallError::from(WorkspaceError::Cancelled)),
                () = self.engine.shutdown.cancelled(), if patience.is_none() => Err(shutting_down().into()),
            }
        };
        let _permit = match patience {
            None => permit.await?,
            Some(patience) => {
                tokio::time::timeout(patience, permit).await.map_err(|_| no_permit("the import", patience))??
            }
        };
        if let Some(creator) = creator {
            // The import may have waited for long.
            self.engine.tokens.operators.check(creator)?;
        }
        let (workspaces, import, run) =
            (Arc::clone(&self.engine.workspaces), Arc::clone(&importing.import), run.clone());
        let mut origin = origin;
        self.engine
            .blocking(move || {
                if import.cancelled() {
                    return Err(WorkspaceError::Cancelled.into());
                }
                let rules = Rules::compile(import.policy().clone())?;
                Ok(workspaces.import(&run, origin.source(), &rules, &*import)?)
            })
            .await
    }

    /// Imports the files of a run that is stored as `preparing`, and opens it, or closes it if the import fails. Waits for a
    /// permit as long as it takes.
    pub(super) async fn import_stored(
        &self,
        run: &RunId,
        importing: ImportGuard,
        origin: Origin,
        creator: &Arc<OperatorIdentity>,
        caller: &Caller,
    ) {
        let imported = self.import(run, &importing, origin, Some(creator), None).await;
        let error = match imported {
            Ok((imported, base)) => match self.open_stored(run, &importing, creator, caller, &imported, &base).await {
                Ok(()) => return,
                Err(error) => error,
            },
            Err(error) => error,
        };
        let is_interrupted = self.engine.shutdown.is_cancelled() && error.is(Code::Unavailable);
        if is_interrupted || matches!(error, CallError::Moved(_)) {
            tracing::info!(run.id = %run, "the import is left to the next start or to another node");
            return;
        }
        let import = failed(importing.import.report(), problem_of(run, error));
        drop(importing);
        self.record_failed_import(run, import).await;
    }

    /// Closes a run whose import has failed. Waits for the ledger.
    async fn record_failed_import(&self, run: &RunId, import: ImportReport) {
        let entry = || lifecycle::import_failed(run, &now(), import.clone());
        while let Err(NotRecorded::Failed(error)) = self.engine.record(vec![entry()]).await {
            if !self.waits_for_ledger(run, &error).await {
                return;
            }
        }
    }

    /// Opens the imported run, unless it was closed meanwhile.
    ///
    /// # Errors
    ///
    /// If the creator's token is not valid any more, or the ledger does not have the run. No files remain then.
    async fn open_stored(
        &self,
        run: &RunId,
        importing: &ImportGuard,
        creator: &OperatorIdentity,
        caller: &Caller,
        imported: &ImportedRun,
        base: &ImportedBase,
    ) -> Result<(), CallError> {
        let mut stored_again = None;
        loop {
            let base = stored_again.as_ref().unwrap_or(base);
            if let Err(refusal) = self.engine.tokens.operators.check(creator) {
                self.remove_files(run).await;
                return Err(refusal.into());
            }
            let opened = match self.open_imported(run, caller, imported, base).await {
                Ok(true) => Ok(true),
                // Closed, or opened by an earlier attempt whose outcome was uncertain.
                Ok(false) => match self.engine.ledger.settled_run(run).await {
                    Ok(Some(settled)) if settled.stored.run.base_commit.is_some() => {
                        self.confirm(run, None).await;
                        Ok(true)
                    }
                    settled => settled.map(|_| false),
                },
                Err(error) => Err(error),
            };
            match opened {
                Ok(true) => {
                    importing.import.settle(Disk { bytes: imported.bytes, files: imported.files });
                    tracing::info!(run.id = %run, files = imported.files, bytes = imported.bytes, "run opened");
                    return Ok(());
                }
                Ok(false) => {
                    self.remove_files(run).await;
                    return Ok(());
                }
                // The ledger may have been away for long, and the base may be gone.
                Err(error) if self.waits_for_ledger(run, &error).await => {
                    match self.engine.store_base(run, imported).await {
                        Ok(base) => stored_again = Some(base),
                        Err(error) => {
                            self.remove_files(run).await;
                            return Err(error);
                        }
                    }
                }
                // The next start knows whether the run is open.
                Err(error) if is_temporary(&error) => return Ok(()),
                Err(error) => {
                    self.remove_files(run).await;
                    return Err(error.into());
                }
            }
        }
    }

    /// Waits before another attempt. Returns false if there is no reason for one: another attempt would fail as well, or the
    /// service stops, and the next start completes the run.
    async fn waits_for_ledger(&self, run: &RunId, error: &LedgerError) -> bool {
        if !is_temporary(error) {
            tracing::error!(run.id = %run, %error, "the end of an import cannot be recorded");
            return false;
        }
        tracing::warn!(run.id = %run, %error, "the end of an import could not be recorded yet");
        tokio::select! {
            () = tokio::time::sleep(RETRY_INTERVAL) => true,
            () = self.engine.shutdown.cancelled() => false,
        }
    }

    /// Resumes the imports that ended with their process or their node, and closes the runs whose import was resumed before: a source
    /// that ends the process must not do so at every start. Runs that wait for an archive stay as they are, and so do those that this
    /// process or another node that is alive imports.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub fn resume_interrupted_imports(self: &Arc<Self>) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(async move {
            let mut after = None;
            loop {
                let page = self.engine.ledger.runs(&RunState::Preparing.into(), after, PAGE.into()).await?;
                after = page.last().map(|(position, _)| *position);
                for (_, run) in page.iter().filter(|(_, run)| run.source != Source::Archive {}) {
                    match self.resume_import(run.clone()).await {
                        // Another node imports it.
                        Err(CallError::Moved(_)) => {}
                        resumed => resumed?,
                    }
                }
                if !page.more {
                    return Ok(());
                }
            }
        })
    }

    async fn resume_import(self: &Arc<Self>, mut run: Run) -> Result<(), CallError> {
        let id = run.run_id.clone();
        let was_resumed = run.import.resumed;
        run.import = ImportReport { progress: "waiting".to_owned(), resumed: true, ..ImportReport::default() };
        let disk = RunDisk::new(&self.engine.node, &run.policy.quota, Disk::default()).reservation();
        let Some(importing) = self.engine.imports.begin(run.clone(), disk) else { return Ok(()) };
        importing.import.note_stored();
        // The run stays with this node from here on.
        let epoch = self.engine.take_run(&id).await?;
        let resumed = if was_resumed { Err(interrupted()) } else { self.resumable(&run).await? };
        let entry = match &resumed {
            Ok(_) => lifecycle::import_resumed(&id, run.import.clone()),
            Err(problem) => lifecycle::import_failed(&id, &now(), failed(run.import.clone(), problem.clone())),
        };
        match self.engine.record(vec![Entry { epoch, ..entry }]).await {
            Ok(_) => {}
            // It has ended meanwhile.
            Err(NotRecorded::Rejected(_)) => return Ok(()),
            Err(NotRecorded::Failed(error)) => return Err(error.into()),
        }
        match resumed {
            Ok((origin, creator)) => {
                tracing::warn!(run.id = %id, "resuming an import that was interrupted");
                let caller = Caller {
                    actor: creator.actor(),
                    permissions: BTreeSet::new(),
                    token: creator.required_token(),
                    request: None,
                };
                let runs = Arc::clone(self);
                let import = async move { runs.import_stored(&id, importing, origin, &creator, &caller).await };
                self.engine.tasks.spawn(import.in_current_span());
            }
            Err(problem) => {
                tracing::warn!(run.id = %id, reason = problem.message, "closed a run whose import was interrupted");
            }
        }
        Ok(())
    }

    /// Returns the source of a run and the operator who has created it, or why its import cannot begin again.
    async fn resumable(
        self: &Arc<Self>,
        run: &Run,
    ) -> Result<std::result::Result<(Origin, Arc<OperatorIdentity>), ImportProblem>, CallError> {
        let named = run.created_by.as_ref().and_then(|name| self.engine.tokens.operators.named(name));
        let Some(creator) = named.filter(|creator| creator.has_any(&[Scope::Orchestrate])) else {
            return Ok(Err(ImportProblem {
                code: Code::Unauthenticated,
                message: "the service stopped during the import, and the operator who created the run may not create runs any more"
                    .to_owned(),
                hint: "Create the run again under another runId, as another operator.".to_owned(),
            }));
        };
        let (runs, source) = (Arc::clone(self), run.source.clone());
        match self.engine.blocking(move || runs.origin(&source).map_err(CallError::from)).await {
            Ok(Some(origin)) => Ok(Ok((origin, creator))),
            Ok(None) => Ok(Err(interrupted())),
            Err(error @ CallError::Refused(_)) => Ok(Err(problem_of(&run.run_id, error))),
            Err(error) => Err(error),
        }
    }
}

/// Whether another attempt may succeed.
fn is_temporary(error: &LedgerError) -> bool {
    matches!(error, LedgerError::Unavailable(_) | LedgerError::InDoubt(_) | LedgerError::ObjectNotReserved(_))
}

fn failed(import: ImportReport, problem: ImportProblem) -> ImportReport {
    ImportReport { progress: "failed".to_owned(), error: Some(problem), ..import }
}

fn interrupted() -> ImportProblem {
    ImportProblem {
        code: Code::Unavailable,
        message: "the service stopped twice during the import".to_owned(),
        hint: "Create the run again under another runId. If that fails too, ask the operator to look at the log."
            .to_owned(),
    }
}

fn problem_of(run: &RunId, error: CallError) -> ImportProblem {
    match error {
        CallError::Refused(refusal) => {
            tracing::info!(run.id = %run, code = refusal.code.as_str(), "the import has failed");
            ImportProblem { code: refusal.code, message: refusal.message, hint: refusal.hint }
        }
        CallError::Moved(_) => interrupted(),
        CallError::Internal(error) => {
            tracing::error!(run.id = %run, error = &*error as &dyn std::error::Error, "the import has failed");
            ImportProblem {
                code: Code::Internal,
                message: "internal error".to_owned(),
                hint: "Create the run again; if it fails again, ask the operator to look at the log.".to_owned(),
            }
        }
    }
}
