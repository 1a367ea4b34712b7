//! The routes of runners, which run the commands that callers of `run_command` want.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use engine::calls::{CommandResultAnswer, CommandResultRequest, NextCommand, NextCommandRequest, command_set_id};
use model::{Refusal, RunId, ToolCallId};

use crate::http::auth::RunCaller;
use crate::http::changesets::{NotReceived, Parts};
use crate::http::extract::body::closed;
use crate::http::extract::{Json, JsonBytes, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// The part with the JSON of a result.
const RESULT: &str = "result";
const HINT: &str = "Send multipart/form-data with the part `result` (JSON), and then, if the command changed something, the part \
                    `layer` (a tar, tar.gz or tar.zst).";

/// The parts of a result, for the API document.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only the derived description is used")]
pub(crate) struct CommandResultParts {
    /// How the command ended.
    result: CommandResultRequest,
    /// What it changed, as in a change set; without it, nothing.
    #[schema(value_type = Option<String>, format = Binary)]
    layer: Option<Vec<u8>>,
}

/// Take the next command
///
/// What a runner has to do next: a command that a caller of `run_command` wants run, or to end the one that it runs. The answer waits up to
/// `waitSeconds` for it. A runner is attached to the run while it asks, and for 14 seconds after; as long as one is, `run_command` is in the
/// catalogue of the run's tokens. A command is given to one runner, which has one at a time, and again if the answer was lost: a runner
/// runs each `commandId` once. Requires the permission `command:serve`, which a token has only if it was issued with it.
#[utoipa::path(
    post, path = "/v1/runs/{run}/commands/next", tag = "commands", operation_id = "nextCommand", params(("run" = RunId, Path)),
    request_body = NextCommandRequest,
    responses(
        (status = 200, description = "What to do next; empty if there is nothing: ask again.", body = NextCommand),
        (status = 409, description = "`RUN_CLOSED`: the runner can end.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn next_command(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<NextCommand>, Problem> {
    Ok(Json(service.calls.next_command(&run, &caller, &body).await?))
}

/// Report the result of a command
///
/// How a command ended, and what it changed. The command is recorded as an event, what it changed is judged and applied as a change set with
/// the limits of `commandBudget`, in one commit, and the call that waits is answered. The same report again is answered as before. Requires
/// `command:serve`, and with a layer `changeset:apply`.
#[utoipa::path(
    post, path = "/v1/runs/{run}/commands/{commandId}/result", tag = "commands", operation_id = "reportCommand",
    params(("run" = RunId, Path), ("commandId" = String, Path, description = "The `commandId` that the runner was given.")),
    request_body(content = CommandResultParts, content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "It is recorded, now or before.", body = CommandResultAnswer),
        (status = 404, description = "`NOT_FOUND`: the runner does not have this command.", body = ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn report_command(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    ids: Path<(String, String)>,
    Query(()): Query<()>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    service.calls.check_serves(&run, &caller).await?;
    let Path((_, id)) = ids;
    let id = ToolCallId::parse(&id);
    let set_id = |_: &[u8]| id.as_ref().ok().and_then(command_set_id);
    let Parts { json, layer } = match Parts::receive(&service, &run, &headers, body, (RESULT, HINT), set_id).await {
        Ok(parts) => parts,
        Err(NotReceived::Refused(refusal)) => {
            return Err(closed(service.calls.refuse_command_result(&run, &caller, refusal).await.into()));
        }
        Err(NotReceived::Failed(problem)) => return Err(problem),
    };
    let id = id.map_err(|error| Refusal::invalid(error.to_string(), "Give the commandId as it was given."))?;
    let is_cut = matches!(layer, Some(Err(_)));
    // The future has the whole call: too large for the stack of every layer above it.
    let mut response = match Box::pin(service.calls.end_command(&run, caller, &id, &json, layer)).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => Problem::from(error).into_response(),
    };
    if is_cut {
        // Of a layer that was refused on its way, the rest is not read.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
