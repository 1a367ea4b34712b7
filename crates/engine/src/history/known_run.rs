//! Which runs have their audit here.

use ledger::{LedgerError, StoredRun};
use model::{Run, RunId};

use crate::CallError;
use crate::call_error::refusals::{run_archived, run_not_found};
use crate::engine::Engine;

impl Engine {
    /// Checks that the run exists or has existed, and that its audit is not in an archive.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run is archived.
    pub(crate) async fn known_run(&self, run: &RunId) -> Result<(), CallError> {
        let is_known = self.is_known_and_not_archived(run).await? || self.imports.get(run).is_some();
        if is_known { Ok(()) } else { Err(run_not_found().into()) }
    }

    /// Checks that the audit of the run that a list is about, if it is about one, is not in an archive. The run need not exist.
    ///
    /// # Errors
    ///
    /// `RUN_CLOSED` if the run is archived.
    pub(crate) async fn check_not_archived(&self, run: Option<&RunId>) -> Result<(), CallError> {
        match run {
            Some(run) => self.is_known_and_not_archived(run).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns whether the ledger has the run. Fails with `RUN_CLOSED` if the run is archived.
    async fn is_known_and_not_archived(&self, run: &RunId) -> Result<bool, CallError> {
        match self.ledger.run(run).await {
            Ok(Some(StoredRun { run: Run { archive_uri: Some(uri), .. }, .. })) => Err(run_archived(&uri).into()),
            // A run whose row is damaged still exists and has its audit.
            Ok(Some(_)) | Err(LedgerError::Internal(_)) => Ok(true),
            Ok(None) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
