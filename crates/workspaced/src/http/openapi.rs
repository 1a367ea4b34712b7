//! The OpenAPI document: the documented routes, one path per tool from the catalogue, and the responses common to all.

use model::{ApprovalId, ArtifactId, RunId, TokenId, ToolCallId};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{OpenApi, RefOr, Schema};

use crate::http::problem::{PROBLEM_JSON, ProblemBody, example_of};
use crate::http::tools::PATH as TOOL_PATH;
use engine::tool::Tool;
use engine::tools::{TOOLS, input_schema, output_schema};

const DESCRIPTION: &str = "\
workspaced gives each coding-agent run its own guarded, audited file tree behind an HTTP API.

An orchestrator creates a run and receives its token. An agent calls tools on the run with that token. A reviewer reads the \
audit: what was read, written and refused, by whom, why, from which version, with the diff of every change.

Every request except those tagged `open` requires `Authorization: Bearer TOKEN`. Every refusal is an \
`application/problem+json` document with a `code` for programs to match on and a `hint` that says what to do next. If \
several refusals apply, the first in this order is returned: limits of transport, `UNAUTHENTICATED`, `FORBIDDEN`, \
`RATE_LIMITED`, `INVALID_REQUEST`, `PATH_REJECTED`, `RUN_CLOSED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, existence, \
content, expected state, budget, approval.";

/// The tags with their descriptions.
const TAGS: [(&str, &str); 6] = [
    (
        "tools",
        "Tool calls of an agent. A repeated `toolCallId` is the same call: a mutation returns its first response again.",
    ),
    ("runs", "Runs and their tokens, for orchestrators."),
    ("approvals", "Calls that wait for an approval."),
    ("audit", "What was done, by whom and why, in a hash chain."),
    ("files", "Files and trees as bytes, for programs."),
    ("open", "Routes that require no token."),
];

/// Returns the OpenAPI document of the service, given that of its documented `routes`.
pub(crate) fn document(routes: OpenApi) -> Value {
    let mut document = serde_json::to_value(routes).unwrap_or_default();
    add_head(&mut document);
    add_schemas(&mut document);
    for tool in TOOLS {
        document["paths"][TOOL_PATH.replace("{tool}", tool.name)] = json!({ "post": tool_operation(tool) });
    }
    document["paths"]["/docs"] = json!({"get": {
        "tags": ["open"],
        "summary": "Show this document as web pages",
        "description": "The pages load nothing from other hosts.",
        "operationId": "getDocs",
        "security": [{}],
        "responses": {"303": {"description": "Redirect to the pages at `/docs/`."}},
    }});
    if let Some(paths) = document["paths"].as_object_mut() {
        // The router's wildcard for the rest of a path is an ordinary parameter in OpenAPI.
        if let Some(files) = paths.remove("/v1/runs/{run}/files/{*path}") {
            paths.insert("/v1/runs/{run}/files/{path}".to_owned(), files);
        }
        for (path, item) in paths {
            for (_, operation) in item.as_object_mut().into_iter().flatten() {
                add_common_responses(path, operation);
            }
        }
    }
    document
}

fn add_head(document: &mut Value) {
    document["openapi"] = json!("3.1.0");
    document["info"] = json!({
        "title": "workspaced",
        "description": DESCRIPTION,
        "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        "version": env!("CARGO_PKG_VERSION"),
    });
    document["servers"] = json!([{"url": "/", "description": "The service that serves this document."}]);
    document["tags"] =
        TAGS.iter().map(|(name, description)| json!({"name": name, "description": description})).collect();
    document["security"] = json!([{"bearer": []}]);
    document["components"]["securitySchemes"] = json!({"bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An operator token or a run token. Never in a query string.",
    }});
}

fn add_schemas(document: &mut Value) {
    let mut found = Vec::new();
    ProblemBody::schemas(&mut found);
    // utoipa refers to the types of path parameters but does not collect them.
    found.extend([named::<ProblemBody<'_>>(), named::<RunId>(), named::<TokenId>(), named::<ToolCallId>()]);
    found.extend([named::<ArtifactId>(), named::<ApprovalId>()]);
    let schemas = &mut document["components"]["schemas"];
    for (name, schema) in found {
        schemas[name] = serde_json::to_value(schema).unwrap_or_default();
    }
    for tool in TOOLS {
        schemas[(tool.input)().name] = input_schema(tool);
        schemas[(tool.output)().name] = output_schema(tool);
    }
}

fn named<T: ToSchema>() -> (String, RefOr<Schema>) {
    (T::name().into_owned(), T::schema())
}

/// Returns the operation that documents a tool.
fn tool_operation(tool: &Tool) -> Value {
    let schema = |name: String| json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
    let permissions: Vec<_> = tool.permissions.iter().map(|one| format!("`{}`", one.as_str())).collect();
    let mut responses = json!({
        "200": {"description": "The call's result.", "content": {"application/json": schema((tool.output)().name)}},
        "409": problem("The file or the run is not in the expected state.", "RUN_CLOSED"),
        "413": problem("A file or the body is too large.", "FILE_TOO_LARGE"),
        "415": problem("The file is binary, or the body has a `Content-Encoding`.", "UNSUPPORTED_BINARY"),
    });
    if tool.mutates() {
        responses["202"] = json!({
            "description": "`APPROVAL_REQUIRED`: the call waits for an approval; nothing has changed yet.",
            "content": {"application/json": schema("Problem".to_owned())},
        });
        responses["422"] = problem("The call exceeds a budget of the run's policy.", "PATCH_BUDGET_EXCEEDED");
        responses["507"] = problem("The call would exceed a quota of the run or of the service.", "QUOTA_EXCEEDED");
    }
    json!({
        "tags": ["tools"],
        "summary": format!("Call `{}`", tool.name),
        "description": format!("{}\n\nRequires the permission {}.", tool.description, permissions.join(" or ")),
        "operationId": tool.name,
        "parameters": [{"name": "run", "in": "path", "required": true, "description": "The run.",
            "schema": {"$ref": "#/components/schemas/RunId"}}],
        "requestBody": {"required": tool.mutates(), "content": {"application/json": schema((tool.input)().name)}},
        "responses": responses,
    })
}

/// Adds the responses that every operation of its kind has.
fn add_common_responses(path: &str, operation: &mut Value) {
    let open = operation["tags"][0] == "open";
    let takes_body = operation.get("requestBody").is_some();
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let mut add = |status: &str, description: &str, code: &str| {
        responses.entry(status.to_owned()).or_insert_with(|| problem(description, code));
    };
    if !open {
        add("400", "The request is malformed, or its path is rejected.", "INVALID_REQUEST");
        add("401", "The token is missing, unknown, expired or revoked.", "UNAUTHENTICATED");
        add("403", "The token does not permit the request, or the policy denies it.", "FORBIDDEN");
        add("429", "The token exceeds its request rate or concurrency.", "RATE_LIMITED");
        add("503", "The store or the disk is full or unavailable; nothing was changed.", "UNAVAILABLE");
        if path.contains("{run}") || path.contains("/runs/") {
            add("404", "The run does not exist, or the requested item does not exist in it.", "RUN_NOT_FOUND");
        } else if path.contains('{') {
            add("404", "The requested item does not exist.", "NOT_FOUND");
        }
    }
    if takes_body {
        add("413", "The body is too large.", "BODY_TOO_LARGE");
        add("415", "The body has a `Content-Encoding`, which is not supported.", "INVALID_REQUEST");
    }
    add("500", "The service failed; the cause is in its log.", "INTERNAL");
    let sorted: Map<_, _> = {
        let mut all: Vec<_> = std::mem::take(responses).into_iter().collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().collect()
    };
    *responses = sorted;
}

fn problem(description: &str, code: &str) -> Value {
    let mut response = json!({
        "description": description,
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example_of(code)}},
    });
    if matches!(code, "RATE_LIMITED" | "UNAVAILABLE") {
        let schema = json!({"type": "integer", "minimum": 1});
        response["headers"] = json!({"Retry-After": {"description": "Seconds to wait.", "schema": schema}});
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn full_document() -> Value {
        serde_json::from_str(&crate::http::openapi_text()).unwrap()
    }

    #[test]
    fn every_reference_resolves() {
        let document = full_document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{} references", found.len());
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} dangles");
        }
    }

    #[test]
    fn every_tool_documents_the_common_refusals() {
        let document = full_document();
        for tool in TOOLS {
            let operation = &document["paths"][TOOL_PATH.replace("{tool}", tool.name)]["post"];
            assert_eq!(operation["operationId"], tool.name);
            for status in ["200", "400", "401", "403", "404", "409", "413", "429", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{} lacks {status}", tool.name);
            }
        }
        assert_eq!(document["paths"]["/healthz"]["get"]["security"], json!([{}]), "health requires no token");
        assert_eq!(document["security"], json!([{"bearer": []}]), "all others do");
    }
}
