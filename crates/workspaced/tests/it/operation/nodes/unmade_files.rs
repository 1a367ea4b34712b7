//! A node that takes a run but cannot make its files does not take it from the node that has them.

use std::time::Duration;

use serde_json::json;

use super::trees::until_removed;
use super::{events, prepare, restart_without_store, start, two};
use crate::harness::{assert_chain, incompressible, sha256};
use crate::operation::replay_and_repair::{assert_ends, put};

#[tokio::test]
async fn a_run_from_before_the_object_store_stays_with_the_node_that_has_its_files() {
    let mut first = prepare(None).await;
    restart_without_store(&mut first);
    let run = first.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n")], json!({})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    assert!(first.stop().success());
    // While its node is away, another one is asked.
    let mut second = prepare(Some(&first)).await;
    start(&mut second);
    let away = second.reconnect(&run);
    let event = json!({"eventId": "away", "kind": "message", "summary": "s"});
    away.operator.post(&events(&run), event).await.is(201);
    away.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
    away.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
    start(&mut first);
    let back = first.reconnect(&run);
    assert_eq!(back.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "one\n");
    back.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    // It answers for the other one now.
    assert_eq!(away.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "two\n");
    // The other one is killed while the run belongs to it.
    assert!(first.stop().success());
    away.operator.post(&events(&run), json!({"eventId": "again", "kind": "message", "summary": "s"})).await.is(201);
    second.kill();
    start(&mut first);
    let back = first.reconnect(&run);
    let is_back = async || back.replace("a.txt", "three\n", &sha256("two\n")).await.status == 200;
    first.until("the run comes back", is_back).await;
    assert!(first.stop().success());
    // The killed process may be alive, as far as the database knows, until another one has its name.
    start(&mut second);
    assert!(second.stop().success());
    // A single service on the folder of the first node serves it too.
    first.restart();
    let back = first.reconnect(&run);
    assert_eq!(back.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "three\n");
    assert_chain(&run.id, &back.audit().await);
    assert_eq!(back.verify().await["intact"], true);
}

#[tokio::test]
async fn the_files_of_a_run_that_no_other_node_has_opened_are_kept() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let complete = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let large = incompressible(2 << 20);
    put(&run, "large.bin", None, &large).await;
    assert!(first.stop().success());
    // The store has lost what only the first node still has.
    let lost = first.home.join("objects/cas").join(sha256(&large));
    std::fs::remove_file(&lost).unwrap_or_else(|error| panic!("{}: {error}", lost.display()));
    let away = second.reconnect(&run);
    away.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
    // The run belongs to the second node, which has not opened it.
    away.operator.post(&events(&run), json!({"eventId": "e", "kind": "message", "summary": "s"})).await.is(201);
    // This one it has opened, so that maintenance removes the other folder.
    second.reconnect(&complete).ok("read_file", json!({"path": "a.txt"})).await;
    start(&mut first);
    until_removed(&first.workspace(&complete.id)).await;
    // The same round may come to the other run later.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(first.workspace(&run.id).exists(), "the only copy was removed");
    // A call that fails there leaves the run to the node that can serve it.
    away.call("read_file", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
    let back = first.reconnect(&run);
    assert_eq!(back.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "a\n");
    assert_eq!(std::fs::read(back.file("large.bin")).unwrap(), large);
    assert_chain(&run.id, &back.audit().await);
}

#[tokio::test]
async fn the_commands_for_one_folder_say_that_a_run_is_on_another_node() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    away.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    let repair = |args: &[&str]| first.command("repair").args(args).output().unwrap();
    let replay = |to: &str| {
        let to = first.home.join(to);
        first.command("replay").args(["--run", &run.id, "--to"]).arg(to).output().unwrap()
    };
    let elsewhere = "its newest files are not in this data folder";
    // Outdated files, and none.
    for to in ["outdated", "none"] {
        assert_ends(&repair(&[]), 0, &["operator action needed: 0"]);
        assert_ends(&repair(&["--run", &run.id]), 0, &[elsewhere]);
        assert_ends(&replay(to), 1, &[elsewhere]);
        std::fs::remove_dir_all(first.workspace(&run.id)).unwrap_or_default();
    }
}
