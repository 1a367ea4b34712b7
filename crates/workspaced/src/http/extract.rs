//! What a request holds, taken out with bounds: every rejection is a [`Problem`].

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use model::Refusal;
use serde::de::DeserializeOwned;

use crate::http::problem::Problem;
use crate::json;
use crate::service::Service;

/// A JSON body, strictly parsed: one object, bounded in size, depth and time, no member twice or unknown.
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

impl FromRequest<Service> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Problem> {
        let limits = &service.0.limits;
        let (parts, body) = request.into_parts();
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

impl<T: DeserializeOwned + Send> FromRequestParts<Service> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, service).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                Err(Refusal::invalid(rejection.body_text(), "Compare the query with /openapi.json.").into())
            }
        }
    }
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

fn broken_off() -> Problem {
    closing(Refusal::invalid("the body broke off", "Send the whole request again."))
}

/// The body did not come within `patience`.
pub(crate) fn too_slow(patience: Duration) -> Problem {
    let message = format!("the body did not come within {} seconds", patience.as_secs());
    closing(Refusal::invalid(message, "Send the whole request again, faster."))
}

/// A refusal after which the connection is of no use.
fn closing(refusal: Refusal) -> Problem {
    Problem::from(refusal).with_header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// A body that says it is something else than JSON is refused; one that says nothing is taken at its word.
fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(told) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = told.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        Ok(())
    } else {
        Err(Refusal::invalid("the body's Content-Type is not JSON", "Send `Content-Type: application/json`."))
    }
}
