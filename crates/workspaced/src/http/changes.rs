//! The feed of a run's changes: as a list, and as Server-Sent Events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use model::{Refusal, RunId};

use crate::feed::{ChangeList, FollowChanges, Since};
use crate::http::auth::RunAuditor;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::service::Service;
use crate::throttle::OpenStream;

/// Between two signs of life of a stream that has nothing to tell.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Tells what has changed.
///
/// Every path that a call has changed, in the order of the records, from the audit and not from the files. With
/// `Accept: text/event-stream` the same changes follow as Server-Sent Events: `event: change`, one change as `data`, its
/// `seq` as `id`, which `Last-Event-ID` takes to go on without a gap.
#[utoipa::path(
    get, path = "/v1/runs/{run}/changes", tag = "audit", operation_id = "listChanges",
    params(
        ("run" = RunId, Path), Since,
        ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event that was received."),
    ),
    responses((status = 200, description = "Some changes, in order.", body = ChangeList)),
)]
pub(super) async fn list_changes(
    State(service): State<Service>,
    RunAuditor { run, turn, .. }: RunAuditor,
    Query((since,)): Query<(Since,)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (since, limit) = since.check()?;
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if !accepted.contains("text/event-stream") {
        return Ok(Json(service.changes(&run, since.unwrap_or(0), limit).await?).into_response());
    }
    let since = last_event(&headers)?.or(since).unwrap_or(0);
    let events = Sse::new(events(service.follow_changes(run, since).await?, turn.into_stream()?));
    Ok(events.keep_alive(KeepAlive::new().interval(HEARTBEAT).text("alive")).into_response())
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(told) = headers.get("last-event-id").filter(|told| !told.is_empty()) else { return Ok(None) };
    let seq = told.to_str().ok().and_then(|raw| raw.parse::<u32>().ok());
    seq.map(|seq| Some(u64::from(seq))).ok_or_else(|| {
        Refusal::invalid("`Last-Event-ID` is none of this stream", "Send the `id` of the last event, or leave it out.")
    })
}

fn events(follow: FollowChanges, open: OpenStream) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold((follow, open), async |(mut follow, open)| match follow.next().await {
        Ok(Some(change)) => {
            // A change always serialises.
            let data = serde_json::to_string(&change).unwrap_or_default();
            Some((Ok(Event::default().event("change").id(change.seq.to_string()).data(data)), (follow, open)))
        }
        Ok(None) => None,
        Err(error) => {
            // The client comes back with Last-Event-ID and misses nothing.
            tracing::warn!(error = &error as &dyn std::error::Error, "a stream ends");
            None
        }
    })
}
