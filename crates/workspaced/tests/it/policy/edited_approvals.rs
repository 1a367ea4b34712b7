//! Approvals with changes: the person who approves changes the result, in records of that person.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, assert_chain, members, sha256};

const OLD: &str = "version = 1\nname = \"a\"\n";
const AGENTS: &str = "version = 2\nname = \"a\"\n";
const FINAL: &str = "version = 3\nname = \"a\"\n";

/// A run whose agent waits for a change of the lockfile, and a reviewer who sees no files.
async fn asked(backend: Backend, approval: Value) -> (std::sync::Arc<Server>, Run, String, String, Client) {
    let server = Server::shared(backend).await;
    let folder = server.template(&[("Cargo.lock", OLD), ("b.txt", "b\n")]);
    let body = json!({"source": {"type": "directory", "path": folder}, "policy": {"approval": approval}});
    let created = server.operator().post("/v1/runs", body).await.is(201);
    let run = server.run_from(&created).await;
    let input = json!({"toolCallId": "ask", "path": "Cargo.lock", "content": AGENTS, "expectedSha256": sha256(OLD), "reason": "r"});
    let refused = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    let (name, reviewer) = server.named_operator("reviewer", &["approve"]).await;
    (server, run, refused["approvalId"].as_str().unwrap().to_owned(), name, reviewer)
}

async fn approve(client: &Client, id: &str, edits: Value) -> Answer {
    client.post(&format!("/v1/approvals/{id}/approve"), json!({"note": "as 3", "edits": edits})).await
}

fn edit(old: &str, new: &str) -> Value {
    json!({"path": "Cargo.lock", "oldString": old, "newString": new})
}

#[rstest]
#[tokio::test]
async fn a_change_of_the_reviewer_follows_that_of_the_agent(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run, id, name, reviewer) = asked(backend, json!({})).await;
    let before = run.audit().await.len();
    let decided = approve(&reviewer, &id, json!([edit("version = 2", "version = 3")])).await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), FINAL);
    let records = run.audit().await;
    let [agents, persons] = &records[before..] else { panic!("{records:#?}") };
    assert_eq!(
        members(agents, &["tool", "toolCallId", "by", "actor"]),
        json!({"tool": "write_file", "toolCallId": "ask", "by": "operator", "actor": format!("operator:{name}")})
    );
    assert_eq!(
        members(persons, &["tool", "by", "actor", "reason"]),
        json!({"tool": "edit_file", "by": "operator", "actor": format!("operator:{name}"), "reason": "as 3"})
    );
    assert_eq!(
        (&agents["files"][0]["newSha256"], &persons["files"][0]["oldSha256"], &persons["files"][0]["newSha256"]),
        (&json!(sha256(AGENTS)), &json!(sha256(AGENTS)), &json!(sha256(FINAL)))
    );
    assert_chain(&run.id, &records);
    assert_eq!(run.verify().await["intact"], true);
    let (seq, edited) = (agents["seq"].as_u64().unwrap(), persons["seq"].as_u64().unwrap());
    assert_eq!(
        members(&decided, &["state", "decidedSeq", "editedSeq", "resolution"]),
        json!({"state": "approved", "decidedSeq": seq, "editedSeq": edited,
            "resolution": format!("approved (record {seq}), with changes (record {edited})")})
    );
    let report = run.operator.get(&format!("/v1/runs/{}/report?format=markdown", run.id)).await;
    let line =
        format!("`Cargo.lock`: **approved with changes** by `{name}` (record {edited}); reason: `r`; note: `as 3`\n");
    assert!(report.text().contains(&line), "{}", report.text());
    // One change is the agent's, the other one a person's.
    let counted = run.get().await;
    assert_eq!((&counted["counts"]["mutations"], &counted["people"]["mutations"]), (&json!(1), &json!(1)));
    let told = run.ok("read_file", json!({"path": "b.txt"})).await["notices"].clone();
    let line = "approved: Cargo.lock (write_file), applied with changes by a person: read it again — \"as 3\"";
    assert_eq!(told, json!([line]));
    // The version that the agent has proposed is not the present one.
    let again = json!({"path": "Cargo.lock", "content": "x\n", "expectedSha256": sha256(AGENTS), "reason": "r"});
    run.call("write_file", again).await.refused("WRITE_CONFLICT");
}

#[rstest]
#[tokio::test]
async fn a_refused_change_leaves_the_call_waiting(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run, id, name, reviewer) = asked(backend, json!({})).await;
    let secret = format!("ghp_{}", "0123456789abcdefghijABCDEFGHIJ012345");
    let refused = approve(&reviewer, &id, json!([edit("version = 9", "x")])).await.refused("EDIT_NOT_FOUND");
    assert!(!refused.to_string().contains("name ="), "shows a file to who may not read it: {refused:#}");
    assert_eq!(run.last_record().await["actor"], format!("operator:{name}"));
    assert_eq!(run.last_record().await["code"], "EDIT_NOT_FOUND");
    for (edits, code) in [
        (json!([edit("version = 2", &secret)]), "POLICY_DENIED_SECRET"),
        (json!([{"path": "b.txt", "oldString": "b", "newString": "c"}]), "INVALID_REQUEST"),
        (json!([{"path": "../b", "oldString": "b", "newString": "c"}]), "INVALID_REQUEST"),
        (json!([edit("", "c")]), "INVALID_REQUEST"),
        (json!(vec![edit("a", "c"); 101]), "INVALID_REQUEST"),
    ] {
        approve(&reviewer, &id, edits).await.refused(code);
        assert_eq!(run.on_disk("Cargo.lock"), OLD);
    }
    let body = json!({"edits": [edit("version = 2", "version = 3")]});
    reviewer.post(&format!("/v1/approvals/{id}/deny"), body).await.refused("INVALID_REQUEST");
    run.put("Cargo.lock", "meanwhile\n");
    approve(&reviewer, &id, json!([edit("version = 2", "version = 3")])).await.refused("WRITE_CONFLICT");
    assert_eq!(run.on_disk("Cargo.lock"), "meanwhile\n");
    run.put("Cargo.lock", OLD);
    let approval = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    assert_eq!(approval["state"], "pending");
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 1);
    approve(&reviewer, &id, json!([])).await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), AGENTS);
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[case::several(json!({"approvers": 2}))]
#[case::not_creator(json!({"notCreator": true}))]
#[tokio::test]
async fn nobody_approves_what_only_its_author_has_seen(
    #[case] rule: Value,
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run, id, _name, reviewer) = asked(backend, rule).await;
    approve(&reviewer, &id, json!([edit("version = 2", "version = 3")])).await.refused("INVALID_REQUEST");
    assert_eq!(run.on_disk("Cargo.lock"), OLD);
}
