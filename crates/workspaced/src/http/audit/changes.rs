//! The route of a run's changes, as a list or as Server-Sent Events.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use engine::calls::{ChangeList, ChangesQuery};
use futures_util::stream;
use model::RunId;

use crate::http::audit::event_stream;
use crate::http::auth::RunAuditor;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;

/// List a run's changes
///
/// Every path that a call changed, in the order of the records, taken from the audit and not from the files. With
/// `Accept: text/event-stream` the changes are streamed as Server-Sent Events: `event: change`, the change as `data`, its
/// `seq` as `id`, to resume from with `Last-Event-ID` without a gap.
#[utoipa::path(
    get, path = "/v1/runs/{run}/changes", tag = "audit", operation_id = "listChanges",
    params(
        ("run" = RunId, Path), ChangesQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last received event."),
    ),
    responses((status = 200, description = "One page of changes.", body = ChangeList)),
)]
pub(crate) async fn list_changes(
    State(service): State<Service>,
    RunAuditor { run, permit, .. }: RunAuditor,
    Query((since,)): Query<(ChangesQuery,)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (since, limit) = since.check()?;
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if !accepted.contains("text/event-stream") {
        return Ok(Json(service.calls.changes(&run, since.unwrap_or(0), limit).await?).into_response());
    }
    let last = event_stream::last_event_id(&headers, |raw| raw.parse::<u32>().ok())?;
    let since = last.map(u64::from).or(since).unwrap_or(0);
    let state = (service.calls.follow_changes(run, since).await?, service.operators.open_stream(permit)?);
    let changes = stream::unfold(state, async |(mut follow, open)| {
        let change = follow.next().await.transpose()?;
        Some((change, (follow, open)))
    });
    Ok(event_stream::respond(changes, |change| {
        // A change always serialises.
        let data = serde_json::to_string(&change).unwrap_or_default();
        Event::default().event("change").id(change.seq.to_string()).data(data)
    }))
}
