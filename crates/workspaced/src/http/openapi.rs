//! The OpenAPI document: the documented routes, one path per tool from the catalogue, and the responses common to all.

mod callers;
mod conventions;
mod responses;
mod schemas;
mod tool_operations;
mod version_3_0;

use engine::tools::{TOOLS, referring_input_schema, referring_output_schema};
use model::{ApprovalId, ArtifactId, RunId, TokenId, ToolCallId};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{OpenApi, RefOr, Schema};

use crate::http::mcp;
use crate::http::problem::ProblemBody;
use crate::http::tools::PATH as TOOL_PATH;

pub(crate) use version_3_0::convert as to_version_3_0;

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
const TAGS: [(&str, &str); 10] = [
    (
        "tools",
        "Tool calls of an agent. A repeated `toolCallId` is the same call: a mutation returns its first response again.",
    ),
    ("runs", "Runs and their tokens, for orchestrators."),
    ("approvals", "Calls that wait for an approval."),
    ("operators", "People and programs with a token of their own, and what they may do."),
    ("webhooks", "Messages about events that the service sends, and their deliveries."),
    ("audit", "What was done, by whom and why, in a hash chain."),
    ("events", "What happened outside of the tools, in the same hash chain."),
    ("commands", "For runners, which run the commands that agents want run. The service itself runs none."),
    ("files", "Files and trees as bytes, for programs."),
    ("open", "Routes that require no token."),
];

/// Returns the OpenAPI document of the service, given that of its documented `routes`.
pub(crate) fn document(routes: OpenApi) -> Value {
    let mut document = serde_json::to_value(routes).unwrap_or_default();
    add_head(&mut document);
    add_schemas(&mut document);
    conventions::add_components(&mut document);
    responses::add_components(&mut document);
    for tool in TOOLS {
        document["paths"][TOOL_PATH.replace("{tool}", tool.name)] = json!({ "post": tool_operations::operation(tool) });
    }
    add_other_operations(&mut document["paths"]);
    if let Some(paths) = document["paths"].as_object_mut() {
        // The router's wildcard for the rest of a path is an ordinary parameter in OpenAPI.
        if let Some(files) = paths.remove("/v1/runs/{run}/files/{*path}") {
            paths.insert("/v1/runs/{run}/files/{path}".to_owned(), files);
        }
        for (path, item) in paths {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                responses::complete(path, method, operation);
                callers::add(operation);
                conventions::add_to(operation);
            }
        }
    }
    schemas::normalize(&mut document);
    document
}

/// Adds the operations whose routes are not documented where they are.
fn add_other_operations(paths: &mut Value) {
    paths["/docs"] = json!({"get": {
        "tags": ["open"],
        "summary": "Show this document as web pages",
        "description": "The pages load nothing from other hosts.",
        "operationId": "getDocs",
        "security": [{}],
        "responses": {"303": {"description": "Redirect to the pages at `/docs/`."}},
    }});
    let message = json!({"application/json": {"schema": {"type": "object"}}});
    paths[mcp::PATH] = json!({"post": {
        "tags": ["tools"],
        "summary": "Send a message of the Model Context Protocol",
        "description": "The run's tools and files for clients of the protocol, over Streamable HTTP without sessions. Use such \
                        a client: the JSON-RPC messages are specified by the protocol and not by this document. A refused request \
                        is answered with a JSON-RPC error, whose `data` is the problem document.",
        "operationId": "sendMcpMessage",
        "requestBody": {"required": true, "content": message},
        "responses": {
            "200": {"description": "The JSON-RPC response.", "content": message},
            "202": {"description": "The notification is accepted."},
            "406": {"description": "`Accept` permits no `application/json`.", "content": message},
        },
    }});
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
        "description": "An operator token or a run token, or an access token of the issuer that is configured; each operation says which in `x-scopes` and `x-run-token`. Never in \
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
        for part in [(tool.input)(), (tool.output)()] {
            for (name, schema) in part.refers_to {
                schemas[name] = serde_json::to_value(schema).unwrap_or_default();
            }
        }
    }
    // By it, clients distinguish a refusal from an output.
    if let Some(ok) = schemas.pointer_mut("/Problem/allOf/1/properties/ok") {
        *ok = json!({"type": "boolean", "const": false});
    }
    schemas["ToolInfo"] = tool_operations::catalogue_item();
    schemas["ToolList"]["properties"]["items"]["items"] = json!({"$ref": "#/components/schemas/ToolInfo"});
    // What the files plane answers has the members that every mutation has.
    schemas["StoredFile"] = referring_output_schema(&engine::tools::PUT);
    for tool in TOOLS {
        schemas[(tool.input)().name] = referring_input_schema(tool);
        schemas[(tool.output)().name] = referring_output_schema(tool);
    }
}

fn named<T: ToSchema>() -> (String, RefOr<Schema>) {
    (T::name().into_owned(), T::schema())
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
        serde_json::from_str(&crate::http::openapi_text(crate::OpenApiVersion::V3_1)).unwrap()
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
            assert_eq!(operation["operationId"], tool_operations::operation_id(tool));
            for status in ["200", "400", "401", "403", "404", "409", "413", "429", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{} lacks {status}", tool.name);
            }
        }
        assert_eq!(document["paths"]["/healthz"]["get"]["security"], json!([{}]), "health requires no token");
        assert_eq!(document["security"], json!([{"bearer": []}]), "all others do");
    }
}
