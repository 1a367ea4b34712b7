//! What a request holds, taken out with bounds: every rejection is a [`Problem`].

mod query;

use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use model::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;

use crate::CallError;
use crate::http::pace::{MinRate, Pace};
use crate::http::problem::Problem;
use crate::json;
use crate::service::Service;

/// A JSON body. Coming in, it is strictly parsed: one object, bounded in size, depth and time, no member twice or unknown.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

/// The whole body of a JSON call as it came, bounded in size and time.
#[derive(Debug)]
pub(crate) struct JsonBytes(pub(crate) Bytes);

/// The members of the path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

/// The query; unknown and doubled parameters are refused.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Service> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let JsonBytes(text) = JsonBytes::from_request(request, service).await?;
        Ok(Self(json::parse_into(&text)?))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => Problem::from(CallError::Internal(Box::new(error))).into_response(),
        }
    }
}

impl FromRequest<Service> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let limits = &service.limits;
        let (parts, body) = request.into_parts();
        // Where the length is not declared, it may be as long as any.
        let bytes = body.size_hint().exact().unwrap_or(limits.max_body_bytes).min(limits.max_body_bytes);
        if bytes > 0 {
            service.body_memory.take(bytes, limits.body_timeout).await.map_err(closing)?;
        }
        let text = read_body(body, limits.max_body_bytes, limits.body_timeout).await?;
        if !text.is_empty() {
            check_media_type(&parts.headers)?;
        }
        Ok(Self(text))
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Service> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, service).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                Err(Refusal::invalid(rejection.body_text(), "Compare the address with /openapi.json.").into())
            }
        }
    }
}

impl<T: QueryParts> FromRequestParts<Service> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _service: &Service) -> Result<Self, Problem> {
        let bad = |message: String| Problem::from(Refusal::invalid(message, "Compare the query with /openapi.json."));
        if let Some(query) = parts.uri.query().filter(|query| !query.is_empty()) {
            query::check(query, &T::names()).map_err(bad)?;
        }
        T::parse(&parts.uri).map(Self).map_err(bad)
    }
}

/// What a query is parsed into: nothing, or one or more sets of parameters.
pub(crate) trait QueryParts: Sized {
    /// The names of all parameters.
    fn names() -> Vec<String>;

    /// Parses the query of `uri`; parameters of other sets are passed over.
    fn parse(uri: &Uri) -> Result<Self, String>;
}

impl QueryParts for () {
    fn names() -> Vec<String> {
        Vec::new()
    }

    fn parse(_uri: &Uri) -> Result<Self, String> {
        Ok(())
    }
}

impl<A: QuerySet> QueryParts for (A,) {
    fn names() -> Vec<String> {
        set_names::<A>()
    }

    fn parse(uri: &Uri) -> Result<Self, String> {
        Ok((parse_set(uri)?,))
    }
}

impl<A: QuerySet, B: QuerySet> QueryParts for (A, B) {
    fn names() -> Vec<String> {
        [set_names::<A>(), set_names::<B>()].concat()
    }

    fn parse(uri: &Uri) -> Result<Self, String> {
        Ok((parse_set(uri)?, parse_set(uri)?))
    }
}

impl<A: QuerySet, B: QuerySet, C: QuerySet> QueryParts for (A, B, C) {
    fn names() -> Vec<String> {
        [set_names::<A>(), set_names::<B>(), set_names::<C>()].concat()
    }

    fn parse(uri: &Uri) -> Result<Self, String> {
        Ok((parse_set(uri)?, parse_set(uri)?, parse_set(uri)?))
    }
}

/// One documented set of parameters.
pub(crate) trait QuerySet: DeserializeOwned + IntoParams {}

impl<T: DeserializeOwned + IntoParams> QuerySet for T {}

fn set_names<T: IntoParams>() -> Vec<String> {
    T::into_params(|| Some(ParameterIn::Query)).into_iter().map(|parameter| parameter.name).collect()
}

fn parse_set<T: DeserializeOwned>(uri: &Uri) -> Result<T, String> {
    let parsed = axum::extract::Query::<T>::try_from_uri(uri);
    parsed.map(|query| query.0).map_err(|rejection| rejection.body_text())
}

/// Reads a whole body of at most `limit` bytes within `patience`.
async fn read_body(mut body: Body, limit: u64, patience: Duration) -> Result<Bytes, Problem> {
    let read = async {
        let mut first: Option<Bytes> = None;
        let mut whole = BytesMut::new();
        let mut length = 0u64;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| broken_off())?.into_data() else { continue };
            length += data.len() as u64;
            if length > limit {
                return Err(Problem::body_too_large(limit));
            }
            match first.take() {
                // Most bodies are one frame, which needs no copy.
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
    match tokio::time::timeout(patience, read).await {
        Ok(read) => read,
        Err(_) => Err(too_slow(patience)),
    }
}

/// A body that is handed on while it comes. One from which nothing comes is cut, and so is one that comes in drops: what
/// it holds meanwhile is held for nothing.
pub(crate) struct Incoming {
    body: Body,
    stall: Duration,
    /// The time that its bytes wait here does not count.
    pace: Pace,
}

impl Incoming {
    /// Takes `body` in, at `rate` or faster.
    pub(crate) fn new(body: Body, rate: MinRate) -> Self {
        Self { body, stall: rate.stall, pace: Pace::new(rate) }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    ///
    /// Where the body breaks off or is too slow.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, CutShort> {
        loop {
            let started = Instant::now();
            let frame = tokio::time::timeout(self.stall, self.body.frame()).await.map_err(|_| CutShort::TooSlow)?;
            let waited = started.elapsed();
            let Some(frame) = frame else { return Ok(None) };
            let Ok(data) = frame.map_err(|_| CutShort::BrokenOff)?.into_data() else { continue };
            if !self.pace.keeps_up(waited, data.len() as u64) {
                return Err(CutShort::TooSlow);
            }
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }
}

/// Why a body does not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutShort {
    /// It stands still, or comes in drops.
    TooSlow,
    /// Its sender went away.
    BrokenOff,
}

fn broken_off() -> Problem {
    closing(Refusal::invalid("the body broke off", "Send the whole request again."))
}

/// The body was slower than `rate`.
pub(crate) fn dripping(rate: MinRate) -> Problem {
    let MinRate { stall, bytes_a_second } = rate;
    let stall = stall.as_secs();
    let message =
        format!("the body stood still for {stall} seconds, or came at less than {bytes_a_second} bytes a second");
    closing(Refusal::invalid(message, "Send the whole request again, faster."))
}

/// The body did not come within `patience`.
fn too_slow(patience: Duration) -> Problem {
    let message = format!("the body did not come within {} seconds", patience.as_secs());
    closing(Refusal::invalid(message, "Send the whole request again, faster."))
}

/// A refusal after which the connection is of no use.
fn closing(refusal: Refusal) -> Problem {
    Problem::from(refusal).with_header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// A body that says it is something else than JSON is refused; one that says nothing is taken at its word. What curl says
/// of every `-d`, unasked, counts as nothing: no call is ever a form, and none is made with a browser's own credentials.
fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(told) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = told.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if matches!(essence.as_str(), "application/json" | "application/x-www-form-urlencoded")
        || (essence.starts_with("application/") && essence.ends_with("+json"))
    {
        Ok(())
    } else {
        Err(Refusal::invalid("the body's Content-Type is not JSON", "Send `Content-Type: application/json`."))
    }
}
