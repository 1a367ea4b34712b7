//! Idempotency: a `toolCallId` identifies one call of its run, and a repetition gets the same answer.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Server, exhaustive, sha256, without_instances};

fn write(id: &str, path: &str) -> Value {
    json!({"toolCallId": id, "path": path, "content": "x\n", "reason": "r"})
}

fn assert_same(first: &Answer, again: &Answer) {
    let (one, other) = (without_instances(&first.json()), without_instances(&again.json()));
    assert_eq!((first.status, one), (again.status, other), "{}", first.what);
}

#[rstest]
#[tokio::test]
async fn a_repeated_mutation_gets_the_first_answer_and_runs_once(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n"), ("Cargo.lock", "l\n")]).await;
    let lock = json!({"toolCallId": "p", "path": "Cargo.lock", "content": "m\n", "expectedSha256": sha256("l\n"), "reason": "r"});
    let mut dry = write("d", "dry.txt");
    dry["dryRun"] = json!(true);
    let calls = [
        ("write_file", write("ok", "new.txt")),
        ("write_file", write("conflict", "a.txt")),
        ("write_file", write("secret", ".env")),
        ("write_file", write("outside", "../x")),
        ("write_file", dry),
        ("write_file", lock),
        (
            "apply_patch",
            json!({"toolCallId": "patch", "patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n", "reason": "r"}),
        ),
        ("apply_patch", json!({"toolCallId": "junk", "patch": "junk", "reason": "r"})),
    ];
    let mut first = Vec::new();
    for (tool, input) in &calls {
        first.push(run.call(tool, input.clone()).await);
    }
    let statuses: Vec<_> = first.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 409, 403, 400, 200, 202, 200, 400]);
    let (tree, audit) = (run.snapshot(), run.audit().await);
    for (answer, record) in first.iter().zip(run.calls().await) {
        let body = answer.json();
        assert_eq!((&body["seq"], &body["headHash"]), (&record["seq"], &record["hash"]), "{}", answer.what);
    }
    // Later changes do not affect the repeated answer.
    run.put("a.txt", "three\n");
    std::fs::remove_file(run.repo.join("new.txt")).unwrap();
    for ((tool, input), first) in calls.iter().zip(&first) {
        assert_same(first, &run.call(tool, input.clone()).await);
    }
    assert!(!run.repo.join("new.txt").exists() && !run.repo.join("dry.txt").exists());
    assert_eq!(run.audit().await, audit, "a repetition left a record");
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 1);
    assert!(tree.contains_key("new.txt"));
}

#[rstest]
#[tokio::test]
async fn the_order_of_members_does_not_matter(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let post = |body: &'static str| {
        let path = format!("/v1/runs/{}/tools/write_file", run.id);
        let request =
            run.agent.request(reqwest::Method::POST, &path).header("content-type", "application/json").body(body);
        run.agent.send(request)
    };
    let first = post(r#"{"toolCallId":"o","path":"a.txt","content":"x","reason":"r"}"#).await;
    let again = post(r#" { "reason": "r", "content": "x", "toolCallId": "o", "path": "a.txt" } "#).await;
    first.ok();
    assert_same(&first, &again);
}

#[rstest]
#[tokio::test]
async fn an_id_belongs_to_one_tool_and_one_input(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    run.ok("write_file", write("w", "new.txt")).await;
    run.ok("read_file", json!({"toolCallId": "r", "path": "a.txt"})).await;
    let tree = run.snapshot();
    let mut dry = write("w", "new.txt");
    dry["dryRun"] = json!(true);
    for (tool, input) in [
        ("write_file", write("w", "other.txt")),
        ("write_file", dry),
        (
            "apply_patch",
            json!({"toolCallId": "w", "patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n", "reason": "r"}),
        ),
        ("read_file", json!({"toolCallId": "w", "path": "a.txt"})),
        ("read_file", json!({"toolCallId": "r", "path": "new.txt"})),
        ("list_dir", json!({"toolCallId": "r"})),
        ("write_file", write("r", "other.txt")),
    ] {
        run.call(tool, input).await.refused("TOOL_CALL_ID_REUSED");
    }
    assert_eq!(run.snapshot(), tree);
    let reused = run.audit().await.into_iter().filter(|record| record["code"] == "TOOL_CALL_ID_REUSED");
    assert_eq!(reused.count(), 7, "refused calls are recorded");
}

#[rstest]
#[tokio::test]
async fn a_repeated_read_is_executed_and_recorded_again(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    let read = json!({"toolCallId": "r", "path": "a.txt", "format": "raw"});
    assert_eq!(run.ok("read_file", read.clone()).await["content"], "one\n");
    run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    assert_eq!(run.ok("read_file", read).await["content"], "two\n");
    let seqs: Vec<_> = run
        .audit()
        .await
        .into_iter()
        .filter(|record| record["toolCallId"] == "r")
        .map(|record| record["seq"].clone())
        .collect();
    assert_eq!(seqs, [2, 4]);
}

#[rstest]
#[tokio::test]
async fn an_id_is_unique_per_run(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (one, other) = (server.run(json!({})).await, server.run(json!({})).await);
    one.ok("write_file", write("w", "a.txt")).await;
    other.ok("write_file", write("w", "b.txt")).await;
    assert!(other.repo.join("b.txt").exists());
}

#[rstest]
#[tokio::test]
async fn a_replay_needs_the_permission_of_the_call(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    run.ok("write_file", write("w", "a.txt")).await;
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    server.nobody().post(&path, write("w", "a.txt")).await.refused("UNAUTHENTICATED");
    for permission in ["file:read", "file:write:replace"] {
        let reader = run
            .operator
            .post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": [permission]}))
            .await
            .is(201);
        let reader = run.agent.with_token(reader["token"].as_str());
        reader.post(&path, write("w", "a.txt")).await.refused("FORBIDDEN");
    }
}

#[rstest]
#[tokio::test]
async fn concurrent_repetitions_run_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for round in 0..5 {
        let id = format!("at-once-{round}");
        let input = write(&id, &format!("f{round}.txt"));
        let answers = futures_util::future::join_all((0..8).map(|_| run.call("write_file", input.clone()))).await;
        for answer in &answers {
            assert_same(&answers[0], answer);
            answer.ok();
        }
        let records = run.audit().await.into_iter().filter(|record| record["toolCallId"] == id.as_str());
        assert_eq!(records.count(), 1);
    }
}

#[rstest]
#[tokio::test]
async fn answers_survive_a_restart(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    let done = run.call("write_file", write("w", "a.txt")).await;
    let refused = run.call("write_file", write("s", ".env")).await;
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    assert_same(&done, &run.call("write_file", write("w", "a.txt")).await);
    assert_same(&refused, &run.call("write_file", write("s", ".env")).await);
    run.call("write_file", write("w", "b.txt")).await.refused("TOOL_CALL_ID_REUSED");
}

#[rstest]
#[tokio::test]
async fn the_length_of_ids_is_limited(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for bad in [json!(""), json!("x".repeat(129)), json!(true), json!(["a"]), json!("a\u{0}"), json!("a\nb")] {
        run.call("list_dir", json!({"toolCallId": bad})).await.refused("INVALID_REQUEST");
    }
    let long = "ü".repeat(128);
    assert_eq!(run.ok("list_dir", json!({"toolCallId": long})).await["toolCallId"], long.as_str());
    // A number is taken as its digits where a text is wanted, so both forms name one call.
    for id in [json!(1), json!("1")] {
        assert_eq!(run.ok("list_dir", json!({"toolCallId": id})).await["toolCallId"], "1");
    }
    let step = run.ok("list_dir", json!({"stepId": "step 1"})).await;
    assert!(step["toolCallId"].as_str().unwrap().starts_with("tc_"));
    assert_eq!(run.last_record().await["stepId"], "step 1");
}

#[rstest]
#[tokio::test]
async fn no_new_id_is_a_step_in_a_path(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    for step in [".", ".."] {
        let read = json!({"path": "a.txt", "toolCallId": step});
        run.call("read_file", read.clone()).await.refused("INVALID_REQUEST");
        let write = json!({"path": "b.txt", "content": "b\n", "reason": "r", "toolCallId": step});
        run.call("write_file", write).await.refused("INVALID_REQUEST");
        let batch = run.batch(json!([{"tool": "read_file", "input": read}])).await.ok();
        assert_eq!(batch["results"][0]["answer"]["code"], "INVALID_REQUEST", "{batch:#}");
        let event = json!({"kind": "message", "summary": "s", "eventId": step});
        run.operator.post(&format!("/v1/runs/{}/events", run.id), event).await.refused("INVALID_REQUEST");
        let new = json!({"runId": step, "source": {"type": "empty"}});
        run.operator.post("/v1/runs", new).await.refused("INVALID_REQUEST");
        let operator = json!({"name": step, "scopes": ["audit"]});
        run.operator.post("/v1/operators", operator).await.refused("INVALID_REQUEST");
        let mount = json!({"source": {"type": "empty"}, "mounts": [{"name": step, "description": "d", "path": "x"}]});
        run.operator.post("/v1/runs", mount).await.refused("INVALID_REQUEST");
    }
    run.ok("read_file", json!({"path": "a.txt", "toolCallId": "..."})).await;
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/...", run.id)).await.ok();
    assert_eq!(call["toolCallId"], "...");
}

/// Stores a file under the call ID `id`.
async fn put_file(run: &Run, id: &str, path: &str, body: Vec<u8>) -> Answer {
    let request = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id));
    let request = request.header("x-tool-call-id", id).header("x-reason", "r").header("if-none-match", "*");
    run.agent.send(request.body(body)).await
}

#[rstest]
#[tokio::test]
async fn two_requests_at_once_under_one_id_are_one_call_and_a_reused_id(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let policy = json!({"policy": {"budget": {"maxBytes": 8 << 20}}});
    let run = server.run_with_files(&[("a.txt", "a\n")], policy).await;
    for round in 0..12 {
        let (id, run) = (format!("both-{round}"), &run);
        let write = |path: &str| json!({"toolCallId": id, "path": path, "content": "x\n", "reason": "r"});
        let [x, y] = ["x", "y"].map(|name| format!("{name}-{round}.txt"));
        let (one, other) = match round % 4 {
            0 => tokio::join!(run.call("write_file", write(&x)), run.call("write_file", write(&y))),
            1 => {
                tokio::join!(run.call("write_file", write(&x)), put_file(run, &id, &y, b"y\n".to_vec()))
            }
            2 => tokio::join!(put_file(run, &id, &x, vec![b'x'; 2 << 20]), put_file(run, &id, &x, vec![b'y'; 2 << 20])),
            // Both are refused.
            _ => tokio::join!(
                run.call("write_file", write("../x")),
                run.call("write_file", json!({"toolCallId": id, "path": "../y", "content": "x\n", "reason": "r"}))
            ),
        };
        let reused = [&one, &other].into_iter().filter(|answer| answer.status == 409).collect::<Vec<_>>();
        assert_eq!(reused.len(), 1, "round {round}: {} {}", one.text(), other.text());
        reused[0].refused("TOOL_CALL_ID_REUSED");
        let statuses = [one.status, other.status];
        let is_other = |status: &u16| matches!((status, round % 4), (200 | 201, 0..=2) | (400, 3));
        assert!(statuses.iter().any(is_other), "round {round}: {} {}", one.text(), other.text());
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_refused_upload_is_refused_again_with_the_same_answer(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"maxTransferBytes": 3 << 20, "budget": {"maxBytes": 8 << 20}}});
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], policy).await;
    let uploads = [
        ("path", "..%2Fx", vec![b'x'; 10], 400),
        ("windows", "a%5Cb", vec![b'x'; 2 << 20], 400),
        ("secret", ".env", vec![b'x'; 10], 403),
        ("large secret", "id_rsa", vec![b'x'; 2 << 20], 403),
        ("exists", "a.txt", vec![b'x'; 10], 412),
        ("too large", "large.bin", vec![b'x'; 4 << 20], 413),
    ];
    for (id, path, body, _) in &uploads {
        put_file(&run, &id.replace(' ', "-"), path, body.clone()).await;
    }
    let mut first = Vec::new();
    for (id, path, body, _) in &uploads {
        first.push(put_file(&run, &id.replace(' ', "-"), path, body.clone()).await);
    }
    for ((id, path, body, status), first) in uploads.iter().zip(&first) {
        let again = put_file(&run, &id.replace(' ', "-"), path, body.clone()).await;
        assert_same(first, &again);
        assert_eq!(again.status, *status, "{id}: {}", again.text());
        assert!(!again.text().contains("earlier attempt"), "{id}: {}", again.text());
    }
    // Another upload under the ID of a refused one is another call.
    put_file(&run, "too-large", "large.bin", vec![b'y'; 2 << 20]).await.refused("TOOL_CALL_ID_REUSED");
}

#[rstest]
#[tokio::test]
async fn a_call_of_a_deleted_run_is_refused_again_with_the_same_answer(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    run.call("write_file", write("done", "done.txt")).await.ok();
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    let first = run.call("write_file", write("late", "late.txt")).await;
    first.refused("RUN_CLOSED");
    assert_same(&first, &run.call("write_file", write("late", "late.txt")).await);
    put_file(&run, "upload", "u.txt", b"u\n".to_vec()).await.refused("RUN_CLOSED");
    put_file(&run, "upload", "u.txt", b"u\n".to_vec()).await.refused("RUN_CLOSED");
    // A call that was done is not repeated, and its answer named files that are gone.
    run.call("write_file", write("done", "done.txt")).await.refused("RUN_CLOSED");
}
