//! Problems as errors of JSON-RPC: what a client of the protocol reads also where HTTP refuses the request.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::json;

use crate::http::problem::{Problem, Refused};

/// Returns the code of JSON-RPC for a problem of this status: the request is not valid, its parameters are not, or the server cannot
/// answer now or to this caller.
pub(super) fn code_of(status: StatusCode) -> i32 {
    match status {
        StatusCode::INTERNAL_SERVER_ERROR => -32603,
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::SERVICE_UNAVAILABLE => -32000,
        StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::NOT_ACCEPTABLE
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE => -32600,
        _ => -32602,
    }
}

/// Turns the problem document of a response into an error of JSON-RPC with the document as its `data`. Status and headers stay. The
/// request's ID is not known: its body was refused, or not read.
pub(crate) fn as_protocol_error(mut response: Response) -> Response {
    let Some(Refused(refused)) = response.extensions().get::<Refused>().cloned() else { return response };
    let status = response.status();
    let document = Problem::from(refused.0.clone()).with_status(status).document();
    let error = json!({ "code": code_of(status), "message": refused.0.message, "data": document });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.body_mut() = Body::from(body);
    response
}
