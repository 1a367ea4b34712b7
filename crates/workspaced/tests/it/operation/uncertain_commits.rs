//! Commits whose outcome nobody is told: whatever is looked at next waits until it is decided. PostgreSQL alone can leave one
//! open; with SQLite the process that commits is the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;

use crate::harness::{
    Backend, Database, Kind, Mutation, Proxy, ProxyMode, Server, Setup, assert_consistent, assert_tmp_is_empty,
    becomes_empty,
};

/// A server whose way to its database goes by a proxy, and makes no commits of its own.
async fn by_a_proxy() -> (Server, Arc<Proxy>) {
    let mut server = Server::prepare(Setup::new(Backend::Postgres).arg("--checkpoint-seconds", 3600)).await;
    let proxy = Proxy::start(&server.database.url);
    server.database.url.clone_from(&proxy.url);
    server.restart();
    (server, Arc::new(proxy))
}

/// The connection on which a commit is open, as PostgreSQL sees it.
const HELD: &str = "FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' \
    AND state_change < clock_timestamp() - interval '300 ms'";

/// Decides the commit that is open: it takes place, or its transaction is ended by the database.
async fn decide(database: &Database, proxy: &Proxy, lands: bool) {
    let deadline = Instant::now() + Duration::from_secs(8);
    while database.tamper(&format!("SELECT pid {HELD}")).await != Ok(1) {
        assert!(Instant::now() < deadline, "no commit is open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if !lands {
        // No further commit is caught.
        proxy.set(ProxyMode::Slow(Duration::ZERO));
        assert_eq!(database.tamper(&format!("SELECT pg_terminate_backend(pid) {HELD}")).await, Ok(1));
    }
    proxy.set(ProxyMode::Open);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_call_of_the_run_waits_until_a_commit_in_doubt_is_decided(#[values(true, false)] lands: bool) {
    let (server, proxy) = by_a_proxy().await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let start = run.snapshot();
    run.create("before.txt", "so that all is open\n").await;
    server.until_journal_is_empty().await;
    let first = json!({"toolCallId": "first", "path": "doubt.txt", "content": "x\n", "reason": "r"});
    proxy.set(ProxyMode::HoldCommit);
    let told = run.call("write_file", first.clone()).await.refused("UNAVAILABLE");
    assert!(told["message"].as_str().unwrap().contains("as a whole or not at all"), "{told:#}");

    let second = tokio::spawn({
        let run = run.clone();
        async move { run.call("write_file", json!({"path": "next.txt", "content": "x\n", "reason": "r"})).await }
    });
    decide(&server.database, &proxy, lands).await;
    second.await.unwrap().ok();
    let records = assert_consistent(&run, &start).await;
    assert_eq!(records.len(), 2 + usize::from(lands), "{records:#?}");
    assert_eq!(run.repo.join("doubt.txt").exists(), lands);

    let again = run.ok("write_file", first).await;
    let record = run.audit().await.into_iter().find(|record| record["toolCallId"] == "first").unwrap();
    assert_eq!(again["seq"], record["seq"]);
    assert_eq!(again["seq"], if lands { 2 } else { 3 });
    assert_eq!(run.on_disk("doubt.txt"), "x\n");
    assert_eq!(assert_consistent(&run, &start).await.len(), 3);
    assert_tmp_is_empty(&server, &run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutation_in_doubt_happens_once_and_leaves_nothing_beside_the_tree(#[values(true, false)] lands: bool) {
    let (server, proxy) = by_a_proxy().await;
    for kind in [Kind::Create, Kind::Patch, Kind::PutLarge, Kind::Approval] {
        let mutation = Mutation::prepare(&server, kind).await;
        server.until_journal_is_empty().await;
        proxy.set(ProxyMode::HoldCommit);
        assert_eq!(mutation.send(&mutation.run).await, Some(503), "{kind:?}");
        if kind == Kind::PutLarge {
            // The journal may name its bytes.
            assert!(server.workspace(&mutation.run.id).join("tmp").read_dir().unwrap().next().is_some());
        }
        decide(&server.database, &proxy, lands).await;
        // An approval that is decided by now is told so, whatever of it is in the tree.
        mutation.run.ok("list_dir", json!({})).await;
        mutation.assert_applied_once(&mutation.run).await;
        assert_tmp_is_empty(&server, &mutation.run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_the_commit_that_a_killed_service_has_left_open(#[values(true, false)] lands: bool) {
    let (mut server, proxy) = by_a_proxy().await;
    for kind in [Kind::Create, Kind::Patch, Kind::PutLarge] {
        let mutation = Mutation::prepare(&server, kind).await;
        server.until_journal_is_empty().await;
        proxy.set(ProxyMode::HoldCommit);
        let told = mutation.send(&mutation.run).await;
        assert_eq!(told, Some(503), "{kind:?}");
        server.kill();
        let decided = tokio::spawn({
            let (database, proxy) = (server.database.clone(), Arc::clone(&proxy));
            async move { decide(&database, &proxy, lands).await }
        });
        server.restart();
        decided.await.unwrap();
        let run = server.reconnect(&mutation.run);
        let records = assert_consistent(&run, &mutation.start).await;
        assert_eq!(records.len(), mutation.records + usize::from(lands), "{kind:?}");
        assert_tmp_is_empty(&server, &run).await;
        mutation.assert_applied_once(&run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_making_is_in_doubt_keeps_its_files_where_it_was_made(#[values(true, false)] lands: bool) {
    let (mut server, proxy) = by_a_proxy().await;
    let template = server.template(&[("a.txt", "a\n")]);
    let body = json!({"runId": "r", "source": {"type": "directory", "path": template}});
    proxy.set(ProxyMode::HoldCommit);
    let asked = tokio::spawn({
        let operator = server.operator();
        async move { operator.post("/v1/runs", body).await }
    });
    decide(&server.database, &proxy, lands).await;
    let run = server.run_from(&asked.await.unwrap().is(201)).await;
    assert_eq!(run.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "a\n");
    run.create("b.txt", "b\n").await;
    server.kill();
    server.restart();
    server.reconnect(&run).ok("read_file", json!({"path": "b.txt"})).await;
    assert!(becomes_empty(&server.workspace("r").join("tmp")).await);
}
