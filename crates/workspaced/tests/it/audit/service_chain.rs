//! The service's own chain: changes of operators are records that can be verified, and no run.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Server, assert_chain, exhaustive, items};
use crate::operation::replay_and_repair::assert_ends;

const CHAIN: &str = "/v1/audit?run=_service";

#[rstest]
#[tokio::test]
async fn changes_of_operators_are_records_of_the_service(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let operator = server.operator();
    operator.get(CHAIN).await.ok();
    let run = server.run(json!({})).await;
    let body = json!({"name": "ada", "scopes": ["orchestrate"], "expiresAt": "2099-01-01T00:00:00Z"});
    let ada = operator.post("/v1/operators", body).await.is(201);
    let by_ada = Client::new(&server.base, ada["token"].as_str());
    by_ada.post("/v1/operators", json!({"name": "bob", "scopes": ["audit", "approve"]})).await.is(201);
    let rotated = by_ada.post("/v1/operators/bob/tokens", json!({"overlapSeconds": 0})).await.is(201);
    operator.delete("/v1/operators/ada").await.is(204);
    // Nothing is recorded of what is refused or changes nothing.
    operator.delete("/v1/operators/ada").await.is(204);
    operator.post("/v1/operators", json!({"name": "BOB", "scopes": ["audit"]})).await.refused("ALREADY_EXISTS");
    by_ada.post("/v1/operators", json!({"name": "eve", "scopes": ["audit"]})).await.refused("UNAUTHENTICATED");

    let records = items(&server.auditor(), CHAIN).await;
    assert_chain("_service", &records);
    let seen: Vec<_> = records
        .iter()
        .map(|record| [&record["tool"], &record["actor"], &record["by"], &record["input"]["name"], &record["outcome"]])
        .collect();
    let row = |tool: &str, by: &str, name: &str| {
        [json!(tool), json!(format!("operator:{by}")), json!("operator"), json!(name), json!("ok")]
    };
    assert_eq!(
        json!(seen),
        json!([
            row("operator.create", "orchestrate", "ada"),
            row("operator.create", "ada", "bob"),
            row("operator.rotate", "ada", "bob"),
            row("operator.revoke", "orchestrate", "ada"),
        ])
    );
    assert_eq!(records[1]["input"]["scopes"], json!(["approve", "audit"]));
    let text = Value::from(records.clone()).to_string();
    for secret in [&ada["token"], &rotated["token"]] {
        assert!(!text.contains(secret.as_str().unwrap()));
    }
    // The list of all records has them, and no list of runs.
    assert_eq!(items(&operator, "/v1/audit").await.iter().filter(|record| record["runId"] == "_service").count(), 4);
    assert_eq!(items(&operator, "/v1/runs").await.len(), 1);
    operator.get("/v1/runs/_service").await.refused("INVALID_REQUEST");
    operator.delete("/v1/runs/_service").await.refused("INVALID_REQUEST");
    operator.post("/v1/runs", json!({"runId": "_service"})).await.refused("INVALID_REQUEST");
    run.agent.get(CHAIN).await.refused("FORBIDDEN");

    assert!(server.stop().success());
    assert_ends(&server.verify(&[]), 0, &["_service: intact, 4 records", "1 runs, 0 broken"]);
    assert_ends(&server.verify(&["--run", "_service"]), 0, &["_service: intact"]);
    let tampered = "UPDATE operator_token SET created_by = 'nobody'";
    server.database.tamper(tampered).await.unwrap();
    server.database.drop_triggers().await;
    let removed =
        "DELETE FROM audit_record WHERE run_no = (SELECT run_no FROM run WHERE run_id = '_service') AND seq = 3";
    assert_eq!(server.database.tamper(removed).await.unwrap(), 1);
    assert_ends(&server.verify(&[]), 1, &["_service: BROKEN at seq 3"]);
}
