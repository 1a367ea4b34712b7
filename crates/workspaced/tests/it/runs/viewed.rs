//! What reviewers have viewed.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Server};

async fn set(client: &Client, run: &str, body: Value) -> Answer {
    client.send(client.request(Method::PUT, &format!("/v1/runs/{run}/viewed")).json(&body)).await
}

async fn viewed(client: &Client, run: &str) -> Vec<[String; 2]> {
    let listed = client.get(&format!("/v1/runs/{run}/viewed")).await.ok();
    let items = listed["items"].as_array().unwrap();
    let text = |mark: &Value| ["path", "version"].map(|name| mark[name].as_str().unwrap().to_owned());
    items.iter().map(text).collect()
}

#[rstest]
#[tokio::test]
async fn each_reviewer_keeps_marks_of_its_own(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    let (_, ada) = server.named_operator("ada", &["approve"]).await;
    let (_, bob) = server.named_operator("bob", &["orchestrate"]).await;
    let records = run.audit().await.len();
    set(&ada, &run.id, json!({"path": "src/a.rs", "version": "1"})).await.is(204);
    set(&ada, &run.id, json!({"path": "src/b.rs", "version": "added1-0-x"})).await.is(204);
    set(&ada, &run.id, json!({"path": "src/a.rs", "version": "2"})).await.is(204);
    set(&bob, &run.id, json!({"path": "src/a.rs", "version": "1"})).await.is(204);
    let of = |marks: &[[&str; 2]]| marks.iter().map(|mark| mark.map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(viewed(&ada, &run.id).await, of(&[["src/b.rs", "added1-0-x"], ["src/a.rs", "2"]]));
    set(&ada, &run.id, json!({"path": "src/b.rs"})).await.is(204);
    assert_eq!(viewed(&ada, &run.id).await, of(&[["src/a.rs", "2"]]));
    assert_eq!(viewed(&bob, &run.id).await, of(&[["src/a.rs", "1"]]));
    assert_eq!(run.audit().await.len(), records, "a mark is no record");

    let auditor = server.auditor();
    assert!(viewed(&auditor, &run.id).await.is_empty());
    set(&auditor, &run.id, json!({"path": "a", "version": "1"})).await.refused("FORBIDDEN");
    set(&run.agent, &run.id, json!({"path": "a", "version": "1"})).await.refused("FORBIDDEN");
    run.agent.get(&format!("/v1/runs/{}/viewed", run.id)).await.refused("FORBIDDEN");
    for (path, version) in [("a", ""), ("a", "a b"), ("a", "é"), ("a", &*"x".repeat(65))] {
        set(&ada, &run.id, json!({"path": path, "version": version})).await.refused("INVALID_REQUEST");
    }
    set(&ada, &run.id, json!({"path": "../a", "version": "1"})).await.refused("PATH_REJECTED");
    set(&ada, "none-such", json!({"path": "a", "version": "1"})).await.refused("RUN_NOT_FOUND");
    ada.get("/v1/runs/none-such/viewed").await.refused("RUN_NOT_FOUND");
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    set(&ada, &run.id, json!({"path": "a", "version": "1"})).await.refused("RUN_NOT_FOUND");
}
