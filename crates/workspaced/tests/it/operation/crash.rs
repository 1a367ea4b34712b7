//! SIGKILL at any time: acknowledged changes persist, applied changes are recorded, and no change is partial.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use crate::harness::{
    Backend, Kind, LoadedRun, Mutation, Server, Setup, Strace, assert_consistent, assert_tmp_is_empty, exhaustive,
    items, recover, setting, sha256,
};

/// A failpoint, and whether the call is recorded and answered when the process passes it.
struct Failpoint {
    name: String,
    recorded: bool,
    answered: bool,
}

/// Returns every failpoint that a mutation of `kind` passes.
fn failpoints(kind: Kind) -> Vec<Failpoint> {
    let failpoint = |name: &str, recorded, answered| Failpoint { name: name.to_owned(), recorded, answered };
    let mut failpoints = vec![
        failpoint(&format!("stage.step:{}", kind.steps()), false, false),
        failpoint("transaction.staged", false, false),
        failpoint("ledger.written", false, false),
        failpoint("ledger.committed", true, false),
        failpoint("transaction.committed", true, false),
    ];
    if kind.creates_folders() {
        failpoints.push(failpoint("apply.folder", true, false));
    }
    failpoints
        .extend((1..=kind.replaced_folders()).map(|time| failpoint(&format!("apply.emptied:{time}"), true, false)));
    failpoints.extend((1..=kind.steps()).map(|step| failpoint(&format!("apply.step:{step}"), true, false)));
    failpoints.extend((1..=kind.emptied_folders()).map(|time| failpoint(&format!("apply.left:{time}"), true, false)));
    failpoints.push(failpoint("transaction.applied", true, false));
    // They may be passed before the answer is sent: the process pauses there until it is, and is killed then.
    failpoints.push(failpoint("fsync.synced:1:pause", true, true));
    failpoints.push(failpoint("fsync.noted:1:pause", true, true));
    failpoints.push(failpoint("fsync.pruned:1:pause", true, true));
    failpoints
}

#[rstest]
#[case::patch(&[Kind::Patch, Kind::Changeset, Kind::LargeChangeset])]
#[case::exhaustive(&Kind::ALL)]
#[tokio::test]
async fn a_kill_at_any_failpoint_is_atomic(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] kinds: &[Kind],
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    for kind in kinds.iter().copied() {
        for failpoint in failpoints(kind) {
            let context = format!("{kind:?} at {}", failpoint.name);
            let mutation = Mutation::prepare(&server, kind).await;
            // The preparation is synced, so that only the mutation passes the failpoint.
            server.until_journal_is_empty().await;
            std::fs::write(&armed, &failpoint.name).unwrap();
            let status = mutation.send(&mutation.run).await;
            assert_eq!(status.is_some_and(|status| status < 300), failpoint.answered, "{context}: {status:?}");
            if failpoint.answered {
                server.until_paused(&armed).await;
                server.kill();
            } else {
                server.wait();
            }
            std::fs::remove_file(&armed).unwrap();

            let (run, records) = recover(&mut server, &mutation.run, &mutation.start).await;
            // Before the commit nothing is applied. After it everything is.
            assert_eq!(records.len(), mutation.records + usize::from(failpoint.recorded) * kind.records(), "{context}");
            mutation.assert_applied_once(&run).await;
            assert_tmp_is_empty(&server, &run).await;
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_kill_during_recovery_is_recovered(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(Kind::Patch, Kind::Swap, Kind::Empty, Kind::Changeset)] kind: Kind,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let mutation = Mutation::prepare(&server, kind).await;
    server.until_journal_is_empty().await;
    std::fs::write(&armed, "transaction.committed").unwrap();
    assert_eq!(mutation.send(&mutation.run).await, None);
    server.wait();
    // What the run has removed from its base is removed once that is recorded, and is no step of a recovery.
    let steps = (0..2).map(|_| "redo.step".to_owned());
    let emptied = (0..kind.replaced_folders()).map(|_| "apply.emptied".to_owned());
    let left = (0..kind.emptied_folders()).map(|_| "apply.left".to_owned());
    for failpoint in steps.chain(emptied).chain(left) {
        std::fs::write(&armed, &failpoint).unwrap();
        let ended = server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
        assert_eq!(ended.status.code(), None, "the process passed {failpoint}: {ended:?}");
    }
    std::fs::remove_file(&armed).unwrap();
    let (run, records) = recover(&mut server, &mutation.run, &mutation.start).await;
    assert_eq!(records.len(), mutation.records + kind.records());
    mutation.assert_applied_once(&run).await;
    assert_tmp_is_empty(&server, &run).await;
}

#[rstest]
#[tokio::test]
async fn a_file_of_the_base_that_is_made_again_is_recovered(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("d/b.txt", "b\n")], json!({})).await;
    let start = run.snapshot();
    for (path, content) in [("a.txt", "a\n"), ("d/b.txt", "b\n")] {
        let delete = json!({"path": path, "expectedSha256": sha256(content), "reason": "r"});
        run.ok("delete_file", delete).await;
    }
    server.until_journal_is_empty().await;
    std::fs::write(&armed, "transaction.committed").unwrap();
    let patch = "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+again\n--- /dev/null\n+++ b/d\n@@ -0,0 +1 @@\n+a file\n";
    let path = format!("/v1/runs/{}/tools/apply_patch", run.id);
    let pending = run.agent.request(reqwest::Method::POST, &path).json(&json!({"patch": patch, "reason": "r"}));
    assert!(run.agent.try_send(pending).await.is_err(), "the server survived the failpoint");
    server.wait();
    std::fs::remove_file(&armed).unwrap();
    server.restart();
    let run = server.reconnect(&run);
    for (path, content) in [("a.txt", "again\n"), ("d", "a file\n")] {
        assert_eq!(run.ok("read_file", json!({"path": path, "format": "raw"})).await["content"], content);
    }
    let mut tree = start;
    // A file has taken the place of the folder.
    tree.remove("d");
    assert_consistent(&run, &tree).await;
}

#[rstest]
#[case::files("renameat2,renameat,unlinkat,mkdirat,linkat", &[Kind::Empty])]
#[case::exhaustive_files("renameat2,renameat,unlinkat,mkdirat,linkat,symlinkat", &[Kind::Patch, Kind::Empty, Kind::Mode, Kind::PutLarge, Kind::Changeset, Kind::LargeChangeset])]
#[case::exhaustive_writes("pwrite64,write,writev,ftruncate", &[Kind::Replace, Kind::Patch, Kind::Changeset])]
#[case::exhaustive_syncs("fsync,fdatasync,sync_file_range", &[Kind::Move, Kind::PutLarge, Kind::Changeset, Kind::LargeChangeset])]
#[tokio::test]
async fn a_kill_at_any_system_call_is_atomic(#[case] syscalls: &str, #[case] kinds: &[Kind]) {
    let mut server = Server::start(Backend::Sqlite).await;
    let mut killed = 0;
    for kind in kinds {
        for nth in 1..=10 {
            let mutation = Mutation::prepare(&server, *kind).await;
            server.until_journal_is_empty().await;
            let action = format!("signal=KILL:when={nth}");
            let Some(strace) = Strace::attach(&server, syscalls, &action) else { return };
            let answered = mutation.send(&mutation.run).await;
            // Files are synced and the journal is pruned after the answer. A kill may occur then too.
            tokio::time::sleep(Duration::from_millis(if answered.is_some() { 150 } else { 0 })).await;
            if answered.is_none() {
                server.wait();
            }
            // Detach first, because strace can kill the process until then.
            drop(strace);
            if answered.is_some() && !server.was_killed() {
                break;
            }
            killed += 1;
            let (run, records) = recover(&mut server, &mutation.run, &mutation.start).await;
            let is_recorded = records.len() == mutation.records + kind.records();
            assert!(answered.is_none() || is_recorded, "{kind:?} was acknowledged and is lost");
            mutation.assert_applied_once(&run).await;
            assert_tmp_is_empty(&server, &run).await;
        }
    }
    assert!(killed > 0, "no kill occurred at {syscalls}");
}

/// Number of rounds after which new runs are created, to limit the cost of the checks.
const ROUNDS_PER_RUN: usize = 5;

/// `WORKSPACED_TEST_KILLS` sets the number of kills.
#[rstest]
#[case::a_few(6)]
#[case::exhaustive(setting("WORKSPACED_TEST_KILLS", 60))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_under_load_lose_no_acknowledged_call(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] kills: usize,
) {
    let mut server = Server::start(backend).await;
    let (mut runs, mut acknowledged): (Vec<LoadedRun>, _) = (Vec::new(), 0);
    for round in 0..kills {
        if round % ROUNDS_PER_RUN == 0 {
            acknowledged += runs.iter().map(LoadedRun::acknowledged).sum::<usize>();
            runs.clear();
            for _ in 0..3 {
                runs.push(LoadedRun::new(&server).await);
            }
        }
        let load: Vec<_> = runs.iter_mut().map(|run| run.start(&server)).collect();
        if round % 3 > 0 {
            runs[0].until_acknowledged().await;
        }
        // At any time: while runs are opened, between answers, and while files are synced.
        tokio::time::sleep(Duration::from_millis(5 + (round as u64 * 37) % 61)).await;
        server.kill();
        for task in load {
            task.await.unwrap();
        }
        server.restart();
        for run in &runs {
            run.assert_nothing_lost(&server).await;
        }
    }
    acknowledged += runs.iter().map(LoadedRun::acknowledged).sum::<usize>();
    assert!(acknowledged > kills / 20, "only {acknowledged} calls were acknowledged");
}

#[rstest]
#[tokio::test]
async fn a_killed_import_leaves_no_run(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let template = server.template(&[]);
    for number in 0..3000 {
        crate::harness::put(&template, &format!("d{}/f{number}.txt", number % 50), format!("{number}\n"));
    }
    let body = json!({"runId": "big", "source": {"type": "directory", "path": template}});
    let (mut interrupted, mut wait) = (0, 5);
    while wait < 2000 && interrupted < 4 {
        let operator = server.operator();
        let request = operator.request(reqwest::Method::POST, "/v1/runs").json(&body);
        let call = tokio::spawn(async move { operator.try_send(request).await.map(|answer| answer.status) });
        tokio::time::sleep(Duration::from_millis(wait)).await;
        server.kill();
        let answered = call.await.unwrap();
        server.restart();
        let answer = server.operator().get("/v1/runs/big").await;
        if answer.status == 404 {
            assert!(answered.is_err(), "an acknowledged run is lost");
            interrupted += 1;
            let mut remaining = crate::harness::snapshot(&server.data_dir().join("workspaces"));
            remaining.retain(|path, _| !path.starts_with(".git-home"));
            // A base that was made stays for a day.
            let bases = crate::harness::snapshot(&server.data_dir().join("bases"));
            remaining.extend(bases.into_iter().filter(|(path, _)| path.contains("/.") || path.starts_with('.')));
            assert!(remaining.is_empty(), "a killed import left files: {remaining:#?}");
            assert_eq!(items(&server.operator(), "/v1/runs").await.len(), 0);
        } else {
            assert_eq!(answer.ok()["state"], "open", "{}", answer.text());
            break;
        }
        wait = wait * 3 / 2;
    }
    assert!(interrupted > 0, "no import was interrupted");
    if server.operator().get("/v1/runs/big").await.status == 404 {
        let run = server.run_from(&server.operator().post("/v1/runs", body).await.is(201)).await;
        assert_eq!(run.get().await["import"]["files"], 3000);
    }
}

#[rstest]
#[tokio::test]
async fn a_base_that_was_made_and_not_placed_is_made_again(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let body = json!({"runId": "r", "source": {"type": "directory", "path": server.template(&[("a.txt", "a\n")])}});
    std::fs::write(&armed, "base.made").unwrap();
    let operator = server.operator();
    let request = operator.request(reqwest::Method::POST, "/v1/runs").json(&body);
    assert!(operator.try_send(request).await.is_err(), "the server survived the failpoint");
    server.wait();
    std::fs::remove_file(&armed).unwrap();
    server.restart();
    let bases = std::fs::read_dir(server.data_dir().join("bases")).unwrap();
    let mut names: Vec<_> = bases.map(|base| base.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["segments", "sources"]);
    assert_eq!(std::fs::read_dir(server.data_dir().join("bases/segments")).unwrap().count(), 0);
    assert_eq!(server.operator().get("/v1/runs/r").await.status, 404);
    assert_eq!(server.run(body).await.on_disk("a.txt"), "a\n");
}

#[rstest]
#[case::no_space_for_a_name("renameat2,renameat,linkat", "ENOSPC")]
#[case::exhaustive_no_space_for_a_folder("mkdirat", "ENOSPC")]
#[case::exhaustive_a_read_only_disk("renameat2,renameat,mkdirat,unlinkat", "EROFS")]
#[case::exhaustive_no_space_at_open("openat2", "ENOSPC")]
#[case::exhaustive_no_space_for_the_record("pwrite64", "ENOSPC")]
#[case::a_log_that_cannot_be_synced("fsync,fdatasync", "EIO")]
#[tokio::test]
async fn a_temporary_disk_failure_loses_nothing(#[case] syscalls: &str, #[case] error: &str) {
    let mut server = Server::start(Backend::Sqlite).await;
    for kind in [Kind::Create, Kind::Replace, Kind::PutLarge, Kind::Patch] {
        let mutation = Mutation::prepare(&server, kind).await;
        let run = &mutation.run;
        run.ok("read_file", json!({"path": "b.txt"})).await;
        let Some(strace) = Strace::attach(&server, syscalls, &format!("error={error}")) else { return };
        let answer = mutation.send(run).await;
        assert!(answer.is_none_or(|status| [200, 201, 503].contains(&status)), "{kind:?} under {error}: {answer:?}");
        if answer.is_some() && syscalls.contains("dirat") {
            run.ok("read_file", json!({"path": "a.txt"})).await;
        }
        // The process aborts after a failed sync, and is started again.
        if answer.is_none() {
            server.wait();
        }
        drop(strace);
        if answer.is_none() {
            server.restart();
        }
        let run = server.reconnect(run);
        mutation.assert_applied_once(&run).await;
        // Temporary files that could not be removed are removed when the run is opened again.
        server.kill();
        server.restart();
        assert_tmp_is_empty(&server, &server.reconnect(&run)).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_killed_deletion_is_completed_by_the_next_start(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let mutation = Mutation::prepare(&server, Kind::Create).await;
    let other = Mutation::prepare(&server, Kind::Create).await.run;
    other.create("kept.txt", "kept\n").await;
    server.kill();
    server.setup.env = vec![("WORKSPACED_FAILPOINT".into(), "transaction.committed".into())];
    server.restart();
    server.setup.env.clear();
    let run = server.reconnect(&mutation.run);
    assert_eq!(mutation.send(&run).await, None, "the server survived the failpoint");
    server.wait();

    // The deletion was killed after it set the state. The change before it was not applied.
    let of_run = format!("run_no = (SELECT run_no FROM run WHERE run_id = '{}')", run.id);
    let deleted = server.database.tamper(&format!("UPDATE run SET state = 'deleted' WHERE {of_run}")).await;
    assert_eq!(deleted, Ok(1));
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.get().await["state"], "deleted");
    assert!(!server.workspace(&run.id).exists());
    for table in ["content", "step"] {
        let deleted = server.database.tamper(&format!("DELETE FROM {table} WHERE {of_run}")).await;
        assert_eq!(deleted, Ok(0), "{table}");
    }
    let kept = server.database.tamper("DELETE FROM content").await.unwrap_err();
    assert!(kept.contains("only grows until its run is deleted"), "{kept}");
    assert_eq!(run.verify().await["intact"], true);
}
