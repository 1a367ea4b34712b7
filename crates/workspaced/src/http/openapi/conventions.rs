//! The headers that every operation has in common.

use serde_json::{Value, json};

/// Adds the shared parameters and headers to the components of `document`.
pub(crate) fn add_components(document: &mut Value) {
    document["components"]["parameters"] = json!({
        "RequestId": {
            "name": "X-Request-Id", "in": "header", "required": false,
            "description": "An ID of the caller's for this request: 1 to 128 visible ASCII characters. It is logged and \
                            recorded. An invalid one is ignored.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 128},
        },
        "TraceParent": {
            "name": "traceparent", "in": "header", "required": false,
            "description": "W3C Trace Context. Its trace ID is logged and recorded. An invalid one is ignored.",
            "schema": {"type": "string"},
        },
    });
    let headers = json!({
        "RequestId": {
            "description": "The ID of the request: that of the caller, or one that the service made.",
            "schema": {"type": "string"},
        },
        "RateLimit": {
            "description": "With a rate limit: the requests that the token may send at once, and the seconds until that is \
                            the whole burst again.",
            "schema": {"type": "string", "examples": ["\"token\";r=99;t=1"]},
        },
        "RateLimitPolicy": {
            "description": "With a rate limit: the burst, and the seconds in which it becomes available again.",
            "schema": {"type": "string", "examples": ["\"token\";q=100;w=2"]},
        },
    });
    if let Value::Object(headers) = headers {
        for (name, header) in headers {
            document["components"]["headers"][name] = header;
        }
    }
}

/// Adds the shared parameters and headers to an operation.
pub(crate) fn add_to(operation: &mut Value) {
    let shared = ["RequestId", "TraceParent"].map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
    match operation.get_mut("parameters").and_then(Value::as_array_mut) {
        Some(parameters) => parameters.extend(shared),
        None => operation["parameters"] = json!(shared),
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let shared: &[_] = match status.as_str() {
            "429" => &[("RateLimit", "RateLimit"), ("RateLimit-Policy", "RateLimitPolicy")],
            // Refusals have it too. The document would be a third longer if each of them repeated it.
            success if success.starts_with(['2', '3']) => &[("X-Request-Id", "RequestId")],
            _ => continue,
        };
        for (name, component) in shared {
            response["headers"][name] = json!({"$ref": format!("#/components/headers/{component}")});
        }
    }
}
