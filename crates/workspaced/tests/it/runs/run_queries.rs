//! Queries of a run: outcomes of calls, limits, policy, changes, drift, the patch and batches.

use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Server, Setup, in_time, sha256};
use crate::operation::replay_and_repair::put;

async fn get(run: &Run, what: &str) -> Answer {
    run.agent.get(&format!("/v1/runs/{}/{what}", run.id)).await
}

async fn explain(run: &Run, question: Value) -> Answer {
    run.agent.post(&format!("/v1/runs/{}/policy/explain", run.id), question).await
}

#[rstest]
#[tokio::test]
async fn a_waiting_query_returns_when_the_approval_is_decided(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("Cargo.lock", "old\n")]).await;
    let input = json!({"toolCallId": "ask", "path": "Cargo.lock", "content": "new\n",
        "expectedSha256": sha256("old\n"), "reason": "r"});
    let asked = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    let started = Instant::now();
    assert_eq!(get(&run, "tool-calls/ask").await.ok()["outcome"], "pending");
    assert_eq!(get(&run, "tool-calls/ask?waitSeconds=1").await.ok()["outcome"], "pending");
    assert!(started.elapsed() >= Duration::from_secs(1));
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { get(&run, "tool-calls/ask?waitSeconds=1000").await.ok() }
    });
    // Nothing answers it yet.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    let approve = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    run.operator.post(&approve, json!({"decidedBy": "ada"})).await.ok();
    let call = waiting.await.unwrap();
    assert_eq!((&call["outcome"], &call["approval"]["state"]), (&json!("ok"), &json!("approved")));
    assert!(started.elapsed() < Duration::from_secs(30), "the query timed out");
    get(&run, "tool-calls/ask?waitSeconds=soon").await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn limits_are_readable_by_agents_and_operators(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    for client in [&run.agent, &run.operator] {
        let limits = client.get("/v1/limits").await.ok();
        assert_eq!(limits["tools"]["maxPathBytes"], 4096);
        assert_eq!(limits["requests"]["pageMax"], 1000);
        assert_eq!(limits["defaultBudget"]["maxFilesTouched"], 20);
        assert!(limits["requests"]["maxBodyBytes"].as_u64().unwrap() > 0);
    }
    server.auditor().get("/v1/limits").await.refused("FORBIDDEN");
    server.nobody().get("/v1/limits").await.refused("UNAUTHENTICATED");
}

#[rstest]
#[tokio::test]
async fn a_configured_limit_is_reported_and_enforced(#[values(Backend::Sqlite)] backend: Backend) {
    let settings = [
        ("--max-body-bytes", 70_000, "/requests/maxBodyBytes"),
        ("--max-archive-bytes", 80_000, "/requests/maxArchiveBytes"),
        ("--request-timeout-seconds", 61, "/requests/requestTimeoutSeconds"),
        ("--client-timeout-seconds", 36, "/requests/bodyTimeoutSeconds"),
        ("--max-connections", 321, "/service/maxConnections"),
        ("--concurrency", 5, "/service/readThreads"),
        ("--max-runs", 44, "/service/maxRuns"),
        ("--max-disk-bytes", 987_654, "/service/maxDiskBytes"),
    ];
    let setup = settings.iter().fold(Setup::new(backend), |setup, (flag, value, _)| setup.arg(flag, value));
    let server = Server::start_with(setup.arg("--rate-limit", "1001:2003")).await;
    let limits = server.operator().get("/v1/limits").await.ok();
    for (flag, value, pointer) in settings {
        assert_eq!(limits.pointer(pointer), Some(&json!(value)), "{flag}: {limits:#}");
    }
    for (follows, pointer) in [
        (80, "/requests/tokenConcurrency"),
        (1001, "/requests/ratePerSecond"),
        (2003, "/requests/rateBurst"),
        (12, "/service/headerTimeoutSeconds"),
        (90, "/service/idleTimeoutSeconds"),
        (5, "/service/searchThreads"),
        (5, "/service/exportThreads"),
        (10, "/service/writeThreads"),
        (5, "/service/importThreads"),
    ] {
        assert_eq!(limits.pointer(pointer), Some(&json!(follows)), "{pointer}: {limits:#}");
    }
    // The tools enforce the reported limits.
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let bound = |name: &str| usize::try_from(limits["tools"][name].as_u64().unwrap()).unwrap();
    let most = |what: usize| vec![json!("a.txt"); what];
    let reason =
        |length: usize| json!({"path": "a.txt", "content": "", "mode": "CREATE_NEW", "reason": "r".repeat(length)});
    let id = |length: usize| json!({"path": "a.txt", "toolCallId": "i".repeat(length)});
    let step = |length: usize| json!({"path": "a.txt", "stepId": "s".repeat(length)});
    let query = |length: usize| json!({"query": "q".repeat(length)});
    for (tool, input, bound, at_bound) in [
        ("read_files", (&|n| json!({"paths": most(n)})) as &dyn Fn(usize) -> Value, bound("readFilesMaxPaths"), 200),
        ("find_files", &|n| json!({"glob": most(n)}), bound("findFilesMaxGlobs"), 200),
        ("search_text", &query, bound("searchTextMaxQueryBytes"), 200),
        ("search_text", &|n| json!({"query": "q", "includeGlob": most(n)}), bound("searchTextMaxGlobs"), 200),
        ("write_file", &reason, bound("maxReasonCharacters"), 409),
        ("read_file", &id, bound("maxToolCallIdCharacters"), 200),
        ("read_file", &step, bound("maxStepIdCharacters"), 200),
    ] {
        assert_eq!(run.call(tool, input(bound)).await.status, at_bound, "{tool} at its limit");
        run.call(tool, input(bound + 1)).await.refused("INVALID_REQUEST");
    }
    let body = json!({"path": "b.txt", "content": "x".repeat(70_000), "reason": "r"});
    run.call("write_file", body).await.refused("BODY_TOO_LARGE");
}

#[rstest]
#[tokio::test]
async fn policy_decisions_can_be_queried_with_their_reasons(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "a\n"), ("Cargo.lock", "l\n"), (".env", "A=1\n"), ("shut/b.txt", "b\n")];
    let commands = json!({"allow": ["cargo"], "ask": ["cargo publish"], "deny": ["rm"]});
    let policy = json!({"policy": {"deny": ["shut/**"], "budget": {"maxInsertions": 1}, "commands": commands}});
    let (_server, run) = Run::shared_with(backend, &files, policy).await;
    let before = run.audit().await.len();
    for (path, kind, read, mutate, rule) in [
        ("./a.txt", "TEXT_DOC", "ALLOW", "ALLOW", ""),
        ("none/new.rs", "TEXT_SOURCE", "ALLOW", "ALLOW", ""),
        ("Cargo.lock", "LOCKFILE", "ALLOW", "REQUIRE_APPROVAL", "LOCKFILE"),
        (".env", "SECRET_LIKE", "DENY", "DENY", "kind:SECRET_LIKE"),
        ("none/.env", "SECRET_LIKE", "DENY", "DENY", "kind:SECRET_LIKE"),
        ("shut/b.txt", "TEXT_DOC", "DENY", "DENY", "deny:shut/**"),
        ("target/x.rs", "GENERATED", "ALLOW", "DENY", "kind:GENERATED"),
    ] {
        let answer = explain(&run, json!({"path": path})).await.ok();
        let one = &answer["paths"][0];
        assert_eq!(one["kind"], kind, "{path}: {answer:#}");
        assert_eq!(one["read"]["decision"], read, "{path}: {answer:#}");
        assert_eq!(one["mutate"]["decision"], mutate, "{path}: {answer:#}");
        let reasons = one["mutate"]["reasons"].to_string().to_lowercase();
        assert!(reasons.contains(&rule.to_lowercase()), "{path}: {answer:#}");
    }
    let patch = |file: &str, old: &str, new: &str| {
        format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1,{} @@\n-{old}\n{new}", new.lines().count())
    };
    for (patch, decision, code) in [
        (patch("a.txt", "a", "+b\n"), "ALLOW", Value::Null),
        (patch("a.txt", "a", "+b\n+c\n"), "DENY", json!("PATCH_BUDGET_EXCEEDED")),
        (patch("Cargo.lock", "l", "+m\n"), "REQUIRE_APPROVAL", json!("APPROVAL_REQUIRED")),
        (patch(".env", "A=1", "+A=2\n"), "DENY", json!("POLICY_DENIED_SECRET")),
        (patch("a.txt", "wrong", "+b\n"), "ALLOW", json!("PATCH_CONFLICT")),
    ] {
        let answer = explain(&run, json!({"patch": patch})).await.ok();
        assert_eq!(answer["patch"]["decision"], decision, "{patch}: {answer:#}");
        assert_eq!(answer["patch"].get("code").unwrap_or(&Value::Null), &code, "{patch}");
    }
    for (command, decision, rule) in [
        ("cargo test && cargo fmt", "ALLOW", "commands:allow:cargo"),
        ("cargo publish", "REQUIRE_APPROVAL", "commands:ask:cargo publish"),
        ("cargo test | rm -r x", "DENY", "commands:deny:rm"),
        ("make", "DENY", "commands:others"),
    ] {
        let answer = explain(&run, json!({"command": command})).await.ok();
        let decided = &answer["command"];
        assert_eq!(decided["decision"], decision, "{command}: {answer:#}");
        assert!(decided["reasons"].to_string().contains(rule), "{command}: {answer:#}");
        assert_eq!(decided.get("code").is_some(), decision != "ALLOW", "{command}: {answer:#}");
    }
    for (question, code) in [
        (json!({}), "INVALID_REQUEST"),
        (json!({"path": "a", "patch": "b"}), "INVALID_REQUEST"),
        (json!({"path": "a", "command": "b"}), "INVALID_REQUEST"),
        (json!({"command": " "}), "INVALID_REQUEST"),
        (json!({"command": "curl https://ada:5b3f9a0c7e1d4826@example.org"}), "POLICY_DENIED_SECRET"),
        (json!({"path": "../a"}), "PATH_REJECTED"),
        (json!({"patch": "no patch"}), "PATCH_INVALID"),
    ] {
        explain(&run, question).await.refused(code);
    }
    // What depends on the content of files is recorded, and nothing else.
    let records = run.audit().await.split_off(before);
    assert_eq!(records.len(), 5, "{records:#?}");
    for record in &records {
        assert_eq!((&record["tool"], &record["mutates"]), (&json!("policy.explain"), &json!(false)), "{record:#}");
        assert!(record["actor"].as_str().unwrap().starts_with("run-token:"), "{record:#}");
    }
    assert_eq!(records[4]["pathsRead"], json!(["a.txt"]));
    assert_eq!(records[4]["input"], json!({"patchSha256": sha256(patch("a.txt", "wrong", "+b\n"))}));
    assert_eq!(run.verify().await["intact"], true);
    assert_eq!(run.on_disk("a.txt"), "a\n");
}

#[rstest]
#[tokio::test]
async fn changes_are_listed_in_order_and_paginated(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    assert_eq!(get(&run, "changes").await.ok(), json!({"items": [], "nextSince": 0, "more": false}));
    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.call("write_file", json!({"path": ".env", "content": "x", "reason": "r"}))
        .await
        .refused("POLICY_DENIED_SECRET");
    run.ok("write_file", json!({"path": "dry.txt", "content": "x\n", "reason": "r", "dryRun": true})).await;
    let moved = json!({"from": "a.txt", "to": "b.txt", "expectedSha256": sha256("b\n"), "reason": "r"});
    let moved = run.ok("move_file", moved).await;
    run.put("outside.txt", "not by a call\n");
    let all = get(&run, "changes").await.ok();
    let files: Vec<_> = all["items"].as_array().unwrap().iter().map(|item| item["files"].clone()).collect();
    assert_eq!(files[0][0]["path"], "a.txt");
    assert_eq!((&files[0][0]["change"], &files[0][0]["newSha256"]), (&json!("modified"), &json!(sha256("b\n"))));
    assert_eq!(files[1].as_array().unwrap().len(), 2, "{all:#}");
    assert_eq!((&files[1][0]["change"], &files[1][1]["change"]), (&json!("deleted"), &json!("created")));
    assert_eq!(files.len(), 2, "{all:#}");
    assert_eq!(all["nextSince"], moved["seq"]);
    let first = get(&run, "changes?limit=1").await.ok();
    assert_eq!((first["items"].as_array().unwrap().len(), &first["more"]), (1, &json!(true)));
    let rest = get(&run, &format!("changes?since={}", first["nextSince"])).await.ok();
    assert_eq!(rest["items"][0], all["items"][1]);
    let auditor = server.auditor().get(&format!("/v1/runs/{}/changes", run.id)).await.ok();
    assert_eq!(auditor, all);
    run.operator.get("/v1/runs/none-such/changes").await.refused("RUN_NOT_FOUND");
    get(&run, "changes?since=x").await.refused("INVALID_REQUEST");
    get(&run, "changes?limit=0").await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn changes_are_streamed_without_a_gap(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    run.create("one.txt", "1\n").await;
    let path = format!("/v1/runs/{}/changes", run.id);
    let mut stream = run.agent.stream(&path, None).await;
    let mut text = String::new();
    let mut until = async |needle: &str| {
        while !text.contains(needle) {
            let piece = in_time(needle, stream.chunk()).await.unwrap().expect("an open stream");
            text.push_str(&String::from_utf8_lossy(&piece));
        }
        text.clone()
    };
    let first = until("one.txt").await;
    assert!(first.contains("event: change") && first.contains("id: 2"), "{first}");
    run.create("two.txt", "2\n").await;
    until("two.txt").await;
    let mut again = run.agent.stream(&path, Some("2")).await;
    let piece = in_time("two.txt", again.chunk()).await.unwrap().unwrap();
    let piece = String::from_utf8_lossy(&piece).into_owned();
    assert!(piece.contains("two.txt") && !piece.contains("one.txt"), "{piece}");
}

#[rstest]
#[tokio::test]
async fn drift_lists_external_changes(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "c\n"), ("d.txt", "d\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    run.replace("a.txt", "A\n", &sha256("a\n")).await.ok();
    run.replace("d.txt", "D\n", &sha256("d\n")).await.ok();
    run.create("n.txt", "n\n").await;
    run.create("o.txt", "o\n").await;
    run.ok("delete_file", json!({"path": "c.txt", "expectedSha256": sha256("c\n"), "reason": "r"})).await;
    assert_eq!(get(&run, "drift").await.ok()["items"], json!([]));
    run.put("a.txt", "a\n");
    run.put("b.txt", "other\n");
    run.put("c.txt", "c\n");
    run.put("new.txt", "new\n");
    run.put("n.txt", "nn\n");
    for path in ["d.txt", "o.txt"] {
        std::fs::remove_file(run.repo.join(path)).unwrap();
    }
    let drift = get(&run, "drift").await.ok();
    let found: Vec<_> = drift["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["path"].as_str().unwrap(), item["change"].as_str().unwrap()))
        .collect();
    let expected = [
        ("a.txt", "modified"),
        ("b.txt", "modified"),
        ("c.txt", "created"),
        // There is that of the base again.
        ("d.txt", "modified"),
        ("n.txt", "modified"),
        ("new.txt", "created"),
        ("o.txt", "deleted"),
    ];
    assert_eq!(found, expected, "{drift:#}");
    assert_eq!(drift["items"][0]["expectedSha256"], sha256("A\n"));
    assert_eq!(drift["items"][0]["actualSha256"], sha256("a\n"));
    assert_eq!(run.last_record().await["tool"], "drift");
}

#[rstest]
#[tokio::test]
async fn drift_of_the_executable_bit_is_a_mode_change(#[values(Backend::Sqlite)] backend: Backend) {
    use std::os::unix::fs::PermissionsExt as _;

    let (_server, run) = Run::shared(backend, &[("run.sh", "#!/bin/sh\n"), ("a.txt", "a\n")]).await;
    assert_eq!(get(&run, "drift").await.ok()["items"], json!([]));
    run.own(&["run.sh"]);
    assert_eq!(get(&run, "drift").await.ok()["items"], json!([]));
    std::fs::set_permissions(run.repo.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let hash = sha256("#!/bin/sh\n");
    let expected = json!([{"path": "run.sh", "change": "mode", "expectedSha256": hash, "actualSha256": hash}]);
    assert_eq!(get(&run, "drift").await.ok()["items"], expected);
    run.put("run.sh", "#!/bin/bash\n");
    assert_eq!(get(&run, "drift").await.ok()["items"][0]["change"], "modified");
}

#[rstest]
#[tokio::test]
async fn the_diff_hash_in_an_answer_is_of_what_the_run_has_written(#[values(Backend::Sqlite)] backend: Backend) {
    let unasked = json!({"policy": {"requireApprovalIf": []}});
    let (_server, run) = Run::shared_with(backend, &[("a.txt", "a\n")], unasked).await;
    run.create("x.log", "x\n").await;
    let patch = async |old: &str, new: &str| {
        let answer = run.patch(&format!("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-{old}\n+{new}\n")).await.ok();
        assert_eq!(answer["newWorkspaceDiffSha256"], json!(run.diff_sha256().await), "{old} to {new}");
    };
    patch("a", "b").await;
    run.create(".gitignore", "*.log\n").await;
    patch("b", "c").await;
    run.replace(".gitignore", "", &sha256("*.log\n")).await.ok();
    patch("c", "d").await;
    // After a dry run that would restore a file, the file still counts as changed.
    let dry = json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-d\n+a\n", "reason": "r", "dryRun": true});
    run.call("apply_patch", dry).await.ok();
    let answer = run.patch("--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+n\n").await.ok();
    let hash = run.diff_sha256().await;
    assert_eq!(answer["newWorkspaceDiffSha256"], json!(hash));
    // The tree is not looked at.
    run.put("outside.txt", "y\n");
    let dry = json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-d\n+a\n", "reason": "r", "dryRun": true});
    run.call("apply_patch", dry).await.ok();
    let back = json!({"patch": "--- a/n.txt\n+++ b/n.txt\n@@ -1 +1,2 @@\n n\n+m\n", "reason": "r", "dryRun": true});
    let dry = run.call("apply_patch", back).await.ok();
    std::fs::remove_file(run.repo.join("outside.txt")).unwrap();
    run.patch("--- a/n.txt\n+++ b/n.txt\n@@ -1 +1,2 @@\n n\n+m\n").await.ok();
    assert_eq!(dry["newWorkspaceDiffSha256"], json!(run.diff_sha256().await));
}

#[rstest]
#[tokio::test]
async fn the_patch_transforms_the_base_into_the_tree(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "one\ntwo"), ("gone.txt", "g\n"), (".env", "A=1\n")]).await;
    let empty = get(&run, "patch").await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    run.replace("a.txt", "one\n2", &sha256("one\ntwo")).await.ok();
    run.create("new/n.txt", "n\n").await;
    run.ok("delete_file", json!({"path": "gone.txt", "expectedSha256": sha256("g\n"), "reason": "r"})).await;
    run.put(".env", "A=2\n");
    let patch = get(&run, "patch").await;
    assert!(patch.header("content-type").starts_with("text/x-diff"));
    assert!(!patch.contains("A="), "{}", patch.text());
    let (folder, _) = server.repository(&[("a.txt", "one\ntwo"), ("gone.txt", "g\n")]);
    std::fs::write(folder.join("../p.diff"), &patch.body).unwrap();
    crate::harness::git(&folder, &["apply", "../p.diff"]);
    assert_eq!(std::fs::read_to_string(folder.join("a.txt")).unwrap(), "one\n2");
    assert_eq!(std::fs::read_to_string(folder.join("new/n.txt")).unwrap(), "n\n");
    assert!(!folder.join("gone.txt").exists());
    assert_eq!(run.last_record().await["tool"], "patch");
}

#[rstest]
#[tokio::test]
async fn git_replaces_a_binary_file_by_the_patch(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.bin", "a\0b")]).await;
    let (folder, _) = server.repository(&[("a.txt", "a\n"), ("b.bin", "a\0b")]);
    put(&run, "b.bin", Some(b"a\0b"), b"a\0c").await;
    std::fs::write(folder.join("../p.diff"), &get(&run, "patch").await.body).unwrap();
    crate::harness::git(&folder, &["apply", "../p.diff"]);
    assert_eq!(std::fs::read(folder.join("b.bin")).unwrap(), b"a\0c");
}

#[rstest]
#[tokio::test]
async fn a_batch_runs_its_calls_one_by_one(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let path = format!("/v1/runs/{}/batch", run.id);
    let calls = json!([
        {"tool": "write_file", "input": {"path": "n.txt", "content": "n\n", "reason": "r", "toolCallId": "w"}},
        {"tool": "read_file", "input": {"path": "n.txt", "format": "raw"}},
        {"tool": "read_file", "input": {"path": "none.txt"}},
        {"tool": "no_tool"},
        {"tool": "read_file", "input": {"path": "a.txt"}},
    ]);
    let done = run.agent.post(&path, json!({"calls": calls})).await.ok();
    let statuses: Vec<_> = done["results"].as_array().unwrap().iter().map(|one| one["status"].clone()).collect();
    assert_eq!(json!(statuses), json!([200, 200, 404, 404, 200]));
    assert_eq!((&done["ok"], &done["skipped"]), (&json!(false), &json!(0)));
    assert_eq!(done["results"][0]["answer"]["toolCallId"], "w");
    assert_eq!(done["results"][1]["answer"]["content"], "n\n");
    assert_eq!(done["results"][2]["answer"]["code"], "NOT_FOUND");
    assert_eq!(done["results"][3]["answer"]["code"], "TOOL_NOT_FOUND");
    assert_eq!(run.calls().await.len(), 4, "each call of a known tool has a record");
    let stopped = run.agent.post(&path, json!({"calls": calls, "stopOnError": true})).await.ok();
    assert_eq!((stopped["results"].as_array().unwrap().len(), &stopped["skipped"]), (3, &json!(2)));
    assert_eq!(stopped["results"][0]["answer"]["seq"], done["results"][0]["answer"]["seq"], "a replay");
    let many: Vec<_> = (0..101).map(|_| json!({"tool": "list_dir"})).collect();
    for body in [json!({"calls": []}), json!({"calls": many}), json!({"calls": calls, "atomic": 1}), json!({})] {
        run.agent.post(&path, body).await.refused("INVALID_REQUEST");
    }
}
