//! The form of a message of JSON-RPC, of which the library says only that it does not have it.

use axum::body::{Body, to_bytes};
use axum::http::header;
use axum::response::Response;
use model::{Refusal, excerpt, json};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::http::problem::Problem;

use super::errors::{self, INVALID_MESSAGE, NOT_JSON};

/// Texts of the library are shorter.
const MAX_TEXT_BYTES: usize = 4096;

/// Parses one message.
///
/// # Errors
///
/// The answer to text that is none.
pub(super) fn parse(text: &[u8]) -> Result<Value, Box<Response>> {
    let message = json::parse(text).map_err(|refusal| {
        let is_json = serde_json::from_slice::<IgnoredAny>(text).is_ok();
        let code = if is_json { INVALID_MESSAGE } else { NOT_JSON };
        let id = json::id_of_invalid(text).unwrap_or_default();
        Box::new(errors::of_message(&refusal.into(), code, &id))
    })?;
    let id = message.get("id").filter(|id| id.is_string() || id.is_i64() || id.is_u64());
    match defect_of(&message) {
        None => Ok(message),
        Some((defect, hint)) => {
            let refusal = Refusal::invalid(defect, hint);
            Err(Box::new(errors::of_message(&refusal.into(), INVALID_MESSAGE, id.unwrap_or(&Value::Null))))
        }
    }
}

/// Says what is wrong with a message, and what to send instead.
fn defect_of(message: &Value) -> Option<(&'static str, &'static str)> {
    let Some(members) = message.as_object() else {
        return Some(if message.is_array() {
            ("the body is a batch, which the service does not take", "Send each message as a request of its own.")
        } else {
            ("the body is JSON but not an object", "Send one message of JSON-RPC 2.0.")
        });
    };
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    if members.get("jsonrpc").is_none_or(|version| version != "2.0") {
        Some(("`jsonrpc` is not \"2.0\"", "Send one message of JSON-RPC 2.0."))
    } else if members.get("id").is_some_and(|id| !is_id(id)) {
        Some(("`id` is neither text nor a whole number", "Give each request an ID, and a notification none."))
    } else if !members.contains_key("result") && !members.contains_key("error") && !message["method"].is_string() {
        Some(("`method` is missing or not text", "Name a method of the Model Context Protocol, such as tools/list."))
    } else if members.get("params").is_some_and(|params| !params.is_object()) {
        Some(("`params` is not an object", "Send `params` as an object, or leave it out."))
    } else {
        None
    }
}

/// Turns an error of the library that is plain text into one of JSON-RPC.
pub(super) async fn of_library(response: Response, message: &Value) -> Response {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if response.status().as_u16() < 400 || is_json {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_TEXT_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // The status says the words before the colon.
    let text = text.split_once(": ").map_or(&*text, |(_, detail)| detail);
    let hint = "Send one message of JSON-RPC 2.0 by POST, with `Content-Type: application/json` and a supported version of the protocol.";
    let problem = Problem::from(Refusal::invalid(excerpt(text, 400), hint)).with_status(parts.status);
    let answer = errors::of_message(&problem, INVALID_MESSAGE, message.get("id").unwrap_or(&Value::Null));
    let (answer_parts, body) = answer.into_parts();
    let mut response = Response::from_parts(parts, Body::new(body));
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().extend(answer_parts.headers);
    response
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn what_is_wrong_with_a_message_is_said() {
        let table = [
            ("{", -32700, "null", "the body is not valid JSON"),
            (r#"{"a":1,"a":2}"#, -32600, "null", "the body is not valid JSON"),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"b":"\ud83d"}}"#,
                -32600,
                "\"a\"",
                "not valid JSON",
            ),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":{"b":9007199254740993}}"#, -32600, "3", "2^53"),
            ("7", -32600, "null", "not an object"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600, "null", "is a batch"),
            (r#"{"id":1,"method":"ping"}"#, -32600, "1", "`jsonrpc`"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, "null", "`id`"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, "null", "`id`"),
            (r#"{"jsonrpc":"2.0","id":"a","method":7}"#, -32600, "\"a\"", "`method`"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, -32600, "1", "`params`"),
        ];
        for (text, code, id, part) in table {
            let response = parse(text.as_bytes()).unwrap_err();
            assert_eq!(response.status(), 400, "{text}");
            let body: Value = serde_json::from_slice(&to_bytes(response.into_body(), 10_000).await.unwrap()).unwrap();
            assert_eq!((body["error"]["code"].as_i64(), body["id"].to_string()), (Some(code), id.to_owned()), "{text}");
            assert!(body["error"]["message"].as_str().unwrap().contains(part), "{body}");
        }
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            parse(text.as_bytes()).unwrap();
        }
    }
}
