//! The API document: complete, equal to the code, and the source of the authorization tests.

use std::collections::BTreeSet;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, workspaced};

/// The routes that the contract requires.
const REQUIRED: [(&str, &str); 32] = [
    ("get", "/v1/checkpoint"),
    ("get", "/v1/checkpoint/key"),
    ("get", "/v1/checkpoint/consistency"),
    ("get", "/v1/runs/{run}/audit/inclusion"),
    ("post", "/v1/runs"),
    ("get", "/v1/runs"),
    ("get", "/v1/runs/{run}"),
    ("delete", "/v1/runs/{run}"),
    ("post", "/v1/runs/{run}/close"),
    ("put", "/v1/runs/{run}/archive"),
    ("get", "/v1/runs/{run}/archive"),
    ("post", "/v1/runs/{run}/tokens"),
    ("delete", "/v1/runs/{run}/tokens/{tokenId}"),
    ("get", "/v1/approvals"),
    ("get", "/v1/approvals/{id}"),
    ("get", "/v1/audit"),
    ("get", "/v1/audit/stream"),
    ("get", "/v1/tools"),
    ("post", "/v1/runs/{run}/tools/list_dir"),
    ("post", "/v1/runs/{run}/tools/read_file"),
    ("post", "/v1/runs/{run}/tools/search_text"),
    ("post", "/v1/runs/{run}/tools/write_file"),
    ("post", "/v1/runs/{run}/tools/apply_patch"),
    ("post", "/v1/runs/{run}/tools/diff_workspace"),
    ("get", "/v1/runs/{run}/tool-calls/{toolCallId}"),
    ("get", "/v1/runs/{run}/audit"),
    ("get", "/v1/runs/{run}/audit/verify"),
    ("get", "/v1/runs/{run}/artifacts/{artifactId}"),
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
];

/// Routes that need no token.
const OPEN: [&str; 7] = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/problems", "/.well-known"];

/// The `GET` routes that an auditor may call.
const AUDITORS: [&str; 28] = [
    "/v1/runs/{run}/compare/{other}",
    "/v1/runs/{run}/usage",
    "/v1/runs/{run}/tokens",
    "/v1/nodes",
    "/v1/runs/{run}/patch",
    "/v1/runs/{run}/files/{path}",
    "/v1/checkpoint",
    "/v1/checkpoint/key",
    "/v1/checkpoint/key/changes",
    "/v1/checkpoint/consistency",
    "/v1/runs/{run}/audit/inclusion",
    "/v1/runs/{run}/changes",
    "/v1/runs",
    "/v1/runs/{run}",
    "/v1/runs/{run}/audit",
    "/v1/runs/{run}/audit/verify",
    "/v1/runs/{run}/artifacts/{artifactId}",
    "/v1/runs/{run}/artifacts/sha256/{digest}",
    "/v1/runs/{run}/report",
    "/v1/runs/{run}/tool-calls/{toolCallId}",
    "/v1/approvals",
    "/v1/approvals/{id}",
    "/v1/approvals/{id}/file",
    "/v1/audit",
    "/v1/audit/stream",
    "/v1/audit/export",
    "/v1/stats",
    "/v1/operators/{name}",
];

/// The tools that an auditor may call.
const READING_TOOLS: [&str; 8] =
    ["list_dir", "read_file", "read_files", "stat_path", "find_files", "search_text", "tree_stats", "diff_workspace"];

fn committed() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/workspaced.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns every operation of `document`: method, path, description.
fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if ["get", "put", "post", "delete", "head", "patch"].contains(&method.as_str()) {
                all.push((method.clone(), path.clone(), operation));
            }
        }
    }
    all
}

/// Replaces each parameter of a path with `{}`.
fn shape(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect::<Vec<_>>().join("/")
}

/// Calls an operation on `run`, with an arbitrary value for its other parameters.
async fn call(client: &Client, method: &str, path: &str, run: &Run) -> crate::harness::Answer {
    let mut concrete = path.replace("{run}", &run.id);
    while let Some(start) = concrete.find('{') {
        let end = start + concrete[start..].find('}').unwrap();
        concrete.replace_range(start..=end, "none-such");
    }
    let request = client.request(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), &concrete);
    let request = if method == "post" { request.json(&json!({})) } else { request };
    client.send(request).await
}

#[rstest]
#[tokio::test]
async fn the_committed_document_equals_the_generated_one(#[values(Backend::Sqlite)] backend: Backend) {
    let printed = workspaced().arg("openapi").output().unwrap();
    assert!(printed.status.success());
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(printed, committed(), "regenerate it: cargo run -p workspaced -- openapi > openapi/workspaced.json");
    let served = Server::shared(backend).await.nobody().get("/openapi.json").await;
    assert!(served.header("content-type").starts_with("application/json"));
    assert_eq!(served.ok(), printed);
    assert!(printed["openapi"].as_str().unwrap().starts_with("3.1"));
}

#[test]
fn every_required_route_is_documented_and_every_reference_resolves() {
    let document = committed();
    let documented: BTreeSet<_> =
        operations(&document).into_iter().map(|(method, path, _)| (method, shape(&path))).collect();
    for (method, path) in REQUIRED {
        assert!(documented.contains(&(method.to_owned(), shape(path))), "{method} {path} is missing");
    }
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (method, path, operation) in operations(&document) {
        let route = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{route} has no operationId"));
        assert!(ids.insert(id.to_owned()), "two operations have the ID {id}");
        let folded = id.replace('_', "").to_lowercase();
        assert!(names.insert(folded), "{id} has the name of another operation in a language without letter case");
        assert!(
            operation["summary"].as_str().is_some_and(|text| text.len() > 8 && !text.ends_with('.')),
            "{route} has no summary"
        );
        assert!(operation["tags"].as_array().is_some_and(|tags| !tags.is_empty()), "{route} has no tag");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with(['2', '3'])), "{route} documents no success");
        let open = OPEN.iter().any(|open| path.starts_with(open));
        if !open {
            for refusal in ["401", "403"] {
                assert!(
                    responses.contains_key(refusal) || responses.contains_key("4XX"),
                    "{route} does not document {refusal}"
                );
            }
            assert!(
                operation.get("security").is_some() || document.get("security").is_some(),
                "{route} documents no security"
            );
        }
        if method == "post" && path.contains("/tools/") {
            let content = &operation["requestBody"]["content"]["application/json"];
            assert!(content["schema"].is_object(), "{route} has no request schema");
            assert!(
                content.to_string().contains("example")
                    || resolves(&document, &content["schema"]).to_string().contains("example"),
                "{route} has no example"
            );
        }
    }
    every_reference_resolves(&document, &document);
}

#[test]
fn nothing_in_it_stops_a_generator_of_another_language() {
    let document = committed();
    check_for_generators(&document, "");
    // Types that languages have already.
    for name in ["Record", "Object", "Error", "Map", "Set", "Date", "Result", "Option", "String"] {
        assert!(document["components"]["schemas"][name].is_null(), "a schema is called {name}");
    }
}

fn check_for_generators(value: &Value, at: &str) {
    match value {
        Value::Object(members) => {
            assert!(members.get("$ref").is_none_or(|_| members.len() == 1), "{at}: members beside a reference");
            assert!(members.get("const").is_none_or(Value::is_object), "{at}: a constant; see `generate_alike`");
            for text in ["description", "summary"] {
                let text = members.get(text).and_then(Value::as_str).unwrap_or_default();
                assert!(!text.contains("*/"), "{at}: `*/` in a text ends a comment of the generated code");
            }
            let names: Vec<_> = members.get("properties").and_then(Value::as_object).into_iter().flatten().collect();
            let folded: BTreeSet<_> = names.iter().map(|(name, _)| name.replace('_', "").to_lowercase()).collect();
            assert_eq!(folded.len(), names.len(), "{at}: two members have one name in a language with another style");
            for (key, member) in members.iter().filter(|(key, _)| !key.starts_with("example")) {
                check_for_generators(member, &format!("{at}/{key}"));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| check_for_generators(item, at)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn resolves<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document
            .pointer(reference.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{reference} does not resolve")),
        None => schema,
    }
}

fn every_reference_resolves(document: &Value, value: &Value) {
    match value {
        Value::Object(members) => {
            if members.get("$ref").is_some_and(Value::is_string) {
                resolves(document, value);
            }
            members.values().for_each(|member| every_reference_resolves(document, member));
        }
        Value::Array(items) => items.iter().for_each(|item| every_reference_resolves(document, item)),
        _ => {}
    }
}

#[rstest]
#[tokio::test]
async fn each_operation_refuses_unauthorized_callers(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    let other = server.run(json!({})).await;
    let document = committed();
    for (method, path, _) in operations(&document) {
        if OPEN.iter().any(|open| path.starts_with(open)) {
            continue;
        }
        let route = format!("{method} {path}");
        let refused = call(&server.nobody(), &method, &path, &run).await;
        if path == "/mcp" {
            assert_eq!(refused.is(401)["error"]["data"]["code"], "UNAUTHENTICATED");
        } else {
            refused.refused("UNAUTHENTICATED");
        }
        let stream = path.ends_with("/stream") || path.ends_with("/changes");
        let reads = READING_TOOLS.iter().any(|tool| path.ends_with(&format!("/tools/{tool}")));
        let allowed = reads || method == "get" && AUDITORS.iter().any(|allowed| shape(allowed) == shape(&path));
        if !(stream && allowed) {
            let status = call(&server.auditor(), &method, &path, &run).await.status;
            assert_eq!(status == 403, !allowed, "an auditor on {route}: {status}");
        }
        if !["/v1/tools", "/v1/limits", "/mcp"].contains(&path.as_str()) {
            call(&other.agent, &method, &path, &run).await.refused("FORBIDDEN");
        }
    }
    assert_eq!(run.get().await["state"], "open");
    assert_eq!(run.snapshot().len(), 0);
}

#[rstest]
#[tokio::test]
async fn no_operation_answers_malformed_input_with_a_server_error(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({})).await;
    let document = committed();
    for (method, path, _) in operations(&document) {
        if path.ends_with("/stream") || method == "delete" && path.ends_with("{run}") || path.ends_with("/close") {
            continue;
        }
        let mut concrete = path.replace("{run}", &run.id);
        while let Some(start) = concrete.find('{') {
            let end = start + concrete[start..].find('}').unwrap();
            concrete.replace_range(start..=end, "%20..%ff%00");
        }
        for body in ["", "null", "[[[[", "{\"path\":{}}", "{\"source\":{}}", "\u{0}"] {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let request = server.operator().request(method, &format!("{concrete}?limit=-1&cursor=%00&x=%ff"));
            let answer = server.operator().send(request.header("content-type", "application/json").body(body)).await;
            assert!(answer.status < 500, "{}: {}", answer.what, answer.text());
        }
    }
    run.ok("list_dir", json!({})).await;
}

#[rstest]
#[tokio::test]
async fn the_tool_catalogue_is_complete(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({})).await;
    let catalogue = run.agent.get("/v1/tools").await.ok();
    let tools =
        catalogue["items"].as_array().or(catalogue["tools"].as_array()).unwrap_or_else(|| panic!("{catalogue:#}"));
    let common = ["toolCallId", "stepId"];
    for (name, mutates, inputs, outputs) in [
        (
            "list_dir",
            false,
            vec!["path", "maxDepth", "includeHidden", "includeIgnored", "maxEntries", "mount"],
            vec!["path", "entries", "truncated"],
        ),
        (
            "read_file",
            false,
            vec!["path", "startLine", "maxLines", "format", "mount"],
            vec![
                "path",
                "startLine",
                "endLine",
                "totalLines",
                "sha256",
                "truncated",
                "nextStartLine",
                "content",
                "encoding",
                "lineEnding",
                "linesCut",
            ],
        ),
        (
            "search_text",
            false,
            vec![
                "query",
                "mode",
                "path",
                "includeGlob",
                "excludeGlob",
                "caseSensitive",
                "wholeWord",
                "maxMatches",
                "contextLines",
                "mount",
            ],
            vec!["query", "matches", "filesSearched", "truncated", "truncatedReason"],
        ),
        (
            "write_file",
            true,
            vec!["path", "content", "mode", "expectedSha256", "onConflict", "reason", "dryRun"],
            vec![
                "path",
                "created",
                "oldSha256",
                "newSha256",
                "bytesWritten",
                "insertions",
                "deletions",
                "seq",
                "artifactUris",
                "summary",
                "warnings",
            ],
        ),
        (
            "apply_patch",
            true,
            vec!["patch", "expectedBaseCommit", "expectedSha256", "reason", "dryRun"],
            vec![
                "applied",
                "dryRun",
                "filesTouched",
                "files",
                "insertions",
                "deletions",
                "newWorkspaceDiffSha256",
                "seq",
            ],
        ),
        (
            "diff_workspace",
            false,
            vec!["path", "statOnly", "maxBytes"],
            vec![
                "baseCommit",
                "filesChanged",
                "insertions",
                "deletions",
                "stat",
                "files",
                "diff",
                "truncated",
                "diffSha256",
            ],
        ),
    ] {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(tool["mutates"], mutates, "{name}");
        assert!(
            tool["description"].as_str().unwrap().len() > 40 && !tool["permissions"].as_array().unwrap().is_empty(),
            "{name}"
        );
        let (input, output) = (&tool["inputSchema"], &tool["outputSchema"]);
        assert!(!tool.to_string().contains("$ref"), "{name}: the schema contains a reference");
        assert_eq!(input["additionalProperties"], false, "{name}");
        for member in inputs.iter().chain(&common) {
            assert!(
                input["properties"][member]["description"].is_string() || input["properties"][member].is_object(),
                "{name} does not document {member}: {input:#}"
            );
        }
        for member in outputs.iter().chain(&["ok", "toolCallId"]) {
            assert!(output["properties"][member].is_object(), "{name} does not document {member}: {output:#}");
        }
        let required = input["required"].to_string();
        assert_eq!(required.contains("\"reason\""), mutates, "{name}: {required}");
    }
}

#[rstest]
#[tokio::test]
async fn the_documentation_pages_load_no_external_resource(#[values(Backend::Sqlite)] backend: Backend) {
    let nobody = Server::shared(backend).await.nobody();
    let mut page = nobody.get("/docs/").await;
    if page.status != 200 {
        page = nobody.get("/docs").await;
    }
    assert_eq!(page.status, 200);
    let html = page.text();
    let mut linked = 0;
    for attribute in ["src=\"", "href=\""] {
        for rest in html.split(attribute).skip(1) {
            let address = rest.split('"').next().unwrap();
            if address == "data:," {
                continue;
            }
            assert!(!address.contains("//"), "{address} is external");
            let path = if address.starts_with('/') {
                address.to_owned()
            } else {
                format!("/docs/{}", address.trim_start_matches("./"))
            };
            assert_eq!(nobody.get(&path).await.status, 200, "{path}");
            linked += 1;
        }
    }
    assert!(linked > 0 && html.to_lowercase().contains("<html"), "{html}");
    // Who opens it first finds what it is and where to begin, even without the scripts, which add the list of routes.
    for part in ["<title>workspaced: the API</title>", "workspaced operator add", "/v1/runs", "tools/write_file"] {
        assert!(html.contains(part), "{part}: {html}");
    }
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("http"), "{policy}");
}
