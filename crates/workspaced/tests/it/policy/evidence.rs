//! Mutations that a policy allows with evidence of a check.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, exhaustive, sha256};

const LOCK: &str = "version = 4\n";

/// Returns a run whose lockfiles need evidence, and the same run with a token that may attest it.
async fn runs(backend: Backend) -> (Run, Run) {
    let policy = json!({"policy": {"kinds": {"LOCKFILE": "REQUIRE_EVIDENCE", "GENERATED": "REQUIRE_EVIDENCE"}}});
    let files = [("Cargo.lock", LOCK), ("a.txt", "a\n"), ("a.pb.go", "a\n")];
    let (_, run) = Run::shared_with(backend, &files, policy).await;
    let permissions =
        json!(["file:read", "file:write:replace", "file:write:create", "event:append", "evidence:attest"]);
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": permissions})).await;
    let agent = run.agent.with_token(token.is(201)["token"].as_str());
    let runner = Run { agent, ..run.clone() };
    (run, runner)
}

/// Appends an event of a command with this exit code, and returns it as evidence.
async fn event(runner: &Run, id: &str, exit_code: i64) -> Value {
    let event = json!({"eventId": id, "kind": "command", "summary": "cargo update", "data": {"exitCode": exit_code}});
    runner.agent.post(&format!("/v1/runs/{}/events", runner.id), event).await.is(201);
    json!({"eventId": id})
}

fn write(path: &str, old: &str, evidence: &Value) -> Value {
    let mut input = json!({"path": path, "content": "version = 5\n", "expectedSha256": sha256(old), "reason": "r"});
    if !evidence.is_null() {
        input["evidence"] = evidence.clone();
    }
    input
}

#[rstest]
#[tokio::test]
async fn evidence_allows_the_change_and_is_recorded(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (run, runner) = runs(backend).await;
    let created = run.created["token"]["permissions"].as_array().unwrap().clone();
    assert!(!created.contains(&json!("evidence:attest")));
    let evidence = event(&runner, "update", 0).await;
    runner.call("write_file", write("Cargo.lock", LOCK, &evidence)).await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), "version = 5\n");
    let record = run.last_record().await;
    assert_eq!(record["evidence"], evidence, "{record:#}");
    assert!(record["reasons"].as_array().unwrap().contains(&json!("evidence:LOCKFILE")), "{record:#}");
    let generated = event(&runner, "protoc", 0).await;
    runner.call("write_file", write("a.pb.go", "a\n", &generated)).await.ok();
    // Evidence may be sent where the policy does not ask for it.
    let failed = event(&runner, "failed", 1).await;
    runner.call("write_file", write("a.txt", "a\n", &failed)).await.ok();
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_change_without_success_waits_for_a_person(#[values(Backend::Sqlite)] backend: Backend) {
    let (run, runner) = runs(backend).await;
    let plain = run.call("write_file", write("Cargo.lock", LOCK, &Value::Null)).await.is(202);
    assert_eq!(plain["reasons"], json!(["evidence:missing", "kind:LOCKFILE"]));
    let evidence = event(&runner, "failed", 101).await;
    let failed = runner.call("write_file", write("Cargo.lock", LOCK, &evidence)).await.is(202);
    assert_eq!(failed["reasons"], json!(["evidence:exitCode", "kind:LOCKFILE"]));
    assert_eq!(run.last_record().await["evidence"], evidence);
    let explained = run.agent.post(&format!("/v1/runs/{}/policy/explain", run.id), json!({"path": "Cargo.lock"})).await;
    assert_eq!(explained.ok()["paths"][0]["mutate"]["decision"], "REQUIRE_APPROVAL");
    let approve = format!("/v1/approvals/{}/approve", failed["approvalId"].as_str().unwrap());
    let approved = run.operator.post(&approve, json!({"decidedBy": "ada"})).await.ok();
    assert_eq!(approved["state"], "approved", "{approved:#}");
    assert_eq!(run.on_disk("Cargo.lock"), "version = 5\n");
    assert_eq!(run.last_record().await["evidence"], evidence);
}

#[rstest]
#[tokio::test]
async fn an_event_is_evidence(#[values(Backend::Sqlite)] backend: Backend) {
    let (run, runner) = runs(backend).await;
    let events = format!("/v1/runs/{}/events", run.id);
    for (id, kind, data) in [
        ("good", "command", json!({"exitCode": 0})),
        ("bad", "test", json!({"exitCode": 1})),
        ("open", "evidence", json!({})),
        ("talk", "message", json!({"exitCode": 0})),
    ] {
        let event = json!({"eventId": id, "kind": kind, "summary": "s", "data": data});
        runner.agent.post(&events, event).await.is(201);
    }
    let call = |id: &str| runner.call("write_file", write("Cargo.lock", LOCK, &json!({"eventId": id})));
    for id in ["talk", "none"] {
        let refused = call(id).await.refused("INVALID_REQUEST");
        assert!(refused["message"].as_str().unwrap().contains(id), "{refused:#}");
    }
    for id in ["bad", "open"] {
        assert_eq!(call(id).await.is(202)["reasons"][0], "evidence:exitCode", "{id}");
    }
    call("good").await.ok();
    assert_eq!(run.last_record().await["evidence"], json!({"eventId": "good"}));
}

#[rstest]
#[tokio::test]
async fn evidence_in_a_batch_counts_for_its_call(#[values(Backend::Sqlite)] backend: Backend) {
    let (run, runner) = runs(backend).await;
    let call = |input: Value| json!({"tool": "write_file", "input": input});
    let good = event(&runner, "good", 0).await;
    let calls = json!([call(write("a.pb.go", "a\n", &good)), call(write("Cargo.lock", LOCK, &Value::Null))]);
    let asked = runner.batch(calls).await;
    assert!(asked.contains("evidence:missing") && !asked.contains("kind:GENERATED"), "{}", asked.text());
    assert_eq!(run.on_disk("a.pb.go"), "a\n");
    let calls = json!([call(write("a.pb.go", "a\n", &good)), call(write("Cargo.lock", LOCK, &good))]);
    runner.batch(calls).await.ok();
    assert_eq!((run.on_disk("a.pb.go"), run.on_disk("Cargo.lock")), ("version = 5\n".into(), "version = 5\n".into()));
}

#[rstest]
#[tokio::test]
async fn invalid_evidence_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (run, runner) = runs(backend).await;
    let good = event(&runner, "good", 0).await;
    let refused = run.call("write_file", write("Cargo.lock", LOCK, &good)).await.refused("FORBIDDEN");
    assert!(refused["message"].as_str().unwrap().contains("evidence:attest"), "{refused:#}");
    for evidence in [
        json!({}),
        json!("x"),
        json!({"command": "c", "exitCode": 0}),
        json!({"eventId": "good", "exitCode": 0}),
        json!({"eventId": "good", "more": 1}),
        json!({"eventId": ""}),
        json!({"eventId": format!("ghp_{}", "a1".repeat(18))}),
    ] {
        runner.call("write_file", write("Cargo.lock", LOCK, &evidence)).await.refused("INVALID_REQUEST");
    }
    runner.call("read_file", json!({"path": "a.txt", "evidence": good})).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn only_an_attested_event_after_the_last_change_is_evidence(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (run, runner) = runs(backend).await;
    let events = format!("/v1/runs/{}/events", run.id);
    let append = async |client: &crate::harness::Client, id: &str| {
        let event = json!({"eventId": id, "kind": "test", "summary": "s", "data": {"exitCode": 0}});
        client.post(&events, event).await.is(201);
    };
    let lock = |id: &str, call: &str| {
        let mut input = write("Cargo.lock", LOCK, &json!({"eventId": id}));
        input["toolCallId"] = json!(call);
        input
    };
    // A token that may append events, and not attest.
    let permissions = json!({"permissions": ["event:append", "file:read"]});
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), permissions).await.is(201);
    append(&run.agent.with_token(token["token"].as_str()), "claimed").await;
    let asked = runner.call("write_file", lock("claimed", "c1")).await.is(202);
    assert_eq!(asked["reasons"], json!(["evidence:unattested", "kind:LOCKFILE"]));

    append(&runner.agent, "before").await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    let asked = runner.call("write_file", lock("before", "c2")).await.is(202);
    assert_eq!(asked["reasons"], json!(["evidence:stale", "kind:LOCKFILE"]));
    assert_eq!(run.on_disk("Cargo.lock"), LOCK);

    append(&runner.agent, "after").await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let done = runner.call("write_file", lock("after", "c3")).await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), "version = 5\n");
    // A repetition is answered as before, although the run has changed since.
    assert_eq!(runner.call("write_file", lock("after", "c3")).await.ok(), done);
    // The change was the run's last one.
    let again = json!({"path": "a.pb.go", "content": "b\n", "expectedSha256": sha256("a\n"), "reason": "r",
        "evidence": {"eventId": "after"}});
    assert_eq!(runner.call("write_file", again).await.is(202)["reasons"][0], "evidence:stale");
    // An operator may attest.
    append(&run.operator, "by-operator").await;
    let by_operator = json!({"path": "a.pb.go", "content": "b\n", "expectedSha256": sha256("a\n"), "reason": "r",
        "evidence": {"eventId": "by-operator"}});
    runner.call("write_file", by_operator).await.ok();
    assert_eq!(run.verify().await["intact"], true);
}
