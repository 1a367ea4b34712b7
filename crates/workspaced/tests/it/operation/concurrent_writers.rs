//! Many concurrent writers in one run: every reader sees what was acknowledged, and no fault loses it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    Backend, ConcurrentWriters, Disk, Run, Server, Setup, WRITER_REASON, WRITERS, WriterResult, assert_consistent,
    assert_tmp_is_empty, exhaustive, in_time, newest_version_in, recover, sha256, writer_path, writer_text,
};

/// Returns the version of writer `number`'s file on disk.
#[track_caller]
fn version_on_disk(run: &Run, number: usize) -> u64 {
    newest_version_in(&run.on_disk(&writer_path(number)), number)
}

/// Asserts that each file on disk has its last acknowledged version.
#[track_caller]
fn assert_on_disk(run: &Run, results: &[WriterResult]) {
    for (number, result) in results.iter().enumerate() {
        assert_eq!(run.on_disk(&result.path), writer_text(number, result.acknowledged), "{result:?}");
    }
}

/// Returns the text of all files in a `.tar.gz`.
fn texts_in(archive: &[u8]) -> String {
    let mut files = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut all = String::new();
    for file in files.entries().unwrap() {
        file.unwrap().read_to_string(&mut all).unwrap();
    }
    all
}

/// A way to read a file of a run.
#[derive(Clone, Copy, Debug)]
enum Reader {
    ReadFile,
    SearchText,
    Diff,
    DiffWithoutTreeCheck,
    ReadFiles,
    Download,
    Archive,
    Patch,
    WriteConflict,
}

impl Reader {
    const ALL: [Self; 9] = [
        Self::ReadFile,
        Self::SearchText,
        Self::Diff,
        Self::DiffWithoutTreeCheck,
        Self::ReadFiles,
        Self::Download,
        Self::Archive,
        Self::Patch,
        Self::WriteConflict,
    ];

    /// Returns an answer that contains the content of writer `number`'s file.
    async fn read(self, run: &Run, number: usize) -> String {
        let path = writer_path(number);
        let text = |value: Value| value.to_string();
        match self {
            Self::ReadFile => text(run.ok("read_file", json!({"path": path})).await),
            Self::SearchText => text(run.ok("search_text", json!({"query": format!("writer {number} version")})).await),
            Self::Diff => text(run.ok("diff_workspace", json!({})).await),
            Self::DiffWithoutTreeCheck => text(run.ok("diff_workspace", json!({"checkTree": false})).await),
            Self::ReadFiles => text(run.ok("read_files", json!({"paths": [path, writer_path(0)]})).await),
            Self::Download => run.agent.get(&format!("/v1/runs/{}/files/{path}", run.id)).await.text(),
            Self::Archive => {
                let answer = run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                texts_in(&answer.body)
            }
            Self::Patch => {
                let answer = run.operator.get(&format!("/v1/runs/{}/patch", run.id)).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                answer.text()
            }
            Self::WriteConflict => {
                let dry =
                    json!({"path": path, "oldString": "and more", "newString": "x", "reason": "r", "dryRun": true});
                run.ok("edit_file", dry).await;
                let stale = run.replace(&path, "x\n", &sha256("a stale version\n")).await.refused("WRITE_CONFLICT");
                let current = stale["currentSha256"].as_str().unwrap();
                let is_current = |version: &u64| sha256(writer_text(number, *version)) == current;
                let version = (0..100_000).find(is_current).expect("a version that was written");
                writer_text(number, version)
            }
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reader_sees_acknowledged_changes(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::start(backend).await;
    let (run, start) = ConcurrentWriters::prepare(&server).await;
    let writers = ConcurrentWriters::start(&server, &run).await;
    for (number, reader) in (3..).zip(Reader::ALL) {
        let acknowledged = writers.acknowledged(number);
        let seen = newest_version_in(&reader.read(&run, number).await, number);
        assert!(seen >= acknowledged, "{reader:?} shows version {seen} after {acknowledged} was acknowledged");
    }
    // A repeated call gets its first answer, and its effect stays readable.
    let once = json!({"path": "once.txt", "content": "once\n", "reason": "r", "toolCallId": "once"});
    let first = run.ok("write_file", once.clone()).await;
    let twice = json!({"path": "once.txt", "content": "2\n", "expectedSha256": sha256("once\n"), "reason": "r", "toolCallId": "2"});
    let second = run.ok("write_file", twice.clone()).await;
    assert_eq!(run.ok("write_file", once).await, first);
    assert_eq!(run.ok("write_file", twice).await, second);
    assert_eq!(run.ok("read_file", json!({"path": "once.txt"})).await["sha256"], sha256("2\n"));
    // Every other kind of mutation starts from the acknowledged content too.
    run.patch("--- a/once.txt\n+++ b/once.txt\n@@ -1 +1 @@\n-2\n+3\n").await.ok();
    run.replace("once.txt", "4\n", &sha256("3\n")).await.ok();
    let moved = json!({"from": "once.txt", "to": "moved.txt", "expectedSha256": sha256("4\n"), "reason": "r"});
    run.ok("move_file", moved).await;
    run.replace("moved.txt", "5\n", &sha256("4\n")).await.ok();
    run.ok("delete_file", json!({"path": "moved.txt", "expectedSha256": sha256("5\n"), "reason": "r"})).await;

    let results = writers.stop().await;
    assert_on_disk(&run, &results);
    assert!(!run.repo.join("once.txt").exists() && !run.repo.join("moved.txt").exists());
    assert!(results.iter().all(|result| result.refused.is_none()), "{results:#?}");
    let records = assert_consistent(&run, &start).await;
    let changes = records.iter().filter(|record| record["reason"] == WRITER_REASON).count() as u64;
    assert_eq!(changes, results.iter().map(|result| result.acknowledged).sum::<u64>());
    assert_tmp_is_empty(&server, &run).await;
}

/// A drift check locks the whole tree. It must not wait for writers that wait for it.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_answered_while_many_write(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::start(backend).await;
    let (run, start) = ConcurrentWriters::prepare(&server).await;
    let writers = ConcurrentWriters::start(&server, &run).await;
    let path = format!("/v1/runs/{}/drift", run.id);
    for _ in 0..5 {
        let drift = run.agent.get(&path);
        let drift = in_time("the answer of drift, which takes locks", drift).await.ok();
        assert_eq!(drift["items"], json!([]), "{drift:#}");
    }
    let results = writers.stop().await;
    assert!(results.iter().all(|result| result.refused.is_none()), "{results:#?}");
    assert_on_disk(&run, &results);
    assert_consistent(&run, &start).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_under_concurrent_writes_loses_no_acknowledged_change(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    for failpoint in [
        "transaction.committed:90",
        "ledger.committed:9",
        "stage.step:70",
        "apply.step:70",
        "fsync.synced:2",
        "fsync.noted:2",
        "fsync.pruned:2",
    ] {
        let (run, start) = ConcurrentWriters::prepare(&server).await;
        server.until_journal_is_empty().await;
        std::fs::write(&armed, failpoint).unwrap();
        let writers = ConcurrentWriters::start(&server, &run).await;
        server.wait();
        let results = writers.stop().await;
        std::fs::remove_file(&armed).unwrap();
        let (run, _) = recover(&mut server, &run, &start).await;
        for (number, result) in results.iter().enumerate() {
            let found = version_on_disk(&run, number);
            let expected = [result.acknowledged, result.acknowledged + 1];
            assert!(expected.contains(&found), "{failpoint}: version {found} of {result:?}");
        }
        assert_tmp_is_empty(&server, &run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_loss_under_concurrent_writes_loses_no_acknowledged_change(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let Some(disk) = Disk::ext4(&server.data_dir(), 64) else { return };
    server.restart();
    for cut in 0..4 {
        let (run, start) = ConcurrentWriters::prepare(&server).await;
        let writers = ConcurrentWriters::start(&server, &run).await;
        tokio::time::sleep(Duration::from_millis(cut * 70)).await;
        // A real machine answers nothing after a power loss, so only earlier acknowledgements count.
        let acknowledged: Vec<_> = (0..WRITERS).map(|number| writers.acknowledged(number)).collect();
        disk.cut_power();
        server.kill();
        writers.stop().await;
        disk.restore_power();
        server.restart();
        let run = server.reconnect(&run);
        for (number, acknowledged) in acknowledged.into_iter().enumerate() {
            let path = writer_path(number);
            assert!(version_on_disk(&run, number) >= acknowledged, "{path} lost version {acknowledged}");
        }
        assert_consistent(&run, &start).await;
        assert_tmp_is_empty(&server, &run).await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_under_concurrent_writes_loses_no_acknowledged_change(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, armed) = Server::start_armed(Setup::new(backend)).await;
    let (run, start) = ConcurrentWriters::prepare(&server).await;
    std::fs::write(&armed, "stage.step:60:panic").unwrap();
    let writers = ConcurrentWriters::start(&server, &run).await;
    server.until_logged("panicked").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let results = writers.stop().await;
    for (number, result) in results.iter().enumerate() {
        let seen = newest_version_in(&Reader::ReadFile.read(&run, number).await, number);
        assert!([result.acknowledged, result.acknowledged + 1].contains(&seen), "version {seen} of {result:?}");
        assert!(result.refused.as_ref().is_none_or(|code| code == "INTERNAL"), "{result:?}");
    }
    assert!(results.iter().filter(|result| result.refused.is_some()).count() <= 1, "{results:#?}");
    assert_consistent(&run, &start).await;
    assert_tmp_is_empty(&server, &run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_concurrent_writes_loses_no_acknowledged_change(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    let mount_point = server.data_dir().join("workspaces");
    let Some(disk) = Disk::in_memory(&mount_point, "size=32m") else { return };
    server.restart();
    let (run, start) = ConcurrentWriters::prepare(&server).await;
    let writers = ConcurrentWriters::start(&server, &run).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let filler = disk.fill();
    let results = writers.stop().await;
    for (number, result) in results.iter().enumerate() {
        assert!(result.refused.as_ref().is_none_or(|code| code == "UNAVAILABLE"), "{result:?}");
        // A read shows the acknowledged version or fails. It never shows an older one.
        let read = run.call("read_file", json!({"path": result.path})).await;
        if read.status == 200 {
            assert!(newest_version_in(&read.text(), number) >= result.acknowledged, "{result:?}: {}", read.text());
        } else {
            read.refused("UNAVAILABLE");
        }
    }
    drop(filler);
    let mut versions = BTreeMap::new();
    for (number, result) in results.iter().enumerate() {
        let seen = newest_version_in(&Reader::ReadFile.read(&run, number).await, number);
        assert!([result.acknowledged, result.acknowledged + 1].contains(&seen), "version {seen} of {result:?}");
        versions.insert(number, seen);
    }
    for (number, seen) in versions {
        assert_eq!(version_on_disk(&run, number), seen);
    }
    assert_consistent(&run, &start).await;
    assert_tmp_is_empty(&server, &run).await;
    assert!(server.stop().success());
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_under_concurrent_writes_leaves_nothing_pending(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let (run, start) = ConcurrentWriters::prepare(&server).await;
    let writers = ConcurrentWriters::start(&server, &run).await;
    server.signal(Signal::TERM);
    let results = writers.stop().await;
    assert!(server.wait().success());
    for (number, result) in results.iter().enumerate() {
        let found = version_on_disk(&run, number);
        assert!([result.acknowledged, result.acknowledged + 1].contains(&found), "version {found} of {result:?}");
    }
    let tree = run.snapshot();
    server.restart();
    let run = server.reconnect(&run);
    assert!(!server.log().contains("pending changes of an earlier process"), "{}", server.log());
    assert_eq!(run.snapshot(), tree);
    assert_consistent(&run, &start).await;
}
