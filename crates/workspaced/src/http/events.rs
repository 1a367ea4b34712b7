//! Routes of events, and of the artifacts that they name.

pub(crate) mod uploads;

use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use engine::calls::{AppendEventRequest, AppendedEvent};
use model::{RunId, json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::auth::RunCaller;
use crate::http::extract::{Json, JsonBytes, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::service::Service;

/// Several events of one run, in order.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AppendEventsRequest {
    /// The events.
    #[schema(min_items = 1, max_items = 100, value_type = Vec<AppendEventRequest>)]
    events: Vec<Map<String, Value>>,
}

/// The recorded events.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AppendedEvents {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
    /// The events, in the order of the request.
    events: Vec<AppendedEvent>,
}

/// The refusals of both routes, for the API document.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "only the derived description is used")]
enum EventRefusal {
    /// `RUN_CLOSED`; `TOOL_CALL_ID_REUSED`: an ID belongs to another event or call.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(ProblemBody<'static>),
    /// `QUOTA_EXCEEDED`: the run has too many events, or too many bytes of them.
    #[response(status = 507, content_type = "application/problem+json")]
    QuotaExceeded(ProblemBody<'static>),
}

/// Append an event
///
/// Records what happened outside of the tools: a prompt, a command, a test, a hand-over. The record is part of the run's
/// chain; its `tool` is `event.KIND`, its `toolCallId` the `eventId`, its `input` has `summary`, `data` and `startedAt`.
/// Credentials in any text are replaced by `[redacted: kind]`. Requires the permission `event:append`, which a token has only
/// if it was issued with it. A run takes 10,000 events and uploaded artifacts with 64 MiB together.
#[utoipa::path(
    post, path = "/v1/runs/{run}/events", tag = "events", operation_id = "appendEvent", params(("run" = RunId, Path)),
    request_body = AppendEventRequest,
    responses(
        (status = 201, description = "The event is recorded, now or before.", body = AppendedEvent),
        EventRefusal,
    ),
)]
pub(crate) async fn append_event(
    State(service): State<Service>,
    RunCaller { run, caller, .. }: RunCaller,
    Query(()): Query<()>,
    request: Request,
) -> Result<(StatusCode, Json<AppendedEvent>), Problem> {
    service.calls.admit_event(&run, &caller).await?;
    let JsonBytes(body) = JsonBytes::from_request(request, &service).await?;
    let event = match json::parse_object(&body) {
        Ok(event) => event,
        Err(refusal) => return Err(service.calls.refuse_event(&run, &caller, refusal).await.into()),
    };
    let appended = service.calls.append_events(&run, &caller, vec![event]).await?;
    let event = appended.into_iter().next().ok_or_else(Problem::internal)?;
    Ok((StatusCode::CREATED, Json(event)))
}

/// Append several events
///
/// All of them, or none. Events that are recorded already under their `eventId` are returned as they were, so that a request
/// can be repeated.
#[utoipa::path(
    post, path = "/v1/runs/{run}/events/batch", tag = "events", operation_id = "appendEvents",
    params(("run" = RunId, Path)), request_body = AppendEventsRequest,
    responses(
        (status = 201, description = "The events are recorded, now or before.", body = AppendedEvents),
        EventRefusal,
    ),
)]
pub(crate) async fn append_events(
    State(service): State<Service>,
    caller: RunCaller,
    Query(()): Query<()>,
    request: Request,
) -> Result<(StatusCode, Json<AppendedEvents>), Problem> {
    service.calls.admit_event(&caller.run, &caller.caller).await?;
    let JsonBytes(body) = JsonBytes::from_request(request, &service).await?;
    let request: AppendEventsRequest = match json::parse_into(&body) {
        Ok(request) => request,
        Err(refusal) => return Err(service.calls.refuse_event(&caller.run, &caller.caller, refusal).await.into()),
    };
    caller.charge(&service, request.events.len())?;
    let RunCaller { run, caller, .. } = caller;
    let events = service.calls.append_events(&run, &caller, request.events).await?;
    Ok((StatusCode::CREATED, Json(AppendedEvents { ok: true, events })))
}
