//! A database restored from a backup: runs that it does not contain are preserved.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, exhaustive, snapshot};
use crate::operation::replay_and_repair::{assert_ends, offline};

/// Returns the folders in `lost+found`.
fn lost(server: &Server) -> Vec<String> {
    let folders = std::fs::read_dir(server.data_dir().join("lost+found"));
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = folders.map(|folders| folders.map(name).collect()).unwrap_or_default();
    names.sort_unstable();
    names
}

#[rstest]
#[tokio::test]
async fn a_run_unknown_to_an_older_database_is_moved_to_lost_and_found(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let old = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "old"})).await;
    let waiting = json!({"runId": "waiting", "source": {"type": "archive"}});
    server.operator().post("/v1/runs", waiting).await.is(201);
    assert!(server.stop().success());
    assert_ends(&offline(&server, "repair", &[]), 0, &["operator action needed: 0"]);
    let backup = server.database.copy().await;
    server.restart();
    let new = server.run_with_files(&[("b.txt", "b\n")], json!({"runId": "new"})).await;
    new.create("work.txt", "of a day\n").await;
    let archive = crate::harness::tar_of(&[("c.txt", b"c\n")]);
    let sent = server.operator().request(reqwest::Method::PUT, "/v1/runs/waiting/archive").body(archive);
    server.operator().send(sent).await.is(200);
    server.until_journal_is_empty().await;
    assert!(server.stop().success());
    let before = ["new", "waiting"].map(|run| snapshot(&server.workspace(run)));

    server.database.replace_by(backup).await;
    server.restart();
    assert_eq!(lost(&server), ["new", "waiting"]);
    let after = ["new", "waiting"].map(|run| snapshot(&server.data_dir().join("lost+found").join(run)));
    assert_eq!(after, before, "files of the run are lost");
    let log = server.log();
    assert!(log.contains("older than the data folder") && log.contains("moved to lost+found"), "{log}");
    let numbers = server.nobody().get("/metrics").await.text();
    assert!(numbers.contains("\nworkspaced_lost_folders 2\n"), "{numbers}");
    let run = server.reconnect(&old);
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.create("goes-on.txt", "x\n").await;

    // A new run with the same name does not affect the saved files, and a second start moves nothing.
    server.run_with_files(&[("b.txt", "other\n")], json!({"runId": "new"})).await;
    assert!(server.stop().success());
    server.restart();
    assert!(server.stop().success());
    assert_eq!(lost(&server), ["new", "waiting"]);
    assert_ends(
        &offline(&server, "repair", &[]),
        1,
        &["lost+found/new", "lost+found/waiting", "operator action needed: 2"],
    );
}

#[rstest]
#[tokio::test]
async fn an_unfinished_import_is_removed(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    assert!(server.stop().success());
    // The states after a kill before the commit and after a kill before the marker is removed.
    let unknown = server.workspace("unknown");
    std::fs::create_dir_all(unknown.join("repo")).unwrap();
    for folder in [unknown.clone(), server.workspace("r")] {
        std::fs::write(folder.join(".unfinished"), "").unwrap();
    }
    server.restart();
    assert!(!unknown.exists() && lost(&server).is_empty());
    assert!(!server.workspace("r").join(".unfinished").exists());
    server.reconnect(&run).ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn the_files_of_a_deleted_run_are_removed(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    assert!(server.stop().success());
    assert_eq!(server.database.tamper("UPDATE run SET state = 'deleted' WHERE run_id = 'r'").await, Ok(1));
    server.restart();
    assert!(!server.workspace("r").exists() && lost(&server).is_empty());
    assert_eq!(server.reconnect(&run).get().await["state"], "deleted");
}
