//! A disk that is full or read-only, a database that is away or slow, a clock that is set back: nothing is half done, nothing
//! is hidden, and the service goes on by itself when it is over.

use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;

use crate::harness::{
    Backend, Disk, Kind, LoadedRun, Mutation, Proxy, ProxyMode, Run, Server, Setup, Strace, assert_consistent,
    assert_tmp_is_empty, becomes_empty,
};

/// What a disk of its own for the workspaces lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Bytes,
    Names,
    Writing,
}

/// Every look works, and is recorded.
async fn assert_reads_go_on(run: &Run) {
    let before = run.audit().await.len();
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.ok("list_dir", json!({})).await;
    run.ok("search_text", json!({"query": "one"})).await;
    run.ok("diff_workspace", json!({})).await;
    assert_eq!(run.audit().await.len(), before + 4);
}

/// What waits for it has every thread that it may have, and no more.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_keeps_nobody_waiting_who_does_not_need_it(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let Some(disk) = Disk::ext4(&server.data_dir(), 64) else { return };
    server.restart();
    let run = server.run_with_files(&[("a.txt", "one\n")], json!({})).await;
    run.create("before.txt", "so that all is open\n").await;
    let start = run.snapshot();
    server.until_journal_is_empty().await;
    let frozen = disk.freeze();
    let mut calls = Vec::new();
    for number in 0..24 {
        let run = server.reconnect(&run);
        calls.push(tokio::spawn(async move {
            if number % 3 == 0 {
                return run.call("read_file", json!({"path": "a.txt"})).await.status;
            }
            let input = json!({"path": format!("{number}.txt"), "content": "two\n", "reason": "to wait"});
            run.call("write_file", input).await.status
        }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let operator = server.operator();
    for _ in 0..10 {
        let asked = operator.get("/healthz");
        let answer = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("the service answers nobody");
        assert_eq!(answer.status, 200);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(calls.iter().any(|call| !call.is_finished()), "nothing hung");
    drop(frozen);
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(run.snapshot().len(), start.len() + 16);
    assert!(run.verify().await["intact"].as_bool().unwrap());
}

#[rstest]
#[tokio::test]
async fn a_disk_that_takes_no_more_refuses_mutations_and_reads_go_on(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values(Lack::Bytes, Lack::Names, Lack::Writing)] lack: Lack,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    // The trees' disk alone: the database has room to record what is refused.
    let place = server.data_dir().join("workspaces");
    let Some(disk) = Disk::in_memory(&place, "size=32m,nr_inodes=2000") else { return };
    server.restart();
    let mut mutations = Vec::new();
    // What gives room is done last.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Delete).chain([Kind::Delete]) {
        mutations.push((kind, Mutation::prepare(&server, kind).await));
    }
    server.until_journal_is_empty().await;
    let filler = match lack {
        Lack::Bytes => Some(disk.fill()),
        Lack::Names => Some(disk.fill_inodes()),
        Lack::Writing => {
            disk.remount("ro");
            None
        }
    };
    for (kind, mutation) in &mutations {
        let tree = mutation.run.snapshot();
        let status = mutation.send(&mutation.run).await.unwrap();
        // What needs no room may well be done: a file that goes away, say.
        let needs_none = *kind == Kind::Delete && lack != Lack::Writing;
        assert!(status == 503 || needs_none && status == 200, "{kind:?}: {status}");
        let records = assert_consistent(&mutation.run, &mutation.start).await;
        assert!(records.len() > mutation.records, "{kind:?} is not in the audit");
        if status == 503 {
            assert_eq!(records.last().unwrap()["code"], "UNAVAILABLE", "{kind:?}");
            assert_eq!(mutation.run.snapshot(), tree, "{kind:?} changed something");
            assert!(
                becomes_empty(&server.workspace(&mutation.run.id).join("tmp")).await,
                "{kind:?} left something in tmp/"
            );
        }
        assert_reads_go_on(&mutation.run).await;
    }
    drop(filler);
    if lack == Lack::Writing {
        disk.remount("rw");
    }
    for (_, mutation) in &mutations {
        mutation.assert_applied_once(&mutation.run).await;
        assert_tmp_is_empty(&server, &mutation.run).await;
    }
    server.stop();
}

/// Trees and database on one disk: room is kept for the records of those who look, also for a start on the full disk.
#[tokio::test]
async fn reads_go_on_where_the_disk_of_the_database_is_full_too() {
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let Some(disk) = Disk::ext4(&server.data_dir(), 96) else { return };
    server.restart();
    let run = server.run_with_files(&[("a.txt", "one\n")], json!({})).await;
    let start = run.snapshot();
    run.create("b.txt", "two\n").await;
    server.until_journal_is_empty().await;
    let filler = disk.fill();
    let write = json!({"path": "c.txt", "content": "x\n", "reason": "r"});
    for round in 0..300 {
        run.ok("read_file", json!({"path": "a.txt"})).await;
        if round % 50 == 0 {
            run.call("write_file", write.clone()).await.refused("UNAVAILABLE");
            assert_reads_go_on(&run).await;
            server.nobody().get("/readyz").await.is(200);
        }
    }
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    for _ in 0..50 {
        run.ok("read_file", json!({"path": "b.txt"})).await;
    }
    run.call("write_file", write.clone()).await.refused("UNAVAILABLE");
    drop(filler);
    let deadline = Instant::now() + Duration::from_secs(10);
    while run.call("write_file", write.clone()).await.status != 200 {
        assert!(Instant::now() < deadline, "it does not resume\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_consistent(&run, &start).await;
    assert!(server.stop().success());
}

#[tokio::test]
async fn what_cannot_be_recorded_has_not_happened() {
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    // Trees and database on one disk: with no room for a record, not even what is kept for those who look, there is no answer.
    let Some(disk) = Disk::in_memory(&server.data_dir(), "size=16m") else { return };
    server.restart();
    let run = server.run_with_files(&[("a.txt", "one\n")], json!({})).await;
    let start = run.snapshot();
    server.until_journal_is_empty().await;
    let mut fillers = vec![disk.fill()];
    let (mut told, mut refused) = (0, 0);
    for number in 0..400 {
        if number < 16 {
            // Whatever is given up is taken too.
            fillers.push(disk.fill_as(&format!(".filler-{number}")));
        }
        let answer = if number % 8 == 0 {
            run.call("write_file", json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r"})).await
        } else {
            run.call("read_file", json!({"path": "a.txt"})).await
        };
        if answer.status == 200 {
            told += 1;
        } else {
            // A refusal that was recorded is told with its number.
            told += usize::from(answer.refused("UNAVAILABLE")["seq"].is_u64());
            refused += 1;
        }
    }
    assert!(refused > 0, "the disk was not full");
    server.nobody().get("/healthz").await.is(200);
    server.nobody().get("/readyz").await.refused("UNAVAILABLE");
    drop(fillers);
    server.nobody().get("/readyz").await.is(200);
    assert_eq!(assert_consistent(&run, &start).await.len(), told, "what was told is not what is recorded");
    run.create("after.txt", "there is room again\n").await;
    run.ok("read_file", json!({"path": "after.txt"})).await;
    assert_consistent(&run, &start).await;
    assert!(server.stop().success());
}

#[rstest]
#[case::cannot_be_written("renameat2,renameat,unlinkat", "EROFS")]
#[case::has_no_room_for_a_name("renameat2,renameat", "ENOSPC")]
#[case::fails("renameat2,renameat", "EIO")]
#[tokio::test]
async fn a_change_that_is_recorded_and_cannot_be_finished_is_told_truly(#[case] syscalls: &str, #[case] error: &str) {
    let server = Server::start(Backend::Sqlite).await;
    let mutation = Mutation::prepare(&server, Kind::Patch).await;
    let run = &mutation.run;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    server.until_journal_is_empty().await;
    // The first rename of a thread goes well, so that half of the patch is in the tree.
    let strace = Strace::attach(&server, syscalls, &format!("error={error}:when=2+"));
    let told = mutation.answer(run).await.unwrap().refused("UNAVAILABLE");
    assert!(told["message"].as_str().unwrap().contains("recorded") && told["seq"].is_u64(), "{told:#}");
    // Half of a change is never shown: the next look finishes it, or fails too, or nothing of it is there.
    let look = run.call("list_dir", json!({})).await;
    if look.status == 200 {
        let found = ["moved/b.txt", "new/dir"].map(|path| look.contains(path));
        assert_eq!(found, [!look.contains("gone.txt"); 2], "{}", look.text());
    } else {
        look.refused("UNAVAILABLE");
    }
    drop(strace);
    let records = run.audit().await;
    let recorded = records.iter().any(|record| record["toolCallId"] == "m" && record["outcome"] == "ok");
    assert!(recorded, "{records:#?}");
    run.ok("read_file", json!({"path": "moved/b.txt"})).await;
    mutation.assert_applied_once(run).await;
}

#[rstest]
#[case::the_log(Backend::Sqlite)]
#[case::files(Backend::Postgres)]
#[tokio::test]
async fn a_sync_that_fails_ends_the_process_and_the_next_start_recovers(#[case] backend: Backend) {
    let mut server = Server::start(backend).await;
    for kind in [Kind::Replace, Kind::Patch, Kind::PutLarge] {
        let mutation = Mutation::prepare(&server, kind).await;
        server.until_journal_is_empty().await;
        let strace = Strace::attach(&server, "fsync,fdatasync", "error=EIO");
        let answered = mutation.send(&mutation.run).await;
        let ended = server.wait(Duration::from_secs(10));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(6), "{ended}\n{}", server.log());
        drop(strace);
        let (run, records) = crate::harness::recover(&mut server, &mutation.run, &mutation.start).await;
        assert!(answered.is_none() || records.len() == mutation.records + 1, "{kind:?} was acknowledged and is lost");
        mutation.assert_applied_once(&run).await;
        assert_tmp_is_empty(&server, &run).await;
    }
}

/// A server whose way to its PostgreSQL goes by a proxy.
async fn behind_a_proxy() -> (Server, Proxy) {
    let mut server = Server::prepare(Setup::new(Backend::Postgres)).await;
    let proxy = Proxy::start(&server.database.url);
    server.database.url.clone_from(&proxy.url);
    server.restart();
    (server, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_none_costs_the_database_nothing() {
    let (mut server, proxy) = behind_a_proxy().await;
    let probe = server.run(json!({})).await;
    let path = format!("/v1/runs/{}/tools/list_dir", probe.id);
    proxy.set(ProxyMode::Cut);
    server.nobody().get("/readyz").await.refused("UNAVAILABLE");
    let good = probe.agent.token.clone().unwrap();
    let altered = good.replace(&good[8..9], if &good[8..9] == "a" { "b" } else { "a" });
    for bad in ["x", &good[1..], &good.to_uppercase(), &altered, &format!("wsr_{}", "0f".repeat(32)), "wso_x"] {
        let answer = probe.agent.with_token(Some(bad)).post(&path, json!({})).await;
        assert_eq!(answer.refusal(), "UNAUTHENTICATED", "{bad}");
    }
    proxy.set(ProxyMode::Open);
    until_ready(&server, &probe).await;
    assert!(server.stop().success());
}

/// Until the database is back and the service has noticed, which it does by itself.
async fn until_ready(server: &Server, probe: &Run) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.nobody().get("/readyz").await.status != 200 || probe.call("list_dir", json!({})).await.status != 200 {
        assert!(Instant::now() < deadline, "it does not come back\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_refuses_and_service_resumes_by_itself() {
    let (mut server, proxy) = behind_a_proxy().await;
    let probe = server.run(json!({})).await;
    let mutation = Mutation::prepare(&server, Kind::Patch).await;
    let run = &mutation.run;
    let tree = run.snapshot();
    proxy.set(ProxyMode::Cut);
    for _ in 0..3 {
        run.call("write_file", json!({"path": "x.txt", "content": "x\n", "reason": "r"})).await.refused("UNAVAILABLE");
        run.call("read_file", json!({"path": "a.txt"})).await.refused("UNAVAILABLE");
        assert_eq!(mutation.send(run).await, Some(503));
        server.nobody().get("/readyz").await.refused("UNAVAILABLE");
        server.nobody().get("/healthz").await.is(200);
    }
    assert_eq!(run.snapshot(), tree);
    proxy.set(ProxyMode::Open);
    until_ready(&server, &probe).await;
    assert_eq!(assert_consistent(run, &mutation.start).await.len(), mutation.records);
    mutation.assert_applied_once(run).await;
    assert_tmp_is_empty(&server, run).await;
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_in_the_middle_of_commits_loses_nothing() {
    let (mut server, proxy) = behind_a_proxy().await;
    let probe = server.run(json!({})).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(LoadedRun::new(&server).await);
    }
    for cut in 0..15 {
        let load: Vec<_> = runs.iter_mut().map(|run| run.start(&server)).collect();
        runs[0].until_acknowledged().await;
        tokio::time::sleep(Duration::from_millis((cut * 29) % 90)).await;
        proxy.set(ProxyMode::Cut);
        for task in load {
            task.await.unwrap();
        }
        proxy.set(ProxyMode::Open);
        until_ready(&server, &probe).await;
        for run in &runs {
            run.read_once(&server).await;
            run.assert_nothing_lost(&server).await;
        }
    }
    server.kill();
    server.restart();
    for run in &runs {
        run.assert_nothing_lost(&server).await;
    }
    let log = server.log();
    assert!(!log.contains("changed from outside"), "the service took its own work for someone else's\n{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_falls_silent_is_given_up_and_service_resumes() {
    let (mut server, proxy) = behind_a_proxy().await;
    let probe = server.run(json!({})).await;
    let mutation = Mutation::prepare(&server, Kind::Patch).await;
    let run = &mutation.run;
    proxy.set(ProxyMode::Silent);
    let (write, read) = tokio::join!(mutation.send(run), run.call("read_file", json!({"path": "a.txt"})));
    assert_eq!(write, Some(503));
    read.refused("UNAVAILABLE");
    proxy.set(ProxyMode::Open);
    until_ready(&server, &probe).await;
    mutation.assert_applied_once(run).await;
    assert_tmp_is_empty(&server, run).await;
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_database_makes_calls_slow_and_nothing_else() {
    let (mut server, proxy) = behind_a_proxy().await;
    proxy.set(ProxyMode::Slow(Duration::from_millis(20)));
    let mutation = Mutation::prepare(&server, Kind::Patch).await;
    mutation.assert_applied_once(&mutation.run).await;
    assert!(server.stop().success());
}

#[rstest]
#[tokio::test]
async fn a_clock_that_is_set_back_changes_neither_order_nor_expiry(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let clock = server.data_dir().join("clock");
    server.setup = server.setup.clone().env("WORKSPACED_CLOCK", clock.to_str().unwrap());
    server.restart();
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let start = run.snapshot();
    let brief = server.run(json!({"ttlSeconds": 1})).await;
    let lasting = server.run(json!({"ttlSeconds": 4})).await;
    run.create("before.txt", "x\n").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let write = json!({"path": "b.txt", "content": "b\n", "reason": "r"});
    brief.call("write_file", write.clone()).await.refused("RUN_CLOSED");

    std::fs::write(&clock, "-3600").unwrap();
    run.create("after.txt", "x\n").await;
    let records = assert_consistent(&run, &start).await;
    let times: Vec<_> = records.iter().map(|record| record["timestamp"].as_str().unwrap()).collect();
    assert!(times[0] > times[1], "the clock was not set back: {times:?}");
    // What has expired stays so, what has not yet does in time, and what is new has its whole life before it.
    brief.call("write_file", write.clone()).await.refused("RUN_CLOSED");
    lasting.call("list_dir", json!({})).await.is(200);
    let fresh = server.run(json!({"ttlSeconds": 600})).await;
    fresh.create("b.txt", "b\n").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    lasting.call("write_file", write).await.refused("RUN_CLOSED");

    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    run.create("again.txt", "x\n").await;
    assert_consistent(&run, &start).await;
}
