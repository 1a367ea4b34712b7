//! Problems as errors of JSON-RPC: what a client of the protocol reads also where HTTP refuses the request.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::http::problem::{Problem, Refused};

/// The code of JSON-RPC for a message that is not one.
pub(super) const INVALID_MESSAGE: i32 = -32600;
/// The code of JSON-RPC for text that is not JSON.
pub(super) const NOT_JSON: i32 = -32700;

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
        | StatusCode::UNSUPPORTED_MEDIA_TYPE => INVALID_MESSAGE,
        _ => -32602,
    }
}

/// Turns the problem document of a response into an error of JSON-RPC with the document as its `data`. Status and headers stay. The
/// request's ID is not known: its body was refused, or not read.
pub(crate) fn as_protocol_error(mut response: Response) -> Response {
    let Some(Refused(refused)) = response.extensions().get::<Refused>().cloned() else { return response };
    let status = response.status();
    let problem = Problem::from(refused.0.clone()).with_status(status);
    let code = match status {
        // Nothing of the message was carried out, so that its parameters are not what is wrong.
        StatusCode::BAD_REQUEST => INVALID_MESSAGE,
        _ => code_of(status),
    };
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.body_mut() = Body::from(error(&problem, code, &Value::Null));
    response
}

/// The error of JSON-RPC for a message that is none, or not one that the service takes. It names the request if the message does.
pub(super) fn of_message(problem: &Problem, code: i32, id: &Value) -> Response {
    let media_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (problem.status(), media_type, error(problem, code, id)).into_response()
}

fn error(problem: &Problem, code: i32, id: &Value) -> String {
    let error = json!({ "code": code, "message": problem.refusal().message, "data": problem.document() });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
}
