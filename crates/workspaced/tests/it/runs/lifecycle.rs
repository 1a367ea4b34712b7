//! The lifecycle of runs: creation, listing, closing, deletion and expiry. See `sources.rs` for sources.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, items};

#[rstest]
#[tokio::test]
async fn a_new_run_is_returned_with_a_token_that_is_shown_once(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({"labels": {"ticket": "A-1"}, "ttlSeconds": 3600})).await;
    let (shown, token) = (&run.created["run"], &run.created["token"]);

    assert!(shown["runId"].as_str().unwrap().starts_with("run_"), "{shown:#}");
    for (member, want) in [
        ("source", json!({"type": "empty"})),
        ("labels", json!({"ticket": "A-1"})),
        ("mounts", json!([])),
        (
            "counts",
            json!({"calls": 0, "mutations": 0, "denied": 0, "pendingApprovals": 0, "insertions": 0, "deletions": 0}),
        ),
        ("people", json!({"calls": 1, "mutations": 0})),
        ("headSeq", json!(1)),
    ] {
        assert_eq!(shown[member], want, "{member}");
    }
    assert_eq!(shown["policy"]["profile"], "SUPERVISED_PR");
    let expected = json!({"maxFilesTouched": 20, "maxInsertions": 800, "maxDeletions": 800, "maxFilesDeleted": 5, "maxBytes": 200_000});
    assert_eq!(shown["policy"]["budget"], expected);
    assert_eq!(shown["policy"]["maxFileBytes"], 1_048_576);
    assert_eq!(shown["policy"]["maxTransferBytes"], 1_073_741_824);
    assert!(shown["createdAt"].as_str().unwrap().ends_with('Z'));
    assert!(shown["expiresAt"].as_str().unwrap() > shown["createdAt"].as_str().unwrap());

    assert!(!token["tokenId"].as_str().unwrap().is_empty());
    assert!(token["token"].as_str().unwrap().len() >= 43, "256 bits: {token}");
    assert_eq!(token["permissions"].as_array().unwrap().len(), 10);

    let now = run.until_open().await;
    assert_eq!(now["baseCommit"].as_str().unwrap().len(), 40);
    assert_eq!(now["import"]["files"], 0);
    let secret = token["token"].as_str().unwrap();
    for path in ["/v1/runs?limit=1000".to_owned(), format!("/v1/runs/{}", run.id)] {
        assert!(!server.operator().get(&path).await.contains(secret), "{path} shows the token again");
    }
}

#[rstest]
#[tokio::test]
async fn a_deletion_goes_on_when_its_caller_disconnects(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, armed) = Server::start_armed(Setup::new(backend).arg("--max-runs", 1)).await;
    server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    std::fs::write(&armed, "removal.recording:1:pause").unwrap();
    let client = server.operator();
    let deletion = tokio::spawn(async move { client.delete("/v1/runs/r").await });
    server.until_paused(&armed).await;
    deletion.abort();
    assert!(deletion.await.is_err());
    std::fs::remove_file(&armed).unwrap();
    server.until("the files are deleted", async || !server.workspace("r").exists()).await;
    assert_eq!(server.operator().get("/v1/runs/r").await.is(200)["state"], "deleted");
    // The quota does not count it any more.
    let create = async || server.operator().post("/v1/runs", json!({"source": {"type": "empty"}})).await.status == 201;
    server.until("another run is created", create).await;
}

#[rstest]
#[tokio::test]
async fn a_run_id_is_unique(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let body = json!({"runId": "My-run_1", "source": {"type": "empty"}});
    server.operator().post("/v1/runs", body.clone()).await.is(201);
    server.operator().post("/v1/runs", body).await.refused("ALREADY_EXISTS");
    for bad in ["", "-a", "_a", "a/b", "..", "a b", "ü", "a\u{0}", &"a".repeat(65)] {
        let answer = server.operator().post("/v1/runs", json!({"runId": bad, "source": {"type": "empty"}})).await;
        answer.refused("INVALID_REQUEST");
    }
    server.run(json!({"runId": "a".repeat(64)})).await;
}

#[rstest]
#[tokio::test]
async fn an_invalid_request_for_a_run_is_refused_and_creates_no_run(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let bad = [
        json!({}),
        json!({"source": {"type": "nothing"}}),
        json!({"source": {"type": "empty", "path": "x"}}),
        json!({"source": {"type": "git"}}),
        json!({"source": {"type": "git", "url": "ssh://git@example.org/x"}}),
        json!({"source": {"type": "git", "url": "http://example.org/x"}}),
        json!({"source": {"type": "git", "url": "ext::sh -c id"}}),
        json!({"source": {"type": "git", "url": "--upload-pack=touch /tmp/x"}}),
        json!({"source": {"type": "empty"}, "surprise": 1}),
        json!({"source": {"type": "empty"}, "ttlSeconds": 0}),
        json!({"source": {"type": "empty"}, "ttlSeconds": -1}),
        json!({"source": {"type": "empty"}, "labels": {"a": 1}}),
        json!({"source": {"type": "empty"}, "policy": {"profile": "NONE_SUCH"}}),
        json!({"source": {"type": "empty"}, "policy": {"surprise": true}}),
        json!({"source": {"type": "empty"}, "policy": {"write": ["src/["]}}),
        json!({"source": {"type": "empty"}, "mounts": [{"name": "docs", "description": "d", "path": "/etc"}]}),
        json!([]),
    ];
    for body in bad {
        server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    }
    assert_eq!(items(&server.operator(), "/v1/runs").await, Vec::<Value>::new());
}

#[rstest]
#[tokio::test]
async fn a_closed_run_can_be_read_but_not_changed(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    run.create("b.txt", "two\n").await;
    let close = format!("/v1/runs/{}/close", run.id);
    let closed = run.operator.post(&close, json!({})).await.ok();
    assert_eq!(closed["state"], "closed");
    assert!(closed["closedAt"].is_string());
    assert_eq!(
        run.operator.post(&close, json!({})).await.ok()["closedAt"],
        closed["closedAt"],
        "closing twice changed the time"
    );

    let before = run.snapshot();
    let write = json!({"path": "c.txt", "content": "x\n", "reason": "late"});
    run.call("write_file", write.clone()).await.refused("RUN_CLOSED");
    let mut dry = write;
    dry["dryRun"] = json!(true);
    run.call("write_file", dry).await.refused("RUN_CLOSED");
    run.patch("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n").await.refused("RUN_CLOSED");
    assert_eq!(run.snapshot(), before);

    assert_eq!(run.ok("read_file", json!({"path": "b.txt"})).await["totalLines"], 1);
    run.ok("list_dir", json!({})).await;
    run.ok("search_text", json!({"query": "one"})).await;
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 1);
    assert_eq!(run.audit().await.iter().filter(|record| record["code"] == "RUN_CLOSED").count(), 3);
}

#[rstest]
#[tokio::test]
async fn a_deleted_run_keeps_only_its_audit(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    let uri = run.create("b.txt", "two\n").await["artifactUris"][0].as_str().unwrap().to_owned();
    let before = run.calls().await;

    let answer = run.operator.delete(&format!("/v1/runs/{}", run.id)).await;
    assert!([200, 204].contains(&answer.status), "{}", answer.text());
    assert!(!server.workspace(&run.id).exists(), "the files still exist");
    assert_eq!(run.get().await["state"], "deleted");
    assert_eq!(run.calls().await, before);
    assert_eq!(run.verify().await["intact"], true);
    assert!(run.artifact(&uri).await.contains("+two"));

    for (tool, input) in
        [("read_file", json!({"path": "a.txt"})), ("write_file", json!({"path": "c", "content": "", "reason": "r"}))]
    {
        assert_ne!(run.call(tool, input).await.refusal(), "INTERNAL");
    }
    assert!(!server.workspace(&run.id).exists(), "a call recreated the folder");
    let again = run.operator.delete(&format!("/v1/runs/{}", run.id)).await;
    assert!([200, 204].contains(&again.status), "{}", again.text());
}

#[rstest]
#[tokio::test]
async fn a_run_closes_when_it_expires(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, clock) = Server::start_with_clock(Setup::new(backend)).await;
    let run = server.run(json!({"ttlSeconds": 1800})).await;
    run.create("a.txt", "in time\n").await;
    std::fs::write(&clock, "3600").unwrap();
    // Either the token has ended with the run or the run is closed. In both cases the write is refused.
    let answer = run.call("write_file", json!({"path": "b.txt", "content": "late\n", "reason": "r"})).await;
    assert!(["RUN_CLOSED", "UNAUTHENTICATED"].contains(&answer.refusal().as_str()), "{}", answer.text());
    assert!(!run.repo.join("b.txt").exists());
    assert_eq!(run.get().await["state"], "closed");
}

#[rstest]
#[tokio::test]
async fn lists_are_paginated(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let operator = server.operator();
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(server.run(json!({})).await.id);
    }
    let listed =
        |items: &[Value]| items.iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let mut all = listed(&items(&operator, "/v1/runs?limit=2").await);
    let first = operator.get("/v1/runs?limit=2").await.ok();
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    assert!(first["nextCursor"].is_string());
    assert_eq!(all, listed(&items(&operator, "/v1/runs").await));
    all.sort();
    made.sort();
    assert_eq!(all, made, "each run once");
    assert!(operator.get("/v1/runs?limit=5").await.ok().get("nextCursor").is_none_or(Value::is_null));

    operator.post(&format!("/v1/runs/{}/close", made[0]), json!({})).await.ok();
    for most in ["1000", "1001", "4294967296", "99999999999999999999999"] {
        assert_eq!(operator.get(&format!("/v1/runs?limit={most}")).await.ok()["items"].as_array().unwrap().len(), 5);
    }
    for bad in ["limit=0", "limit=x", "limit=", "limit=%2B1", "limit=1.5", "limit=-1", "cursor=%21%21", "surprise=1"] {
        operator.get(&format!("/v1/runs?{bad}")).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn a_run_counts_its_calls(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("Cargo.lock", "# lock\n"), (".env", "A=1\n")]).await;
    run.create("a.txt", "x\n").await;
    run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    run.call("write_file", json!({"path": "b", "content": "", "reason": "r", "dryRun": true})).await.ok();
    let lock = json!({"path": "Cargo.lock", "content": "# new\n", "expectedSha256": crate::harness::sha256("# lock\n"), "reason": "r"});
    run.call("write_file", lock).await.refused("APPROVAL_REQUIRED");
    let shown = run.get().await;
    assert_eq!(
        shown["counts"],
        json!({"calls": 4, "mutations": 1, "denied": 1, "pendingApprovals": 1, "insertions": 1, "deletions": 0})
    );
    assert_eq!(shown["people"], json!({"calls": 1, "mutations": 0}));
    let last = run.last_record().await;
    assert_eq!((&shown["headSeq"], &shown["headHash"]), (&last["seq"], &last["hash"]));
    assert_eq!(shown["state"], "awaiting_approval");
}

#[rstest]
#[tokio::test]
async fn an_operator_gets_not_found_for_an_unknown_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let operator = server.operator();
    for path in ["", "/audit", "/audit/verify", "/archive", "/tool-calls/x", "/artifacts/x"] {
        operator.get(&format!("/v1/runs/none-such{path}")).await.refused("RUN_NOT_FOUND");
    }
    operator.post("/v1/runs/none-such/close", json!({})).await.refused("RUN_NOT_FOUND");
    operator.post("/v1/runs/none-such/tokens", json!({})).await.refused("RUN_NOT_FOUND");
    operator.post("/v1/runs/none-such/tools/list_dir", json!({})).await.refused("RUN_NOT_FOUND");
    operator.delete("/v1/runs/none-such").await.refused("RUN_NOT_FOUND");
}
