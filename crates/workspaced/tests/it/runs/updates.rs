//! `PATCH` of a run, and revocations of operators at the commit of what they change.

use std::time::{Duration, SystemTime};

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Server, Setup, assert_chain, rfc3339};

async fn patch(client: &Client, run: &str, body: &Value) -> Answer {
    client.send(client.request(Method::PATCH, &format!("/v1/runs/{run}")).json(body)).await
}

#[rstest]
#[tokio::test]
async fn labels_and_expiry_are_replaced_and_recorded(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({"labels": {"ticket": "1", "team": "a"}, "ttlSeconds": 3600})).await;
    let secret = format!("ghp_{}", "aB3dE5gH7j".repeat(4));
    let labels = json!({"ticket": "2", "note": format!("key {secret}")});
    let redacted = json!({"ticket": "2", "note": "key [redacted: GitHub token]"});
    let changed = patch(&run.operator, &run.id, &json!({"labels": labels})).await.ok();
    assert_eq!((&changed["labels"], &changed["headSeq"]), (&redacted, &json!(2)));
    assert!(changed["expiresAt"].is_string(), "the other member stays");
    let at = json!({"expiresAt": "2099-01-01T02:00:00+02:00"});
    assert_eq!(patch(&run.operator, &run.id, &at).await.ok()["expiresAt"], "2099-01-01T00:00:00.000000Z");
    let both = patch(&run.operator, &run.id, &json!({"labels": {}, "expiresAt": null})).await.ok();
    assert_eq!((&both["labels"], both.get("expiresAt")), (&json!({}), None));
    let mut shown = run.get().await;
    shown.as_object_mut().unwrap().remove("forks");
    assert_eq!(shown, both);
    let records = run.audit().await;
    let inputs: Vec<_> = records.iter().filter(|one| one["tool"] == "run.update").map(|one| &one["input"]).collect();
    let expected = [
        json!({"labels": redacted}),
        json!({"expiresAt": "2099-01-01T00:00:00.000000Z"}),
        json!({"labels": {}, "expiresAt": null}),
    ];
    assert_eq!(inputs, expected.iter().collect::<Vec<_>>());
    assert_chain(&run.id, &records);

    for bad in [
        json!({}),
        json!({"labels": null}),
        json!({"labels": {"": "x"}}),
        json!({"labels": {"x": "y".repeat(1025)}}),
        json!({"labels": {"x": 1}}),
        json!({"expiresAt": "2001-01-01T00:00:00Z"}),
        json!({"expiresAt": "soon"}),
        json!({"expiresAt": 1}),
        json!({"labels": {}, "state": "closed"}),
    ] {
        patch(&run.operator, &run.id, &bad).await.refused("INVALID_REQUEST");
    }
    patch(&run.operator, "none-such", &json!({"labels": {}})).await.refused("RUN_NOT_FOUND");
    for client in [&run.agent, &server.auditor()] {
        patch(client, &run.id, &json!({"labels": {}})).await.refused("FORBIDDEN");
    }
    assert_eq!(run.audit().await.len(), records.len(), "a refused request changes nothing");

    // A closed run takes labels, a deleted one takes nothing.
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    patch(&run.operator, &run.id, &json!({"expiresAt": null})).await.refused("RUN_CLOSED");
    assert_eq!(patch(&run.operator, &run.id, &json!({"labels": {"a": "b"}})).await.ok()["labels"], json!({"a": "b"}));
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    patch(&run.operator, &run.id, &json!({"labels": {}})).await.refused("RUN_CLOSED");
}

#[rstest]
#[tokio::test]
async fn a_replaced_expiry_holds_for_calls(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, clock) = Server::start_with_clock(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    let soon = rfc3339(SystemTime::now() + Duration::from_mins(30));
    patch(&run.operator, &run.id, &json!({"expiresAt": soon})).await.ok();
    std::fs::write(&clock, "3600").unwrap();
    let input = json!({"path": "c.txt", "content": "", "reason": "r"});
    run.call("write_file", input).await.refused("RUN_CLOSED");
    assert_eq!(run.get().await["state"], "closed");
}

#[rstest]
#[tokio::test]
async fn a_revoked_operator_changes_no_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let (name, leaving) = server.named_operator("leaving", &["orchestrate"]).await;
    let before = (run.get().await, run.audit().await.len());
    // The service does not know of the revocation before it commits.
    let revoke = format!("update operator_token set revoked_at = '2026-01-01T00:00:00.000000Z' where name = '{name}'");
    assert_eq!(server.database.tamper(&revoke).await, Ok(1));
    let own = |rest: &str| format!("/v1/runs/{}{rest}", run.id);
    let token = run.created["token"]["tokenId"].as_str().unwrap();
    let create =
        json!({"runId": "late", "source": {"type": "directory", "path": server.template(&[("a.txt", "a\n")])}});
    for answer in [
        leaving.post("/v1/runs", create).await,
        patch(&leaving, &run.id, &json!({"labels": {"a": "b"}})).await,
        patch(&leaving, &run.id, &json!({"expiresAt": null})).await,
        leaving.post(&own("/tokens"), json!({})).await,
        leaving.delete(&own(&format!("/tokens/{token}"))).await,
        leaving.post(&own("/close"), json!({})).await,
        leaving.delete(&own("")).await,
    ] {
        answer.refused("UNAUTHENTICATED");
    }
    assert_eq!((run.get().await, run.audit().await.len()), before);
    run.create("b.txt", "b\n").await;
    run.operator.get("/v1/runs/late").await.refused("RUN_NOT_FOUND");
    assert!(!server.data_dir().join("workspaces/late").exists());
}
