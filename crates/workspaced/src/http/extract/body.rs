//! Request bodies: whole JSON bodies, and streams with a minimum rate.

use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::{Bytes, BytesMut};
use config::http_limits::HttpLimits;
use http_body_util::BodyExt as _;
use model::Refusal;

use crate::http::problem::Problem;
use crate::http::transfer::{MinRate, RateMeter};
use crate::service::Service;

/// The whole body of a JSON request, unparsed, limited in size and time.
#[derive(Debug)]
pub(crate) struct JsonBytes(pub(crate) Bytes);

impl FromRequest<Service> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let limits = &service.state.http_limits;
        let (parts, body) = request.into_parts();
        // A body of unknown length may be as long as the limit.
        let bytes = body.size_hint().exact().unwrap_or(limits.max_body_bytes).min(limits.max_body_bytes);
        if bytes > 0 {
            service.calls.acquire_body(bytes, limits.body_timeout).await.map_err(closing)?;
        }
        let text = read_body(body, limits.max_body_bytes, limits.body_timeout).await?;
        if !text.is_empty() {
            check_media_type(&parts.headers)?;
        }
        Ok(Self(text))
    }
}

/// Reads a body of at most `limit` bytes within `timeout`.
pub(crate) async fn read_body(mut body: Body, limit: u64, timeout: Duration) -> Result<Bytes, Problem> {
    let read = async {
        let mut first: Option<Bytes> = None;
        let mut whole = BytesMut::new();
        let mut length = 0u64;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| disconnected())?.into_data() else { continue };
            length += data.len() as u64;
            if length > limit {
                return Err(Problem::body_too_large(limit));
            }
            match first.take() {
                // Most bodies arrive in one frame, which needs no copy.
                None if whole.is_empty() => first = Some(data),
                None => whole.extend_from_slice(&data),
                Some(before) => {
                    whole.extend_from_slice(&before);
                    whole.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| whole.freeze()))
    };
    match tokio::time::timeout(timeout, read).await {
        Ok(read) => read,
        Err(_) => Err(timed_out(timeout)),
    }
}

/// Reads a body chunk by chunk. Fails if the body stalls or falls below the minimum rate, since the run's resources are
/// reserved until it ends. Time between two calls of [`next_chunk`](Self::next_chunk) does not count.
pub(crate) struct BodyReader {
    body: Body,
    stall_timeout: Duration,
    meter: RateMeter,
}

/// Why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The body stalled or fell below the minimum rate.
    TooSlow,
    /// The client disconnected.
    Disconnected,
}

impl BodyReader {
    /// Reads `body` at `min_rate` or faster.
    pub(crate) fn new(body: Body, min_rate: MinRate) -> Self {
        Self { body, stall_timeout: min_rate.stall_timeout, meter: RateMeter::new(min_rate) }
    }

    /// Returns the next chunk, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails if the body ends early.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let started = Instant::now();
            let frame = tokio::time::timeout(self.stall_timeout, self.body.frame()).await;
            let frame = frame.map_err(|_| BodyError::TooSlow)?;
            let waited = started.elapsed();
            let Some(frame) = frame else { return Ok(None) };
            let Ok(data) = frame.map_err(|_| BodyError::Disconnected)?.into_data() else { continue };
            if !self.meter.record(waited, data.len() as u64) {
                return Err(BodyError::TooSlow);
            }
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }
}

/// Minimum rate of a body that is in memory until it is complete.
const MIN_BYTES_PER_SECOND: u64 = 64 * 1024;

/// Reads a body of at most `limit` bytes, more than a JSON body may have, into memory that is reserved for it. `None` if it is longer.
pub(crate) async fn receive_whole(service: &Service, body: Body, limit: u64) -> Result<Option<Vec<u8>>, Problem> {
    let http = &service.state.http_limits;
    // A body of unknown length may be as long as the limit.
    let announced = body.size_hint().exact().unwrap_or(limit).min(limit);
    if announced > 0 {
        service.calls.acquire_body(announced, http.body_timeout).await.map_err(closing)?;
    }
    let min_rate = large_body_rate(http);
    // The rate of each part of the body would permit to send most of it at once and the rest slowly.
    let most = http.body_timeout + Duration::from_secs(announced / min_rate.bytes_per_second);
    let receive = async {
        let (mut body, mut bytes) = (BodyReader::new(body, min_rate), Vec::new());
        loop {
            match body.next_chunk().await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => return Ok(Some(bytes)),
                Err(BodyError::TooSlow) => return Err(too_slow(min_rate)),
                Err(BodyError::Disconnected) => return Err(disconnected()),
            }
            if bytes.len() as u64 > limit {
                return Ok(None);
            }
        }
    };
    tokio::time::timeout(most, receive).await.unwrap_or_else(|_| Err(too_slow(min_rate)))
}

/// Returns the minimum rate of a body that is in memory, at least in part, until it is complete.
pub(crate) fn large_body_rate(http: &HttpLimits) -> MinRate {
    MinRate { bytes_per_second: http.min_bytes_per_second.max(MIN_BYTES_PER_SECOND), ..MinRate::of(http) }
}

/// Refuses a body that has ended early.
pub(crate) fn disconnected() -> Problem {
    closing(Refusal::invalid("the body ended early", "Send the whole request again."))
}

/// Refuses a body that was slower than `rate`.
pub(crate) fn too_slow(rate: MinRate) -> Problem {
    let MinRate { stall_timeout, bytes_per_second } = rate;
    let seconds = stall_timeout.as_secs();
    let message =
        format!("the body stalled for {seconds} seconds, or was slower than {bytes_per_second} bytes a second");
    closing(Refusal::invalid(message, "Send the whole request again, faster."))
}

fn timed_out(timeout: Duration) -> Problem {
    let message = format!("the body was not complete after {} seconds", timeout.as_secs());
    closing(Refusal::invalid(message, "Send the whole request again, faster."))
}

/// Makes a refusal close the connection, which cannot be used for another request.
fn closing(refusal: Refusal) -> Problem {
    closed(refusal.into())
}

/// Makes a problem close the connection: the rest of the body is not read.
pub(crate) fn closed(problem: Problem) -> Problem {
    problem.with_header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// Refuses a body that is declared as another media type than JSON. A missing type is accepted, and so is the form type,
/// which curl sends with `-d` by default: no request is a form, and none relies on a browser's credentials.
fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if matches!(essence.as_str(), "application/json" | "application/x-www-form-urlencoded")
        || (essence.starts_with("application/") && essence.ends_with("+json"))
    {
        Ok(())
    } else {
        Err(Refusal::invalid("the body's Content-Type is not JSON", "Send `Content-Type: application/json`."))
    }
}
