//! The document of this API: the routes' own, the tools' from their catalogue, and what holds for all of them.

use std::sync::LazyLock;

use bytes::Bytes;
use model::{ApprovalId, ArtifactId, RunId, TokenId, ToolCallId};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::http::problem::{PROBLEM_JSON, ProblemBody, example_of};
use crate::http::{TOOL_PATH, routes};
use crate::tools::{TOOLS, Tool, input_schema, output_schema};

const DESCRIPTION: &str = "\
workspaced hosts one workspace per run of a coding agent, lets the agent work in it through a few tools, and records every \
call.

An orchestrator creates a run and gets its token. An agent calls tools on it with that token. Whoever watches reads the \
audit: what was read, written and refused, by whom, why, from which version, with the diff of every change.

Every call but those tagged `open` takes `Authorization: Bearer TOKEN`. Every refusal is `application/problem+json` with a \
`code` that a program switches on and a `hint` that says what to do next. Where several refusals apply, the first in this \
order is told: bounds of transport, `UNAUTHENTICATED`, `FORBIDDEN`, `RATE_LIMITED`, `INVALID_REQUEST`, `PATH_REJECTED`, \
`RUN_CLOSED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, existence, content, expected state, budget, approval.";

/// Tags with what they stand for.
const TAGS: [(&str, &str); 6] = [
    (
        "tools",
        "What an agent does in its run. The same `toolCallId` again is the same call: a mutation answers what it answered the first time.",
    ),
    ("runs", "What an orchestrator does: runs and their tokens."),
    ("approvals", "Calls that wait for a person."),
    ("audit", "What was done, by whom and why, in a chain of hashes."),
    ("files", "Files and trees as bytes, for programs."),
    ("open", "What needs no token."),
];

/// The document as JSON text, made when it is first asked for.
pub(crate) fn text() -> Bytes {
    // Anybody may ask for it: it is made once, and all answers share it.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());
    TEXT.clone()
}

/// The document as it is committed: for people to compare.
pub(crate) fn pretty_text() -> String {
    // Values always serialise.
    serde_json::to_string_pretty(&document()).map(|text| text + "\n").unwrap_or_default()
}

fn document() -> Value {
    let mut document = serde_json::to_value(routes().into_openapi()).unwrap_or_default();
    add_head(&mut document);
    add_schemas(&mut document);
    for tool in TOOLS {
        document["paths"][TOOL_PATH.replace("{tool}", tool.name)] = json!({ "post": operation_of(tool) });
    }
    document["paths"]["/docs"] = json!({"get": {
        "tags": ["open"],
        "summary": "Shows this document to people.",
        "description": "Whole without the internet.",
        "operationId": "getDocs",
        "security": [{}],
        "responses": {"303": {"description": "The pages, at `/docs/`."}},
    }});
    if let Some(paths) = document["paths"].as_object_mut() {
        // What the router takes as the rest of a path is one parameter in the document.
        if let Some(files) = paths.remove("/v1/runs/{run}/files/{*path}") {
            paths.insert("/v1/runs/{run}/files/{path}".to_owned(), files);
        }
        for (path, item) in paths {
            for (_, operation) in item.as_object_mut().into_iter().flatten() {
                add_common(path, operation);
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
        "description": "An operator's token or a run's. Never in a query string.",
    }});
}

fn add_schemas(document: &mut Value) {
    let mut found = Vec::new();
    ProblemBody::schemas(&mut found);
    // Types that stand in paths only, which utoipa refers to and leaves out.
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

/// A tool's route.
fn operation_of(tool: &Tool) -> Value {
    let schema = |name: String| json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
    let (first, rest) = tool.description.split_once(". ").unwrap_or((tool.description.trim_end_matches('.'), ""));
    let permissions: Vec<_> = tool.permissions.iter().map(|one| format!("`{}`", one.as_str())).collect();
    let mut responses = json!({
        "200": {"description": "It did.", "content": {"application/json": schema((tool.output)().name)}},
        "409": problem("What stands there is not what was expected, or the run is closed.", "RUN_CLOSED"),
        "413": problem("A file or the body is too large.", "FILE_TOO_LARGE"),
        "415": problem("It is binary; or the body has a `Content-Encoding`.", "UNSUPPORTED_BINARY"),
    });
    if tool.mutates() {
        responses["202"] = json!({
            "description": "`APPROVAL_REQUIRED`: the call waits for a person; nothing has changed yet.",
            "content": {"application/json": schema("Problem".to_owned())},
        });
        responses["422"] = problem("It is more than the run's policy lets one call do.", "PATCH_BUDGET_EXCEEDED");
        responses["507"] = problem("The run, or the service, would hold more than its quota.", "QUOTA_EXCEEDED");
    }
    json!({
        "tags": ["tools"],
        "summary": format!("{first}."),
        "description": format!("{rest}\n\nNeeds the permission {}.", permissions.join(" or ")).trim_start(),
        "operationId": tool.name,
        "parameters": [{"name": "run", "in": "path", "required": true, "description": "The run.",
            "schema": {"$ref": "#/components/schemas/RunId"}}],
        "requestBody": {"required": tool.mutates(), "content": {"application/json": schema((tool.input)().name)}},
        "responses": responses,
    })
}

/// What can happen to every call of a kind need not be said at each.
fn add_common(path: &str, operation: &mut Value) {
    let open = operation["tags"][0] == "open";
    let takes_body = operation.get("requestBody").is_some();
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let mut add = |status: &str, description: &str, code: &str| {
        responses.entry(status.to_owned()).or_insert_with(|| problem(description, code));
    };
    if !open {
        add("400", "The request is malformed, or names a path that no call takes.", "INVALID_REQUEST");
        add("401", "No token, or one that is unknown, expired or revoked.", "UNAUTHENTICATED");
        add("403", "The token may not do this, or not in this run; or policy denies it.", "FORBIDDEN");
        add("429", "The token makes too many requests.", "RATE_LIMITED");
        add("503", "Store or disk are full or away; nothing was changed.", "UNAVAILABLE");
        if path.contains("{run}") || path.contains("/runs/") {
            add("404", "There is no such run, or nothing of that name in it.", "RUN_NOT_FOUND");
        } else if path.contains('{') {
            add("404", "There is nothing of that name.", "NOT_FOUND");
        }
    }
    if takes_body {
        add("413", "The body is too large.", "BODY_TOO_LARGE");
        add("415", "The body has a `Content-Encoding`, which nothing here decodes.", "INVALID_REQUEST");
    }
    add("500", "The service failed; the fault is in its log.", "INTERNAL");
    let sorted: Map<_, _> = {
        let mut all: Vec<_> = std::mem::take(responses).into_iter().collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().collect()
    };
    *responses = sorted;
}

fn problem(description: &str, code: &str) -> Value {
    let mut headers = json!({});
    if matches!(code, "RATE_LIMITED" | "UNAVAILABLE") {
        headers["Retry-After"] =
            json!({"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}});
    }
    let mut told = json!({
        "description": description,
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example_of(code)}},
    });
    if headers.as_object().is_some_and(|headers| !headers.is_empty()) {
        told["headers"] = headers;
    }
    told
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

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{} references", found.len());
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} dangles");
        }
    }

    #[test]
    fn every_tool_and_every_common_refusal_is_told() {
        let document = document();
        for tool in TOOLS {
            let operation = &document["paths"][TOOL_PATH.replace("{tool}", tool.name)]["post"];
            assert_eq!(operation["operationId"], tool.name);
            for status in ["200", "400", "401", "403", "404", "409", "413", "429", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{} does not tell {status}", tool.name);
            }
        }
        assert_eq!(document["paths"]["/healthz"]["get"]["security"], json!([{}]), "health needs no token");
        assert_eq!(document["security"], json!([{"bearer": []}]), "all else does");
    }
}
