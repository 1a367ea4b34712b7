//! Atomic batches: calls that are applied as one change, each with its own record.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, assert_chain, sha256, until_empty, without_instances};

fn call(tool: &str, input: impl Into<Value>) -> Value {
    json!({"tool": tool, "input": input.into()})
}

/// Returns a call that creates the file at `path`.
fn write(id: &str, path: &str, content: &str) -> Value {
    call("write_file", json!({"toolCallId": id, "path": path, "content": content, "reason": format!("why {id}")}))
}

fn statuses(response: &Value) -> Vec<u64> {
    response["results"].as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect()
}

fn codes(response: &Value) -> Vec<&str> {
    let code = |one: &'_ Value| -> &'static str { one["answer"]["code"].as_str().unwrap_or("").to_owned().leak() };
    response["results"].as_array().unwrap().iter().map(code).collect()
}

/// Returns calls of every kind, each of which depends on the calls before it.
fn dependent_calls() -> Value {
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n--- /dev/null\n+++ b/made/p.txt\n@@ -0,0 +1 @@\n+p\n";
    let edit = |id: &str, path: &str, old: &str, new: &str| {
        let input = json!({"toolCallId": id, "path": path, "oldString": old, "newString": new, "reason": "r"});
        call("edit_file", input)
    };
    json!([
        call("list_dir", json!({})),
        write("c1", "n.txt", "alpha beta\n"),
        edit("c2", "n.txt", "alpha", "gamma"),
        edit("c3", "./n.txt", "beta", "delta"),
        call("read_file", json!({"toolCallId": "c4", "path": "n.txt", "format": "raw"})),
        call("apply_patch", json!({"toolCallId": "c5", "patch": patch, "reason": "r"})),
        edit("c6", "made/p.txt", "p", "P"),
        call(
            "move_file",
            json!({"toolCallId": "c7", "from": "made/p.txt", "to": "moved.txt",
            "expectedSha256": sha256("P\n"), "reason": "r"})
        ),
        call(
            "delete_file",
            json!({"toolCallId": "c8", "path": "gone.txt", "expectedSha256": sha256("g\n"), "reason": "r"})
        ),
        call("stat_path", json!({"path": "gone.txt"})),
        write("c9", "passing.txt", "x\n"),
        call(
            "delete_file",
            json!({"toolCallId": "c10", "path": "passing.txt", "expectedSha256": sha256("x\n"), "reason": "r"})
        ),
    ])
}

const FILES: [(&str, &str); 3] = [("a.txt", "one\ntwo\n"), ("gone.txt", "g\n"), ("kept.txt", "k\n")];

#[rstest]
#[tokio::test]
async fn calls_build_on_each_other_and_are_applied_together(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let response = run.batch(dependent_calls()).await.ok();
    assert_eq!(statuses(&response), [200; 12], "{response:#}");
    assert_eq!((&response["ok"], response.get("failedCall")), (&json!(true), None));
    assert_eq!(response["results"][4]["answer"]["content"], "gamma delta\n");
    assert_eq!(response["results"][9]["answer"]["exists"], false);
    assert_eq!((run.on_disk("n.txt"), run.on_disk("a.txt")), ("gamma delta\n".into(), "one\n2\n".into()));
    assert_eq!(run.on_disk("moved.txt"), "P\n");
    assert_chain(&run.id, &run.audit().await);
    let records = run.calls().await;
    assert_eq!(records.len(), 12);
    let tools: Vec<_> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(tools[..5], ["list_dir", "write_file", "edit_file", "edit_file", "read_file"]);
    let second = &records[2]["files"][0];
    assert_eq!(
        (&second["oldSha256"], &second["newSha256"]),
        (&json!(sha256("alpha beta\n")), &json!(sha256("gamma beta\n")))
    );
    for (index, record) in records.iter().enumerate().filter(|(_, record)| record["mutates"] == true) {
        let answer = &response["results"][index]["answer"];
        assert_eq!((&answer["seq"], &answer["toolCallId"]), (&record["seq"], &record["toolCallId"]));
        let diff = run.artifact(answer["artifactUris"][0].as_str().unwrap()).await;
        assert!(diff.starts_with("diff --git "), "{diff}");
    }
    assert!(
        run.artifact(response["results"][3]["answer"]["artifactUris"][0].as_str().unwrap())
            .await
            .contains("-gamma beta")
    );
    for gone in ["gone.txt", "made/p.txt", "passing.txt"] {
        assert!(!run.has(gone).await, "{gone}");
    }
    // The diff hash of the patch excludes later calls. A patch after the batch includes them.
    let last = run.patch("--- a/kept.txt\n+++ b/kept.txt\n@@ -1 +1 @@\n-k\n+K\n").await.ok();
    assert_eq!(last["newWorkspaceDiffSha256"], json!(run.diff_sha256().await));
}

#[rstest]
#[tokio::test]
async fn a_repeated_batch_gets_the_first_answer(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let first = run.batch(dependent_calls()).await.ok();
    let (tree, records) = (run.snapshot(), run.audit().await);
    let again = run.batch(dependent_calls()).await.ok();
    for index in [1, 2, 3, 5, 6, 7, 8, 10, 11] {
        assert_eq!(again["results"][index], first["results"][index]);
    }
    assert_eq!(run.snapshot(), tree);
    let more = run.audit().await.split_off(records.len());
    assert!(
        more.iter().all(|record| record["mutates"] == false) && more.len() == 3,
        "reads are executed again: {more:#?}"
    );
    // A call of the batch can be repeated by itself.
    let single = json!({"toolCallId": "c1", "path": "n.txt", "content": "alpha beta\n", "reason": "why c1"});
    assert_eq!(run.ok("write_file", single).await, first["results"][1]["answer"]);
    // A recorded call cannot be part of another batch.
    let mixed = run.batch(json!([write("new", "x.txt", "x\n"), write("c1", "n.txt", "alpha beta\n")])).await.ok();
    assert_eq!(codes(&mixed), ["BATCH_NOT_DONE", "TOOL_CALL_ID_REUSED"], "{mixed:#}");
    let other = run.batch(json!([write("new-2", "x.txt", "x\n"), write("c1", "n.txt", "other\n")])).await.ok();
    assert_eq!((codes(&other), &other["failedCall"]), (vec!["BATCH_NOT_DONE", "TOOL_CALL_ID_REUSED"], &json!(1)));
    assert_eq!(run.snapshot(), tree);
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn a_failing_third_call_leaves_nothing_of_the_first_two(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let before = run.snapshot();
    let calls = |bad: Value| {
        json!([
            write("w1", "x/1.txt", "1\n"),
            call("read_file", json!({"path": "a.txt"})),
            bad,
            write("w4", "4.txt", "4\n")
        ])
    };
    let stale = call(
        "write_file",
        json!({"toolCallId": "w3", "path": "a.txt", "content": "3\n", "reason": "r",
        "expectedSha256": sha256("stale")}),
    );
    let response = run.batch(calls(stale.clone())).await.ok();
    assert_eq!(statuses(&response), [424, 424, 409, 424], "{response:#}");
    assert_eq!((&response["ok"], &response["failedCall"]), (&json!(false), &json!(2)));
    assert_eq!(codes(&response), ["BATCH_NOT_DONE", "BATCH_NOT_DONE", "WRITE_CONFLICT", "BATCH_NOT_DONE"]);
    assert_eq!(response["results"][2]["answer"]["currentSha256"], sha256("one\ntwo\n"));
    let first = &response["results"][0]["answer"];
    assert!(first["message"].as_str().unwrap().contains("call 2") && first["hint"].is_string(), "{first:#}");
    assert_eq!(run.snapshot(), before);
    assert_chain(&run.id, &run.audit().await);
    let records = run.calls().await;
    assert_eq!(records.len(), 4);
    for (record, result) in records.iter().zip(response["results"].as_array().unwrap()) {
        assert_eq!((&record["outcome"], &record["code"]), (&json!("refused"), &result["answer"]["code"]));
        assert_eq!(
            (&record["seq"], &record["toolCallId"]),
            (&result["answer"]["seq"], &result["answer"]["toolCallId"])
        );
        assert_eq!(record["pathsWritten"], json!([]));
    }
    assert_eq!(run.get().await["counts"]["mutations"], 0);
    // A repeated batch gets the same answer and applies nothing.
    let again = run.batch(calls(stale)).await.ok();
    assert_eq!(
        (statuses(&again), &again["failedCall"]),
        (vec![424, 200, 409, 424], &json!(2)),
        "reads are executed again"
    );
    assert_eq!(without_instances(&again["results"][2]), without_instances(&response["results"][2]));
    for (bad, status, code) in [
        (
            json!({"tool": "write_file", "input": {"path": ".env", "content": "x", "reason": "r"}}),
            403,
            "POLICY_DENIED_SECRET",
        ),
        (json!({"tool": "write_file", "input": {"path": "../x", "content": "x", "reason": "r"}}), 400, "PATH_REJECTED"),
        (json!({"tool": "write_file", "input": {"path": "x"}}), 400, "INVALID_REQUEST"),
        (json!({"tool": "read_file", "input": {"path": "none.txt"}}), 404, "NOT_FOUND"),
        (
            json!({"tool": "edit_file", "input": {"path": "a.txt", "oldString": "none", "newString": "x", "reason": "r"}}),
            409,
            "EDIT_NOT_FOUND",
        ),
        (
            json!({"tool": "write_file", "input": {"path": "5/6.txt/7", "content": "", "reason": "r"}}),
            400,
            "NOT_A_DIRECTORY",
        ),
    ] {
        let calls = json!([
            {"tool": "write_file", "input": {"path": "5/6.txt", "content": "6\n", "reason": "r"}}, bad,
        ]);
        let response = run.batch(calls).await.ok();
        assert_eq!(
            (statuses(&response), codes(&response)),
            (vec![424, status], vec!["BATCH_NOT_DONE", code]),
            "{response:#}"
        );
    }
    assert_eq!(run.snapshot(), before);
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn budgets_apply_to_the_whole_batch(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"budget": {"maxFilesTouched": 2}, "runBudget": {"maxInsertions": 5}}});
    let (_server, run) = Run::shared_with(backend, &[], policy).await;
    let three = json!([write("a", "1.txt", "1\n"), write("b", "2.txt", "2\n"), write("c", "3.txt", "3\n")]);
    let response = run.batch(three).await.ok();
    assert_eq!(codes(&response), ["BATCH_NOT_DONE", "BATCH_NOT_DONE", "PATCH_BUDGET_EXCEEDED"], "{response:#}");
    assert_eq!(response["results"][2]["answer"]["reasons"], json!(["budget:maxFilesTouched"]));
    let edit = |old: &str, new: &str| {
        call("edit_file", json!({"path": "1.txt", "oldString": old, "newString": new, "reason": "r"}))
    };
    // A file that changes several times counts once.
    let response = run
        .batch(json!([write("d", "1.txt", "1\n"), edit("1", "2"), edit("2", "3"), write("e", "2.txt", "2\n")]))
        .await;
    assert_eq!(response.ok()["ok"], true, "{}", response.text());
    let response = run.batch(json!([edit("3", "4"), edit("4", "5")])).await.ok();
    assert_eq!(codes(&response), ["BATCH_NOT_DONE", "PATCH_BUDGET_EXCEEDED"], "{response:#}");
    assert_eq!(response["results"][1]["answer"]["reasons"], json!(["runBudget:maxInsertions"]));
    assert_eq!(run.batch(json!([edit("3", "4")])).await.ok()["ok"], true, "the rest of the budget is not available");
    assert_eq!(run.on_disk("1.txt"), "4\n");
}

#[rstest]
#[tokio::test]
async fn one_approval_covers_the_whole_batch(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("Cargo.lock", "old\n"), ("a.txt", "a\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    let calls = |name: &str| {
        json!([
            write(&format!("{name}-1"), &format!("{name}.txt"), "n\n"),
            call("read_file", json!({"path": "a.txt"})),
            call(
                "write_file",
                json!({"toolCallId": format!("{name}-2"), "path": "Cargo.lock", "content": format!("{name}\n"),
                "expectedSha256": sha256("old\n"), "reason": "bump"})
            ),
        ])
    };
    let decide = async |response: &Value, verb: &str| {
        let id = response["results"][0]["answer"]["approvalId"].as_str().unwrap();
        run.operator.post(&format!("/v1/approvals/{id}/{verb}"), json!({"decidedBy": "ada"})).await.ok()
    };
    let before = run.snapshot();
    let response = run.batch(calls("denied")).await.ok();
    assert_eq!((statuses(&response), &response["ok"]), (vec![202, 424, 202], &json!(false)), "{response:#}");
    assert_eq!(response["results"][0]["answer"]["approvalId"], response["results"][2]["answer"]["approvalId"]);
    assert_eq!(run.get().await["state"], "awaiting_approval");
    assert_eq!(decide(&response, "deny").await["state"], "denied");
    assert_eq!((run.snapshot(), run.get().await["state"].clone()), (before.clone(), json!("open")));
    let stale = run.batch(calls("stale")).await.ok();
    let response = run.batch(calls("approved")).await.ok();
    assert_eq!(run.snapshot(), before, "a pending batch was applied");
    let approved = decide(&response, "approve").await;
    assert_eq!((&approved["state"], &approved["tool"]), (&json!("approved"), &json!("batch")));
    assert_eq!(approved["reason"], "why approved-1\nbump");
    assert_eq!(approved["files"].as_array().unwrap().len(), 2);
    assert_eq!((run.on_disk("approved.txt"), run.on_disk("Cargo.lock")), ("n\n".into(), "approved\n".into()));
    for id in ["approved-1", "approved-2"] {
        let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/{id}?waitSeconds=5", run.id)).await.ok();
        assert_eq!((&call["outcome"], &call["actor"]), (&json!("ok"), &json!("operator:orchestrate")), "{call:#}");
        assert_eq!(call["approval"]["state"], "approved");
    }
    let tree = run.snapshot();
    assert_eq!(
        decide(&stale, "approve").await["state"],
        "failed",
        "an approval was granted although a file has changed"
    );
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/stale-1", run.id)).await.ok();
    assert_eq!(call["code"], "WRITE_CONFLICT", "{call:#}");
    assert_eq!((run.snapshot(), run.get().await["state"].clone()), (tree, json!("open")));
    let again = run.batch(calls("approved")).await.ok();
    let third = |response: &Value| without_instances(&response["results"][2]);
    let (mut again, mut first) = (third(&again), third(&response));
    assert_eq!(again["answer"]["resolution"], "approved (record 13)");
    for answer in [&mut again, &mut first] {
        // The hint says the resolution too.
        let answer = answer["answer"].as_object_mut().unwrap();
        answer.retain(|name, _| !["resolution", "hint"].contains(&name.as_str()));
    }
    assert_eq!(again, first, "a repetition got another answer");
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn a_dry_run_of_a_batch_changes_nothing_and_includes_every_call(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("Cargo.lock", "l\n")]).await;
    let dry = |path: &str, content: &str| {
        call("write_file", json!({"path": path, "content": content, "reason": "r", "dryRun": true}))
    };
    let before = run.snapshot();
    let edit = json!({"path": "n.txt", "oldString": "n", "newString": "m", "reason": "r", "dryRun": true});
    let response = run.batch(json!([dry("n.txt", "n\n"), call("edit_file", edit)])).await.ok();
    assert_eq!(statuses(&response), [200, 200], "{response:#}");
    assert_eq!(
        response["results"][1]["answer"]["oldSha256"],
        sha256("n\n"),
        "a call of a dry run ignores the call before it"
    );
    assert_eq!(response["results"][1]["answer"]["artifactUris"], json!([]));
    let response = run.batch(json!([dry("n.txt", "n\n"), dry("yarn.lock", "l\n")])).await.ok();
    assert_eq!(statuses(&response), [202, 202]);
    assert!(response["results"][0]["answer"].get("approvalId").is_none());
    let mixed = json!([dry("n.txt", "n\n"), write("w", "m.txt", "m\n")]);
    run.batch(mixed).await.refused("INVALID_REQUEST");
    assert_eq!((run.snapshot(), run.get().await["state"].clone()), (before, json!("open")));
}

#[rstest]
#[tokio::test]
async fn a_batch_is_validated_before_any_call_runs(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("d/b.txt", "b\n")]).await;
    run.link("link.txt", "a.txt");
    run.batch(json!([write("same", "1.txt", ""), write("same", "2.txt", "")])).await.refused("INVALID_REQUEST");
    let unknown = run.batch(json!([write("w", "1.txt", ""), {"tool": "no_tool"}])).await.refused("TOOL_NOT_FOUND");
    assert!(unknown["message"].as_str().unwrap().contains("call 1"), "{unknown:#}");
    assert!(run.calls().await.is_empty());
    let edit = || call("edit_file", json!({"path": "a.txt", "oldString": "a", "newString": "A", "reason": "r"}));
    // A read of files that do not change must precede the mutations or be in another batch.
    for (read, status) in [
        (call("list_dir", json!({})), 400),
        (call("search_text", json!({"query": "a"})), 400),
        (call("diff_workspace", json!({})), 400),
        (call("read_file", json!({"path": "link.txt"})), 400),
        (call("read_files", json!({"paths": ["a.txt", "d/b.txt"]})), 400),
        (call("list_dir", json!({"path": "d"})), 200),
        (call("read_file", json!({"path": "d/b.txt"})), 200),
    ] {
        let response = run.batch(json!([edit(), read])).await.ok();
        assert_eq!(response["results"][1]["status"], status, "{response:#}");
        if status == 200 {
            run.replace("a.txt", "a\n", &sha256("A\n")).await.ok();
        }
        assert_eq!(run.on_disk("a.txt"), "a\n");
    }
    let response = run.batch(json!([edit(), call("read_files", json!({"paths": ["a.txt", "./a.txt"]}))])).await.ok();
    assert_eq!(response["ok"], true, "{response:#}");
    assert!(response["results"][1]["answer"].to_string().contains(&sha256("A\n")), "{response:#}");
    // A missing permission for one call refuses the batch.
    let reader = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:read"]})).await;
    let mut reading = run.clone();
    reading.agent = run.agent.with_token(reader.is(201)["token"].as_str());
    let response =
        reading.batch(json!([call("read_file", json!({"path": "a.txt"})), write("w", "1.txt", "")])).await.ok();
    assert_eq!(codes(&response), ["BATCH_NOT_DONE", "FORBIDDEN"], "{response:#}");
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    let response = run.batch(json!([call("read_file", json!({"path": "a.txt"})), write("w2", "1.txt", "")])).await.ok();
    assert_eq!(codes(&response), ["BATCH_NOT_DONE", "RUN_CLOSED"], "{response:#}");
    assert_eq!(run.batch(json!([call("read_file", json!({"path": "a.txt"}))])).await.ok()["ok"], true);
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn a_kill_during_a_batch_is_atomic(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("transaction.staged", "transaction.committed", "transaction.applied")] failpoint: &str,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let before = run.snapshot();
    server.kill();
    server.setup.env = vec![("WORKSPACED_FAILPOINT".into(), failpoint.into())];
    server.restart();
    let run = server.reconnect(&run);
    let path = format!("/v1/runs/{}/batch", run.id);
    let body = json!({"atomic": true, "calls": dependent_calls()});
    let died = run.agent.try_send(run.agent.request(reqwest::Method::POST, &path).json(&body)).await;
    assert!(died.is_err(), "the server survived {failpoint}");
    server.wait();
    server.setup.env.clear();
    server.restart();
    let run = server.reconnect(&run);
    assert_chain(&run.id, &run.audit().await);
    let records = run.calls().await;
    if failpoint == "transaction.staged" {
        assert_eq!((run.snapshot(), records.len()), (before, 0));
    } else {
        assert_eq!(records.len(), 12, "{records:#?}");
        assert_eq!((run.on_disk("n.txt"), run.on_disk("moved.txt")), ("gamma delta\n".into(), "P\n".into()));
        assert!(!run.has("passing.txt").await);
    }
    assert_eq!(run.batch(dependent_calls()).await.ok()["ok"], true, "the repeated batch fails");
    assert_eq!(run.on_disk("n.txt"), "gamma delta\n");
    run.create("later.txt", "after the recovery\n").await;
    until_empty(&server.workspace(&run.id).join("tmp")).await;
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn calls_of_a_batch_can_be_read_historically_and_reverted(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let before = run.files();
    let response = run.batch(dependent_calls()).await.ok();
    let seq = |index: usize| response["results"][index]["answer"]["seq"].clone();
    for (index, content) in [(1, "alpha beta\n"), (2, "gamma beta\n"), (3, "gamma delta\n")] {
        let read = json!({"path": "n.txt", "format": "raw", "atSeq": seq(index)});
        assert_eq!(run.ok("read_file", read).await["content"], content, "after call {index}");
    }
    run.ok("revert_calls", json!({"toolCallIds": ["c3"], "reason": "r"})).await;
    assert_eq!(run.on_disk("n.txt"), "gamma beta\n");
    run.ok("revert_calls", json!({"toSeq": 0, "reason": "r"})).await;
    assert_eq!(run.files(), before);
    assert_eq!(run.verify().await["intact"], true);
}
