//! Events and uploaded artifacts.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, assert_chain, exhaustive, items, sha256};

const MIB: usize = 1 << 20;

/// Returns a client whose token has `permissions`.
async fn client(run: &Run, permissions: &[&str]) -> Client {
    let path = format!("/v1/runs/{}/tokens", run.id);
    let token = run.operator.post(&path, json!({"permissions": permissions})).await.is(201);
    run.agent.with_token(token["token"].as_str())
}

async fn run_with_runner(backend: Backend) -> (std::sync::Arc<Server>, Run, Client) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let runner = client(&run, &["event:append"]).await;
    (server, run, runner)
}

fn events(run: &Run) -> String {
    format!("/v1/runs/{}/events", run.id)
}

fn upload(run: &Run, content: &[u8]) -> String {
    format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(content))
}

#[rstest]
#[tokio::test]
async fn an_event_is_a_record_of_the_chain(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, run, runner) = run_with_runner(backend).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let body = json!({
        "eventId": "tests-1", "kind": "test", "summary": "1 of 12 failed", "stepId": "s1", "durationMicros": 5_300_000,
        "startedAt": "2026-01-01T01:00:00+01:00",
        "data": {"exitCode": 101, "failed": ["é \"x\""], "ratio": 0.1, "small": 1e-7, "none": null},
    });
    let answer = runner.post(&events(&run), body.clone()).await.is(201);
    let record = run.last_record().await;
    assert_eq!((&answer["ok"], &answer["eventId"]), (&json!(true), &json!("tests-1")));
    assert_eq!((&answer["seq"], &answer["headHash"]), (&record["seq"], &record["hash"]));
    for (member, want) in [
        ("tool", json!("event.test")),
        ("toolCallId", json!("tests-1")),
        ("mutates", json!(false)),
        ("decision", json!("ALLOW")),
        ("outcome", json!("ok")),
        ("stepId", json!("s1")),
        ("durationMicros", json!(5_300_000)),
    ] {
        assert_eq!(record[member], want, "{member}");
    }
    let input = json!({"summary": "1 of 12 failed", "data": body["data"], "startedAt": "2026-01-01T00:00:00.000000Z"});
    assert_eq!(record["input"], input);
    assert!(record["actor"].as_str().unwrap().starts_with("run-token:"), "{record:#}");
    let call = run.operator.get(&format!("/v1/runs/{}/tool-calls/tests-1", run.id)).await.ok();
    assert_eq!(call["hash"], record["hash"]);

    // Every kind is accepted, and no other. An operator may append too.
    for kind in ["prompt", "model", "command", "test", "message", "handoff", "evidence", "link"] {
        let made = run.operator.post(&events(&run), json!({"kind": kind, "summary": "x"})).await.is(201);
        assert!(made["eventId"].as_str().unwrap().starts_with("tc_"), "{made:#}");
        assert_eq!(run.last_record().await["tool"], format!("event.{kind}"));
    }
    let auditor = server.auditor();
    let count = async |query: &str| items(&auditor, &format!("/v1/audit?run={}&{query}", run.id)).await.len();
    assert_eq!((count("tool=event.*").await, count("tool=event.test").await), (9, 2));
    assert_eq!(items(&auditor, &format!("/v1/runs/{}/audit?tool=event.*&limit=2", run.id)).await.len(), 9);
    assert_eq!(count("tool=read_*").await, 1);
    assert_chain(&run.id, &run.audit().await);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn only_tokens_that_were_given_the_permission_append_events(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, run, runner) = run_with_runner(backend).await;
    let event = json!({"kind": "message", "summary": "x"});
    let content = b"log".as_slice();
    for client in [&run.agent, &client(&run, &["file:read", "audit:read"]).await] {
        let refused = client.post(&events(&run), event.clone()).await.refused("FORBIDDEN");
        assert_eq!(refused["seq"], run.last_record().await["seq"], "a refusal is recorded");
        client.post(&events(&run), json!([])).await.refused("FORBIDDEN");
        client.put(&upload(&run, content), content).await.refused("FORBIDDEN");
    }
    assert!(!run.created["token"]["permissions"].as_array().unwrap().contains(&json!("event:append")));
    server.auditor().post(&events(&run), event.clone()).await.refused("FORBIDDEN");
    server.nobody().post(&events(&run), event.clone()).await.refused("UNAUTHENTICATED");
    let other = server.run(json!({})).await;
    runner.post(&events(&other), event.clone()).await.refused("FORBIDDEN");
    run.operator.post("/v1/runs/none-such/events", event.clone()).await.refused("RUN_NOT_FOUND");
    // The permission is for events alone.
    runner.post(&format!("/v1/runs/{}/tools/list_dir", run.id), json!({})).await.refused("FORBIDDEN");
    runner.get(&format!("/v1/runs/{}/audit", run.id)).await.refused("FORBIDDEN");
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    runner.post(&events(&run), event).await.refused("RUN_CLOSED");
    runner.put(&upload(&run, content), content).await.refused("RUN_CLOSED");
}

#[rstest]
#[tokio::test]
async fn an_invalid_event_is_refused_and_recorded(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run, runner) = run_with_runner(backend).await;
    let with = |member: &str, value: Value| {
        let mut event = json!({"kind": "command", "summary": "x"});
        event[member] = value;
        event
    };
    for bad in [
        json!({}),
        json!([]),
        json!({"kind": "command"}),
        with("kind", json!("other")),
        with("summary", json!("")),
        with("summary", json!(" \n")),
        with("summary", json!("é".repeat(501))),
        with("summary", json!("a\0b")),
        with("eventId", json!("")),
        with("eventId", json!("x".repeat(129))),
        with("eventId", json!(format!("ghp_{}", "aB3dE5gH7j".repeat(4)))),
        with("stepId", json!("")),
        with("data", json!({"log": "x".repeat(64 * 1024)})),
        with("data", json!("x".repeat(64 * 1024))),
        with("startedAt", json!("yesterday")),
        with("durationMicros", json!(-1)),
        with("surprise", json!(1)),
    ] {
        let refused = runner.post(&events(&run), bad).await.refused("INVALID_REQUEST");
        let record = run.last_record().await;
        assert_eq!((&record["seq"], &record["code"]), (&refused["seq"], &refused["code"]), "{record:#}");
        assert!(record["tool"].as_str().unwrap().starts_with("event"), "{record:#}");
    }
    for good in [with("summary", json!("é".repeat(500))), with("data", json!({"log": "x".repeat(64 * 1024 - 10)}))] {
        runner.post(&events(&run), good).await.is(201);
    }
    // The details are any JSON, and have no credentials either.
    let secret = format!("ghp_{}", "aB3dE5gH7j".repeat(4));
    for (data, recorded) in [
        (json!([1, "two", null]), json!([1, "two", null])),
        (json!(7), json!(7)),
        (json!("text"), json!("text")),
        (json!([secret]), json!(["[redacted: GitHub token]"])),
    ] {
        runner.post(&events(&run), with("data", data)).await.is(201);
        assert_eq!(run.last_record().await["input"]["data"], recorded);
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn an_event_is_recorded_once_under_its_id(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run, runner) = run_with_runner(backend).await;
    run.ok("write_file", json!({"path": "b.txt", "content": "b\n", "reason": "r", "toolCallId": "taken"})).await;
    let event = json!({"eventId": "e1", "kind": "command", "summary": "make", "data": {"b": 1, "a": [2]}});
    let first = runner.post(&events(&run), event.clone()).await.is(201);
    let records = run.audit().await;
    let same = json!({"data": {"a": [2], "b": 1}, "summary": "make", "kind": "command", "eventId": "e1"});
    assert_eq!(runner.post(&events(&run), same).await.is(201), first, "the order of members means nothing");
    assert_eq!(run.audit().await, records);
    for (member, value) in [("summary", json!("other")), ("kind", json!("test")), ("eventId", json!("taken"))] {
        let mut other = event.clone();
        other[member] = value;
        runner.post(&events(&run), other).await.refused("TOOL_CALL_ID_REUSED");
    }
    run.call("read_file", json!({"toolCallId": "e1", "path": "a.txt"})).await.refused("TOOL_CALL_ID_REUSED");

    // A batch is recorded as a whole, and can be repeated, also in part.
    let batch = format!("{}/batch", events(&run));
    let of = |ids: &[&str]| {
        let events: Vec<_> = ids.iter().map(|id| json!({"eventId": id, "kind": "message", "summary": id})).collect();
        json!({"events": events})
    };
    let made = runner.post(&batch, of(&["b1", "b2"])).await.is(201);
    assert_eq!(runner.post(&batch, of(&["b1", "b2"])).await.is(201), made);
    let more = runner.post(&batch, of(&["b2", "b3", "b1"])).await.is(201);
    assert_eq!((&more["events"][0], &more["events"][2]), (&made["events"][1], &made["events"][0]));
    let before = run.calls().await.len();
    runner.post(&batch, of(&["b4", "taken"])).await.refused("TOOL_CALL_ID_REUSED");
    runner.post(&batch, of(&["b5", "b5"])).await.refused("INVALID_REQUEST");
    runner.post(&batch, of(&[])).await.refused("INVALID_REQUEST");
    runner.post(&batch, of(&["x"; 101])).await.refused("INVALID_REQUEST");
    let records = run.calls().await;
    assert_eq!(records.len(), before + 4, "only the refusals are recorded");
    assert!(records.iter().all(|record| record["toolCallId"] != "b4"), "half of a batch is recorded");
    // A repetition is answered after the run was closed.
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    assert_eq!(runner.post(&events(&run), event).await.is(201), first);
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn credentials_in_events_are_redacted_at_every_depth(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_server, run, runner) = run_with_runner(backend).await;
    let secret = format!("ghp_{}", "aB3dE5gH7j".repeat(4));
    let event = json!({
        "eventId": "s", "kind": "command", "summary": format!("curl with {secret}"), "stepId": format!("step {secret}"),
        "data": {"env": [{"name": "T", "value": secret}], secret.clone(): true, "url": "https://u:hunter22@host/x",
            "headers": {"Authorization": "Bearer abcdefgh12345678"}},
    });
    let first = runner.post(&events(&run), event.clone()).await.is(201);
    assert_eq!(runner.post(&events(&run), event).await.is(201), first, "compared by its original input");
    let text = run.last_record().await.to_string();
    for hidden in [secret.as_str(), "hunter22", "abcdefgh12345678"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    assert_eq!(text.matches("[redacted: GitHub token]").count(), 4, "{text}");
    // Artifacts are not redacted, but refused.
    let log = format!("line\nexport TOKEN={secret}\n");
    let refused = runner.put(&upload(&run, log.as_bytes()), log).await.refused("POLICY_DENIED_SECRET");
    assert!(!refused.to_string().contains(&secret), "{refused:#}");
    assert_eq!(run.last_record().await["tool"], "artifact.upload");
}

#[rstest]
#[tokio::test]
async fn an_artifact_is_stored_under_its_digest(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, run, runner) = run_with_runner(backend).await;
    let content: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
    let path = upload(&run, &content);
    let made = runner.put(&path, content.clone()).await.is(201);
    let record = run.last_record().await;
    assert_eq!((&made["seq"], &made["headHash"]), (&record["seq"], &record["hash"]));
    let uri = format!("artifact://{}/sha256/{}", run.id, sha256(&content));
    assert_eq!((&made["uri"], &record["artifactUris"]), (&json!(uri), &json!([uri])));
    assert_eq!((&record["tool"], &record["input"]["sizeBytes"]), (&json!("artifact.upload"), &json!(300_000)));
    let again = runner.put(&path, content.clone()).await.is(200);
    assert_eq!((&again["uri"], again.get("seq")), (&json!(uri), None), "stored once, recorded once");
    assert_eq!(run.last_record().await, record);

    client(&run, &["audit:read"]).await.get(&path).await.refused("FORBIDDEN");
    let reader = client(&run, &["audit:read", "file:read"]).await;
    for client in [&reader, &run.operator, &server.auditor()] {
        let answer = client.get(&path).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/octet-stream"));
        assert_eq!(answer.header("content-disposition"), "attachment");
        assert!(answer.body == content, "other bytes");
    }
    runner.get(&path).await.refused("FORBIDDEN");
    run.operator.get(&upload(&run, b"none")).await.refused("NOT_FOUND");
    run.operator.get(&format!("/v1/runs/{}/artifacts/sha256/xyz", run.id)).await.refused("INVALID_REQUEST");
    let other = server.run(json!({})).await;
    run.operator.get(&upload(&other, &content)).await.refused("NOT_FOUND");

    let mut large = vec![b'x'; 16 * MIB];
    runner.put(&upload(&run, &large), large.clone()).await.is(201);
    large.push(b'x');
    let refused = runner.put(&upload(&run, &large), large.clone()).await.refused("BODY_TOO_LARGE");
    assert_eq!(refused["limit"], 16 * MIB);
    runner.put(&upload(&run, b"one"), "another").await.refused("INVALID_REQUEST");
    run.operator.get(&upload(&run, b"one")).await.refused("NOT_FOUND");
    let unknown_length = reqwest::Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>(large)]));
    let request = runner.request(Method::PUT, &upload(&run, b"x")).body(unknown_length);
    if let Ok(answer) = runner.try_send(request).await {
        answer.refused("BODY_TOO_LARGE");
    }
    // The artifacts of a deleted run are kept, as its audit is.
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    assert_eq!(run.operator.get(&path).await.status, 200);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn events_of_a_run_are_bounded_in_number(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run, runner) = run_with_runner(backend).await;
    let batch = format!("{}/batch", events(&run));
    let many: Vec<_> = (0..100).map(|_| json!({"kind": "message", "summary": "x"})).collect();
    for _ in 0..100 {
        let answer = runner.post(&batch, json!({"events": many})).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let refused = runner.post(&events(&run), many[0].clone()).await.refused("QUOTA_EXCEEDED");
    assert_eq!((&refused["limit"], &refused["actual"]), (&json!(10_000), &json!(10_001)));
    assert_eq!(refused["reasons"], json!(["quota:events"]));
    runner.put(&upload(&run, b"x"), "x").await.refused("QUOTA_EXCEEDED");
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn events_of_a_run_are_bounded_in_bytes(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run, runner) = run_with_runner(backend).await;
    for number in 0..4_u8 {
        let content = vec![number; 16 * MIB];
        runner.put(&upload(&run, &content), content).await.is(201);
    }
    let refused = runner.post(&events(&run), json!({"kind": "link", "summary": "x"})).await.refused("QUOTA_EXCEEDED");
    assert_eq!((&refused["limit"], &refused["reasons"]), (&json!(64 * MIB), &json!(["quota:eventBytes"])));
    assert!(refused["actual"].as_u64().unwrap() > 64 * MIB as u64);
    assert_eq!(run.last_record().await["code"], "QUOTA_EXCEEDED");
}

#[rstest]
#[tokio::test]
async fn the_data_of_events_is_content(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run, runner) = run_with_runner(backend).await;
    let event = |id: &str, data: Value| json!({"kind": "command", "summary": "cat", "eventId": id, "data": data});
    runner.post(&events(&run), event("e1", json!({"output": "needle \"tool\""}))).await.is(201);
    runner.post(&events(&run), json!({"kind": "message", "summary": "shown", "eventId": "e2"})).await.is(201);
    let blind = client(&run, &["audit:read"]).await;
    let seeing = client(&run, &["audit:read", "file:read"]).await;
    let base = format!("/v1/runs/{}", run.id);
    for path in ["audit", "audit?tool=event.*", "audit?order=desc", "tool-calls/e1", "report", "changes"] {
        let answer = blind.get(&format!("{base}/{path}")).await;
        assert!(answer.status == 200 && !answer.contains("needle"), "{path}: {}", answer.text());
    }
    let records = items(&blind, &format!("{base}/audit?tool=event.*")).await;
    assert_eq!(records[0]["input"]["data"], "[withheld: requires file:read]");
    assert_eq!(records[0]["input"]["summary"], "cat");
    assert_eq!(records[1], items(&seeing, &format!("{base}/audit?tool=event.*")).await[1], "nothing is withheld there");
    assert_eq!(blind.get(&format!("{base}/tool-calls/e1")).await.ok()["contentWithheld"], true);
    for client in [&seeing, &run.operator] {
        assert!(client.get(&format!("{base}/tool-calls/e1")).await.contains("needle"));
        assert!(client.get(&format!("{base}/audit")).await.contains("needle"));
    }
}
