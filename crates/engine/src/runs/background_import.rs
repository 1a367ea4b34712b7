//! Imports of runs whose creation was answered at once. The run is stored as `preparing`, and each way in which the import
//! can end changes that: it opens the run, or closes it with the reason in `import.error`.

use std::sync::Arc;
use std::time::Duration;

use model::{Code, Disk, ImportProblem, ImportReport, RunId, RunState, Source};
use workspace::ImportedRun;

use super::{Origin, lifecycle};
use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::clock::now;
use crate::engine::{Caller, Engine};
use crate::runs::import_registry::ImportGuard;

/// The pause after the ledger was unavailable.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Runs per query.
const PAGE: u32 = 1000;

impl Engine {
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
        let error = match self.import(run, &importing, origin, None).await {
            Ok(imported) => match self.tokens.operators.check(creator) {
                Ok(()) => return self.open_stored(run, &importing, caller, &imported).await,
                Err(refusal) => {
                    self.remove_files(run).await;
                    refusal.into()
                }
            },
            Err(error) => error,
        };
        let is_interrupted = self.shutdown.is_cancelled() && error.is(Code::Unavailable);
        let problem = if is_interrupted { interrupted() } else { problem_of(run, error) };
        let import = failed(importing.import.report(), problem);
        while let Err(error) = self.append(vec![lifecycle::import_failed(run, &now(), import.clone())]).await {
            if !self.waits_for_ledger(run, &error).await {
                return;
            }
        }
    }

    /// Opens the imported run, unless it was closed meanwhile.
    async fn open_stored(&self, run: &RunId, importing: &ImportGuard, caller: &Caller, imported: &ImportedRun) {
        loop {
            let opened = match self.open_imported(run, caller, imported).await {
                Ok(true) => Ok(true),
                // Closed, or opened by an earlier attempt whose outcome was uncertain.
                Ok(false) => self
                    .ledger
                    .settled_run(run)
                    .await
                    .map(|settled| settled.is_some_and(|settled| settled.stored.run.base_commit.is_some())),
                Err(error) => Err(error),
            };
            match opened {
                Ok(true) => {
                    self.confirm(run).await;
                    importing.import.settle(Disk { bytes: imported.bytes, files: imported.files });
                    tracing::info!(run.id = %run, files = imported.files, bytes = imported.bytes, "run opened");
                    return;
                }
                Ok(false) => return self.remove_files(run).await,
                Err(error) if self.waits_for_ledger(run, &error).await => {}
                // The next start knows whether the run is open.
                Err(_) => return,
            }
        }
    }

    /// Waits before another attempt. Returns false if the service stops: the next start completes the run.
    async fn waits_for_ledger(&self, run: &RunId, error: &ledger::LedgerError) -> bool {
        tracing::warn!(run.id = %run, %error, "the end of an import could not be recorded yet");
        tokio::select! {
            () = tokio::time::sleep(RETRY_INTERVAL) => true,
            () = self.shutdown.cancelled() => false,
        }
    }

    /// Closes the runs whose import an earlier process did not finish, and returns how many. Runs that wait for an archive
    /// stay as they are. Must be called before the service accepts calls.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub async fn close_interrupted_imports(&self) -> Result<u64, CallError> {
        let (mut closed, mut after) = (0, None);
        loop {
            let page = self.ledger.runs(&RunState::Preparing.into(), after, PAGE.into()).await?;
            after = page.last().map(|(position, _)| *position);
            for (_, run) in page.iter().filter(|(_, run)| run.source != Source::Archive {}) {
                let import = failed(run.import.clone(), interrupted());
                self.append(vec![lifecycle::import_failed(&run.run_id, &now(), import)]).await?;
                closed += 1;
            }
            if !page.more {
                return Ok(closed);
            }
        }
    }
}

fn failed(import: ImportReport, problem: ImportProblem) -> ImportReport {
    ImportReport { progress: "failed".to_owned(), error: Some(problem), ..import }
}

fn interrupted() -> ImportProblem {
    ImportProblem {
        code: Code::Unavailable,
        message: "the service stopped during the import".to_owned(),
        hint: "Create the run again under another runId.".to_owned(),
    }
}

fn problem_of(run: &RunId, error: CallError) -> ImportProblem {
    match error {
        CallError::Refused(refusal) => {
            tracing::info!(run.id = %run, code = refusal.code.as_str(), "the import has failed");
            ImportProblem { code: refusal.code, message: refusal.message, hint: refusal.hint }
        }
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
