//! Server-Sent Events: what the streams of records and of changes have in common.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use engine::CallError;
use futures_util::{Stream, StreamExt as _, stream};
use model::Refusal;
use shared_pool::Parties;

/// Interval of comments on a stream without events.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Parses `Last-Event-ID`, if the header is present and not empty.
///
/// # Errors
///
/// `INVALID_REQUEST` if `parse` fails.
pub(crate) fn last_event_id<T>(
    headers: &HeaderMap,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(None) };
    value.to_str().ok().and_then(parse).map(Some).ok_or_else(|| {
        Refusal::invalid(
            "`Last-Event-ID` belongs to another stream",
            "Send the `id` of the last event of this stream, or omit the header.",
        )
    })
}

/// Returns a response that sends each of `items` as an event, and ends at the first error: the client reconnects with
/// `Last-Event-ID` and misses nothing.
pub(crate) fn respond<T>(
    items: impl Stream<Item = Result<T, CallError>> + Send + 'static,
    to_event: impl Fn(T) -> Event + Send + 'static,
) -> Response {
    // Its queries count for the caller, as those of the request do.
    let (parties, mut items) = (Parties::current(), Box::pin(items));
    let items = stream::poll_fn(move |context| parties.enter(|| items.as_mut().poll_next(context)));
    let events = items.map(move |item| item.map(&to_event));
    let events = events.take_while(|event| {
        if let Err(error) = event {
            tracing::warn!(error = error as &dyn std::error::Error, "event stream ended by an error");
        }
        std::future::ready(event.is_ok())
    });
    let events = events.filter_map(|event| std::future::ready(event.ok().map(Ok::<_, Infallible>)));
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("alive")).into_response()
}
