//! Nodes that are cut off or killed while they are used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::fault_runs::link::{Link, Way};
use super::{LEASE, ROLES, prepare, start, start_at};
use crate::harness::{Answer, Server, assert_chain, free_port, items, sha256, until};

/// Starts two nodes. The second one reaches the first through the returned link.
async fn two_with_link() -> ([Server; 2], Link) {
    let mut first = prepare(None).await;
    let listen = format!("127.0.0.1:{}", free_port());
    let link = Link::start(listen.clone()).await;
    start_at(&mut first, &listen, &format!("http://{}", link.address));
    let mut second = prepare(Some(&first)).await;
    start(&mut second);
    ([first, second], link)
}

#[tokio::test]
async fn a_node_that_does_not_reach_the_owner_answers_for_nobody() {
    let ([first, second], link) = two_with_link().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    away.ok("read_file", json!({"path": "a.txt"})).await;
    link.set(Way::Cut);
    // Longer than a lease: the owner is alive, so that nobody takes the run.
    let until = Instant::now() + LEASE + Duration::from_secs(2);
    while Instant::now() < until {
        let refused = away.call("read_file", json!({"path": "a.txt"})).await;
        refused.refused("UNAVAILABLE");
        assert!(!refused.header("retry-after").is_empty());
        run.ok("read_file", json!({"path": "a.txt"})).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    link.set(Way::Open);
    away.create("b.txt", "b\n").await;
    assert_eq!(run.on_disk("b.txt"), "b\n");
    assert_chain(&run.id, &run.audit().await);
}

#[tokio::test]
async fn a_caller_does_not_wait_for_an_owner_that_is_alive_and_does_not_answer() {
    let ([first, second], link) = two_with_link().await;
    let run = first.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    let away = second.reconnect(&run);
    let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    let asked = away.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    // One request is with the owner already, which waits for an approval: that may take longer than an answer.
    let call = asked["toolCallId"].as_str().unwrap();
    let path = format!("/v1/runs/{}/tool-calls/{call}?waitSeconds=20", run.id);
    let waiting = away.operator.get(&path);
    let after = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        link.set(Way::Silent);
        let started = Instant::now();
        let refused = away.call("read_file", json!({"path": "Cargo.lock"})).await;
        refused.refused("UNAVAILABLE");
        assert!(!refused.header("retry-after").is_empty());
        assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    };
    let started = Instant::now();
    let (waited, ()) = tokio::join!(waiting, after);
    waited.refused("UNAVAILABLE");
    assert!(started.elapsed() > Duration::from_secs(8) && started.elapsed() < Duration::from_secs(19));
    link.set(Way::Cut);
    link.set(Way::Open);
    until_answered(|| async { Some(away.call("read_file", json!({"path": "Cargo.lock"})).await) }).await.ok();
}

#[tokio::test]
async fn calls_over_a_way_that_is_cut_again_and_again_run_once() {
    let ([first, second], link) = two_with_link().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let link = Arc::new(link);
    let cutter = {
        let link = Arc::clone(&link);
        tokio::spawn(async move {
            for cut in 0..60_u64 {
                tokio::time::sleep(Duration::from_millis(20 + cut * 7 % 60)).await;
                link.set(if cut % 2 == 1 { Way::Open } else { Way::Cut });
            }
            link.set(Way::Open);
        })
    };
    let away = second.reconnect(&run);
    let mut acknowledged = Vec::new();
    let mut number = 0;
    while !cutter.is_finished() || number < 10 {
        let id = format!("call-{number}");
        let input = json!({"path": format!("{number}.txt"), "content": "x\n", "mode": "CREATE_NEW", "reason": "r",
            "toolCallId": id});
        let answer = until_answered(|| async { Some(away.call("write_file", input.clone()).await) }).await;
        acknowledged.push((id, answer.ok()["seq"].clone()));
        number += 1;
    }
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    for (id, seq) in acknowledged {
        let of_call: Vec<_> = records.iter().filter(|record| record["toolCallId"] == id.as_str()).collect();
        assert_eq!(of_call.len(), 1, "{id}");
        assert_eq!(of_call[0]["seq"], seq, "{id}");
    }
}

/// Repeats a request, which must be one that can be repeated, until a node answers it.
async fn until_answered<F: Future<Output = Option<Answer>>>(send: impl Fn() -> F) -> Answer {
    until("a node answers", async || send().await.filter(|answer| answer.status != 503)).await
}

#[tokio::test]
async fn the_roles_of_a_killed_node_move() {
    let mut first = prepare(None).await;
    start(&mut first);
    for role in ROLES {
        first.until_logged(&format!("role=\"{role}\" held=true")).await;
    }
    let mut second = prepare(Some(&first)).await;
    start(&mut second);
    let run = first.run(json!({"ttlSeconds": 3})).await;
    first.kill();
    // Reading the run would close it, too. The audit of all runs closes nothing.
    let path = format!("/v1/audit?run={}&tool=run.close", run.id);
    let closed = async || Some(items(&second.auditor(), &path).await).filter(|closed| !closed.is_empty());
    let closed = second.until("the run is closed", closed).await;
    assert_eq!(closed.len(), 1, "{closed:#?}");
    for role in ROLES {
        second.until_logged(&format!("role=\"{role}\" held=true")).await;
    }
}
