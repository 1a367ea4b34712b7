//! The folder of a run that does not belong to the history in the database: an older copy of the folder, or a database that has lost
//! records. Nothing is served that the database does not have, and nothing is deleted.

use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::Method;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::nodes;
use crate::harness::{Backend, Database, Run, Server, Setup, assert_chain, exhaustive, incompressible, sha256};
use crate::operation::backup::steps::LARGE;
use crate::operation::replay_and_repair::{assert_ends, offline, output_of, put};

/// A failover and a restored backup differ in that the service was started in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    WhileRunning,
    WhileStopped,
}

/// Copies the database, as it reaches a standby that lags behind.
async fn copy_database(server: &mut Server, run: &Run, copied: Copied) -> Database {
    server.until_journal_is_empty().await;
    if copied == Copied::WhileStopped {
        assert!(server.stop().success());
        let copy = server.database.copy().await;
        server.restart();
        return copy;
    }
    server.signal(Signal::STOP);
    server.database.close_connections().await;
    let copy = server.database.copy().await;
    server.signal(Signal::CONT);
    // Its connections were closed.
    server.until("a call succeeds", async || run.call("list_dir", json!({})).await.status == 200).await;
    copy
}

/// Starts the server with another database, without the newest records.
async fn restart_with(server: &mut Server, database: Database) {
    server.kill();
    server.database.replace_by(database).await;
    server.restart();
}

fn lost(server: &Server, path: &str) -> PathBuf {
    server.data_dir().join("lost+found").join(path)
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

async fn raw(run: &Run, path: &str) -> Value {
    run.ok("read_file", json!({"path": path, "format": "raw"})).await["content"].clone()
}

/// Checks that the files of the run are those of its records.
async fn assert_one_story(run: &Run) {
    let drift = run.agent.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    assert_eq!(drift["items"], json!([]), "{drift:#}");
    assert_chain(&run.id, &run.audit().await);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_whose_records_the_database_has_lost_are_set_aside(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(Copied::WhileRunning, Copied::WhileStopped)] copied: Copied,
) {
    let mut server = Server::start(backend).await;
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), (".gitignore", "*.log\n"), ("old.log", "ignored\n")];
    let run = server.run_with_files(&files, json!({"runId": "r", "policy": {"ignoredFiles": "ALLOW"}})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    let large = incompressible(LARGE);
    put(&run, "large.bin", None, &large).await;
    let artifact = server.workspace("r").join("artifacts/report.txt");
    std::fs::write(&artifact, "report\n").unwrap();
    let older = copy_database(&mut server, &run, copied).await;
    let run = server.reconnect(&run);
    run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    run.create("new.txt", "new\n").await;
    run.replace("old.log", "later\n", &sha256("ignored\n")).await.ok();
    run.ok("delete_file", json!({"path": "b.txt", "expectedSha256": sha256("b\n"), "reason": "r"})).await;
    server.until_journal_is_empty().await;
    let newest = run.last_record().await;
    restart_with(&mut server, older).await;

    let run = server.reconnect(&run);
    assert_eq!(raw(&run, "a.txt").await, "one\n", "{}", server.log());
    assert_eq!((raw(&run, "b.txt").await, raw(&run, "old.log").await), (json!("b\n"), json!("ignored\n")));
    run.call("read_file", json!({"path": "new.txt"})).await.refused("NOT_FOUND");
    assert!(!run.repo.join("new.txt").exists());
    assert!(std::fs::read(run.file("large.bin")).unwrap() == large, "another content");
    assert_eq!(std::fs::read_to_string(&artifact).unwrap(), "report\n");
    let kept = |path: &str| std::fs::read_to_string(lost(&server, "r/repo").join(path)).unwrap();
    assert_eq!((kept("a.txt"), kept("new.txt"), kept("old.log")), ("two\n".into(), "new\n".into(), "later\n".into()));
    assert!(lost(&server, "r/artifacts/report.txt").exists() && !lost(&server, "r/repo/b.txt").exists());
    // Its numbers are given out again, and a record says so.
    let records = run.audit().await;
    let said = records.iter().find(|record| record["tool"] == "run.set_aside").unwrap();
    let [head, reached] = ["headSeq", "reachedSeq"].map(|name| said["input"][name].as_u64().unwrap());
    assert_eq!(said["seq"], head + 1);
    assert_eq!((reached, &said["input"]["reachedHash"]), (newest["seq"].as_u64().unwrap(), &newest["hash"]));
    let numbers = server.nobody().get("/metrics").await.text();
    assert!(numbers.contains("\nworkspaced_lost_folders 1\n"), "{numbers}");
    assert!(server.log().contains("the database has lost records of a run"), "{}", server.log());
    run.replace("a.txt", "again\n", &sha256("one\n")).await.ok();
    assert_one_story(&run).await;
    // Once is enough.
    server.until_journal_is_empty().await;
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(raw(&run, "a.txt").await, "again\n");
    assert_eq!(run.audit().await.iter().filter(|record| record["tool"] == "run.set_aside").count(), 1);
    assert_one_story(&run).await;
    assert!(server.stop().success());
    let to = server.home.join("to").display().to_string();
    let replayed = output_of(&offline(&server, "replay", &["--run", "r", "--to", &to]));
    assert!(replayed.contains("the workspace is equal"), "{replayed}");
    assert_ends(&offline(&server, "repair", &[]), 1, &["lost+found/r", "operator action needed: 1"]);
}

/// The note in the folder precedes the change, and its own sync does not.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_applied_and_not_synced_is_set_aside_too(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    let older = copy_database(&mut server, &run, Copied::WhileRunning).await;
    std::fs::write(&armed, "transaction.applied").unwrap();
    let body = json!({"path": "new.txt", "content": "new\n", "reason": "r"});
    let call = run.agent.request(Method::POST, "/v1/runs/r/tools/write_file").json(&body);
    assert!(run.agent.try_send(call).await.is_err(), "the server survived");
    server.wait();
    std::fs::write(&armed, "").unwrap();
    assert!(run.repo.join("new.txt").exists());
    server.database.replace_by(older).await;
    server.restart();
    let run = server.reconnect(&run);
    run.call("read_file", json!({"path": "new.txt"})).await.refused("NOT_FOUND");
    assert_eq!(std::fs::read_to_string(lost(&server, "r/repo/new.txt")).unwrap(), "new\n");
    assert_one_story(&run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_made_again_stay_where_they_are_and_are_not_served(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    let large = incompressible(LARGE);
    put(&run, "large.bin", None, &large).await;
    let older = copy_database(&mut server, &run, Copied::WhileRunning).await;
    let run = server.reconnect(&run);
    // The ledger does not have its content.
    put(&run, "large.bin", Some(&large), b"small").await;
    run.create("new.txt", "new\n").await;
    server.until_journal_is_empty().await;
    server.kill();
    let newest = server.database.copy().await;
    let before = run.files();
    restart_with(&mut server, older).await;
    let lagging = server.reconnect(&run);
    for _ in 0..2 {
        lagging.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
    }
    let call = json!({"path": "c.txt", "content": "c\n", "reason": "r"});
    lagging.call("write_file", call).await.refused("RUN_NEEDS_REPAIR");
    assert_eq!(lagging.files(), before);
    assert!(!lost(&server, "r").exists());
    assert!(lagging.audit().await.iter().all(|record| record["tool"] != "run.set_aside"));
    server.kill();
    let says = ["r: its folder has changes up to record", "a history that the database has lost"];
    assert_ends(&offline(&server, "repair", &[]), 1, &says);
    restart_with(&mut server, newest).await;
    let run = server.reconnect(&run);
    assert_eq!(raw(&run, "new.txt").await, "new\n");
    assert_one_story(&run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_can_accept_the_files_of_a_lost_history(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    let older = copy_database(&mut server, &run, Copied::WhileRunning).await;
    let run = server.reconnect(&run);
    run.create("new.txt", "new\n").await;
    server.until_journal_is_empty().await;
    server.kill();
    server.database.replace_by(older).await;
    let accept = offline(&server, "repair", &["--run", "r", "--accept", "tree", "--yes"]);
    assert_ends(&accept, 0, &["its folder has changes up to record", "the files are recorded as they are"]);
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(raw(&run, "new.txt").await, "new\n");
    assert!(!lost(&server, "r").exists());
    assert_one_story(&run).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_folder_of_a_run_is_made_again(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n")], json!({"runId": "r"})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    server.until_journal_is_empty().await;
    let older = server.home.join("older");
    copy_folder(&server.workspace("r"), &older);
    put_newer(&run).await;
    server.until_journal_is_empty().await;
    server.kill();
    std::fs::remove_dir_all(server.workspace("r")).unwrap();
    copy_folder(&older, &server.workspace("r"));
    server.restart();
    assert_newer(&server.reconnect(&run)).await;
    // It is a part of the history that the database has.
    assert!(!lost(&server, "r").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_folder_of_a_node_is_made_again() {
    let mut node = nodes::prepare(None).await;
    nodes::start(&mut node);
    let run = node.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n")], json!({"runId": "r"})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    node.until_journal_is_empty().await;
    let older = node.home.join("older");
    copy_folder(&node.workspace("r"), &older);
    put_newer(&run).await;
    node.until_journal_is_empty().await;
    node.kill();
    std::fs::remove_dir_all(node.workspace("r")).unwrap();
    copy_folder(&older, &node.workspace("r"));
    nodes::start(&mut node);
    assert_newer(&node.reconnect(&run)).await;
}

async fn put_newer(run: &Run) {
    run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    run.create("new.txt", "new\n").await;
    run.ok("delete_file", json!({"path": "b.txt", "expectedSha256": sha256("b\n"), "reason": "r"})).await;
}

async fn assert_newer(run: &Run) {
    run.replace("a.txt", "stale\n", &sha256("one\n")).await.refused("WRITE_CONFLICT");
    assert_eq!((raw(run, "a.txt").await, raw(run, "new.txt").await), (json!("two\n"), json!("new\n")));
    assert!(!run.repo.join("b.txt").exists());
    assert_one_story(run).await;
}

/// A folder whose note was lost is not trusted: the files are made again, and it is kept.
#[rstest]
#[tokio::test]
async fn a_folder_without_a_note_is_set_aside(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    server.until_journal_is_empty().await;
    assert!(server.stop().success());
    let note = server.workspace("r").join(".reached");
    std::fs::remove_file(&note).unwrap();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(raw(&run, "a.txt").await, "one\n");
    assert!(note.exists());
    run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(raw(&run, "a.txt").await, "two\n");
    assert_one_story(&run).await;
}

/// A service that had no object store was killed between the commit and the end of the import, and goes on as a node.
#[tokio::test]
async fn the_only_copy_of_a_run_whose_import_was_not_confirmed_is_kept() {
    let mut node = nodes::prepare(None).await;
    nodes::restart_without_store(&mut node);
    let files = [("a.txt", "a\n"), (".gitignore", "*.log\n"), ("old.log", "ignored\n")];
    let run = node.run_with_files(&files, json!({"runId": "r"})).await;
    assert!(node.stop().success());
    leave_unconfirmed(&node);
    nodes::start(&mut node);
    let run = node.reconnect(&run);
    assert_eq!(raw(&run, "a.txt").await, "a\n", "{}", node.log());
    assert_eq!(run.on_disk("old.log"), "ignored\n");
    assert!(!node.workspace("r").join(".unfinished").exists());
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    assert_one_story(&run).await;
}

/// Another import of the same ID has left its folder here.
#[tokio::test]
async fn the_folder_of_another_import_is_not_taken_for_that_of_the_run() {
    let mut node = nodes::prepare(None).await;
    nodes::start(&mut node);
    let run = node.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    let other = node.run_with_files(&[("a.txt", "other\n")], json!({"runId": "other"})).await;
    assert!(node.stop().success());
    std::fs::remove_dir_all(node.workspace("r")).unwrap();
    copy_folder(&node.workspace("other"), &node.workspace("r"));
    std::fs::remove_file(node.workspace("r").join(".owner")).unwrap();
    leave_unconfirmed(&node);
    nodes::start(&mut node);
    assert_eq!(raw(&node.reconnect(&run), "a.txt").await, "a\n");
    assert_eq!(raw(&node.reconnect(&other), "a.txt").await, "other\n");
}

/// Gives the folder of the run `r` what it has before an import is confirmed.
fn leave_unconfirmed(server: &Server) {
    let start = format!("0 {}\n", "0".repeat(64));
    std::fs::write(server.workspace("r").join(".reached"), start.repeat(2)).unwrap();
    std::fs::write(server.workspace("r").join(".unfinished"), "").unwrap();
}
