//! Which key that signs checkpoints a backup has, and that it belongs to the copied database.

use std::path::Path;

use rstest::rstest;
use serde_json::{Value, json};

use super::steps::{backup, destroy, json_of, paused_backup, restore, until_signed};
use crate::audit::key_changes::{replace_key, sign_another};
use crate::harness::{Backend, Run, Server, Setup};
use crate::operation::replay_and_repair::{assert_ends, offline, output_of};

async fn signed(setup: Setup) -> (Server, Run) {
    let server = Server::start_with(setup).await;
    let run = server.run_with_files(&[("a", "a\n")], json!({"runId": "r"})).await;
    until_signed(&server).await;
    (server, run)
}

/// Starts the restored service, which signs on with the restored key.
async fn assert_signs_on(server: &mut Server, run: &Run) {
    server.restart();
    assert!(server.nobody().get("/metrics").await.text().contains("\nworkspaced_signing_stopped 0\n"));
    server.reconnect(run).create("on.txt", "on\n").await;
    assert!(server.stop().success());
    assert_ends(&server.verify(&[]), 0, &[" 0 broken"]);
}

fn has(report: &Value, name: &str) -> bool {
    Path::new(report["backup"].as_str().unwrap()).join(name).exists()
}

#[rstest]
#[tokio::test]
async fn a_key_that_is_replaced_meanwhile_is_not_in_the_backup(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (mut server, run) = signed(Setup::new(backend)).await;
    let old = std::fs::read(server.data_dir().join("checkpoint.key")).unwrap();
    let (child, file) = paused_backup(&server);
    assert!(server.stop().success());
    replace_key(&mut server, &run, "meanwhile.txt").await;
    std::fs::write(file, "").unwrap();
    let done = child.wait_with_output().unwrap();
    assert_ends(&done, 1, &["has no key in force in the copied database", "repeat the backup"]);
    destroy(&mut server).await;
    assert_ends(&restore(&server, &[]), 0, &["1 runs were restored", "the backup has no keys"]);
    std::fs::write(server.data_dir().join("checkpoint.key"), old).unwrap();
    assert_signs_on(&mut server, &run).await;
}

/// With the present key alone, with its successor before and after a checkpoint by both, and after a kill.
#[rstest]
#[tokio::test]
async fn the_keys_of_each_step_of_a_replacement_are_copied(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("key.written", "key.replaced", "rotate", "overlap", "retire")] until: &str,
) {
    let (mut server, run) = signed(Setup::new(backend)).await;
    assert!(server.stop().success());
    if until.starts_with("key.") {
        let killed = server.command("key").arg("rotate").env("WORKSPACED_FAILPOINT", until).output().unwrap();
        assert_eq!(killed.status.code(), None, "it was not killed: {}", output_of(&killed));
    } else {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
    }
    if matches!(until, "overlap" | "retire") {
        sign_another(&mut server, &run, "both.txt").await;
    }
    if until == "retire" {
        assert_ends(&offline(&server, "key", &["retire"]), 0, &[]);
    }
    let written = json_of(&backup(&server, &["--json", "--include-key"]));
    assert_eq!((&written["includesKey"], has(&written, "checkpoint.key")), (&json!(true), true), "{written}");
    destroy(&mut server).await;
    assert_eq!(json_of(&restore(&server, &["--json"]))["hasKey"], true);
    assert_signs_on(&mut server, &run).await;
}

#[rstest]
#[tokio::test]
async fn a_key_that_is_not_in_the_file_is_reported(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, _) = signed(Setup::new(backend)).await;
    let missing = server.home.join("nowhere.key");
    let missing = ["--checkpoint-key-file", missing.to_str().unwrap()];
    let done = backup(&server, &[&["--json", "--include-key"], &missing[..]].concat());
    assert_eq!(done.status.code(), Some(1), "{}", output_of(&done));
    let written: Value = serde_json::from_slice(&done.stdout).unwrap();
    let says = written["remarks"][0]["message"].as_str().unwrap();
    assert!(says.contains("nowhere.key") && says.contains("WORKSPACED_CHECKPOINT_KEY"), "{written}");
    assert_eq!((&written["includesKey"], &written["isComplete"]), (&json!(false), &json!(false)), "{written}");
    assert!(!has(&written, "checkpoint.key"));
    assert_eq!(json_of(&restore(&server, &["--check", "--json"]))["hasKey"], false);
    let without = json_of(&backup(&server, &["--json"]));
    assert_eq!((&without["includesKey"], &without["isComplete"]), (&json!(false), &json!(true)), "{without}");
}
