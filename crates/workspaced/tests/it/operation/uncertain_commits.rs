//! Commits with an unknown outcome: later calls wait until the outcome is known. Only PostgreSQL can leave a commit open. SQLite
//! commits in the process of the service.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use crate::harness::{
    Backend, Database, Kind, Mutation, Proxy, ProxyMode, Server, Setup, assert_consistent, assert_tmp_is_empty, until,
    until_empty,
};

/// Starts a server that connects through a proxy and makes no commits by itself.
pub(crate) async fn start_with_proxy() -> (Server, Arc<Proxy>) {
    let mut server = Server::prepare(Setup::new(Backend::Postgres).arg("--checkpoint-seconds", 3600)).await;
    let proxy = Proxy::start(&server.database.url);
    server.database.url.clone_from(&proxy.url);
    server.restart();
    (server, Arc::new(proxy))
}

/// Selects the connection with an open commit that writes to `table`. The periodic work of the server commits too.
fn open_commit(table: &str) -> String {
    format!(
        "FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' \
         AND state_change < clock_timestamp() - interval '300 ms' AND pid IN (SELECT pid FROM pg_locks \
         WHERE locktype = 'relation' AND relation = '{table}'::regclass AND mode = 'RowExclusiveLock')"
    )
}

/// Completes the open commit that writes to `table`, or terminates its connection so that the transaction is rolled back.
pub(crate) async fn decide(database: &Database, proxy: &Proxy, table: &str, lands: bool) {
    let open = open_commit(table);
    until("a commit is open", async || database.tamper(&format!("SELECT pid {open}")).await == Ok(1)).await;
    if !lands {
        // Further commits are forwarded.
        proxy.set(ProxyMode::Slow(Duration::ZERO));
        assert_eq!(database.tamper(&format!("SELECT pg_terminate_backend(pid) {open}")).await, Ok(1));
    }
    proxy.set(ProxyMode::Open);
}

/// The table that every call writes to.
const RECORDS: &str = "audit_record";

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_call_of_a_run_waits_for_an_uncertain_commit(#[values(true, false)] lands: bool) {
    let (server, proxy) = start_with_proxy().await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let start = run.snapshot();
    run.create("before.txt", "opens the run\n").await;
    server.until_journal_is_empty().await;
    let first = json!({"toolCallId": "first", "path": "doubt.txt", "content": "x\n", "reason": "r"});
    proxy.set(ProxyMode::HoldCommit);
    let refusal = run.call("write_file", first.clone()).await.refused("UNAVAILABLE");
    assert!(refusal["message"].as_str().unwrap().contains("completely or not at all"), "{refusal:#}");

    let second = tokio::spawn({
        let run = run.clone();
        async move { run.call("write_file", json!({"path": "next.txt", "content": "x\n", "reason": "r"})).await }
    });
    decide(&server.database, &proxy, RECORDS, lands).await;
    second.await.unwrap().ok();
    let records = assert_consistent(&run, &start).await;
    assert_eq!(records.len(), 3 + usize::from(lands), "{records:#?}");
    assert_eq!(run.repo.join("doubt.txt").exists(), lands);

    let again = run.ok("write_file", first).await;
    let record = run.audit().await.into_iter().find(|record| record["toolCallId"] == "first").unwrap();
    assert_eq!(again["seq"], record["seq"]);
    assert_eq!(again["seq"] == 3, lands, "{again:#}");
    assert_eq!(run.on_disk("doubt.txt"), "x\n");
    assert_eq!(assert_consistent(&run, &start).await.len(), 4);
    assert_tmp_is_empty(&server, &run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncertain_mutation_is_applied_once_and_leaves_no_temporary_files(#[values(true, false)] lands: bool) {
    let (server, proxy) = start_with_proxy().await;
    for kind in [Kind::Create, Kind::Patch, Kind::Mode, Kind::PutLarge, Kind::Approval, Kind::Changeset] {
        let mutation = Mutation::prepare(&server, kind).await;
        server.until_journal_is_empty().await;
        proxy.set(ProxyMode::HoldCommit);
        assert_eq!(mutation.send(&mutation.run).await, Some(503), "{kind:?}");
        if kind == Kind::PutLarge {
            // The journal may refer to the staged file.
            assert!(server.workspace(&mutation.run.id).join("tmp").read_dir().unwrap().next().is_some());
        }
        decide(&server.database, &proxy, RECORDS, lands).await;
        // The read reconciles the run. An approval is already decided otherwise.
        mutation.run.ok("list_dir", json!({})).await;
        mutation.assert_applied_once(&mutation.run).await;
        assert_tmp_is_empty(&server, &mutation.run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_an_open_commit_of_a_killed_service(#[values(true, false)] lands: bool) {
    let (mut server, proxy) = start_with_proxy().await;
    for kind in [Kind::Create, Kind::Patch, Kind::Mode, Kind::PutLarge, Kind::Changeset] {
        let mutation = Mutation::prepare(&server, kind).await;
        server.until_journal_is_empty().await;
        proxy.set(ProxyMode::HoldCommit);
        assert_eq!(mutation.send(&mutation.run).await, Some(503), "{kind:?}");
        server.kill();
        let decided = tokio::spawn({
            let (database, proxy) = (server.database.clone(), Arc::clone(&proxy));
            async move { decide(&database, &proxy, RECORDS, lands).await }
        });
        server.restart();
        decided.await.unwrap();
        let run = server.reconnect(&mutation.run);
        let records = assert_consistent(&run, &mutation.start).await;
        assert_eq!(records.len(), mutation.records + usize::from(lands) * kind.records(), "{kind:?}");
        assert_tmp_is_empty(&server, &run).await;
        mutation.assert_applied_once(&run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_creation_is_uncertain_keeps_its_files_if_it_was_created(#[values(true, false)] lands: bool) {
    let (mut server, proxy) = start_with_proxy().await;
    let template = server.template(&[("a.txt", "a\n")]);
    let body = json!({"runId": "r", "source": {"type": "directory", "path": template}});
    proxy.set(ProxyMode::HoldCommit);
    let asked = tokio::spawn({
        let operator = server.operator();
        async move { operator.post("/v1/runs", body).await }
    });
    decide(&server.database, &proxy, RECORDS, lands).await;
    let run = server.run_from(&asked.await.unwrap().is(201)).await;
    assert_eq!(run.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "a\n");
    run.create("b.txt", "b\n").await;
    server.kill();
    server.restart();
    server.reconnect(&run).ok("read_file", json!({"path": "b.txt"})).await;
    until_empty(&server.workspace("r").join("tmp")).await;
}
