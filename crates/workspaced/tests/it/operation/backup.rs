//! `workspaced backup` copies a running service, and `workspaced restore` brings it back.

mod keys;
mod losses;
mod refusals;
pub(super) mod steps;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rstest::rstest;
use serde_json::json;

use self::steps::{
    LARGE, Writer, assert_sound, backup, backups, destroy, json_of, killed_at, paused_backup, restore, runs, trees,
    until_signed,
};
use crate::harness::{Backend, Disk, Server, Setup, exhaustive, incompressible, items, sha256, snapshot, tar_of};
use crate::operation::replay_and_repair::{assert_ends, offline, output_of, put};

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_running_service_is_restored_with_everything_that_was_acknowledged(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let mut all = runs(&server).await;
    let before = trees(&server, &all);
    let mut writers = Vec::new();
    for number in 0..3 {
        writers.push(Writer::start(&server, number).await);
    }
    until_signed(&server).await;
    let acknowledged: Vec<_> = writers.iter().map(Writer::acknowledged).collect();
    let written = json_of(&backup(&server, &["--json", "--include-key"]));
    assert_eq!((&written["runs"], &written["isComplete"]), (&json!(6), &json!(true)), "{written}");
    assert_eq!(written["remarks"], json!([]), "{written}");
    for writer in &writers {
        writer.stop.store(true, Ordering::SeqCst);
    }
    let mut after = Vec::new();
    for writer in writers {
        writer.task.await.unwrap();
        after.push(writer.written.lock().unwrap().clone());
        all.push(writer.run);
    }
    destroy(&mut server).await;

    assert_ends(&restore(&server, &["--check"]), 0, &["intact"]);
    assert!(!server.data_dir().exists(), "a check has written");
    let restored = json_of(&restore(&server, &["--json"]));
    assert_eq!(
        (&restored["runs"], &restored["needsRepair"], &restored["hasKey"]),
        (&json!(6), &json!([]), &json!(true))
    );
    assert_sound(&server, &all, "restored");
    assert_eq!(trees(&server, &all[..3]), before);
    server.restart();
    for (number, count) in acknowledged.into_iter().enumerate() {
        let run = server.reconnect(&all[3 + number]);
        for (path, content) in &after[number][..count] {
            let read = run.ok("read_file", json!({"path": path})).await;
            assert_eq!(read["content"], json!(format!("     1 | {content}")), "{path}");
        }
    }
    let one = server.reconnect(&all[0]);
    one.create("goes-on.txt", "on\n").await;
    assert_eq!(server.operator().get("/v1/runs/gone").await.ok()["state"], "deleted");
    let log = server.operator().get("/v1/checkpoint").await;
    assert_eq!(log.status, 200, "{}", log.text());
    assert!(server.nobody().get("/metrics").await.text().contains("\nworkspaced_signing_stopped 0\n"));
    assert!(server.stop().success());
    assert_sound(&server, &all, "used");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_either_database_is_restored_into_the_other_and_back(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let all = runs(&server).await;
    let before = trees(&server, &all);
    until_signed(&server).await;
    let records = items(&server.auditor(), "/v1/audit").await;
    let mut run = all[0].clone();
    let other = if backend == Backend::Sqlite { Backend::Postgres } else { Backend::Sqlite };
    for target in [other, backend] {
        json_of(&backup(&server, &["--json", "--include-key"]));
        server.setup.backend = target;
        destroy(&mut server).await;
        let restored = json_of(&restore(&server, &["--json"]));
        assert_eq!((&restored["runs"], &restored["needsRepair"]), (&json!(3), &json!([])), "{restored}");
        assert_eq!(trees(&server, &all), before);
        server.restart();
        let now = items(&server.auditor(), "/v1/audit").await;
        assert_eq!(now[..records.len()], records);
        run = server.reconnect(&run);
        run.ok("read_file", json!({"path": "a.txt"})).await;
        assert!(server.nobody().get("/metrics").await.text().contains("\nworkspaced_signing_stopped 0\n"));
    }
    assert!(server.stop().success());
    assert_sound(&server, &all, "moved");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_changes_after_the_copy_of_the_database_is_not_in_the_backup(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let all = runs(&server).await;
    let before = trees(&server, &all);
    let (child, file) = paused_backup(&server);
    let one = &all[0];
    one.replace("a.txt", "later\n", &sha256("changed\n")).await.ok();
    one.replace("old.log", "later\n", &sha256("ignored\n")).await.ok();
    one.create("later/file.log", "later\n").await;
    one.ok("delete_file", json!({"path": "b.txt", "expectedSha256": sha256("b\n"), "reason": "r"})).await;
    one.operator.delete("/v1/runs/git").await.ok();
    server.run_with_files(&[("x", "x\n")], json!({"runId": "newer"})).await;
    std::fs::write(file, "").unwrap();
    assert_ends(&child.wait_with_output().unwrap(), 0, &["2 runs"]);
    destroy(&mut server).await;

    let restored = json_of(&restore(&server, &["--json"]));
    assert_eq!((&restored["runs"], &restored["deleted"]), (&json!(2), &json!(["git"])), "{restored}");
    let kept = [all[0].clone(), all[2].clone()];
    for run in &kept {
        assert_eq!(snapshot(&server.repo(&run.id)), before[&run.id], "{}", run.id);
    }
    server.restart();
    assert_eq!(server.operator().get("/v1/runs/git").await.ok()["state"], "deleted");
    assert_eq!(server.operator().get("/v1/runs/newer").await.status, 404);
    assert!(server.stop().success());
    assert_sound(&server, &kept, "then");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_that_is_replaced_meanwhile_is_copied_with_the_database_again(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run(json!({"runId": "r"})).await;
    let (first, second) = (incompressible(LARGE), incompressible(LARGE + 800));
    put(&run, "large", None, &first).await;
    let (child, file) = paused_backup(&server);
    put(&run, "large", Some(&first), &second).await;
    std::fs::write(file, "").unwrap();
    assert_ends(&child.wait_with_output().unwrap(), 0, &["copying again"]);
    destroy(&mut server).await;
    assert_ends(&restore(&server, &[]), 0, &["1 runs were restored, 0 need repair"]);
    assert!(std::fs::read(server.repo("r").join("large")).unwrap() == second, "another content");
}

#[rstest]
#[tokio::test]
async fn only_new_files_are_copied_and_removed_backups_free_their_files(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let content: String = incompressible(300_000).iter().map(|byte| char::from(b'!' + byte % 90)).collect();
    let (repository, _) = server.repository(&[("big.txt", &content)]);
    let source = json!({"type": "git", "url": repository});
    server.run(json!({"runId": "first", "source": source})).await;
    let written = json_of(&backup(&server, &["--json"]));
    assert!(written["newBytes"].as_u64().unwrap() > 200_000, "{written}");
    let again = json_of(&backup(&server, &["--json"]));
    assert_eq!((&again["newObjects"], &again["newBytes"]), (&json!(0), &json!(0)), "{again}");
    // A run that has not changed is the same archive. Another run of the same commit has the same pack.
    let second = server.run(json!({"runId": "second", "source": source})).await;
    second.create("n.txt", "n\n").await;
    let third = json_of(&backup(&server, &["--json"]));
    assert!(third["newBytes"].as_u64().unwrap() < 50_000, "a base was copied twice: {third}");
    for old in [&written, &again] {
        let old = old["backup"].as_str().unwrap();
        assert_ends(&offline(&server, "restore", &[old, "--check"]), 0, &["intact"]);
        std::fs::remove_dir_all(old).unwrap();
    }
    server.operator().delete("/v1/runs/first").await.ok();
    server.operator().delete("/v1/runs/second").await.ok();
    json_of(&backup(&server, &["--json"]));
    assert_ends(&offline(&server, "restore", &[third["backup"].as_str().unwrap(), "--check"]), 0, &["intact"]);
    std::fs::remove_dir_all(third["backup"].as_str().unwrap()).unwrap();
    json_of(&backup(&server, &["--json"]));
    let objects = snapshot(&backups(&server).join("objects"));
    assert!(objects.values().all(|entry| entry == "directory"), "objects that nobody needs stay: {objects:?}");
}

#[rstest]
#[tokio::test]
async fn a_killed_backup_is_no_backup(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::start(backend).await;
    runs(&server).await;
    let points = ["backup.database", "backup.object:2", "backup.run:2", "backup.manifest"];
    for point in points {
        killed_at(&server, "backup", point, &[]);
        assert_ends(&restore(&server, &["--check"]), 2, &["it has no complete backup"]);
    }
    let first = json_of(&backup(&server, &["--json"]));
    for point in points {
        if point.starts_with("backup.object") {
            put(&server.run(json!({})).await, "l", None, &incompressible(LARGE + 80)).await;
        }
        killed_at(&server, "backup", point, &[]);
        let checked = json_of(&restore(&server, &["--check", "--json"]));
        assert!(checked["backup"].as_str().unwrap().ends_with(first["backup"].as_str().unwrap()), "{point}: {checked}");
    }
    json_of(&backup(&server, &["--json"]));
    let names =
        std::fs::read_dir(backups(&server)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with('Z')).count(), 2, "a partial backup stays");
}

#[rstest]
#[tokio::test]
async fn a_killed_restore_is_not_served_and_can_be_repeated(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let all = runs(&server).await;
    let before = trees(&server, &all);
    json_of(&backup(&server, &["--json", "--include-key"]));
    destroy(&mut server).await;
    for point in ["restore.begun", "restore.database", "restore.base:2", "restore.run:2", "restore.complete"] {
        killed_at(&server, "restore", point, &[]);
        let refused = server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
        assert_ends(&refused, 2, &["its restore has not finished: repeat `workspaced restore`"]);
    }
    assert_ends(&restore(&server, &[]), 0, &["3 runs were restored, 0 need repair"]);
    assert_eq!(trees(&server, &all), before);
    server.restart();
    server.reconnect(&all[0]).create("goes-on.txt", "x\n").await;
}

#[rstest]
#[tokio::test]
async fn a_changed_byte_is_named_and_nothing_is_written(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    runs(&server).await;
    until_signed(&server).await;
    let written = json_of(&backup(&server, &["--json"]));
    destroy(&mut server).await;
    let folder = PathBuf::from(written["backup"].as_str().unwrap());
    let objects = snapshot(&backups(&server).join("objects"));
    let object = objects.iter().find(|(_, entry)| *entry != "directory").unwrap().0;
    for path in [
        backups(&server).join("objects").join(object),
        folder.join("service.tar"),
        folder.join("checkpoints.log"),
        folder.join("manifest.json"),
    ] {
        let bytes = std::fs::read(&path).unwrap();
        let mut changed = bytes.clone();
        changed[bytes.len() / 2] ^= 1;
        std::fs::write(&path, changed).unwrap();
        let name = Path::new(path.file_name().unwrap()).display().to_string();
        for args in [&["--check"][..], &[]] {
            assert_ends(&restore(&server, args), 1, &[&name, "was changed"]);
        }
        assert!(!server.data_dir().exists(), "{name}: something was written");
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::remove_file(folder.join("identity")).unwrap();
    assert_ends(&restore(&server, &[]), 1, &["identity: No such file"]);
}

#[rstest]
#[tokio::test]
async fn folders_and_databases_in_use_are_refused(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = Server::start(backend).await;
    server.run_with_files(&[("a", "a\n")], json!({})).await;
    let inside = server.data_dir().join("b");
    assert_ends(&offline(&server, "backup", &[inside.to_str().unwrap()]), 2, &["lies in the data folder"]);
    let other = server.import_root();
    server.template(&[("a", "a\n")]);
    assert_ends(&offline(&server, "backup", &[other.to_str().unwrap()]), 2, &["has other files than backups"]);
    json_of(&backup(&server, &["--json"]));
    assert_ends(&restore(&server, &[]), 2, &["another workspaced is using this folder"]);
    assert!(server.stop().success());
    assert_ends(&restore(&server, &[]), 2, &["the folder is not empty"]);
    let foreign = other.to_str().unwrap();
    assert_ends(&restore(&server, &["--data-dir", foreign]), 2, &["the folder is not empty"]);
    assert!(!other.join("lock").exists(), "a refused restore has written");
    let fresh = server.home.join("fresh");
    let fresh = fresh.to_str().unwrap();
    let says = if backend == Backend::Sqlite { "there is a database at" } else { "the database is not empty" };
    assert_ends(&restore(&server, &["--data-dir", fresh]), 2, &[says]);
    assert_ends(&restore(&server, &["--check"]), 0, &["intact"]);
    // The refusals have changed nothing.
    server.restart();
}

#[rstest]
#[tokio::test]
async fn a_full_disk_leaves_the_earlier_backup(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::start(backend).await;
    let Some(disk) = Disk::in_memory(&backups(&server), "size=16m") else { return };
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let first = json_of(&backup(&server, &["--json"]));
    put(&run, "large", None, &incompressible(LARGE)).await;
    // A name that a backup allows.
    let filler = disk.fill_as("lost+found");
    let failed = backup(&server, &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", output_of(&failed));
    let checked = json_of(&restore(&server, &["--check", "--json"]));
    assert!(checked["backup"].as_str().unwrap().ends_with(first["backup"].as_str().unwrap()), "{checked}");
    drop(filler);
    let second = json_of(&backup(&server, &["--json"]));
    assert!(second["newBytes"].as_u64().unwrap() >= LARGE as u64 - 8, "{second}");
    assert_ends(&restore(&server, &["--check"]), 0, &["intact"]);
}

#[rstest]
#[tokio::test]
async fn an_older_database_with_todays_checkpoints_signs_no_more(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start_with(Setup::new(backend).arg("--checkpoint-seconds", 1)).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    json_of(&backup(&server, &["--json", "--include-key"]));
    run.create("later", "later\n").await;
    assert!(server.stop().success());
    server.restart();
    server.reconnect(&run).create("again", "again\n").await;
    let log = server.data_dir().join("checkpoints.log");
    let has_grown = || std::fs::read_to_string(&log).unwrap_or_default().matches("\n\n— ").count() > 1;
    server.until("another checkpoint is signed", async || has_grown()).await;
    assert!(server.stop().success());
    let newer = std::fs::read(&log).unwrap();
    destroy(&mut server).await;
    assert_ends(&restore(&server, &[]), 0, &["1 runs were restored"]);
    let copied = std::fs::read(&log).unwrap_or_default();
    assert!(
        newer.starts_with(&copied) && newer.len() > copied.len(),
        "the copied log is not the beginning of the other"
    );
    std::fs::write(&log, newer).unwrap();
    server.restart();
    assert!(server.nobody().get("/metrics").await.text().contains("\nworkspaced_signing_stopped 1\n"));
    server.reconnect(&run).ok("read_file", json!({"path": "a"})).await;
}

#[rstest]
#[tokio::test]
async fn a_run_that_needs_repair_comes_back_as_it_was(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    let archived = json!({"runId": "lost", "source": {"type": "archive"}});
    server.operator().post("/v1/runs", archived).await.is(201);
    let sent = server.operator().request(reqwest::Method::PUT, "/v1/runs/lost/archive");
    server.operator().send(sent.body(tar_of(&[("c.txt", b"c\n")]))).await.is(200);
    assert!(server.stop().success());
    let yes = if backend == Backend::Sqlite { "1" } else { "true" };
    let sql = format!("UPDATE run SET needs_repair = {yes} WHERE run_id = 'r'");
    assert_eq!(server.database.tamper(&sql).await, Ok(1));
    run.put("a.txt", "from outside\n");
    std::fs::write(server.repo("lost").join("own.txt"), "own\n").unwrap();
    std::fs::remove_file(server.workspace("lost").join("base")).unwrap();
    let written = backup(&server, &["--include-key"]);
    assert_ends(&written, 1, &["r: the run needs repair", "lost: not all of it could be read: `base` is missing"]);
    destroy(&mut server).await;
    assert_ends(
        &restore(&server, &[]),
        1,
        &["r: needs repair: it needed repair before", "lost: needs repair: not all"],
    );
    assert_eq!(run.on_disk("a.txt"), "from outside\n");
    assert_eq!(std::fs::read(server.repo("lost").join("own.txt")).unwrap(), b"own\n");
    server.restart();
    let refused = server.reconnect(&run).edit("a.txt", "a", "b", json!({})).await;
    assert_eq!(refused.refusal(), "RUN_NEEDS_REPAIR");
}

#[rstest]
#[tokio::test]
async fn the_commands_of_the_page_of_backups_work(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/operations/backup-and-restore.md"))
            .unwrap();
    // The restore is in a block of its own, because the service must not run meanwhile.
    let commands = page.lines().filter(|line| line.starts_with("workspaced ")).collect::<Vec<_>>();
    assert!(commands.len() >= 4, "{commands:?}");
    let folder = backups(&server).display().to_string();
    for line in commands {
        let word = |word| if word == "backups" { folder.clone() } else { String::from(word) };
        let words: Vec<_> = line.split_whitespace().map(word).collect();
        if words[1] == "restore" && !words.contains(&"--check".to_owned()) {
            destroy(&mut server).await;
        }
        let args: Vec<_> = words[2..].iter().map(String::as_str).collect();
        assert_ends(&offline(&server, &words[1], &args), 0, &[]);
    }
    server.restart();
    server.reconnect(&run).ok("read_file", json!({"path": "a"})).await;
}

#[rstest]
#[tokio::test]
async fn a_large_content_that_waits_for_approval_is_restored(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("pic.bin", "\0old")], json!({"runId": "r", "policy": asking()})).await;
    let new = incompressible(LARGE);
    let request = run.agent.request(reqwest::Method::PUT, "/v1/runs/r/files/pic.bin").header("x-reason", "r");
    let request = request.header("if-match", format!("\"{}\"", sha256("\0old"))).body(new.clone());
    let asked = run.agent.send(request).await.refused("APPROVAL_REQUIRED");
    assert_ends(&backup(&server, &[]), 0, &["1 runs"]);
    destroy(&mut server).await;
    assert_ends(&restore(&server, &[]), 0, &["1 runs were restored, 0 need repair"]);
    server.restart();
    let run = server.reconnect(&run);
    let path = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    assert_eq!(run.operator.post(&path, json!({"onBehalfOf": "ada"})).await.ok()["state"], "approved");
    assert!(std::fs::read(server.repo("r").join("pic.bin")).unwrap() == new, "another content");
    assert!(server.stop().success());
    assert_sound(&server, &[run], "restored");
}

/// A policy under which every change of a binary file asks.
fn asking() -> serde_json::Value {
    json!({"kinds": {"BINARY": "REQUIRE_APPROVAL"}})
}
