//! Many writers at a time: the run's folder may be behind the answers for a moment, and nobody sees a difference.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    Backend, Disk, Run, Server, Setup, Storm, WRITERS, Wrote, assert_sound, assert_swept, recover, sha256, stormy,
    stormy_text, stormy_version,
};

/// How long the folder may be behind where a test wants it to be so for as long as the storm lasts, in milliseconds.
const LONG: u64 = 10_000;

/// How many changes were answered before the folder had them.
async fn behind(server: &Server) -> u64 {
    let metrics = server.nobody().get("/metrics").await.text();
    let count = metrics.lines().find_map(|line| line.strip_prefix("workspaced_changes_behind_total "));
    count.map_or(0, |count| count.parse().unwrap())
}

/// The version of writer `number` that is on the disk.
#[track_caller]
fn on_disk(run: &Run, number: usize) -> u64 {
    stormy_version(number, &run.on_disk(&stormy(number)))
}

/// Every writer's last version is in the folder, and nothing else.
#[track_caller]
fn assert_in_folder(run: &Run, wrote: &[Wrote]) {
    for (number, wrote) in wrote.iter().enumerate() {
        assert_eq!(run.on_disk(&wrote.path), stormy_text(number, wrote.told), "{wrote:?}");
    }
}

/// The text of every file in a `.tar.gz`.
fn texts_in(archive: &[u8]) -> String {
    let mut files = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut all = String::new();
    for file in files.entries().unwrap() {
        file.unwrap().read_to_string(&mut all).unwrap();
    }
    all
}

/// What some look at the run shows of writer `number`'s file.
async fn look(run: &Run, number: usize, way: usize) -> String {
    let path = stormy(number);
    let text = |value: Value| value.to_string();
    match way {
        0 => text(run.ok("read_file", json!({"path": path})).await),
        1 => text(run.ok("search_text", json!({"query": format!("writer {number} version")})).await),
        2 => text(run.ok("diff_workspace", json!({})).await),
        3 => text(run.ok("diff_workspace", json!({"checkTree": false})).await),
        4 => text(run.ok("read_files", json!({"paths": [path, "storm/f0.txt"]})).await),
        5 => run.agent.get(&format!("/v1/runs/{}/files/{path}", run.id)).await.text(),
        6 => {
            let answer = run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            texts_in(&answer.body)
        }
        7 => {
            let answer = run.operator.get(&format!("/v1/runs/{}/patch", run.id)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.text()
        }
        _ => {
            let dry = json!({"path": path, "oldString": "and more", "newString": "x", "reason": "r", "dryRun": true});
            run.ok("edit_file", dry).await;
            let stale = run.replace(&path, "x\n", &sha256("never there\n")).await.refused("WRITE_CONFLICT");
            let seen = stale["currentSha256"].as_str().unwrap();
            let is = |version: &u64| sha256(stormy_text(number, *version)) == seen;
            let version = (0..100_000).find(is).expect("a version that was written");
            stormy_text(number, version)
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_what_everybody_sees(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--write-behind-ms", LONG)).await;
    let (run, start) = Storm::prepare(&server).await;
    let storm = Storm::begin(&server, &run).await;
    for way in 0..9 {
        let number = 3 + way;
        let told = storm.told(number);
        let seen = stormy_version(number, &look(&run, number, way).await);
        assert!(seen >= told, "look {way} shows version {seen} after {told} was answered");
    }
    // A call's first answer is its answer, and what it wrote is there, however it is asked for.
    let once = json!({"path": "once.txt", "content": "once\n", "reason": "r", "toolCallId": "once"});
    let first = run.ok("write_file", once.clone()).await;
    let twice = json!({"path": "once.txt", "content": "2\n", "expectedSha256": sha256("once\n"), "reason": "r", "toolCallId": "2"});
    let second = run.ok("write_file", twice.clone()).await;
    assert_eq!(run.ok("write_file", once).await, first);
    assert_eq!(run.ok("write_file", twice).await, second);
    assert_eq!(run.ok("read_file", json!({"path": "once.txt"})).await["sha256"], sha256("2\n"));
    // Mutations of every other kind begin with it as well.
    run.patch("--- a/once.txt\n+++ b/once.txt\n@@ -1 +1 @@\n-2\n+3\n").await.ok();
    run.replace("once.txt", "4\n", &sha256("3\n")).await.ok();
    let moved = json!({"from": "once.txt", "to": "moved.txt", "expectedSha256": sha256("4\n"), "reason": "r"});
    run.ok("move_file", moved).await;
    run.replace("moved.txt", "5\n", &sha256("4\n")).await.ok();
    run.ok("delete_file", json!({"path": "moved.txt", "expectedSha256": sha256("5\n"), "reason": "r"})).await;

    let wrote = storm.end().await;
    assert_in_folder(&run, &wrote);
    assert!(!run.repo.join("once.txt").exists() && !run.repo.join("moved.txt").exists());
    assert!(wrote.iter().all(|wrote| wrote.refused.is_none()), "{wrote:#?}");
    assert!(behind(&server).await > 0, "the folder never was behind");
    let records = assert_sound(&run, &start).await;
    let changes = records.iter().filter(|record| record["reason"] == "storm").count() as u64;
    assert_eq!(changes, wrote.iter().map(|wrote| wrote.told).sum::<u64>());
    assert_swept(&server, &run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folder_is_behind_for_no_longer_than_is_set(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start_with(Setup::new(backend).arg("--write-behind-ms", 50)).await;
    let (run, _) = Storm::prepare(&server).await;
    let storm = Storm::begin(&server, &run).await;
    for number in 0..20 {
        let told = storm.told(number);
        // Long enough for a machine that is busy with other tests.
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while on_disk(&run, number) < told {
            assert!(std::time::Instant::now() < deadline, "version {told} is not in the folder");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // One that nobody writes any more does not wait for the others to end.
    run.create("quiet.txt", "0\n").await;
    for version in 1..5 {
        let seen = sha256(format!("{}\n", version - 1));
        run.replace("quiet.txt", &format!("{version}\n"), &seen).await.ok();
    }
    tokio::time::timeout(Duration::from_secs(5), async {
        while run.on_disk("quiet.txt") != "4\n" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("a file that is quiet stays behind");
    assert_in_folder(&run, &storm.end().await);
    assert!(behind(&server).await > 0, "the folder never was behind");
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folder_is_never_behind_where_that_is_set(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--write-behind-ms", 0)).await;
    let (run, _) = Storm::prepare(&server).await;
    let storm = Storm::begin(&server, &run).await;
    for number in 0..200 {
        let told = storm.told(number % WRITERS);
        assert!(on_disk(&run, number % WRITERS) >= told);
        tokio::task::yield_now().await;
    }
    assert_in_folder(&run, &storm.end().await);
    assert_eq!(behind(&server).await, 0);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_a_storm_loses_nothing_that_was_acknowledged(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend).arg("--write-behind-ms", 40)).await;
    for place in [
        "pipeline.journalled:90",
        "ledger.committed:9",
        "behind.late:1",
        "behind.late:30",
        "behind.applied:1",
        "behind.applied:30",
        "stage.step:70",
        "apply.step:70",
        "syncer.synced:2",
        "syncer.forgotten:2",
    ] {
        let (run, start) = Storm::prepare(&server).await;
        server.until_forgotten().await;
        std::fs::write(&armed, place).unwrap();
        let storm = Storm::begin(&server, &run).await;
        server.wait(Duration::from_secs(20));
        let wrote = storm.end().await;
        std::fs::remove_file(&armed).unwrap();
        let (run, _) = recover(&mut server, &run, &start).await;
        for (number, wrote) in wrote.iter().enumerate() {
            let found = on_disk(&run, number);
            assert!([wrote.told, wrote.told + 1].contains(&found), "{place}: {found} is there of {wrote:?}");
        }
        assert_swept(&server, &run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_a_storm_loses_nothing_that_was_acknowledged(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend).arg("--write-behind-ms", 60)).await;
    let Some(disk) = Disk::ext4(&server.data_dir(), 64) else { return };
    server.restart();
    for cut in 0..4 {
        let (run, start) = Storm::prepare(&server).await;
        let storm = Storm::begin(&server, &run).await;
        tokio::time::sleep(Duration::from_millis(cut * 70)).await;
        // What is answered after the cut is told by a machine that has no power.
        let told: Vec<_> = (0..WRITERS).map(|number| storm.told(number)).collect();
        disk.cut();
        server.kill();
        storm.end().await;
        disk.start_again();
        server.restart();
        let run = server.reconnect(&run);
        for (number, told) in told.into_iter().enumerate() {
            assert!(on_disk(&run, number) >= told, "{} of version {told}", stormy(number));
        }
        assert_sound(&run, &start).await;
        assert_swept(&server, &run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_behind_the_answers_loses_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("behind.late:7:panic", "behind.applied:7:panic", "stage.step:60:panic")] place: &str,
) {
    let (server, armed) = Server::start_armed(Setup::new(backend).arg("--write-behind-ms", 40)).await;
    let (run, start) = Storm::prepare(&server).await;
    std::fs::write(&armed, place).unwrap();
    let storm = Storm::begin(&server, &run).await;
    for _ in 0..1000 {
        if server.log().contains("panicked") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(server.log().contains("panicked"), "{place} was not passed");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let wrote = storm.end().await;
    for (number, wrote) in wrote.iter().enumerate() {
        let seen = stormy_version(number, &look(&run, number, 0).await);
        assert!([wrote.told, wrote.told + 1].contains(&seen), "{seen} is there of {wrote:?}");
        assert!(wrote.refused.as_ref().is_none_or(|code| code == "INTERNAL"), "{wrote:?}");
    }
    assert!(wrote.iter().filter(|wrote| wrote.refused.is_some()).count() <= 1, "{wrote:#?}");
    assert_sound(&run, &start).await;
    assert_swept(&server, &run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_from_outside_to_a_file_that_is_behind_stops_that_run_alone(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start_with(Setup::new(backend).arg("--write-behind-ms", LONG)).await;
    let (run, _) = Storm::prepare(&server).await;
    let other = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("mine.txt", "0\n").await;
    let storm = Storm::begin(&server, &run).await;
    let version = leave_behind(&run, 0).await;
    run.put("mine.txt", "from outside\n");
    let wrote = storm.end().await;
    assert_in_folder(&run, &wrote);
    assert_eq!(run.on_disk("mine.txt"), "from outside\n", "it was overwritten");
    let told = format!("{version}\n");
    run.replace("mine.txt", "next\n", &sha256(&told)).await.refused("RUN_NEEDS_REPAIR");
    run.ok("read_file", json!({"path": "storm/f0.txt"})).await;
    other.replace("a.txt", "other\n", &sha256("a\n")).await.ok();

    assert!(server.stop().success());
    let repaired = server.command("repair").args(["--run", &run.id, "--accept", "ledger", "--yes"]).output().unwrap();
    assert!(repaired.status.success(), "{repaired:?}");
    assert_eq!(run.on_disk("mine.txt"), told);
    assert_in_folder(&run, &wrote);
    server.restart();
    let run = server.reconnect(&run);
    run.replace("mine.txt", "next\n", &sha256(&told)).await.ok();
    assert_eq!(run.verify().await["intact"], true);
}

/// Replaces `mine.txt`, which holds `{version}`, until the folder is behind; the version that was answered last.
async fn leave_behind(run: &Run, mut version: u64) -> u64 {
    // Whether one change waits depends on how many are under way at that moment.
    for _ in 0..1000 {
        let seen = sha256(format!("{version}\n"));
        version += 1;
        run.replace("mine.txt", &format!("{version}\n"), &seen).await.ok();
        if run.on_disk("mine.txt") != format!("{version}\n") {
            return version;
        }
    }
    panic!("the folder never is behind");
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_holds_for_a_file_that_is_behind(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--write-behind-ms", LONG)).await;
    let (run, start) = Storm::prepare(&server).await;
    run.create("mine.txt", "0\n").await;
    let storm = Storm::begin(&server, &run).await;
    let version = leave_behind(&run, 0).await;
    let seen = sha256(format!("{version}\n"));
    let secret = format!("{version}\nkey = \"{}{}\"\n", "AKIA", "Q3EGRVZ7LNKPXW2M");
    run.replace("mine.txt", &secret, &seen).await.refused("POLICY_DENIED_SECRET");
    run.replace("mine.txt", "a\0b", &seen).await.refused("UNSUPPORTED_BINARY");
    // A file beneath it, or behind another name of it, is none.
    run.call("write_file", json!({"path": "mine.txt/x", "content": "x\n", "reason": "r"}))
        .await
        .refused("NOT_A_DIRECTORY");
    let version = leave_behind(&run, version).await;
    let wrote = storm.end().await;
    assert_in_folder(&run, &wrote);
    assert_eq!(run.on_disk("mine.txt"), format!("{version}\n"));
    assert_sound(&run, &start).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_in_a_storm_loses_nothing_that_was_answered(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend).arg("--write-behind-ms", LONG)).await;
    let place = server.data_dir().join("workspaces");
    let Some(disk) = Disk::in_memory(&place, "size=32m") else { return };
    server.restart();
    let (run, start) = Storm::prepare(&server).await;
    let storm = Storm::begin(&server, &run).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let filler = disk.fill();
    let wrote = storm.end().await;
    for (number, wrote) in wrote.iter().enumerate() {
        assert!(wrote.refused.as_ref().is_none_or(|code| code == "UNAVAILABLE"), "{wrote:?}");
        // What was answered, or nothing: never what was there before it.
        let read = run.call("read_file", json!({"path": wrote.path})).await;
        if read.status == 200 {
            assert!(stormy_version(number, &read.text()) >= wrote.told, "{wrote:?}: {}", read.text());
        } else {
            read.refused("UNAVAILABLE");
        }
    }
    drop(filler);
    let mut found = BTreeMap::new();
    for (number, wrote) in wrote.iter().enumerate() {
        let seen = stormy_version(number, &look(&run, number, 0).await);
        assert!([wrote.told, wrote.told + 1].contains(&seen), "{seen} is there of {wrote:?}");
        found.insert(number, seen);
    }
    for (number, seen) in found {
        assert_eq!(on_disk(&run, number), seen);
    }
    assert_sound(&run, &start).await;
    assert_swept(&server, &run).await;
    assert!(server.stop().success());
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_in_a_storm_leaves_nothing_behind(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start_with(Setup::new(backend).arg("--write-behind-ms", LONG)).await;
    let (run, start) = Storm::prepare(&server).await;
    let storm = Storm::begin(&server, &run).await;
    server.signal(Signal::TERM);
    let wrote = storm.end().await;
    assert!(server.wait(Duration::from_secs(30)).success());
    for (number, wrote) in wrote.iter().enumerate() {
        let found = on_disk(&run, number);
        assert!([wrote.told, wrote.told + 1].contains(&found), "{found} is there of {wrote:?}");
    }
    let tree = run.snapshot();
    server.restart();
    let run = server.reconnect(&run);
    assert!(!server.log().contains("pending changes of an earlier process"), "{}", server.log());
    assert_eq!(run.snapshot(), tree);
    assert_sound(&run, &start).await;
}

/// It has the whole tree for itself while it looks: it must not wait for itself there.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_answered_while_many_write(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--write-behind-ms", LONG)).await;
    let (run, start) = Storm::prepare(&server).await;
    let storm = Storm::begin(&server, &run).await;
    let path = format!("/v1/runs/{}/drift", run.id);
    for _ in 0..5 {
        let drift = run.agent.get(&path);
        let drift = tokio::time::timeout(Duration::from_secs(20), drift).await.expect("it waits for itself").ok();
        assert_eq!(drift["items"], json!([]), "{drift:#}");
    }
    let wrote = storm.end().await;
    assert!(wrote.iter().all(|wrote| wrote.refused.is_none()), "{wrote:#?}");
    assert_in_folder(&run, &wrote);
    assert_sound(&run, &start).await;
}
