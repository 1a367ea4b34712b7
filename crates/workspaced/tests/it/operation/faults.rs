//! Full, read-only and hanging disks, unavailable and slow databases, and a clock that is set back: no change is partial, every
//! failure is reported, and the service recovers by itself.

use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{
    Backend, Disk, Kind, LoadedRun, Mutation, Proxy, ProxyMode, Run, Server, Setup, Strace, assert_consistent,
    assert_tmp_is_empty, exhaustive, until, until_empty,
};

/// What the disk of the workspaces lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Bytes,
    Inodes,
    WriteAccess,
}

/// Asserts that reads work and are recorded.
async fn assert_reads_work(run: &Run) {
    let before = run.audit().await.len();
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.ok("list_dir", json!({})).await;
    run.ok("search_text", json!({"query": "one"})).await;
    run.ok("diff_workspace", json!({})).await;
    assert_eq!(run.audit().await.len(), before + 4);
}

/// Calls that wait for the disk use a limited number of threads.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_disk_does_not_delay_calls_that_do_not_use_it(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let Some(disk) = Disk::ext4(&server.data_dir(), 64) else { return };
    server.restart();
    let run = server.run_with_files(&[("a.txt", "one\n")], json!({})).await;
    run.create("before.txt", "opens the run\n").await;
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
            let input = json!({"path": format!("{number}.txt"), "content": "two\n", "reason": "waits for the disk"});
            run.call("write_file", input).await.status
        }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let operator = server.operator();
    for _ in 0..10 {
        let asked = operator.get("/healthz");
        let answer = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("an answer while the disk hangs");
        assert_eq!(answer.status, 200);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(calls.iter().any(|call| !call.is_finished()), "no call waited for the disk");
    drop(frozen);
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(run.snapshot().len(), start.len() + 16);
    assert!(run.verify().await["intact"].as_bool().unwrap());
}

#[rstest]
#[tokio::test]
async fn a_full_or_read_only_disk_refuses_mutations_and_reads_continue(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(Lack::Bytes, Lack::Inodes, Lack::WriteAccess)] lack: Lack,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    // Only the disk of the trees is full. The database can record refusals.
    let mount_point = server.data_dir().join("workspaces");
    let Some(disk) = Disk::in_memory(&mount_point, "size=128m,nr_inodes=2000") else { return };
    server.restart();
    let mut mutations = Vec::new();
    // A deletion frees space, so it is last.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Delete).chain([Kind::Delete]) {
        mutations.push((kind, Mutation::prepare(&server, kind).await));
    }
    server.until_journal_is_empty().await;
    let filler = match lack {
        Lack::Bytes => Some(disk.fill()),
        Lack::Inodes => Some(disk.fill_inodes()),
        Lack::WriteAccess => {
            disk.remount("ro");
            None
        }
    };
    for (kind, mutation) in &mutations {
        let tree = mutation.run.snapshot();
        let status = mutation.send(&mutation.run).await.unwrap();
        // A deletion needs no space and may succeed.
        let ready = server.nobody().get("/readyz").await;
        assert!(!ready.refused("UNAVAILABLE")["hint"].as_str().unwrap().contains("moment"), "{}", ready.text());
        assert!(ready.text().contains("the disk of the runs' files"), "{}", ready.text());
        let may_succeed = *kind == Kind::Delete && lack != Lack::WriteAccess;
        assert!(status == 503 || may_succeed && status == 200, "{kind:?}: {status}");
        let records = assert_consistent(&mutation.run, &mutation.start).await;
        assert!(records.len() > mutation.records, "{kind:?} is not in the audit");
        if status == 503 {
            assert_eq!(records.last().unwrap()["code"], "UNAVAILABLE", "{kind:?}");
            assert_eq!(mutation.run.snapshot(), tree, "{kind:?} changed the tree");
            until_empty(&server.workspace(&mutation.run.id).join("tmp")).await;
        }
        assert_reads_work(&mutation.run).await;
    }
    drop(filler);
    if lack == Lack::WriteAccess {
        disk.remount("rw");
    }
    for (_, mutation) in &mutations {
        mutation.assert_applied_once(&mutation.run).await;
        assert_tmp_is_empty(&server, &mutation.run).await;
    }
    server.stop();
}

/// Trees and database share a disk. Reserved space allows records of reads, and a start on the full disk.
#[tokio::test]
async fn reads_continue_when_the_disk_of_the_database_is_full() {
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
            let refused = run.call("write_file", write.clone()).await;
            let refused = refused.refused("UNAVAILABLE");
            assert!(refused["message"].as_str().unwrap().starts_with("the disk of the d"), "{refused}");
            assert!(refused["hint"].as_str().unwrap().contains("frees space"), "{refused}");
            assert_reads_work(&run).await;
            server.nobody().get("/readyz").await.refused("UNAVAILABLE");
        }
    }
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    // Before any change is refused.
    server.nobody().get("/readyz").await.refused("UNAVAILABLE");
    for _ in 0..50 {
        run.ok("read_file", json!({"path": "b.txt"})).await;
    }
    run.call("write_file", write.clone()).await.refused("UNAVAILABLE");
    drop(filler);
    server.until("a write succeeds", async || run.call("write_file", write.clone()).await.status == 200).await;
    server.nobody().get("/readyz").await.is(200);
    assert_consistent(&run, &start).await;
    assert!(server.stop().success());
}

#[tokio::test]
async fn a_call_that_cannot_be_recorded_is_not_answered() {
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    // Trees and database share a disk. When even the reserved space is used up, reads fail too.
    let Some(disk) = Disk::in_memory(&server.data_dir(), "size=16m") else { return };
    server.restart();
    let run = server.run_with_files(&[("a.txt", "one\n")], json!({})).await;
    let start = run.snapshot();
    server.until_journal_is_empty().await;
    let mut fillers = vec![disk.fill()];
    let (mut recorded, mut refused) = (0, 0);
    for number in 0..400 {
        if number < 16 {
            // Fills the space that the service releases.
            fillers.push(disk.fill_as(&format!(".filler-{number}")));
        }
        let answer = if number % 8 == 0 {
            run.call("write_file", json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r"})).await
        } else {
            run.call("read_file", json!({"path": "a.txt"})).await
        };
        if answer.status == 200 {
            recorded += 1;
        } else {
            // A recorded refusal contains its record number.
            recorded += usize::from(answer.refused("UNAVAILABLE")["seq"].is_u64());
            refused += 1;
        }
    }
    assert!(refused > 0, "the disk was not full");
    server.nobody().get("/healthz").await.is(200);
    server.nobody().get("/readyz").await.refused("UNAVAILABLE");
    drop(fillers);
    server.until("the service is ready", async || server.nobody().get("/readyz").await.status == 200).await;
    // The first record is that of the run's creation.
    assert_eq!(assert_consistent(&run, &start).await.len(), recorded + 1, "answers and records differ");
    run.create("after.txt", "space is available\n").await;
    run.ok("read_file", json!({"path": "after.txt"})).await;
    assert_consistent(&run, &start).await;
    assert!(server.stop().success());
}

#[rstest]
#[case::read_only("renameat2,renameat,unlinkat", "EROFS")]
#[case::no_space_for_a_name("renameat2,renameat", "ENOSPC")]
#[case::io_error("renameat2,renameat", "EIO")]
#[tokio::test]
async fn a_recorded_change_that_cannot_be_applied_is_reported_as_such(#[case] syscalls: &str, #[case] error: &str) {
    let server = Server::start(Backend::Sqlite).await;
    let mutation = Mutation::prepare(&server, Kind::Patch).await;
    let run = &mutation.run;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    server.until_journal_is_empty().await;
    // The first rename succeeds, so that half of the patch is applied.
    let Some(strace) = Strace::attach(&server, syscalls, &format!("error={error}:when=2+")) else { return };
    let problem = mutation.answer(run).await.unwrap().refused("UNAVAILABLE");
    assert!(problem["message"].as_str().unwrap().contains("recorded") && problem["seq"].is_u64(), "{problem:#}");
    // A partial change is never shown. The next read completes it, or fails, or shows nothing of it.
    let listing = run.call("list_dir", json!({})).await;
    if listing.status == 200 {
        let found = ["moved/b.txt", "new/dir"].map(|path| listing.contains(path));
        assert_eq!(found, [!listing.contains("gone.txt"); 2], "{}", listing.text());
    } else {
        listing.refused("UNAVAILABLE");
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
async fn a_failed_sync_aborts_the_process_and_the_next_start_recovers(#[case] backend: Backend) {
    let mut server = Server::start(backend).await;
    for kind in [Kind::Replace, Kind::Patch, Kind::PutLarge] {
        let mutation = Mutation::prepare(&server, kind).await;
        server.until_journal_is_empty().await;
        let Some(strace) = Strace::attach(&server, "fsync,fdatasync", "error=EIO") else { return };
        let answered = mutation.send(&mutation.run).await;
        let ended = server.wait();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(6), "{ended}\n{}", server.log());
        drop(strace);
        let (run, records) = crate::harness::recover(&mut server, &mutation.run, &mutation.start).await;
        assert!(answered.is_none() || records.len() == mutation.records + 1, "{kind:?} was acknowledged and is lost");
        mutation.assert_applied_once(&run).await;
        assert_tmp_is_empty(&server, &run).await;
    }
}

#[tokio::test]
async fn a_read_does_not_wait_for_the_disk_and_survives_a_kill() {
    let mut server = Server::start(Backend::Sqlite).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "a\n").await;
    server.until_journal_is_empty().await;
    // Longer than a client waits for an answer.
    let Some(strace) = Strace::attach(&server, "fsync,fdatasync", "delay_enter=600s") else { return };
    run.ok("read_file", json!({"path": "a.txt"})).await;
    server.kill();
    drop(strace);
    server.restart();
    let run = server.reconnect(&run);
    let last = run.last_record().await;
    assert_eq!(last["tool"], "read_file", "{last}");
    run.verify().await;
}

#[tokio::test]
async fn records_of_reads_are_synced_after_the_answer() {
    let mut server = Server::start(Backend::Sqlite).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "a\n").await;
    server.until_journal_is_empty().await;
    let Some(strace) = Strace::attach(&server, "fsync,fdatasync", "error=EIO") else { return };
    run.ok("read_file", json!({"path": "a.txt"})).await;
    // A failed sync aborts the process, so there was one.
    let ended = server.wait();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(6), "{ended}\n{}", server.log());
    drop(strace);
}

#[tokio::test]
async fn the_folder_of_a_new_file_is_synced() {
    let mut server = Server::start(Backend::Sqlite).await;
    let run = server.run(json!({})).await;
    run.create("src/a.txt", "a\n").await;
    server.until_journal_is_empty().await;
    let folder = server.repo(&run.id).join("src");
    let Some(strace) = Strace::attach_at(&server, &folder, "fsync,fdatasync", "error=EIO") else { return };
    // The answer does not wait for the folder's sync, but a process whose sync failed must end.
    let content = json!({"path": "src/b.txt", "content": "b\n", "mode": "CREATE_NEW", "reason": "r"});
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    let _ = run.agent.try_send(run.agent.request(Method::POST, &path).json(&content)).await;
    let ended = server.wait();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(6), "{ended}\n{}", server.log());
    drop(strace);
}

/// Starts a server that connects to PostgreSQL through a proxy.
async fn start_with_proxy() -> (Server, Proxy) {
    let mut server = Server::prepare(Setup::new(Backend::Postgres)).await;
    let proxy = Proxy::start(&server.database.url);
    server.database.url.clone_from(&proxy.url);
    server.restart();
    (server, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_token_is_refused_without_the_database() {
    let (mut server, proxy) = start_with_proxy().await;
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

/// Waits until the service has reconnected to the database.
async fn until_ready(server: &Server, probe: &Run) {
    let is_ready = async || {
        server.nobody().get("/readyz").await.status == 200 && probe.call("list_dir", json!({})).await.status == 200
    };
    server.until("the service is ready", is_ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_refused_without_the_database_and_work_after_it_returns() {
    let (mut server, proxy) = start_with_proxy().await;
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
async fn connections_lost_during_commits_lose_no_acknowledged_call() {
    let (mut server, proxy) = start_with_proxy().await;
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
    assert!(!log.contains("changed from outside"), "the service reported its own change as external\n{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_time_out_on_a_silent_database_and_work_after_it_answers() {
    let (mut server, proxy) = start_with_proxy().await;
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
async fn a_slow_database_only_delays_calls() {
    let (mut server, proxy) = start_with_proxy().await;
    proxy.set(ProxyMode::Slow(Duration::from_millis(20)));
    let mutation = Mutation::prepare(&server, Kind::Patch).await;
    mutation.assert_applied_once(&mutation.run).await;
    assert!(server.stop().success());
}

#[rstest]
#[tokio::test]
async fn a_clock_that_is_set_back_changes_no_order_and_revives_no_run(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, clock) = Server::start_with_clock(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let start = run.snapshot();
    let brief = server.run(json!({"ttlSeconds": 1})).await;
    run.create("before.txt", "x\n").await;
    let is_closed = async |run: &Run| run.get().await["state"] == "closed";
    until("the brief run expires", async || is_closed(&brief).await).await;
    let write = json!({"path": "b.txt", "content": "b\n", "reason": "r"});
    brief.call("write_file", write.clone()).await.refused("RUN_CLOSED");

    std::fs::write(&clock, "-3600").unwrap();
    run.create("after.txt", "x\n").await;
    let records = assert_consistent(&run, &start).await;
    let times: Vec<_> = records.iter().map(|record| record["timestamp"].as_str().unwrap()).collect();
    assert!(times[1] > times[2], "the clock was not set back: {times:?}");
    // Expired runs stay expired, and new runs have their full lifetime.
    brief.call("write_file", write).await.refused("RUN_CLOSED");
    let fresh = server.run(json!({"ttlSeconds": 600})).await;
    fresh.create("b.txt", "b\n").await;

    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    run.create("again.txt", "x\n").await;
    assert_consistent(&run, &start).await;
}
