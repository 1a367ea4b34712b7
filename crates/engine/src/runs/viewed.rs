//! Which versions of a run's files a reviewer has viewed. Marks are a reviewer's own: they decide nothing and are no records.

use async_recursion::async_recursion as boxed;
use model::{Refusal, RunId, ViewedMark};
use serde::{Deserialize, Serialize};

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::call_error::refusals::run_not_found;
use crate::clock::now;
use crate::runs::Runs;
use crate::tool::input::file_path;

/// Maximum characters of a version.
const MAX_VERSION: usize = 64;

/// A file that a reviewer has viewed, or no longer counts as viewed.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src/main.rs", "version": "9f86d081884c7d65"}))]
pub struct ViewedRequest {
    /// The file.
    path: String,
    /// What names the version that was viewed, such as a hash of the file or of its diff: 1 to 64 visible ASCII characters. Missing: the
    /// file does not count as viewed.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    version: Option<String>,
}

/// What a reviewer has viewed of a run.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ViewedFiles {
    /// The newest marks, at most 3,000, the newest first.
    pub items: Vec<ViewedMark>,
}

impl Runs {
    /// Returns the marks of `operator` in a run.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`.
    #[boxed]
    pub async fn viewed_files(&self, run: &RunId, operator: &OperatorIdentity) -> Result<ViewedFiles, CallError> {
        self.engine.ledger.run(run).await?.ok_or_else(run_not_found)?;
        Ok(ViewedFiles { items: self.engine.ledger.viewed_marks(operator.name.as_str(), run).await? })
    }

    /// Sets or removes a mark of `operator`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `PATH_REJECTED`; `RUN_NOT_FOUND`, also if the run is deleted.
    #[boxed]
    pub async fn set_viewed(
        &self,
        run: &RunId,
        operator: &OperatorIdentity,
        request: ViewedRequest,
    ) -> Result<(), CallError> {
        let path = file_path(&request.path)?;
        let (ledger, name) = (&self.engine.ledger, operator.name.as_str());
        ledger.run(run).await?.ok_or_else(run_not_found)?;
        let Some(version) = request.version else { return Ok(ledger.remove_viewed_mark(name, run, &path).await?) };
        let is_visible = version.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_visible || !(1..=MAX_VERSION).contains(&version.len()) {
            let message = format!("`version` takes 1 to {MAX_VERSION} visible ASCII characters");
            return Err(Refusal::invalid(message, "Give a hash of what was viewed, or omit it.").into());
        }
        let mark = ViewedMark { path, version, viewed_at: now() };
        match ledger.set_viewed_mark(name, run, &mark).await {
            Err(ledger::LedgerError::NoSuchRun) => Err(run_not_found().into()),
            done => Ok(done?),
        }
    }
}
