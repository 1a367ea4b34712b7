//! The model's view of tool calls: `text/plain`, for callers that prefer it to JSON.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use engine::tool::text::{TextAnswer, refusal_text};
use model::{Sha256, ToolCallId};

use crate::http::problem::Refused;
use crate::service::Service;

/// The media type of the model's view.
const TEXT: &str = "text/plain; charset=utf-8";
/// The ID of the call.
pub(crate) const CALL: HeaderName = HeaderName::from_static("workspaced-call");
/// The number of the call's record.
pub(crate) const SEQ: HeaderName = HeaderName::from_static("workspaced-seq");
/// The hash of the file, in answers about a single one.
pub(crate) const SHA256: HeaderName = HeaderName::from_static("workspaced-sha256");

/// Whether the caller prefers the model's view to JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefersText(pub(crate) bool);

impl FromRequestParts<Service> for PrefersText {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _service: &Service) -> Result<Self, Self::Rejection> {
        Ok(Self(prefers_text(&parts.headers)))
    }
}

/// Returns the response of a successful call.
pub(crate) fn answer(answer: TextAnswer) -> Response {
    let mut response = answer.text.into_response();
    set_headers(response.headers_mut(), Some(&answer.tool_call_id), answer.seq, answer.sha256);
    response
}

/// Replaces the problem document of a refusal by its text. Other responses stay as they are.
pub(crate) fn refusal(mut response: Response) -> Response {
    let Some(Refused(refused)) = response.extensions_mut().remove::<Refused>() else { return response };
    let (refusal, tool_call_id) = &*refused;
    *response.body_mut() = Body::from(refusal_text(refusal));
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    set_headers(headers, tool_call_id.as_ref(), refusal.details.seq, refusal.details.current_sha256);
    response
}

fn set_headers(headers: &mut HeaderMap, id: Option<&ToolCallId>, seq: Option<u64>, sha256: Option<Sha256>) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    // An ID has no control characters, so that it can be a header's value.
    headers.extend(id.and_then(|id| HeaderValue::from_bytes(id.as_str().as_bytes()).ok()).map(|id| (CALL, id)));
    headers.extend(seq.map(|seq| (SEQ, HeaderValue::from(seq))));
    let sha256 = sha256.and_then(|sha256| HeaderValue::from_str(&sha256.to_string()).ok());
    headers.extend(sha256.map(|sha256| (SHA256, sha256)));
}

/// How much a caller wants a media type: its quality in thousandths, then how exactly the type is named.
type Preference = (u16, u8);

/// Whether `Accept` prefers `text/plain` to JSON. JSON is the default where it does not say.
pub(crate) fn prefers_text(headers: &HeaderMap) -> bool {
    let (text, json) = preferences(headers);
    text.0 > 0 && text > json
}

/// Whether `Accept` permits JSON, also by not being sent.
pub(crate) fn accepts_json(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::ACCEPT) || preferences(headers).1.0 > 0
}

/// How much a caller wants `text/plain`, and JSON.
fn preferences(headers: &HeaderMap) -> (Preference, Preference) {
    let (mut text, mut json): (Preference, Preference) = ((0, 0), (0, 0));
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let quality = quality_of(parts);
        let consider = |preference: &mut Preference, media_type: &str| {
            let exactness = exactness(name, media_type);
            // The most exact range decides about a type, not the one of the highest quality.
            if exactness > preference.1 {
                *preference = (quality, exactness);
            }
        };
        consider(&mut text, "text/plain");
        consider(&mut json, "application/json");
    }
    (text, json)
}

/// Returns how exactly the media range `name` names `media_type`; 0 if it does not match.
fn exactness(name: &str, media_type: &str) -> u8 {
    if name.eq_ignore_ascii_case(media_type) {
        return 3;
    }
    let (kind, _) = media_type.split_once('/').unwrap_or_default();
    match name.split_once('/') {
        Some(("*", "*")) => 1,
        Some((range, "*")) if range.eq_ignore_ascii_case(kind) => 2,
        _ => 0,
    }
}

/// Returns the quality among the parameters of a media range, in thousandths. A malformed one counts as 0.
fn quality_of<'a>(mut parameters: impl Iterator<Item = &'a str>) -> u16 {
    let quality = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(quality) = quality else { return 1000 };
    let (whole, fraction) = quality.split_once('.').unwrap_or((quality, ""));
    let is_short = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "0" if is_short => format!("{fraction:0<3}").parse().unwrap_or(0),
        "1" if is_short && fraction.bytes().all(|byte| byte == b'0') => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_the_default_and_text_needs_a_preference() {
        let table: [(&[&str], bool); 22] = [
            (&[], false),
            (&[""], false),
            (&["*/*"], false),
            (&["application/json"], false),
            (&["text/plain"], true),
            (&["TEXT/Plain; charset=utf-8"], true),
            (&["text/*"], true),
            (&["text/html"], false),
            (&["application/json, text/plain, */*"], false),
            (&["text/plain, */*"], true),
            (&["text/plain, */*;q=0.1"], true),
            (&["text/plain, application/json"], false),
            (&["text/plain;q=0.5, application/json;q=0.4"], true),
            (&["text/plain;q=0.4, application/json;q=0.5"], false),
            (&["text/plain;q=0.9", "application/json;q=0.8"], true),
            (&["text/plain;q=0"], false),
            (&["text/*, text/plain;q=0"], false),
            (&["application/json;q=0, */*"], true),
            (&["text/plain;q=0.001"], true),
            (&["text/plain;q=2"], false),
            (&["text/plain;q=0.0001"], false),
            (&["application/*, text/plain;q=1.000"], true),
        ];
        for (values, want) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(prefers_text(&headers), want, "{values:?}");
        }
    }
}
