//! The files of a run on the disks of several nodes: a folder that another node's changes have made outdated is not used.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use super::{LEASE, prepare, start, two, until_recorded};
use crate::harness::{Run, Server, assert_chain, sha256, until};

/// Reads `a.txt` by a call to any node, as soon as one answers.
async fn read(run: &Run) -> String {
    let answered = async || {
        let answer = run.call("read_file", json!({"path": "a.txt", "format": "raw"})).await;
        if answer.status == 200 {
            return Ok(answer.ok()["content"].as_str().unwrap().to_owned());
        }
        Err(answer.refused("UNAVAILABLE"))
    };
    until("a node answers", answered).await
}

/// How often the log of a node says that the files of a run were fetched.
fn fetches(node: &Server) -> usize {
    node.log().matches("the files of a run were fetched").count()
}

#[tokio::test]
async fn a_node_that_gets_a_run_back_sees_what_another_one_has_written() {
    let [mut first, mut second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n")], json!({})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    assert_eq!(read(&away).await, "one\n");
    away.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    away.create("new.txt", "n\n").await;
    away.ok("delete_file", json!({"path": "b.txt", "expectedSha256": sha256("b\n"), "reason": "r"})).await;
    assert!(second.stop().success());
    start(&mut first);
    let back = first.reconnect(&run);
    assert_eq!(read(&back).await, "two\n");
    assert_eq!((back.on_disk("a.txt"), back.on_disk("new.txt")), ("two\n".to_owned(), "n\n".to_owned()));
    assert!(!back.has("b.txt").await);
    let drift = back.agent.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    assert_eq!(drift["items"], json!([]), "{drift:#}");
    back.replace("a.txt", "three\n", &sha256("two\n")).await.ok();
    assert_chain(&run.id, &back.audit().await);
    assert_eq!(back.verify().await["intact"], true);
}

#[tokio::test]
async fn a_node_that_wakes_sees_what_another_one_has_written_meanwhile() {
    let [first, mut second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    let away = second.reconnect(&run);
    first.signal(Signal::STOP);
    until_recorded(&away.operator, &away, "taken", LEASE * 3).await;
    away.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    assert!(second.stop().success());
    first.signal(Signal::CONT);
    assert_eq!(read(&run).await, "two\n");
    assert_eq!(run.on_disk("a.txt"), "two\n");
    run.replace("a.txt", "three\n", &sha256("two\n")).await.ok();
    assert_chain(&run.id, &run.audit().await);
}

#[tokio::test]
async fn a_node_that_is_killed_while_it_replaces_outdated_files_has_either_none_of_them_or_all() {
    let [mut first, mut second] = two().await;
    let mut run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let mut before = "a\n".to_owned();
    for point in ["restore.made", "restore.placed", "restore.noted"] {
        run.replace("a.txt", &format!("before {point}\n"), &sha256(&before)).await.ok();
        assert!(first.stop().success());
        let away = second.reconnect(&run);
        let now = format!("{point}\n");
        away.replace("a.txt", &now, &sha256(format!("before {point}\n"))).await.ok();
        assert!(second.stop().success());
        first.setup.env.push(("WORKSPACED_FAILPOINT".to_owned(), point.to_owned()));
        start(&mut first);
        let agent = first.reconnect(&run).agent;
        let call = agent.request(Method::POST, &format!("/v1/runs/{}/tools/read_file", run.id));
        assert!(agent.try_send(call.json(&json!({"path": "a.txt"}))).await.is_err(), "{point}: the node survived");
        first.wait();
        first.setup.env.pop();
        start(&mut first);
        run = first.reconnect(&run);
        assert_eq!(read(&run).await, now, "{point}");
        assert_eq!(run.on_disk("a.txt"), now);
        let folders = std::fs::read_dir(first.data_dir().join("workspaces")).unwrap();
        let left: Vec<_> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!left.iter().any(|name| name.starts_with(".import-")), "{left:?}");
        before = now;
        start(&mut second);
    }
    assert_chain(&run.id, &run.audit().await);
}

#[tokio::test]
async fn a_single_service_after_nodes_does_not_use_outdated_files() {
    let [mut first, mut second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    assert!(first.stop().success());
    second.reconnect(&run).replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    assert!(second.stop().success());
    first.restart();
    let run = first.reconnect(&run);
    assert_eq!(read(&run).await, "two\n");
    run.replace("a.txt", "three\n", &sha256("two\n")).await.ok();
    first.kill();
    first.restart();
    let run = first.reconnect(&run);
    assert_eq!(read(&run).await, "three\n");
    assert!(first.stop().success());
    // And nodes again.
    start(&mut second);
    let away = second.reconnect(&run);
    assert_eq!(read(&away).await, "three\n");
    assert_chain(&run.id, &away.audit().await);
}

#[tokio::test]
async fn a_restored_database_is_not_answered_from_newer_files() {
    let mut first = prepare(None).await;
    start(&mut first);
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    assert!(first.stop().success());
    let backup = first.database.copy().await;
    start(&mut first);
    let run = first.reconnect(&run);
    run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    run.create("new.txt", "n\n").await;
    // Signs a checkpoint, which the older database does not have.
    assert!(first.stop().success());
    first.database.replace_by(backup).await;
    start(&mut first);
    let run = first.reconnect(&run);
    assert_eq!(read(&run).await, "one\n");
    assert!(!run.repo.join("new.txt").exists());
    // It is the only copy of what the database has lost.
    let kept = first.data_dir().join("lost+found").join(&run.id).join("repo");
    assert_eq!(std::fs::read_to_string(kept.join("new.txt")).unwrap(), "n\n");
    assert_eq!(std::fs::read_to_string(kept.join("a.txt")).unwrap(), "two\n");
    assert_eq!(run.audit().await.iter().filter(|record| record["tool"] == "run.set_aside").count(), 1);
}

#[tokio::test]
async fn the_files_of_a_run_that_another_node_has_deleted_are_removed() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    assert!(first.stop().success());
    let away = second.reconnect(&run);
    assert_eq!(read(&away).await, "a\n");
    let folder = first.workspace(&run.id);
    start(&mut first);
    away.operator.delete(&format!("/v1/runs/{}", run.id)).await.is(200);
    assert!(folder.exists());
    until_removed(&folder).await;
}

#[tokio::test]
async fn the_files_of_a_run_that_another_node_owns_are_removed_and_fetched_when_it_comes_back() {
    let [mut first, mut second] = two().await;
    let moved = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    assert!(first.stop().success());
    let away = second.reconnect(&moved);
    assert_eq!(read(&away).await, "a\n");
    start(&mut first);
    let kept = first.run_with_files(&[("b.txt", "b\n")], json!({})).await;
    let (folder, kept_folder) = (first.workspace(&moved.id), first.workspace(&kept.id));
    assert!(folder.exists() && kept_folder.exists());
    until_removed(&folder).await;
    assert!(kept_folder.exists(), "the folder of an own run was removed");
    away.replace("a.txt", "two\n", &sha256("a\n")).await.ok();
    assert!(second.stop().success());
    let back = first.reconnect(&moved);
    assert_eq!(read(&back).await, "two\n");
    assert_chain(&back.id, &back.audit().await);
}

/// Waits until maintenance has removed `folder`: its first removal is 20 seconds after the start.
pub(super) async fn until_removed(folder: &std::path::Path) {
    until(&format!("{} is removed", folder.display()), async || !folder.exists()).await;
}

#[tokio::test]
async fn a_wiped_disk_is_filled_again() {
    let mut first = prepare(None).await;
    first.setup = first.setup.clone().arg("--node-id", "one");
    start(&mut first);
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.replace("a.txt", "one\n", &sha256("a\n")).await.ok();
    first.kill();
    std::fs::remove_dir_all(first.data_dir()).unwrap();
    std::fs::create_dir(first.data_dir()).unwrap();
    start(&mut first);
    let run = first.reconnect(&run);
    assert_eq!(read(&run).await, "one\n");
    run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    assert_chain(&run.id, &run.audit().await);
}

#[tokio::test]
async fn a_node_that_starts_again_keeps_the_files_of_its_runs() {
    let mut node = prepare(None).await;
    start(&mut node);
    let mut run = node.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    for (times, text) in ["one\n", "two\n", "three\n", "four\n"].into_iter().enumerate() {
        run.replace("a.txt", text, &sha256(["a\n", "one\n", "two\n", "three\n"][times])).await.ok();
        if times % 2 == 0 {
            node.kill();
        } else {
            assert!(node.stop().success());
        }
        start(&mut node);
        run = node.reconnect(&run);
        assert_eq!(read(&run).await, text);
        assert_eq!(fetches(&node), 0, "{}", node.log());
    }
    assert_chain(&run.id, &run.audit().await);
}
