//! Malformed values in every parameter of every route of the API document.

use reqwest::Method;
use reqwest::header::HeaderValue;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run};

/// Returns percent-encoded values that no parameter accepts.
fn bad_values() -> Vec<String> {
    let escaped = ["%00", "a%00b", "%01", "%1B%5B2J", "a%0Ab", "%7F", "%C2%85", "%FF", "a%C3", "%ED%A0%80"];
    escaped.into_iter().map(str::to_owned).chain([format!("a{}", "b".repeat(5000))]).collect()
}

/// An operation of the document with its parameters of one location.
struct Operation {
    method: Method,
    path: String,
    names: Vec<String>,
}

/// Returns every operation with parameters in `location`.
fn operations(document: &Value, location: &str) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let names: Vec<_> = parameters
                .iter()
                .map(|parameter| match parameter["$ref"].as_str() {
                    Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
                    None => parameter,
                })
                .filter(|parameter| parameter["in"] == location)
                .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                .collect();
            if !names.is_empty() {
                let method = method.to_uppercase().parse().unwrap();
                found.push(Operation { method, path: path.clone(), names });
            }
        }
    }
    assert!(found.len() > 4, "the document lists only {} operations with parameters in {location}", found.len());
    found
}

/// Returns the path of an operation on `run`, with `value` for the parameter `name`.
fn filled(path: &str, run: &Run, name: &str, value: &str) -> String {
    let known = [
        ("run", run.id.as_str()),
        ("other", run.id.as_str()),
        ("tool", "read_file"),
        ("toolCallId", "call"),
        ("artifactId", "none"),
        ("approvalId", "none"),
        ("tokenId", "none"),
        ("path", "a.txt"),
    ];
    let filled = path.replace(&format!("{{{name}}}"), value).replace(&format!("{{*{name}}}"), value);
    known.into_iter().fold(filled, |path, (name, value)| {
        path.replace(&format!("{{{name}}}"), value).replace(&format!("{{*{name}}}"), value)
    })
}

async fn send(run: &Run, method: &Method, path: &str) -> Answer {
    // The path is already encoded. The URL builder would encode some bytes again.
    let mut request = run.operator.request(method.clone(), path);
    if *method == Method::POST {
        request = request.json(&serde_json::json!({}));
    }
    run.operator.send(request).await
}

#[rstest]
#[tokio::test]
async fn a_malformed_query_parameter_is_refused(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let document = run.operator.get("/openapi.json").await.ok();
    for Operation { method, path, names } in operations(&document, "query") {
        for name in &names {
            for value in bad_values() {
                // A message may have several lines and any length.
                if name == "message" && (value == "a%0Ab" || value.len() > 5000) {
                    continue;
                }
                let path = format!("{}?{name}={value}", filled(&path, &run, "", ""));
                let answer = send(&run, &method, &path).await;
                let problem = answer.refused("INVALID_REQUEST");
                let message = problem["message"].as_str().unwrap();
                assert!(message.contains(&format!("`{name}`")), "{method} {path}: {message}");
            }
        }
        let unknown = format!("{}?%00=1", filled(&path, &run, "", ""));
        send(&run, &method, &unknown).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn routes_refuse_unknown_query_parameters(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let document = run.operator.get("/openapi.json").await.ok();
    // No operator may send messages to `/mcp`.
    let open = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/mcp"];
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|_| !open.contains(&path.as_str())) {
            let method: Method = method.to_uppercase().parse().unwrap();
            let path = format!("{}?surprise=%00", filled(path, &run, "", ""));
            send(&run, &method, &path).await.refused("INVALID_REQUEST");
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_malformed_path_segment_is_refused(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let document = run.operator.get("/openapi.json").await.ok();
    for Operation { method, path, names } in operations(&document, "path") {
        for name in &names {
            for value in bad_values() {
                let path = filled(&path, &run, name, &value);
                let answer = send(&run, &method, &path).await;
                // A missing precondition is reported before the path is resolved.
                let refused = matches!(answer.status, 400 | 404) || (name == "path" && answer.status == 428);
                assert!(refused, "{method} {path}: {} {}", answer.status, answer.text());
                answer.refusal();
            }
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_malformed_header_is_refused(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let file = format!("/v1/runs/{}/files/b.txt", run.id);
    let changes = format!("/v1/runs/{}/changes", run.id);
    let bad = [b"\xff".to_vec(), b"a\tb\xc3".to_vec(), vec![b'x'; 9000]];
    let table = [
        (Method::PUT, &file, "x-reason"),
        (Method::PUT, &file, "x-tool-call-id"),
        (Method::PUT, &file, "if-match"),
        (Method::PUT, &file, "if-none-match"),
        (Method::DELETE, &file, "x-reason"),
        (Method::DELETE, &file, "x-tool-call-id"),
        (Method::DELETE, &file, "if-match"),
        (Method::GET, &file, "x-tool-call-id"),
        (Method::GET, &"/v1/audit/stream".to_owned(), "last-event-id"),
        (Method::GET, &changes, "last-event-id"),
    ];
    for (method, path, name) in table {
        for value in &bad {
            let mut request = run.operator.request(method.clone(), path).header("accept", "text/event-stream");
            let others = [("x-reason", "r"), ("if-none-match", "*")];
            let sent = others.into_iter().filter(|(other, _)| {
                *other != name && method == Method::PUT && !(name == "if-match" && *other == "if-none-match")
            });
            for (other, value) in sent {
                request = request.header(other, value);
            }
            let answer =
                run.operator.send(request.header(name, HeaderValue::from_bytes(value).unwrap()).body("x")).await;
            let code = answer.refusal();
            assert_eq!((answer.status, code.as_str()), (400, "INVALID_REQUEST"), "{method} {name} {value:?}");
        }
    }
    assert!(!run.repo.join("b.txt").exists());
}

#[rstest]
#[tokio::test]
async fn a_nul_in_an_input_is_refused(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let write = |member: &str| {
        let mut input = json!({"path": "b.txt", "content": "b\n", "reason": "r"});
        input[member] = json!("a\0b");
        input
    };
    for (tool, input) in [
        ("search_text", json!({"query": "a\0"})),
        ("search_text", json!({"query": "a", "includeGlob": ["*\0"]})),
        ("search_text", json!({"query": "a", "excludeGlob": ["\0"]})),
        ("find_files", json!({"glob": ["*.t\0xt"]})),
        ("read_file", json!({"path": "a.txt", "stepId": "s\0"})),
        ("write_file", write("reason")),
        ("write_file", write("stepId")),
    ] {
        run.call(tool, input).await.refused("INVALID_REQUEST");
    }
    assert!(!run.repo.join("b.txt").exists());
}
