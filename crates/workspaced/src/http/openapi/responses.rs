//! The responses: refusals are components that every operation refers to, by status.

use serde_json::{Map, Value, json};

use crate::http::mcp;
use crate::http::problem::{CHALLENGE, PROBLEM_JSON, example_of};

/// Refusals: status, name of the component, description, example of a code.
const REFUSALS: [(&str, &str, &str, &str); 17] = [
    (
        "202",
        "ApprovalRequired",
        "`APPROVAL_REQUIRED`: the call waits for an approval; nothing has changed yet.",
        "APPROVAL_REQUIRED",
    ),
    ("400", "BadRequest", "The request is malformed, or its path is rejected.", "INVALID_REQUEST"),
    ("401", "Unauthenticated", "The token is missing, unknown, expired or revoked.", "UNAUTHENTICATED"),
    ("403", "Forbidden", "The token does not permit the request, or the policy denies it.", "FORBIDDEN"),
    ("404", "NotFound", "The run does not exist, or the requested item does not exist.", "NOT_FOUND"),
    (
        "405",
        "MethodNotAllowed",
        "The path does not support the method; `Allow` lists those that it supports.",
        "INVALID_REQUEST",
    ),
    ("409", "Conflict", "The file, the run or the item is not in the expected state.", "WRITE_CONFLICT"),
    ("412", "PreconditionFailed", "The file does not have the version that the precondition names.", "WRITE_CONFLICT"),
    ("413", "TooLarge", "A file or the body is too large.", "BODY_TOO_LARGE"),
    ("415", "UnsupportedMediaType", "The file is binary, or the body has a `Content-Encoding`.", "UNSUPPORTED_BINARY"),
    ("416", "RangeNotSatisfiable", "The file has no such part; `Content-Range` has its size.", "INVALID_REQUEST"),
    ("422", "BudgetExceeded", "The call exceeds a budget of the run's policy.", "PATCH_BUDGET_EXCEEDED"),
    ("428", "PreconditionRequired", "The precondition is missing.", "PRECONDITION_REQUIRED"),
    ("429", "RateLimited", "The token exceeds its request rate or concurrency.", "RATE_LIMITED"),
    ("500", "InternalError", "The service failed; the cause is in its log.", "INTERNAL"),
    (
        "503",
        "Unavailable",
        "The store or the disk is full or unavailable, or the run needs repair; nothing was changed.",
        "UNAVAILABLE",
    ),
    ("507", "QuotaExceeded", "The request would exceed a quota of the run or of the service.", "QUOTA_EXCEEDED"),
];

/// Headers by their component: name of the header, description, schema.
fn headers() -> [(&'static str, &'static str, &'static str, Value); 15] {
    let text = || json!({"type": "string"});
    let positive = || json!({"type": "integer", "minimum": 1});
    let example = |example: &str| json!({"type": "string", "examples": [example]});
    [
        (
            "RequestId",
            "X-Request-Id",
            "The ID of the request: that of the caller, or one that the service made.",
            text(),
        ),
        (
            "RateLimit",
            "RateLimit",
            "With a rate limit: the requests that the token may send at once, and the seconds until that is the whole burst again.",
            example("\"token\";r=99;t=1"),
        ),
        (
            "RateLimitPolicy",
            "RateLimit-Policy",
            "With a rate limit: the burst, and the seconds in which it becomes available again.",
            example("\"token\";q=100;w=2"),
        ),
        ("RetryAfter", "Retry-After", "Seconds to wait.", positive()),
        ("Authenticate", "WWW-Authenticate", "The challenge of RFC 6750.", example(CHALLENGE)),
        ("Allow", "Allow", "The methods of the path.", text()),
        ("AcceptEncoding", "Accept-Encoding", "For a body with a `Content-Encoding`: `identity`.", text()),
        ("ContentRange", "Content-Range", "The part and the size of the file.", example("bytes 0-99/1234")),
        ("AcceptRanges", "Accept-Ranges", "`bytes`.", text()),
        (
            "ETag",
            "ETag",
            "The quoted SHA-256 of the file, or of the answer.",
            json!({"type": "string", "pattern": "^(W/)?\"[0-9a-f]{64}\"$"}),
        ),
        (
            "Location",
            "Location",
            "The URL path of what was created.",
            json!({"type": "string", "format": "uri-reference"}),
        ),
        ("Disposition", "Content-Disposition", "`attachment`, with a file name.", text()),
        ("Call", "Workspaced-Call", "With `text/plain`: the ID of the call.", text()),
        ("Seq", "Workspaced-Seq", "With `text/plain`: the number of the call's record.", positive()),
        (
            "FileSha256",
            "Workspaced-Sha256",
            "With `text/plain`, in answers about a single file: its hash, after the call's change.",
            json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
        ),
    ]
}

/// Refusals of single operations, besides those that are documented at the route.
const OWN_REFUSALS: [(&str, &[&str]); 19] = [
    ("getFile", &["413", "507"]),
    ("getArchive", &["507"]),
    ("getBundle", &["507"]),
    ("getPatch", &["507"]),
    ("getDrift", &["507"]),
    // The run is archived.
    ("listAudit", &["409"]),
    ("streamAudit", &["409"]),
    ("getStats", &["409"]),
    ("listRunAudit", &["409"]),
    ("listChanges", &["409"]),
    ("getArtifact", &["409"]),
    ("getUploadedArtifact", &["409"]),
    ("proveInclusion", &["409"]),
    ("getToolCall", &["409"]),
    ("getReport", &["409"]),
    ("createRun", &["507"]),
    ("putArchive", &["507"]),
    ("putFile", &["202", "412", "422", "428", "507"]),
    ("deleteFile", &["202", "412", "422", "428", "507"]),
];

/// Headers of single operations: those of their responses with a status.
const OWN_HEADERS: [(&str, &str, &[&str]); 14] = [
    ("getFile", "200", &["ETag", "AcceptRanges"]),
    ("getFile", "206", &["ETag", "AcceptRanges", "ContentRange"]),
    ("getFile", "304", &["ETag"]),
    ("putFile", "200", &["ETag"]),
    ("putFile", "201", &["ETag"]),
    ("listTools", "200", &["ETag"]),
    ("listTools", "304", &["ETag"]),
    ("createRun", "201", &["Location"]),
    ("issueToken", "201", &["Location"]),
    ("getDocs", "303", &["Location"]),
    ("getArchive", "200", &["Disposition"]),
    ("getBundle", "200", &["Disposition"]),
    ("getPatch", "200", &["Disposition"]),
    ("getUploadedArtifact", "200", &["Disposition"]),
];

/// Returns references to the headers of these components.
pub(super) fn header_references(components: &[&str]) -> Value {
    let all = headers();
    let found = all.iter().filter(|(component, ..)| components.contains(component));
    found
        .map(|(component, name, ..)| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{component}")})))
        .collect::<Map<_, _>>()
        .into()
}

/// Adds the refusals and the headers to the components of `document`.
pub(super) fn add_components(document: &mut Value) {
    for (component, _, description, schema) in headers() {
        document["components"]["headers"][component] = json!({"description": description, "schema": schema});
    }
    for refusal in REFUSALS {
        let (status, name, ..) = refusal;
        document["components"]["responses"][name] = response_of(refusal, false);
        // Only tools answer refusals as text too.
        if !["412", "416", "428", "405"].contains(&status) {
            document["components"]["responses"][format!("Tool{name}")] = response_of(refusal, true);
        }
    }
}

/// Returns the response of a refusal.
fn response_of((status, _, description, code): (&str, &str, &str, &str), is_tool: bool) -> Value {
    let mut own = headers_of(status);
    // A call that waits is not an error, although its response has the same members.
    let media_type = if status == "202" { "application/json" } else { PROBLEM_JSON };
    let mut content = json!({media_type: {"schema": {"$ref": "#/components/schemas/Problem"}}});
    if is_tool {
        own.extend(["Call", "Seq"]);
        content["text/plain"] = json!({"schema": {"type": "string"}});
    } else {
        content[media_type]["example"] = example_of(code);
    }
    json!({"description": description, "headers": header_references(&own), "content": content})
}

/// Returns the headers of a refusal with `status`.
fn headers_of(status: &str) -> Vec<&'static str> {
    let mut names = vec!["RequestId", "RateLimit", "RateLimitPolicy"];
    names.extend(match status {
        "401" => Some("Authenticate"),
        "405" => Some("Allow"),
        "415" => Some("AcceptEncoding"),
        "416" => Some("ContentRange"),
        "429" | "503" => Some("RetryAfter"),
        _ => None,
    });
    names
}

/// Returns a refusal as an error of JSON-RPC, in which the Model Context Protocol has it.
fn refusal_as_message(status: &str, description: &str) -> Value {
    json!({
        "description": description, "headers": header_references(&headers_of(status)),
        "content": {"application/json": {"schema": {"type": "object", "additionalProperties": true}}},
    })
}

/// Returns a reference to the refusal with `status`.
pub(super) fn refusal(status: &str, is_tool: bool) -> Option<Value> {
    let (_, name, ..) = REFUSALS.iter().find(|(known, ..)| *known == status)?;
    let prefix = if is_tool { "Tool" } else { "" };
    Some(json!({"$ref": format!("#/components/responses/{prefix}{name}")}))
}

/// Adds the responses that every operation of its kind has, and replaces the refusals by references.
pub(super) fn complete(path: &str, method: &str, operation: &mut Value) {
    let is_tool = path.contains("/tools/");
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let own = OWN_REFUSALS.iter().filter(|(known, _)| *known == id).flat_map(|(_, statuses)| *statuses);
    let mut statuses = common_refusals(path, method, operation);
    statuses.extend(own);
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, response) in responses.iter_mut() {
        let is_problem = response["content"][PROBLEM_JSON].is_object();
        let found = REFUSALS.iter().find(|(known, ..)| known == status).filter(|_| is_problem);
        let Some(mut own) = found.map(|refusal| response_of(*refusal, is_tool)) else { continue };
        // What the status means for this operation. A reference would lose it: generators read nothing beside one.
        own["description"] = response["description"].take();
        *response = own;
    }
    for status in statuses {
        if path == mcp::PATH {
            let known = REFUSALS.iter().find(|(known, ..)| *known == status);
            let description = known.map_or("", |(_, _, description, _)| description);
            responses.entry(status).or_insert_with(|| refusal_as_message(status, description));
        } else if let Some(reference) = refusal(status, is_tool) {
            responses.entry(status).or_insert(reference);
        }
    }
    if id == "callInFormat" {
        // What goes back to the model is text, or an item of the provider's API.
        for (status, response) in responses.iter_mut() {
            let Some(refusal) = REFUSALS.iter().find(|(known, ..)| known == status) else { continue };
            let description = response["description"].take();
            *response = response_of(*refusal, true);
            response["content"]["application/json"] = json!({"schema": {}});
            if description.is_string() {
                response["description"] = description;
            }
        }
    }
    let shared: &[_] =
        if path.starts_with("/v1/") { &["RequestId", "RateLimit", "RateLimitPolicy"] } else { &["RequestId"] };
    for (status, response) in responses.iter_mut().filter(|(_, response)| response.get("$ref").is_none()) {
        let own = OWN_HEADERS.iter().find(|(known, own, _)| *known == id && own == status);
        let names = [shared, own.map_or(&[][..], |(.., names)| names)].concat();
        if response["headers"].is_null() {
            response["headers"] = json!({});
        }
        if let (Value::Object(more), Some(all)) = (header_references(&names), response["headers"].as_object_mut()) {
            all.extend(more);
        }
    }
}

/// Returns the statuses of the refusals that every operation of this kind has.
fn common_refusals(path: &str, method: &str, operation: &Value) -> Vec<&'static str> {
    let tag = operation["tags"][0].as_str().unwrap_or_default();
    let mut statuses = vec!["500"];
    if tag != "open" {
        statuses.extend(["400", "401", "403", "429", "503"]);
    }
    if tag != "open" && path.contains('{') {
        statuses.push("404");
    }
    if matches!(tag, "tools" | "files") && path.contains("{run}") {
        // The run is preparing or deleted, or the ID of the call belongs to another call.
        statuses.push("409");
    }
    if method != "get" {
        statuses.extend(["413", "415"]);
    }
    statuses
}
