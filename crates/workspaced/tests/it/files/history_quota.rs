//! The quota of a run's history: what its calls, reads included, add to the database and to the object store.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Server, Setup, exhaustive, incompressible};

fn read() -> Value {
    json!({"path": "a.txt"})
}

fn write(path: &str, bytes: &[u8]) -> Value {
    let text = base16ct::lower::encode_string(bytes);
    json!({"path": path, "content": text, "mode": "CREATE_NEW", "reason": "r"})
}

async fn history(run: &Run) -> u64 {
    run.get().await["disk"]["historyBytes"].as_u64().unwrap()
}

/// Returns the bound and the sum of a refusal by the quota.
#[track_caller]
fn exceeded(answer: &Answer, reason: &str) -> (u64, u64) {
    let problem = answer.refused("QUOTA_EXCEEDED");
    assert_eq!((&problem["status"], &problem["reasons"]), (&json!(507), &json!([reason])), "{problem:#}");
    (problem["limit"].as_u64().unwrap(), problem["actual"].as_u64().unwrap())
}

async fn export(run: &Run) -> Answer {
    run.agent.get(&format!("/v1/runs/{}/patch", run.id)).await
}

#[rstest]
#[tokio::test]
async fn reads_and_writes_count_until_the_history_is_full(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let quota = json!({"policy": {"quota": {"maxHistoryBytes": 60_000}}});
    let run = server.run_with_files(&[("a.txt", "a\n")], quota).await;
    let first = history(&run).await;
    run.ok("read_file", read()).await;
    let of_read = history(&run).await - first;
    assert!((200..3000).contains(&of_read), "{of_read}");
    // A content that compression leaves as large, in its diff.
    run.ok("write_file", write("b.txt", &incompressible(20_000))).await;
    let of_write = history(&run).await - first - of_read;
    assert!((20_000..50_000).contains(&of_write), "{of_write}");
    let (limit, actual) =
        exceeded(&run.call("write_file", write("c.txt", &incompressible(40_000))).await, "quota:maxHistoryBytes");
    assert!(limit == 60_000 && actual > 60_000, "{actual}");
    assert!(!run.repo.join("c.txt").exists());
    // What is smaller still fits, and reads fill the rest.
    run.ok("write_file", write("d.txt", b"d")).await;
    let mut reads = 0;
    let full = loop {
        let answer = run.call("read_file", read()).await;
        if answer.status != 200 {
            break answer;
        }
        reads += 1;
        assert!(reads < 200, "{}", history(&run).await);
    };
    assert_eq!(exceeded(&full, "quota:maxHistoryBytes").0, 60_000);
    assert!(history(&run).await < 70_000);
    let record = run.last_record().await;
    assert_eq!((&record["code"], &record["outcome"]), (&json!("QUOTA_EXCEEDED"), &json!("refused")));
    for answer in [run.call("write_file", write("e.txt", b"e")).await, export(&run).await] {
        exceeded(&answer, "quota:maxHistoryBytes");
    }
    // The counts are in the ledger.
    let before = history(&run).await;
    server.stop();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(history(&run).await, before);
    exceeded(&run.call("read_file", read()).await, "quota:maxHistoryBytes");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_full_run_answers_without_growing_and_locks_no_operator_out(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let policy = json!({"policy": {"quota": {"maxRecords": 5}}});
    let run = server.run_with_files(&[("a.txt", "a\n"), ("Cargo.lock", "l\n")], policy).await;
    let lock = json!({"path": "x/Cargo.lock", "content": "m\n", "mode": "CREATE_NEW", "reason": "an update"});
    let asked = run.call("write_file", lock).await;
    let approval = asked.refused("APPROVAL_REQUIRED")["approvalId"].as_str().unwrap().to_owned();
    while run.get().await["headSeq"].as_u64().unwrap() < 5 {
        run.ok("read_file", read()).await;
    }
    let mut recorded = 0;
    let last = loop {
        let answer = run.call("read_file", read()).await;
        assert_eq!(exceeded(&answer, "quota:maxRecords").0, 5);
        if answer.json()["seq"].is_null() {
            break answer;
        }
        recorded += 1;
        assert!(recorded <= 100);
    };
    assert_eq!(recorded, 100);
    assert!(last.text().contains("is not recorded"), "{}", last.text());
    let head = run.get().await;
    let secret = json!({"path": "nothing/here", "oldString": "a", "newString": "b", "reason": "r"});
    for answer in [
        run.call("read_file", read()).await,
        run.call("write_file", write("e.txt", b"e")).await,
        // Not even whether a file exists.
        run.call("edit_file", secret).await,
        export(&run).await,
    ] {
        exceeded(&answer, "quota:maxRecords");
        assert!(answer.json()["seq"].is_null(), "{answer:?}");
    }
    let calls = json!({"calls": [{"tool": "read_file", "input": read()}], "atomic": true});
    let batch = run.agent.post(&format!("/v1/runs/{}/batch", run.id), calls).await;
    assert!(batch.text().contains("QUOTA_EXCEEDED"), "{batch:?}");
    let event = json!({"kind": "note", "data": {"text": "x"}});
    run.agent.post(&format!("/v1/runs/{}/events", run.id), event).await;
    let now = run.get().await;
    assert_eq!((&now["headSeq"], &now["disk"]), (&head["headSeq"], &head["disk"]));
    let metrics = server.nobody().get("/metrics").await.text();
    assert!(!metrics.contains("workspaced_unrecorded_refusals_total 0"), "{metrics}");
    // People read, export, decide and end the run.
    assert_eq!(run.operator.get(&format!("/v1/runs/{}/patch", run.id)).await.status, 200);
    run.operator.post(&format!("/v1/approvals/{approval}/deny"), json!({"decidedBy": "someone"})).await.ok();
    run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    assert_eq!(run.verify().await["intact"], true);
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
}

#[rstest]
#[tokio::test]
async fn an_answer_that_was_stored_before_the_history_was_full_is_given_again(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_server, run) =
        Run::shared_with(backend, &[("a.txt", "a\n")], json!({"policy": {"quota": {"maxRecords": 3}}})).await;
    let mut input = write("b.txt", b"b");
    input["toolCallId"] = json!("tc-b");
    while run.get().await["headSeq"].as_u64().unwrap() < 2 {
        run.ok("read_file", read()).await;
    }
    let first = run.ok("write_file", input.clone()).await;
    assert_eq!(run.ok("write_file", input).await, first);
    exceeded(&run.call("write_file", write("c.txt", b"c")).await, "quota:maxRecords");
}

#[rstest]
#[tokio::test]
async fn the_history_of_all_runs_counts_in_the_limit_of_the_disk(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start_with(Setup::new(backend).arg("--max-disk-bytes", 30_000)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let mut reads = 0;
    let full = loop {
        let answer = run.call("read_file", read()).await;
        if answer.status != 200 {
            break answer;
        }
        reads += 1;
        assert!(reads < 300, "{}", history(&run).await);
    };
    let (limit, actual) = exceeded(&full, "maxDiskBytes");
    assert!(limit == 30_000 && (30_000..40_000).contains(&actual), "{actual}");
    assert_eq!(run.operator.get(&format!("/v1/runs/{}/patch", run.id)).await.status, 200);
}
