//! The audit's routes: lists, the stream, one call, the check of the chain.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use ledger::RecordFilter;
use model::{Record, Refusal, RunId, ToolCallId};

use crate::audit::{Filters, Follow, RunFilter, ToolCall, Wait};
use crate::checkpoints::AuditVerification;
use crate::http::auth::{Auditor, RunAuditor};
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::Problem;
use crate::page::{Cursor, List, Page, Paging};
use crate::service::Service;
use crate::throttle::OpenStream;

/// Between two signs of life of a stream that has nothing to tell.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Lists the records of all runs.
///
/// In the order in which they were written.
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", operation_id = "listAudit", params(RunFilter, Filters, Paging),
    responses((status = 200, description = "One page of records.", body = Page<Record>)),
)]
pub(super) async fn list_audit(
    State(service): State<Service>,
    _auditor: Auditor,
    Query((run, filters, paging)): Query<(RunFilter, Filters, Paging)>,
) -> Result<Response, Problem> {
    let filter = filters.to_ledger(run.run()?)?;
    page_of(&service, &filter, &paging, List::Audit).await
}

/// Lists the records of a run.
///
/// In order: `seq` is 1, 2, 3 … without gaps.
#[utoipa::path(
    get, path = "/v1/runs/{run}/audit", tag = "audit", operation_id = "listRunAudit",
    params(("run" = RunId, Path), Filters, Paging),
    responses((status = 200, description = "One page of records.", body = Page<Record>)),
)]
pub(super) async fn list_run_audit(
    State(service): State<Service>,
    RunAuditor { run, .. }: RunAuditor,
    Query((filters, paging)): Query<(Filters, Paging)>,
) -> Result<Response, Problem> {
    let filter = filters.to_ledger(Some(run.clone()))?;
    let list = List::RunAudit(&run);
    paging.check(list)?;
    service.known_run(&run).await?;
    page_of(&service, &filter, &paging, list).await
}

/// A page of records, each in the very text that its hash was taken over.
async fn page_of(
    service: &Service,
    filter: &RecordFilter,
    paging: &Paging,
    list: List<'_>,
) -> Result<Response, Problem> {
    let (limit, after) = paging.check(list)?;
    let page = service.records(filter, after, limit, list).await?;
    let cursor = page.next_cursor.map(|cursor| format!(",\"nextCursor\":\"{cursor}\"")).unwrap_or_default();
    let body = format!("{{\"items\":[{}]{cursor}}}", page.items.join(","));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Follows the records of all runs.
///
/// As Server-Sent Events: `event: audit`, the record as `data`, and an `id` that `Last-Event-ID` takes to go on without a
/// gap. Without it the stream begins with the next record, or with `since` where that is given. A stream is a request under
/// way for as long as it is open; half of those that a token may have can be streams.
#[utoipa::path(
    get, path = "/v1/audit/stream", tag = "audit", operation_id = "streamAudit",
    params(
        RunFilter, Filters,
        ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event that was received."),
    ),
    responses((status = 200, description = "Events, until the service ends.", body = String,
        content_type = "text/event-stream", example = json!("event: audit\nid: c1\ndata: {\"runId\":\"issue-4711\",…}\n\n"))),
)]
pub(super) async fn stream_audit(
    State(service): State<Service>,
    Auditor { turn }: Auditor,
    Query((run, filters)): Query<(RunFilter, Filters)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let filter = filters.to_ledger(run.run()?)?;
    let after = match last_event(&headers)? {
        Some(cursor) => cursor.position(),
        None if filter.since.is_some() => 0,
        None => service.newest_position(),
    };
    let events = Sse::new(events(service.follow(filter, after), turn.into_stream()?));
    Ok(events.keep_alive(KeepAlive::new().interval(HEARTBEAT).text("alive")).into_response())
}

fn last_event(headers: &HeaderMap) -> Result<Option<Cursor>, Refusal> {
    let Some(told) = headers.get("last-event-id") else { return Ok(None) };
    match told.to_str() {
        Ok("") => Ok(None),
        Ok(raw) => Cursor::parse(raw, List::Audit).map(Some).map_err(|_| unknown_event()),
        Err(_) => Err(unknown_event()),
    }
}

fn unknown_event() -> Refusal {
    Refusal::invalid("`Last-Event-ID` is none of this stream", "Send the `id` of the last event, or leave it out.")
}

fn events(follow: Follow, open: OpenStream) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold((follow, open), async |(mut follow, open)| match follow.next().await {
        Ok(Some(record)) => {
            let id = Cursor::behind(record.position).to_text(List::Audit);
            let event = Event::default().event("audit").id(id).data(record.text);
            Some((Ok(event), (follow, open)))
        }
        Ok(None) => None,
        Err(error) => {
            // The client comes back with Last-Event-ID and misses nothing.
            tracing::warn!(error = &error as &dyn std::error::Error, "a stream ends");
            None
        }
    })
}

/// Checks a run's chain.
///
/// Every record's hash, its place, that the last one is the run's head, and that the chain is the one that was signed in
/// checkpoints; tells up to which record they cover it.
#[utoipa::path(
    get, path = "/v1/runs/{run}/audit/verify", tag = "audit", operation_id = "verifyRunAudit",
    params(("run" = RunId, Path)),
    responses((status = 200, description = "What was found; `intact` says whether all is well.", body = AuditVerification)),
)]
pub(super) async fn verify_run(
    State(service): State<Service>,
    RunAuditor { run, .. }: RunAuditor,
    Query(()): Query<()>,
) -> Result<Json<AuditVerification>, Problem> {
    Ok(Json(service.checkpoints().verify_run(&run).await?))
}

/// Tells of one tool call.
///
/// The full record: hashes, kinds, policy's decision with its reasons, artifacts; with the approval where it asked for one.
/// The approval's diff is shown to operators, and to run tokens with `file:read`.
/// With `waitSeconds` a call that waits for a person is answered once it is decided, or when the time is over.
#[utoipa::path(
    get, path = "/v1/runs/{run}/tool-calls/{toolCallId}", tag = "audit", operation_id = "getToolCall",
    params(("run" = RunId, Path), ("toolCallId" = ToolCallId, Path), Wait),
    responses((status = 200, description = "The call's record.", body = ToolCall)),
)]
pub(super) async fn get_tool_call(
    State(service): State<Service>,
    RunAuditor { run, may_read, turn }: RunAuditor,
    Path((_run, id)): Path<(String, ToolCallId)>,
    Query((wait,)): Query<(Wait,)>,
) -> Result<Json<ToolCall>, Problem> {
    let call = tokio::select! {
        call = service.tool_call_once_decided(&run, &id, wait.patience()) => call?,
        () = service.token_ended(turn.token()) => return Err(Problem::unauthenticated()),
    };
    Ok(Json(if may_read { call } else { call.without_content() }))
}
