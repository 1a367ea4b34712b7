//! Routes of the audit: lists and a stream of records, single calls, verification.

pub(crate) mod artifacts;
pub(crate) mod changes;
pub(crate) mod checkpoints;
mod event_stream;
pub(crate) mod export;
pub(crate) mod report;
pub(crate) mod stats;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use engine::audit::{FilterByRun, Filters, RecordFilter, StartQuery, ToolCall, WaitQuery, without_event_data};
use engine::{CreatedQuery, Cursor, LabelQuery, List, ListKey, OrderQuery, Page, Paging};
use futures_util::stream;
use model::{Record, RunId, ToolCallId};

use crate::http::auth::{Reviewer, RunAuditor};
use crate::http::extract::{Json, Path, Query, json_text};
use crate::http::problem::Problem;
use crate::service::Service;
use proofs::checkpoints::AuditVerification;

/// The query of the list of all records.
type AuditQuery = (FilterByRun, Filters, CreatedQuery, LabelQuery, OrderQuery, Paging);

/// List the records of all runs
///
/// In the order in which they were written, or the newest first. A page may have fewer records than match, also none, because
/// it searches a bounded number of records: there are more as long as it has a `nextCursor`. The records of an archived run are
/// in its archive: a list of that run is refused, and one of all runs is without them. An operator with the scope `approve` alone
/// names a run.
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", operation_id = "listAudit",
    params(FilterByRun, Filters, CreatedQuery, LabelQuery, OrderQuery, Paging),
    responses((status = 200, description = "One page of records.", body = Page<Record>)),
)]
pub(crate) async fn list_audit(
    State(service): State<Service>,
    reviewer: Reviewer,
    Query((run, filters, created, labels, order, paging)): Query<AuditQuery>,
) -> Result<impl IntoResponse, Problem> {
    reviewer.check_may_list(run.run()?.as_ref())?;
    let filter = filters.to_ledger(run.run()?, &created, &labels, order)?;
    let list = List::Audit.filtered(&filter);
    let (limit, after) = paging.check(&list)?;
    service.audit.check_not_archived(filter.run.as_ref()).await?;
    page_of(&service, &filter, after, limit, &list, true).await
}

/// The query of the list of a run's records.
type RunAuditQuery = (Filters, CreatedQuery, LabelQuery, OrderQuery, StartQuery, Paging);

/// List the records of a run
///
/// In order: `seq` is 1, 2, 3 … without gaps; or the newest first; from the first record, or from `fromSeq`. A page may have fewer records than match, also none, because
/// it searches a bounded number of records: there are more as long as it has a `nextCursor`. For a run token without `file:read`
/// the `data` of events is withheld, so that it cannot check the hashes of their records.
#[utoipa::path(
    get, path = "/v1/runs/{run}/audit", tag = "audit", operation_id = "listRunAudit",
    params(("run" = RunId, Path), Filters, CreatedQuery, LabelQuery, OrderQuery, StartQuery, Paging),
    responses((status = 200, description = "One page of records.", body = Page<Record>)),
)]
pub(crate) async fn list_run_audit(
    State(service): State<Service>,
    RunAuditor { run, may_read, .. }: RunAuditor,
    Query((filters, created, labels, order, start, paging)): Query<RunAuditQuery>,
) -> Result<impl IntoResponse, Problem> {
    let mut filter = filters.to_ledger(None, &created, &labels, order)?;
    let list = List::RunAudit(&run).filtered(&filter);
    let (limit, mut after) = paging.check(&list)?;
    service.audit.known_run(&run).await?;
    if let (None, Some(seq)) = (after, start.from_seq()) {
        after = Some(service.audit.cursor_at(&run, seq, filter.newest_first).await?);
    }
    filter.run = Some(run);
    page_of(&service, &filter, after, limit, &list, may_read).await
}

/// Returns a page of records. Each record is sent as the stored text that was hashed, so the page is put together as text:
/// embedding records as JSON values would parse every one of them again.
async fn page_of(
    service: &Service,
    filter: &RecordFilter,
    after: Option<Cursor>,
    limit: u32,
    list: &ListKey,
    may_read: bool,
) -> Result<impl IntoResponse + use<>, Problem> {
    let mut page = service.audit.records(filter, after, limit, list).await?;
    if !may_read {
        page.items = page.items.into_iter().map(without_event_data).collect::<Result<_, _>>()?;
    }
    let cursor = page.next_cursor.map(|cursor| format!(",\"nextCursor\":\"{cursor}\"")).unwrap_or_default();
    let body = format!("{{\"items\":[{}]{cursor}}}", page.items.join(","));
    Ok(json_text(body))
}

/// Stream the records of all runs
///
/// As Server-Sent Events: `event: audit`, the record as `data`, and an `id` to resume from with `Last-Event-ID`, without a
/// gap. Without that header the stream begins at `since`, if given, or with the next record. An open stream counts as a
/// concurrent request of its token; streams may be half of them. Records of a run that was archived meanwhile are in its archive:
/// a stream of all runs that resumes before them continues without them. An operator with the scope `approve` alone names a run.
#[utoipa::path(
    get, path = "/v1/audit/stream", tag = "audit", operation_id = "streamAudit",
    params(
        FilterByRun, Filters, CreatedQuery, LabelQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last received event."),
    ),
    responses((status = 200, description = "The events, until the service shuts down.", body = String,
        content_type = "text/event-stream", example = json!("event: audit\nid: c1d0f6\ndata: {\"runId\":\"issue-4711\",…}\n\n"))),
)]
pub(crate) async fn stream_audit(
    State(service): State<Service>,
    reviewer: Reviewer,
    Query((run, filters, created, labels)): Query<(FilterByRun, Filters, CreatedQuery, LabelQuery)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    reviewer.check_may_list(run.run()?.as_ref())?;
    let filter = filters.to_ledger(run.run()?, &created, &labels, OrderQuery::default())?;
    let list = List::Audit.unfiltered();
    let last = event_stream::last_event_id(&headers, |raw| Cursor::parse(raw, &list).ok())?;
    let after = match last {
        Some(cursor) => cursor.position(),
        None if filter.since.is_some() => 0,
        None => service.audit.newest_position(),
    };
    service.audit.check_not_archived(filter.run.as_ref()).await?;
    let state = (service.audit.follow_records(filter, after), service.operators.open_stream(reviewer.permit)?);
    let records = stream::unfold(state, async |(mut follow, open)| {
        let record = follow.next().await.transpose()?;
        Some((record, (follow, open)))
    });
    Ok(event_stream::respond(records, move |record| {
        let id = Cursor::after(record.position).to_text(&list);
        Event::default().event("audit").id(id).data(record.text)
    }))
}

/// Verify a run's chain
///
/// Checks the hash and the sequence number of every record, that the last one is the run's head, that each record begins with the
/// version of a file that the record before it, or the base, has left, and that the chain matches the signed checkpoints. The response says up to which record checkpoints cover the chain.
#[utoipa::path(
    get, path = "/v1/runs/{run}/audit/verify", tag = "audit", operation_id = "verifyRunAudit",
    params(("run" = RunId, Path)),
    responses((status = 200, description = "The result of the verification; `intact` says whether the chain is valid.", body = AuditVerification)),
)]
pub(crate) async fn verify_run(
    State(service): State<Service>,
    RunAuditor { run, .. }: RunAuditor,
    Query(()): Query<()>,
) -> Result<Json<AuditVerification>, Problem> {
    let report = service.audit.verify_story(&run, &mut |_| ()).await?;
    Ok(Json(service.checkpoints().verify_leaves(report).await?))
}

/// Get a tool call
///
/// The full record with hashes, kinds, the policy decision and its reasons, and artifacts, and the approval if one was
/// required. Operators, and run tokens with `file:read`, also see the diff of the approval and the data of an event. With `waitSeconds` the response
/// for a call that waits for an approval is sent when the call is decided or the time is over.
#[utoipa::path(
    get, path = "/v1/runs/{run}/tool-calls/{toolCallId}", tag = "audit", operation_id = "getToolCall",
    params(("run" = RunId, Path), ("toolCallId" = ToolCallId, Path), WaitQuery),
    responses((status = 200, description = "The call's record.", body = ToolCall)),
)]
pub(crate) async fn get_tool_call(
    State(service): State<Service>,
    RunAuditor { run, may_read, permit, .. }: RunAuditor,
    Path((_run, id)): Path<(String, ToolCallId)>,
    Query((wait,)): Query<(WaitQuery,)>,
) -> Result<Json<ToolCall>, Problem> {
    let call = tokio::select! {
        call = service.audit.tool_call_once_decided(&run, &id, wait.timeout()) => call?,
        () = service.operators.token_ended(permit.token()) => return Err(Problem::unauthenticated()),
    };
    Ok(Json(if may_read { call } else { call.without_content() }))
}
