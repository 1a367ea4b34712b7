//! The route of batches: several tool calls in one request.

use std::collections::HashSet;

use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use engine::calls::{Answer, Call, CallWithInput, Outcomes, RecordedError};
use engine::{CallError, Caller, tools};
use model::{Refusal, RunId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::answer_memory::{HeldAnswer, SMALL_BYTES};
use crate::http::auth::RunCaller;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::http::tools::tool_not_found;
use crate::service::Service;

/// Maximum number of calls in a batch.
pub(crate) const MAX_CALLS: usize = 100;
/// Once the results of a batch reach this size, its remaining calls are skipped.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Tool calls to execute in order.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"calls": [{"tool": "read_file", "input": {"path": "README.md"}}]}))]
pub(crate) struct BatchRequest {
    /// The calls.
    #[schema(min_items = 1, max_items = 100)]
    calls: Vec<BatchCall>,
    /// Whether to skip the remaining calls after one that does not succeed.
    #[serde(default)]
    stop_on_error: bool,
    /// Whether to execute the calls as one transaction: all of them or none.
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
    /// Its input, as for the tool's own route.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: Map<String, Value>,
}

/// The results of a batch.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BatchResponse {
    /// Whether every call succeeded and none was skipped.
    ok: bool,
    /// The results, in the order of the calls.
    results: Vec<BatchResult>,
    /// Number of calls that were skipped: after one that did not succeed, or because the results reached 16 MiB, or less if
    /// the service was short of memory.
    skipped: usize,
    /// For a refused atomic batch: the index in `results`, from 0, of the call that caused it. Missing if no single call did.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_call: Option<usize>,
}

/// The result of one call of a batch.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BatchResult {
    /// The tool.
    tool: String,
    /// The HTTP status that the call would have had on its own.
    status: u16,
    /// The response body that the call would have had on its own.
    #[schema(value_type = Object)]
    answer: Box<RawValue>,
}

/// Execute several tool calls
///
/// Executes the calls in order, each as if it were sent on its own, with its own permission check, policy decision and
/// record. A failing call does not undo earlier ones. Once the results reach 16 MiB the remaining calls are skipped.
///
/// With `atomic: true` the calls are one transaction: each call sees the effects of earlier ones, their budgets are added up,
/// one approval covers all, and they are committed together, each recorded under its own `toolCallId`. If one call is
/// refused, none takes effect: that call returns its refusal, every other `BATCH_NOT_DONE`. A read sees the effects of
/// earlier calls on files that it names; a read of a folder or a search must come before all mutations. If the batch
/// requires approval, its reads are skipped. A repeated batch returns its first response. `dryRun` must be the same in all
/// mutations.
#[utoipa::path(
    post, path = "/v1/runs/{run}/batch", tag = "tools", operation_id = "executeBatch", params(("run" = RunId, Path)),
    request_body = BatchRequest,
    responses((status = 200, description = "The result of each call; `ok` says whether all succeeded.", body = BatchResponse)),
)]
pub(crate) async fn batch(
    State(service): State<Service>,
    caller: RunCaller,
    Query(()): Query<()>,
    request: Request,
) -> Result<Response, Problem> {
    service.calls.check_permitted_batch(&caller.run, &caller.caller).await?;
    let Json(batch) = Json::<BatchRequest>::from_request(request, &service).await?;
    check(&batch)?;
    caller.charge(&service, batch.calls.len())?;
    let RunCaller { run, caller, .. } = &caller;
    if batch.atomic {
        return Ok(Json(execute_atomically(&service, run, caller, batch.calls).await?).into_response());
    }
    let requested = batch.calls.len();
    let mut results = Vec::with_capacity(requested);
    let mut ok = true;
    let mut answer_bytes = 0;
    let held = HeldAnswer::default();
    for call in batch.calls {
        let (status, answer) = match tools::find(&call.tool) {
            None => refused(&tool_not_found().into()),
            Some(tool) => {
                let input = Value::Object(call.input).to_string().into();
                match service.calls.call_tool(run, caller.clone(), tool, input).await {
                    Ok(answer) => (StatusCode::OK, raw(answer.to_json())),
                    Err(failed) => refused(&Problem::from(failed.error).of_call(failed.tool_call_id)),
                }
            }
        };
        ok &= status == StatusCode::OK;
        answer_bytes += answer.get().len();
        results.push(BatchResult { tool: call.tool, status: status.as_u16(), answer });
        if (!ok && batch.stop_on_error) || answer_bytes >= MAX_ANSWER_BYTES {
            break;
        }
        // Memory is reserved for large responses only.
        if answer_bytes > SMALL_BYTES && service.state.answer_memory.grow(&held, answer_bytes).is_err() {
            break;
        }
    }
    ok &= results.len() == requested;
    let answer = BatchResponse { ok, skipped: requested - results.len(), results, failed_call: None };
    let mut response = Json(answer).into_response();
    response.extensions_mut().insert(held);
    Ok(response)
}

/// Executes the calls as one transaction.
async fn execute_atomically(
    service: &Service,
    run: &RunId,
    caller: &Caller,
    calls: Vec<BatchCall>,
) -> Result<BatchResponse, CallError> {
    let mut heads = Vec::with_capacity(calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        let tool = tools::find(&call.tool).ok_or_else(|| {
            let Refusal { code, hint, .. } = tool_not_found();
            Refusal::new(code, format!("call {index} of the batch: no such tool `{}`", call.tool), hint)
        })?;
        heads.push(Call::of(run, caller.clone(), tool, call.input));
    }
    check_atomic(&heads)?;
    let names: Vec<_> = heads.iter().map(|(head, _)| (head.tool.name, head.tool_call_id.clone())).collect();
    let Outcomes { answers, failed } = service.calls.call_batch(heads).await?;
    let result = |((tool, id), answer): ((&str, ToolCallId), Result<Answer, RecordedError>)| {
        let (status, answer) = match answer {
            Ok(answer) => (StatusCode::OK, raw(answer.to_json())),
            Err(error) => refused(&Problem::from(error).of_call(id)),
        };
        BatchResult { tool: tool.to_owned(), status: status.as_u16(), answer }
    };
    let results: Vec<_> = names.into_iter().zip(answers).map(result).collect();
    let ok = results.iter().all(|result| result.status == StatusCode::OK);
    Ok(BatchResponse { ok, results, skipped: 0, failed_call: failed })
}

/// Checks that calls can be one transaction.
fn check_atomic(heads: &[CallWithInput]) -> Result<(), Refusal> {
    let mut ids = HashSet::new();
    if let Some((head, _)) = heads.iter().find(|(head, _)| head.client_supplied_id && !ids.insert(&head.tool_call_id)) {
        let message = format!("two calls of the batch have the tool call ID `{}`", head.tool_call_id);
        return Err(Refusal::invalid(message, "Give every call an ID of its own, or omit toolCallId."));
    }
    // A call whose input is malformed is refused on its own.
    let mut changes = heads.iter().filter(|(head, members)| head.tool.mutates() && members.is_ok());
    let first = changes.next().map(|(head, _)| head.dry_run);
    if changes.any(|(head, _)| Some(head.dry_run) != first) {
        let message = "`dryRun` is set in some mutations of the batch and not in others";
        return Err(Refusal::invalid(message, "Set `dryRun` in all mutations of an atomic batch, or in none."));
    }
    Ok(())
}

fn check(batch: &BatchRequest) -> Result<(), Refusal> {
    if !(1..=MAX_CALLS).contains(&batch.calls.len()) {
        let message = format!("`calls` has {} entries; expected 1 to {MAX_CALLS}", batch.calls.len());
        return Err(Refusal::invalid(message, "Split the calls into several batches.").with_details(|details| {
            (details.limit, details.actual) = (Some(MAX_CALLS as u64), Some(batch.calls.len() as u64));
        }));
    }
    Ok(())
}

/// Returns the result of a refused call.
fn refused(problem: &Problem) -> (StatusCode, Box<RawValue>) {
    (problem.status(), raw(problem.text().0))
}

/// Embeds JSON text in a response without parsing it into values.
fn raw(text: String) -> Box<RawValue> {
    // Responses are always valid JSON.
    RawValue::from_string(text).unwrap_or_default()
}
