//! The request headers that every operation has in common.

use serde_json::{Value, json};

/// Adds the shared parameters to the components of `document`.
pub(crate) fn add_components(document: &mut Value) {
    document["components"]["parameters"] = json!({
        "Run": {
            "name": "run", "in": "path", "required": true, "description": "The ID of the run.",
            "schema": {"$ref": "#/components/schemas/RunId"},
        },
        "RequestId": {
            "name": "X-Request-Id", "in": "header", "required": false,
            "description": "An ID of the caller's for this request: 1 to 128 visible ASCII characters. It is logged and \
                            recorded. An invalid one is ignored.",
            "schema": {"type": "string"},
        },
        "TraceParent": {
            "name": "traceparent", "in": "header", "required": false,
            "description": "W3C Trace Context. Its trace ID is logged and recorded. An invalid one is ignored.",
            "schema": {"type": "string"},
        },
    });
}

/// Adds the shared parameters to an operation, and completes its request body.
pub(crate) fn add_to(operation: &mut Value) {
    // A body that may be left out is declared as an `Option`, which would allow `null` too.
    if let Some(schema) = operation.pointer_mut("/requestBody/content/application~1json/schema")
        && let Some(body) = schema
            .get("oneOf")
            .and_then(Value::as_array)
            .and_then(|forms| forms.iter().find(|form| form["type"] != "null"))
    {
        *schema = body.clone();
    }
    let shared = ["RequestId", "TraceParent"].map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        if parameter["name"] == "run" && parameter["in"] == "path" {
            *parameter = json!({"$ref": "#/components/parameters/Run"});
        }
    }
    match operation.get_mut("parameters").and_then(Value::as_array_mut) {
        Some(parameters) => parameters.extend(shared),
        None => operation["parameters"] = json!(shared),
    }
}
