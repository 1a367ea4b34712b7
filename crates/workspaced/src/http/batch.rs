//! Several tool calls in one request.

use std::collections::HashSet;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use model::{Refusal, RunId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::CallError;
use crate::answer_memory::{HeldAnswer, SMALL_BYTES};
use crate::calls::{Answer, CallContext};
use crate::http::auth::RunCaller;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::pipeline::{Call, Outcomes};
use crate::service::{Caller, Service};
use crate::tools;

/// The most calls of one batch.
pub(crate) const MAX_CALLS: usize = 100;
/// Once the answers of a batch have so many bytes, the calls after them are left out.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Tool calls to carry out in order.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"calls": [{"tool": "read_file", "input": {"path": "README.md"}}]}))]
pub(crate) struct BatchRequest {
    /// The calls.
    #[schema(min_items = 1, max_items = 100)]
    calls: Vec<BatchCall>,
    /// Whether the calls behind one that does not succeed are left out.
    #[serde(default)]
    stop_on_error: bool,
    /// Whether the calls are one change: planned one upon another, judged together, done all or none.
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
pub(crate) struct BatchResponse {
    /// Whether every call went well, and none was left out.
    ok: bool,
    /// The answers, in the order of the calls.
    results: Vec<BatchResult>,
    /// How many calls were left out: after one that did not succeed, or because the answers before them have 16 MiB, or less
    /// where the service has no memory for more.
    skipped: usize,
    /// Of an atomic batch that was refused: the place in `results`, from 0, of the call that is at fault. Missing where no
    /// single one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_call: Option<usize>,
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
    answer: Box<RawValue>,
}

/// Carries out several tool calls.
///
/// In order, each as if it were called by itself: with its own permission, judgement and record. One that fails undoes
/// none of those before it. Once the answers have 16 MiB, the calls after them are left out.
///
/// With `atomic: true` the calls are one change: each is planned upon those before it, their budgets count together, one
/// approval stands for all, and one transaction records each call under its own `toolCallId`. Where one is refused,
/// nothing is done: it is answered why, every other `BATCH_NOT_DONE`. A read sees what the calls before it would leave, in
/// files that it names; one that looks at more than those (a folder, a search) has to stand before the changes. A batch
/// that waits for a person leaves its reads out. Repeated as it was, it answers what it answered the first time. `dryRun`
/// is set in all changes or in none.
#[utoipa::path(
    post, path = "/v1/runs/{run}/batch", tag = "tools", operation_id = "batch", params(("run" = RunId, Path)),
    request_body = BatchRequest,
    responses((status = 200, description = "What each call answered; `ok` says whether all went well.", body = BatchResponse)),
)]
pub(super) async fn batch(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
    Json(batch): Json<BatchRequest>,
) -> Result<Response, Problem> {
    check(&batch)?;
    if batch.atomic {
        return Ok(Json(together(&service, &run, &caller, batch.calls).await?).into_response());
    }
    let asked = batch.calls.len();
    let mut results = Vec::with_capacity(asked);
    let mut ok = true;
    let mut answer_bytes = 0;
    let mut held = HeldAnswer::default();
    for call in batch.calls {
        let (status, answer) = match tools::find(&call.tool) {
            None => told(&super::tools::tool_not_found().into()),
            Some(tool) => {
                let input = Value::Object(call.input).to_string().into();
                match service.call_tool(&run, caller.clone(), tool, input).await {
                    Ok(answer) => (StatusCode::OK, raw(answer.body)),
                    Err(failed) => told(&Problem::from(failed.error).of_call(failed.tool_call_id)),
                }
            }
        };
        ok &= status == StatusCode::OK;
        answer_bytes += answer.get().len();
        results.push(BatchResult { tool: call.tool, status: status.as_u16(), answer });
        if (!ok && batch.stop_on_error) || answer_bytes >= MAX_ANSWER_BYTES {
            break;
        }
        // What one small call answers is not worth it.
        if answer_bytes > SMALL_BYTES && !service.state.answer_memory.grow(&mut held, answer_bytes) {
            break;
        }
    }
    ok &= results.len() == asked;
    let answer = BatchResponse { ok, skipped: asked - results.len(), results, failed_call: None };
    let mut response = Json(answer).into_response();
    response.extensions_mut().insert(held);
    Ok(response)
}

/// Carries the calls out as one change.
async fn together(
    service: &Service,
    run: &RunId,
    caller: &Caller,
    calls: Vec<BatchCall>,
) -> Result<BatchResponse, CallError> {
    let mut heads = Vec::with_capacity(calls.len());
    for (place, call) in calls.into_iter().enumerate() {
        let tool = tools::find(&call.tool).ok_or_else(|| {
            let Refusal { code, hint, .. } = super::tools::tool_not_found();
            Refusal::new(code, format!("call {place} of the batch: there is no tool `{}`", call.tool), hint)
        })?;
        heads.push(CallContext::of(run, caller.clone(), tool, call.input));
    }
    check_together(&heads)?;
    let told: Vec<_> = heads.iter().map(|(head, _)| (head.tool.name, head.tool_call_id.clone())).collect();
    let Outcomes { answers, failed } = service.call_together(heads).await?;
    let result = |((tool, id), answer): ((&str, ToolCallId), Result<Answer, CallError>)| {
        let (status, answer) = match answer {
            Ok(answer) => (StatusCode::OK, raw(answer.body)),
            Err(error) => self::told(&Problem::from(error).of_call(id)),
        };
        BatchResult { tool: tool.to_owned(), status: status.as_u16(), answer }
    };
    let results: Vec<_> = told.into_iter().zip(answers).map(result).collect();
    let ok = results.iter().all(|result| result.status == StatusCode::OK);
    Ok(BatchResponse { ok, results, skipped: 0, failed_call: failed })
}

/// What calls must have in common to be one change.
fn check_together(heads: &[Call]) -> Result<(), Refusal> {
    let mut ids = HashSet::new();
    if let Some((head, _)) = heads.iter().find(|(head, _)| head.client_supplied_id && !ids.insert(&head.tool_call_id)) {
        let message = format!("two calls of the batch have the tool call ID `{}`", head.tool_call_id);
        return Err(Refusal::invalid(message, "Give every call an ID of its own, or leave toolCallId out."));
    }
    // An input that could not be taken apart is refused as its call's own.
    let mut changes = heads.iter().filter(|(head, members)| head.tool.mutates() && members.is_ok());
    let first = changes.next().map(|(head, _)| head.dry_run);
    if changes.any(|(head, _)| Some(head.dry_run) != first) {
        let message = "`dryRun` is set in some changes of the batch and not in others";
        return Err(Refusal::invalid(message, "Set `dryRun` in all changes of an atomic batch, or in none."));
    }
    Ok(())
}

fn check(batch: &BatchRequest) -> Result<(), Refusal> {
    if !(1..=MAX_CALLS).contains(&batch.calls.len()) {
        let message = format!("`calls` has {} entries; it takes 1 to {MAX_CALLS}", batch.calls.len());
        return Err(Refusal::invalid(message, "Make several batches.").with_details(|details| {
            (details.limit, details.actual) = (Some(MAX_CALLS as u64), Some(batch.calls.len() as u64))
        }));
    }
    Ok(())
}

/// A problem as a part of an answer.
fn told(problem: &Problem) -> (StatusCode, Box<RawValue>) {
    (problem.status(), raw(problem.text().0))
}

/// JSON text as a part of an answer, without a tree of its values.
fn raw(text: String) -> Box<RawValue> {
    // What is no JSON was written by nobody here.
    RawValue::from_string(text).unwrap_or_default()
}
