//! Replaces the labels and the expiry time of a run.

use std::sync::Arc;

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use ledger::{Entry, Expiry};
use model::{Refusal, Run, RunId};
use serde::{Deserialize, Deserializer};

use crate::CallError;
use crate::admission::tokens::future_time;
use crate::caller::Caller;
use crate::run::lifecycle;
use crate::runs::Runs;
use crate::runs::create::{check_labels, redacted_labels};
use crate::runs::still_importing;

/// What to replace in a run, at least one member.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(min_properties = 1)]
pub struct UpdateRunRequest {
    /// All labels of the run, with the limits of its creation. Credentials in them are replaced by `[redacted: kind]`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = BTreeMap<String, String>, required = false, example = json!({"ticket": "4711"}))]
    labels: Option<BTreeMap<String, String>>,
    /// When the run expires and closes, RFC 3339, in the future; null for a run that does not expire.
    #[serde(default, deserialize_with = "expiry")]
    #[schema(value_type = Option<String>, required = false, example = "2030-01-01T00:00:00Z")]
    expires_at: Option<Expiry>,
}

/// Parses a member that is present, so that null is not taken for a missing one.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

fn expiry<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Expiry>, D::Error> {
    let time = Option::<String>::deserialize(from)?;
    Ok(Some(time.map_or(Expiry::Never, Expiry::At)))
}

impl UpdateRunRequest {
    /// Checks the members. Returns them as they are stored.
    fn check(self) -> Result<Self, Refusal> {
        if self.labels.is_none() && self.expires_at.is_none() {
            return Err(Refusal::invalid("the request has no member", "Give `labels`, `expiresAt`, or both."));
        }
        check_labels(self.labels.as_ref())?;
        let expires_at = match self.expires_at {
            Some(Expiry::At(time)) => Some(Expiry::At(future_time(&time)?)),
            other => other,
        };
        Ok(Self { labels: self.labels.map(redacted_labels), expires_at })
    }
}

impl Runs {
    /// Replaces the labels or the expiry time of a run, or both. Goes on if the caller disconnects.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `INVALID_REQUEST`; `RUN_CLOSED` if the run's source is being imported, the run is deleted, or it is
    /// closed and the request has an expiry time.
    pub fn update_run<'a>(
        self: &'a Arc<Self>,
        run: &'a RunId,
        caller: &'a Caller,
        request: UpdateRunRequest,
    ) -> BoxFuture<'a, Result<Run, CallError>> {
        Box::pin(async move {
            let (_, is_stored) = self.engine.stored_run(run).await?;
            let UpdateRunRequest { labels, expires_at } = request.check()?;
            if !is_stored {
                return Err(still_importing().into());
            }
            let entry = lifecycle::updated(run, caller, labels, expires_at.clone());
            let (runs, run) = (Arc::clone(self), run.clone());
            let work = async move {
                match expires_at {
                    None => drop(runs.engine.append_change(entry).await?),
                    Some(expires_at) => {
                        // Opened first, so that no other call opens the run with the earlier time. A run that cannot be opened
                        // reads the time later.
                        let open_run = runs.engine.open(&run).await.ok();
                        let _updating = match &open_run {
                            Some(open_run) => Some(open_run.updating.lock().await),
                            None => None,
                        };
                        let epoch = open_run.as_ref().and_then(|open_run| open_run.epoch);
                        runs.engine.append_change(Entry { epoch, ..entry }).await?;
                        if let Some(open_run) = &open_run {
                            open_run.set_expiry(expires_at.into());
                        }
                    }
                }
                tracing::info!(run.id = %run, "run updated");
                runs.engine.run(&run).await
            };
            self.engine.detached(work).await
        })
    }
}
