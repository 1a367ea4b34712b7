//! Approvals by named operators: how many, by whom, and what of it is recorded.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, assert_chain, members, sha256};

pub(super) const OLD: &str = "old\n";

/// A run with a lockfile, created by `creator`, with this rule of approval.
pub(crate) async fn run(server: &Server, creator: &Client, rule: Value) -> Run {
    let folder = server.template(&[("Cargo.lock", OLD)]);
    let body = json!({"source": {"type": "directory", "path": folder}, "policy": {"approval": rule}});
    let created = creator.post("/v1/runs", body).await.is(201);
    server.run_from(&created).await
}

async fn ask(run: &Run, call: &str, new: &str) -> String {
    let input =
        json!({"toolCallId": call, "path": "Cargo.lock", "content": new, "expectedSha256": sha256(OLD), "reason": "r"});
    let answer = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    answer["approvalId"].as_str().unwrap().to_owned()
}

async fn decide(client: &Client, id: &str, verb: &str, body: Value) -> Answer {
    client.post(&format!("/v1/approvals/{id}/{verb}"), body).await
}

async fn approve(client: &Client, id: &str) -> Answer {
    decide(client, id, "approve", json!({})).await
}

async fn get(run: &Run, id: &str) -> Value {
    run.operator.get(&format!("/v1/approvals/{id}")).await.ok()
}

#[rstest]
#[tokio::test]
async fn a_named_operator_decides_under_its_name(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = run(&server, &server.operator(), json!({})).await;
    let (ada, client) = server.named_operator("ada", &["approve"]).await;
    let id = ask(&run, "one", "new\n").await;
    let pending = get(&run, &id).await;
    let rule = members(&pending, &["approvers", "notCreator", "approvedBy", "decidedBy"]);
    assert_eq!(rule, json!({"approvers": 1, "notCreator": false, "approvedBy": [], "decidedBy": null}));
    let decided = approve(&client, &id).await.ok();
    assert_eq!(
        members(&decided, &["state", "decidedBy", "approvedBy", "onBehalfOf"]),
        json!({"state": "approved", "decidedBy": ada, "approvedBy": [ada], "onBehalfOf": null})
    );
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
    assert_eq!(run.last_record().await["actor"], format!("operator:{ada}"));

    let secret = format!("ghp_{}", "0123456789abcdefghijABCDEFGHIJ012345");
    let input = json!({"toolCallId": "two", "path": "Cargo.lock", "content": "3\n", "expectedSha256": sha256("new\n"), "reason": "r"});
    let asked = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    let body = json!({"onBehalfOf": format!("Bo {secret}"), "note": "no"});
    let denied = decide(&client, asked["approvalId"].as_str().unwrap(), "deny", body).await.ok();
    assert_eq!(
        members(&denied, &["state", "decidedBy", "onBehalfOf", "note", "approvedBy"]),
        json!({"state": "denied", "decidedBy": ada, "onBehalfOf": "Bo [redacted: GitHub token]", "note": "no", "approvedBy": []})
    );
    let record = run.last_record().await;
    assert_eq!(record["actor"], format!("operator:{ada}"));
    assert!(
        record["reasons"].as_array().unwrap().contains(&json!("onBehalfOf:Bo [redacted: GitHub token]")),
        "{record:#}"
    );
    for name in ["", "a\u{7}", "service", &"x".repeat(201)] {
        let id = asked["approvalId"].as_str().unwrap();
        decide(&client, id, "deny", json!({"onBehalfOf": name})).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn several_operators_must_approve(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = run(&server, &server.operator(), json!({"approvers": 3})).await;
    assert_eq!(run.get().await["policy"]["approval"], json!({"approvers": 3, "notCreator": false}));
    let mut operators = Vec::new();
    for name in ["ada", "bob", "eve"] {
        operators.push(server.named_operator(name, &["approve"]).await);
    }
    let [(ada, by_ada), (bob, by_bob), (eve, by_eve)] = &operators[..] else { panic!() };
    let id = ask(&run, "one", "new\n").await;
    let first = decide(by_ada, &id, "approve", json!({"onBehalfOf": "Ada L.", "note": "fine"})).await.ok();
    assert_eq!(
        members(&first, &["state", "approvers", "approvedBy", "decidedBy"]),
        json!({"state": "pending", "approvers": 3, "approvedBy": [ada], "decidedBy": null})
    );
    let vote = run.last_record().await;
    assert_eq!((&first["seq"], &first["headHash"]), (&vote["seq"], &vote["hash"]), "{first:#}");
    assert_eq!(
        members(&vote, &["actor", "tool", "toolCallId", "outcome", "decision", "pathsWritten", "reasons"]),
        json!({"actor": format!("operator:{ada}"), "tool": "write_file", "toolCallId": "one", "outcome": "pending",
            "decision": "REQUIRE_APPROVAL", "pathsWritten": [],
            "reasons": [format!("approval:{id}:approved:1of3"), "onBehalfOf:Ada L.", "note:fine"]})
    );
    // The same operator counts once.
    let records = run.audit().await.len();
    let again = approve(by_ada, &id).await.ok();
    assert_eq!(
        members(&again, &["state", "approvedBy", "seq"]),
        json!({"state": "pending", "approvedBy": [ada], "seq": null})
    );
    assert_eq!(run.audit().await.len(), records);

    // Votes survive a restart, and the call still waits.
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    let [by_ada, by_bob, by_eve] =
        [by_ada, by_bob, by_eve].map(|client| server.nobody().with_token(client.token.as_deref()));
    assert_eq!(get(&run, &id).await["approvedBy"], json!([ada]));
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 1);
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/one", run.id)).await.ok();
    assert_eq!((&call["outcome"], &call["approval"]["approvedBy"]), (&json!("pending"), &json!([ada])), "{call:#}");
    assert_eq!(approve(&by_bob, &id).await.ok()["approvedBy"], json!([ada, bob]));
    assert_eq!(run.on_disk("Cargo.lock"), OLD);
    let last = approve(&by_eve, &id).await.ok();
    assert_eq!(
        members(&last, &["state", "approvedBy", "decidedBy"]),
        json!({"state": "approved", "approvedBy": [ada, bob, eve], "decidedBy": eve})
    );
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
    approve(&by_ada, &id).await.refused("ALREADY_EXISTS");
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 0);
    assert_chain(&run.id, &run.audit().await);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn one_denial_ends_an_approval_that_others_have_given(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let run = run(&server, &server.operator(), json!({"approvers": 2})).await;
    let (ada, by_ada) = server.named_operator("ada", &["approve"]).await;
    let (bob, by_bob) = server.named_operator("bob", &["approve"]).await;
    let id = ask(&run, "one", "new\n").await;
    approve(&by_ada, &id).await.ok();
    let denied = decide(&by_bob, &id, "deny", json!({})).await.ok();
    assert_eq!(
        members(&denied, &["state", "approvedBy", "decidedBy"]),
        json!({"state": "denied", "approvedBy": [ada], "decidedBy": bob})
    );
    approve(&by_bob, &id).await.refused("ALREADY_EXISTS");
    assert_eq!((run.on_disk("Cargo.lock"), run.get().await["state"].clone()), (OLD.into(), json!("open")));
    // The one who has approved may deny as well.
    let id = ask(&run, "two", "newer\n").await;
    approve(&by_ada, &id).await.ok();
    assert_eq!(decide(&by_ada, &id, "deny", json!({})).await.ok()["state"], "denied");
}

#[rstest]
#[tokio::test]
async fn concurrent_approvals_execute_the_call_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let mut clients = Vec::new();
    for name in ["a", "b", "c", "d"] {
        clients.push(server.named_operator(name, &["approve"]).await.1);
    }
    for _ in 0..5 {
        let run = run(&server, &server.operator(), json!({"approvers": 3})).await;
        let id = ask(&run, "one", "new\n").await;
        let answers = futures_util::future::join_all(clients.iter().map(|client| approve(client, &id))).await;
        let mut states: Vec<_> = answers.iter().map(|answer| answer.json()["state"].clone().to_string()).collect();
        states.sort();
        assert_eq!(states, ["\"approved\"", "\"pending\"", "\"pending\"", "null"], "{answers:#?}");
        assert_eq!(get(&run, &id).await["approvedBy"].as_array().unwrap().len(), 3);
        assert_eq!(run.on_disk("Cargo.lock"), "new\n");
        let done = run.calls().await.into_iter().filter(|one| one["outcome"] == "ok").count();
        assert_eq!(done, 1);
    }
}

#[rstest]
#[tokio::test]
async fn the_creator_of_a_run_may_not_approve_its_calls(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let (ada, by_ada) = server.named_operator("ada", &["orchestrate"]).await;
    let (bob, by_bob) = server.named_operator("bob", &["orchestrate"]).await;
    let run = run(&server, &by_ada, json!({"notCreator": true})).await;
    assert_eq!(run.get().await["createdBy"], ada);
    let id = ask(&run, "one", "new\n").await;
    for body in [json!({}), json!({"onBehalfOf": "somebody else"})] {
        let refused = decide(&by_ada, &id, "approve", body).await.refused("FORBIDDEN");
        assert!(refused["message"].as_str().unwrap().contains(&ada), "{refused:#}");
        assert!(refused["hint"].as_str().unwrap().contains("another operator"), "{refused:#}");
    }
    assert_eq!(get(&run, &id).await["state"], "pending");
    assert_eq!(approve(&by_bob, &id).await.ok()["decidedBy"], bob);
    // The creator may deny.
    let input = json!({"toolCallId": "two", "path": "Cargo.lock", "content": "3\n", "expectedSha256": sha256("new\n"), "reason": "r"});
    let asked = run.call("write_file", input.clone()).await.refused("APPROVAL_REQUIRED");
    let denied = decide(&by_ada, asked["approvalId"].as_str().unwrap(), "deny", json!({})).await.ok();
    assert_eq!(denied["decidedBy"], ada);
    // Nor may the operator who has made the call.
    let mut own = input;
    own["toolCallId"] = json!("three");
    own["content"] = json!("4\n");
    let asked = by_bob.post(&format!("/v1/runs/{}/tools/write_file", run.id), own).await.refused("APPROVAL_REQUIRED");
    let id = asked["approvalId"].as_str().unwrap();
    approve(&by_bob, id).await.refused("FORBIDDEN");
    let body = json!({"onBehalfOf": "carol"});
    assert_eq!(decide(&server.operator(), id, "approve", body).await.ok()["state"], "approved");
}

#[rstest]
#[tokio::test]
async fn a_rule_of_approval_out_of_bounds_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    for bad in [json!({"approvers": 0}), json!({"approvers": 17}), json!({"approvers": -1}), json!({"who": "x"})] {
        let body = json!({"source": {"type": "empty"}, "policy": {"approval": bad}});
        server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn an_approval_in_progress_ends_with_its_operator(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("approve", "deny", "vote")] what: &str,
) {
    let (server, file) = Server::start_armed(crate::harness::Setup::new(backend)).await;
    let approvers = if what == "vote" { 2 } else { 1 };
    let run = run(&server, &server.operator(), json!({"approvers": approvers})).await;
    let (name, client) = server.named_operator("leaving", &["approve"]).await;
    let id = ask(&run, "one", "new\n").await;
    let records = run.audit().await.len();
    std::fs::write(&file, "record.begin:1:pause").unwrap();
    let verb = if what == "deny" { "deny" } else { "approve" };
    let deciding = tokio::spawn({
        let (client, id) = (client.clone(), id.clone());
        async move { decide(&client, &id, verb, json!({})).await }
    });
    server.until_paused(&file).await;
    server.revoke_operator(&name).await;
    std::fs::write(&file, "").unwrap();
    deciding.await.unwrap().refused("UNAUTHENTICATED");
    let approval = get(&run, &id).await;
    assert_eq!(members(&approval, &["state", "approvedBy"]), json!({"state": "pending", "approvedBy": []}));
    assert_eq!((run.on_disk("Cargo.lock"), run.audit().await.len()), (OLD.into(), records));
    let body = json!({"onBehalfOf": "ada"});
    assert_eq!(decide(&run.operator, &id, "deny", body).await.ok()["state"], "denied");
}

#[rstest]
#[tokio::test]
async fn calls_in_progress_are_refused_when_their_operator_is_revoked(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, file) = Server::start_armed(crate::harness::Setup::new(backend)).await;
    let run = run(&server, &server.operator(), json!({})).await;
    for (number, tool) in (0..).zip(["write_file", "read_file"]) {
        let (name, client) = server.named_operator("leaving", &["orchestrate"]).await;
        std::fs::write(&file, format!("record.begin:1:pause:{number}")).unwrap();
        let input = match tool {
            "write_file" => json!({"path": "new.txt", "content": "x\n", "reason": "r"}),
            _ => json!({"path": "Cargo.lock"}),
        };
        let path = format!("/v1/runs/{}/tools/{tool}", run.id);
        let calling = tokio::spawn(async move { client.post(&path, input).await });
        server.until_paused(&file).await;
        server.revoke_operator(&name).await;
        std::fs::write(&file, "").unwrap();
        calling.await.unwrap().refused("UNAUTHENTICATED");
        let record = run.last_record().await;
        assert_eq!(
            (&record["code"], &record["actor"]),
            (&json!("UNAUTHENTICATED"), &json!(format!("operator:{name}")))
        );
    }
    assert!(!run.repo.join("new.txt").exists());
}
