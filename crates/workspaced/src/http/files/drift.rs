//! The route of a run's drift: files that differ from its ledger.

use axum::extract::State;
use axum::response::IntoResponse;
use engine::tools::{Accept, DriftReport, SettledDrift};
use model::{RunId, json};

use crate::http::auth::{Orchestrator, RunCaller};
use crate::http::extract::{JsonBytes, Path, Query, json_text};
use crate::http::problem::Problem;
use crate::service::Service;

/// List files that differ from the ledger
///
/// Finds changes that no call of the run made: compares every file with its last version in the run's audit, or with the base
/// if the audit has none. Requires the permission `file:diff`; the call is recorded.
#[utoipa::path(
    get, path = "/v1/runs/{run}/drift", tag = "files", operation_id = "getDrift", params(("run" = RunId, Path)),
    responses((status = 200, description = "The files that differ; none if the tree is intact.", body = DriftReport)),
)]
pub(crate) async fn get_drift(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
) -> Result<impl IntoResponse, Problem> {
    Ok(json_text(service.calls.drift(&run, caller).await?))
}

/// Settle files that differ from the ledger
///
/// `accept: "tree"` records the files as they are, as one mutation with its diff; nothing is written. `accept: "ledger"` records the
/// changes from outside by themselves, as nobody's, and then restores the files. Each path is judged as that of any mutation; the
/// agent's budgets do not count. Without `paths`, all that `GET …/drift` lists, as many as fit into one call: repeat it while
/// `remaining` is not 0.
#[utoipa::path(
    post, path = "/v1/runs/{run}/drift", tag = "files", operation_id = "settleDrift", params(("run" = RunId, Path)),
    request_body = SettleRequest,
    responses((status = 200, description = "What is settled.", body = SettledDrift)),
)]
pub(crate) async fn settle_drift(
    State(service): State<Service>,
    operator: Orchestrator,
    Path(run): Path<RunId>,
    Query(()): Query<()>,
    JsonBytes(body): JsonBytes,
) -> Result<impl IntoResponse, Problem> {
    let settled = service.calls.settle_drift(&run, operator.caller(), json::parse_object(&body)).await;
    let answer = settled.map_err(|failed| Problem::from(failed.error).of_call(failed.tool_call_id))?;
    Ok(json_text(answer.to_json()))
}

/// A settlement.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the API document; the engine parses it as that of any call")]
pub(crate) struct SettleRequest {
    #[schema(inline)]
    accept: Accept,
    /// The paths to settle, at most 500. Without it, all.
    #[schema(max_items = 500)]
    paths: Option<Vec<String>>,
    /// Why. It is recorded.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
    /// The ID of the call. A repeated ID is a retry of the same call.
    #[schema(min_length = 1, max_length = 128)]
    tool_call_id: Option<String>,
    /// Return what the call would settle, without recording or changing anything.
    dry_run: Option<bool>,
}
