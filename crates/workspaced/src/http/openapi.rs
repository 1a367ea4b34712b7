//! The OpenAPI document: the documented routes, one path per tool from the catalogue, and the responses common to all.

mod callers;
mod conventions;

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
content, expected state, budget, approval. `type` is the path of a page that explains the code.

`X-Request-Id` names each request in responses, logs and records; `traceparent` is recorded. Responses of text and JSON from \
1 KiB on, other than the bytes of files, are compressed by gzip or zstd if `Accept-Encoding` permits. With a rate limit, \
`RateLimit` and `RateLimit-Policy` are part of every response to a token.

A tool call with `Accept: text/plain` is answered as text for a model: content without escapes, and no IDs, hashes or \
sequence numbers, which are in the headers `Workspaced-Call`, `Workspaced-Seq` and `Workspaced-Sha256`. A refusal has the \
same status, and its text is `CODE: message`, the hint, and what helps with it. Where a tool takes an array, a single value \
is taken as an array of one.";

/// The tags with their descriptions.
const TAGS: [(&str, &str); 8] = [
    (
        "tools",
        "Tool calls of an agent. A repeated `toolCallId` is the same call: a mutation returns its first response again.",
    ),
    ("runs", "Runs and their tokens, for orchestrators."),
    ("approvals", "Calls that wait for an approval."),
    ("operators", "People and programs with a token of their own, and what they may do."),
    ("audit", "What was done, by whom and why, in a hash chain."),
    ("events", "What happened outside of the tools, in the same hash chain."),
    ("files", "Files and trees as bytes, for programs."),
    ("open", "Routes that require no token."),
];

/// Returns the OpenAPI document of the service, given that of its documented `routes`.
pub(crate) fn document(routes: OpenApi) -> Value {
    let mut document = serde_json::to_value(routes).unwrap_or_default();
    add_head(&mut document);
    add_schemas(&mut document);
    conventions::add_components(&mut document);
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
                callers::add(operation);
                conventions::add_to(operation);
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
    for (name, description, schema) in text_headers() {
        document["components"]["headers"][name] = json!({"description": description, "schema": schema});
    }
    document["components"]["securitySchemes"] = json!({"bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An operator token or a run token; each operation says which in `x-scopes` and `x-run-token`. Never in \
                        a query string.",
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
        "200": {"description": "The call's result.", "headers": text_header_references(), "content": {
            "application/json": schema((tool.output)().name),
            "text/plain": {"schema": {"type": "string"}},
        }},
        "409": problem("The file or the run is not in the expected state.", "RUN_CLOSED"),
        "413": problem("A file or the body is too large.", "FILE_TOO_LARGE"),
        "415": problem("The file is binary, or the body has a `Content-Encoding`.", "UNSUPPORTED_BINARY"),
    });
    if tool.mutates() {
        responses["202"] = json!({
            "description": "`APPROVAL_REQUIRED`: the call waits for an approval; nothing has changed yet.",
            "headers": text_header_references(),
            "content": {"application/json": schema("Problem".to_owned()), "text/plain": {"schema": {"type": "string"}}},
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

/// The headers of an answer as text, each with its description and schema.
fn text_headers() -> [(&'static str, &'static str, Value); 3] {
    [
        ("Workspaced-Call", "With `text/plain`: the ID of the call.", json!({"type": "string"})),
        (
            "Workspaced-Seq",
            "With `text/plain`: the number of the call's record.",
            json!({"type": "integer", "minimum": 1}),
        ),
        (
            "Workspaced-Sha256",
            "With `text/plain`, in answers about a single file: its hash, after the call's change.",
            json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
        ),
    ]
}

/// References to [`text_headers`].
fn text_header_references() -> Value {
    let reference = |(name, ..): &(&str, &str, Value)| {
        ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}))
    };
    Value::Object(text_headers().iter().map(reference).collect())
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
