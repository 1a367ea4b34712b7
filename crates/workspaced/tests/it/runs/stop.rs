//! `POST /v1/runs/{run}/stop`: an agent is stopped with one call, and its run stays for who looks at it.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Runner, assert_chain, items};

#[rstest]
#[tokio::test]
async fn stop_revokes_all_tokens_and_ends_commands_but_leaves_the_run_open(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("Cargo.lock", "l\n")]).await;
    let path = |rest: &str| format!("/v1/runs/{}{rest}", run.id);
    let second = run.operator.post(&path("/tokens"), json!({"permissions": ["file:read"]})).await.is(201);
    let second = run.agent.with_token(second["token"].as_str());
    let other = server.run(json!({})).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    second.post(&path("/tools/read_file"), json!({"path": "a.txt"})).await.ok();
    // A command that runs, and one that waits for the runner.
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let begin = |id: &'static str| {
        let run = run.clone();
        tokio::spawn(async move { run.call("run_command", json!({"toolCallId": id, "command": "sleep 9"})).await })
    };
    let running = begin("c1");
    runner.next().await;
    let waiting = begin("c2");

    for body in [json!({}), json!({"reason": " "}), json!({"reason": "x".repeat(2001)}), json!({"reason": "x", "a": 1})]
    {
        run.operator.post(&path("/stop"), body).await.refused("INVALID_REQUEST");
    }
    run.agent.post(&path("/stop"), json!({"reason": "me"})).await.refused("FORBIDDEN");
    server.auditor().post(&path("/stop"), json!({"reason": "me"})).await.refused("FORBIDDEN");
    let secret = format!("ghp_{}", "a1".repeat(18));
    let reason = format!("it reads files that it has no business with {secret}");
    let stopped = run.operator.post(&path("/stop"), json!({"reason": reason})).await.ok();
    assert_eq!(stopped["state"], "open", "{stopped:#}");
    let ended = running.await.unwrap().refused("UNAVAILABLE");
    assert!(ended["detail"].as_str().unwrap().starts_with("an operator has stopped the agent"), "{ended:#}");
    // It may have come after the stop.
    let ended = waiting.await.unwrap();
    assert!(ended.status == 503 || ended.status == 401, "{}", ended.text());
    for client in [&run.agent, &second] {
        client.post(&path("/tools/read_file"), json!({"path": "a.txt"})).await.refused("UNAUTHENTICATED");
    }
    assert_eq!(runner.ask(0, Some("c1")).await.status, 401);
    other.ok("list_dir", json!({})).await;

    let records = run.operator.get(&path("/audit?limit=1000")).await.ok();
    let records = records["items"].as_array().unwrap();
    let stops: Vec<_> = records.iter().filter(|record| record["tool"] == "run.stop").collect();
    let [stop] = stops[..] else { panic!("{stops:#?}") };
    assert!(stop["reason"].as_str().unwrap().starts_with("it reads files that it has no business with [redacted"));
    assert_eq!((&stop["by"], &stop["mutates"]), (&json!("operator"), &json!(false)));
    let tokens = items(&run.operator, &path("/tokens")).await;
    assert_eq!(tokens.len(), 3);
    assert!(tokens.iter().all(|token| token["revokedAt"] == stop["timestamp"]), "{tokens:#?}");
    assert_chain(&run.id, records);

    // Operators go on, and may give it to another agent.
    let reads = run.operator.post(&path("/tools/read_file"), json!({"path": "a.txt"})).await.ok();
    assert_eq!(reads["path"], "a.txt");
    let next = run.operator.post(&path("/tokens"), json!({})).await.is(201);
    let next = run.agent.with_token(next["token"].as_str());
    next.post(&path("/tools/read_file"), json!({"path": "a.txt"})).await.ok();
    let tokens = items(&run.operator, &path("/tokens")).await;
    assert_eq!(tokens[3].get("revokedAt"), None, "{tokens:#?}");
    assert_eq!(run.operator.get(&path("/audit/verify")).await.ok()["intact"], true);
    // Again, and for a run that is closed, but not for one that is deleted.
    run.operator.post(&path("/close"), json!({})).await.ok();
    assert_eq!(run.operator.post(&path("/stop"), json!({"reason": "again"})).await.ok()["state"], "closed");
    next.post(&path("/tools/read_file"), json!({"path": "a.txt"})).await.refused("UNAUTHENTICATED");
    run.operator.delete(&path("")).await.ok();
    run.operator.post(&path("/stop"), json!({"reason": "again"})).await.refused("RUN_CLOSED");
    run.operator.post("/v1/runs/none/stop", json!({"reason": "r"})).await.refused("RUN_NOT_FOUND");
}
