//! Four eyes are those of different persons, and what people do is apart from what the agent does.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, assert_chain, exhaustive, sha256};
use crate::policy::several_approvers::{OLD, run};

/// Asks for a change of the lockfile, as `caller`.
async fn ask(run: &Run, caller: &Client, call: &str) -> String {
    let input = json!({"toolCallId": call, "path": "Cargo.lock", "content": format!("{call}\n"), "expectedSha256": sha256(OLD), "reason": "r"});
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    let answer = caller.post(&path, input).await.refused("APPROVAL_REQUIRED");
    answer["approvalId"].as_str().unwrap().to_owned()
}

async fn approve(client: &Client, id: &str, body: Value) -> Answer {
    client.post(&format!("/v1/approvals/{id}/approve"), body).await
}

/// Asserts that `client` may not approve, because it is not another person.
async fn refused(client: &Client, id: &str, body: Value, rule: &str) {
    let refused = approve(client, id, body).await.refused("FORBIDDEN");
    assert_eq!(refused["reasons"], json!([rule]), "{refused:#}");
}

/// Asserts that the vote of `client` changes nothing, because the same person has approved before.
async fn repeated(client: &Client, id: &str, body: Value) {
    let pending = client.get(&format!("/v1/approvals/{id}")).await.ok();
    let vote = approve(client, id, body).await.ok();
    assert_eq!((&vote["state"], &vote["votes"]), (&json!("pending"), &pending["votes"]), "{vote:#}");
}

#[rstest]
#[tokio::test]
async fn the_issuer_of_a_run_token_may_not_approve_its_calls(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let (ada, by_ada) = server.named_operator("ada", &["orchestrate"]).await;
    let (_, by_bob) = server.named_operator("bob", &["approve"]).await;
    let (carol, by_carol) = server.named_operator("carol", &["orchestrate"]).await;
    let run = run(&server, &by_carol, json!({"notCreator": true})).await;
    let issued = by_ada.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    let own = Client::new(&server.base, issued["token"].as_str());
    // The token of ada is ada, and the first token of the run is its creator.
    let id = ask(&run, &own, "one").await;
    refused(&by_ada, &id, json!({}), "approval:notCreator").await;
    refused(&by_ada, &id, json!({"onBehalfOf": "bob"}), "approval:notCreator").await;
    refused(&server.operator(), &id, json!({"onBehalfOf": ada.to_uppercase()}), "approval:notCreator").await;
    refused(&by_carol, &id, json!({}), "approval:notCreator").await;
    refused(&server.operator(), &id, json!({"onBehalfOf": carol}), "approval:notCreator").await;
    assert_eq!(approve(&by_bob, &id, json!({})).await.ok()["state"], "approved");
}

#[rstest]
#[tokio::test]
async fn one_person_approves_once_by_name_and_by_token(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (ada, by_ada) = server.named_operator("ada", &["approve"]).await;
    let (bob, by_bob) = server.named_operator("bob", &["approve"]).await;
    let run = run(&server, &server.operator(), json!({"approvers": 2})).await;
    let id = ask(&run, &run.agent, "one").await;
    let first = approve(&server.operator(), &id, json!({"onBehalfOf": ada})).await.ok();
    assert_eq!(first["votes"], json!([{"operator": "operator", "onBehalfOf": ada}]), "{first:#}");
    let records = run.audit().await.len();
    repeated(&by_ada, &id, json!({})).await;
    repeated(&by_bob, &id, json!({"onBehalfOf": format!(" {} ", ada.to_uppercase())})).await;
    assert_eq!(run.audit().await.len(), records, "a repeated vote was recorded");
    // The same token is one voter, whomever it names.
    assert_eq!(approve(&server.operator(), &id, json!({"onBehalfOf": bob})).await.ok()["state"], "pending");
    let last = approve(&by_bob, &id, json!({})).await.ok();
    assert_eq!(
        (&last["state"], &last["votes"], &last["approvedBy"]),
        (
            &json!("approved"),
            &json!([{"operator": "operator", "onBehalfOf": ada}, {"operator": bob}]),
            &json!(["operator", bob])
        )
    );
}

#[rstest]
#[tokio::test]
async fn the_vote_of_a_revoked_operator_does_not_count(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (ada, by_ada) = server.named_operator("ada", &["approve"]).await;
    let (bob, by_bob) = server.named_operator("bob", &["approve"]).await;
    let (eve, by_eve) = server.named_operator("eve", &["approve"]).await;
    let run = run(&server, &server.operator(), json!({"approvers": 2})).await;
    let id = ask(&run, &run.agent, "one").await;
    approve(&by_ada, &id, json!({})).await.ok();
    // Another token of the same operator changes nothing.
    server.operator().post(&format!("/v1/operators/{ada}/tokens"), json!({"overlapSeconds": 0})).await.is(201);
    let shown = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    assert_eq!(shown["approvedBy"], json!([ada]));
    server.revoke_operator(&ada).await;
    let shown = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    assert_eq!((&shown["approvedBy"], &shown["votes"]), (&json!([]), &json!([])));
    let second = approve(&by_bob, &id, json!({})).await.ok();
    assert_eq!((&second["state"], &second["approvedBy"]), (&json!("pending"), &json!([bob])));
    assert_eq!(run.on_disk("Cargo.lock"), OLD);
    let last = approve(&by_eve, &id, json!({})).await.ok();
    assert_eq!((&last["state"], &last["approvedBy"]), (&json!("approved"), &json!([bob, eve])));
    // What was decided stays as it was when somebody leaves later.
    server.revoke_operator(&bob).await;
    let shown = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    assert_eq!(shown["approvedBy"], json!([bob, eve]));
}

#[rstest]
#[tokio::test]
async fn an_operator_that_is_made_anew_approves_anew(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let (ada, by_ada) = server.named_operator("ada", &["approve"]).await;
    let (bob, by_bob) = server.named_operator("bob", &["approve"]).await;
    let run = run(&server, &server.operator(), json!({"approvers": 2})).await;
    let id = ask(&run, &run.agent, "one").await;
    approve(&by_ada, &id, json!({})).await.ok();
    server.revoke_operator(&ada).await;
    let body = json!({"name": ada, "scopes": ["approve"]});
    let made = server.operator().post("/v1/operators", body).await.is(201);
    let again = Client::new(&server.base, made["token"].as_str());
    // Twice: the second one is a repetition.
    for _ in 0..2 {
        let voted = approve(&again, &id, json!({})).await.ok();
        assert_eq!((&voted["state"], &voted["approvedBy"]), (&json!("pending"), &json!([ada])));
    }
    let last = approve(&by_bob, &id, json!({})).await.ok();
    assert_eq!((&last["state"], &last["approvedBy"]), (&json!("approved"), &json!([ada, bob])));
}

#[rstest]
#[tokio::test]
async fn a_decided_call_says_what_became_of_it(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = run(&server, &server.operator(), json!({})).await;
    let resolution = async |call: &str| {
        let answer = run.agent.get(&format!("/v1/runs/{}/tool-calls/{call}", run.id)).await.ok();
        assert_eq!(answer["resolution"], answer["approval"]["resolution"], "{answer:#}");
        answer["resolution"].clone()
    };
    let decide = async |id: &str, verb: &str| {
        let body = json!({"onBehalfOf": "ada", "note": "use npm"});
        run.operator.post(&format!("/v1/approvals/{id}/{verb}"), body).await.ok()
    };
    let denied = ask(&run, &run.agent, "denied").await;
    assert_eq!(resolution("denied").await, json!(null));
    decide(&denied, "deny").await;
    assert_eq!(resolution("denied").await, "denied: use npm");
    let (approved, failed) = (ask(&run, &run.agent, "approved").await, ask(&run, &run.agent, "failed").await);
    let seq = decide(&approved, "approve").await["seq"].as_u64().unwrap();
    assert_eq!(resolution("approved").await, format!("approved (record {seq})"));
    decide(&failed, "approve").await;
    assert_eq!(resolution("failed").await, "failed: WRITE_CONFLICT");
    let listed = run.operator.get(&format!("/v1/approvals?run={}", run.id)).await.ok();
    let listed: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| item["resolution"].clone()).collect();
    assert_eq!(
        listed,
        [json!("denied: use npm"), json!(format!("approved (record {seq})")), json!("failed: WRITE_CONFLICT")]
    );
}

#[rstest]
#[tokio::test]
async fn records_say_whose_call_they_are_and_counts_are_those_of_the_agent(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let run = run(&server, &server.operator(), json!({})).await;
    run.create("a.txt", "x\n").await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let id = ask(&run, &run.agent, "one").await;
    let tools = format!("/v1/runs/{}/tools", run.id);
    for _ in 0..3 {
        run.operator.post(&format!("{tools}/read_file"), json!({"path": "a.txt"})).await.ok();
    }
    run.operator.post(&format!("{tools}/read_file"), json!({"path": "../x"})).await.refused("PATH_REJECTED");
    run.operator.post(&format!("{tools}/write_file"), json!({"path": "b", "content": "x\n", "reason": "r"})).await.ok();
    approve(&run.operator, &id, json!({"onBehalfOf": "ada"})).await.ok();
    let shown = run.get().await;
    // The approved change is that of the agent, who asked for it.
    assert_eq!(
        shown["counts"],
        json!({"calls": 3, "mutations": 2, "denied": 0, "pendingApprovals": 0, "insertions": 1, "deletions": 0})
    );
    assert_eq!(shown["people"], json!({"calls": 7, "mutations": 1}));
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    let by: Vec<_> = records.iter().map(|record| record["by"].as_str().unwrap()).collect();
    let (agent, operator) = ("agent", "operator");
    assert_eq!(by, [&[operator][..], &[agent; 3], &[operator; 6]].concat());
    for (by, want) in [("agent", 3), ("operator", 7), ("service", 0)] {
        for path in [format!("/v1/runs/{}/audit?by={by}", run.id), format!("/v1/audit?run={}&by={by}", run.id)] {
            let found = run.operator.get(&path).await.ok();
            assert_eq!(found["items"].as_array().unwrap().len(), want, "{path}: {found:#}");
        }
    }
    run.operator.get("/v1/audit?by=nobody").await.refused("INVALID_REQUEST");
    // What people looked at is not in the account of the agent's work; what they changed is.
    let report = run.operator.get(&format!("/v1/runs/{}/report?format=json", run.id)).await.ok();
    let files: Vec<_> =
        report["files"].as_array().unwrap().iter().map(|file| (&file["path"], &file["reads"])).collect();
    assert!(files.contains(&(&json!("a.txt"), &json!(1))), "{files:?}");
    assert_eq!((&report["counts"]["reads"], &report["counts"]["writes"]), (&json!(1), &json!(3)), "{report:#}");
    assert_eq!(run.verify().await["intact"], true);
}
