//! Stops the agent of a run: whoever has one of its tokens can do nothing more, while people look at what it has done.

use async_recursion::async_recursion as boxed;

use model::{Refusal, Run, RunId};
use serde::Deserialize;

use crate::CallError;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::run::lifecycle;
use crate::tool::input::MAX_REASON;

/// A request to stop the agent of a run.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StopRunRequest {
    /// Why, for the audit.
    #[schema(min_length = 1, max_length = 2000, example = "It reads files that it has no business with.")]
    reason: String,
}

impl StopRunRequest {
    fn check(&self) -> Result<(), Refusal> {
        let Self { reason } = self;
        if reason.trim().is_empty() || reason.chars().count() > MAX_REASON || reason.contains('\0') {
            let message = "`reason` is empty, longer than 2,000 characters, or contains a NUL character";
            return Err(Refusal::invalid(
                message,
                "Say in `reason`, in 1 to 2,000 characters, why the agent is stopped.",
            ));
        }
        Ok(())
    }
}

impl Calls {
    /// Revokes all tokens of a run and ends its commands. The run stays as it is: operators can read it, close it, or issue another token.
    /// Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `RUN_NOT_FOUND`; `RUN_CLOSED` if the run is deleted.
    #[boxed]
    pub async fn stop_run(&self, run: &RunId, caller: &Caller, request: StopRunRequest) -> Result<Run, CallError> {
        request.check()?;
        let (calls, run) = (self.clone(), run.clone());
        let entry = lifecycle::stopped(&run, caller, &request.reason);
        let work = async move {
            calls.engine.append_change(entry).await?;
            calls.engine.tokens.revoked(&run, None);
            calls.queue.stop(&run);
            tracing::info!(run.id = %run, "the agent of a run was stopped");
            calls.engine.run(&run).await
        };
        self.engine.detached(work).await
    }
}
