//! What is lost or changes between a backup and its restore, and what is said of it.

use std::path::PathBuf;

use rstest::rstest;
use serde_json::json;

use super::steps::{LARGE, backup, backups, destroy, json_of, objects, paused_backup, restore};
use crate::audit::checkpoints::until_covered;
use crate::harness::{Backend, Client, Disk, Server, exhaustive, incompressible, items, snapshot};
use crate::operation::replay_and_repair::{assert_ends, offline, output_of, put};

#[rstest]
#[tokio::test]
async fn a_damaged_object_is_named_and_written_again_when_it_is_removed(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let first = json_of(&backup(&server, &["--json"]));
    let object = objects(&server, false).remove(0);
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    json_of(&backup(&server, &["--json"]));
    let path = object.display().to_string();
    let says = [path.as_str(), "was changed", "remove this file", "the next backup writes it again"];
    assert_ends(&restore(&server, &["--check"]), 1, &says);
    std::fs::remove_file(&object).unwrap();
    assert_ends(&restore(&server, &["--check"]), 1, &[&path, "the next backup writes it again"]);
    assert_eq!(json_of(&backup(&server, &["--json"]))["newObjects"], 1);
    assert_ends(&restore(&server, &["--check"]), 0, &["intact"]);
    assert_ends(&offline(&server, "restore", &[first["backup"].as_str().unwrap(), "--check"]), 0, &["intact"]);
}

#[rstest]
#[tokio::test]
async fn a_damaged_archive_is_named_and_replaced_by_the_next_backup(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let first = json_of(&backup(&server, &["--json"]));
    let archive = objects(&server, true).remove(0);
    let intact = std::fs::read(&archive).unwrap();
    let mut in_rows = intact.clone();
    // The rows begin after the manifest and their own header.
    let rows = intact.windows(8).rposition(|window| window == b"rows.zst").unwrap() + 512 + 100;
    in_rows[rows] ^= 1;
    for damaged in [vec![0; intact.len()], in_rows] {
        std::fs::write(&archive, damaged).unwrap();
        let says = [archive.to_str().unwrap(), "was changed", "the next backup writes it again"];
        assert_ends(&restore(&server, &["--check"]), 1, &says);
        assert_ends(&backup(&server, &[]), 0, &["r: its archive is damaged, and is written again", "0 new files"]);
        assert!(std::fs::read(&archive).unwrap() == intact, "the archive stays damaged");
        for which in [backups(&server).to_str().unwrap(), first["backup"].as_str().unwrap()] {
            assert_ends(&offline(&server, "restore", &[which, "--check"]), 0, &["intact"]);
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_content_that_stays_missing_is_looked_for_once(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let run = server.run(json!({"runId": "r"})).await;
    put(&run, "large", None, &incompressible(LARGE)).await;
    run.create("small", "s\n").await;
    server.until_journal_is_empty().await;
    std::fs::remove_file(server.repo("r").join("large")).unwrap();
    let (child, file) = paused_backup(&server);
    // A record that has nothing to do with it.
    run.ok("read_file", json!({"path": "small"})).await;
    std::fs::write(file, "").unwrap();
    let done = child.wait_with_output().unwrap();
    assert_ends(&done, 1, &["the content of 1 files was found nowhere", "large"]);
    assert!(!output_of(&done).contains("copying again"), "{}", output_of(&done));
}

#[rstest]
#[tokio::test]
async fn a_run_that_is_archived_meanwhile_comes_back_as_archived(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(true, false)] is_closed_before: bool,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    run.create("b", "b\n").await;
    if is_closed_before {
        server.operator().post("/v1/runs/r/close", json!({})).await.is(200);
        until_covered(&run, run.get().await["headSeq"].as_u64().unwrap()).await;
    }
    let (child, file) = paused_backup(&server);
    if !is_closed_before {
        server.operator().post("/v1/runs/r/close", json!({})).await.is(200);
    }
    assert!(server.stop().success());
    let archives = server.home.join("archives");
    std::fs::create_dir(&archives).unwrap();
    server.setup = server.setup.clone().arg("--archive-after", "1s").arg("--archive-to", archives.display());
    server.restart();
    let archived = async || {
        let run = server.operator().get("/v1/runs/r").await.ok();
        run["archiveUri"].as_str().filter(|_| !server.workspace("r").exists()).map(str::to_owned)
    };
    let uri = server.until("the run is archived", archived).await;
    std::fs::write(file, "").unwrap();
    assert_ends(&child.wait_with_output().unwrap(), 0, &["0 runs"]);
    destroy(&mut server).await;
    let restored = json_of(&restore(&server, &["--json"]));
    assert_eq!(restored["archived"], json!([{"runId": "r", "archiveUri": uri}]), "{restored}");
    assert_eq!(restored["deleted"], json!([]), "{restored}");
    server.restart();
    let shown = server.operator().get("/v1/runs/r").await.ok();
    assert_eq!(shown["state"], "deleted");
    if is_closed_before {
        assert_eq!(shown["archiveUri"], uri, "{shown}");
    } else {
        // The archive has records that the backup lacks.
        let audit = server.operator().get("/v1/runs/r/audit").await.ok();
        let last = audit["items"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["input"]["archiveUri"], uri, "{audit}");
    }
    assert!(server.stop().success());
    assert_ends(&server.verify(&[]), 0, &[" 0 broken"]);
}

#[rstest]
#[tokio::test]
async fn tokens_that_were_revoked_after_the_backup_are_reported_and_revoked_on_request(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(false, true)] revokes: bool,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let ann = server.operator().post("/v1/operators", json!({"name": "ann", "scopes": ["audit"]})).await.is(201);
    let issued = server.operator().post("/v1/runs/r/tokens", json!({"permissions": ["file:read"]})).await.is(201);
    json_of(&backup(&server, &["--json", "--include-key"]));
    let token = format!("/v1/runs/r/tokens/{}", issued["tokenId"].as_str().unwrap());
    for revoked in ["/v1/operators/ann", &token] {
        let status = server.operator().delete(revoked).await.status;
        assert!([200, 204].contains(&status), "{revoked}: {status}");
    }
    destroy(&mut server).await;
    let args: &[&str] = if revokes { &["--revoke-tokens"] } else { &[] };
    let says = if revokes { "2 tokens of runs and 1 operators were revoked" } else { "are valid again" };
    assert_ends(&restore(&server, args), 0, &[says]);
    server.restart();
    let status = if revokes { 401 } else { 200 };
    let clients = [&ann, &issued].map(|created| Client::new(&server.base, created["token"].as_str()));
    assert_eq!(clients[0].get("/v1/audit").await.status, status);
    let read = clients[1].post("/v1/runs/r/tools/read_file", json!({"path": "a"})).await;
    assert_eq!(read.status, status, "{}", read.text());
    assert_eq!(server.reconnect(&run).call("read_file", json!({"path": "a"})).await.status, status);
    let records = items(&server.operator(), "/v1/audit?run=_service").await;
    let seen: Vec<_> = records.iter().map(|record| [record["tool"].as_str(), record["actor"].as_str()]).collect();
    let created = [Some("operator.create"), Some("operator:orchestrate")];
    let revoked = [Some("operator.revoke"), Some("operator:restore")];
    assert_eq!(seen, [created, revoked][..if revokes { 2 } else { 1 }]);
    assert!(server.stop().success());
    assert_ends(&server.verify(&[]), 0, &[" 0 broken"]);
}

/// Names begin with the time, and the clock may have been set back.
#[rstest]
#[tokio::test]
async fn the_newest_backup_is_the_one_that_was_written_last(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    server.run(json!({"runId": "r"})).await;
    let first = json_of(&backup(&server, &["--json"]));
    let ahead = backups(&server).join("2999-01-01T00-00-00.000000Z");
    std::fs::rename(first["backup"].as_str().unwrap(), &ahead).unwrap();
    server.run(json!({"runId": "later"})).await;
    let last = json_of(&backup(&server, &["--json"]));
    let checked = json_of(&restore(&server, &["--check", "--json"]));
    assert_eq!(checked["backup"], last["backup"]);
    // One that cannot be read may be the newest.
    std::fs::write(ahead.join("manifest.json"), "{}").unwrap();
    let says = ["2999-01-01", "it may be the newest backup, so name the folder of the one to restore", "was changed"];
    assert_ends(&restore(&server, &["--check"]), 1, &says);
    assert_ends(&offline(&server, "restore", &[last["backup"].as_str().unwrap(), "--check"]), 0, &["intact"]);
}

#[rstest]
#[tokio::test]
async fn a_failed_backup_leaves_the_objects_of_a_backup_that_cannot_be_read(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let Some(disk) = Disk::in_memory(&backups(&server), "size=16m") else { return };
    server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let first = json_of(&backup(&server, &["--json"]));
    let manifest = PathBuf::from(first["backup"].as_str().unwrap()).join("manifest.json");
    let intact = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, "{}").unwrap();
    // There is room for the database and the first run.
    let second = server.run(json!({"runId": "s"})).await;
    put(&second, "large", None, &incompressible(3 * LARGE)).await;
    let filler = disk.fill_but("lost+found", 3_000_000);
    let failed = backup(&server, &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", output_of(&failed));
    assert!(output_of(&failed).contains("no object is removed"), "{}", output_of(&failed));
    drop(filler);
    std::fs::write(&manifest, intact).unwrap();
    assert_ends(&restore(&server, &["--check"]), 0, &["intact"]);
}

#[rstest]
#[tokio::test]
async fn the_artifacts_of_a_run_are_in_its_backup(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let folders = ["artifacts", "tool-cache"].map(|name| server.workspace("r").join(name));
    for folder in &folders {
        std::fs::create_dir(folder.join("build")).unwrap();
        std::fs::write(folder.join("build/report"), "report\n").unwrap();
        std::os::unix::fs::symlink("build/report", folder.join("latest")).unwrap();
    }
    let before = snapshot(&folders[0]);
    assert_eq!(before.len(), 3, "{before:?}");
    json_of(&backup(&server, &["--json"]));
    destroy(&mut server).await;
    json_of(&restore(&server, &["--json"]));
    assert_eq!(snapshot(&folders[0]), before);
    assert!(snapshot(&folders[1]).is_empty(), "a cache was restored");
    server.restart();
    server.reconnect(&run).ok("read_file", json!({"path": "a"})).await;
}
