//! `X-Request-Id` and `traceparent`: returned, logged, recorded, and named by problem documents.

use std::io::Read as _;

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{Answer, Backend, Client, Run, Server, Setup};
use crate::http::load_limits::connect;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Returns whether `id` has the form of a `UUIDv7`.
fn is_made(id: &str) -> bool {
    let shape: String = id.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect();
    shape == "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" && id.as_bytes()[14] == b'7'
}

async fn send(client: &Client, method: Method, path: &str, id: &str) -> Answer {
    let request = client.request(method, path).header("x-request-id", id);
    let request = request.header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    client.send(request.header("content-type", "application/json").body("{}")).await
}

#[rstest]
#[tokio::test]
async fn the_ids_of_a_request_are_returned_logged_and_recorded(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let extra = json!({"policy": {"requireApprovalIf": ["deletesFile"]}});
    let run = server.run_with_files(&[("a.txt", "a\n")], extra).await;
    let tools = format!("/v1/runs/{}/tools", run.id);
    let archive = format!("/v1/runs/{}/archive", run.id);
    let answer = send(&run.agent, Method::POST, &format!("{tools}/list_dir"), "list/1").await;
    answer.ok();
    assert_eq!(answer.header("x-request-id"), "list/1");
    // A refused call, and an export, which is not a tool call.
    let refused = send(&run.agent, Method::POST, &format!("{tools}/read_file"), "no \"path\"").await;
    assert!(is_made(refused.header("x-request-id")), "a space is not visible ASCII");
    let refused = send(&run.agent, Method::POST, &format!("{tools}/read_file"), "no-\"path\"").await;
    refused.refused("INVALID_REQUEST");
    let problem = refused.json();
    assert_eq!(problem["instance"], "urn:workspaced:request:no-%22path%22");
    assert_eq!((&problem["detail"], &problem["type"]), (&problem["message"], &json!("/problems/INVALID_REQUEST")));
    assert_eq!(send(&run.agent, Method::GET, &archive, "export-1").await.status, 200);
    // The record of a decision names the request of the decision.
    let expected = crate::harness::sha256("a\n");
    let delete = json!({"path": "a.txt", "expectedSha256": expected, "reason": "r"});
    let pending = run.call("delete_file", delete).await.refused("APPROVAL_REQUIRED");
    let approve = format!("/v1/approvals/{}/approve", pending["approvalId"].as_str().unwrap());
    let approve = run.operator.request(Method::POST, &approve).header("x-request-id", "approve-1");
    run.operator.send(approve.json(&json!({"decidedBy": "alice"}))).await.ok();

    let records = run.calls().await;
    let ids: Vec<_> = records.iter().map(|record| record["requestId"].as_str().unwrap()).collect();
    assert_eq!((ids[0], ids[2], ids[3], ids[5]), ("list/1", "no-\"path\"", "export-1", "approve-1"), "{ids:?}");
    assert!(is_made(ids[1]) && is_made(ids[4]), "{ids:?}");
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record["traceId"].as_str(), (index < 4).then_some(TRACE), "{record:#}");
    }
    crate::harness::assert_chain(&run.id, &run.audit().await);
    assert_eq!(run.verify().await["intact"], true);

    let create = server.operator().request(Method::POST, "/v1/runs").header("x-request-id", "create-1");
    let create = create.header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let created = server.operator().send(create.json(&json!({"source": {"type": "empty"}}))).await.is(201);
    let created = server.run_from(&created).await;
    let tokens = format!("/v1/runs/{}/tokens", created.id);
    let issued = send(&created.operator, Method::POST, &tokens, "token-1").await.is(201);
    let revoke = format!("{tokens}/{}", issued["tokenId"].as_str().unwrap());
    send(&created.operator, Method::DELETE, &revoke, "revoke-1").await.is(204);
    let event = created.operator.request(Method::POST, &format!("/v1/runs/{}/events", created.id));
    let event =
        event.header("x-request-id", "event-1").header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    created.operator.send(event.json(&json!({"kind": "message", "summary": "hello"}))).await.is(201);
    send(&created.operator, Method::POST, &format!("/v1/runs/{}/close", created.id), "close-1").await.ok();
    send(&created.operator, Method::DELETE, &format!("/v1/runs/{}", created.id), "delete-1").await.ok();
    let records = created.audit().await;
    let ids: Vec<_> = records.iter().map(|record| record["requestId"].as_str().unwrap()).collect();
    assert_eq!(ids, ["create-1", "token-1", "revoke-1", "event-1", "close-1", "delete-1"]);
    assert!(records.iter().all(|record| record["traceId"] == TRACE), "{records:#?}");
    let log = server.log();
    // Every request that the caller names is logged.
    for id in ["list/1", "no-\\\"path\\\"", "export-1", "close-1"] {
        let is_logged = log.lines().any(|line| line.contains(id) && line.contains("request answered"));
        assert!(is_logged, "{id}: {log}");
    }
    let line = log.lines().find(|line| line.contains("run created") && line.contains("create-1"));
    assert!(line.is_some_and(|line| line.contains(TRACE)), "{log}");
}

#[rstest]
#[tokio::test]
async fn every_answer_has_an_id_and_no_two_made_ones_are_equal(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let file = format!("/v1/runs/{}/files/a.txt", run.id);
    let mut ids = std::collections::BTreeSet::new();
    for (client, method, path) in [
        (server.nobody(), Method::GET, "/healthz"),
        (server.nobody(), Method::GET, "/openapi.json"),
        (server.nobody(), Method::GET, "/docs/"),
        (server.nobody(), Method::GET, "/problems/INTERNAL"),
        (server.nobody(), Method::GET, "/none"),
        (server.nobody(), Method::GET, "/v1//runs"),
        (server.nobody(), Method::GET, "/v1/runs"),
        (server.operator(), Method::PATCH, "/v1/runs"),
        (server.operator(), Method::GET, "/v1/runs"),
        (run.agent.clone(), Method::GET, file.as_str()),
        (run.agent.clone(), Method::HEAD, file.as_str()),
    ] {
        let answer = client.send(client.request(method, path)).await;
        let id = answer.header("x-request-id").to_owned();
        assert!(is_made(&id), "{}: `{id}`", answer.what);
        if answer.status >= 400 {
            assert_eq!(answer.json()["instance"], format!("urn:workspaced:request:{id}"), "{}", answer.what);
        }
        assert!(ids.insert(id), "{}", answer.what);
    }
    let stream = server.operator().stream(&format!("/v1/audit/stream?run={}", run.id), None).await;
    assert!(is_made(stream.headers()["x-request-id"].to_str().unwrap()));
}

#[rstest]
#[tokio::test]
async fn an_invalid_id_or_trace_is_ignored(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let list = format!("/v1/runs/{}/tools/list_dir", run.id);
    let credential = format!("ghp_{}", "a1".repeat(18));
    let longest = "x".repeat(128);
    for (id, is_taken) in [
        ("x", true),
        (longest.as_str(), true),
        (&"x".repeat(129), false),
        ("", false),
        ("a b", false),
        ("caf\u{e9}", false),
        (&credential, false),
    ] {
        let request = run.agent.request(Method::POST, &list).header("x-request-id", id);
        let request = request.header("traceparent", format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)));
        let answer = run.agent.send(request.json(&json!({}))).await;
        answer.ok();
        let returned = answer.header("x-request-id");
        assert!(if is_taken { returned == id } else { is_made(returned) }, "{id}: {returned}");
        let record = run.last_record().await;
        assert_eq!((record["requestId"].as_str(), record.get("traceId")), (Some(returned), None));
    }
}

#[rstest]
#[tokio::test]
async fn each_refusal_in_a_batch_names_the_request(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let calls = json!({"calls": [{"tool": "read_file", "input": {"path": "none"}}, {"tool": "none"}]});
    let request = run.agent.request(Method::POST, &format!("/v1/runs/{}/batch", run.id));
    let answer = run.agent.send(request.header("x-request-id", "batch-1").json(&calls)).await.ok();
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["answer"]["instance"], "urn:workspaced:request:batch-1", "{answer:#}");
    }
}

#[rstest]
#[tokio::test]
async fn the_answer_to_a_connection_over_the_limit_has_an_id(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--max-connections", 1)).await;
    // A request in progress is not ended for another one.
    let _held = crate::http::fair_shares::open_stream(&server).await;
    let mut refused = connect(&server);
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        refused.read_to_string(&mut answer).map(|_| answer)
    });
    let answer = answer.await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nretry-after: 1"), "{head}");
    let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
    assert!(is_made(id), "{head}");
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["instance"], format!("urn:workspaced:request:{id}"));
}
