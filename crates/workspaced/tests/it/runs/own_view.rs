//! A run as the holder of its token sees it.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, members, sha256};

async fn own(client: &Client, run: &Run) -> Value {
    client.get(&format!("/v1/runs/{}", run.id)).await.ok()
}

fn names(view: &Value) -> Vec<&str> {
    view["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect()
}

#[rstest]
#[tokio::test]
async fn a_token_sees_its_run_with_usage_and_remaining_budgets(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "a\n"), (".env", "A=secret-value\n"), ("id_rsa", "secret-value\n"), ("src/b.rs", "b\n")];
    let policy = json!({"runBudget": {"maxFilesTouched": 5, "maxInsertions": 10}, "quota": {"maxFiles": 9}});
    let extra = json!({"policy": policy, "labels": {"ticket": "for-operators-only"}, "ttlSeconds": 3600});
    let (_server, run) = Run::shared_with(backend, &files, extra).await;
    let issued = json!({"permissions": ["file:diff"], "expiresAt": "2099-01-01T00:00:00Z"});
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), issued).await.is(201);
    let narrow = run.agent.with_token(token["token"].as_str());
    let view = own(&narrow, &run).await;
    let full = run.get().await;
    for member in ["runId", "state", "createdAt", "expiresAt", "baseCommit", "policy", "mounts"] {
        assert_eq!(view[member], full[member], "{member}");
        assert!(!view[member].is_null(), "{member}");
    }
    for member in ["source", "labels", "import", "createdBy", "counts", "headSeq", "headHash", "disk"] {
        assert!(view.get(member).is_none() && full.get(member).is_some(), "{member}");
    }
    assert!(!view.to_string().contains("secret-value") && !view.to_string().contains("for-operators-only"));
    let expected =
        json!({"tokenId": token["tokenId"], "permissions": ["file:diff"], "expiresAt": "2099-01-01T00:00:00.000000Z"});
    assert_eq!(view["token"], expected);
    assert_eq!(names(&view), ["a.txt", "id_rsa", "src"], "as list_dir lists the top level");
    assert_eq!(
        view["entries"][1],
        json!({"path": "id_rsa", "type": "file", "kind": "SECRET_LIKE", "sizeBytes": 13,
        "readable": false, "reason": "POLICY_DENIED_SECRET"})
    );
    let listed = run.ok("list_dir", json!({"maxDepth": 1})).await;
    assert_eq!(view["entries"], listed["entries"]);

    run.create("c.txt", "1\n2\n3\n").await;
    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    let records = run.audit().await.len();
    let view = own(&run.agent, &run).await;
    assert_eq!(run.audit().await.len(), records, "the view is not a call");
    let used = json!({"filesTouched": 2, "insertions": 4, "deletions": 1, "filesDeleted": 0, "bytes": 8});
    assert_eq!(view["usage"]["runBudget"], used);
    assert_eq!(view["remaining"]["runBudget"], json!({"filesTouched": 3, "insertions": 6}));
    let full = run.get().await;
    let history = full["disk"]["historyBytes"].as_u64().unwrap();
    let used = json!({"treeBytes": full["disk"]["bytes"], "files": 5, "pendingApprovals": 0,
        "historyBytes": history, "records": full["headSeq"]});
    assert_eq!(view["usage"]["quota"], used);
    assert!(history > 1000, "{history}");
    let remaining = &view["remaining"]["quota"];
    assert_eq!(members(remaining, &["files", "pendingApprovals"]), json!({"files": 4, "pendingApprovals": 100}));
    let bytes = (4_u64 << 30) - full["disk"]["bytes"].as_u64().unwrap();
    assert_eq!(remaining["treeBytes"], bytes);
    assert_eq!(remaining["historyBytes"], (1_u64 << 30) - history);
    assert_eq!(remaining["records"], 1_000_000 - full["headSeq"].as_u64().unwrap());
    assert_eq!(
        view["token"]["permissions"].as_array().unwrap().len(),
        run.created["token"]["permissions"].as_array().unwrap().len()
    );
}

#[rstest]
#[tokio::test]
async fn a_token_sees_its_run_in_every_state_and_no_other(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    let view = own(&run.agent, &run).await;
    assert_eq!((&view["state"], &view["usage"]["quota"]["pendingApprovals"]), (&json!("awaiting_approval"), &json!(1)));
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    let view = own(&run.agent, &run).await;
    assert!(view["state"] == "closed" && view["closedAt"].is_string() && names(&view) == ["Cargo.lock"], "{view:#}");
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    let view = own(&run.agent, &run).await;
    assert!(view["state"] == "deleted" && view.get("entries").is_none(), "{view:#}");

    let preparing = server.run(json!({"source": {"type": "archive"}})).await;
    let view = own(&preparing.agent, &preparing).await;
    assert!(view["state"] == "preparing" && view.get("entries").is_none(), "{view:#}");
    for id in [&run.id, "none-such"] {
        preparing.agent.get(&format!("/v1/runs/{id}")).await.refused("FORBIDDEN");
    }
}
