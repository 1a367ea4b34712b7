//! Several tool calls in one request.

use axum::extract::State;
use axum::http::StatusCode;
use model::{Refusal, RunId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::auth::RunCaller;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;
use crate::tools;

/// The most calls of one batch.
pub(crate) const MAX_CALLS: usize = 100;

/// Tool calls to carry out in order.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"calls": [{"tool": "read_file", "input": {"path": "README.md"}}]}))]
pub(crate) struct Batch {
    /// The calls.
    #[schema(min_items = 1, max_items = 100)]
    calls: Vec<BatchCall>,
    /// Whether the calls behind one that does not succeed are left out.
    #[serde(default)]
    stop_on_error: bool,
    /// One change set of all calls: refused for now. `apply_patch` changes many files at once.
    #[serde(default)]
    atomic: bool,
}

/// One call of a batch.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BatchCall {
    /// The tool.
    #[schema(example = "read_file")]
    tool: String,
    /// Its input, as the tool's own route takes it.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: Map<String, Value>,
}

/// What the calls of a batch answered.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BatchAnswer {
    /// Whether every call went well.
    ok: bool,
    /// The answers, in the order of the calls.
    results: Vec<BatchResult>,
    /// How many calls were left out behind one that did not succeed.
    skipped: usize,
}

/// What one call answered.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BatchResult {
    /// The tool.
    tool: String,
    /// The HTTP status that the call by itself would have had.
    status: u16,
    /// The answer that the call by itself would have had.
    #[schema(value_type = Object)]
    answer: Value,
}

/// Carries out several tool calls.
///
/// In order, each as if it were called by itself: with its own permission, judgement and record. One that fails undoes
/// none of those before it.
#[utoipa::path(
    post, path = "/v1/runs/{run}/batch", tag = "tools", operation_id = "batch", params(("run" = RunId, Path)),
    request_body = Batch,
    responses((status = 200, description = "What each call answered; `ok` says whether all went well.", body = BatchAnswer)),
)]
pub(super) async fn batch(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
    Json(batch): Json<Batch>,
) -> Result<Json<BatchAnswer>, Problem> {
    check(&batch)?;
    let asked = batch.calls.len();
    let mut results = Vec::with_capacity(asked);
    let mut ok = true;
    for call in batch.calls {
        let (status, answer) = match tools::find(&call.tool) {
            None => told(&super::tools::tool_not_found().into()),
            Some(tool) => {
                let input = Value::Object(call.input).to_string();
                match service.call_tool(&run, caller.clone(), tool, input.as_bytes()).await {
                    Ok(answer) => (StatusCode::OK, serde_json::from_str(&answer.body).unwrap_or_default()),
                    Err(failed) => told(&Problem::from(failed.error).of_call(failed.tool_call_id)),
                }
            }
        };
        ok &= status == StatusCode::OK;
        results.push(BatchResult { tool: call.tool, status: status.as_u16(), answer });
        if !ok && batch.stop_on_error {
            break;
        }
    }
    Ok(Json(BatchAnswer { ok, skipped: asked - results.len(), results }))
}

fn check(batch: &Batch) -> Result<(), Refusal> {
    if batch.atomic {
        let hint = "Leave `atomic` out, or change all files by one apply_patch, which is whole or not at all.";
        return Err(Refusal::invalid("`atomic` is not taken by this service", hint));
    }
    if !(1..=MAX_CALLS).contains(&batch.calls.len()) {
        let message = format!("`calls` has {} entries; it takes 1 to {MAX_CALLS}", batch.calls.len());
        return Err(Refusal::invalid(message, "Make several batches.")
            .about(|about| (about.limit, about.actual) = (Some(MAX_CALLS as u64), Some(batch.calls.len() as u64))));
    }
    Ok(())
}

/// A problem as a part of an answer.
fn told(problem: &Problem) -> (StatusCode, Value) {
    (problem.status(), serde_json::from_str(&problem.text().0).unwrap_or_default())
}
